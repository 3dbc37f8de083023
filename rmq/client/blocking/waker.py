"""Ends the poll of another thread."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from select import poll as Poll


@final
class Waker:
    """A pipe to oneself. Made, and closed, by the thread that polls or while none does."""

    __slots__ = ("_poll", "_writing", "descriptor")

    def __init__(self, poll: Poll) -> None:
        self.descriptor, self._writing = os.pipe()
        """What becomes readable."""
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._writing, False)
        self._poll = poll
        poll.register(self.descriptor, select.POLLIN)

    def wake(self) -> None:
        # A pipe that is full wakes as well.
        with suppress(BlockingIOError):
            os.write(self._writing, b"!")

    def take(self) -> None:
        """Take in that the poll was ended."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def close(self) -> None:
        with suppress(KeyError):
            self._poll.unregister(self.descriptor)
        os.close(self.descriptor)
        os.close(self._writing)
