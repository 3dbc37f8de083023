"""Dispatch in a running store: what cannot be written, a master's bytes, and the transient pool."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest

from rmq.errors import DiskFullError, LogGapError
from rmq.model.offsets import PhysicalOffset
from rmq.store.append import AppendStatus
from rmq.store.config import FlushMode
from rmq.store.core import Refusal, StoreCore
from rmq.store.flusher import FlushOutcome
from rmq.testing.storage import MemoryStorage
from tests.store.running import ROOT, bodies_of, is_of_queues, message, running, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock


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
    with pytest.raises(DiskFullError, match="No space left on device"):
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
        while (view := log.view_from(PhysicalOffset(sent))) is not None:
            # In pieces that end in the middle of records.
            for start in range(0, len(view), 1000):
                slave.store.append_raw(PhysicalOffset(sent + start), view[start : start + 1000])
                await slave.settle()
            sent += len(view)
        assert bodies_of(slave.store) == [b"%d" % number for number in range(300)]
        assert slave.store.statistics().dispatched == master.store.statistics().dispatched
        with pytest.raises(LogGapError):
            slave.store.append_raw(PhysicalOffset(sent + 1), b"x")
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
