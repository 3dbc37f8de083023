"""One-shot futures, cheaper than `trio.Event`: `Awaited` for one task, `Waiter` for any number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.remoting.busy_wait import Wakings

T = TypeVar("T")


@final
class Awaited(Generic[T]):
    """Call it with the outcome, once; the task that waits for it may sleep until then."""

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

        The task that slept has to call `woke` then.
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


class Waiter(Generic[T]):
    """Call it with an outcome; the first one counts. Any number of tasks may `wait`."""

    __slots__ = ("_outcome", "_tasks")

    def __init__(self) -> None:
        self._outcome: T | RmqError | None = None
        self._tasks: list[trio.lowlevel.Task] | None = None

    @property
    def outcome(self) -> T | RmqError | None:
        """The result or the error; None while there is none."""
        return self._outcome

    def __call__(self, outcome: T | RmqError) -> None:
        if self._outcome is None:
            self._outcome = outcome
            tasks, self._tasks = self._tasks, None
            for task in tasks or ():
                trio.lowlevel.reschedule(task)

    async def wait(self) -> T:
        """Return the result, or raise the error, when it is there."""
        if self._outcome is not None:
            # No full checkpoint: a task that waits for thousands of sends in turn finds most of
            # them done.
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            task = trio.lowlevel.current_task()
            tasks = self._tasks = self._tasks or []
            tasks.append(task)

            def stop_waiting(_: object) -> trio.lowlevel.Abort:
                tasks.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(stop_waiting)
        outcome = self._outcome
        assert outcome is not None, "woken without an outcome"
        if isinstance(outcome, RmqError):
            # Many may wait for one error, and each would add its own traceback to it.
            raise outcome.with_traceback(None)
        return outcome
