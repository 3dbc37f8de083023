"""Reads index files, many entries at a time, and tells whether they are just what they must be.

If they are not, the whole index is checked by the rules of `rmq.store.verify.index` and
`rmq.store.verify.chain`, see `exact`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.spark.decoding.fixed import dtype_of
from rmq.spark.jobs.verify.expected import IndexBegins
from rmq.spark.jobs.verify.sums import RowSum, row_sum
from rmq.store.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    INDEX_HEADER_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    IndexEntry,
    IndexSlot,
)
from rmq.store.reader.files import FileGoneError, FilePool
from rmq.store.verify.chain import IndexFileState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rmq.store.index_file import IndexState
    from rmq.store.reader import Reader
    from rmq.store.reader.index import Geometry

ENTRY: Final = dtype_of(INDEX_ENTRY, [str(each.name) for each in IndexEntry.subcons])
SLOT: Final = dtype_of(INDEX_SLOT, [str(each.name) for each in IndexSlot.subcons])
CHUNK_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class IndexFileHead:
    """An index file, as far as its header tells."""

    path: Path
    header: IndexState
    geometry: Geometry
    count: int
    """Entries have numbers from 1 up to, and without, this one."""


@dataclass(frozen=True, slots=True)
class IndexTask:
    """An index file to read."""

    file: IndexFileHead
    begins: IndexBegins
    log_min: int
    is_closed: bool
    """Whether nothing may be beyond what the header says."""


@dataclass(frozen=True, slots=True)
class IndexScan:
    """What an index file has in it."""

    path: str
    is_tidy: bool
    """Whether its header, its slots and its links are right, and its entries in order."""
    entries: int
    keys: RowSum
    """The entries of records that the log still has."""
    begin_entries: tuple[tuple[int, int, int], ...]
    """Number, physical offset and seconds of entries for records at which an index file begins."""


def list_files(reader: Reader) -> list[IndexFileHead] | None:
    """Return the index files that have entries; None if something is to be said of them.

    Raises `ConfigError` if the numbers of slots and entries are not given and do not follow from
    the files.
    """
    files: list[IndexFileHead] = []
    unknown: ConfigError | None = None
    is_tidy = True
    for view in reader.index_files():
        try:
            header = view.header
            if header.entry_count > 1:
                count = IndexFileState(view).count
                files.append(IndexFileHead(view.path, header, view.geometry, count))
            else:
                is_tidy &= not header.slots_used
        except ConfigError as exc:
            unknown = exc
        except (CorruptStoreError, FileGoneError):
            is_tidy = False
    if unknown is not None and not files:
        raise unknown
    begins = [file.header.begin_offset for file in files]
    return files if is_tidy and unknown is None and begins == sorted(begins) else None


def begins_of(files: Sequence[IndexFileHead], *, is_live: bool) -> IndexBegins:
    """Return where index files begin; what a running broker indexes meanwhile does not count."""
    last = files[-1].header.end_offset if files else -1
    return IndexBegins(
        tuple(file.header.begin_offset for file in files),
        tuple(file.header.begin_ms for file in files),
        last if is_live else None,
    )


def read_index(task: IndexTask) -> IndexScan:
    """Read an index file."""
    return _IndexReader(task).read()


class _IndexReader:
    """Reads one index file."""

    def __init__(self, task: IndexTask) -> None:
        self._task = task
        self._file = task.file
        self._pool = FilePool(1)
        self._newest = np.zeros(task.file.geometry.slots, np.int32)
        """By slot, the entry that was added last."""
        self._highest = -1
        self._keys = RowSum()
        self._begin_entries: list[tuple[int, int, int]] = []

    def read(self) -> IndexScan:
        try:
            is_tidy = self._read_entries() and self._is_head_right()
        except FileGoneError:
            is_tidy = False
        finally:
            self._pool.close()
        return IndexScan(
            str(self._file.path),
            is_tidy,
            self._file.count - 1,
            self._keys,
            tuple(self._begin_entries),
        )

    def _read_entries(self) -> bool:
        at = INDEX_HEADER_BYTES + self._file.geometry.slots * INDEX_SLOT_BYTES
        for first in range(1, self._file.count, CHUNK_ENTRIES):
            count = min(CHUNK_ENTRIES, self._file.count - first)
            entries = self._read(at + first * INDEX_ENTRY_BYTES, count, ENTRY)
            if len(entries) < count or not self._take(first, entries):
                return False
        return True

    def _take(self, first: int, entries: NDArray[Any]) -> bool:
        """Check the next entries; tell whether they are right."""
        header = self._file.header
        physical = entries["physical_offset"].astype(np.int64)
        if first == 1 and physical[0] != header.begin_offset:
            return False
        if first + len(entries) == self._file.count and physical[-1] != header.end_offset:
            return False
        if physical[0] < self._highest or (physical[1:] < physical[:-1]).any():
            return False
        self._highest = int(physical[-1])
        hashes = entries["key_hash"].astype(np.int64)
        seconds = entries["seconds"].astype(np.int64)
        is_empty = (hashes == 0) & (physical == 0) & (seconds == 0) & (entries["previous"] == 0)
        if is_empty.any() or not self._are_linked(first, hashes, entries["previous"]):
            return False
        is_begin = np.isin(physical, self._task.begins.offsets)
        for row in np.flatnonzero(is_begin).tolist():
            self._begin_entries.append((first + row, int(physical[row]), int(seconds[row])))
        is_there = physical >= self._task.log_min
        if self._task.begins.last_offset is not None:
            is_there &= physical <= self._task.begins.last_offset
        judged = np.where(is_begin, 0, seconds)
        self._keys = self._keys.plus(
            row_sum(physical[is_there], hashes[is_there], judged[is_there])
        )
        return True

    def _are_linked(self, first: int, hashes: NDArray[np.int64], previous: NDArray[Any]) -> bool:
        """Tell whether each entry leads to the one before it in its slot."""
        slots = hashes % self._file.geometry.slots
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        numbers = (order + first).astype(np.int32)
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        expected = np.empty(len(order), np.int32)
        expected[1:] = numbers[:-1]
        expected[is_first] = self._newest[ordered[is_first]]
        is_last = np.append(is_first[1:], True)
        self._newest[ordered[is_last]] = numbers[is_last]
        return bool((previous[order] == expected).all())

    def _is_head_right(self) -> bool:
        header, geometry = self._file.header, self._file.geometry
        if header.entry_count > geometry.entries:
            return False
        if header.slots_used != np.count_nonzero(self._newest):
            return False
        if not self._task.is_closed:
            return True
        if self._file.count < geometry.entries:
            at = INDEX_HEADER_BYTES + geometry.slots * INDEX_SLOT_BYTES
            behind = self._read(at + self._file.count * INDEX_ENTRY_BYTES, 1, ENTRY)
            if len(behind) != 1 or any(behind[0].tolist()):
                return False
        slots = self._read(INDEX_HEADER_BYTES, geometry.slots, SLOT)
        return bool(np.array_equal(slots["entry"], self._newest))

    def _read(self, position: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        data = self._pool.read(self._file.path, position, count * dtype.itemsize)
        return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def are_times_right(
    reader: Reader, files: Sequence[IndexFileHead], scans: Sequence[IndexScan], log_end: int
) -> bool:
    """Tell whether headers and first entries of index files have the times of their records."""
    states: dict[str, IndexFileState] = {}
    previous: IndexFileState | None = None
    by_path = {str(view.path): view for view in reader.index_files()}
    for file in files:
        view = by_path.get(str(file.path))
        if view is None:
            return False
        state = states[str(file.path)] = IndexFileState(view)
        state.previous, previous = previous, state
        for word_ms, offset in (
            (file.header.begin_ms, file.header.begin_offset),
            (file.header.end_ms, file.header.end_offset),
        ):
            stored_ms = _store_ms(reader, offset, PhysicalOffset(log_end))
            if stored_ms is not None and stored_ms != word_ms:
                return False
    for scan in scans:
        for number, place, seconds in scan.begin_entries:
            stored_ms = _store_ms(reader, PhysicalOffset(place), PhysicalOffset(log_end))
            if stored_ms is not None and not states[scan.path].may_say(number, seconds, stored_ms):
                return False
    return True


def _store_ms(reader: Reader, offset: PhysicalOffset, log_end: PhysicalOffset) -> int | None:
    """Return when the record at an offset was stored; None if the log has it no longer."""
    if offset < reader.min_offset:
        return None
    try:
        record = reader.log.record_at(offset, log_end)
    except CorruptStoreError:
        return None
    return None if record is None else record.store_ms
