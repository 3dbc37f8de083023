"""Checks queues and the index entry by entry, where reading many at once did not find all well.

The rules are those of `rmq.store.verify.queues` and `rmq.store.verify.index`, run here on parts of
a store: a queue does not depend on other queues, and the index depends on the log alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import decode_text
from rmq.model.record import NeedMoreDataError, read_head
from rmq.spark.decoding.boundaries import find_chain
from rmq.spark.decoding.heads import Heads
from rmq.store.reader import Reader
from rmq.store.verify import known_topics
from rmq.store.verify.finding import Severity
from rmq.store.verify.index import IndexCheck
from rmq.store.verify.queues import EXTRA_QUEUES, QueuesCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rmq.model.record import RecordHead
    from rmq.store.reader.log import LogFiles
    from rmq.store.verify.finding import DamagedRanges, Finding

    Queue = tuple[str, int]

FINDINGS_MAX: Final = 10_000
"""How many findings about one queue, or about the index, are listed; all are counted."""

_CHUNK_BYTES: Final = 8 * 1024 * 1024
_HEAD_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Found:
    """What was found about a part of a store."""

    findings: tuple[Finding, ...] = ()
    errors: int = 0
    notes: int = 0
    entries: int = 0
    """How many entries were checked."""

    @classmethod
    def of(cls, findings: Iterable[Finding], entries: int) -> Found:
        """Count findings and keep the first ones; errors before notes."""
        kept: dict[Severity, list[Finding]] = {severity: [] for severity in Severity}
        counts = dict.fromkeys(Severity, 0)
        for finding in findings:
            counts[finding.severity] += 1
            if len(kept[finding.severity]) < FINDINGS_MAX:
                kept[finding.severity].append(finding)
        listed = (kept[Severity.ERROR] + kept[Severity.NOTE])[:FINDINGS_MAX]
        return cls(tuple(listed), counts[Severity.ERROR], counts[Severity.NOTE], entries)


# --- queues -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetsTask:
    """A run of sound records in which those of some queues are searched."""

    reader: Reader
    start: int
    end: int
    queues: frozenset[Queue]


def offsets_of_queues(task: OffsetsTask) -> list[tuple[Queue, NDArray[np.int64]]]:
    """Return where the records of queues are.

    Records that may have entries in further queues are among those of every queue.
    """
    found: dict[Queue, list[NDArray[np.int64]]] = {queue: [] for queue in task.queues}
    try:
        for position, heads in _runs_of_heads(
            task.reader.log, PhysicalOffset(task.start), PhysicalOffset(task.end)
        ):
            for queue, rows in _rows_of(heads, task.queues).items():
                found[queue].append(heads.starts[rows] + position)
    finally:
        task.reader.close()
    return [(queue, np.concatenate(parts)) for queue, parts in found.items() if parts]


def _runs_of_heads(
    log: LogFiles, start: PhysicalOffset, end: PhysicalOffset
) -> Iterator[tuple[int, Heads]]:
    position, wanted = start, _CHUNK_BYTES
    while position < end:
        data = log.read(position, min(wanted, end - position))
        chain = find_chain(data)
        if len(chain.starts) == 0:
            if not data or wanted >= end - position:
                return  # deleted meanwhile
            wanted = end - position
            continue
        yield position, Heads(data, chain.starts)
        position, wanted = position + chain.stop, _CHUNK_BYTES


def _rows_of(heads: Heads, queues: frozenset[Queue]) -> dict[Queue, NDArray[np.int64]]:
    topics = [decode_text(name) for name in heads.topics.dictionary.to_pylist()]
    places = np.asarray(heads.topics.indices)
    queue_ids = heads.integers("queue_id")
    extra = np.empty(0, np.int64)
    if EXTRA_QUEUES in heads.data:
        is_extra = [
            EXTRA_QUEUES in heads.data[start:end]
            for start, end in zip(
                heads.properties_starts.tolist(), heads.ends.tolist(), strict=True
            )
        ]
        extra = np.flatnonzero(is_extra)
    rows: dict[Queue, NDArray[np.int64]] = {}
    for topic, queue_id in queues:
        # Bytes that are not UTF-8 may read as the same name.
        named = [place for place, name in enumerate(topics) if name == topic]
        own = np.flatnonzero(np.isin(places, named) & (queue_ids == queue_id))
        both = np.union1d(own, extra) if len(extra) else own
        if len(both):
            rows[topic, queue_id] = both
    return rows


@dataclass(frozen=True, slots=True)
class QueueRules:
    """What a check of queues needs to know besides the records."""

    reader: Reader
    log_end: int
    damaged: DamagedRanges
    delay_levels_ms: tuple[int, ...]


def check_queue(rules: QueueRules, queue: Queue, offsets: Iterable[NDArray[np.int64]]) -> Found:
    """Check one queue; `offsets` are those of its records."""
    reader = _OneQueueReader(rules.reader, queue)
    check = QueuesCheck(
        reader, rules.damaged, rules.delay_levels_ms, known_topics(rules.reader.root)
    )
    folder = reader.queue_files(*queue).directory

    def findings() -> Iterator[Finding]:
        parts = [*offsets]
        for offset in np.unique(np.concatenate(parts)).tolist() if parts else ():
            if offset < rules.log_end:
                check.take(head_at(reader.log, offset))
                if check.findings:
                    yield from check.findings.take()
        check.finish(PhysicalOffset(rules.log_end))
        yield from check.findings.take()

    try:
        own = (each for each in findings() if folder in (Path(each.path), Path(each.path).parent))
        return Found.of(own, 0)
    finally:
        reader.close()


class _OneQueueReader(Reader):
    """A store in which only one queue is seen."""

    def __init__(self, reader: Reader, queue: Queue) -> None:
        super().__init__(
            reader.root,
            commit_log_paths=reader.log.directories,
            segment_bytes=reader.segment_bytes,
        )
        self._queue_seen = queue

    def topics(self) -> list[str]:
        return [self._queue_seen[0]]

    def queue_ids(self, topic: str) -> list[int]:
        directory = self.queue_files(*self._queue_seen).directory
        return [self._queue_seen[1]] if directory.is_dir() else []


def head_at(log: LogFiles, offset: PhysicalOffset) -> RecordHead:
    """Return the head of a record that is known to be sound."""
    wanted = _HEAD_BYTES
    while True:
        data = log.read(offset, wanted)
        try:
            return read_head(data, 0, len(data), 2**31, verify_crc=False)
        except NeedMoreDataError as need:
            if need.size <= wanted:
                raise
            wanted = need.size


# --- the index --------------------------------------------------------------------------------


def check_index(
    reader: Reader, log_end: int, damaged: DamagedRanges, runs: Iterable[tuple[int, int]]
) -> Found:
    """Check the whole index against the log, whose sound records are in `runs`."""
    check = IndexCheck(reader, damaged)

    def findings() -> Iterator[Finding]:
        for start, end in runs:
            for head in reader.log.heads(PhysicalOffset(start), PhysicalOffset(end)):
                check.take(head)
                if check.findings:
                    yield from check.findings.take()
        check.finish(PhysicalOffset(log_end))
        yield from check.findings.take()

    try:
        found = Found.of(findings(), 0)
    finally:
        reader.close()
    return Found(found.findings, found.errors, found.notes, check.entries_checked)
