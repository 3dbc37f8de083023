"""An outcome that one task waits for: less than an event takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


@final
class Wakings:
    """Counts the tasks that were woken and have not run since: they may be about to send."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@final
class Awaited(Generic[T]):
    """Call it with the outcome, once; whoever asked for that may sleep until then."""

    __slots__ = ("_task", "_wakings", "outcome")

    def __init__(self, wakings: Wakings) -> None:
        self.outcome: T | None = None
        self._wakings = wakings
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, outcome: T) -> None:
        self.outcome = outcome
        if self._task is not None:
            self._wakings.count += 1
            trio.lowlevel.reschedule(self._task)

    def sleep(self, give_up: Callable[[], None]) -> Awaitable[object]:
        """Sleep until the outcome is there; `give_up` is called if that is cancelled.

        Whoever slept has to say `woke` then.
        """
        self._task = trio.lowlevel.current_task()

        def abandon(_: object) -> trio.lowlevel.Abort:
            give_up()
            return trio.lowlevel.Abort.SUCCEEDED

        # The coroutine itself: another one around it would cost a tenth of the waiting.
        return trio.lowlevel.wait_task_rescheduled(abandon)  # noqa: ASYNC105

    def woke(self) -> None:
        """The task that was woken runs again."""
        self._wakings.count -= 1
