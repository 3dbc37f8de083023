"""The task that delivers delayed messages: wakes at the very time, and lets others run."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.delays.delay_kit import TOPIC, Delays
from tests.broker.send_kit import START_MS, WallClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.store.dispatcher import Dispatched


class TrioClock(WallClock):
    """A wall clock that goes with trio's, and can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.set_by_ms = 0

    def __call__(self) -> int:
        return START_MS + self.set_by_ms + int(trio.current_time() * 1000 + 1e-6)


@asynccontextmanager
async def delivering(delays: Delays) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delays.delivery.run)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def delivering_at_once(delays: Delays) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delays.delivery.run)
        yield
        nursery.cancel_scope.cancel()


def lateness_ms(delays: Delays, level_ms: int) -> list[int]:
    """Return by how much each delivered message came too late."""
    parked = {record.body: record.store_ms for record in delays.records("SCHEDULE_TOPIC_XXXX", 0)}
    return [record.store_ms - parked[record.body] - level_ms for record in delays.records()]


async def test_messages_are_delivered_at_the_very_time(autojump_clock: MockClock) -> None:
    delays = Delays(clock=TrioClock(), segment_bytes=1 << 20)
    async with delivering(delays):
        for number in range(200):
            delays.park(b"%d" % number, 1)
            await trio.sleep(0.0137)
        await trio.sleep(2)
    late = lateness_ms(delays, 1_000)
    assert len(late) == 200
    assert set(late) <= {0, 1}


async def test_a_message_that_is_due_earlier_than_those_before_it_is_not_late(
    autojump_clock: MockClock,
) -> None:
    delays = Delays(clock=TrioClock(), levels="1s 10s 1h")
    async with delivering(delays):
        delays.park(b"long", 3)
        await trio.sleep(30)
        delays.park(b"middle", 2)
        await trio.sleep(0.5)
        delays.park(b"short", 1)
        await trio.sleep(3_600)
    assert [(record.body, record.store_ms - START_MS) for record in delays.records()] == [
        (b"short", 31_500),
        (b"middle", 40_000),
        (b"long", 3_600_000),
    ]


async def test_the_first_message_of_all_wakes_the_task(autojump_clock: MockClock) -> None:
    delays = Delays(clock=TrioClock())
    async with delivering(delays):
        await trio.sleep(12.3456)
        delays.park(b"a", 1)
        await trio.sleep(1.002)
        assert delays.delivered() == [b"a"]
    assert lateness_ms(delays, 1_000) == [0]


async def test_a_clock_that_was_set_is_noticed_within_a_second(autojump_clock: MockClock) -> None:
    clock = TrioClock()
    delays = Delays(clock=clock, levels="1h")
    async with delivering(delays):
        delays.park(b"a")
        await trio.sleep(60)
        clock.set_by_ms = 3_600_000
        await trio.sleep(1.001)
        assert delays.delivered() == [b"a"]
        delays.park(b"b")
        await trio.sleep(1)
        clock.set_by_ms = 0
        await trio.sleep(1.001)
        assert delays.delivered() == [b"a", b"b"]


async def test_refused_deliveries_are_tried_every_100_ms(autojump_clock: MockClock) -> None:
    delays = Delays(clock=TrioClock())
    async with delivering(delays):
        delays.park(b"a")
        delays.core.set_disk_full(True)
        await trio.sleep(5.05)
        assert 39 <= delays.stats.store.put_failures <= 42
        delays.core.set_disk_full(False)
        await trio.sleep(0.1)
        assert delays.delivered() == [b"a"]


async def test_an_idle_broker_looks_once_a_second(autojump_clock: MockClock) -> None:
    delays = Delays(clock=TrioClock())
    looks = 0
    deliver_level = delays.delivery._deliver_level

    def counted(level: int, now_ms: int) -> int | None:
        nonlocal looks
        looks += level == 1
        return deliver_level(level, now_ms)

    delays.delivery._deliver_level = counted  # type: ignore[method-assign]
    async with delivering(delays):
        await trio.sleep(100.5)
    assert 100 <= looks <= 102


async def test_ten_thousand_messages_due_at_once_let_others_run() -> None:
    delays = Delays(
        levels="1s 2s 3s 4s 5s",
        segment_bytes=8 << 20,
        queue_segment_bytes=20 * 4_000,
        index_slots=20_000,
        index_entries=60_000,
    )
    for number in range(10_000):
        delays.park(b"%d" % number, 1 + number % 5)
    delays.clock.ms += 60_000
    queue = delays.core.queues.open("TopicA", 0)
    seen = [0]
    with trio.fail_after(30):
        async with delivering_at_once(delays):
            while seen[-1] < 10_000:
                await trio.lowlevel.checkpoint()
                seen.append(queue.next_offset)
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= 512
    delivered = {int(body) for body in delays.delivered()}
    assert delivered == set(range(10_000))
    assert queue.next_offset == 10_000


async def test_others_are_heard_between_the_levels(autojump_clock: MockClock) -> None:
    # A message that arrives while a round is under way must not wait for the next second.
    delays = Delays(clock=TrioClock(), levels="1s 2s 2s 2s")
    delays.core.queues.open(TOPIC, 0).is_watched = True
    first_delivery = trio.Event()

    def dispatched(message: Dispatched) -> None:
        if message.topic == TOPIC:
            first_delivery.set()
        else:
            delays.delivery.message_arrived(message.tags_code)

    delays.core.dispatcher.on_dispatched = dispatched
    async with delivering(delays):
        for level in (2, 3, 4):
            delays.park(b"first %d" % level, level)
        await first_delivery.wait()
        assert len(delays.delivered()) < 3
        delays.park(b"meanwhile", 1)
        await trio.sleep(1.01)
        assert delays.delivered()[-1] == b"meanwhile"
    assert delays.records()[-1].store_ms == START_MS + 3_000
