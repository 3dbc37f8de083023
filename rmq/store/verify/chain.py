"""Checks an index file in itself: that every entry is found from its slot.

The chains are built again from the entries, in a table of slots of its own, which is compared with
the one on disk. That table is all the memory it takes: 20 MB for a file of the default size.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from rmq.store.layout import INDEX_SECONDS_MAX, INDEX_SLOT_BYTES

if TYPE_CHECKING:
    from rmq.model.offsets import PhysicalOffset
    from rmq.store.index_file import IndexState
    from rmq.store.reader.index import IndexEntry, IndexView
    from rmq.store.verify.finding import Findings


class IndexFileState:
    """An index file that is being read, with its header as it was at the beginning."""

    def __init__(self, view: IndexView) -> None:
        self.view = view
        self.path = view.path
        self.header: IndexState = view.header
        self.begin_ms = self.header.begin_ms
        """To what the seconds of the entries are added."""
        self.previous: IndexFileState | None = None
        self.count = min(max(self.header.entry_count, 1), view.geometry.entries)

    @property
    def last_number(self) -> int:
        return self.count - 1

    def latest_ms(self, entry: IndexEntry) -> int:
        """Return the latest time at which the record of an entry can have been stored."""
        return self.begin_ms + entry.seconds * 1000 + 999

    def may_say(self, number: int, seconds: int, store_ms: int) -> bool:
        """Tell whether an entry for a record stored at a time may have these seconds."""
        if number > 1:
            return seconds == self._seconds_since(self.begin_ms, store_ms)
        # It was computed before the header got its own time: against the end of the file before,
        # or of one that is gone.
        latest = self.previous.header.end_ms if self.previous is not None else 1
        return 0 <= seconds <= self._seconds_since(latest, store_ms)

    @staticmethod
    def _seconds_since(begin_ms: int, store_ms: int) -> int:
        if begin_ms <= 0:
            return 0
        return min(max(store_ms - begin_ms, 0) // 1000, INDEX_SECONDS_MAX)


class ChainCheck:
    """Checks header, slots and links of one index file."""

    def __init__(self, file: IndexFileState, findings: Findings, *, is_closed: bool) -> None:
        self._file = file
        self._findings = findings
        self._is_closed = is_closed
        self._slots = file.view.geometry.slots
        self._newest = array("i", bytes(self._slots * INDEX_SLOT_BYTES))
        self._empty: set[int] = set()
        header, entries = file.header, file.view.geometry.entries
        if header.entry_count > entries:
            self._error(
                f"the header says {header.entry_count} entries, there is room for {entries}"
            )

    def take(self, number: int, entry: IndexEntry) -> None:
        header = self._file.header
        if number == 1 and entry.physical_offset != header.begin_offset:
            self._error(
                f"the header begins at physical offset {header.begin_offset}, the first entry is"
                f" at {entry.physical_offset}"
            )
        if number == self._file.last_number and entry.physical_offset != header.end_offset:
            self._error(
                f"the header ends at physical offset {header.end_offset}, the last entry is at"
                f" {entry.physical_offset}"
            )
        slot = entry.key_hash % self._slots
        if entry.previous != self._newest[slot] and entry.previous not in self._empty:
            self._report_link(number, entry, slot)
        self._newest[slot] = number

    def take_empty(self, number: int) -> None:
        """Note an entry that is all zero; what was linked to it cannot be judged."""
        self._empty.add(number)

    def _report_link(self, number: int, entry: IndexEntry, slot: int) -> None:
        text = (
            f"index entry {number} is linked to {entry.previous}, the entry before it in slot"
            f" {slot} is {self._newest[slot]}"
        )
        if entry.previous == number:
            # So a stock broker does where a slot, but not the header, reached the disk.
            self._findings.note(self._file.path, text, physical_offset=entry.physical_offset)
        else:
            self._error(text, entry.physical_offset)

    def finish(self) -> None:
        file = self._file
        used = self._slots - self._newest.count(0)
        if self._empty:
            first, last = min(self._empty), max(self._empty)
            self._error(f"{len(self._empty)} entries are empty, from number {first} to {last}")
        elif file.header.slots_used != used:
            self._error(f"the header says {file.header.slots_used} slots in use, they are {used}")
        if not self._is_closed:
            return
        if file.count < file.view.geometry.entries and any(file.view.entry(file.count)):
            self._error(
                f"the header says {file.header.entry_count} entries, but there is one more with"
                f" number {file.count}"
            )
        on_disk = array("i", file.view.read_slots())
        if sys.byteorder == "little":
            on_disk.byteswap()
        if on_disk == self._newest:
            return
        for slot, (said, newest) in enumerate(zip(on_disk, self._newest, strict=True)):
            if said != newest and said not in self._empty:
                self._error(f"slot {slot} leads to entry {said}, its newest is {newest}")

    def _error(self, text: str, physical_offset: PhysicalOffset | None = None) -> None:
        self._findings.error(self._file.path, text, physical_offset=physical_offset)
