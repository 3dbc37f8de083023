"""Flushing: who waits for the disk is answered once, in time, and with how many syncs."""

from __future__ import annotations

import errno
import logging
import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.config import PAGE_BYTES, FlushMode
from rmq.store.core import StoreCore
from rmq.store.flusher import Flusher, FlushOutcome
from rmq.testing.storage import MemoryStorage
from tests.store.running import SEGMENT_BYTES, Gate, is_of_log, message, settle, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


FLUSHED, TIMED_OUT, FAILED = FlushOutcome.FLUSHED, FlushOutcome.TIMED_OUT, FlushOutcome.FAILED


class Bench:
    """A flusher on a store without other tasks."""

    def __init__(self, **settings: object) -> None:
        self.storage = MemoryStorage()
        self.core = StoreCore(small_config(**settings), storage=self.storage)
        self.limiter = trio.CapacityLimiter(4)
        self.flusher = Flusher(self.core, self.limiter)
        self.gate = Gate(self.storage)

    def append(self, body: bytes = b"hello") -> PhysicalOffset:
        """Append a message and return its end."""
        (result,) = self.core.append([message(body)])
        return result.end_offset

    async def settle(self, *, held: int = 0) -> None:
        await settle(self.limiter, held=held)


@asynccontextmanager
async def flushing(**settings: object) -> AsyncIterator[Bench]:
    bench = Bench(**settings)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.flusher.run)
            await bench.settle()
            yield bench
            bench.gate.open()
            nursery.cancel_scope.cancel()
    finally:
        bench.core.release()


# --- group commit ---------------------------------------------------------------------------


