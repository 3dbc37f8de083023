"""Whose turn it is: calls of a listener dealt out over the queues of a consumer. Pure.

Every queue has a lane. Lanes with work take turns, one call each. Calls under way are bounded, and
a part of that bound is kept for lanes that have none: a queue whose messages make the listener hang
cannot take it all, so the other queues go on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

RESERVED_PART: Final = 4
"""One in so many calls is kept for lanes that have none under way, at most one for each."""


@final
class Lane(Generic[T]):
    """The calls of one queue."""

    __slots__ = ("calls", "calls_max", "is_offered", "on_idle", "owner")

    def __init__(self, owner: T, *, calls_max: int | None = None) -> None:
        """`calls_max` bounds its calls under way; None: only the bound of all does."""
        self.owner = owner
        self.calls = 0
        """Under way now."""
        self.calls_max = calls_max
        self.is_offered = False
        self.on_idle: list[Callable[[], None]] = []
        """Called once when no call is under way any longer."""


@final
class Lanes(Generic[T]):
    """All lanes of a consumer."""

    def __init__(self, calls_max: int) -> None:
        self.calls_max = calls_max
        self.calls = 0
        """Under way now, on all lanes, removed ones included."""
        self._lanes: set[Lane[T]] = set()
        self._turns: deque[Lane[T]] = deque()

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, lane: Lane[T]) -> None:
        self._lanes.add(lane)

    def remove(self, lane: Lane[T]) -> None:
        """No further call starts; those under way are still to be ended."""
        self._lanes.discard(lane)
        self.withdraw(lane)

    def offer(self, lane: Lane[T]) -> None:
        """A lane has work; it gets its turn after those that wait already."""
        if not lane.is_offered and lane in self._lanes:
            lane.is_offered = True
            self._turns.append(lane)

    def withdraw(self, lane: Lane[T]) -> None:
        """A lane wants no turn for now."""
        if lane.is_offered:
            lane.is_offered = False
            self._turns.remove(lane)

    @property
    def reserved(self) -> int:
        """How many calls are kept for lanes that have none."""
        return max(0, min(len(self._lanes) - 1, self.calls_max // RESERVED_PART))

    def may_begin(self) -> bool:
        """Tell whether a lane could begin a call now."""
        return any(map(self._may_begin, self._turns))

    def begin(self) -> Lane[T] | None:
        """Return the lane whose turn it is, with one more call under way; None if there is none.

        It is not offered any longer: offer it again if it has more work.
        """
        turns = self._turns
        for number in range(len(turns)):
            lane = turns[number]
            if self._may_begin(lane):
                del turns[number]
                lane.is_offered = False
                lane.calls += 1
                self.calls += 1
                return lane
        return None

    def end(self, lane: Lane[T]) -> None:
        """A call is over."""
        assert lane.calls > 0, f"a call ended that was not begun, {self.calls} are under way"
        lane.calls -= 1
        self.calls -= 1
        if not lane.calls and lane.on_idle:
            waiting, lane.on_idle = lane.on_idle, []
            for tell in waiting:
                tell()

    def _may_begin(self, lane: Lane[T]) -> bool:
        free = self.calls_max - self.calls
        if not lane.calls:
            return free > 0
        if lane.calls_max is not None and lane.calls >= lane.calls_max:
            return False
        return free > self.reserved
