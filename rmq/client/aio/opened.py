"""Something that is opened and closed on asyncio, by any task.

    async with open_producer("10.0.0.5:9876", "orders") as producer:
        ...

    orders = open_producer("10.0.0.5:9876", "orders")     # notebooks, fixtures, start-up hooks
    producer = await orders.open()
    ...
    await orders.close()

It runs in a task of its own. So it may be closed by another task than the one that opened it, and
what cancels the one that uses it does not cancel its tasks.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar, final

from rmq.client.aio.loop import AIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

T = TypeVar("T")


class _LeftByError(Exception):
    """Tells a consumer that its block was left by an error."""


@final
class Opened(Generic[T]):
    """Opens something for the length of a block, or from `open` to `close`. For one use."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]], what: str) -> None:
        self._make = make
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._leave: asyncio.Future[bool] | None = None
        """Done when it is to be closed: whether without an error."""

    def __repr__(self) -> str:
        state = "not open" if self._task is None else "closed" if self._task.done() else "open"
        return f"<{self._what}, {state}>"

    async def open(self) -> T:
        """Open it. If this is cancelled, or raises, nothing is left open."""
        AIO.check_running()
        if self._task is not None:
            raise RuntimeError(f"{self._what} was opened before: make another one")
        loop = asyncio.get_running_loop()
        self._leave = loop.create_future()
        ready: asyncio.Future[T] = loop.create_future()
        task = self._task = loop.create_task(self._run(ready, self._leave), name=self._what)
        try:
            await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            await asyncio.wait((task,))
            raise
        if not ready.done():
            # It has ended already, and says why.
            await task
        return ready.result()

    async def close(self, *, is_done: bool = True) -> None:
        """Close it. `is_done`: what a consumer has handed out counts as consumed."""
        task, leave = self._task, self._leave
        if task is None or leave is None:
            return
        if not leave.done():
            leave.set_result(is_done)
        # If this is cancelled, it goes on closing by itself.
        await asyncio.shield(task)

    async def __aenter__(self) -> T:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(is_done=kind is None)

    async def _run(self, ready: asyncio.Future[T], leave: asyncio.Future[bool]) -> None:
        try:
            async with self._make() as value:
                ready.set_result(value)
                if not await leave:
                    raise _LeftByError
        except _LeftByError:
            pass
