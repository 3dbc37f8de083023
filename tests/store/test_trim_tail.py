"""A slave's log that becomes a master's: nothing lost but half a record, no offset given twice."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.errors import CorruptStoreError, StorageError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.store.checkpoint import RecoveryPoints
from rmq.store.core import Refusal
from rmq.testing.storage import MemoryStorage
from tests.store import running
from tests.store.model import checks
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    Clock,
    kill,
    log_path,
    message,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    read_bodies,
    small_config,
)
from tests.store.truncation_kit import Ended, EndsAt, left_below, put_varied, record_ends

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rmq.store.core import StoreCore

COUNT: Final = 5


def master_log(count: int = COUNT) -> tuple[bytes, list[int]]:
    """Return the log of a master with numbered messages, and where its records end."""
    master = open_core(MemoryStorage())
    results = put_numbered(master, range(count))
    return bytes(master.log.view_from(PhysicalOffset(0)) or b""), [
        result.end_offset for result in results
    ]


def slave_with(data: bytes) -> tuple[MemoryStorage, StoreCore]:
    storage = MemoryStorage()
    slave = open_core(storage)
    slave.append_raw(PhysicalOffset(0), data)
    return storage, slave


def points_of(storage: MemoryStorage) -> RecoveryPoints:
    return RecoveryPoints(storage, ROOT / "recovery-point")


def test_wherever_the_bytes_end_the_whole_records_stay_and_offsets_go_on() -> None:
    data, ends = master_log()
    for size in range(ends[-2], len(data) + 1):
        storage, slave = slave_with(data[:size])
        whole = COUNT if size == len(data) else COUNT - 1
        assert slave.trim_tail() == size - ends[whole - 1]
        assert slave.log.written == slave.log.flushed == ends[whole - 1]
        checks.check_tails(slave)
        (result,) = put(slave, [message(b"new", unique_key="new")])
        assert result.queue_offset == whole
        assert result.physical_offset == ends[whole - 1]
        expected = [*numbered_bodies(range(whole)), b"new"]
        for core in (slave, open_core(storage.kill())):
            assert read_bodies(core) == expected
            assert query_bodies(core, "new") == [b"new"]


def test_a_log_of_many_queues_goes_on_as_its_masters_would() -> None:
    clock = Clock()
    master = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_varied(master, clock, range(80))
    data = b"".join(bytes(segment.buffer) for segment in master.log.segments)
    slave = open_core(MemoryStorage(now_ms=clock), clock=clock)
    slave.append_raw(PhysicalOffset(0), data[: master.log.written])
    assert slave.trim_tail() == 0
    start = clock.ms
    for core in (master, slave):
        clock.ms = start
        put_varied(core, clock, range(80, 140))
    end = master.log.written
    assert left_below(slave, end) == left_below(master, end)


@pytest.mark.parametrize("size", [0, 3, 9, 500], ids=lambda size: f"{size} bytes")
def test_a_segment_whose_blank_is_not_whole_is_filled_by_the_new_master(size: int) -> None:
    clock = Clock()
    master = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_numbered(master, range(20))
    put(master, [message(bytes(SEGMENT_BYTES // 2), unique_key="long")])
    put(master, [message(bytes(SEGMENT_BYTES // 2), unique_key="next")])
    ends = record_ends(master)
    blank_at = ends[ends.index(SEGMENT_BYTES) - 1]
    assert SEGMENT_BYTES - blank_at > 500
    data = bytes(master.log.segments[0].buffer)
    storage, slave = slave_with(data[: blank_at + size])
    assert slave.trim_tail() == size
    assert slave.log.written == blank_at
    (result,) = put(slave, [message(b"new")])
    assert result.physical_offset == blank_at
    assert len(read_bodies(open_core(storage.kill()))) == 22


def test_half_a_record_at_the_begin_of_a_segment_leaves_an_empty_segment() -> None:
    clock = Clock()
    master = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_varied(master, clock, range(60))
    data = b"".join(bytes(segment.buffer) for segment in master.log.segments)
    _, slave = slave_with(data[: SEGMENT_BYTES + 40])
    slave.log.create_spare()
    assert slave.trim_tail() == 40
    assert slave.log.written == SEGMENT_BYTES
    put_varied(slave, clock, range(60, 130))
    assert len(slave.log.segments) == 3


def test_an_empty_slave_becomes_an_empty_master() -> None:
    core = open_core(MemoryStorage())
    assert core.trim_tail() == 0
    assert put_numbered(core, range(1))[0].physical_offset == 0


def test_a_slave_that_began_later_goes_on_from_the_masters_queue_offsets() -> None:
    clock = Clock()
    master = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_varied(master, clock, range(90))
    slave = open_core(MemoryStorage(now_ms=clock), clock=clock)
    slave.begin_raw(PhysicalOffset(SEGMENT_BYTES))
    for segment in list(master.log.segments)[1:]:
        stop = min(segment.end, master.log.written) - segment.first
        slave.append_raw(PhysicalOffset(segment.first), segment.buffer[:stop])
    slave.trim_tail()
    for queue in slave.queues:
        assert queue.assigned == master.queues.by_key[queue.topic, queue.queue_id].assigned


def test_trimming_twice_or_on_a_master_changes_nothing() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(7))
    before = left_below(core, core.log.written)
    for _ in range(2):
        assert core.trim_tail() == 0
    assert left_below(core, core.log.written) == before
    assert put_numbered(core, range(7, 8))[0].queue_offset == 7


def test_with_a_transient_pool_nothing_old_comes_back() -> None:
    data, ends = master_log()
    config = small_config(transient_pool_enabled=True, transient_pool_size=2)
    storage = MemoryStorage()
    slave = open_core(storage, config)
    slave.append_raw(PhysicalOffset(0), data[:-1])
    assert slave.trim_tail() == len(data) - 1 - ends[-2]
    put(slave, [message(b"new %d" % number) for number in range(200)])
    slave.close()
    expected = [*numbered_bodies(range(COUNT - 1)), *(b"new %d" % n for n in range(200))]
    assert read_bodies(open_core(storage, config)) == expected


# --- what a recovery makes of it ---------------------------------------------------------------


def test_a_masters_record_that_ends_in_a_zero_is_not_doubted_any_longer() -> None:
    data, _ = master_log()
    storage, slave = slave_with(data)
    slave.trim_tail()
    assert not points_of(storage.crash(lambda _: 0)).was_raw
    # Without properties a record ends in a zero; of a slave's log a recovery would not take it.
    put(slave, [message(b"bare")])
    kill(slave)
    assert read_bodies(open_core(storage.kill()))[-1] == b"bare"


def test_a_master_that_becomes_a_slave_again_is_doubted_again() -> None:
    data, _ = master_log()
    storage, slave = slave_with(data[:-1])
    slave.trim_tail()
    slave.append_raw(slave.log.written, b"x")
    assert points_of(storage.crash(lambda _: 0)).was_raw


@pytest.mark.parametrize("seed", [None, 0, 1], ids=["killed", "least on disk", "most on disk"])
def test_an_end_at_any_step_leaves_the_whole_records(seed: int | None) -> None:
    data, ends = master_log()
    steps = 0
    for call in range(1, 100):
        storage, slave = slave_with(data[:-1])
        slave.flush()
        end = EndsAt(storage, call)
        try:
            slave.trim_tail()
        except Ended:
            left = storage.kill() if seed is None else storage.crash(lambda n: min(n - 1, seed))
            file = left.read(log_path())
            # As long as there is half a record the next start is told to doubt it.
            assert points_of(left.kill()).was_raw or not any(file[ends[-2] :])
            again = open_core(left)
            assert again.log.written == ends[-2]
            assert read_bodies(again) == numbered_bodies(range(COUNT - 1))
            steps = end.seen
            continue
        break
    assert steps > 3


# --- what hinders it ---------------------------------------------------------------------------


def test_bytes_that_are_no_record_are_refused() -> None:
    data, ends = master_log()
    _, slave = slave_with(data[: ends[2]] + b"\x00\x00\x00\x20garbage" + bytes(100))
    before = slave.log.written
    with pytest.raises(CorruptStoreError, match="no record") as refused:
        slave.trim_tail()
    assert refused.value.offset == ends[2]
    assert "rmq store verify" in (refused.value.hint or "")
    assert slave.log.written == before


def test_a_closed_store_is_refused() -> None:
    core = open_core(MemoryStorage())
    core.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        core.trim_tail()


@pytest.mark.parametrize("operation", ["clear_from", "sync"])
def test_a_disk_that_fails_meanwhile_ends_the_store(operation: str) -> None:
    data, _ = master_log()
    storage, slave = slave_with(data[:-1])
    with (
        storage.faults.failing("clear_from" if operation == "clear_from" else "sync", errno.EIO),
        pytest.raises(StorageError),
    ):
        slave.trim_tail()
    assert slave.refusal is Refusal.FAILED
    with pytest.raises(StoreUnavailableError, match="failed"):
        slave.trim_tail()
    assert read_bodies(open_core(storage.kill())) == numbered_bodies(range(COUNT - 1))


def test_queues_that_cannot_be_written_are_tried_again() -> None:
    data, _ = master_log()
    storage, slave = slave_with(data)
    with (
        storage.faults.failing("create", errno.ENOSPC, on=running.is_of_queues),
        pytest.raises(StorageError),
    ):
        slave.trim_tail()
    assert slave.trim_tail() == 0
    assert read_bodies(slave) == numbered_bodies(range(COUNT))


# --- a flush that is under way -----------------------------------------------------------------


def test_a_flush_from_before_the_cut_says_nothing_of_what_came_after() -> None:
    data, ends = master_log()
    storage, slave = slave_with(data[:-1])
    plan = slave.plan_flush()
    assert plan is not None
    plan.run()
    slave.trim_tail()
    put(slave, [message(bytes(500))])
    slave.finish_flush(plan)
    assert slave.log.flushed == ends[-2]
    assert open_core(storage.crash(lambda _: 0)).log.written >= slave.log.flushed


async def test_a_running_slave_becomes_a_master(mock_clock: MockClock) -> None:
    async with running.running() as old, running.running(MemoryStorage()) as now:
        messages = [running.message(b"%d" % number) for number in range(300)]
        await old.store.put(messages)
        data = b"".join(bytes(segment.buffer) for segment in old.core.log.segments)
        gate = running.Gate(now.storage)
        gate.shut()
        now.store.append_raw(PhysicalOffset(0), data[: old.core.log.written - 1])
        mock_clock.jump(10)
        # A flush of the half record is under way.
        await gate.wait_arrival()
        async with trio.open_nursery() as nursery:
            trimmed: list[int] = []

            async def trim() -> None:
                trimmed.append(await now.store.trim_tail())

            nursery.start_soon(trim)
            await gate.wait_arrival()
            gate.let_others_pass()
            gate.open()
        assert trimmed[0] > 0
        (result,) = await now.store.put([running.message(b"new")])
        assert result.queue_offset == 299
        assert running.bodies_of(now.store) == [*(b"%d" % n for n in range(299)), b"new"]
        survivor = open_core(now.storage.crash(lambda _: 0), running.small_config())
        assert running.bodies_of(survivor) == running.bodies_of(now.store)
