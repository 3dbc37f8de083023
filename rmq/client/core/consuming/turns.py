"""Whose turn it is: calls of a listener dealt out over the queues of a consumer. Pure.

Queues with work take turns, one call each. Calls under way are bounded, and a part of that bound is
kept for queues that have none: a queue whose messages make the listener hang
cannot take it all, so the other queues go on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

RESERVED_PART: Final = 4
"""One in this many calls is kept for queues that have none under way, at most one for each."""


@final
class QueueTurn(Generic[T]):
    """The calls of one queue."""

    __slots__ = ("calls", "calls_max", "is_offered", "on_idle", "owner")

    def __init__(self, owner: T, *, calls_max: int | None = None) -> None:
        """`calls_max` bounds its calls under way; None: only the bound of all does."""
        self.owner = owner
        self.calls = 0
        """Calls in progress."""
        self.calls_max = calls_max
        self.is_offered = False
        self.on_idle: list[Callable[[], None]] = []
        """Called once when no call is under way any longer."""


@final
class FairTurns(Generic[T]):
    """The turns of all queues of a consumer."""

    def __init__(self, calls_max: int) -> None:
        self.calls_max = calls_max
        self.calls = 0
        """Calls in progress, of all queues including removed ones."""
        self._known: set[QueueTurn[T]] = set()
        self._waiting: deque[QueueTurn[T]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, turn: QueueTurn[T]) -> None:
        self._known.add(turn)

    def remove(self, turn: QueueTurn[T]) -> None:
        """No further call starts; those under way are still to be ended."""
        self._known.discard(turn)
        self.withdraw(turn)

    def offer(self, turn: QueueTurn[T]) -> None:
        """A queue has work; it gets its turn after those that wait already."""
        if not turn.is_offered and turn in self._known:
            turn.is_offered = True
            self._waiting.append(turn)

    def withdraw(self, turn: QueueTurn[T]) -> None:
        """Remove a queue from those that wait for a turn."""
        if turn.is_offered:
            turn.is_offered = False
            self._waiting.remove(turn)

    @property
    def reserved(self) -> int:
        """How many calls are kept for queues that have none."""
        return max(0, min(len(self._known) - 1, self.calls_max // RESERVED_PART))

    def may_begin(self) -> bool:
        """Tell whether a queue could begin a call now."""
        return any(map(self._may_begin, self._waiting))

    def begin(self) -> QueueTurn[T] | None:
        """Return the turn of the next queue, with one more call under way; None if there is none.

        It is not offered any longer: offer it again if it has more work.
        """
        waiting = self._waiting
        for number in range(len(waiting)):
            turn = waiting[number]
            if self._may_begin(turn):
                del waiting[number]
                turn.is_offered = False
                turn.calls += 1
                self.calls += 1
                return turn
        return None

    def end(self, turn: QueueTurn[T]) -> None:
        """Note that a call has ended."""
        assert turn.calls > 0, f"a call ended that was not begun, {self.calls} are under way"
        turn.calls -= 1
        self.calls -= 1
        if not turn.calls and turn.on_idle:
            waiting, turn.on_idle = turn.on_idle, []
            for tell in waiting:
                tell()

    def _may_begin(self, turn: QueueTurn[T]) -> bool:
        free = self.calls_max - self.calls
        if not turn.calls:
            return free > 0
        if turn.calls_max is not None and turn.calls >= turn.calls_max:
            return False
        return free > self.reserved
