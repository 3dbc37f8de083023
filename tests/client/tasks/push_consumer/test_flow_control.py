"""How much is pulled ahead of the listener: bounded by number, size and span, and fair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import Collector, consumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.push_consumer import PushConsumer


class Gate(Collector):
    """A listener that lets nothing through until it is opened."""

    def __init__(self, *held: str) -> None:
        """`held` are the only bodies that it holds up; none: all are."""
        super().__init__()
        self.opened = trio.Event()
        self._held = held

    async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        if not self._held or messages[0].body.decode() in self._held:
            await self.opened.wait()
        await super().__call__(messages)


async def unfinished_at_rest(running: PushConsumer) -> int:
    """Wait until nothing more is pulled; return how many messages are not finished."""
    before = -1
    while running.unfinished != before:
        before = running.unfinished
        await trio.sleep(0.2)
    return before


async def test_no_more_is_pulled_than_the_listener_can_be_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(500))
        gate = Gate()
        async with consumer(it, gate, queue_messages_max=100) as running:
            await until(lambda: running.unfinished > 100)
            assert await unfinished_at_rest(running) <= 100 + 32
            # One place is kept for the retry queue.
            assert running.calls == 19
            gate.opened.set()
            await gate.wait(*numbered(500))
        assert gate.repeated == 0


async def test_large_messages_are_bounded_by_their_size(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        texts = [f"{number:03}" + "x" * 10_000 for number in range(60)]
        await put(it, queue(), texts)
        gate = Gate()
        async with consumer(
            it, gate, queue_bytes_max=100_000, pull_messages_max=2, close_wait_s=0
        ) as running:
            await until(lambda: running.unfinished > 9)
            assert await unfinished_at_rest(running) <= 12
            gate.opened.set()
            await gate.wait(*texts)


async def test_far_behind_one_message_that_takes_long_pulling_slows_down(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(600))
        gate = Gate("m0")
        async with consumer(it, gate, queue_span_max=150, pull_messages_max=10) as running:
            await until(lambda: len(gate.messages) > 140)
            before, began = len(gate.messages), trio.current_time()
            await trio.sleep(0.5)
            took = trio.current_time() - began
            # At most one pull in 50 ms, as stock consumers do.
            assert len(gate.messages) - before <= 10 * (took / 0.05 + 2)
            gate.opened.set()
            await gate.wait(*numbered(600))
            await until(lambda: running.unfinished == 0)
        assert gate.repeated == 0


async def test_the_queues_of_a_topic_can_share_a_bound(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        for number in range(4):
            await put(it, queue(number), numbered(100, first=100 * number))
        gate = Gate()
        async with consumer(
            it, gate, topic_messages_max=80, pull_messages_max=5, close_wait_s=0
        ) as running:
            await until(lambda: running.unfinished > 80)
            assert await unfinished_at_rest(running) <= 80 + 4 * 5
            gate.opened.set()
            await gate.wait(*numbered(400))


async def test_a_queue_that_hangs_does_not_starve_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=3)
        slow = numbered(200)
        await put(it, queue(0), slow)
        gate = Gate(*slow)
        async with consumer(it, gate, listeners_max=4, close_wait_s=0) as running:
            await until(lambda: running.calls == 3)
            await put(it, queue(1), numbered(200, first=200))
            await put(it, queue(2), numbered(200, first=400))
            await gate.wait(*numbered(400, first=200))
            gate.opened.set()
            await gate.wait(*slow)


async def test_pulls_can_be_spread_out(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(8))
        seen = Collector()
        began = trio.current_time()
        async with consumer(it, seen, pull_messages_max=2, pull_interval_s=0.1):
            await seen.wait(*numbered(8))
        assert trio.current_time() - began > 0.3
