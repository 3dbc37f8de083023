"""What was sent and what came: messages that can be told apart, and comparisons of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.support.cases import expect
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from interop.support.java_messages import Received, Sent


def numbered(topic: str, count: int, *, tags: str | None = None) -> list[Outgoing]:
    """Return messages that can be told apart."""
    return [
        Outgoing(topic, f"{topic} {number}".encode(), tags=tags, keys=f"{topic}-{number}")
        for number in range(count)
    ]


def expect_sent(answers: Iterable[Sent]) -> None:
    for answer in answers:
        expect("status of a send", answer.status, "SEND_OK")


def expect_once(received: Iterable[Received], sent: Iterable[Outgoing]) -> None:
    """Every message must have come, once, as it was sent; in any order."""
    got = sorted(received, key=lambda message: message.body)
    wanted = sorted(sent, key=lambda message: message.body)
    expect(
        "bodies",
        [message.body[:100] for message in got],
        [message.body[:100] for message in wanted],
    )
    for message, outgoing in zip(got, wanted, strict=True):
        expect_same(message, outgoing)


def expect_in_order(received: Sequence[Received], sent: Sequence[Outgoing]) -> None:
    """Every message must have come, once, in the order of sending."""
    expect("bodies", [message.body for message in received], [message.body for message in sent])


def expect_same(message: Received, outgoing: Outgoing) -> None:
    """What a consumer got must be what was sent."""
    expect("topic", message.topic, outgoing.topic)
    if message.body != outgoing.body:
        expect("size of the body", len(message.body), len(outgoing.body))
        expect("body", message.body[:200], outgoing.body[:200])
        expect("end of the body", message.body[-200:], outgoing.body[-200:])
    expect("tags", message.tags, outgoing.tags)
    expect("keys", message.keys, outgoing.keys)
    properties = {name: message.properties.get(name) for name in outgoing.properties}
    expect("properties", properties, dict(outgoing.properties))
