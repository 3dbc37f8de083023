"""A slave's own disk: full, read-only, failing, slow; and what has to be on it before a report."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import StorageError
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.slave_status import SlaveState
from rmq.model.offsets import PhysicalOffset
from rmq.store.config import FlushMode
from rmq.testing.storage import MemoryStorage
from tests.ha.following import Hands, following, node
from tests.ha.scripted_masters import CoreMaster
from tests.store.running import Gate, bodies_of, is_of_log, is_of_queues

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.testing.faults import Operation


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name.startswith("rmq.ha")
    ]


@pytest.mark.parametrize(
    ("operation", "code", "text"),
    [
        pytest.param("reserve", errno.ENOSPC, "No space left", id="full"),
        pytest.param("create", errno.EROFS, "Read-only", id="read-only"),
        pytest.param("create", errno.EIO, "Input/output", id="failing"),
        pytest.param("sync_directory", errno.EIO, "Input/output", id="directory fails"),
    ],
)
@pytest.mark.parametrize("is_empty", [False, True], ids=["in the middle", "empty"])
async def test_a_disk_that_takes_nothing_holds_the_slave_up_and_loses_nothing(
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    operation: Operation,
    code: int,
    text: str,
    is_empty: bool,
) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        if not is_empty:
            source.put(50)
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            with storage.faults.failing(operation, code, on=_is_segment) as fault:
                master.put(500)
                await hands.pass_time(5)
                assert fault.fired
                assert slave.state() is SlaveState.FAILED
                assert text in (slave.runner.status.last_error or "")
                assert copy.log.end < source.log.end
                assert copy.bytes == source.bytes[: copy.log.end]
                held = copy.log.end
            waited_s = await hands.until(lambda: copy.bytes == source.bytes)
            assert held <= copy.log.end
            assert waited_s <= 1.5
            assert slave.state() is SlaveState.STREAMING
            assert slave.runner.status.last_error is None
            await hands.settle()
            assert bodies_of(copy.core) == bodies_of(source.core)
        told = errors(caplog)
        assert len(told) == 1, told
        assert text in told[0]


def _is_segment(path: Path) -> bool:
    return "commitlog" in path.parts


async def test_a_queue_that_cannot_be_written_holds_the_slave_up_until_it_can(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.settle()
            with storage.faults.failing("create", errno.ENOSPC, on=is_of_queues):
                master.put(5)
                await hands.settle()
                # They are in the log: that counts. But no more come in.
                assert master.appended == source.log.end
                source.put(5)
                master.grew()
                await hands.pass_time(3)
                assert slave.state() is SlaveState.FAILED
                assert "ConsumeQueue" in (slave.runner.status.last_error or "")
            await hands.until(lambda: copy.bytes == source.bytes)
            await hands.pass_time(2)
            assert bodies_of(copy.core) == bodies_of(source.core)


async def test_a_store_that_failed_to_sync_takes_no_more_and_says_so(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage, flush_mode=FlushMode.ASYNC) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.settle()
            storage.faults.fail("sync", errno.EIO, on=is_of_log)
            master.put(5)
            await hands.pass_time(11)
            assert copy.core.failure is not None
            master.put(5)
            await hands.pass_time(3)
            assert slave.state() is SlaveState.FAILED
            assert "must be restarted" in (slave.runner.status.last_error or "")
            assert len(master.master.slaves) == 0, "a slave that holds nothing counts for nothing"
            accepted = master.accepted
            await hands.pass_time(5)
            assert master.accepted == accepted, "nobody is dialled for nothing"
        assert len(errors(caplog)) == 1


async def test_a_disk_that_is_above_its_limit_holds_the_slave_up(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            master.put(5)
            await hands.settle()
            copy.core.set_disk_full(True)
            master.put(5)
            await hands.pass_time(0.5)
            assert slave.state() is SlaveState.FAILED
            assert slave.runner.status.last_error == "the disk is full"
            copy.core.set_disk_full(False)
            await hands.until(lambda: copy.bytes == source.bytes)


# --- flushed before it counts ---------------------------------------------------------------------


async def test_a_master_that_counts_what_is_flushed_hears_of_it_as_soon_as_it_is(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage, flush_mode=FlushMode.ASYNC) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        gate = Gate(storage)
        master = CoreMaster(source, rules=InSyncRules(counts_flushed=True))
        async with following(copy, master):
            await hands.settle()
            gate.shut()
            master.put(5)
            await gate.wait_arrival()
            # The disk works, and no time has passed.
            first = source.log.end
            assert (master.appended, master.flushed) == (first, 0)
            master.put(5)
            await trio.testing.wait_all_tasks_blocked()
            assert (master.appended, master.flushed) == (source.log.end, 0)
            gate.release_first()
            await gate.wait_arrival()
            await trio.testing.wait_all_tasks_blocked()
            # What came while it worked is flushed next, at once and together.
            assert master.flushed == first
            gate.open()
            await hands.settle()
            assert master.flushed == source.log.end
            assert trio.current_time() == 0


async def test_a_master_that_counts_what_is_appended_does_not_wait_for_the_disk(
    mock_clock: MockClock,
) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage, flush_mode=FlushMode.ASYNC) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, master):
            # The first bytes make it known on disk that this is a slave's log.
            master.put(1)
            await hands.settle()
            syncs = storage.calls["sync"]
            for _ in range(20):
                master.put(1)
                await hands.settle()
            assert master.appended == source.log.end
            assert storage.calls["sync"] == syncs


async def test_a_failed_flush_ends_the_connection_without_a_report(mock_clock: MockClock) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage, flush_mode=FlushMode.ASYNC) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source, rules=InSyncRules(counts_flushed=True))
        async with following(copy, master) as slave:
            await hands.settle()
            storage.faults.fail("sync", errno.EIO, on=is_of_log)
            master.put(5)
            await hands.settle()
            assert slave.state() is SlaveState.FAILED
            assert len(master.master.slaves) == 0
            assert master.flushed < source.log.end


# --- epochs ---------------------------------------------------------------------------------------


async def test_an_epoch_is_on_disk_before_a_byte_of_it_is_taken_or_reported(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(10)
        copy.core.append_raw(PhysicalOffset(0), source.bytes[:300])
        master = CoreMaster(source, epoch=5)
        written = trio.Event()
        async with following(copy, None, epoch=4) as slave, trio.open_nursery() as nursery:
            slave.on_adopt = written.wait
            await nursery.start(master.run)
            slave.runner.point_to(master.address, None)
            await hands.settle()
            greeting = len(master.received[0])
            # Long enough for a report that is due by time.
            await hands.pass_time(7)
            assert slave.adopted == []
            assert (copy.log.end, len(master.received[0])) == (300, greeting)
            written.set()
            await hands.settle()
            assert slave.adopted == [(5, 300)]
            assert copy.bytes == source.bytes
            assert master.appended == source.log.end
            assert master.accepted == 1
            nursery.cancel_scope.cancel()


async def test_an_epoch_that_is_known_is_not_adopted_again(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(10)
        async with following(copy, CoreMaster(source, epoch=5), epoch=5) as slave:
            await hands.settle()
            assert (copy.bytes, slave.adopted) == (source.bytes, [])


async def test_an_epoch_that_cannot_be_saved_is_not_followed(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(10)
        master = CoreMaster(source, epoch=5)

        async def fail() -> None:
            raise StorageError("write", "haState.json", "No space left on device")

        async with following(copy, None, epoch=4) as slave, trio.open_nursery() as nursery:
            slave.on_adopt = fail
            await nursery.start(master.run)
            slave.runner.point_to(master.address, None)
            await hands.pass_time(3)
            assert slave.state() is SlaveState.FAILED
            assert "haState.json" in (slave.runner.status.last_error or "")
            assert copy.log.end == 0
            slave.on_adopt = None
            await hands.until(lambda: copy.bytes == source.bytes)
            assert slave.adopted == [(5, 0)]
            nursery.cancel_scope.cancel()


# --- dispatch -------------------------------------------------------------------------------------


async def test_reports_do_not_wait_for_queues_to_be_built(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(300)
        master = CoreMaster(source)
        # As slow as dispatch can be.
        copy.core.dispatcher.bound = lambda: PhysicalOffset(0)
        async with following(copy, master):
            await hands.settle()
            assert master.appended == source.log.end
            assert bodies_of(copy.core) == []
            copy.core.dispatcher.bound = None
            copy.store.visible_bound_moved()
            await hands.settle()
            assert bodies_of(copy.core) == bodies_of(source.core)
