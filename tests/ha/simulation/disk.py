"""A log on a virtual disk: what was written, and what of it would outlive a power cut.

Records are small and stand for messages: size, magic number, a number that makes each unique, and
bytes drawn from that. They never cross the end of a segment; a blank record fills what is left.
The first eight bytes of records of one size are the same, as they are in a real log.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final

from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    import random

SEGMENT_BYTES: Final = 512
PAGE_BYTES: Final = 32
"""What a power cut keeps or loses as a whole."""
MESSAGE_MAGIC: Final = 0xDAA320A7
BLANK_MAGIC: Final = 0xCBD43194
_HEADER: Final = struct.Struct(">IIQ")
_PREFIX: Final = struct.Struct(">II")


def record_of(number: int, size: int) -> bytes:
    """Return the bytes of one message."""
    filler = (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")
    body = (filler * (size // 8 + 1))[: size - _HEADER.size]
    return _HEADER.pack(size, MESSAGE_MAGIC, number) + body


class SimLog:
    """A `LogView` over bytes in memory."""

    def __init__(self) -> None:
        self.base = PhysicalOffset(0)
        """The offset of the first byte of `data`; the log may begin later."""
        self.begin = PhysicalOffset(0)
        self.end = PhysicalOffset(0)
        """Always `base` and the length of `data`; asked for far more often than changed."""
        self.data = bytearray()
        """Replaced, not changed, when the log is cut: links of the past may still look at it."""
        self.flushed = PhysicalOffset(0)
        self.segment_bytes = SEGMENT_BYTES
        self._boundary = 0

    def digest(self, start: int, stop: int) -> bytes:
        return hashlib.sha256(self.read(start, stop)).digest()

    def read(self, start: int, stop: int) -> bytes:
        assert self.base <= start <= stop <= self.end, (self.base, start, stop, self.end)
        base = self.base
        return bytes(self.data[start - base : stop - base])

    def holds(self, start: int, content: bytes) -> bool:
        """Tell whether these bytes are there, at this place, or were until they expired."""
        stop = start + len(content)
        return start >= self.base and stop <= self.end and self.read(start, stop) == content

    # --- growing -------------------------------------------------------------------------------

    def append_record(self, number: int, size: int) -> tuple[int, int]:
        """Append a message as a master does; return where it begins and ends."""
        left = SEGMENT_BYTES - self.end % SEGMENT_BYTES
        if size + _PREFIX.size > left:
            self.data += _PREFIX.pack(left, BLANK_MAGIC) + bytes(left - _PREFIX.size)
        start = self.base + len(self.data)
        self.data += record_of(number, size)
        self.end = self.base + len(self.data)
        return start, self.end

    def append(self, content: bytes | memoryview) -> None:
        self.data += content
        self.end = self.base + len(self.data)

    def flush(self) -> None:
        self.flushed = self.end

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin elsewhere."""
        assert not self.data, f"it ends at {self.end}"
        assert not offset % SEGMENT_BYTES, f"no segment begins at {offset}"
        self.base = self.begin = self.end = self.flushed = PhysicalOffset(offset)
        self._boundary = offset

    # --- losing --------------------------------------------------------------------------------

    def record_boundary(self) -> int:
        """Return where the last whole record ends."""
        position, end = self._boundary, self.end
        while position + _PREFIX.size <= end:
            size, _ = _PREFIX.unpack_from(self.data, position - self.base)
            if size < _PREFIX.size or position + size > end:
                break
            position += size
        self._boundary = position
        return position

    def cut(self, end: int) -> None:
        self.data = bytearray(memoryview(self.data)[: end - self.base])
        self.end = self.base + len(self.data)
        self.flushed = min(self.flushed, PhysicalOffset(end))
        self._boundary = min(self._boundary, self.base)

    def clear(self) -> None:
        self.data = bytearray()
        self.base = self.begin = self.end = self.flushed = PhysicalOffset(0)
        self._boundary = 0

    def kill(self) -> None:
        """The process ends; at its start the store drops a record that is not whole."""
        self.cut(self.record_boundary())

    def lose_power(self, chance: random.Random) -> None:
        """Keep what was flushed, and of the rest what a disk happens to have written."""
        kept = self.flushed
        while kept < self.end and chance.random() < 0.7:
            kept = min(self.end, kept + PAGE_BYTES)
        # What lies behind the first page that is missing is there or not: no record is whole.
        self.cut(kept)
        self.cut(self.record_boundary())
        self.flushed = self.end

    def expire(self, segments: int) -> None:
        """Delete the oldest segments, never the last, nor one that is not on disk yet."""
        last = max(self.begin, max(self.flushed - 1, 0) // SEGMENT_BYTES * SEGMENT_BYTES)
        self.begin = PhysicalOffset(min(last, self.begin + segments * SEGMENT_BYTES))


def common_end(log: SimLog, other: SimLog) -> int:
    """Return up to where two logs are the same, as far as both reach back."""
    start = max(log.base, other.base)
    stop = min(log.end, other.end)
    if stop <= start:
        return start
    mine, theirs = log.read(start, stop), other.read(start, stop)
    if mine == theirs:
        return stop
    return start + next(i for i in range(stop - start) if mine[i] != theirs[i])
