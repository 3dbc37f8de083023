"""Walks the records of the log in order, for dispatch and recovery; and finds where records end.

To find the end of a record near an offset, not all of a segment is read: the ConsumeQueues name
places where records begin, and from the nearest of them the log is walked. What they say is checked
against the log, and without them the walk begins with the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import StoreUnavailableError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import BadRecordError, NeedMoreDataError, RecordHead, read_head
from rmq.model.record_layout import (
    HOST_FLAGS,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_BYTES,
    RECORD_BYTES_MIN,
    RECORD_HEADS,
    RECORD_PREFIX,
)
from rmq.store.config import MIB
from rmq.store.layout import FILLER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.store.commit_log import CommitLog
    from rmq.store.queue_table import QueueTable
    from rmq.store.segments import Segment, Segments

CHUNK_BYTES: Final = MIB


class LogScan:
    """One walk from `start` to `stop`; when it is over, `offset` and `bad` say why.

    `offset` is the end of the last sound record. `bad` is what is wrong with the bytes there, or
    None if the walk came to `stop` (or so near that the next record is not whole).

    `doubt_last` is for a log that was written in raw pieces: when the end of a piece was inside the
    properties of a record, zeros stand for the rest, and nothing but the last byte tells.
    """

    def __init__(
        self,
        segments: Segments,
        start: PhysicalOffset,
        stop: PhysicalOffset | None = None,
        *,
        verify_crc: bool,
        doubt_last: bool = False,
    ) -> None:
        self.offset = start
        self.bad: str | None = None
        self._segments = segments
        self._stop = PhysicalOffset(segments.end) if stop is None else stop
        self._verify_crc = verify_crc
        self._doubt_last = doubt_last

    def __iter__(self) -> Iterator[RecordHead]:
        """Yield the head of every record; `offset` is its end by then."""
        while self.offset < self._stop:
            segment = self._segments.find(self.offset)
            if segment is None:
                return
            stop = min(segment.end, self._stop)
            position = self.offset - segment.first
            yield from self._walk(
                segment.buffer, PhysicalOffset(segment.first), position, stop - segment.first
            )
            if self.bad is not None or self.offset < segment.end:
                return

    def _walk(
        self, buffer: memoryview, first: PhysicalOffset, position: int, stop: int
    ) -> Iterator[RecordHead]:
        size = len(buffer)
        verify_crc = self._verify_crc
        wanted = CHUNK_BYTES
        while position < stop:
            base = position
            data = bytes(buffer[base : min(base + wanted, stop)])
            limit = len(data)
            at = 0
            wanted = CHUNK_BYTES
            try:
                while at < limit:
                    head = read_head(data, at, limit, size - base - at, verify_crc)
                    if head.size == 0:
                        self._leave_blank(first, size)
                        return
                    if head.physical_offset != first + base + at:
                        self.bad = (
                            f"the record says it is at physical offset {head.physical_offset}"
                        )
                        return
                    at += head.size
                    if self._doubt_last and not data[at - 1]:
                        after = base + at
                        if not any(buffer[after : after + RECORD_PREFIX.size]):
                            self.bad = "the last record ends in a zero: the rest of it never came"
                            return
                    self.offset = first + base + at
                    yield head
            except NeedMoreDataError as exc:
                if base + at + exc.size > stop:
                    return
                wanted = max(exc.size, CHUNK_BYTES)
            except BadRecordError as exc:
                self.bad = str(exc)
                return
            position = base + at

    def _leave_blank(self, first: PhysicalOffset, size: int) -> None:
        """Go on in the next segment, if all of this one counts."""
        if first + size <= self._stop:
            self.offset = first + size


# --- where records end ---


class Boundary(NamedTuple):
    """The end of a record, or the beginning of the log."""

    offset: PhysicalOffset
    store_ms: int
    """When that record was stored; 0 if there is none, or if another one goes over the offset."""


def boundary_before(log: CommitLog, queues: QueueTable, offset: PhysicalOffset) -> Boundary:
    """Return the last boundary at or before `offset`. Blocks while the log is read."""
    if not log.min_offset <= offset <= log.readable:
        raise StoreUnavailableError(
            f"the log goes from {log.min_offset} to {log.readable}, not over {offset}"
        )
    # Behind a full last segment there is none yet.
    segment = log.segments.find(offset) or log.segments.last
    known = _last_known_record(log, queues, offset)
    start = PhysicalOffset(segment.first) if segment is not None else offset
    if known is not None:
        # Also if it lies in a segment before: then nothing but blanks, and records without an
        # entry, follow it.
        start = known
    store_ms = 0
    scan = LogScan(log.segments, start, offset, verify_crc=False)
    for head in scan:
        store_ms = head.store_ms
    return Boundary(scan.offset, store_ms)


def _last_known_record(
    log: CommitLog, queues: QueueTable, offset: PhysicalOffset
) -> PhysicalOffset | None:
    """Return the last place before `offset` where a queue says a record begins, and one does."""
    known = PhysicalOffset(-1)
    # A list of its own, because this may run in a thread while a queue comes into being.
    for queue in list(queues):
        entry = queue.entry(QueueOffset(min(queue.end_below(offset), queue.next_offset) - 1))
        if entry is not None and entry[1] != FILLER_SIZE:
            known = max(known, entry[0])
    return known if known >= 0 and stored_ms(log, known) is not None else None


def stored_ms(log: CommitLog, physical: PhysicalOffset) -> int | None:
    """Return the store time of the record that begins at an offset; None if none does."""
    view = log.view_from(physical)
    if view is None or len(view) < RECORD_HEADS[0].size:
        return None
    fields = RECORD_HEADS[0].unpack_from(view)
    if fields[1] != MESSAGE_MAGIC or fields[6] != physical:
        return None
    head = RECORD_HEADS[fields[7] & HOST_FLAGS]
    if len(view) < head.size:
        return None
    store_ms: int = head.unpack_from(view)[10]
    return store_ms


def next_sound_record(log: CommitLog, offset: PhysicalOffset) -> RecordHead | None:
    """Return the first record at or behind `offset` that is sound and says it lies there."""
    for segment in log.segments.from_offset(offset):
        buffer = segment.buffer
        position = max(offset - segment.first, 0)
        if segment.file.is_clear_from(position):
            continue
        while position < segment.size:
            data = bytes(buffer[position : position + CHUNK_BYTES])
            at = data.find(MESSAGE_MAGIC_BYTES)
            while at >= 0:
                head = sound_head(segment, position + at - RECORD_PREFIX.size + 4)
                if head is not None:
                    return head
                at = data.find(MESSAGE_MAGIC_BYTES, at + 1)
            # The magic may lie across two chunks.
            position += max(len(data) - len(MESSAGE_MAGIC_BYTES) + 1, 1)
    return None


def sound_head(segment: Segment, position: int) -> RecordHead | None:
    """Return the head of the record at a position of a segment, None if there is no sound one."""
    if position < 0:
        return None
    room = segment.size - position
    size = int.from_bytes(segment.buffer[position : position + 4], signed=True)
    if not RECORD_BYTES_MIN <= size <= room:
        return None
    data = bytes(segment.buffer[position : position + size])
    try:
        head = read_head(data, 0, size, room, True)
    except (BadRecordError, NeedMoreDataError):
        return None
    return head if head.physical_offset == segment.first + position else None


def first_store_ms(segment: Segment) -> int:
    """Return the store time of a segment's first record, 0 if it does not begin with one."""
    fields = RECORD_HEADS[0].unpack_from(segment.buffer)
    if fields[1] != MESSAGE_MAGIC:
        return 0
    store_ms: int = RECORD_HEADS[fields[7] & HOST_FLAGS].unpack_from(segment.buffer)[10]
    return store_ms
