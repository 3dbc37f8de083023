"""Our client over TLS, signed as well: the same servers that the signed cases have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox
from our_messages import as_sent, ours

from interop.support.cases import MismatchError, expect
from interop.support.expectations import expect_once, expect_sent, numbered
from rmq.client.blocking import BlockingProducer
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_producer, open_push_consumer
from rmq.errors import ClientError
from rmq.remoting.tls_config import TlsClientConfig

if TYPE_CHECKING:
    from interop.support.certificates import Authority
    from interop.support.cluster import Cluster
    from interop.support.results import Operations
    from rmq.client.core.messages import SendResult
    from rmq.remoting.signing import Credentials

PART: Final = "TLS"
NAMES: Final = (
    "ours sends and consumes, both sides' certificates checked",
    "the blocking client sends",
    "a server of a stranger is not trusted",
)


def server_settings(ours_: Authority) -> dict[str, str]:
    """Return the settings of servers that talk TLS to whoever wants to."""
    server = ours_.issue("server")
    return {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(server.cert),
        "tls.server.keyPath": str(server.key),
        "tls.server.trustCertPath": str(ours_.trust),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "optional",
    }


async def run_encrypted_cases(
    operations: Operations,
    cluster: Cluster,
    authority: Authority,
    strangers: Authority,
    *,
    credentials: Credentials,
    topic: str,
    group: str,
) -> None:
    own = authority.issue("client")
    trusting = TlsClientConfig(
        auth_server=True,
        check_hostname=True,
        trust_cert_path=authority.trust,
        cert_path=own.cert,
        key_path=own.key,
    )
    config = ClientConfig(nameservers=cluster.nameserver, credentials=credentials, tls=trusting)
    messages = numbered(topic, 20, tags="TagTls")
    inbox = Inbox()
    consumer = open_push_consumer(
        config, group, {topic: "TagTls"}, inbox, consume_from=ConsumeFrom.FIRST
    )
    async with consumer:
        with operations.operation(PART, NAMES[0]):
            async with open_producer(config, "py-encrypted") as producer:
                results = [await producer.send(ours(message)) for message in messages[:5]]
                expect_sent([as_sent(result) for result in results])
                pending = [await producer.send_soon(ours(message)) for message in messages[5:10]]
                expect_sent([as_sent(await send.wait()) for send in pending])
                (broker, *_) = producer.client.routes.brokers()
                channel = await remoting_of(producer.client).channel(broker.address)
                expect("encrypted", channel.secure, wanted=True)
            expect_once(await inbox.wait(10), messages[:10])

        with operations.operation(PART, NAMES[1]):

            def send() -> list[SendResult]:
                with BlockingProducer(config, "py-encrypted") as producer:
                    return producer.send_many([ours(message) for message in messages[10:]])

            expect_sent([as_sent(result) for result in await trio.to_thread.run_sync(send)])
            expect_once(await inbox.wait(20), messages)

    with operations.operation(PART, NAMES[2]):
        tls = TlsClientConfig(auth_server=True, trust_cert_path=strangers.trust)
        config = ClientConfig(nameservers=cluster.nameserver, credentials=credentials, tls=tls)
        async with open_producer(config, "py-encrypted") as producer:
            try:
                await producer.send(ours(messages[0]))
            except ClientError:
                pass
            else:
                raise MismatchError("a stranger was trusted")
