"""How a server command ends: gracefully on the first signal, at once on a second Ctrl-C.

A second SIGTERM changes nothing, because supervisors and process groups often send it twice.
"""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Stopping:
    """Waits for the signal that ends a command."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._forced = trio.Event()

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._begun.wait()

    async def watch(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if self._begun.is_set() and number == signal.SIGINT:
                self._forced.set()
            self._begun.set()

    async def force(self, end: Callable[[], None]) -> None:
        await self._forced.wait()
        end()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[trio.Nursery, Stopping]]:
    """Give a nursery for servers and the `Stopping` that ends them; return when they have ended.

    Signals are taken over at once: from then on none of them kills.
    """
    stopping = Stopping()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as watchers:
            watchers.start_soon(stopping.watch, signals)
            async with trio.open_nursery() as servers:
                watchers.start_soon(stopping.force, servers.cancel_scope.cancel)
                yield servers, stopping
            watchers.cancel_scope.cancel()
