"""Where the last record before an offset ends, by the queues, without them, and against them."""

from __future__ import annotations

import bisect
from itertools import pairwise

import pytest

from rmq.errors import StoreUnavailableError
from rmq.model import flags
from rmq.model.offsets import PhysicalOffset
from rmq.store.log_scan import boundary_before
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    SEGMENT_BYTES,
    TOPIC,
    Clock,
    message,
    open_core,
    overwrite,
    put,
    put_numbered,
    queue_path,
)
from tests.store.truncation_kit import put_varied, record_ends


def test_it_is_the_last_end_of_a_record_at_or_before_an_offset() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_varied(core, clock, range(100))
    ends = record_ends(core)
    offsets = {*range(0, core.log.written, 37), *ends, *(end - 1 for end in ends[1:])}
    for offset in sorted(offsets):
        expected = ends[bisect.bisect_right(ends, offset) - 1]
        assert core.record_boundary(offset) == expected, offset


def test_it_is_known_when_the_record_before_was_stored() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(now_ms=clock), clock=clock)
    put_varied(core, clock, range(100))
    last_ms = 0
    for start, end in pairwise(record_ends(core)):
        record = core.reads.record_at(PhysicalOffset(start))
        if record is not None:
            last_ms = record.store_ms
        # Behind a blank it is the record before that.
        assert (record is None) == (end % SEGMENT_BYTES == 0)
        assert boundary_before(core.log, core.queues, PhysicalOffset(end)) == (end, last_ms)
    assert boundary_before(core.log, core.queues, PhysicalOffset(0)).store_ms == 0


def test_records_that_are_in_no_queue_count() -> None:
    core = open_core(MemoryStorage())
    (first,) = put_numbered(core, range(1))
    (second,) = put(core, [message(b"half", sys_flag=flags.TRANSACTION_PREPARED)])
    assert core.record_boundary(second.end_offset) == second.end_offset
    assert core.record_boundary(PhysicalOffset(second.end_offset - 1)) == first.end_offset


def test_a_log_without_queues_is_read_from_its_segment_on() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(50))
    ends = record_ends(core)
    core.plan_deletion([TOPIC]).run()
    assert [core.record_boundary(PhysicalOffset(end)) for end in ends] == ends


def test_what_a_damaged_queue_says_is_not_believed() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    results = put_numbered(core, range(9))
    overwrite(storage, queue_path(), 8 * 20, (results[8].physical_offset + 3).to_bytes(8))
    assert core.record_boundary(PhysicalOffset(core.log.written - 1)) == results[8].physical_offset


def test_a_record_that_a_slave_has_not_dispatched_counts() -> None:
    master, slave = open_core(MemoryStorage()), open_core(MemoryStorage())
    results = put_numbered(master, range(9))
    data = bytes(master.log.view_from(PhysicalOffset(0)) or b"")
    slave.append_raw(PhysicalOffset(0), data[:-1])
    assert slave.record_boundary(slave.log.written) == results[8].physical_offset


def test_a_full_last_segment_ends_with_a_boundary() -> None:
    clock = Clock()
    master, slave = open_core(MemoryStorage(now_ms=clock), clock=clock), open_core(MemoryStorage())
    put_varied(master, clock, range(60))
    data = bytes(master.log.segments[0].buffer)
    slave.append_raw(PhysicalOffset(0), data)
    assert slave.record_boundary(PhysicalOffset(SEGMENT_BYTES)) == SEGMENT_BYTES
    slave.dispatcher.catch_up()
    assert slave.record_boundary(PhysicalOffset(SEGMENT_BYTES)) == SEGMENT_BYTES


def test_an_empty_log_has_one() -> None:
    assert open_core(MemoryStorage()).record_boundary(PhysicalOffset(0)) == 0


@pytest.mark.parametrize("beside", [-1, 101])
def test_there_is_none_beside_the_log(beside: int) -> None:
    core = open_core(MemoryStorage())
    core.begin_raw(PhysicalOffset(SEGMENT_BYTES))
    core.append_raw(PhysicalOffset(SEGMENT_BYTES), bytes(100))
    with pytest.raises(StoreUnavailableError, match="not over"):
        core.record_boundary(PhysicalOffset(SEGMENT_BYTES + beside))
