"""What a running store does by itself: segments made ahead, recovery points, dispatch, the pool."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.errors import LogGapError
from rmq.store.append import AppendStatus
from rmq.store.config import KIB, FlushMode
from rmq.store.core import Refusal, StoreCore
from rmq.store.flusher import FlushOutcome
from rmq.store.store import THREADS
from rmq.testing.storage import MemoryStorage
from tests.store.running import (
    ROOT,
    SEGMENT_BYTES,
    Gate,
    bodies_of,
    is_of_log,
    is_of_queues,
    message,
    running,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.testing.faults import Operation

LOG_FOLDER = ROOT / "commitlog"
NAMES = [f"{number * SEGMENT_BYTES:020d}" for number in range(4)]


class Calls:
    """Which threads called one operation on the files of the log."""

    def __init__(self, storage: MemoryStorage, operation: Operation) -> None:
        self.of_loop: list[str] = []
        """The names of the files for which the event loop called it itself, and so waited."""
        self.of_threads: list[str] = []
        self._operation = operation
        self._loop = threading.current_thread()
        storage.faults.watch(self._note)

    def _note(self, operation: Operation, path: Path) -> None:
        if operation == self._operation and is_of_log(path):
            is_loop = threading.current_thread() is self._loop
            (self.of_loop if is_loop else self.of_threads).append(path.name)


# --- segments made ahead --------------------------------------------------------------------


async def test_the_next_segment_is_made_ahead_by_a_thread_and_taken_by_the_append(
    mock_clock: MockClock,
) -> None:
    async with running() as now:
        created = Calls(now.storage, "create")
        touched = Calls(now.storage, "touch")
        await now.store.put([message(b"a")])
        await now.settle()
        # Nobody could have made the first one ahead.
        assert (created.of_loop, created.of_threads) == (NAMES[:1], NAMES[1:2])
        assert (touched.of_loop, touched.of_threads) == ([], NAMES[:1])
        await now.store.put([message(bytes(SEGMENT_BYTES - 200))])
        await now.settle()
        assert now.store.statistics().segments == 2
        await now.store.put([message(bytes(SEGMENT_BYTES - 200))])
        await now.settle()
        assert (created.of_loop, created.of_threads) == (NAMES[:1], NAMES[1:4])
        assert (touched.of_loop, touched.of_threads) == ([], NAMES[:3])
        assert now.storage.names(LOG_FOLDER) == NAMES


async def test_an_append_that_cannot_wait_for_the_thread_makes_its_segment_itself(
    mock_clock: MockClock,
) -> None:
    async with running() as now:
        results = now.store.append([message(bytes(SEGMENT_BYTES - 200))] * 4)
        assert [result.status for result in results] == [AppendStatus.PUT_OK] * 4
        await now.settle()
        assert [len(body) for body in bodies_of(now.store)] == [SEGMENT_BYTES - 200] * 4


async def test_the_segment_made_ahead_is_removed_when_the_store_closes(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    async with running(storage) as now:
        await now.store.put([message()])
        await now.settle()
        assert storage.names(LOG_FOLDER) == NAMES[:2]
        killed = storage.kill()
    assert storage.names(LOG_FOLDER) == NAMES[:1]
    # After a kill it is there and empty; the store makes another one when it is used.
    core = StoreCore(small_config(), storage=killed)
    assert killed.names(LOG_FOLDER) == NAMES[:1]
    assert bodies_of(core) == [b"hello"]
    core.release()


async def test_a_segment_that_cannot_be_made_ahead_is_a_warning_and_no_more(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as now:
        created = Calls(now.storage, "create")
        fault = now.storage.faults.fail(
            "reserve", errno.ENOSPC, on=lambda path: path.name == NAMES[1]
        )
        await now.store.put([message(b"a")])
        await now.settle()
        assert fault.fired == 1
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "No space left on device" in caplog.text
        assert "free room" in caplog.text
        assert now.storage.names(LOG_FOLDER) == NAMES[:1]
        assert now.store.statistics().refusal is None
        # There is room by the time it is needed.
        (result,) = await now.store.put([message(bytes(SEGMENT_BYTES - 200))])
        assert result.status is AppendStatus.PUT_OK
        assert created.of_loop == NAMES[:2]
        await now.settle()
        assert created.of_threads == [NAMES[1], NAMES[2]]


async def test_a_segment_is_warmed_up_if_asked_for_and_a_limit_on_memory_is_only_a_warning(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(warm_up=True) as now:
        touched = Calls(now.storage, "touch")
        locked = Calls(now.storage, "lock_memory")
        now.storage.faults.fail("lock_memory", errno.ENOMEM)
        await now.store.put([message()])
        await now.settle()
        assert NAMES[1] in touched.of_threads
        assert (locked.of_loop, locked.of_threads) == ([], NAMES[1:2])
        assert "ulimit -l" in caplog.text
        assert now.storage.names(LOG_FOLDER) == NAMES[:2]


# --- recovery points ------------------------------------------------------------------------


async def test_a_recovery_point_is_saved_when_its_time_has_come(mock_clock: MockClock) -> None:
    async with running(flush_mode=FlushMode.ASYNC, recovery_point_interval_ms=10_000) as now:
        (result,) = now.store.append([message(b"a")])
        for _ in range(9):
            mock_clock.jump(1)
            await now.settle()
        assert now.store.statistics().recovery_point == 0
        mock_clock.jump(1)
        await now.settle()
        statistics = now.store.statistics()
        assert statistics.recovery_point == statistics.flushed == result.end_offset
        # A store that is idle then has nothing to recover.
        survivor = StoreCore(now.core.config, storage=now.storage.crash(lambda _: 0))
        assert (survivor.recovery.used_point, survivor.recovery.records_read) == (True, 0)
        assert bodies_of(survivor) == [b"a"]
        survivor.release()
        calls = now.storage.calls["sync"]
        for _ in range(30):
            mock_clock.jump(1)
            await now.settle()
        assert now.storage.calls["sync"] == calls


async def test_a_recovery_point_is_saved_when_much_was_written(mock_clock: MockClock) -> None:
    async with running(
        flush_mode=FlushMode.ASYNC,
        flush_least_pages=1000,
        recovery_point_interval_ms=3_600_000,
        recovery_point_bytes=8 * KIB,
    ) as now:
        now.store.append([message(bytes(4000))])
        mock_clock.jump(1)
        await now.settle()
        assert now.store.statistics().recovery_point == 0
        (result,) = now.store.append([message(bytes(4000))])
        mock_clock.jump(1)
        await now.settle()
        assert now.store.statistics().recovery_point == result.end_offset


async def test_a_recovery_point_answers_those_who_wait_for_the_disk(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with running(recovery_point_interval_ms=1000) as now:
        gate = Gate(now.storage)
        gate.shut()
        (first,) = now.store.append([message()])
        now.store.when_flushed(first.end_offset, lambda _: None)
        await gate.wait_arrival()
        # The flush of the first one hangs; the point then syncs what was appended meanwhile.
        (second,) = now.store.append([message()])
        now.store.when_flushed(second.end_offset, outcomes.append)
        mock_clock.jump(1)
        await gate.wait_arrival()
        gate.open()
        await now.settle()
        assert outcomes == [FlushOutcome.FLUSHED]
        assert now.store.statistics().recovery_point == second.end_offset


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "recovery-point"])
async def test_a_recovery_point_that_cannot_be_saved_stops_the_store(
    mock_clock: MockClock, name: str
) -> None:
    outcomes: list[FlushOutcome] = []
    async with running(flush_mode=FlushMode.ASYNC, recovery_point_interval_ms=1000) as now:
        (result,) = now.store.append([message()])
        fault = now.storage.faults.fail("sync", on=lambda path: name in path.parts)
        mock_clock.jump(1)
        await now.settle()
        assert fault.fired == 1
        assert now.store.statistics().refusal is Refusal.FAILED
        now.store.when_flushed(result.end_offset + 1, outcomes.append)
        assert outcomes == [FlushOutcome.FAILED]
        assert now.store.statistics().recovery_point == 0


async def test_after_a_failure_no_recovery_point_is_saved(mock_clock: MockClock) -> None:
    storage = MemoryStorage()
    async with running(storage, recovery_point_interval_ms=1000) as now:
        storage.faults.fail("sync", on=is_of_log)
        (result,) = await now.store.put([message(b"lost")])
        assert result.status is AppendStatus.FLUSH_DISK_TIMEOUT
        for _ in range(5):
            mock_clock.jump(1)
            await now.settle()
        assert now.store.statistics().recovery_point == 0
    # The page was lost; a point would have said that it is on disk.
    survivor = StoreCore(now.core.config, storage=storage.crash(lambda _: 0))
    assert bodies_of(survivor) == []
    survivor.release()


async def test_a_recovery_point_that_waits_for_a_thread_when_the_store_closes_is_not_forgotten(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    async with (
        trio.open_nursery() as outer,
        running(storage, recovery_point_interval_ms=1000) as now,
    ):
        await now.store.put([message(b"a")])
        await now.settle()
        threads = [object() for _ in range(THREADS)]
        for thread in threads:
            now.limiter.acquire_on_behalf_of_nowait(thread)

        async def free_the_threads() -> None:
            await wait_all_tasks_blocked()
            for thread in threads:
                now.limiter.release_on_behalf_of(thread)

        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        outer.start_soon(free_the_threads)
    # It had taken note of what was to be synced; who closes the store would not sync it again.
    survivor = StoreCore(now.core.config, storage=storage.crash(lambda _: 0))
    assert (survivor.recovery.was_clean, survivor.recovery.used_point) == (True, True)
    assert (survivor.recovery.records_read, survivor.recovery.rebuilt_queues) == (0, False)
    assert bodies_of(survivor) == [b"a"]
    survivor.release()


# --- dispatch -------------------------------------------------------------------------------


async def test_messages_are_refused_while_a_queue_cannot_be_written_and_none_is_lost(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as now:
        await now.store.put([message(b"a")])
        with now.storage.faults.failing("create", errno.ENOSPC, on=is_of_queues) as fault:
            results = await now.store.put(
                [message(b"b"), message(b"c", topic="New"), message(b"d")]
            )
            # They are in the log and on disk; only who reads their queues has to wait.
            assert [result.status for result in results] == [AppendStatus.PUT_OK] * 3
            assert bodies_of(now.store) == [b"a", b"b"]
            assert now.store.statistics().dispatch_lag_bytes > 0
            (refused,) = await now.store.put([message(b"e")])
            assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
            assert refused.reason.startswith("ConsumeQueue or index cannot be written: ")
            assert "No space left on device" in refused.reason
            assert now.store.statistics().refusal is Refusal.DISPATCH
            fired = fault.fired
            for _ in range(3):
                mock_clock.jump(1)
                await now.settle()
            assert fault.fired == fired + 3
        assert "dispatch failed and is tried again" in caplog.text
        mock_clock.jump(1)
        await now.settle()
        assert (bodies_of(now.store), bodies_of(now.store, "New")) == ([b"a", b"b", b"d"], [b"c"])
        assert now.store.statistics().dispatch_lag_bytes == 0
        (result,) = await now.store.put([message(b"f")])
        assert (result.status, result.queue_offset) == (AppendStatus.PUT_OK, 3)


async def test_a_store_that_could_not_dispatch_is_recovered_by_the_next_start(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    storage.faults.fail("create", errno.ENOSPC, times=None, on=is_of_queues)
    with pytest.raises(Exception, match="No space left on device"):
        async with running(storage, flush_mode=FlushMode.ASYNC) as now:
            await now.store.put([message(b"a")])
    assert storage.exists(ROOT / "abort")
    storage.faults.clear()
    core = StoreCore(now.core.config, storage=storage)
    assert bodies_of(core) == [b"a"]
    core.close()


async def test_bytes_of_a_master_become_messages(mock_clock: MockClock) -> None:
    async with running() as master, running() as slave:
        await master.store.put([message(b"%d" % number) for number in range(300)])
        log = master.core.log
        sent = 0
        while (view := log.view_from(sent)) is not None:
            # In pieces that end in the middle of records.
            for start in range(0, len(view), 1000):
                slave.store.append_raw(sent + start, view[start : start + 1000])
                await slave.settle()
            sent += len(view)
        assert bodies_of(slave.store) == [b"%d" % number for number in range(300)]
        assert slave.store.statistics().dispatched == master.store.statistics().dispatched
        with pytest.raises(LogGapError):
            slave.store.append_raw(sent + 1, b"x")
        # Nobody waits for them, but they do not stay in memory for long either.
        for _ in range(21):
            mock_clock.jump(0.5)
            await slave.settle()
        assert slave.store.statistics().flush_lag_bytes == 0


async def test_bytes_that_are_no_record_stop_dispatch_loudly_and_nothing_else(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    async with running(storage) as now:
        await now.store.put([message(b"a")])
        now.store.append_raw(now.core.log.written, b"no record, whatever it is" * 10)
        await now.settle()
        assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
        assert "no record" in caplog.text
        assert bodies_of(now.store) == [b"a"]
        assert now.store.statistics().dispatch_lag_bytes == 250
    # The next start cuts them off.
    assert storage.exists(ROOT / "abort")
    core = StoreCore(now.core.config, storage=storage)
    assert (bodies_of(core), core.log.written) == ([b"a"], core.dispatcher.dispatched)
    core.close()


# --- the transient pool ---------------------------------------------------------------------


def pooled(**settings: object) -> dict[str, object]:
    return {
        "flush_mode": FlushMode.ASYNC,
        "transient_pool_enabled": True,
        "transient_pool_size": 3,
        "commit_interval_ms": 200,
        **settings,
    }


async def test_what_is_in_the_pool_is_read_after_it_was_committed(mock_clock: MockClock) -> None:
    async with running(**pooled()) as now:
        results = await now.store.put([message(b"a"), message(b"b")])
        assert [result.status for result in results] == [AppendStatus.PUT_OK] * 2
        statistics = now.store.statistics()
        assert (statistics.readable, bodies_of(now.store)) == (0, [])
        assert statistics.dispatch_lag_bytes == results[-1].end_offset
        mock_clock.jump(0.2)
        await now.settle()
        assert bodies_of(now.store) == [b"a", b"b"]
        assert now.store.statistics().dispatch_lag_bytes == 0


async def test_messages_go_through_the_pool_in_order_across_segments(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    expected: list[bytes] = []
    async with running(storage, **pooled()) as now:
        for number in range(200):
            expected.append(b"%d" % number * 100)
            now.store.append([message(expected[-1])])
            if number % 30 == 0:
                mock_clock.jump(0.2)
                await now.settle()
        assert now.store.statistics().segments > 4
    # Closing commits and dispatches the rest.
    core = StoreCore(small_config(), storage=storage)
    assert core.recovery.was_clean
    assert bodies_of(core) == expected
    core.release()


async def test_a_flush_covers_what_is_in_the_pool(mock_clock: MockClock) -> None:
    async with running(**pooled()) as now:
        (result,) = now.store.append([message(b"a")])
        assert await now.store.flush() == result.end_offset
        await now.settle()
        assert bodies_of(now.store) == [b"a"]


async def test_who_waits_for_the_disk_waits_for_the_next_commit_only(mock_clock: MockClock) -> None:
    outcomes: list[FlushOutcome] = []
    async with running(**pooled()) as now:
        (result,) = now.store.append([message(b"a")])
        now.store.when_flushed(result.end_offset, outcomes.append)
        await now.settle()
        assert outcomes == []
        mock_clock.jump(0.2)
        await now.settle()
        assert outcomes == [FlushOutcome.FLUSHED]
