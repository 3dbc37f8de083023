"""The CommitLog by itself: rolling, segments made ahead, raw bytes, watermarks, its end."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import DiskFullError, LogGapError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.commit_log import TOUCH_STEP_BYTES, CommitLog
from rmq.store.config import MIB
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import ROOT, SEGMENT_BYTES, log_path, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.testing.faults import Operation

FOLDER: Final = ROOT / "commitlog"
BLANK_MAGIC: Final = bytes.fromhex("CBD43194")


def new_log(storage: MemoryStorage | None = None) -> CommitLog:
    return CommitLog(small_config(), storage or MemoryStorage())


def write(log: CommitLog, data: bytes) -> None:
    """Write into the current segment."""
    position = log.written - log.segment_first
    log.buffer[position : position + len(data)] = data
    log.advance(position + len(data))


def marks(log: CommitLog) -> tuple[int, int, int]:
    return log.written, log.readable, log.flushed


def pattern(size: int, start: int = 0) -> bytes:
    """Return bytes that tell their place."""
    return bytes((start + place) % 251 + 1 for place in range(size))


# --- rolling --------------------------------------------------------------------------------


def test_the_first_roll_makes_the_first_segment() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    assert (log.room(), marks(log)) == (0, (0, 0, 0))
    log.roll()
    assert storage.names(FOLDER) == [log_path(0).name]
    assert log.room() == SEGMENT_BYTES
    # All of its room is taken at once: an append must not die of a full disk.
    assert storage.used_bytes == SEGMENT_BYTES
    # And its name is durable: what is written into it can be flushed without the directory.
    assert storage.crash(lambda _: 0).names(FOLDER) == [log_path(0).name]


def test_a_roll_closes_the_segment_with_a_blank() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.roll()
    write(log, pattern(SEGMENT_BYTES - 454))
    log.roll()
    # What a stock broker wrote with 454 bytes left.
    blank = bytes.fromhex("000001C6 CBD43194")
    assert storage.read(log_path(0))[-454:] == blank + bytes(446)
    assert marks(log) == (SEGMENT_BYTES, SEGMENT_BYTES, 0)
    assert storage.names(FOLDER) == [log_path(0).name, log_path(SEGMENT_BYTES).name]


@pytest.mark.parametrize("left", [0, 8, 9])
def test_a_blank_needs_eight_bytes_or_none(left: int) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.roll()
    write(log, pattern(SEGMENT_BYTES - left))
    log.roll()
    tail = storage.read(log_path(0))[SEGMENT_BYTES - left :]
    assert tail == (left.to_bytes(4) + BLANK_MAGIC).ljust(left, b"\0")[:left]
    assert log.written == SEGMENT_BYTES


@pytest.mark.parametrize("operation", ["make_directory", "create", "reserve", "sync_directory"])
@pytest.mark.parametrize("used", [None, 100], ids=["first", "next"])
def test_a_roll_that_fails_changes_nothing(operation: Operation, used: int | None) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    if used is not None:
        log.roll()
        write(log, pattern(used))
    before = (marks(log), log.room(), storage.names(FOLDER))
    contents = [storage.read(FOLDER / name) for name in storage.names(FOLDER)]
    storage.faults.fail(operation, errno.ENOSPC, times=2)
    for _ in range(2):
        with pytest.raises(DiskFullError) as caught:
            log.roll()
        assert "free room on the device" in (caught.value.hint or "")
        assert (marks(log), log.room(), storage.names(FOLDER)) == before
        assert [storage.read(FOLDER / name) for name in storage.names(FOLDER)] == contents
    log.roll()
    assert log.room() == SEGMENT_BYTES


# --- segments made ahead --------------------------------------------------------------------


def test_a_spare_is_the_next_segment_and_no_part_of_the_log_yet() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    assert not log.wants_spare()
    log.create_spare()
    assert storage.names(FOLDER) == []
    log.roll()
    assert log.wants_spare()
    log.create_spare()
    assert not log.wants_spare()
    assert len(log.segments) == 1
    assert storage.names(FOLDER)[-1] == log_path(SEGMENT_BYTES).name
    created = storage.calls["create"]
    log.create_spare()
    write(log, b"x")
    log.roll()
    assert storage.calls["create"] == created
    assert [segment.first for segment in log.segments] == [0, SEGMENT_BYTES]
    assert log.wants_spare()


def test_a_log_with_a_spare_has_the_same_bytes_as_one_without() -> None:
    contents = []
    for with_spare in (False, True):
        storage = MemoryStorage()
        log = new_log(storage)
        log.roll()
        for number in range(3):
            if with_spare:
                log.create_spare()
            write(log, pattern(1000 * (number + 1)))
            log.roll()
        log.discard_spare()
        contents.append([storage.read(FOLDER / name) for name in storage.names(FOLDER)])
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4


def test_a_spare_that_cannot_be_made_is_made_later() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.roll()
    storage.capacity_bytes = storage.used_bytes
    with pytest.raises(DiskFullError):
        log.create_spare()
    assert storage.names(FOLDER) == [log_path(0).name]
    assert log.wants_spare()
    storage.capacity_bytes = None
    log.create_spare()
    log.roll()
    assert log.segments.end == 2 * SEGMENT_BYTES


def test_an_unused_spare_is_removed_on_a_clean_stop_and_stays_on_a_kill() -> None:
    for stop, left in ((CommitLog.discard_spare, 1), (CommitLog.close, 2)):
        storage = MemoryStorage()
        log = new_log(storage)
        log.roll()
        log.create_spare()
        stop(log)
        assert len(storage.names(FOLDER)) == left


def test_a_roll_waits_for_a_thread_that_is_making_the_next_segment() -> None:
    """Both would create the same file, and one of them would find it there already."""
    storage = MemoryStorage()
    log = new_log(storage)
    log.roll()
    is_creating, may_go_on = threading.Event(), threading.Event()

    def stop_there(operation: Operation, path: Path) -> None:
        if operation == "create" and not is_creating.is_set():
            is_creating.set()
            may_go_on.wait(10)

    storage.faults.watch(stop_there)
    thread = threading.Thread(target=log.create_spare)
    thread.start()
    assert is_creating.wait(10)
    roller = threading.Thread(target=log.roll)
    roller.start()
    may_go_on.set()
    thread.join(10)
    roller.join(10)
    assert [segment.first for segment in log.segments] == [0, SEGMENT_BYTES]
    assert storage.calls["create"] == 2


def test_a_spare_is_not_made_while_a_roll_makes_the_same_segment() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.roll()
    is_creating = threading.Event()
    errors: list[StorageError] = []

    def make_spare() -> None:
        try:
            log.create_spare()
        except StorageError as exc:
            errors.append(exc)

    thread = threading.Thread(target=make_spare)

    def start_spare(operation: Operation, path: Path) -> None:
        # The roll is about to create its file: now the thread comes.
        if operation == "create" and not is_creating.is_set():
            is_creating.set()
            thread.start()
            thread.join(0.05)

    storage.faults.watch(start_spare)
    log.roll()
    thread.join(10)
    assert errors == []
    assert [segment.first for segment in log.segments] == [0, SEGMENT_BYTES]
    assert storage.names(FOLDER)[-1] == log_path(2 * SEGMENT_BYTES).name


def test_a_spare_is_warmed_up_when_that_is_wanted() -> None:
    storage = MemoryStorage()
    log = CommitLog(small_config(warm_up=True), storage)
    log.roll()
    storage.faults.fail("lock_memory", errno.ENOMEM)
    log.create_spare()
    assert storage.calls["touch"] == storage.calls["lock_memory"] == 1
    assert not log.wants_spare()


def test_pages_are_wanted_ahead_of_the_writer_step_by_step() -> None:
    storage = MemoryStorage()
    size = 48 * MIB
    log = CommitLog(small_config(segment_bytes=size), storage)
    assert log.touch_wanted() is None
    log.roll()
    ranges = []
    for _ in range(200):
        wanted = log.touch_wanted()
        if wanted is not None:
            ranges.append(wanted[1:])
            continue
        if log.attention_at() >= size:
            break
        # Nothing is wanted until the writer comes near to what was touched.
        assert log.written < log.attention_at()
        log.advance(log.attention_at())
    assert ranges[0] == (0, TOUCH_STEP_BYTES)
    assert [stop for _, stop in ranges[:-1]] == [start for start, _ in ranges[1:]]
    assert ranges[-1][1] == size
    assert log.attention_at() == size


# --- raw bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 4096, SEGMENT_BYTES - 1, SEGMENT_BYTES, 30_000])
def test_raw_bytes_lie_in_the_log_as_they_came(piece: int) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    data = pattern(2 * SEGMENT_BYTES + 100)
    for start in range(0, len(data), piece):
        log.append_raw(PhysicalOffset(start), data[start : start + piece])
    assert marks(log) == (len(data), len(data), 0)
    found = b"".join(storage.read(FOLDER / name) for name in storage.names(FOLDER))
    assert found == data.ljust(3 * SEGMENT_BYTES, b"\0")
    assert storage.writes_without_room() == []


def test_raw_bytes_that_fill_a_segment_make_no_blank_and_no_next_one() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append_raw(PhysicalOffset(0), pattern(SEGMENT_BYTES))
    assert storage.names(FOLDER) == [log_path(0).name]
    assert log.room() == 0
    log.append_raw(PhysicalOffset(SEGMENT_BYTES), b"x")
    assert storage.read(log_path(0)) == pattern(SEGMENT_BYTES)


@pytest.mark.parametrize("offset", [0, 99, 101, 5 * SEGMENT_BYTES])
def test_raw_bytes_for_another_place_are_refused(offset: int) -> None:
    log = new_log()
    log.append_raw(PhysicalOffset(0), pattern(100))
    with pytest.raises(LogGapError) as caught:
        log.append_raw(PhysicalOffset(offset), b"more")
    assert (caught.value.offered, caught.value.expected) == (offset, 100)
    assert str(caught.value) == f"bytes for physical offset {offset}, but the log ends at 100"
    assert marks(log) == (100, 100, 0)


def test_an_empty_log_begins_with_any_segment() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    first = 5 * SEGMENT_BYTES
    log.append_raw(PhysicalOffset(first), b"hello")
    assert (log.min_offset, marks(log)) == (first, (first + 5, first + 5, first))
    assert bytes(log.view(PhysicalOffset(first), 5) or b"") == b"hello"
    assert storage.names(FOLDER) == [log_path(first).name]


@pytest.mark.parametrize("offset", [1, SEGMENT_BYTES - 1, SEGMENT_BYTES + 100])
def test_an_empty_log_does_not_begin_inside_a_segment(offset: int) -> None:
    # A later recovery would begin at the segment's start, find nothing, and cut all of it.
    storage = MemoryStorage()
    log = new_log(storage)
    with pytest.raises(LogGapError):
        log.append_raw(PhysicalOffset(offset), b"hello")
    assert storage.names(FOLDER) == []


def test_raw_bytes_that_meet_a_full_disk_are_there_up_to_where_they_fit() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    storage.capacity_bytes = SEGMENT_BYTES
    data = pattern(SEGMENT_BYTES + 500)
    with pytest.raises(DiskFullError):
        log.append_raw(PhysicalOffset(0), data)
    assert log.written == SEGMENT_BYTES
    storage.capacity_bytes = None
    log.append_raw(log.written, data[log.written :])
    assert storage.read(log_path(SEGMENT_BYTES))[:500] == data[SEGMENT_BYTES:]


# --- watermarks and views -------------------------------------------------------------------


def test_segments_are_dirty_from_what_was_flushed_last_on() -> None:
    log = new_log()
    log.append_raw(PhysicalOffset(0), pattern(2 * SEGMENT_BYTES + 100))
    assert [s.first for s in log.dirty_segments(log.readable)] == [
        0,
        SEGMENT_BYTES,
        2 * SEGMENT_BYTES,
    ]
    assert [s.first for s in log.dirty_segments(PhysicalOffset(SEGMENT_BYTES))] == [0]
    log.mark_flushed(PhysicalOffset(SEGMENT_BYTES))
    assert [s.first for s in log.dirty_segments(log.readable)] == [
        SEGMENT_BYTES,
        2 * SEGMENT_BYTES,
    ]
    log.mark_flushed(PhysicalOffset(100))
    assert log.flushed == SEGMENT_BYTES
    log.mark_flushed(log.readable)
    with pytest.raises(AssertionError):
        log.mark_flushed(log.readable + 1)


@pytest.mark.parametrize(
    ("offset", "size", "is_there"),
    [
        pytest.param(0, 1, True, id="first byte"),
        pytest.param(0, SEGMENT_BYTES, True, id="a whole segment"),
        pytest.param(SEGMENT_BYTES - 1, 2, False, id="across segments"),
        pytest.param(SEGMENT_BYTES + 99, 1, True, id="last byte"),
        pytest.param(SEGMENT_BYTES + 99, 2, False, id="beyond the end"),
        pytest.param(SEGMENT_BYTES + 100, 1, False, id="behind the end"),
        pytest.param(-1, 1, False, id="negative offset"),
        pytest.param(10, 0, False, id="nothing"),
        pytest.param(10, -5, False, id="a size that was damaged"),
        pytest.param(9 * SEGMENT_BYTES, 1, False, id="far away"),
    ],
)
def test_a_view_holds_all_that_was_asked_for_or_is_none(
    offset: int, size: int, is_there: bool
) -> None:
    log = new_log()
    data = pattern(SEGMENT_BYTES + 100)
    log.append_raw(PhysicalOffset(0), data)
    view = log.view(PhysicalOffset(offset), size)
    if not is_there:
        assert view is None
    else:
        assert view is not None
        assert view.readonly
        assert bytes(view) == data[offset : offset + size]


def test_a_view_from_an_offset_ends_with_the_segment_or_the_log() -> None:
    log = new_log()
    log.append_raw(PhysicalOffset(0), pattern(SEGMENT_BYTES + 100))
    lengths = [
        len(log.view_from(PhysicalOffset(offset)) or b"")
        for offset in (0, 10, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 99)
    ]
    assert lengths == [SEGMENT_BYTES, SEGMENT_BYTES - 10, 1, 100, 1]
    assert log.view_from(PhysicalOffset(SEGMENT_BYTES + 100)) is None
    assert log.view_from(PhysicalOffset(-1)) is None


# --- the end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "segments", "room"),
    [
        pytest.param(0, 1, SEGMENT_BYTES, id="nothing"),
        pytest.param(100, 1, SEGMENT_BYTES - 100, id="inside the first"),
        pytest.param(SEGMENT_BYTES, 2, SEGMENT_BYTES, id="between two"),
        pytest.param(SEGMENT_BYTES + 1, 2, SEGMENT_BYTES - 1, id="inside the second"),
        pytest.param(3 * SEGMENT_BYTES, 3, 0, id="all of it"),
    ],
)
def test_what_lies_behind_the_end_is_gone(end: int, segments: int, room: int) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    data = pattern(3 * SEGMENT_BYTES)
    log.append_raw(PhysicalOffset(0), data)
    log.set_end(PhysicalOffset(end), flushed=PhysicalOffset(50))
    assert marks(log) == (end, end, min(end, 50))
    assert (len(log.segments), log.room()) == (segments, room)
    found = b"".join(storage.read(FOLDER / name) for name in storage.names(FOLDER))
    assert found == data[:end].ljust(segments * SEGMENT_BYTES, b"\0")
    log.append_raw(PhysicalOffset(end), b"more")
    assert bytes(log.view(PhysicalOffset(end), 4) or b"") == b"more"
    assert storage.writes_without_room() == []


def test_the_end_of_an_empty_log_takes_the_first_segment_with_the_first_message() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.load()
    log.set_end(PhysicalOffset(0), flushed=PhysicalOffset(0))
    assert (log.room(), storage.names(FOLDER)) == (0, [])
    log.append_raw(PhysicalOffset(0), b"first")
    assert storage.names(FOLDER) == [log_path(0).name]


def test_a_disk_without_room_for_the_rest_of_the_last_segment_is_an_error() -> None:
    # A stock broker's files have holes; ours do not, so that appends need no room any more.
    storage = MemoryStorage()
    storage.make_directory(FOLDER)
    file = storage.create(log_path(0), SEGMENT_BYTES)
    file.reserve(0, 4096)
    file.buffer[:4] = b"data"
    storage.capacity_bytes = storage.used_bytes
    log = new_log(storage)
    log.load()
    with pytest.raises(DiskFullError) as caught:
        log.set_end(PhysicalOffset(4), flushed=PhysicalOffset(0))
    assert caught.value.path == str(log_path(0))
    assert storage.read(log_path(0))[:4] == b"data"


# --- the order of the watermarks ------------------------------------------------------------------


def test_a_log_that_would_end_before_what_is_flushed_says_both_numbers() -> None:
    log = new_log()
    log.roll()
    write(log, pattern(100))
    log.mark_flushed(PhysicalOffset(100))
    with pytest.raises(AssertionError, match="flushed 100 <= readable 40 <= written 40"):
        log.advance(40)


def test_what_cannot_be_read_is_never_flushed() -> None:
    log = new_log()
    log.roll()
    write(log, pattern(100))
    with pytest.raises(AssertionError, match="flushed 101 <= readable 100"):
        log.mark_flushed(PhysicalOffset(101))
