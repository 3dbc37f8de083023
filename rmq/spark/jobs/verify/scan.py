"""Reads a part of a CommitLog segment, checks every record and adds up what queues must say of it.

Everything per record is done for many at once. What is found to be wrong is checked again by
`rmq.store.reader.log`, whose rules count: it says why the bytes are no sound record, and where the
next one begins. A `PartScan` is small, whatever the size of the part.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmq.errors import CorruptStoreError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import RecordHead, read_head
from rmq.model.record_layout import BLANK_MAGIC, MESSAGE_MAGIC, RECORD_BYTES_MIN, RECORD_PREFIX
from rmq.spark.decoding.bodies import stored_bodies
from rmq.spark.decoding.boundaries import find_chain
from rmq.spark.decoding.heads import Heads, UnsoundRecordError
from rmq.spark.jobs.verify.expected import Expectation
from rmq.spark.jobs.verify.sums import QUEUE_SUMS, QueueSum, RowSum
from rmq.store.reader.files import FileGoneError
from rmq.store.reader.log import offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rmq.spark.jobs.verify.expected import Rules
    from rmq.store.reader import Reader
    from rmq.store.reader.log import LogFiles

CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A part of a segment to read: records that begin from `start` on and before `stop`."""

    reader: Reader
    segment_first: int
    start: int
    stop: int
    log_stop: int
    """No record beyond this may be read: a broker may be writing it."""
    rules: Rules


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes of the log that are no sound record."""

    path: str
    reason: str
    offset: int
    hint: str | None

    @classmethod
    def of(cls, error: CorruptStoreError) -> Bad:
        return cls(error.path, error.reason, offset_of(error), error.hint)

    def error(self) -> CorruptStoreError:
        return CorruptStoreError(self.path, self.reason, offset=self.offset, hint=self.hint)


@dataclass(slots=True)
class Run:
    """Sound records that follow each other."""

    start: int
    end: int
    count: int
    first_head: RecordHead
    last_head: RecordHead
    topics: list[str] = field(default_factory=list)
    queues: NDArray[Any] = field(default_factory=lambda: np.empty(0, QUEUE_SUMS))
    """What queues must have, one row of `QUEUE_SUMS` each; topics are places in `topics`."""
    keys: RowSum = field(default_factory=RowSum)
    """What the index must have."""
    has_extra_queues: bool = False
    """Whether records may have entries in further queues."""


class Ending(enum.Enum):
    """Why a scan ended where it did."""

    STOP = "stop"
    """The part ends here, or what may be read."""
    BLANK = "blank"
    """The segment has no further record."""
    BAD = "bad"
    """What follows is no sound record, to the end of the segment."""
    BROKEN = "broken"
    """Bad bytes, with sound records behind them: the segment must be read as a whole."""
    GONE = "gone"
    """The file was deleted meanwhile."""


@dataclass(slots=True)
class PartScan:
    """What a part of a segment has in it."""

    segment_first: int
    start: int
    stop: int
    events: list[Run | Bad]
    """In the order of the log."""
    ending: Ending

    @property
    def first(self) -> int | None:
        """Where its first record begins."""
        return next((each.start for each in self.events if isinstance(each, Run)), None)

    @property
    def end(self) -> int | None:
        """Where its last record ends."""
        runs = (each.end for each in reversed(self.events) if isinstance(each, Run))
        return next(runs, None)


def scan(task: ScanTask) -> PartScan:
    """Read a part of a segment. A part that is no whole segment ends at the first bad bytes."""
    events: list[Run | Bad] = []
    try:
        ending = _scan(task, events)
    except FileGoneError:
        events, ending = [], Ending.GONE
    finally:
        task.reader.close()
    return PartScan(task.segment_first, task.start, task.stop, events, ending)


def _scan(task: ScanTask, events: list[Run | Bad]) -> Ending:
    log = task.reader.log
    segment = log.find(PhysicalOffset(task.segment_first))
    if segment is None:
        return Ending.GONE
    segment_end = PhysicalOffset(segment.first + log.segment_bytes)
    is_whole = task.start == segment.first and task.stop >= segment_end
    position: PhysicalOffset | None = PhysicalOffset(task.start)
    if task.start != segment.first:
        position = log.next_sound(PhysicalOffset(task.start), PhysicalOffset(task.stop))
    while position is not None:
        reading = RunReader(log, segment_end, task, position)
        ending = reading.read()
        if (run := reading.run()) is not None:
            events.append(run)
        if ending is not Ending.BAD:
            return ending
        # What is wrong, and where it goes on, is for the reader of logs to say.
        found: list[CorruptStoreError] = []
        stop = min(segment_end, PhysicalOffset(task.log_stop))
        following = next(
            log.heads(reading.position, stop, verify_crc=True, on_bad=found.append), None
        )
        if not found:
            raise StorageError(
                "check",
                str(segment.path),
                f"the bytes at physical offset {reading.position} changed while they were read",
                hint="check a store that no process writes to, or one that an rmq broker has open",
            )
        events.append(Bad.of(found[0]))
        position = None if following is None else following.physical_offset
        if position is not None and not is_whole:
            return Ending.BROKEN
        if position is None:
            return Ending.BAD
    return Ending.STOP


class RunReader:
    """Reads sound records from a place of a segment on, and adds up their sums."""

    def __init__(
        self, log: LogFiles, segment_end: int, task: ScanTask, start: PhysicalOffset
    ) -> None:
        self.position = start
        """Where the next record begins."""
        self._start = start
        self._log = log
        self._segment_end = segment_end
        self._limit = min(segment_end, task.log_stop)
        self._stop = min(task.stop, self._limit)
        self._expectation = Expectation(task.rules)
        self._sums: dict[tuple[int, int], QueueSum] = {}
        self._keys = RowSum()
        self._count = 0
        self._heads: list[RecordHead] = []

    def read(self) -> Ending:
        """Read to the stop, or to what is no sound record."""
        for data, starts in self._chunks():
            count = len(starts)
            while count:
                try:
                    self._take(Heads(data, starts[:count]))
                    break
                except UnsoundRecordError as bad:
                    count = bad.index
            if count < len(starts):
                return Ending.BAD
        return self._ending

    def run(self) -> Run | None:
        """Return what was read; None if that is nothing."""
        if not self._count:
            return None
        expectation = self._expectation
        queues = [
            (
                topic,
                queue_id,
                each.first,
                each.expected - 1,
                each.rows.count,
                each.rows.fingerprint,
                each.is_dense,
            )
            for (topic, queue_id), each in self._sums.items()
        ]
        return Run(
            start=self._start,
            end=self.position,
            count=self._count,
            first_head=self._heads[0],
            last_head=self._heads[-1],
            topics=expectation.topics,
            queues=np.array(queues, QUEUE_SUMS),
            keys=self._keys,
            has_extra_queues=expectation.has_extra_queues,
        )

    def _chunks(self) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
        """Yield bytes, and where records begin in them; then set `_ending`."""
        wanted = CHUNK_BYTES
        self._ending = Ending.STOP
        while self.position < self._stop:
            if self._segment_end - self.position < RECORD_PREFIX.size:
                self._ending = Ending.BLANK
                return
            left = self._limit - self.position
            if left < RECORD_PREFIX.size:
                return
            data = self._log.read(self.position, min(wanted, left))
            chain = find_chain(data)
            # Of what begins behind the stop another part takes care.
            starts = chain.starts[chain.starts < self._stop - self.position]
            if len(starts):
                yield data, starts
                wanted = CHUNK_BYTES
                continue
            missing = self._missing(data)
            if missing <= wanted:
                return
            wanted = missing

    def _missing(self, data: bytes) -> int:
        """Return how many bytes a record needs that is not wholly there; or 0, and why."""
        room = self._segment_end - self.position
        self._ending = Ending.BAD
        if len(data) < RECORD_PREFIX.size:
            return 0
        size, magic = RECORD_PREFIX.unpack_from(data)
        if magic == BLANK_MAGIC and size == room:
            self._ending = Ending.BLANK
        elif magic == MESSAGE_MAGIC and max(len(data) + 1, RECORD_BYTES_MIN) <= size <= room:
            self._ending = Ending.STOP if self.position + size > self._limit else Ending.BAD
            return int(size) if self._ending is Ending.BAD else 0
        return 0

    def _take(self, heads: Heads) -> None:
        """Check records and add them up; raise `UnsoundRecordError` for the first bad one."""
        physical = heads.integers("physical_offset")
        is_elsewhere = physical != heads.starts + self.position
        if is_elsewhere.any():
            raise heads.unsound(int(np.argmax(is_elsewhere)), "it says that it is elsewhere")
        stored_bodies(heads, verify_crc=True)
        queues, keys = self._expectation.of(heads)
        for topic, queue_id, first, last, count, fingerprint, is_dense in queues.tolist():
            total = self._sums.get((topic, queue_id))
            if total is None:
                total = self._sums[topic, queue_id] = QueueSum()
            total.add(first, last, count, fingerprint, is_dense=is_dense)
        self._keys = self._keys.plus(keys)
        if not self._count:
            self._heads = [_head_at(heads, 0)]
        self._heads[1:] = [_head_at(heads, len(heads) - 1)]
        self._count += len(heads)
        self.position += int(heads.ends[-1])


def _head_at(heads: Heads, index: int) -> RecordHead:
    start, end = int(heads.starts[index]), int(heads.ends[index])
    return read_head(heads.data, start, end, end - start, verify_crc=False)
