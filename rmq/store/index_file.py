"""The index: which records carry a key.

An `IndexFile` is a hash table on disk: a header, a table of slots, and entries in the order they
were added, each linked to the previous one of its slot. `Index` is the run of them, oldest first,
of which only the last is written. The rules are those of RocketMQ 4.9.8 IndexFile and IndexService.
Keys with the same hash are not told apart here: the caller compares the record.
"""

from __future__ import annotations

import logging
import sys
from array import array
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import CorruptStoreError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SECONDS_MAX,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from rmq.store.key_hash import TopicKeys
    from rmq.store.storage import MappedFile, Storage

NAME_DIGITS: Final = 17
PUBLISH_EVERY: Final = 64
"""The header is written after this many entries, and at every flush. It serves readers in other
processes; after a crash the recovery point says what the file contains.
"""
STEPS_AT_ONCE: Final = 1_000
"""Entries of a key that are looked at in one step: about half a millisecond."""
_RESERVE_STEP_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)
_read_slot = INDEX_SLOT.unpack_from
_write_slot = INDEX_SLOT.pack_into
_read_entry = INDEX_ENTRY.unpack_from
_write_entry = INDEX_ENTRY.pack_into


class IndexState(NamedTuple):
    """The header of an index file, as `layout.IndexHeader` declares it."""

    begin_ms: int
    end_ms: int
    begin_offset: PhysicalOffset
    end_offset: PhysicalOffset
    slots_used: int
    entry_count: int


NO_INDEX_STATE: Final = IndexState(0, 0, PhysicalOffset(0), PhysicalOffset(0), 0, 0)
"""The header of an index file without entries."""


