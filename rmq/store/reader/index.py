"""The index files of a store directory, for reading only.

How many slots and entries a file has is not written in it. Files of the default size have the
default numbers; for others the ratio of the defaults and the default numbers themselves are tried,
and the entries tell which of them is right: each slot leads to an entry whose hash leads back to
the slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError, CorruptStoreError
from rmq.store.index_file import IndexState
from rmq.store.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
)
from rmq.store.reader.files import FilePool, list_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset

DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000
_ENTRIES_PER_SLOT: Final = DEFAULT_ENTRIES // DEFAULT_SLOTS
_PROBES: Final = 16
_FITNESS_MIN: Final = 0.5


class IndexEntry(NamedTuple):
    """One key of one record."""

    key_hash: int
    physical_offset: PhysicalOffset
    seconds: int
    """From the first entry of the file to this one."""
    previous: int
    """The entry before it in the same slot, 0 if there is none."""


class Geometry(NamedTuple):
    """How an index file is divided."""

    slots: int
    entries: int

    @property
    def file_bytes(self) -> int:
        return INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES + self.entries * INDEX_ENTRY_BYTES


class IndexView:
    """One index file."""

    def __init__(
        self, files: FilePool, path: Path, size: int, slots: int | None, entries: int | None
    ) -> None:
        self.path = path
        self.size = size
        self._files = files
        self._slots_given = slots
        self._entries_given = entries
        self._geometry: Geometry | None = None

    @property
    def header(self) -> IndexState:
        """The header as it is now."""
        data = self._files.read(self.path, 0, INDEX_HEADER_BYTES)
        if len(data) < INDEX_HEADER_BYTES:
            raise CorruptStoreError(str(self.path), f"the file has {self.size} bytes, no header")
        return IndexState._make(INDEX_HEADER.unpack(data))

    @property
    def geometry(self) -> Geometry:
        """Slots and entries; raise `ConfigError` if they cannot be told from the file."""
        if self._geometry is None:
            self._geometry = self._find_geometry()
        return self._geometry

    def _find_geometry(self) -> Geometry:
        slots, entries = self._slots_given, self._entries_given
        if slots is not None and entries is not None:
            given = Geometry(slots, entries)
            if given.file_bytes != self.size:
                raise self._unknown(
                    f"{slots} slots and {entries} entries take {given.file_bytes} bytes, not"
                    f" {self.size}"
                )
            return given
        candidates = [
            geometry
            for geometry in self._candidates(slots, entries)
            if geometry.slots > 0 and geometry.entries > 1 and geometry.file_bytes == self.size
        ]
        best = max(candidates, key=self._fitness, default=None)
        if best is None or self._fitness(best) <= _FITNESS_MIN:
            raise self._unknown(f"cannot be told from a file of {self.size} bytes")
        return best

    def _unknown(self, reason: str) -> ConfigError:
        return ConfigError(
            "maxHashSlotNum, maxIndexNum",
            f"{reason}: {self.path}",
            hint="give the numbers the broker was set to: index_slots and index_entries of a"
            " Reader, --index-slots and --index-entries on the command line",
        )

    def _candidates(self, slots: int | None, entries: int | None) -> Iterator[Geometry]:
        room = self.size - INDEX_HEADER_BYTES
        if slots is None and entries is None:
            per_slot = INDEX_SLOT_BYTES + _ENTRIES_PER_SLOT * INDEX_ENTRY_BYTES
            yield Geometry(room // per_slot, room // per_slot * _ENTRIES_PER_SLOT)
        if entries is None:
            slots_known = slots or DEFAULT_SLOTS
            left = room - slots_known * INDEX_SLOT_BYTES
            yield Geometry(slots_known, left // INDEX_ENTRY_BYTES)
        if slots is None:
            entries_known = entries or DEFAULT_ENTRIES
            left = room - entries_known * INDEX_ENTRY_BYTES
            yield Geometry(left // INDEX_SLOT_BYTES, entries_known)

    def _fitness(self, geometry: Geometry) -> float:
        """Return the share of the first entries that are where a division of the file puts them.

        The slot of an entry leads to it or to a later one. One or the other may be damaged.
        """
        if self.header.entry_count <= 1 or geometry == Geometry(DEFAULT_SLOTS, DEFAULT_ENTRIES):
            return 1.0
        fitting = probed = 0
        for number in range(1, min(_PROBES + 1, geometry.entries)):
            entry = self._entry(geometry, number)
            if number > 1 and not any(entry):
                break
            probed += 1
            newest = self._slot(entry.key_hash % geometry.slots)
            fitting += entry.key_hash >= 0 and number <= newest < geometry.entries
        return fitting / probed

    # --- content ---------------------------------------------------------------------------

    def slot(self, slot: int) -> int:
        """Return the number of the newest entry of a slot, 0 if it has none."""
        assert 0 <= slot < self.geometry.slots, (slot, self.geometry)
        return self._slot(slot)

    def entry(self, number: int) -> IndexEntry:
        """Return the entry with a number; the first one has 1."""
        return self._entry(self.geometry, number)

    def _slot(self, slot: int) -> int:
        data = self._read(INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES, INDEX_SLOT_BYTES)
        value: int = INDEX_SLOT.unpack(data)[0]
        return value

    def _entry(self, geometry: Geometry, number: int) -> IndexEntry:
        place = INDEX_HEADER_BYTES + geometry.slots * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES
        return IndexEntry._make(INDEX_ENTRY.unpack(self._read(place, INDEX_ENTRY_BYTES)))

    def read_slots(self) -> bytes:
        """Return the whole table of slots."""
        return self._read(INDEX_HEADER_BYTES, self.geometry.slots * INDEX_SLOT_BYTES)

    def entries(self, start: int, stop: int) -> Iterator[IndexEntry]:
        """Yield the entries with numbers from `start` to `stop`."""
        at = INDEX_HEADER_BYTES + self.geometry.slots * INDEX_SLOT_BYTES
        chunk = 4096
        for first in range(start, stop, chunk):
            count = min(chunk, stop - first)
            data = self._read(at + first * INDEX_ENTRY_BYTES, count * INDEX_ENTRY_BYTES)
            yield from map(IndexEntry._make, INDEX_ENTRY.iter_unpack(data))

    def _read(self, position: int, size: int) -> bytes:
        data = self._files.read(self.path, position, size)
        if len(data) < size:
            raise CorruptStoreError(
                str(self.path), f"the file ends before byte {position + size} of its index"
            )
        return data

    def find(self, key_hash: int) -> Iterator[PhysicalOffset]:
        """Yield the physical offsets of entries with a hash, the newest first."""
        slots, entries = self.geometry
        count = self.header.entry_count
        slot = key_hash % slots
        number = self.slot(slot)
        while 0 < number < entries:
            entry = self.entry(number)
            if entry.key_hash % slots != slot or entry.previous > number:
                if number >= count:
                    return  # it was being added when its broker was killed
                raise CorruptStoreError(
                    str(self.path),
                    f"index entry {number} is not one of slot {slot}, which leads to it",
                    hint="the index is built again from the log when the file is moved away",
                )
            if entry.key_hash == key_hash:
                yield entry.physical_offset
            if entry.previous == number:
                return  # a stock broker links an entry to itself if the slot was ahead of it
            number = entry.previous


def list_index(
    files: FilePool, directory: Path, slots: int | None, entries: int | None
) -> tuple[list[IndexView], list[Path]]:
    """Return the index files of a store, the oldest first, and the paths that are none."""
    views: list[IndexView] = []
    foreign: list[Path] = []
    for name, size in list_files(directory):
        if size is None or not (name.isascii() and name.isdecimal()):
            foreign.append(directory / name)
        else:
            views.append(IndexView(files, directory / name, size, slots, entries))
    return views, foreign
