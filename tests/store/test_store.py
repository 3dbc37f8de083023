"""A running store: putting messages, waiting for the disk, and what a failed disk means."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import StorageError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.store.append import AppendResult, AppendStatus
from rmq.store.config import FlushMode
from rmq.store.core import Refusal, StoreCore
from rmq.store.flusher import FlushOutcome
from rmq.testing.storage import MemoryStorage
from tests.store.running import (
    ROOT,
    SEGMENT_BYTES,
    Gate,
    Running,
    bodies_of,
    is_of_log,
    message,
    running,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

PUT_OK, TIMEOUT = AppendStatus.PUT_OK, AppendStatus.FLUSH_DISK_TIMEOUT


def statuses(results: list[AppendResult]) -> list[AppendStatus]:
    return [result.status for result in results]


# --- SYNC_FLUSH -----------------------------------------------------------------------------


async def test_put_returns_when_the_messages_are_on_disk(mock_clock: MockClock) -> None:
    async with running() as now:
        results = await now.store.put([message(b"a"), message(b"b", queue_id=1)])
        assert statuses(results) == [PUT_OK, PUT_OK]
        assert now.store.statistics().flushed == results[-1].end_offset
        assert (bodies_of(now.store), bodies_of(now.store, queue_id=1)) == ([b"a"], [b"b"])
        survivor = StoreCore(now.core.config, storage=now.storage.crash(lambda _: 0))
        assert (bodies_of(survivor), bodies_of(survivor, queue_id=1)) == ([b"a"], [b"b"])
        survivor.release()


async def test_puts_that_come_while_the_disk_works_share_a_sync(mock_clock: MockClock) -> None:
    results: list[AppendResult] = []

    async def put(now: Running, number: int) -> None:
        results.extend(await now.store.put([message(b"%d" % number)]))

    async with running() as now, trio.open_nursery() as nursery:
        gate = Gate(now.storage)
        gate.shut()
        nursery.start_soon(put, now, 0)
        await gate.wait_arrival()
        for number in range(1, 64):
            nursery.start_soon(put, now, number)
        await now.settle(held=1)
        assert (now.store.flush_waits, results) == (64, [])
        gate.open()
        await now.settle()
        assert statuses(results) == [PUT_OK] * 64
        assert gate.passed == 2
        assert sorted(bodies_of(now.store)) == sorted(b"%d" % number for number in range(64))


async def test_a_put_whose_sync_takes_too_long_is_in_the_log_but_not_known_to_be_on_disk(
    mock_clock: MockClock,
) -> None:
    results: list[AppendResult] = []

    async def put(now: Running) -> None:
        too_long = message(b"", topic="T" * 200)
        results.extend(await now.store.put([message(b"a"), too_long]))

    async with running(sync_flush_timeout_ms=2000) as now, trio.open_nursery() as nursery:
        gate = Gate(now.storage)
        gate.shut()
        nursery.start_soon(put, now)
        await gate.wait_arrival()
        mock_clock.jump(1.9)
        await now.settle(held=1)
        assert results == []
        mock_clock.jump(0.1)
        await now.settle(held=1)
        # What was refused stays refused; what was put has its place.
        assert statuses(results) == [TIMEOUT, AppendStatus.MESSAGE_ILLEGAL]
        assert (results[0].physical_offset, results[0].queue_offset) == (0, 0)
        assert bodies_of(now.store) == [b"a"]
        gate.open()
        await now.settle()
        assert len(results) == 2
        # Nothing is wrong with a store whose disk was slow.
        assert statuses(await now.store.put([message(b"b")])) == [PUT_OK]


async def test_a_put_in_which_everything_is_refused_does_not_wait(mock_clock: MockClock) -> None:
    async with running() as now:
        gate = Gate(now.storage)
        gate.shut()
        results = await now.store.put([message(topic="no/topic"), message(queue_id=-1)])
        assert statuses(results) == [AppendStatus.MESSAGE_ILLEGAL] * 2
        gate.open()


async def test_a_batch_is_put_as_a_whole(mock_clock: MockClock) -> None:
    async with running() as now:
        results = await now.store.put([message(b"%d" % number) for number in range(5)], batch=True)
        assert statuses(results) == [PUT_OK] * 5
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        refused = await now.store.put([message(b"x"), message(bytes(SEGMENT_BYTES))], batch=True)
        assert statuses(refused) == [AppendStatus.MESSAGE_ILLEGAL] * 2
        assert bodies_of(now.store) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_put_that_is_cancelled_before_it_begins_appends_nothing(
    mock_clock: MockClock,
) -> None:
    async with running() as now:
        with trio.CancelScope() as scope:
            scope.cancel()
            await now.store.put([message()])
        assert scope.cancelled_caught
        assert now.store.statistics().written == 0


async def test_a_put_that_is_cancelled_while_it_waits_leaves_its_message_and_no_wait(
    mock_clock: MockClock,
) -> None:
    async with running() as now:
        gate = Gate(now.storage)
        gate.shut()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(now.store.put, [message(b"a")])
            await gate.wait_arrival()
            nursery.cancel_scope.cancel()
        assert now.store.flush_waits == 0
        gate.open()
        await now.settle()
        assert bodies_of(now.store) == [b"a"]


async def test_appends_can_be_answered_later_all_at_once(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with running() as now:
        (first,) = now.store.append([message(b"a")])
        batch = now.store.append_batch([message(b"b"), message(b"c")])
        assert statuses([first, *batch]) == [PUT_OK] * 3
        assert now.store.when_flushed(batch[-1].end_offset, outcomes.append) is not None
        taken_back = now.store.when_flushed(first.end_offset, outcomes.append)
        assert taken_back is not None
        now.store.forget(taken_back)
        assert await now.store.wait_flushed(first.end_offset) is FlushOutcome.FLUSHED
        await now.settle()
        assert outcomes == [FlushOutcome.FLUSHED]
        assert now.store.flush_waits == 0


# --- ASYNC_FLUSH ----------------------------------------------------------------------------


async def test_with_async_flush_put_does_not_wait_for_the_disk(mock_clock: MockClock) -> None:
    async with running(flush_mode=FlushMode.ASYNC) as now:
        gate = Gate(now.storage)
        for number in range(10):
            assert statuses(await now.store.put([message(b"%d" % number)])) == [PUT_OK]
        await now.settle()
        assert (gate.passed, now.store.statistics().flushed) == (0, 0)
        assert len(bodies_of(now.store)) == 10


async def test_a_flush_on_request_covers_all_that_was_appended(mock_clock: MockClock) -> None:
    async with running(flush_mode=FlushMode.ASYNC) as now:
        (result,) = now.store.append([message()])
        assert await now.store.flush() == result.end_offset
        statistics = now.store.statistics()
        assert (statistics.flushed, statistics.flush_lag_bytes) == (result.end_offset, 0)


# --- a disk that fails ----------------------------------------------------------------------


async def test_after_a_failed_sync_the_store_serves_reads_only_and_says_why(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[AppendResult] = []

    async def put(now: Running) -> None:
        results.extend(await now.store.put([message(b"lost?")]))

    storage = MemoryStorage()
    async with running(storage) as now:
        await now.store.put([message(b"safe")])
        gate = Gate(storage)
        gate.shut()
        storage.faults.fail("sync", errno.EIO, on=is_of_log)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(put, now)
            await gate.wait_arrival()
            gate.open()
        # Their messages may or may not be on disk; nobody was told they are.
        assert statuses(results) == [TIMEOUT] * 3
        refused = await now.store.put([message(b"refused")])
        refused += now.store.append([message()]) + now.store.append_batch([message(), message()])
        assert statuses(refused) == [AppendStatus.SERVICE_NOT_AVAILABLE] * 4
        assert {result.reason for result in refused} == {
            "the store failed and must be restarted: cannot sync"
            f" {ROOT}/commitlog/{0:020d}: Input/output error"
        }
        with pytest.raises(StoreUnavailableError, match="must be restarted"):
            now.store.append_raw(PhysicalOffset(0), b"")
        with pytest.raises(StorageError, match="Input/output error"):
            await now.store.flush()
        assert now.store.statistics().refusal is Refusal.FAILED
        assert bodies_of(now.store)[0] == b"safe"
        mock_clock.jump(100)
        await now.settle()
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1
    assert storage.exists(ROOT / "abort")
    survivor = StoreCore(now.core.config, storage=storage.crash(lambda _: 0))
    assert not survivor.recovery.was_clean
    assert bodies_of(survivor) == [b"safe"]
    survivor.release()


async def test_a_message_that_needs_a_segment_the_disk_has_no_room_for_is_refused_alone(
    mock_clock: MockClock,
) -> None:
    async with running(MemoryStorage(), index_enabled=False) as now:
        await now.store.put([message(bytes(1000))])
        await now.settle()
        big = message(bytes(SEGMENT_BYTES - 700))
        with now.storage.faults.failing("reserve", errno.ENOSPC, on=is_of_log):
            # The first takes the segment that was made ahead.
            results = await now.store.put([big, message(b"b"), big, message(b"c")])
            await now.settle()
        created = AppendStatus.CREATE_MAPPED_FILE_FAILED
        assert statuses(results) == [PUT_OK, PUT_OK, created, PUT_OK]
        assert "No space left on device" in results[2].reason
        # It is not tried again at once: each attempt costs as much as many appends.
        assert statuses(await now.store.put([big])) == [created]
        mock_clock.jump(0.2)
        await now.settle()
        assert statuses(await now.store.put([big])) == [PUT_OK]
        assert [len(body) for body in bodies_of(now.store)] == [1000, 15684, 1, 1, 15684]


async def test_the_statistics_tell_where_the_store_stands(mock_clock: MockClock) -> None:
    async with running(flush_mode=FlushMode.ASYNC) as now:
        results = now.store.append([message(queue_id=number) for number in range(3)])
        statistics = now.store.statistics()
        end = results[-1].end_offset
        assert (statistics.min_offset, statistics.written, statistics.readable) == (0, end, end)
        assert (statistics.flushed, statistics.flush_lag_bytes) == (0, end)
        assert (statistics.dispatched, statistics.dispatch_lag_bytes) == (end, 0)
        assert (statistics.queues, statistics.segments, statistics.index_files) == (3, 1, 1)
        assert statistics.refusal is None