class IndexFile:
    """One file of the index."""

    def __init__(
        self,
        file: MappedFile,
        slots: int,
        capacity: int,
        state: IndexState | None = None,
    ) -> None:
        self.file = file
        self.path = file.path
        self.slots = slots
        self.capacity = capacity
        self.buffer = file.buffer
        self.entries_at = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        if state is None:
            state = IndexState._make(INDEX_HEADER.unpack_from(self.buffer))
        self.begin_ms = state.begin_ms
        self.end_ms = state.end_ms
        self.begin_offset = state.begin_offset
        self.end_offset = state.end_offset
        self.indexed_until = state.end_offset
        """Records below this are here already; `end_offset` as long as the log is not cut."""
        self.slots_used = state.slots_used
        # A file without entries may say 0; numbers begin at 1.
        self.count = max(state.entry_count, 1)
        self.reserved = 0
        self.is_dropped = False
        self._published = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def is_sound(self) -> bool:
        """Tell whether the header can be true."""
        return self.count <= self.capacity and 0 <= self.slots_used <= self.slots

    @property
    def state(self) -> IndexState:
        """What the header says; the count is 0 as long as there is no entry."""
        return IndexState(
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count if self.count > 1 else 0,
        )

    def publish(self) -> None:
        """Write the header, so that readers see what was added."""
        if self.count != self._published:
            INDEX_HEADER.pack_into(self.buffer, 0, *self.state)
            self._published = self.count

    def put(self, key_hash: int, physical: PhysicalOffset, store_ms: int) -> None:
        """Add an entry; the file must not be full."""
        count = self.count
        buffer = self.buffer
        entry_at = self.entries_at + count * INDEX_ENTRY_BYTES
        if entry_at + INDEX_ENTRY_BYTES > self.reserved:
            self.reserve(entry_at + INDEX_ENTRY_BYTES)
        slot_at = INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        (previous,) = _read_slot(buffer, slot_at)
        if previous <= 0 or previous > count:
            previous = 0
            self.slots_used += 1
        begin_ms = self.begin_ms
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 and store_ms > begin_ms else 0
        if seconds > INDEX_SECONDS_MAX:
            seconds = INDEX_SECONDS_MAX
        _write_entry(buffer, entry_at, key_hash, physical, seconds, previous)
        _write_slot(buffer, slot_at, count)
        if count <= 1:
            self.begin_offset = physical
            self.begin_ms = store_ms
        self.count = count + 1
        self.end_offset = self.indexed_until = physical
        self.end_ms = store_ms
        if count - self._published >= PUBLISH_EVERY:
            self.publish()

    def put_run(self, keyed: Sequence[tuple[int, PhysicalOffset, int]]) -> None:
        """Add entries, each a hash, a physical offset and a store time; the file has room."""
        if self.count <= 1:
            self.put(*keyed[0])
            keyed = keyed[1:]
            if not keyed:
                return
        # `put` for many: what is the same for all of them is looked up once.
        count = self.count
        buffer = self.buffer
        entry_at = self.entries_at + count * INDEX_ENTRY_BYTES
        end_at = entry_at + len(keyed) * INDEX_ENTRY_BYTES
        if end_at > self.reserved:
            self.reserve(end_at)
        slots, begin_ms = self.slots, self.begin_ms
        slots_new = 0
        for key_hash, physical, store_ms in keyed:
            slot_at = INDEX_HEADER_BYTES + key_hash % slots * INDEX_SLOT_BYTES
            (previous,) = _read_slot(buffer, slot_at)
            if previous <= 0 or previous > count:
                previous = 0
                slots_new += 1
            seconds = (store_ms - begin_ms) // 1000 if store_ms > begin_ms > 0 else 0
            if seconds > INDEX_SECONDS_MAX:
                seconds = INDEX_SECONDS_MAX
            _write_entry(buffer, entry_at, key_hash, physical, seconds, previous)
            _write_slot(buffer, slot_at, count)
            entry_at += INDEX_ENTRY_BYTES
            count += 1
        self.slots_used += slots_new
        self.count = count
        _, self.end_offset, self.end_ms = keyed[-1]
        self.indexed_until = self.end_offset
        if count - self._published > PUBLISH_EVERY:
            self.publish()

    def reserve(self, stop: int) -> None:
        """Make sure there is room up to position `stop`, and for what comes before the entries."""
        if self.reserved == 0:
            self.file.reserve(0, self.entries_at)
            self.reserved = self.entries_at + (self.count - 1) * INDEX_ENTRY_BYTES
        while self.reserved < stop:
            step = min(self.reserved + _RESERVE_STEP_BYTES, self.file.size)
            self.file.reserve(self.reserved, step)
            self.reserved = step

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Tell whether the file may hold entries of this time range."""
        return begin_ms <= self.end_ms and end_ms >= self.begin_ms

    def find(
        self, key_hash: int, limit: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, list[PhysicalOffset]]:
        """Return physical offsets of entries with this hash and time, the newest first.

        Yields after every `STEPS_AT_ONCE` entries. Entries may be added meanwhile, and the file may
        be dropped: then what was found until then is returned.
        """
        found: list[PhysicalOffset] = []
        if self.count <= 1:
            return found
        steps = 0
        (number,) = _read_slot(
            self.buffer, INDEX_HEADER_BYTES + key_hash % self.slots * INDEX_SLOT_BYTES
        )
        while 0 < number < self.count and len(found) < limit:
            hash_found, physical, seconds, previous = _read_entry(
                self.buffer, self.entries_at + number * INDEX_ENTRY_BYTES
            )
            if seconds < 0:
                break
            stored = self.begin_ms + seconds * 1000
            if hash_found == key_hash and begin_ms <= stored <= end_ms:
                found.append(physical)
            # Links point back; one that does not would lead in a circle.
            if stored < begin_ms or previous >= number:
                break
            number = previous
            steps += 1
            if steps % STEPS_AT_ONCE == 0:
                yield
                if self.is_dropped:
                    break
        return found

    def state_below(
        self, physical: PhysicalOffset, store_ms_at: Callable[[PhysicalOffset], int | None]
    ) -> IndexState:
        """Return the state with the entries of records below `physical` only; see `roll_back`.

        `store_ms_at` gives the store time of the record at a physical offset, if it is there.
        """
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < physical:
                low = middle + 1
            else:
                high = middle
        if low == self.count:
            return self.state
        if low == 1:
            return NO_INDEX_STATE
        start, stop = (self.entries_at + n * INDEX_ENTRY_BYTES for n in (low, self.count))
        # Only an entry that was the first of its slot has no link.
        slots_later = sum(
            not previous for _, _, _, previous in INDEX_ENTRY.iter_unpack(self.buffer[start:stop])
        )
        _, last, seconds, _ = self._entry(low - 1)
        stored = store_ms_at(last)
        return IndexState(
            self.begin_ms,
            stored if stored is not None else self.begin_ms + seconds * 1000,
            self.begin_offset,
            last,
            self.slots_used - slots_later,
            low,
        )

    def _entry(self, number: int) -> tuple[int, PhysicalOffset, int, int]:
        """Return hash, physical offset, seconds and link of an entry."""
        return _read_entry(self.buffer, self.entries_at + number * INDEX_ENTRY_BYTES)

    def roll_back(self, state: IndexState) -> None:
        """Return to an earlier state, all entries of which are on disk.

        A slot that points behind the end is followed along its links to an entry of that state.
        Where the entries on the way were lost, all slots are filled again from the entries.
        """
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset = state[:4]
        self.indexed_until = state.end_offset
        self.slots_used = state.slots_used
        self.count = max(state.entry_count, 1)
        self._published = -1
        if not self._unlink_later_entries():
            logger.warning("%s: the table of slots is filled again from its entries", self.path)
            self._fill_slots()
        self.publish()
        # What is behind the end must not mix with what comes in its place: half of the one and half
        # of the other may look like an entry after a power cut.
        self.file.clear_from(self.entries_at + self.count * INDEX_ENTRY_BYTES)
        self.reserved = 0

    def _unlink_later_entries(self) -> bool:
        count, buffer = self.count, self.buffer
        numbers = self._slot_numbers()
        used = self.slots - numbers.count(0)
        later = [
            (slot, number) for slot, number in enumerate(numbers) if number >= count or number < 0
        ]
        for slot, number in later:
            while number >= count:
                if number >= self.capacity:
                    return False
                key_hash, _, _, previous = _read_entry(
                    buffer, self.entries_at + number * INDEX_ENTRY_BYTES
                )
                # A lost entry reads as zeros or as something else than an entry of this slot.
                if key_hash % self.slots != slot or not 0 <= previous < number or key_hash < 0:
                    return False
                number = previous
            if number < 0 or (number and self._slot_of(number) != slot):
                # Of two entries that were written to one place, one has the other's link.
                return False
            if number == 0:
                used -= 1
            _write_slot(buffer, INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES, number)
        # Lost entries may also look like the end of a chain; the number of slots in use tells.
        return used == self.slots_used

    def _slot_of(self, number: int) -> int:
        key_hash: int = _read_entry(self.buffer, self.entries_at + number * INDEX_ENTRY_BYTES)[0]
        return key_hash % self.slots

    def _slot_numbers(self) -> array[int]:
        """Return the table of slots as native numbers: millions of them, so not as a list."""
        numbers = array("i")
        numbers.frombytes(self.buffer[INDEX_HEADER_BYTES : self.entries_at])
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers

    def _fill_slots(self) -> None:
        # Slots of a file that a stock broker wrote may have no room on disk yet.
        self.file.reserve(0, self.entries_at)
        buffer = self.buffer
        numbers = array("i", bytes(self.slots * INDEX_SLOT_BYTES))
        start = self.entries_at + INDEX_ENTRY_BYTES
        stop = self.entries_at + self.count * INDEX_ENTRY_BYTES
        slots = self.slots
        for number, (key_hash, _, _, _) in enumerate(
            INDEX_ENTRY.iter_unpack(buffer[start:stop]), start=1
        ):
            numbers[key_hash % slots] = number
        self.slots_used = slots - numbers.count(0)
        if sys.byteorder == "little":
            numbers.byteswap()
        buffer[INDEX_HEADER_BYTES : self.entries_at] = numbers.tobytes()

    def sync(self) -> None:
        """Make everything written so far durable. Blocks; may run in a thread.

        A file that is dropped meanwhile needs it no longer.
        """
        try:
            self.file.sync()
        except StorageError:
            if not self.is_dropped:
                raise

    def close(self) -> None:
        self.buffer = memoryview(b"")
        self.file.close()


class Index:
    """The index files of a store."""

    def __init__(
        self,
        storage: Storage,
        directory: Path,
        *,
        slots: int,
        capacity: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.files: list[IndexFile] = []
        self.filled: list[IndexFile] = []
        """Files that became full and were not flushed since."""
        self.has_new_names = False
        """A file was created or deleted since the directory was synced."""
        self.complete_below = 0
        """All keys of records below this offset are known to be there."""
        self._storage = storage
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._now_ms = now_ms
        self._current: IndexFile | None = None

    @property
    def file_bytes(self) -> int:
        return (
            INDEX_HEADER_BYTES + self._slots * INDEX_SLOT_BYTES + self._capacity * INDEX_ENTRY_BYTES
        )

    @property
    def current(self) -> IndexFile | None:
        return self._current

    def load(self) -> None:
        """Open the files that are there; raise `CorruptStoreError` for one of another size."""
        for name in self._storage.names(self._directory):
            path = self._directory / name
            if not name.isascii() or not name.isdecimal():
                logger.warning("%s is no index file; it is left alone", path)
                continue
            size = self._storage.size_of(path)
            if size < self.file_bytes and self._is_unfinished(path, size):
                logger.warning("%s was never written; it is removed", path)
                self._storage.delete(path)
                self.has_new_names = True
                continue
            if size != self.file_bytes:
                raise CorruptStoreError(
                    str(path),
                    f"the file has {size} bytes, {self._slots} slots and {self._capacity} entries"
                    f" take {self.file_bytes}",
                    hint="set maxHashSlotNum and maxIndexNum to what the store was written with, or"
                    " remove the index directory: it is built again from the log",
                )
            self.files.append(IndexFile(self._storage.open(path), self._slots, self._capacity))
        self._current = self.files[-1] if self.files else None

    def _is_unfinished(self, path: Path, size: int) -> bool:
        # A crash between creating a file and giving it its size leaves it empty.
        return size == 0

    def drop(self, file: IndexFile) -> None:
        """Remove one file."""
        # Out of the list first: if deleting fails, a closed file must not be searched.
        self.files.remove(file)
        if file in self.filled:
            self.filled.remove(file)
        self._current = self.files[-1] if self.files else None
        self.has_new_names = True
        file.is_dropped = True
        file.close()
        self._storage.delete(file.path)

    def put_records(
        self, keyed: Sequence[tuple[int, PhysicalOffset, int]], last_physical: PhysicalOffset
    ) -> None:
        """Add the keys of records that follow each other, the last of them at `last_physical`.

        A key is given by its hash, the physical offset and the store time of its record. Keys that
        are there already are passed over. As in a stock broker, a file is begun by the first record
        that comes when there is none or the last is full, also if it has no key.
        """
        file = self._current
        if file is None or file.count >= file.capacity:
            file = self._begin_file()
        at, count = 0, len(keyed)
        while at < count:
            if file.count >= file.capacity:
                file = self._begin_file()
            physical = keyed[at][1]
            if physical <= file.end_offset and physical < max(
                file.indexed_until, self.complete_below
            ):
                at += 1
                continue
            stop = min(count, at + file.capacity - file.count)
            file.put_run(keyed[at:stop])
            at = stop
        if file.count >= file.capacity and (not keyed or keyed[-1][1] < last_physical):
            self._begin_file()

    def _begin_file(self) -> IndexFile:
        previous = self._current
        now = self._now_ms()
        while self._storage.exists(path := self._directory / index_file_name(now)):
            now += 1
        if previous is not None and path.name <= previous.path.name:
            # The clock went back. Files are searched in the order of their names, and the oldest
            # is the first to go, so a new one must come last.
            path = self._directory / f"{int(previous.path.name) + 1:0{NAME_DIGITS}d}"
        self._storage.make_directory(self._directory)
        state = (
            IndexState(
                previous.end_ms, previous.end_ms, previous.end_offset, previous.end_offset, 0, 0
            )
            if previous is not None
            else NO_INDEX_STATE
        )
        file = IndexFile(
            self._storage.create(path, self.file_bytes), self._slots, self._capacity, state
        )
        try:
            file.reserve(file.entries_at)
        except StorageError:
            # It is tried again; an empty file would be searched, and rolled, for nothing.
            file.close()
            self._storage.delete(path)
            raise
        self.has_new_names = True
        file.publish()
        if previous is not None:
            file.indexed_until = previous.indexed_until
            previous.publish()
            self.filled.append(previous)
        self.files.append(file)
        self._current = file
        return file

    def state_below(
        self, physical: PhysicalOffset, store_ms_at: Callable[[PhysicalOffset], int | None]
    ) -> tuple[str, IndexState]:
        """Return the file, and its state, with which the index ends at a physical offset."""
        for file in reversed(self.files):
            state = file.state_below(physical, store_ms_at)
            if state.entry_count or file is self.files[0]:
                return file.path.name, state
        return "", NO_INDEX_STATE

    def publish(self) -> None:
        """Write the header of the current file."""
        if self._current is not None:
            self._current.publish()

    def query(
        self, hashes: TopicKeys, key: bytes, limit: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, list[PhysicalOffset]]:
        """Return physical offsets that may carry a key, the newest first.

        Yields after every few entries: a key may have millions.
        """
        found: list[PhysicalOffset] = []
        key_hash = hashes.index_hash(key)
        for file in reversed(list(self.files)):
            if file.is_dropped:
                break
            if file.overlaps(begin_ms, end_ms):
                found += yield from file.find(key_hash, limit - len(found), begin_ms, end_ms)
            if file.begin_ms < begin_ms or len(found) >= limit:
                break
        return [PhysicalOffset(physical) for physical in found]

    def delete_all(self) -> None:
        for file in list(self.files):
            self.drop(file)

    def close(self) -> None:
        for file in self.files:
            file.close()


def index_file_name(now_ms: int) -> str:
    """Return the name of an index file created at a time: local time to the millisecond."""
    local = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - stock names are local time
    return f"{local:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
