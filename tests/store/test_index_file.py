"""The index: one file against a plain model of it, files in a row, and files that were damaged."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import CorruptStoreError, DiskFullError, StorageError
from rmq.store.index_file import (
    PUBLISH_EVERY,
    Index,
    IndexFile,
    IndexState,
    index_file_name,
)
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import INDEX_ENTRY, INDEX_HEADER
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import START_MS, Clock, overwrite

FOLDER: Final = Path("index")
SLOTS: Final = 7
CAPACITY: Final = 20
FILE_BYTES: Final = 40 + 4 * SLOTS + 20 * CAPACITY
ENTRIES_AT: Final = 40 + 4 * SLOTS
EVER: Final = (0, 1 << 62)
HASHES: Final = TopicKeys("TopicA")


def new_file(capacity: int = CAPACITY, slots: int = SLOTS) -> IndexFile:
    storage = MemoryStorage()
    size = 40 + 4 * slots + 20 * capacity
    return IndexFile(storage.create(Path("file"), size), slots, capacity)


def reopened(file: IndexFile) -> IndexFile:
    """Return the file as a start finds it: what its header says."""
    return IndexFile(file.file, file.slots, file.capacity)


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


def put(index: Index, physical: int, *keys: str, store_ms: int = START_MS) -> None:
    """Add the keys of one record, as the dispatcher does."""
    if index.file_for(physical) is not None:
        index.put_keys(HASHES, physical, store_ms, " ".join(keys).encode())


def query(index: Index, key: str, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return [*index.query(HASHES, key.encode(), 64, begin_ms, end_ms)]


# --- one file -------------------------------------------------------------------------------


class ModelFile:
    """RocketMQ 4.9.8 IndexFile as plain lists, its steps in its order."""

    def __init__(self, slots: int) -> None:
        self.slots = [0] * slots
        self.entries: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]
        self.begin_ms = self.end_ms = self.begin_offset = self.end_offset = self.used = 0

    def put(self, key_hash: int, physical: int, store_ms: int) -> None:
        slot = key_hash % len(self.slots)
        previous = self.slots[slot]
        seconds = int((store_ms - self.begin_ms) / 1000)
        if self.begin_ms <= 0:
            seconds = 0
        seconds = min(max(seconds, 0), 0x7FFFFFFF)
        self.slots[slot] = len(self.entries)
        self.entries.append((key_hash, physical, seconds, previous))
        if len(self.entries) == 2:
            self.begin_offset, self.begin_ms = physical, store_ms
        self.used += previous == 0
        self.end_offset, self.end_ms = physical, store_ms

    def find(self, key_hash: int, limit: int, begin_ms: int, end_ms: int) -> list[int]:
        found: list[int] = []
        number = self.slots[key_hash % len(self.slots)]
        while number > 0 and len(found) < limit:
            entry_hash, physical, seconds, previous = self.entries[number]
            stored = self.begin_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= stored <= end_ms:
                found.append(physical)
            if stored < begin_ms:
                break
            number = previous
        return found

    @property
    def data(self) -> bytes:
        count = len(self.entries) if len(self.entries) > 1 else 0
        header = INDEX_HEADER.pack(
            self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, count
        )
        slots = b"".join(number.to_bytes(4) for number in self.slots)
        return header + slots + b"".join(INDEX_ENTRY.pack(*entry) for entry in self.entries)


puts = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF)),
        st.integers(0, 1 << 40),
        st.one_of(st.integers(0, 20_000), st.integers(0, 1 << 50)),
    ),
    max_size=CAPACITY - 1,
)
times = st.integers(-1, 25_000)


@given(puts=puts, key_hash=st.integers(0, 12), limit=st.integers(0, 5), begin=times, end=times)
def test_a_file_does_what_the_model_does(
    puts: list[tuple[int, int, int]], key_hash: int, limit: int, begin: int, end: int
) -> None:
    file, model = new_file(), ModelFile(SLOTS)
    for put_one in puts:
        file.put(*put_one)
        model.put(*put_one)
    file.publish()
    assert bytes(file.buffer) == model.data.ljust(FILE_BYTES, b"\0")
    for found_in in (file, reopened(file)):
        assert found_in.find(key_hash, limit, begin, end) == model.find(key_hash, limit, begin, end)
        assert found_in.find(key_hash, 99, *EVER) == model.find(key_hash, 99, *EVER)


@given(puts=puts, kept=st.integers(0, CAPACITY - 1), lost=st.sets(st.integers(0, CAPACITY - 1)))
def test_rolled_back_to_a_state_it_answers_as_it_did_then(
    puts: list[tuple[int, int, int]], kept: int, lost: set[int]
) -> None:
    """Whether the later entries are on disk, or some of them were lost in a power cut."""
    file, model = new_file(), ModelFile(SLOTS)
    kept = min(kept, len(puts))
    for put_one in puts[:kept]:
        file.put(*put_one)
        model.put(*put_one)
    file.publish()
    state = file.state
    for put_one in puts[kept:]:
        file.put(*put_one)
    file.publish()
    for number in range(kept + 1, len(puts) + 1):
        if number in lost:
            start = ENTRIES_AT + number * 20
            file.buffer[start : start + 20] = bytes(20)
    file = reopened(file)
    file.roll_back(state)
    assert file.state == state
    assert bytes(file.buffer[:40]) == model.data[:40]
    for key_hash in {0, *(put_one[0] for put_one in puts)}:
        assert file.find(key_hash, 99, *EVER) == model.find(key_hash, 99, *EVER)
    # It takes the same entries again.
    for put_one in puts[kept:]:
        file.put(*put_one)
        model.put(*put_one)
    file.publish()
    assert bytes(file.buffer).rstrip(b"\0") == model.data.rstrip(b"\0")


def test_an_entry_links_back_to_the_one_before_it_in_its_slot() -> None:
    # What a stock broker wrote for its first message: see the facts of the golden store.
    file = new_file(slots=500)
    file.put(1064868495, 0, 1_794_797_200_000)
    entry = bytes(file.buffer[40 + 500 * 4 + 20 :][:20])
    assert entry == bytes.fromhex("3F789A8F 0000000000000000 00000000 00000000")
    assert int.from_bytes(file.buffer[40 + 495 * 4 :][:4]) == 1
    file.put(495, 235, 1_794_797_205_999)
    entry = bytes(file.buffer[40 + 500 * 4 + 40 :][:20])
    assert entry == INDEX_ENTRY.pack(495, 235, 5, 1)
    assert file.state == (1_794_797_200_000, 1_794_797_205_999, 0, 235, 1, 3)


def test_a_file_without_entries_says_zero_and_counts_from_one() -> None:
    file = new_file()
    assert file.count == 1
    file.publish()
    assert int.from_bytes(file.buffer[36:40]) == 0
    assert file.find(3, 10, *EVER) == []


def test_a_file_is_full_with_one_entry_less_than_its_capacity() -> None:
    file = new_file(capacity=4)
    for number in range(3):
        assert not file.is_full
        file.put(number, number, START_MS)
    assert file.is_full


def test_seconds_are_cut_off_and_bounded() -> None:
    file = new_file()
    seconds = []
    for store_ms in (5000, 5999, 6000, 4000, 5000 + (1 << 31) * 1000, 1 << 60):
        file.put(1, 0, store_ms)
        start = ENTRIES_AT + (file.count - 1) * 20
        seconds.append(INDEX_ENTRY.unpack(file.buffer[start : start + 20])[2])
    assert seconds == [0, 0, 1, 0, 0x7FFFFFFF, 0x7FFFFFFF]


def test_a_time_range_is_compared_in_whole_seconds_after_the_first() -> None:
    file = new_file()
    for number, store_ms in enumerate((10_500, 11_499, 11_500, 13_499)):
        file.put(1, number, store_ms)
    # They count as stored at 10500, 10500, 11500 and 12500.
    assert file.find(1, 9, 10_500, 10_500) == [1, 0]
    assert file.find(1, 9, 10_501, 12_499) == [2]
    assert file.find(1, 9, 12_500, 12_500) == [3]
    assert file.find(1, 9, 12_501, 99_999) == []
    assert file.overlaps(0, 10_500)
    assert not file.overlaps(0, 10_499)
    assert file.overlaps(13_499, 99_999)
    assert not file.overlaps(13_500, 99_999)


def test_the_header_is_written_now_and_then_for_other_processes() -> None:
    file = new_file(capacity=1000)
    for number in range(PUBLISH_EVERY):
        file.put(1, number, START_MS)
    assert 0 < int.from_bytes(file.buffer[36:40]) <= file.count
    file.publish()
    assert int.from_bytes(file.buffer[36:40]) == file.count


# --- files that were damaged ----------------------------------------------------------------


@given(
    position=st.integers(0, FILE_BYTES - 4),
    garbage=st.one_of(
        st.binary(min_size=4, max_size=4),
        st.integers(-2, CAPACITY + 2).map(lambda number: number.to_bytes(4, signed=True)),
    ),
    count=st.integers(0, CAPACITY - 1),
    key_hash=st.integers(0, 12),
)
def test_no_damage_makes_a_search_fail_or_run_in_circles(
    position: int, garbage: bytes, count: int, key_hash: int
) -> None:
    storage = MemoryStorage()
    index = new_index(storage)
    for number in range(count):
        put(index, number * 100, f"key{number % 3}", store_ms=START_MS + number * 1000)
    index.publish()
    index.close()
    if count:
        (name,) = storage.names(FOLDER)
        overwrite(storage, FOLDER / name, position, garbage)
    index = new_index(storage)
    index.load()
    if not all(file.is_sound for file in index.files):
        index.delete_all()
    for begin, end in (EVER, (START_MS, START_MS + 5000)):
        for file in index.files:
            assert len(file.find(key_hash, 99, begin, end)) <= file.count
        for key in ("key0", "key1"):
            assert len(query(index, key, begin, end)) <= CAPACITY
    # And it can be written further, into the next file as well. Damaged times may hide entries.
    for number in range(CAPACITY):
        put(index, (1 << 62) + number, "new")
    index.publish()
    assert len(query(index, "new")) <= CAPACITY


@pytest.mark.parametrize("number", [CAPACITY - 1, CAPACITY, CAPACITY + 1, 0x7FFFFFFF, -1])
def test_a_slot_of_a_full_file_may_point_anywhere(number: int) -> None:
    file = new_file()
    while not file.is_full:
        file.put(3, 1, START_MS)
    file.buffer[40 + 3 * 4 : 44 + 3 * 4] = number.to_bytes(4, signed=True)
    assert len(file.find(3, 99, *EVER)) == (CAPACITY - 1 if number == CAPACITY - 1 else 0)


def test_links_that_go_forward_or_to_themselves_end_the_search() -> None:
    for link in (2, 3):
        file = new_file()
        for physical in (10, 20, 30):
            file.put(1, physical, START_MS)
        at = ENTRIES_AT + 2 * 20 + 16
        file.buffer[at : at + 4] = link.to_bytes(4)
        assert file.find(1, 99, *EVER) == [30, 20]


@pytest.mark.parametrize(
    ("field_at", "value"),
    [
        pytest.param(36, CAPACITY + 1, id="more entries than fit"),
        pytest.param(36, 0x7FFFFFFF, id="far more entries than fit"),
        pytest.param(32, SLOTS + 1, id="more slots in use than there are"),
        pytest.param(32, -1, id="less than no slots in use"),
    ],
)
def test_an_impossible_header_is_not_sound(field_at: int, value: int) -> None:
    storage = MemoryStorage()
    index = new_index(storage)
    put(index, 0, "a", "b")
    index.publish()
    assert index.files[0].is_sound
    (name,) = storage.names(FOLDER)
    overwrite(storage, FOLDER / name, field_at, value.to_bytes(4, signed=True))
    index = new_index(storage)
    index.load()
    assert [file.is_sound for file in index.files] == [False]


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
    index = new_index()
    file = index.file_for(0)
    assert file is not None
    index.put_keys(HASHES, 0, START_MS, keys.encode())
    assert file.count == 1 + len(keys.split())


def test_what_lies_below_the_end_of_the_file_is_indexed_already() -> None:
    index = new_index()
    put(index, 500, "a")
    assert index.file_for(499) is None
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
    assert index.query(HASHES, b"k", 4, *EVER) == [9, 8, 7, 6]
    assert index.query(HASHES, b"k", 0, *EVER) == []
    assert index.query(HASHES, b"other", 4, *EVER) == []


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


def test_a_state_survives_as_it_is() -> None:
    state = IndexState(1, 2, 3, 4, 5, 6)
    file = new_file()
    file.roll_back(state._replace(slots_used=0, entry_count=0))
    assert file.state == (1, 2, 3, 4, 0, 0)
    assert reopened(file).state == file.state
