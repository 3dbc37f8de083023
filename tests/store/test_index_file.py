"""One index file against a plain model of it, and files that were damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model.offsets import PhysicalOffset
from rmq.store.index_file import (
    PUBLISH_EVERY,
    STEPS_AT_ONCE,
    Index,
    IndexFile,
    IndexState,
)
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import INDEX_ENTRY, INDEX_HEADER
from rmq.testing.storage import MemoryStorage
from tests.store.steps import counted, run
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


def put(index: Index, offset: int, *keys: str, store_ms: int = START_MS) -> None:
    """Add the keys of one record, as the dispatcher does."""
    physical = PhysicalOffset(offset)
    keyed = [(HASHES.index_hash(key.encode()), physical, store_ms) for key in keys]
    index.put_records(keyed, physical)


def query(index: Index, key: str, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return [*run(index.query(HASHES, key.encode(), 64, begin_ms, end_ms))]


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
        st.integers(0, 1 << 40).map(PhysicalOffset),
        st.one_of(st.integers(0, 20_000), st.integers(0, 1 << 50)),
    ),
    max_size=CAPACITY - 1,
)
times = st.integers(-1, 25_000)


@given(puts=puts, key_hash=st.integers(0, 12), limit=st.integers(0, 5), begin=times, end=times)
def test_a_file_does_what_the_model_does(
    puts: list[tuple[int, PhysicalOffset, int]], key_hash: int, limit: int, begin: int, end: int
) -> None:
    file, model = new_file(), ModelFile(SLOTS)
    for put_one in puts:
        file.put(*put_one)
        model.put(*put_one)
    file.publish()
    assert bytes(file.buffer) == model.data.ljust(FILE_BYTES, b"\0")
    for found_in in (file, reopened(file)):
        expected = model.find(key_hash, limit, begin, end)
        assert run(found_in.find(key_hash, limit, begin, end)) == expected
        assert run(found_in.find(key_hash, 99, *EVER)) == model.find(key_hash, 99, *EVER)


@given(puts=puts, kept=st.integers(0, CAPACITY - 1), lost=st.sets(st.integers(0, CAPACITY - 1)))
def test_rolled_back_to_a_state_it_answers_as_it_did_then(
    puts: list[tuple[int, PhysicalOffset, int]], kept: int, lost: set[int]
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
        assert run(file.find(key_hash, 99, *EVER)) == model.find(key_hash, 99, *EVER)
    # It takes the same entries again.
    for put_one in puts[kept:]:
        file.put(*put_one)
        model.put(*put_one)
    file.publish()
    assert bytes(file.buffer).rstrip(b"\0") == model.data.rstrip(b"\0")


def test_an_entry_links_back_to_the_one_before_it_in_its_slot() -> None:
    # What a stock broker wrote for its first message: see the facts of the golden store.
    file = new_file(slots=500)
    file.put(1064868495, PhysicalOffset(0), 1_794_797_200_000)
    entry = bytes(file.buffer[40 + 500 * 4 + 20 :][:20])
    assert entry == bytes.fromhex("3F789A8F 0000000000000000 00000000 00000000")
    assert int.from_bytes(file.buffer[40 + 495 * 4 :][:4]) == 1
    file.put(495, PhysicalOffset(235), 1_794_797_205_999)
    entry = bytes(file.buffer[40 + 500 * 4 + 40 :][:20])
    assert entry == INDEX_ENTRY.pack(495, 235, 5, 1)
    assert file.state == (1_794_797_200_000, 1_794_797_205_999, 0, 235, 1, 3)


def test_a_file_without_entries_says_zero_and_counts_from_one() -> None:
    file = new_file()
    assert file.count == 1
    file.publish()
    assert int.from_bytes(file.buffer[36:40]) == 0
    assert run(file.find(3, 10, *EVER)) == []


def test_a_file_is_full_with_one_entry_less_than_its_capacity() -> None:
    file = new_file(capacity=4)
    for number in range(3):
        assert not file.is_full
        file.put(number, PhysicalOffset(number), START_MS)
    assert file.is_full


def test_seconds_are_cut_off_and_bounded() -> None:
    file = new_file()
    seconds = []
    for store_ms in (5000, 5999, 6000, 4000, 5000 + (1 << 31) * 1000, 1 << 60):
        file.put(1, PhysicalOffset(0), store_ms)
        start = ENTRIES_AT + (file.count - 1) * 20
        seconds.append(INDEX_ENTRY.unpack(file.buffer[start : start + 20])[2])
    assert seconds == [0, 0, 1, 0, 0x7FFFFFFF, 0x7FFFFFFF]


def test_a_time_range_is_compared_in_whole_seconds_after_the_first() -> None:
    file = new_file()
    for number, store_ms in enumerate((10_500, 11_499, 11_500, 13_499)):
        file.put(1, PhysicalOffset(number), store_ms)
    # They count as stored at 10500, 10500, 11500 and 12500.
    assert run(file.find(1, 9, 10_500, 10_500)) == [1, 0]
    assert run(file.find(1, 9, 10_501, 12_499)) == [2]
    assert run(file.find(1, 9, 12_500, 12_500)) == [3]
    assert run(file.find(1, 9, 12_501, 99_999)) == []
    assert file.overlaps(0, 10_500)
    assert not file.overlaps(0, 10_499)
    assert file.overlaps(13_499, 99_999)
    assert not file.overlaps(13_500, 99_999)


def test_the_header_is_written_now_and_then_for_other_processes() -> None:
    file = new_file(capacity=1000)
    for number in range(PUBLISH_EVERY):
        file.put(1, PhysicalOffset(number), START_MS)
    assert 0 < int.from_bytes(file.buffer[36:40]) <= file.count
    file.publish()
    assert int.from_bytes(file.buffer[36:40]) == file.count


def test_slots_that_are_filled_again_have_room_first() -> None:
    # A stock broker's files have holes where nothing was written.
    storage = MemoryStorage()
    slots, capacity = 3000, 10
    file = IndexFile(storage.create(Path("file"), 40 + 4 * slots + 20 * capacity), slots, capacity)
    # The slot of an entry that was lost.
    file.buffer[40 + 4 * 5 : 44 + 4 * 5] = (7).to_bytes(4)
    assert storage.used_bytes == 4096
    file.roll_back(IndexState(1, 2, PhysicalOffset(3), PhysicalOffset(4), 0, 0))
    assert storage.used_bytes >= 40 + 4 * slots
    assert file.buffer[40 : 40 + 4 * slots].tobytes().count(0) == 4 * slots


def test_a_state_survives_as_it_is() -> None:
    file = new_file()
    file.roll_back(IndexState(1, 2, PhysicalOffset(3), PhysicalOffset(4), 0, 0))
    assert file.state == (1, 2, 3, 4, 0, 0)
    assert reopened(file).state == file.state


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
            assert len(run(file.find(key_hash, 99, begin, end))) <= file.count
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
        file.put(3, PhysicalOffset(1), START_MS)
    file.buffer[40 + 3 * 4 : 44 + 3 * 4] = number.to_bytes(4, signed=True)
    assert len(run(file.find(3, 99, *EVER))) == (CAPACITY - 1 if number == CAPACITY - 1 else 0)


def test_links_that_go_forward_or_to_themselves_end_the_search() -> None:
    for link in (2, 3):
        file = new_file()
        for physical in (10, 20, 30):
            file.put(1, PhysicalOffset(physical), START_MS)
        at = ENTRIES_AT + 2 * 20 + 16
        file.buffer[at : at + 4] = link.to_bytes(4)
        assert run(file.find(1, 99, *EVER)) == [30, 20]


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


def test_a_long_chain_is_followed_in_steps() -> None:
    entries = 3 * STEPS_AT_ONCE
    file = new_file(entries + 1, slots=1)
    for number in range(entries):
        file.put(7, PhysicalOffset(number), 10_000 + number * 1000)
    # The oldest entry, at the far end of the chain.
    found, turns = counted(file.find(7, 9, 10_000, 10_000))
    assert found == [0]
    assert turns == 3
    # A collision finds nothing, and takes no longer.
    assert counted(file.find(8, 9, *EVER)) == ([], 3)


def test_a_file_may_be_dropped_while_it_is_searched() -> None:
    entries = 3 * STEPS_AT_ONCE
    file = new_file(entries + 1, slots=1)
    for number in range(entries):
        file.put(7, PhysicalOffset(number), 10_000 + number * 1000)
    steps = file.find(7, 9, 10_000, 10_000)
    next(steps)
    file.is_dropped = True
    file.close()
    assert run(steps) == []
