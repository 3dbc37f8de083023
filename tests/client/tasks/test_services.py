"""Queues consumed in order: one call at a time, again after a failure, only while locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.client.core.consuming.results import ConsumeResult
from tests.client.listener_kit import bench, queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.testing import MockClock

    from rmq.client.core.received import ReceivedMessage


async def test_one_call_of_a_queue_at_a_time_and_many_of_many(autojump_clock: MockClock) -> None:
    under_way: set[int] = set()
    seen: dict[int, list[int]] = {number: [] for number in range(4)}
    most = 0

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal most
        number = messages[0].queue.queue_id
        assert number not in under_way
        under_way.add(number)
        most = max(most, len(under_way))
        await trio.sleep(0.1 * (number + 1))
        under_way.remove(number)
        seen[number] += [message.queue_offset for message in messages]

    async with bench(listener, orderly=True, batch_max=2, timeout_s=None) as it:
        for number in range(4):
            it.fill(it.add(number), 9)
        await trio.sleep(3)
        assert most == 4
        assert seen == {number: list(range(9)) for number in range(4)}


async def test_a_failure_suspends_the_queue_and_keeps_the_order(autojump_clock: MockClock) -> None:
    seen: list[tuple[int, int]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        (message,) = messages
        seen.append((message.queue_offset, message.reconsume_times))
        if message.queue_offset == 1 and message.reconsume_times < 2:
            return ConsumeResult.LATER
        return None

    async with bench(listener, orderly=True, timeout_s=None) as it:
        assigned = it.add()
        it.fill(assigned, 3)
        await trio.sleep(0.5)
        assert (seen, it.offsets.get(queue(0))) == ([(0, 0), (1, 0)], 1)
        # More messages do not wake it.
        it.fill(assigned, 1)
        await trio.sleep(0.4)
        assert len(seen) == 2
        await trio.sleep(1.5)
        assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
        assert it.offsets.get(queue(0)) == 4


async def test_after_its_rounds_a_message_is_a_dead_letter_and_the_next_follows(
    autojump_clock: MockClock,
) -> None:
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        seen.append(messages[0].queue_offset)
        return ConsumeResult.LATER if messages[0].queue_offset == 0 else None

    async with bench(listener, orderly=True, retries_max=2, timeout_s=None) as it:
        it.failures_left = 1
        it.fill(it.add(), 2)
        await trio.sleep(10)
        # Two rounds more, and one because it could not be given up at first.
        assert (seen, it.given_up) == ([0, 0, 0, 0, 1], [0])
        assert it.offsets.get(queue(0)) == 2


async def test_a_queue_that_is_not_locked_any_longer_is_not_consumed(
    autojump_clock: MockClock,
) -> None:
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].queue_offset)
        await trio.sleep(12)

    async with bench(listener, orderly=True, timeout_s=None) as it:
        assigned = it.add()
        it.fill(assigned, 10)
        await trio.sleep(100)
        # Not renewed for 30 s: no call begins after that.
        assert seen == [0, 1, 2]
        assert it.relocked == [assigned]
        assert it.offsets.get(queue(0)) == 3


async def test_a_queue_that_is_leaving_begins_no_call(autojump_clock: MockClock) -> None:
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].queue_offset)
        await trio.sleep(1)

    async with bench(listener, orderly=True, timeout_s=None) as it:
        assigned = it.add()
        it.fill(assigned, 10)
        await trio.sleep(0.5)
        assigned.is_leaving = True
        await it.pool.wait_queue_idle(assigned.turn)
        # What was under way counts: the next member goes on behind it.
        assert (seen, it.offsets.get(queue(0))) == ([0], 1)
