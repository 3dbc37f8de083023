"""The index as a whole: files in a row, what is found in its folder, and files that fail."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

import pytest

from rmq.errors import CorruptStoreError, DiskFullError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.index_file import (
    Index,
    index_file_name,
)
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import INDEX_ENTRY, INDEX_HEADER
from rmq.testing.storage import MemoryStorage
from tests.store.steps import run
from tests.store.store_kit import START_MS, Clock, message, open_core
from tests.store.store_kit import put as store

FOLDER: Final = Path("index")
SLOTS: Final = 7
CAPACITY: Final = 20
FILE_BYTES: Final = 40 + 4 * SLOTS + 20 * CAPACITY
ENTRIES_AT: Final = 40 + 4 * SLOTS
EVER: Final = (0, 1 << 62)
HASHES: Final = TopicKeys("TopicA")


def new_index(
    storage: MemoryStorage | None = None, clock: Clock | None = None, capacity: int = CAPACITY
) -> Index:
    return Index(
        storage or MemoryStorage(),
        FOLDER,
        slots=SLOTS,
        capacity=capacity,
        now_ms=clock or Clock(),
    )


def put(index: Index, offset: int, *keys: str, store_ms: int = START_MS) -> None:
    """Add the keys of one record, as the dispatcher does."""
    physical = PhysicalOffset(offset)
    keyed = [(HASHES.index_hash(key.encode()), physical, store_ms) for key in keys]
    index.put_records(keyed, physical)


def query(index: Index, key: str, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return [*run(index.query(HASHES, key.encode(), 64, begin_ms, end_ms))]


# --- files in a row -------------------------------------------------------------------------


def test_the_name_of_a_file_is_the_local_time_it_was_made() -> None:
    name = index_file_name(1_700_000_000_001)
    assert len(name) == 17
    assert name.isdecimal()
    assert name.endswith("001")
    assert index_file_name(1_700_000_000_999) < index_file_name(1_700_000_001_000)


def test_a_new_file_begins_with_the_end_of_the_full_one() -> None:
    storage, clock = MemoryStorage(), Clock()
    index = new_index(storage, clock, capacity=4)
    for number, store_ms in enumerate((1000, 2500, 9900)):
        put(index, number * 100, "k", store_ms=store_ms)
    clock.ms += 1
    assert [file.count for file in index.files] == [4]
    put(index, 300, store_ms=20_000)
    # A message without keys begins it, too.
    assert len(index.files) == 2
    index.publish()
    second = index.files[1]
    assert bytes(second.buffer[:40]) == INDEX_HEADER.pack(9900, 9900, 200, 200, 0, 0)
    put(index, 400, "k", store_ms=20_000)
    index.publish()
    assert bytes(second.buffer[:40]) == INDEX_HEADER.pack(20_000, 20_000, 400, 400, 1, 2)
    # The seconds of that entry were counted from the copied beginning, as 4.9.8 does.
    assert INDEX_ENTRY.unpack(second.buffer[ENTRIES_AT + 20 :][:20])[2] == 10
    assert index.filled == [index.files[0]]


def test_a_file_may_become_full_between_two_keys_of_one_message() -> None:
    index = new_index(capacity=4)
    put(index, 0, "a", "b")
    put(index, 100, "c", "d", "e", "f", "g")
    assert [file.count for file in index.files] == [4, 4, 2]
    assert [query(index, key) for key in "abcdefg"] == [[0], [0], *[[100]] * 5]
    assert index.files[1].begin_offset == index.files[1].end_offset == 100


@pytest.mark.parametrize("keys", ["", " ", "  ", " a  b ", "a b a"])
def test_keys_are_what_blanks_separate(keys: str) -> None:
    core = open_core(MemoryStorage())
    store(core, [message(keys=keys)])
    assert core.index is not None
    (file,) = core.index.files
    assert file.count == 1 + len(keys.split())


def test_what_lies_below_the_end_of_the_file_is_indexed_already() -> None:
    index = new_index()
    put(index, 500, "a")
    put(index, 499, "early")
    assert query(index, "early") == []
    # The one at the end itself is taken again, so that a message's later keys are not lost.
    put(index, 500, "a")
    assert query(index, "a") == [500, 500]


def test_a_query_goes_from_new_to_old_and_stops_at_the_limit() -> None:
    clock = Clock()
    index = new_index(clock=clock, capacity=4)
    for number in range(10):
        clock.ms += 1
        put(index, number, "k", store_ms=START_MS + number * 1000)
    assert len(index.files) == 4
    assert query(index, "k") == list(range(9, -1, -1))
    assert run(index.query(HASHES, b"k", 4, *EVER)) == [9, 8, 7, 6]
    assert run(index.query(HASHES, b"k", 0, *EVER)) == []
    assert run(index.query(HASHES, b"other", 4, *EVER)) == []


def test_a_query_looks_at_the_files_of_its_time_only() -> None:
    index = new_index(capacity=4)
    for number in range(9):
        put(index, number, "k", store_ms=START_MS + number * 10_000)
    assert query(index, "k", START_MS + 10_000, START_MS + 20_000) == [2, 1]
    assert query(index, "k", 0, START_MS) == [0]
    assert query(index, "k", START_MS + 41_000, START_MS + 59_000) == [5]
    # The first entry of the second file counts its seconds from the end of the first file, 10 s
    # before; added to the beginning of its own file, that makes 40 s and not 30.
    assert query(index, "k", START_MS + 40_000, START_MS + 50_000) == [5, 4, 3]


def test_a_query_stops_at_a_file_that_begins_before_its_time() -> None:
    index = new_index(capacity=2)
    for number, seconds in enumerate((100, 0, 100)):
        put(index, number, "k", store_ms=START_MS + seconds * 1000)
    # The clock went back in between: RocketMQ 4.9.8 does not look behind that, either.
    assert query(index, "k", START_MS + 50_000) == [2]
    assert query(index, "k") == [2, 1, 0]


def test_two_files_of_one_millisecond_have_two_names() -> None:
    storage = MemoryStorage()
    index = new_index(storage, capacity=2)
    for number in range(3):
        put(index, number, "k")
    assert storage.names(FOLDER) == [index_file_name(START_MS + n) for n in range(3)]


def test_a_file_made_after_the_clock_went_back_still_comes_last() -> None:
    storage, clock = MemoryStorage(), Clock()
    index = new_index(storage, clock, capacity=2)
    put(index, 0, "k")
    clock.ms -= 3_600_000
    put(index, 1, "k")
    put(index, 2, "k")
    again = new_index(storage, clock, capacity=2)
    index.publish()
    again.load()
    assert [file.begin_offset for file in again.files] == [0, 1, 2]
    assert query(again, "k") == [2, 1, 0]


def test_foreign_files_are_left_alone_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    put(new_index(storage), 0, "k")
    storage.write(FOLDER / "notes.txt", b"mine")
    storage.make_directory(FOLDER / "old")
    index = new_index(storage)
    with caplog.at_level(logging.WARNING):
        index.load()
    assert len(index.files) == 1
    assert "notes.txt is no index file; it is left alone" in caplog.text
    assert storage.read(FOLDER / "notes.txt") == b"mine"


@pytest.mark.parametrize("size", [1, 40, FILE_BYTES - 1, FILE_BYTES + 1])
def test_a_file_of_another_size_is_refused_with_what_to_do(size: int) -> None:
    storage = MemoryStorage()
    put(new_index(storage), 0, "k")
    (name,) = storage.names(FOLDER)
    storage.resize(FOLDER / name, size)
    with pytest.raises(CorruptStoreError) as caught:
        new_index(storage).load()
    assert caught.value.path == str(FOLDER / name)
    assert f"has {size} bytes, {SLOTS} slots and {CAPACITY} entries take {FILE_BYTES}" in str(
        caught.value
    )
    assert "maxHashSlotNum" in (caught.value.hint or "")
    assert "remove the index directory" in (caught.value.hint or "")


def test_a_file_that_never_got_its_size_is_removed() -> None:
    storage = MemoryStorage()
    put(new_index(storage), 0, "k")
    storage.write(FOLDER / index_file_name(START_MS + 5), b"")
    index = new_index(storage)
    index.load()
    assert storage.names(FOLDER) == [index_file_name(START_MS)]
    assert index.current is index.files[0]


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["make_directory", "create", "reserve"])
@pytest.mark.parametrize("filled", [0, 3], ids=["the first file", "the next file"])
def test_a_file_that_cannot_be_made_is_tried_again(operation: str, filled: int) -> None:
    storage = MemoryStorage()
    index = new_index(storage, capacity=4)
    for number in range(filled):
        put(index, number, "k")
    fault = storage.faults.fail(operation, errno.ENOSPC, times=2)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(DiskFullError):
            put(index, 100, "k")
    assert fault.fired == 2
    assert len(storage.names(FOLDER)) == len(index.files) == min(filled, 1)
    put(index, 100, "k")
    assert query(index, "k") == [100, *reversed(range(filled))]
    assert storage.writes_without_room() == []


def test_nothing_is_written_where_a_full_disk_has_no_room() -> None:
    storage = MemoryStorage()
    index = Index(storage, FOLDER, slots=2000, capacity=60_000, now_ms=Clock())
    # Header and slots take three blocks: at first there is none for the entries.
    storage.capacity_bytes = 3 * 4096
    with pytest.raises(DiskFullError):
        put(index, 0, "key0")
    storage.capacity_bytes = None
    put(index, 0, "key0")
    # Then there is none for the second half of them.
    storage.capacity_bytes = storage.used_bytes
    file = index.files[0]
    count = (file.reserved - file.entries_at) // 20
    assert count < file.capacity
    for number in range(1, count - 1):
        put(index, number, "many")
    with pytest.raises(DiskFullError):
        put(index, count - 1, "last")
    assert storage.writes_without_room() == []
    assert query(index, "last") == []
    storage.capacity_bytes = None
    put(index, count - 1, "last")
    assert query(index, "last") == [count - 1]
    assert storage.writes_without_room() == []


def test_a_file_dropped_before_its_turn_needs_no_sync() -> None:
    storage = MemoryStorage()
    index = new_index(storage, capacity=2)
    for number in range(3):
        put(index, number, "k")
    first = index.files[0]
    index.drop(first)
    first.sync()
    assert first not in index.filled
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError):
        index.files[0].sync()


def test_the_last_file_there_is_becomes_the_current_one() -> None:
    storage = MemoryStorage()
    index = new_index(storage, capacity=2)
    for number in range(3):
        put(index, number, "k")
    index.drop(index.files[2])
    assert index.current is index.files[1]
    index.delete_all()
    assert index.current is None
    assert index.filled == []
    assert storage.names(FOLDER) == []
