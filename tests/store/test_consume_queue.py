"""One ConsumeQueue by itself: what is put where, and how its end is found again."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import CorruptStoreError, DiskFullError, StorageError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.consume_queue import RESERVE_STEP_BYTES, ConsumeQueue, PutOutcome
from rmq.store.layout import QUEUE_ENTRY
from rmq.testing.storage import MemoryStorage

FOLDER: Final = Path("consumequeue/TopicA/3")
ENTRY: Final = 20
PER_SEGMENT: Final = 10
SIZE: Final = 100
"""The size of all records, unless a test says otherwise; so entry n is at physical n * SIZE."""
FILLER: Final = bytes.fromhex("0000000000000000 7FFFFFFF 0000000000000000")


def new_queue(
    storage: MemoryStorage | None = None, *, segment_bytes: int = PER_SEGMENT * ENTRY
) -> ConsumeQueue:
    return ConsumeQueue(storage or MemoryStorage(), FOLDER, "TopicA", 3, segment_bytes)


def put_entries(queue: ConsumeQueue, start: int, stop: int) -> None:
    for number in range(start, stop):
        assert (
            queue.put(PhysicalOffset(number * SIZE), SIZE, number, QueueOffset(number))
            is PutOutcome.PUT
        )


def filled_queue(count: int, storage: MemoryStorage | None = None) -> ConsumeQueue:
    queue = new_queue(storage)
    put_entries(queue, 0, count)
    return queue


def loaded_queue(storage: MemoryStorage) -> ConsumeQueue:
    queue = new_queue(storage)
    queue.load()
    return queue


def entries_of(queue: ConsumeQueue) -> list[tuple[int, int, int] | None]:
    """Return all entries from the first segment on."""
    return [
        queue.entry(QueueOffset(n)) for n in range(queue.segments.first // ENTRY, queue.next_offset)
    ]


def state_of(queue: ConsumeQueue) -> tuple[object, ...]:
    return (
        queue.next_offset,
        queue.assigned,
        queue.max_physical,
        queue.position,
        [segment.first for segment in queue.segments],
        entries_of(queue),
    )


# --- putting --------------------------------------------------------------------------------


def test_a_queue_has_no_files_until_its_first_entry() -> None:
    storage = MemoryStorage()
    queue = new_queue(storage)
    assert storage.names(FOLDER) == []
    queue.put(PhysicalOffset(0), 235, 2598919, QueueOffset(0))
    # The entry recorded from a stock broker: offset 0, 235 bytes, tag TagA.
    expected = bytes.fromhex("0000000000000000 000000EB 000000000027A807")
    assert storage.read(FOLDER / f"{0:020d}") == expected.ljust(PER_SEGMENT * ENTRY, b"\0")


def test_an_entry_is_at_twenty_times_its_offset_across_files() -> None:
    storage = MemoryStorage()
    queue = filled_queue(25, storage)
    assert storage.names(FOLDER) == [f"{first:020d}" for first in (0, 200, 400)]
    joined = b"".join(storage.read(FOLDER / name) for name in storage.names(FOLDER))
    for number in range(25):
        expected = QUEUE_ENTRY.pack(number * SIZE, SIZE, number)
        assert joined[number * ENTRY : (number + 1) * ENTRY] == expected
    assert joined[25 * ENTRY :] == bytes(5 * ENTRY)
    assert (queue.next_offset, queue.max_physical) == (25, 25 * SIZE)
    assert storage.writes_without_room() == []


@pytest.mark.parametrize(
    ("physical", "size", "offset"),
    [
        pytest.param(400, 100, 4, id="again"),
        pytest.param(100, 100, 1, id="an old one"),
        pytest.param(350, 150, 5, id="ends where the last one does"),
        pytest.param(500, 100, 4, id="a known queue offset with a new record"),
    ],
)
def test_what_is_known_is_put_once(physical: int, size: int, offset: int) -> None:
    queue = filled_queue(5)
    before = state_of(queue)
    assert queue.put(PhysicalOffset(physical), size, 7, QueueOffset(offset)) is PutOutcome.KNOWN
    assert state_of(queue) == before


def test_an_entry_beyond_the_next_is_not_put_by_itself() -> None:
    queue = filled_queue(5)
    before = state_of(queue)
    assert queue.put(PhysicalOffset(900), 100, 0, QueueOffset(9)) is PutOutcome.GAP
    assert state_of(queue) == before
    queue.put_after_gap(PhysicalOffset(900), 100, 77)
    assert queue.entry(QueueOffset(5)) == (900, 100, 77)
    assert (queue.next_offset, queue.max_physical) == (6, 1000)


@pytest.mark.parametrize("offset", [1, 7, 9, 10, 13, 20, 1009])
def test_a_queue_begun_later_has_fillers_in_its_first_file_only(offset: int) -> None:
    storage = MemoryStorage()
    queue = new_queue(storage)
    assert queue.put(PhysicalOffset(5000), 100, 42, QueueOffset(offset)) is PutOutcome.PUT
    fillers = offset % PER_SEGMENT
    (name,) = storage.names(FOLDER)
    assert name == f"{(offset - fillers) * ENTRY:020d}"
    data = storage.read(FOLDER / name)
    assert data[: fillers * ENTRY] == FILLER * fillers
    assert data[fillers * ENTRY :][:ENTRY] == QUEUE_ENTRY.pack(5000, 100, 42)
    assert data[(fillers + 1) * ENTRY :].count(0) == len(data) - (fillers + 1) * ENTRY
    assert (queue.min_offset, queue.next_offset) == (offset, offset + 1)
    assert queue.assigned == offset
    queue.put(PhysicalOffset(5100), 100, 43, QueueOffset(offset + 1))
    assert queue.entry(QueueOffset(offset + 1)) == (5100, 100, 43)


@pytest.mark.parametrize("offset", [0, 1, 3275, 3276, 3277, 5000])
def test_every_entry_has_room_on_disk_before_it_is_written(offset: int) -> None:
    # 64 KiB, the step in which room is reserved, is no multiple of an entry.
    storage = MemoryStorage()
    queue = new_queue(storage, segment_bytes=2 * RESERVE_STEP_BYTES + 8)
    for number in range(offset, 6554):
        queue.put(PhysicalOffset(number * SIZE), SIZE, 1, QueueOffset(number))
        if number in (3275, 3276, 3277, 6552, 6553):
            assert storage.writes_without_room() == []


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 7], ids=["at 0", "later"])
@pytest.mark.parametrize("operation", ["add_directory", "create", "reserve"])
def test_the_first_file_that_cannot_be_made_is_tried_again(operation: str, offset: int) -> None:
    storage = MemoryStorage()
    queue = new_queue(storage)
    fault = storage.faults.fail(operation, errno.ENOSPC, times=2)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(DiskFullError):
            queue.put(PhysicalOffset(700), 100, 1, QueueOffset(offset))
    assert fault.fired == 2
    assert queue.put(PhysicalOffset(700), 100, 1, QueueOffset(offset)) is PutOutcome.PUT
    assert queue.entry(QueueOffset(offset)) == (700, 100, 1)
    assert (queue.min_offset, queue.next_offset) == (offset, offset + 1)
    assert storage.writes_without_room() == []


@pytest.mark.parametrize("operation", ["create", "reserve"])
def test_the_next_file_that_cannot_be_made_is_tried_again(operation: str) -> None:
    storage = MemoryStorage()
    queue = filled_queue(PER_SEGMENT, storage)
    fault = storage.faults.fail(operation, errno.ENOSPC, times=2)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(DiskFullError) as caught:
            queue.put(PhysicalOffset(1000), 100, 1, QueueOffset(PER_SEGMENT))
        assert caught.value.path == str(FOLDER / f"{200:020d}")
    assert fault.fired == 2
    assert (queue.next_offset, queue.max_physical) == (PER_SEGMENT, 1000)
    put_entries(queue, PER_SEGMENT, 2 * PER_SEGMENT + 1)
    assert storage.writes_without_room() == []
    assert entries_of(queue) == [(n * SIZE, SIZE, n) for n in range(2 * PER_SEGMENT + 1)]


def test_a_disk_that_fills_up_within_a_file_is_no_write_without_room() -> None:
    storage = MemoryStorage()
    queue = new_queue(storage, segment_bytes=2 * RESERVE_STEP_BYTES + 8)
    storage.capacity_bytes = RESERVE_STEP_BYTES
    number = RESERVE_STEP_BYTES // ENTRY
    put_entries(queue, 0, number)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            queue.put(PhysicalOffset(number * SIZE), SIZE, 1, QueueOffset(number))
    assert storage.writes_without_room() == []
    storage.capacity_bytes = None
    assert queue.put(PhysicalOffset(number * SIZE), SIZE, 1, QueueOffset(number)) is PutOutcome.PUT


# --- reading --------------------------------------------------------------------------------


def test_entries_end_with_their_segment_with_the_queue_and_with_the_count() -> None:
    queue = filled_queue(25)

    def lengths(offset: int, count: int) -> int | None:
        view = queue.entries(QueueOffset(offset), count)
        return None if view is None else len(view) // ENTRY

    assert lengths(0, 800) == 10
    assert lengths(7, 800) == 3
    assert lengths(10, 4) == 4
    assert lengths(22, 800) == 3
    assert lengths(25, 1) is None
    assert lengths(-1, 1) is None
    assert queue.entry(QueueOffset(24)) == (2400, 100, 24)
    assert queue.entry(QueueOffset(25)) is None


def test_entries_of_a_dropped_segment_are_gone_but_views_of_them_stay() -> None:
    queue = filled_queue(25)
    view = queue.entries(QueueOffset(3), 1)
    assert view is not None
    queue.segments.drop_first()
    assert queue.entries(QueueOffset(3), 1) is None
    assert queue.start_of_next_segment(QueueOffset(3)) == 10
    assert queue.start_of_next_segment(QueueOffset(10)) == 20
    assert QUEUE_ENTRY.unpack(view) == (300, 100, 3)


# --- flushing -------------------------------------------------------------------------------


def test_dirty_are_the_segments_with_entries_since_the_last_sync() -> None:
    queue = filled_queue(25)
    assert queue.dirty_bytes == 25 * ENTRY
    assert [segment.first for segment in queue.dirty_segments()] == [0, 200, 400]
    queue.mark_synced(QueueOffset(25))
    assert queue.dirty_segments() == []
    put_entries(queue, 25, 31)
    assert [segment.first for segment in queue.dirty_segments()] == [400, 600]
    queue.mark_synced(QueueOffset(20))
    assert queue.dirty_bytes == 6 * ENTRY


# --- recovery -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 29, 30, 31, 45, 50])
def test_both_ways_to_find_the_end_find_it(count: int) -> None:
    storage = MemoryStorage()
    state = state_of(filled_queue(count, storage))
    for by_point in (False, True):
        queue = loaded_queue(storage)
        if by_point:
            queue.recover_to(PhysicalOffset(count * SIZE))
        else:
            queue.recover()
        found = state_of(queue)
        # What the queue would assign next is its end; before, nothing had been assigned by it.
        assert found[:1] + found[2:] == state[:1] + state[2:]
        assert queue.assigned == count


@given(count=st.integers(0, 45), cut=st.integers(0, 46 * SIZE), begin=st.integers(0, 25))
def test_a_recovery_point_and_a_truncation_cut_alike(count: int, cut: int, begin: int) -> None:
    storage = MemoryStorage()
    put_entries(new_queue(storage), begin, begin + count)
    cut += begin * SIZE
    by_point = loaded_queue(storage.kill())
    by_point.recover_to(PhysicalOffset(cut))
    truncated = loaded_queue(storage.kill())
    truncated.recover()
    truncated.truncate(PhysicalOffset(cut))
    assert state_of(by_point) == state_of(truncated)
    # A record counts as before the cut when it begins there.
    kept = min(count, max(-(-(cut - begin * SIZE) // SIZE), 0))
    if kept:
        assert by_point.next_offset == begin + kept
        assert by_point.max_physical == (begin + kept) * SIZE


def test_recovery_goes_on_where_it_ended() -> None:
    storage = MemoryStorage()
    filled_queue(17, storage)
    queue = loaded_queue(storage)
    queue.recover()
    put_entries(queue, 17, 23)
    assert entries_of(queue) == [(n * SIZE, SIZE, n) for n in range(23)]
    assert storage.writes_without_room() == []


def test_only_the_last_three_files_are_read_as_a_stock_broker_does() -> None:
    storage = MemoryStorage()
    filled_queue(55, storage)
    storage.faults.calls.clear()
    loaded_queue(storage).recover()
    assert storage.calls["open"] == 3


def test_entries_behind_a_hole_do_not_count_and_their_files_go() -> None:
    storage = MemoryStorage()
    queue = filled_queue(45, storage)
    queue.segments[3].buffer[5 * ENTRY : 6 * ENTRY] = bytes(ENTRY)
    queue = loaded_queue(storage)
    queue.recover()
    assert queue.next_offset == 35
    assert storage.names(FOLDER)[-1] == f"{600:020d}"
    queue.clear_tail()
    assert storage.read(FOLDER / f"{600:020d}")[5 * ENTRY :] == bytes(5 * ENTRY)


def test_all_entries_cut_leave_no_file_unless_some_expired_before() -> None:
    storage = MemoryStorage()
    queue = filled_queue(25, storage)
    queue.truncate(PhysicalOffset(0))
    assert storage.names(FOLDER) == []
    assert (queue.next_offset, queue.max_physical, queue.position) == (0, -1, 0)
    put_entries(queue, 0, 3)
    assert queue.entry(QueueOffset(2)) == (200, 100, 2)

    queue = filled_queue(25)
    queue.segments.drop_first()
    queue.truncate(PhysicalOffset(0))
    # Offsets never go back below what once was, or consumers would miss new messages.
    assert (queue.next_offset, queue.assigned) == (10, 10)
    queue.put(PhysicalOffset(5000), 100, 1, QueueOffset(10))
    assert queue.entry(QueueOffset(10)) == (5000, 100, 1)


def test_truncating_stops_at_fillers() -> None:
    queue = new_queue()
    put_entries(queue, 7, 12)
    queue.truncate(PhysicalOffset(0))
    assert (queue.next_offset, queue.max_physical) == (7, -1)
    put_entries(queue, 7, 9)
    assert queue.entry(QueueOffset(8)) == (800, 100, 8)


@pytest.mark.parametrize("count", [0, 1, 10, 13])
def test_what_lies_behind_the_end_is_cleared(count: int) -> None:
    storage = MemoryStorage()
    filled_queue(20, storage)
    queue = loaded_queue(storage)
    queue.recover_to(PhysicalOffset(count * SIZE))
    queue.clear_tail()
    files = [storage.read(FOLDER / name) for name in storage.names(FOLDER)]
    assert len(b"".join(files).rstrip(b"\0")) <= count * ENTRY
    put_entries(queue, count, 20)
    assert entries_of(queue) == [(n * SIZE, SIZE, n) for n in range(20)]
    assert storage.writes_without_room() == []


def test_clearing_and_deleting_remove_the_files() -> None:
    storage = MemoryStorage()
    queue = filled_queue(25, storage)
    queue.clear()
    assert storage.names(FOLDER) == []
    assert (queue.min_offset, queue.next_offset, queue.assigned) == (0, 0, 0)
    queue.delete()
    assert not storage.exists(FOLDER)


@given(
    begin=st.integers(0, 9),
    count=st.integers(1, 25),
    log_min=st.integers(0, 40 * SIZE),
)
def test_the_min_offset_is_the_first_entry_whose_record_is_there(
    begin: int, count: int, log_min: int
) -> None:
    queue = new_queue()
    put_entries(queue, begin, begin + count)
    queue.correct_min_offset(PhysicalOffset(log_min))
    end = begin + count
    assert queue.min_offset == next((n for n in range(begin, end) if n * SIZE >= log_min), end)


def test_the_min_offset_of_an_empty_queue_is_its_end() -> None:
    queue = new_queue()
    queue.correct_min_offset(PhysicalOffset(500))
    assert queue.min_offset == queue.next_offset == 0


def test_the_last_entry_of_each_segment_tells_what_it_holds() -> None:
    queue = filled_queue(25)
    assert list(queue.last_entries()) == [(0, 900), (200, 1900), (400, 2400)]
    assert list(new_queue().last_entries()) == []


def test_a_file_of_another_size_is_no_segment() -> None:
    storage = MemoryStorage()
    filled_queue(15, storage)
    storage.resize(FOLDER / f"{0:020d}", 100)
    with pytest.raises(CorruptStoreError, match=f"{0:020d}: the file has 100 bytes") as caught:
        loaded_queue(storage)
    assert "mappedFileSizeConsumeQueue" in (caught.value.hint or "")


def test_a_short_last_file_is_extended() -> None:
    storage = MemoryStorage()
    filled_queue(15, storage)
    storage.resize(FOLDER / f"{200:020d}", 3 * ENTRY + 5)
    queue = loaded_queue(storage)
    queue.recover()
    assert queue.next_offset == 13
    assert storage.size_of(FOLDER / f"{200:020d}") == PER_SEGMENT * ENTRY


def test_an_error_of_the_disk_while_loading_is_told_as_such() -> None:
    storage = MemoryStorage()
    filled_queue(5, storage)
    storage.faults.fail("size_of", errno.EIO)
    with pytest.raises(StorageError, match="read the size of"):
        loaded_queue(storage)