async def test_all_who_come_while_the_disk_works_share_the_next_sync(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []

    async def append_and_wait(bench: Bench) -> None:
        outcomes.append(await bench.flusher.wait_flushed(bench.append(), 5))

    async with flushing() as bench, trio.open_nursery() as nursery:
        bench.gate.shut()
        nursery.start_soon(append_and_wait, bench)
        await bench.gate.wait_arrival()
        for _ in range(63):
            nursery.start_soon(append_and_wait, bench)
        await bench.settle(held=1)
        assert (bench.flusher.waiting, outcomes) == (64, [])
        bench.gate.open()
        await bench.settle()
        assert outcomes == [FLUSHED] * 64
        assert (bench.flusher.syncs, bench.gate.passed) == (2, 2)
        assert bench.flusher.waiting == 0
        assert bench.core.log.flushed == bench.core.log.written


async def test_waits_that_begin_together_need_one_sync(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with flushing() as bench:
        for _ in range(100):
            bench.flusher.when_flushed(bench.append(), 5, outcomes.append)
        await bench.settle()
        assert outcomes == [FLUSHED] * 100
        assert bench.gate.passed == 1


async def test_a_sync_does_not_answer_for_what_was_appended_after_it_began(
    mock_clock: MockClock,
) -> None:
    early: list[FlushOutcome] = []
    late: list[FlushOutcome] = []
    async with flushing() as bench:
        bench.gate.shut()
        bench.flusher.when_flushed(first := bench.append(), 5, early.append)
        await bench.gate.wait_arrival()
        bench.flusher.when_flushed(bench.append(), 5, late.append)
        bench.storage.faults.fail("sync", call=2, on=is_of_log)
        bench.gate.open()
        await bench.settle()
        # The second sync failed: had the first one answered for both, nobody would have noticed.
        assert (early, late) == ([FLUSHED], [FAILED])
        assert bench.core.log.flushed == first


async def test_what_is_on_disk_already_is_answered_at_once(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with flushing() as bench:
        end = bench.append()
        assert await bench.flusher.wait_flushed(end, 5) is FLUSHED
        passed = bench.gate.passed
        assert bench.flusher.when_flushed(end, 5, outcomes.append) is None
        assert outcomes == [FLUSHED]
        assert await bench.flusher.wait_flushed(PhysicalOffset(0), 5) is FLUSHED
        await bench.settle()
        assert bench.gate.passed == passed


async def test_every_segment_with_new_bytes_is_synced_and_no_other(mock_clock: MockClock) -> None:
    synced: list[str] = []
    async with flushing() as bench:
        bench.storage.faults.watch(
            lambda operation, path: (
                synced.append(path.name) if operation == "sync" and is_of_log(path) else None
            )
        )
        bench.append(bytes(SEGMENT_BYTES - 1000))
        assert await bench.flusher.wait_flushed(bench.append(bytes(2000)), 5) is FLUSHED
        assert synced == [f"{0:020d}", f"{SEGMENT_BYTES:020d}"]
        synced.clear()
        assert await bench.flusher.wait_flushed(bench.append(), 5) is FLUSHED
        assert synced == [f"{SEGMENT_BYTES:020d}"]


async def test_a_flush_can_be_asked_for_without_waiting_for_it(mock_clock: MockClock) -> None:
    async with flushing() as bench:
        end = bench.append()
        bench.flusher.request()
        await bench.settle()
        assert bench.core.log.flushed == end


async def test_with_sync_flush_what_nobody_waits_for_is_flushed_in_the_background(
    mock_clock: MockClock,
) -> None:
    async with flushing(flush_interval_ms=500, flush_thorough_interval_ms=10_000) as bench:
        end = bench.append()
        for _ in range(21):
            mock_clock.jump(0.5)
            await bench.settle()
        assert bench.core.log.flushed == end


# --- deadlines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "timeouts_s",
    [
        pytest.param([1.0, 2.0, 3.0, 3.0, math.inf], id="as-they-come"),
        pytest.param([math.inf, 3.0, 1.0, 2.0, 3.0], id="later-ones-first"),
    ],
)
async def test_each_times_out_at_its_own_time_while_a_sync_hangs(
    mock_clock: MockClock, timeouts_s: list[float]
) -> None:
    answers: list[tuple[float, float, FlushOutcome]] = []

    def answer(timeout_s: float, outcome: FlushOutcome) -> None:
        answers.append((timeout_s, trio.current_time() - started, outcome))

    async with flushing() as bench:
        bench.gate.shut()
        started = trio.current_time()
        for timeout_s in timeouts_s:
            bench.flusher.when_flushed(bench.append(), timeout_s, partial(answer, timeout_s))
        await bench.gate.wait_arrival()
        for _ in range(8):
            mock_clock.jump(0.5)
            await bench.settle(held=1)
        timed_out = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (3.0, 3.0)]
        assert answers == [(timeout_s, after_s, TIMED_OUT) for timeout_s, after_s in timed_out]
        assert bench.flusher.waiting == 1
        bench.gate.open()
        await bench.settle()
        # Who has had an answer gets no other when the sync ends after all.
        assert answers[4:] == [(math.inf, 4.0, FLUSHED)]
        assert len(answers) == 5


async def test_a_wait_that_timed_out_and_comes_back_is_answered_again(
    mock_clock: MockClock,
) -> None:
    async with flushing() as bench, trio.open_nursery() as nursery:
        outcomes: list[FlushOutcome] = []

        async def wait_twice(end: PhysicalOffset) -> None:
            outcomes.append(await bench.flusher.wait_flushed(end, 1))
            outcomes.append(await bench.flusher.wait_flushed(end, math.inf))

        bench.gate.shut()
        nursery.start_soon(wait_twice, bench.append())
        await bench.gate.wait_arrival()
        mock_clock.jump(1)
        await bench.settle(held=1)
        assert outcomes == [TIMED_OUT]
        bench.gate.open()
        await bench.settle()
        assert outcomes == [TIMED_OUT, FLUSHED]


# --- who goes away --------------------------------------------------------------------------


async def test_a_cancelled_waiter_leaves_nothing_behind(mock_clock: MockClock) -> None:
    async with flushing() as bench:
        bench.gate.shut()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(bench.flusher.wait_flushed, bench.append(), 1)
            await bench.gate.wait_arrival()
            assert bench.flusher.waiting == 10
            nursery.cancel_scope.cancel()
        assert bench.flusher.waiting == 0
        mock_clock.jump(1)
        bench.gate.open()
        await bench.settle()
        assert bench.core.log.flushed == bench.core.log.written


async def test_a_wait_taken_back_is_not_answered(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with flushing() as bench:
        bench.gate.shut()
        waits = [bench.flusher.when_flushed(bench.append(), 1, outcomes.append) for _ in range(3)]
        await bench.gate.wait_arrival()
        for wait in waits:
            assert wait is not None
            bench.flusher.forget(wait)
        mock_clock.jump(1)
        await bench.settle(held=1)
        bench.gate.open()
        await bench.settle()
        assert outcomes == []


async def test_those_who_still_wait_at_the_end_are_told_how_it_stands(
    mock_clock: MockClock,
) -> None:
    outcomes: list[FlushOutcome] = []
    bench = Bench()
    bench.flusher.when_flushed(bench.append(), 5, outcomes.append)
    bench.core.flush()
    bench.flusher.when_flushed(end := bench.append(), 5, outcomes.append)
    bench.flusher.end()
    assert outcomes == [FLUSHED, FAILED]
    assert bench.flusher.waiting == 0
    assert bench.flusher.when_flushed(end, 5, outcomes.append) is None
    assert outcomes == [FLUSHED, FAILED, FAILED]
    bench.core.release()


# --- errors ---------------------------------------------------------------------------------


async def test_a_failed_sync_is_told_to_all_and_ends_flushing(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[FlushOutcome] = []
    async with flushing() as bench:
        flushed = bench.append()
        assert await bench.flusher.wait_flushed(flushed, 5) is FLUSHED
        bench.gate.shut()
        fault = bench.storage.faults.fail("sync", errno.EIO, on=is_of_log)
        bench.flusher.when_flushed(bench.append(), 5, outcomes.append)
        await bench.gate.wait_arrival()
        end = bench.append()
        bench.flusher.when_flushed(end, math.inf, outcomes.append)
        with caplog.at_level(logging.WARNING):
            bench.gate.open()
            await bench.settle()
        assert fault.fired == 1
        assert outcomes == [FAILED, FAILED]
        assert bench.flusher.waiting == 0
        assert bench.core.failure is not None
        assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
        assert "Input/output error" in caplog.text
        # From now on nobody waits; what was on disk before still is.
        passed = bench.gate.passed
        assert await bench.flusher.wait_flushed(end, math.inf) is FAILED
        assert await bench.flusher.wait_flushed(flushed, math.inf) is FLUSHED
        mock_clock.jump(60)
        await bench.settle()
        assert bench.gate.passed == passed


async def test_a_sync_that_ends_well_after_another_one_failed_proves_nothing(
    mock_clock: MockClock,
) -> None:
    # The system reports a lost page once, to whoever syncs first.
    outcomes: list[FlushOutcome] = []
    async with flushing() as bench:
        bench.gate.shut()
        bench.flusher.when_flushed(bench.append(), 5, outcomes.append)
        await bench.gate.wait_arrival()
        bench.core.fail(StorageError("sync", "elsewhere", "Input/output error"))
        bench.gate.open()
        await bench.settle()
        assert outcomes == [FAILED]
        assert bench.core.log.flushed == 0


# --- ASYNC_FLUSH ----------------------------------------------------------------------------


def asynchronous(**settings: object) -> dict[str, object]:
    return {
        "flush_mode": FlushMode.ASYNC,
        "flush_interval_ms": 500,
        "flush_least_pages": 4,
        "flush_thorough_interval_ms": 10_000,
        **settings,
    }


async def test_background_flushes_wait_for_the_least_pages(mock_clock: MockClock) -> None:
    async with flushing(**asynchronous(segment_bytes=64 * PAGE_BYTES)) as bench:
        bench.append(bytes(3 * PAGE_BYTES))
        mock_clock.jump(0.5)
        await bench.settle()
        assert bench.core.log.flushed == 0
        end = bench.append(bytes(PAGE_BYTES))
        await bench.settle()
        assert bench.core.log.flushed == 0
        mock_clock.jump(0.5)
        await bench.settle()
        assert bench.core.log.flushed == end


async def test_a_thorough_flush_waits_for_nothing(mock_clock: MockClock) -> None:
    async with flushing(**asynchronous()) as bench:
        end = bench.append()
        for _ in range(19):
            mock_clock.jump(0.5)
            await bench.settle()
        assert bench.core.log.flushed == 0
        mock_clock.jump(0.5)
        await bench.settle()
        assert bench.core.log.flushed == end
        # The next one is as far away again.
        end = bench.append()
        for _ in range(19):
            mock_clock.jump(0.5)
            await bench.settle()
        assert bench.core.log.flushed < end
        mock_clock.jump(0.5)
        await bench.settle()
        assert bench.core.log.flushed == end


async def test_an_idle_log_is_not_synced(mock_clock: MockClock) -> None:
    async with flushing(**asynchronous()) as bench:
        for _ in range(60):
            mock_clock.jump(0.5)
            await bench.settle()
        assert bench.gate.passed == 0


async def test_with_async_flush_too_a_wait_does_not_wait_for_the_interval(
    mock_clock: MockClock,
) -> None:
    async with flushing(**asynchronous()) as bench:
        assert await bench.flusher.wait_flushed(bench.append(), 5) is FLUSHED
        assert bench.flusher.syncs == 1
