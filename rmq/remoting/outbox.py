"""The unwritten bytes of a connection. Pure.

Buffers are kept as they came, because large ones are written without copying. Responses and
requests are counted separately: a peer that does not read its responses is not sent more of them,
which our own unwritten requests must not affect.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Buffer = bytes | memoryview
    Content = Buffer | tuple[memoryview, ...]

GATHER_BUFFERS_MAX: Final = 512
"""At most this many buffers are given to one call of the system."""
_JOIN_BELOW_BYTES: Final = 128 * 1024
_PIECE_BYTES: Final = 64 * 1024


def as_one(buffers: Sequence[Buffer]) -> Buffer | None:
    """Return the buffers as one if they are so small that one copy is cheaper than a long list of
    pieces for the kernel; else None.
    """
    if len(buffers) == 1:
        return buffers[0]
    if sum(map(len, buffers)) <= _JOIN_BELOW_BYTES:
        return b"".join(buffers)
    return None


def first_piece(buffers: Iterable[Buffer]) -> bytes:
    """Return the first bytes, in a piece so small that a slow peer shows that it makes progress."""
    pieces: list[Buffer] = []
    size = 0
    for buffer in buffers:
        piece = memoryview(buffer)[: _PIECE_BYTES - size]
        pieces.append(piece)
        size += len(piece)
        if size == _PIECE_BYTES:
            break
    return b"".join(pieces)


@final
class Outbox:
    """The unwritten bytes of one connection, in order."""

    __slots__ = ("_oneway_ends", "_queued_bytes", "answer_bytes", "buffers", "size")

    def __init__(self) -> None:
        self.buffers: deque[Buffer] = deque()
        self.size = 0
        """Unwritten bytes."""
        self.answer_bytes = 0
        """At most how many of them are answers."""
        self._queued_bytes = 0
        # Where in the stream of all bytes ever queued each unwritten one-way request ends.
        self._oneway_ends: deque[int] | None = None

    @property
    def oneways(self) -> int:
        """How many one-way requests are not wholly written."""
        return len(self._oneway_ends) if self._oneway_ends else 0

    def own_bytes(self) -> int:
        """Return how many of them take memory of this process; views of files do not."""
        return sum(len(buffer) for buffer in self.buffers if isinstance(buffer, bytes))

    def add_answer(self, frame: bytes, body: Content | None = None) -> None:
        size = len(frame)
        self.buffers.append(frame)
        if isinstance(body, tuple):
            self.buffers.extend(body)
            size += sum(map(len, body))
        elif body is not None and (length := len(body)):
            self.buffers.append(body)
            size += length
        self.size += size
        self._queued_bytes += size
        self.answer_bytes += size

    def add_request(self, frame: bytes, body: Buffer | None = None) -> None:
        size = len(frame)
        self.buffers.append(frame)
        if body:
            self.buffers.append(body)
            size += len(body)
        self.size += size
        self._queued_bytes += size

    def add_oneway(self, frame: bytes, body: Buffer | None = None) -> None:
        self.add_request(frame, body)
        if self._oneway_ends is None:
            self._oneway_ends = deque()
        self._oneway_ends.append(self._queued_bytes)

    def sent(self, count: int) -> None:
        """Forget the first `count` bytes: they are written."""
        if count == self.size:
            self.size = self.answer_bytes = 0
            self.buffers.clear()
            if self._oneway_ends:
                self._oneway_ends.clear()
            return
        assert 0 <= count < self.size, f"{count} bytes written of {self.size}"
        self.size -= count
        if self.answer_bytes > self.size:
            self.answer_bytes = self.size
        ends = self._oneway_ends
        if ends:
            written = self._queued_bytes - self.size
            while ends and ends[0] <= written:
                ends.popleft()
        buffers = self.buffers
        while count:
            first = buffers[0]
            if len(first) <= count:
                count -= len(first)
                buffers.popleft()
            else:
                buffers[0] = memoryview(first)[count:]
                return

    def clear(self) -> None:
        self.sent(self.size)
