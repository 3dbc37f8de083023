"""Walks the records of the log in order, for dispatch and recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.record import BadRecordError, NeedMoreDataError, RecordHead, read_head
from rmq.model.record_layout import RECORD_PREFIX
from rmq.store.config import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.store.segments import Segments

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
        start: int,
        stop: int | None = None,
        *,
        verify_crc: bool,
        doubt_last: bool = False,
    ) -> None:
        self.offset = start
        self.bad: str | None = None
        self._segments = segments
        self._stop = segments.end if stop is None else stop
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
            yield from self._walk(segment.buffer, segment.first, position, stop - segment.first)
            if self.bad is not None or self.offset < segment.end:
                return

    def _walk(
        self, buffer: memoryview, first: int, position: int, stop: int
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

    def _leave_blank(self, first: int, size: int) -> None:
        """Go on in the next segment, if all of this one counts."""
        if first + size <= self._stop:
            self.offset = first + size
