"""Virtual time: events in order, each for a machine that may be paused or gone when it comes."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Owner(Protocol):
    """Whom an event is for."""

    @property
    def incarnation(self) -> int:
        """Changes when the machine is started anew: events from before are void."""

    @property
    def paused_until(self) -> float: ...


class Clock:
    """The one queue of events of a simulation, and its one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 100.0
        self.events = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...], Any, int]] = []
        self._sequence = 0

    def at(
        self,
        time: float,
        action: Callable[..., None],
        arguments: tuple[Any, ...] = (),
        owner: Owner | None = None,
    ) -> None:
        """Call `action` at a time, unless its owner is gone by then; later if that is paused."""
        incarnation = 0 if owner is None else owner.incarnation
        self._sequence += 1
        heapq.heappush(self._queue, (time, self._sequence, action, arguments, owner, incarnation))

    def run(self, until: float, events_max: int) -> None:
        """Run the events that are due until then, in order, but no more than so many in all."""
        queue = self._queue
        while queue and queue[0][0] <= until and self.events <= events_max:
            time, _, action, arguments, owner, incarnation = heapq.heappop(queue)
            if time > self.now:
                self.now = time
            if owner is not None:
                if owner.incarnation != incarnation:
                    continue
                if owner.paused_until > self.now:
                    self.at(owner.paused_until, action, arguments, owner)
                    continue
            self.events += 1
            action(*arguments)
        if self.events <= events_max:
            self.now = max(self.now, until)
