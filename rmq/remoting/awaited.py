"""An outcome that one task waits for: less than an event takes."""

from __future__ import annotations

from typing import Generic, TypeVar, final

import trio

T = TypeVar("T")


@final
class Awaited(Generic[T]):
    """Call it with the outcome, once. Whoever asked for that sleeps until then."""

    __slots__ = ("outcome", "task")

    def __init__(self) -> None:
        self.outcome: T | None = None
        self.task: trio.lowlevel.Task | None = None
        """Who sleeps, if anybody does."""

    def __call__(self, outcome: T) -> None:
        self.outcome = outcome
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)
