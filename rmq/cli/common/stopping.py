"""How a server command ends: gracefully on the first signal, at once on a second Ctrl-C.

A second SIGTERM changes nothing, because supervisors and process groups often send it twice. SIGHUP
has a service read its settings again; one that was started at a terminal, which has been closed,
ends as with SIGTERM. A failure ends it, too, within bounded time: see `end_watch`.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.common.end_watch import EndWatch
from rmq.process_limits import raise_open_files_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command that has nothing to read again."""
_CHECK_S: Final = 1.0

logger = logging.getLogger(__name__)


class Stopping:
    """Waits for the signal that ends a command."""

    def __init__(self) -> None:
        self._begun = trio.Event()
        self._forced = trio.Event()
        self.has_ended = False
        """The servers have ended."""
        self._hung_up = trio.Event()
        self._reload: Callable[[], Awaitable[None]] | None = None

    def on_hangup(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Have SIGHUP call this from now on, unless it means that a terminal was closed."""
        if sys.stdin is None or not sys.stdin.isatty():
            self._reload = reload

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._begun.wait()

    async def watch(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if number == signal.SIGHUP and self._reload is not None:
                self._hung_up.set()
                continue
            if self._begun.is_set() and number == signal.SIGINT:
                self._forced.set()
            self._begun.set()

    async def reload(self) -> None:
        """Reload once for all signals that came meanwhile, again and again."""
        while True:
            await self._hung_up.wait()
            self._hung_up = trio.Event()
            if self._reload is not None:
                await self._reload()

    async def watch_failure(self, servers: trio.CancelScope, watch: EndWatch) -> None:
        """Arm the watch when the servers end without having been asked to."""
        try:
            while not servers.cancel_called:  # noqa: ASYNC110 - a scope has no event for that
                await trio.sleep(_CHECK_S)
        finally:
            # Also when all is cancelled because the event loop itself has failed.
            if not (self.has_ended or self._begun.is_set()):
                watch.arm()

    async def force(self, end: Callable[[], None]) -> None:
        await self._forced.wait()
        end()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[trio.Nursery, Stopping]]:
    """Give a nursery for servers and the `Stopping` that ends them; return when they have ended.

    Signals are taken over at once: from then on none of them kills.
    """
    stopping = Stopping()
    watch = EndWatch()
    watch.start()
    try:
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
            async with trio.open_nursery() as watchers:
                watchers.start_soon(stopping.watch, signals)
                watchers.start_soon(stopping.reload)
                async with trio.open_nursery() as servers:
                    watchers.start_soon(stopping.force, servers.cancel_scope.cancel)
                    watchers.start_soon(stopping.watch_failure, servers.cancel_scope, watch)
                    yield servers, stopping
                stopping.has_ended = True
                watchers.cancel_scope.cancel()
    finally:
        watch.stop()


def use_all_open_files() -> None:
    """Raise the limit of open files as far as that is allowed: connections and stores need many."""
    before, now = raise_open_files_limit()
    if before != now:
        logger.info("%d files may be open, raised from %d", now, before)
