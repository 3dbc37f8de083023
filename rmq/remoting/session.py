"""Requests in flight on a connection: opaque numbers, pending calls and their deadlines, and since
when received bytes have been waiting. Pure.

Both ends of a connection may send requests, each with its own opaque numbers, so every connection
has its own `Calls`. Deadlines are kept once for all connections of an endpoint (`Deadlines`), so
that one timer serves them. Time is an argument everywhere.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPAQUE_MAX: Final = 2**31 - 1
_COMPACT_ABOVE: Final = 64
_NOTES_MAX: Final = 64
"""Notes of one connection: the kernel holds some 6 MB, and a read takes up to 64 KiB."""


class Timed(Protocol):
    """Something with a deadline that may be complete before it."""

    @property
    def is_complete(self) -> bool: ...


C = TypeVar("C")
T = TypeVar("T", bound=Timed)


class Calls(Generic[C]):
    """The calls of one connection that wait for an answer, by opaque number."""

    __slots__ = ("_next_opaque", "by_opaque")

    def __init__(self, *, first_opaque: int = 0) -> None:
        self.by_opaque: dict[int, C] = {}
        """The calls in flight; read-only."""
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self.by_opaque)

    def __iter__(self) -> Iterator[C]:
        return iter(self.by_opaque.values())

    def next_opaque(self) -> int:
        """Return a number that no call in flight has. It is a signed 32-bit number and wraps."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = opaque + 1 if opaque < _OPAQUE_MAX else -_OPAQUE_MAX - 1
            if opaque not in self.by_opaque:
                return opaque

    def add(self, opaque: int, call: C) -> None:
        assert opaque not in self.by_opaque, f"opaque {opaque} is under way already"
        self.by_opaque[opaque] = call

    def pop(self, opaque: int) -> C | None:
        """Remove and return the call that waits for `opaque`, if there is one."""
        return self.by_opaque.pop(opaque, None)

    def drain(self) -> list[C]:
        """Remove and return every call."""
        calls = list(self.by_opaque.values())
        self.by_opaque.clear()
        return calls


class Deadlines(Generic[T]):
    """A heap of deadlines. Complete items are skipped, and removed when they are the majority."""

    __slots__ = ("_heap", "_live_hint", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._sequence = 0
        self._live_hint = _COMPACT_ABOVE

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, item: T) -> bool:
        """Add an item; return whether it is now the earliest."""
        self._sequence += 1
        if len(self._heap) > 2 * self._live_hint:
            self._compact()
        heapq.heappush(self._heap, (deadline, self._sequence, item))
        return self._heap[0][2] is item

    def next_at(self) -> float | None:
        """Return the earliest deadline of an incomplete item."""
        heap = self._heap
        while heap and heap[0][2].is_complete:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def expire(self, now: float) -> list[T]:
        """Remove and return the incomplete items whose deadline has passed."""
        expired: list[T] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            item = heapq.heappop(heap)[2]
            if not item.is_complete:
                expired.append(item)
        return expired

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_complete]
        heapq.heapify(self._heap)
        self._live_hint = max(_COMPACT_ABOVE, len(self._heap))


@final
class Arrivals:
    """Since when the bytes of one connection have been waiting to be read.

    A flood waits in the kernel: what is read now may have been readable for seconds. The kernel
    does not say since when, but it says how many bytes are waiting. So after a read that left bytes
    behind, it is noted how far the stream had come by then: what lies before that had arrived.
    """

    __slots__ = ("_notes", "_read")

    def __init__(self) -> None:
        self._read = 0
        # How far the stream had come, and when that was seen.
        self._notes: deque[tuple[int, float]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether bytes are known to wait."""
        return bool(self._notes)

    def read(self, count: int, unread: int, now: float) -> float:
        """Take in that `count` bytes were read and `unread` ones were left behind.

        Return since when the first of those that were read had been there, at the latest.
        """
        since = self._notes[0][1] if self._notes else now
        self._read += count
        while self._notes and self._notes[0][0] <= self._read:
            self._notes.popleft()
        end = self._read + unread
        if unread and (not self._notes or self._notes[-1][0] < end):
            if len(self._notes) == _NOTES_MAX:
                # The later time is the safe one: no request is refused for a wait that was shorter.
                self._notes.pop()
            self._notes.append((end, now))
        return since

    def forget(self) -> None:
        """Nothing was read on purpose for a while: that wait does not count."""
        self._notes.clear()
