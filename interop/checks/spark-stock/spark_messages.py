"""Messages of every kind that a stock producer can send at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.support.java_client import Producer
    from interop.support.java_messages import Queue

TEXT: Final = "Grüße, 世界, \N{ROCKET}"
_KEYS: Final = 5


async def send_varied(java: Producer, topic: str, queues: Sequence[Queue]) -> list[Outgoing]:
    """Send them with a stock producer; return them."""
    plain = [
        Outgoing(
            topic, f"plain {n}".encode(), f"Tag{n % 3}", f"key-{n} all", properties={"n": str(n)}
        )
        for n in range(60)
    ]
    bare = [Outgoing(topic, f"bare {n}".encode()) for n in range(5)]
    strange = [
        Outgoing(topic, bytes(range(256)), "TagX", "strange", properties={"greeting": TEXT}),
        Outgoing(topic, TEXT.encode(), "Täg", "schlüssel", properties={"tab": "a\tb", "eq": "="}),
        Outgoing(topic, b"\0", properties={"many": "x" * 5000}),
    ]
    large = [
        Outgoing(topic, b"abcdefgh" * 8192, "Big", "big-64k"),
        Outgoing(topic, b"0123456789" * 100_000, "Big", "big-1m"),
        Outgoing(topic, f"{TEXT} ".encode() * 400, "Big", properties={"over": "4 KiB"}),
    ]
    batch = [
        Outgoing(topic, f"batch {n}".encode(), "Batch", f"batch-{n}", properties={"b": str(n)})
        for n in range(32)
    ]
    ordered = [Outgoing(topic, f"ordered {n}".encode(), "Ordered") for n in range(20)]
    chosen = [Outgoing(topic, f"chosen {n}".encode(), "Chosen") for n in range(5)]
    quick = [Outgoing(topic, f"async {n}".encode(), "Async") for n in range(50)]
    expect_sent(await java.send(*plain, *bare, *strange, *large))
    expect_sent([await java.send_batch(*batch)])
    for n in range(_KEYS):
        expect_sent(await java.send_by_key(*ordered[n::_KEYS], key=f"order-{n}"))
    expect_sent(await java.send_to_queue(*chosen, queue=queues[-1]))
    expect_sent(await java.send_async(*quick))
    return [*plain, *bare, *strange, *large, *batch, *ordered, *chosen, *quick]
