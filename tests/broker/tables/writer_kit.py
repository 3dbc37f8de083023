"""What the tests of `TableWriter` share: a table, and a file that can be held up or fail."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Final

import trio

from rmq.files import ConfigFile, storage_error

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.errors import StorageError

NAME: Final = "table.json"


class WatchedFile(ConfigFile):
    """A real file whose writes can be counted, held up, and made to fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / NAME)
        self.attempts = 0
        self.error: StorageError | None = None
        self.fails_once = False
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._attempted = trio.Event()

    def write(self, text: str) -> None:
        trio.from_thread.run_sync(self._note)
        assert self._may_go_on.wait(60)
        error = self.error
        if self.fails_once:
            self.error = None
        if error is not None:
            raise error
        super().write(text)

    def _note(self) -> None:
        self.attempts += 1
        self._attempted.set()

    async def wait_attempted(self) -> None:
        """Wait for the next attempt to write to begin."""
        self._attempted = trio.Event()
        await self._attempted.wait()

    def hold(self) -> None:
        self._may_go_on.clear()

    def let_go(self) -> None:
        self._may_go_on.set()

    @property
    def text(self) -> str | None:
        return self.path.read_text() if self.path.exists() else None


class Table:
    """Something to keep: a number as text."""

    def __init__(self) -> None:
        self.value = 0
        self.renders = 0

    def render(self) -> str:
        self.renders += 1
        return str(self.value)


def full(file: ConfigFile) -> StorageError:
    return storage_error("write", file.path, OSError(errno.ENOSPC, "full"))
