"""Work on batches of thousands of messages, a piece in each pass of the event loop.

To read a batch of 10,000 messages takes 5 ms, and to write the ids of its answer another one; other
connections are served in between. A batch is still appended in one go: it lies in one piece of the
log, all of it or nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Generator

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 64 * 1024
"""Bodies up to this size, some 3,000 of the smallest messages, are read at once."""
MESSAGES_AT_ONCE: Final = 1_000
"""About 0.5 ms to read, and twice as much on a busy machine."""


@final
class LargeBatches:
    """Does what is left of large batches, one step of one of them at a time.

    What waits here is a deferred request, so the bounds of its handler group apply to it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Generator[None, None, None]] = deque()
        self._wanted = trio.Event()

    def submit(self, steps: Generator[None, None, None]) -> None:
        """Have something done step by step, behind what was submitted before. It must not raise."""
        self._waiting.append(steps)
        self._wanted.set()

    async def run(self) -> None:
        """Do what is submitted until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._waiting:
                await self._finish(self._waiting.popleft())

    async def _finish(self, steps: Generator[None, None, None]) -> None:
        try:
            for _ in steps:
                await trio.lowlevel.checkpoint()
        except Exception:
            # The others wait, too.
            logger.exception("a step of a large batch failed")
        await trio.lowlevel.checkpoint()
