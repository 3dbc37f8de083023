"""Stock clients in their default test mode over TLS, with servers that have no certificate.

These are the scenarios of RocketMQ's own TLS_IT, TLS_Mix_IT and TLS_Mix2_IT: 16 messages, and one
side of the other kind. Those classes start their own servers, so they cannot be run against ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.expectations import expect_once, expect_sent, numbered

if TYPE_CHECKING:
    from client_session import ClientSession

PART: Final = "TLS"
MESSAGES: Final = 16
TLS_ON: Final = {"tls.enable": "true"}
NAMES: Final = (
    "producer and consumer over TLS (TLS_IT)",
    "consumer over TLS (TLS_Mix_IT)",
    "producer over TLS (TLS_Mix2_IT)",
)


async def run_tls_cases(session: ClientSession) -> None:
    plain = session.driver
    async with session.kit.driver(session.cluster.nameserver, TLS_ON) as encrypted:
        pairs = ((encrypted, encrypted), (plain, encrypted), (encrypted, plain))
        for number, (name, (sender, receiver)) in enumerate(zip(NAMES, pairs, strict=True)):
            with session.operations.operation(PART, name):
                topic = f"Tls{number}"
                await session.create_topic(topic)
                messages = numbered(topic, MESSAGES)
                consumer = receiver.push_consumer(f"tls-{number}", group=topic, topic=topic)
                async with sender.producer(f"tls-{number}") as producer, consumer as received:
                    expect_sent(await producer.send(*messages))
                    expect_once(await received.wait_received(MESSAGES), messages)
