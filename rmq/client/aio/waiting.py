"""How asyncio tasks wait for what a callback brings: an outcome, or their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar, final

from rmq.client.core.messages import SendResult
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.busy_wait import Wakings

T = TypeVar("T")


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@final
class Awaited(Generic[T]):
    """Call it with the outcome, once; the task that waits for it may sleep until then."""

    __slots__ = ("_future", "_wakings", "outcome")

    def __init__(self, wakings: Wakings) -> None:
        self.outcome: T | None = None
        self._wakings = wakings
        self._future: asyncio.Future[None] | None = None

    def __call__(self, outcome: T) -> None:
        self.outcome = outcome
        future = self._future
        if future is not None and not future.done():
            self._wakings.count += 1
            future.set_result(None)

    async def sleep(self, give_up: Callable[[], None]) -> None:
        """Sleep until the outcome is there; `give_up` is called if that is cancelled.

        The task that slept has to call `woke` then.
        """
        future = self._future = _new_future()
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled():
                # Woken, and cancelled before it ran.
                self.woke()
            give_up()
            raise

    def woke(self) -> None:
        """The task that was woken runs again."""
        self._wakings.count -= 1


class Waiter(Generic[T]):
    """Call it with an outcome; the first one counts. Any number of tasks may `wait`."""

    __slots__ = ("_futures", "_outcome")

    def __init__(self) -> None:
        self._outcome: T | RmqError | None = None
        self._futures: list[asyncio.Future[None]] | None = None

    @property
    def outcome(self) -> T | RmqError | None:
        """The result or the error; None while there is none."""
        return self._outcome

    def __call__(self, outcome: T | RmqError) -> None:
        if self._outcome is None:
            self._outcome = outcome
            futures, self._futures = self._futures, None
            for future in futures or ():
                if not future.done():
                    future.set_result(None)

    async def wait(self) -> T:
        """Return the result, or raise the error, when it is there."""
        if self._outcome is None:
            future = _new_future()
            if self._futures is None:
                self._futures = []
            self._futures.append(future)
            await future
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
class ParkingLot:
    """Tasks that sleep until they are woken, the one that came first before the others."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._futures)

    async def park(self) -> None:
        future = _new_future()
        self._futures.append(future)
        try:
            await future
        except BaseException:
            if future in self._futures:
                self._futures.remove(future)
            raise

    def unpark(self) -> None:
        """Wake one task, if there is any."""
        while self._futures:
            future = self._futures.popleft()
            if not future.done():
                future.set_result(None)
                return

    def unpark_all(self) -> None:
        while self._futures:
            self.unpark()
