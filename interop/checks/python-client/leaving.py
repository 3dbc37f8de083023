"""Push consumers of ours that leave when they are told to, whatever block is open then."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from rmq.client.tasks.push_consumer import PushConsumer


@final
class Member:
    """A consumer that runs in a task of its own."""

    def __init__(self, consumer: PushConsumer) -> None:
        self.consumer = consumer
        self._leaves = trio.Event()
        self._gone = trio.Event()

    async def leave(self) -> None:
        """Leave the group; return when that is done."""
        self._leaves.set()
        await self._gone.wait()

    async def stay(self) -> None:
        await self._leaves.wait()

    def is_gone(self) -> None:
        self._gone.set()


@asynccontextmanager
async def member(opening: AbstractAsyncContextManager[PushConsumer]) -> AsyncIterator[Member]:
    """Run a consumer for the length of a block, at most."""
    async with trio.open_nursery() as nursery:
        it: Member = await nursery.start(_run, opening)
        yield it
        await it.leave()


async def _run(
    opening: AbstractAsyncContextManager[PushConsumer],
    *,
    task_status: trio.TaskStatus[Member],
) -> None:
    async with opening as consumer:
        it = Member(consumer)
        task_status.started(it)
        await it.stay()
    it.is_gone()
