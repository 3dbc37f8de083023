"""The CommitLog of a store directory, for reading only.

`LogFiles` knows the segments and how records follow each other in them. Where the log ends is an
argument: see `Reader.end_offset`. What lies below the end and is not a sound record is a
`CorruptStoreError` with path and offset, or is reported and skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import (
    BadRecordError,
    NeedMoreDataError,
    RecordHead,
    StoredRecord,
    decode_record,
    read_head,
)
from rmq.model.record_layout import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_BYTES,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
)
from rmq.store.reader.files import FileGoneError, FilePool, SegmentFile, list_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    OnBad = Callable[[CorruptStoreError], None]
    _Take = Callable[[bytes, int, int, int, bool], "_Item | None"]

CHUNK_BYTES: Final = 1024 * 1024
_FIRST_READ_BYTES: Final = 4096
_MAGIC_AT: Final = 4
_read_prefix = RECORD_PREFIX.unpack_from


class _Placed(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def physical_offset(self) -> PhysicalOffset: ...


_Item = TypeVar("_Item", bound=_Placed)


class LogFiles:
    """The segments of a CommitLog."""

    def __init__(
        self, files: FilePool, directories: Sequence[Path], segment_bytes: int | None = None
    ) -> None:
        self.directories = tuple(directories)
        self.segments: list[SegmentFile] = []
        self.foreign: list[Path] = []
        """Files in the directories that are not segments."""
        self.segment_bytes = 0
        self._files = files
        self._segment_bytes_given = segment_bytes
        self.refresh()

    def refresh(self) -> None:
        """Read the directories again."""
        self.segments, self.foreign = list_segments(self.directories)
        self.segment_bytes = self._segment_bytes_given or _segment_bytes(self.segments)

    @property
    def min_offset(self) -> PhysicalOffset:
        """The offset of the first byte there is, 0 when there is none."""
        return PhysicalOffset(self.segments[0].first if self.segments else 0)

    @property
    def file_end(self) -> PhysicalOffset:
        """The offset behind the last segment."""
        segments = self.segments
        return PhysicalOffset(segments[-1].first + self.segment_bytes if segments else 0)

    def find(self, offset: PhysicalOffset) -> SegmentFile | None:
        """Return the segment that holds the byte at `offset`."""
        index = self._index_of(offset)
        if index < 0 or offset >= self.segments[index].first + self.segment_bytes:
            return None
        return self.segments[index]

    def _index_of(self, offset: PhysicalOffset) -> int:
        """Return the index of the last segment that begins at `offset` or before, -1 if none."""
        segments = self.segments
        if segments and self.segment_bytes:
            # Where no segment is missing, this is it.
            index = (offset - segments[0].first) // self.segment_bytes
            if 0 <= index < len(segments):
                first = segments[index].first
                if first <= offset < first + self.segment_bytes:
                    return index
        return bisect_right(segments, int(offset), key=lambda segment: segment.first) - 1

    # --- records one after the other -------------------------------------------------------

    def heads(
        self,
        start: PhysicalOffset,
        stop: PhysicalOffset,
        *,
        verify_crc: bool = False,
        on_bad: OnBad | None = None,
    ) -> Iterator[RecordHead]:
        """Yield the heads of the records from `start` to `stop`; see `records`."""
        return self._walk(start, stop, read_head, verify_crc, on_bad)

    def records(
        self, start: PhysicalOffset, stop: PhysicalOffset, *, on_bad: OnBad | None = None
    ) -> Iterator[StoredRecord]:
        """Yield the records that begin at `start` or behind it and end at `stop` or before.

        `start` must be where a record begins. Bytes that are no sound record raise
        `CorruptStoreError`; with `on_bad` it is handed to that instead, and the walk goes on with
        the next sound record. Segments that are deleted before their turn are skipped.
        """
        return self._walk(start, stop, _take_record, True, on_bad)

    def _walk(
        self,
        start: PhysicalOffset,
        stop: PhysicalOffset,
        take: _Take[_Item],
        verify_crc: bool,
        on_bad: OnBad | None,
    ) -> Iterator[_Item]:
        offset = start
        while (segment := self._segment_from(offset)) is not None and segment.first < stop:
            try:
                if segment.first > offset > self.min_offset:
                    raise CorruptStoreError(
                        str(segment.path),
                        f"the segments before this one, from {offset} on, are missing",
                        offset=offset,
                    )
                offset = max(offset, PhysicalOffset(segment.first))
                yield from self._walk_segment(segment, offset, stop, take, verify_crc)
                offset = PhysicalOffset(segment.first + self.segment_bytes)
            except FileGoneError:
                self.refresh()
            except CorruptStoreError as bad:
                if on_bad is None:
                    raise
                on_bad(bad)
                following = self.next_sound(offset_of(bad) + 1, stop)
                if following is None:
                    return
                offset = following

    def _segment_from(self, offset: PhysicalOffset) -> SegmentFile | None:
        """Return the segment that holds `offset`, or else the next one there is."""
        index = self._index_of(offset)
        if index >= 0 and offset < self.segments[index].first + self.segment_bytes:
            return self.segments[index]
        return self.segments[index + 1] if index + 1 < len(self.segments) else None

    def _walk_segment(
        self,
        segment: SegmentFile,
        start: PhysicalOffset,
        stop: PhysicalOffset,
        take: _Take[_Item],
        verify_crc: bool,
    ) -> Iterator[_Item]:
        """Yield the records of one segment up to its blank."""
        stop_position = min(stop - segment.first, self.segment_bytes)
        base = start - segment.first
        data = b""
        position = limit = 0
        wanted = CHUNK_BYTES
        while base + position < stop_position:
            room = self.segment_bytes - base - position
            if room < RECORD_PREFIX.size:
                return
            try:
                item = take(data, position, limit, room, verify_crc)
            except NeedMoreDataError as need:
                wanted = max(need.size, CHUNK_BYTES)
                if base + position + need.size > stop_position:
                    return  # the record ends behind what may be read
                base += position
                data = self._files.read(segment.path, base, min(wanted, stop_position - base))
                position, limit = 0, len(data)
                if limit < need.size:
                    reason = f"the file ends after {segment.size} bytes, a segment has"
                    raise self._bad(segment, base, f"{reason} {self.segment_bytes}") from None
                continue
            except BadRecordError as bad:
                raise self._bad(segment, base + position, str(bad)) from bad
            if item is None or item.size == 0:
                length, _ = _read_prefix(data, position)
                if length != room:
                    reason = f"a blank of {length} bytes where the segment has {room} left"
                    raise self._bad(segment, base + position, reason)
                return
            if item.physical_offset != segment.first + base + position:
                reason = f"the record says it is at physical offset {item.physical_offset}"
                raise self._bad(segment, base + position, reason)
            yield item
            position += item.size

    def _bad(self, segment: SegmentFile, position: int, reason: str) -> CorruptStoreError:
        return CorruptStoreError(
            str(segment.path),
            reason,
            offset=segment.first + position,
            hint="rmq store verify lists all damage; a sound copy may be on a slave",
        )

    # --- single records --------------------------------------------------------------------

    def read(self, offset: PhysicalOffset, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on, no more than its segment has."""
        segment = self.find(offset)
        return b"" if segment is None else self._read_in(segment, offset, size)

    def _read_in(self, segment: SegmentFile, offset: PhysicalOffset, size: int) -> bytes:
        position = offset - segment.first
        try:
            return self._files.read(
                segment.path, position, min(size, self.segment_bytes - position)
            )
        except FileGoneError:
            self.refresh()
            return b""

    def record_at(
        self, offset: PhysicalOffset, stop: PhysicalOffset, size: int | None = None
    ) -> StoredRecord | None:
        """Return the record that begins at `offset`; None if the log has none there below `stop`.

        `size` is how long it should be, if that is known. Raises `CorruptStoreError` if no sound
        record begins there.
        """
        segment = self.find(offset) if offset < stop else None
        if segment is None:
            return None
        data = self._read_in(segment, offset, size or _FIRST_READ_BYTES)
        if not data:
            return None
        try:
            record = self._decode_at(segment, offset, data)
        except BadRecordError as bad:
            raise self._bad(segment, offset - segment.first, str(bad)) from bad
        return record if offset + record.size <= stop else None

    def _decode_at(self, segment: SegmentFile, offset: PhysicalOffset, data: bytes) -> StoredRecord:
        room = segment.first + self.segment_bytes - offset
        while True:
            try:
                record = _take_record(data, 0, len(data), room, True)
                break
            except NeedMoreDataError as need:
                # Twice at most: for the prefix, if very little was asked for, and for the record.
                data = self._read_in(segment, offset, need.size)
                if len(data) < need.size:
                    raise BadRecordError(f"the file ends after {segment.size} bytes") from None
        if record is None:
            raise BadRecordError("no record begins here: the rest of the segment is blank")
        if record.physical_offset != offset:
            reason = f"the record says it is at physical offset {record.physical_offset}"
            raise BadRecordError(reason)
        return record

    # --- finding the way back --------------------------------------------------------------

    def next_sound(self, offset: PhysicalOffset, stop: PhysicalOffset) -> PhysicalOffset | None:
        """Return where the first sound record at or behind `offset` begins, below `stop`.

        It is searched byte by byte: the magic, the place the record says it has, its lengths and
        its CRC must all be right.
        """
        while (segment := self._segment_from(offset)) is not None and segment.first < stop:
            offset = max(offset, PhysicalOffset(segment.first))
            with suppress(FileGoneError):
                found = self._next_sound_in(segment, offset - segment.first, stop - segment.first)
                if found is not None:
                    return found
            offset = PhysicalOffset(segment.first + self.segment_bytes)
        return None

    def _next_sound_in(
        self, segment: SegmentFile, position: int, stop: int
    ) -> PhysicalOffset | None:
        while position < min(stop, segment.size):
            start = self._files.next_data(segment.path, position + _MAGIC_AT)
            if start is None:
                return None
            position = max(position, start - _MAGIC_AT)
            data = self._files.read(segment.path, position, CHUNK_BYTES)
            # Files are made with their full size. That zeros do not have one byte is found out a
            # hundred times as fast as that they do not have four.
            at = data.find(MESSAGE_MAGIC_BYTES, _MAGIC_AT) if MESSAGE_MAGIC_BYTES[0] in data else -1
            while at >= 0:
                offset = PhysicalOffset(segment.first + position + at - _MAGIC_AT)
                if offset < segment.first + stop and self._is_sound(offset):
                    return offset
                at = data.find(MESSAGE_MAGIC_BYTES, at + 1)
            if len(data) < CHUNK_BYTES:
                return None
            # A magic may begin in this chunk and end in the next.
            position += len(data) - _MAGIC_AT - len(MESSAGE_MAGIC_BYTES) + 1
        return None

    def _is_sound(self, offset: PhysicalOffset) -> bool:
        try:
            return self.record_at(offset, self.file_end) is not None
        except CorruptStoreError:
            return False

    def last_begun(self) -> int:
        """Return the index of the last segment into which something was written, -1 if none."""
        index = len(self.segments) - 1
        while index >= 0:
            start = self._files.read(self.segments[index].path, 0, RECORD_PREFIX.size)
            if start.strip(b"\0"):
                return index
            index -= 1
        return index


def _take_record(
    data: bytes, position: int, limit: int, room: int, verify_crc: bool
) -> StoredRecord | None:
    """Decode the record at `position`; None for a blank. Otherwise as `read_head`."""
    left = limit - position
    if left < RECORD_PREFIX.size:
        raise NeedMoreDataError(RECORD_PREFIX.size)
    size, magic = _read_prefix(data, position)
    if magic == BLANK_MAGIC:
        return None
    if magic != MESSAGE_MAGIC or size < RECORD_BYTES_MIN or size > room:
        read_head(data, position, limit, room, verify_crc)  # which says what is wrong
    if size > left:
        raise NeedMoreDataError(size)
    return decode_record(data[position : position + size])


def offset_of(bad: CorruptStoreError) -> PhysicalOffset:
    """Return the physical offset of damage to the log; that always has one."""
    assert bad.offset is not None, bad
    return PhysicalOffset(bad.offset)


def _segment_bytes(segments: list[SegmentFile]) -> int:
    """Return the size of a segment: the one most files have, of two equally frequent the larger.

    One file may have been cut short by a copy or a crash.
    """
    sizes = Counter(segment.size for segment in segments)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)
