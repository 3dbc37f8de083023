"""Waiting, for a fifth of the price of an event: for an outcome, and for room."""

from __future__ import annotations

from typing import Generic, TypeVar, final

import trio

from rmq.client.core.messages import SendResult
from rmq.errors import RmqError

T = TypeVar("T")


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
            # No full checkpoint: whoever waits for thousands of sends in turn finds most of them
            # done.
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


@final
class PendingSend(Waiter[SendResult]):
    """A pipelined send: `await pending.wait()` returns its result or raises its error."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<PendingSend {'under way' if self.outcome is None else self.outcome!r}>"


@final
class Room:
    """Bounds how many things are under way, and how many bytes they have together.

    One thing may always go, whatever its size.
    """

    __slots__ = ("_bytes", "_bytes_max", "_count", "_count_max", "_is_waited_for", "_waiting")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0
        self._waiting = trio.lowlevel.ParkingLot()
        self._is_waited_for = False
        """Whether anybody may wait: asking the parking lot costs more."""

    @property
    def count(self) -> int:
        """How many things are under way."""
        return self._count

    def has(self, size: int) -> bool:
        """Tell whether one more thing of this size may go."""
        return not self._count or (
            self._count < self._count_max and self._bytes + size <= self._bytes_max
        )

    def take(self, size: int) -> None:
        """One more is under way, whether there was room for it or not."""
        self._count += 1
        self._bytes += size

    def give_back(self, size: int) -> None:
        """One is over."""
        self._count -= 1
        self._bytes -= size
        # Waking a task for a single place costs more than what it does; a quarter is worth it.
        if self._is_waited_for and (
            not self._count
            or (self._count * 4 <= self._count_max * 3 and self._bytes * 4 <= self._bytes_max * 3)
        ):
            self.wake_all()

    async def wait(self) -> None:
        """Wait until some room was made, for others as well as for us."""
        self._is_waited_for = True
        await self._waiting.park()

    def wake_all(self) -> None:
        """Let all who wait look around."""
        self._is_waited_for = False
        self._waiting.unpark_all()
