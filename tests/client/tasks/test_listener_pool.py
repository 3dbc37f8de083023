"""Calls of the listener: bounded, fair, and over in time. In virtual time, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rmq.client.core.consuming.results import ConsumeResult, Later
from rmq.client.core.trace import ConsumeCode
from tests.client.listener_kit import bench, queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from trio.testing import MockClock

    from rmq.client.core.received import ReceivedMessage


# --- concurrently ----------------------------------------------------------------------------


async def test_everything_is_consumed_in_bounded_concurrency(autojump_clock: MockClock) -> None:
    under_way = most = 0
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(1)
        under_way -= 1
        seen.extend(message.queue_offset for message in messages)

    async with bench(listener, calls_max=5) as it:
        assigned = it.add()
        it.fill(assigned, 50)
        await trio.sleep(9.9)
        # One call is running for each place; the offset is the smallest unfinished.
        assert (it.pool.calls, most, it.offsets.get(queue(0))) == (5, 5, 45)
        await trio.sleep(0.2)
        assert sorted(seen) == list(range(50))
        assert it.offsets.get(queue(0)) == 50
        assert set(it.tracer.codes) == {ConsumeCode.SUCCESS}
        assert not it.tracer.open


async def test_batches_are_as_large_as_allowed_and_there_is(autojump_clock: MockClock) -> None:
    sizes: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        sizes.append(len(messages))
        await trio.sleep(1)

    async with bench(listener, batch_max=32, calls_max=2) as it:
        assigned = it.add()
        it.fill(assigned, 70)
        await trio.sleep(3)
        assert sizes == [32, 32, 6]


async def test_a_queue_that_makes_the_listener_hang_does_not_starve_others(
    autojump_clock: MockClock,
) -> None:
    done: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].queue.queue_id == 0:
            await trio.sleep_forever()
        await trio.sleep(0.01)
        done.append(messages[0].queue.queue_id)

    async with bench(listener, calls_max=4) as it:
        slow, fast, faster = it.add(0), it.add(1), it.add(2)
        it.fill(slow, 500)
        await trio.sleep(1)
        it.fill(fast, 100)
        it.fill(faster, 100)
        await trio.sleep(2.2)
        assert (done.count(1), done.count(2)) == (100, 100)
        assert slow.process.count == 500


async def test_a_listener_that_never_waits_lets_other_tasks_run() -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        return

    async with bench(listener) as it:
        assigned = it.add()
        it.fill(assigned, 20_000)
        turns = 0
        while assigned.process.count:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns > 5


async def test_an_idle_pool_goes_on_when_there_is_more(autojump_clock: MockClock) -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await trio.sleep(0.1)

    async with bench(listener, calls_max=3) as it:
        assigned = it.add()
        for _ in range(5):
            it.fill(assigned, 7)
            await trio.sleep(10)
            assert assigned.process.count == 0
        assert it.offsets.get(queue(0)) == 35


# --- bad listeners ---------------------------------------------------------------------------


async def test_failed_messages_are_sent_back_and_the_offset_goes_on(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[object] = [
        ConsumeResult.LATER,
        Later(5),
        Later(-1),
        ValueError("no"),
        "nonsense",
        None,
        ExceptionGroup("several", [ValueError("inner")]),
    ]

    async def listener(messages: Sequence[ReceivedMessage]) -> Any:  # noqa: ANN401 - nonsense too
        answer = answers[messages[0].queue_offset]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with bench(listener) as it:
        it.fill(it.add(), 7)
        await trio.sleep(1)
        assert sorted(it.sent_back) == [(0, 0), (1, 5), (2, -1), (3, 0), (4, 0), (6, 0)]
        assert it.offsets.get(queue(0)) == 7
        assert sorted(it.tracer.codes) == sorted(
            [
                ConsumeCode.LATER,
                ConsumeCode.LATER,
                ConsumeCode.LATER,
                ConsumeCode.RAISED,
                ConsumeCode.NONSENSE,
                ConsumeCode.SUCCESS,
                ConsumeCode.RAISED,
            ]
        )
        assert "ValueError: no" in caplog.text
        assert "returned str 'nonsense'" in caplog.text
        status = it.statistics.status("Orders", trio.current_time())
        assert status.consume_failed_msgs == 6


async def test_a_listener_that_is_no_async_function_fails_every_message(
    autojump_clock: MockClock,
) -> None:
    def listener(messages: Sequence[ReceivedMessage]) -> None:
        return

    async with bench(listener) as it:  # type: ignore[arg-type]
        it.fill(it.add(), 2)
        await trio.sleep(1)
        assert sorted(it.sent_back) == [(0, 0), (1, 0)]


async def test_what_cannot_be_sent_back_is_consumed_again_here(autojump_clock: MockClock) -> None:
    seen: list[tuple[int, int, float]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        seen.extend(
            (each.queue_offset, each.reconsume_times, round(trio.current_time() - began, 1))
            for each in messages
        )
        return ConsumeResult.LATER

    async with bench(listener, batch_max=3, calls_max=1) as it:
        began = trio.current_time()
        it.failures_left = 1
        assigned = it.add()
        it.fill(assigned, 3)
        await trio.sleep(2)
        # Nothing is lost meanwhile: the offset stays.
        assert (it.sent_back, it.offsets.get(queue(0))) == ([], None)
        assert assigned.process.count == 3
        await trio.sleep(4)
        assert it.sent_back == [(0, 0), (1, 0), (2, 0)]
        assert seen == [(n, 0, 0.0) for n in range(3)] + [(n, 1, 5.0) for n in range(3)]
        assert it.offsets.get(queue(0)) == 3


async def test_a_listener_that_hangs_is_cancelled_and_its_messages_are_retried(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].queue_offset < 2:
            try:
                await trio.sleep_forever()
            finally:
                cancelled.append(messages[0].queue_offset)

    async with bench(listener, calls_max=2, timeout_s=60.0) as it:
        it.fill(it.add(), 10)
        await trio.sleep(59)
        assert it.offsets.get(queue(0)) is None
        await trio.sleep(5)
        assert sorted(cancelled) == [0, 1]
        assert sorted(it.sent_back) == [(0, 3), (1, 3)]
        # The places are free again, and the rest was consumed.
        assert (it.offsets.get(queue(0)), it.pool.calls) == (10, 0)
        assert it.tracer.codes.count(ConsumeCode.TIMED_OUT) == 2
        assert "more than 60 s" in caplog.text


async def test_a_call_that_ends_as_it_is_cancelled_counts_as_what_it_came_to(
    autojump_clock: MockClock,
) -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(70)

    async with bench(listener, calls_max=1, timeout_s=60.0) as it:
        it.fill(it.add(), 2)
        await trio.sleep(150)
        assert (it.sent_back, it.offsets.get(queue(0))) == ([], 2)


async def test_what_a_dropped_queue_comes_to_is_another_members_business(
    autojump_clock: MockClock,
) -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        await trio.sleep(1)
        return ConsumeResult.LATER if messages[0].queue_offset else None

    async with bench(listener) as it:
        assigned = it.add()
        it.fill(assigned, 2)
        await trio.sleep(0.5)
        assigned.process.drop()
        it.pool.remove(assigned.turn)
        await trio.sleep(1)
        assert (it.sent_back, it.offsets.get(queue(0)), it.pool.calls) == ([], None, 0)


async def test_stopping_lets_calls_finish_and_begins_no_other(autojump_clock: MockClock) -> None:
    seen: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await trio.sleep(2)
        seen.append(messages[0].queue_offset)

    async with bench(listener, calls_max=3) as it:
        assigned = it.add()
        it.fill(assigned, 10)
        await trio.sleep(1)
        it.pool.stop()
        started = trio.current_time()
        await it.pool.wait_idle()
        assert round(trio.current_time() - started, 3) == 1.0
        await trio.sleep(10)
        assert (sorted(seen), it.offsets.get(queue(0))) == ([0, 1, 2], 3)
        await it.pool.wait_idle()
        await it.pool.wait_queue_idle(assigned.turn)
