"""What a running store does by itself: segments made ahead and recovery points."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

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


async def test_a_recovery_point_that_was_begun_before_a_failure_is_not_saved(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    gate = Gate(storage)
    async with running(storage, recovery_point_interval_ms=1000) as now:
        (result,) = now.store.append([message(b"lost")])
        gate.shut()
        now.store.when_flushed(result.end_offset, lambda _: None)
        await gate.wait_arrival()
        mock_clock.jump(1)
        await gate.wait_arrival()
        # The flush fails. The system tells of it once: the point then syncs the same file in vain,
        # but without an error.
        storage.faults.fail("sync", on=is_of_log)
        gate.release_first()
        await now.settle(held=1)
        assert now.store.statistics().refusal is Refusal.FAILED
        gate.open()
        await now.settle()
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
