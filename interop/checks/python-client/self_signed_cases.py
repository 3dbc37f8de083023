"""Our client over TLS with servers as they are by default: no certificate, so that they make one.

What RocketMQ's own TLS_IT tries, with our client in the place of the stock one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inbox import Inbox
from our_messages import as_sent, ours

from interop.support.cases import MismatchError
from interop.support.certificates import Authority
from interop.support.expectations import expect_once, expect_sent, numbered
from rmq.client.trio.opening import open_producer
from rmq.errors import ClientError
from rmq.remoting.tls_config import TlsClientConfig

if TYPE_CHECKING:
    from python_session import PythonSession

PART: Final = "TLS"
TOPIC: Final = "PySelfSigned"


async def run_self_signed_cases(session: PythonSession) -> None:
    with session.operation(PART, "a client that checks nothing sends and consumes"):
        await session.create_topic(TOPIC)
        config = session.config(tls=TlsClientConfig())
        messages = numbered(TOPIC, 16)
        inbox = Inbox()
        async with (
            session.push_consumer("py-self-signed", TOPIC, inbox, config=config),
            open_producer(config, "py-self-signed") as producer,
        ):
            results = [await producer.send(ours(message)) for message in messages]
            expect_sent([as_sent(result) for result in results])
            expect_once(await inbox.wait(16), messages)

    with session.operation(
        PART, "a client that checks certificates refuses one that proves nothing"
    ):
        trust = Authority(session.cluster.folder, "unknown").trust
        config = session.config(tls=TlsClientConfig(auth_server=True, trust_cert_path=trust))
        async with open_producer(config, "py-self-signed") as producer:
            try:
                await producer.send(ours(messages[0]))
            except ClientError:
                pass
            else:
                raise MismatchError("a certificate that proves nothing was believed")
