"""Calls that wait until a watermark reaches an offset, each with its own deadline. Pure.

Made for group commit: thousands of appends wait for their bytes to be flushed, and one flush
answers them all. A caller is known by its token, any hashable value, and gets it back exactly
once: from `advance`, `expire` or `fail_all`, unless it is taken back with `discard`.

Offsets and deadlines mostly grow from one caller to the next; each operation then costs O(1) per
caller, amortised. Any other order is right too, at O(log n). What has been answered is forgotten
early enough that memory stays in proportion to those still waiting, however far their deadlines.

It does not know the watermark: before `add`, the caller checks whether the offset is reached
already. It belongs to one thread, and time is an argument.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping


# Fewer leftovers are not worth a sweep.
_LEFTOVERS_MIN: Final = 64

T = TypeVar("T", bound="Hashable")
K = TypeVar("K", PhysicalOffset, float)


class WatermarkWaits(Generic[T]):
    """The tokens that wait, ordered by offset and by deadline."""

    __slots__ = ("_by_deadline", "_by_offset", "_sequence", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[T, int] = {}
        """Each token with the number of its `add`, as it may come back after it was discarded."""
        self._by_offset: _SortedRun[PhysicalOffset, T] = _SortedRun()
        self._by_deadline: _SortedRun[float, T] = _SortedRun()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: PhysicalOffset, deadline: float, token: T) -> None:
        """Let `token` wait until the watermark is at `offset` or beyond."""
        assert token not in self._waiting, f"{token!r} is waiting already"
        self._sequence = sequence = self._sequence + 1
        self._waiting[token] = sequence
        self._by_offset.add((offset, sequence, token))
        self._by_deadline.add((deadline, sequence, token))

    def advance(self, mark: PhysicalOffset) -> list[T]:
        """Remove and return those whose offset is reached, by offset, equal ones as added."""
        return self._take(self._by_offset.pop_through(mark))

    def expire(self, now: float) -> list[T]:
        """Remove and return those whose deadline has come, by deadline, equal ones as added."""
        return self._take(self._by_deadline.pop_through(now))

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of those that wait."""
        return self._by_deadline.first_key(self._waiting)

    def discard(self, token: T) -> None:
        """Forget a token whose caller has gone; one that is not waiting is no error."""
        if self._waiting.pop(token, None) is not None:
            self._sweep()

    def fail_all(self) -> list[T]:
        """Remove and return all tokens, as added."""
        tokens = list(self._waiting)
        self._waiting.clear()
        self._sweep()
        return tokens

    def _take(
        self, entries: list[tuple[PhysicalOffset, int, T]] | list[tuple[float, int, T]]
    ) -> list[T]:
        waiting = self._waiting
        taken: list[T] = []
        for _, sequence, token in entries:
            if waiting.get(token) == sequence:
                del waiting[token]
                taken.append(token)
        self._sweep()
        return taken

    def _sweep(self) -> None:
        """Drop the leftovers of a sorted run once they outnumber the entries that wait.

        A sweep reads less than two entries per leftover it drops, so it adds O(1) to the operation
        that made the leftover.
        """
        allowed = 2 * len(self._waiting) + _LEFTOVERS_MIN
        if len(self._by_offset) > allowed:
            self._by_offset.keep(self._waiting)
        if len(self._by_deadline) > allowed:
            self._by_deadline.keep(self._waiting)


class _SortedRun(Generic[K, T]):
    """Entries (key, sequence, token) in order of key and sequence.

    An entry that is not before the newest of the run joins it; others are strays, kept in a heap.
    Sequence numbers are unique, so a comparison never gets as far as the tokens. An entry whose
    token no longer waits under that number is a leftover.
    """

    __slots__ = ("_run", "_strays")

    def __init__(self) -> None:
        self._run: deque[tuple[K, int, T]] = deque()
        self._strays: list[tuple[K, int, T]] = []

    def __len__(self) -> int:
        return len(self._run) + len(self._strays)

    def add(self, entry: tuple[K, int, T]) -> None:
        run = self._run
        if not run or run[-1][0] <= entry[0]:
            run.append(entry)
        else:
            heapq.heappush(self._strays, entry)

    def pop_through(self, limit: K) -> list[tuple[K, int, T]]:
        """Remove and return the entries whose key is at most `limit`, in order."""
        run, strays = self._run, self._strays
        popped: list[tuple[K, int, T]] = []
        while run and run[0][0] <= limit:
            while strays and strays[0] < run[0]:
                popped.append(heapq.heappop(strays))
            popped.append(run.popleft())
        while strays and strays[0][0] <= limit:
            popped.append(heapq.heappop(strays))
        return popped

    def first_key(self, waiting: Mapping[T, int]) -> K | None:
        """Return the least key of a waiting entry, dropping leftovers on the way."""
        run, strays = self._run, self._strays
        while run and waiting.get(run[0][2]) != run[0][1]:
            run.popleft()
        while strays and waiting.get(strays[0][2]) != strays[0][1]:
            heapq.heappop(strays)
        if run and strays:
            return min(run[0][0], strays[0][0])
        if run or strays:
            return (run or strays)[0][0]
        return None

    def keep(self, waiting: Mapping[T, int]) -> None:
        """Drop the leftovers."""
        if not waiting:
            # After a flush that answered all calls there is nothing to sweep.
            self._run.clear()
            self._strays.clear()
            return
        self._run = deque(entry for entry in self._run if waiting.get(entry[2]) == entry[1])
        self._strays = [entry for entry in self._strays if waiting.get(entry[2]) == entry[1]]
        heapq.heapify(self._strays)
