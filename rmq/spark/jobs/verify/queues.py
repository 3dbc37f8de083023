"""Reads ConsumeQueues, many entries at a time, and tells which of them are just what they must be.

All others are checked entry by entry by the rules of `rmq.store.verify.queues`, see `exact`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rmq.spark.decoding.fixed import dtype_of
from rmq.spark.jobs.verify.sums import RowSum, row_sum
from rmq.store.layout import FILLER_SIZE, QUEUE_ENTRY, QUEUE_ENTRY_BYTES, QueueEntry
from rmq.store.reader.files import FileGoneError, FilePool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rmq.spark.jobs.verify.sums import QueueSum
    from rmq.store.reader import Reader
    from rmq.store.reader.files import SegmentFile
    from rmq.store.reader.queue import QueueFiles

ENTRY: Final = dtype_of(QUEUE_ENTRY, [str(each.name) for each in QueueEntry.subcons])
CHUNK_ENTRIES: Final = 400_000
TASK_ENTRIES: Final = 5_000_000
"""How many entries one task reads at least, if there are that many."""


class QueuePart(NamedTuple):
    """Some entries of a queue that must be those of records."""

    topic: str
    queue_id: int
    first: int | None
    """The queue offset of the first record of the queue; None if it has none."""
    expected: int
    """The queue offset behind the last record of the queue."""
    start: int
    stop: int
    """Which of the queue offsets in between this part is about."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Parts of queues to read."""

    reader: Reader
    log_min: int
    parts: tuple[QueuePart, ...]


class PartEntries(NamedTuple):
    """What a part of a queue has in it."""

    topic: str
    queue_id: int
    rows: RowSum
    is_tidy: bool
    """Whether its files are as they should be, with nothing before and behind the entries."""


def plan_queues(
    reader: Reader,
    sums: Mapping[tuple[str, int], QueueSum],
    queues: Iterable[tuple[str, int]],
    entries_max: int = TASK_ENTRIES,
) -> list[QueueTask]:
    """Return the tasks that together read all queues."""
    tasks: list[QueueTask] = []
    parts: list[QueuePart] = []
    weight = 0
    log_min = int(reader.min_offset)
    for topic, queue_id in queues:
        total = sums.get((topic, queue_id))
        first, expected = (None, 0) if total is None else (total.first, total.expected)
        begin = 0 if first is None else first
        starts = range(begin, expected, entries_max) or range(begin, begin + 1)
        for start in starts:
            stop = min(start + entries_max, expected)
            parts.append(QueuePart(topic, queue_id, first, expected, start, stop))
            weight += max(stop - start, 1)
            if weight >= entries_max:
                tasks.append(QueueTask(reader, log_min, tuple(parts)))
                parts, weight = [], 0
    if parts:
        tasks.append(QueueTask(reader, log_min, tuple(parts)))
    return tasks


def read_queues(task: QueueTask) -> list[PartEntries]:
    """Read parts of queues."""
    try:
        return [_read_part(task, part) for part in task.parts]
    finally:
        task.reader.close()


def _read_part(task: QueueTask, part: QueuePart) -> PartEntries:
    files = task.reader.queue_files(part.topic, part.queue_id)
    rows = RowSum()
    try:
        for offset, entries in read_entries(files, part.start, part.stop):
            offsets = np.arange(offset, offset + len(entries))
            rows = rows.plus(row_sum(offsets, *(entries[name] for name in ENTRY.names or ())))
        is_tidy = _is_tidy(files, part, task.log_min, is_live=task.reader.state.is_live)
    except FileGoneError:
        is_tidy = False
    return PartEntries(part.topic, part.queue_id, rows, is_tidy)


def read_entries(files: QueueFiles, start: int, stop: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield what the files of a queue hold from a queue offset to another, real entries or not."""
    for segment in files.segments:
        first, end = segment.first // QUEUE_ENTRY_BYTES, segment.end // QUEUE_ENTRY_BYTES
        for offset in range(max(start, first), min(stop, end), CHUNK_ENTRIES):
            count = min(CHUNK_ENTRIES, min(stop, end) - offset)
            yield offset, _read(segment, offset - first, count)


def _read(segment: SegmentFile, place: int, count: int) -> NDArray[Any]:
    files = FilePool(1)
    try:
        data = files.read(segment.path, place * QUEUE_ENTRY_BYTES, count * QUEUE_ENTRY_BYTES)
    finally:
        files.close()
    return np.frombuffer(data, ENTRY, len(data) // QUEUE_ENTRY_BYTES)


def is_written(entries: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell entries from zeros, as `rmq.store.reader.queue.is_written` does."""
    found: NDArray[np.bool_] = (entries["physical_offset"] >= 0) & (entries["size"] > 0)
    return found


def is_gone(entries: NDArray[Any], log_min: int) -> NDArray[np.bool_]:
    """Tell entries of messages that are gone, as `rmq.store.reader.queue.is_gone` does."""
    physical = entries["physical_offset"]
    is_filler = (physical == 0) & (entries["size"] == FILLER_SIZE)
    found: NDArray[np.bool_] = is_written(entries) & ((physical < log_min) | is_filler)
    return found


def _is_tidy(files: QueueFiles, part: QueuePart, log_min: int, *, is_live: bool) -> bool:
    """Tell whether nothing is to be said of a queue but that it has these entries."""
    if part.first is None:
        return _are_files_tidy(files) and (is_live or _all_gone(files, log_min))
    if part.start == part.first:
        if not _are_files_tidy(files):
            return False
        before = read_entries(files, files.first_offset, part.first)
        if not is_live and not all(is_gone(entries, log_min).all() for _, entries in before):
            return False
    if part.stop == part.expected and not is_live:
        behind = read_entries(files, part.expected, part.expected + 1)
        return not any(is_written(entries).any() for _, entries in behind)
    return True


def _are_files_tidy(files: QueueFiles) -> bool:
    segments = files.segments
    return not files.foreign and all(
        each.size > 0
        and each.size % QUEUE_ENTRY_BYTES == 0
        and each.size == segments[0].size
        and each.first == segments[0].first + number * segments[0].size
        for number, each in enumerate(segments)
    )


def _all_gone(files: QueueFiles, log_min: int) -> bool:
    """Tell whether a queue without records has nothing but entries of messages that are gone."""
    for _, entries in read_entries(files, files.first_offset, files.file_end):
        unwritten = np.flatnonzero(~is_written(entries))
        used = entries[: unwritten[0]] if len(unwritten) else entries
        if not is_gone(used, log_min).all():
            return False
        if len(unwritten):
            return True
    return True
