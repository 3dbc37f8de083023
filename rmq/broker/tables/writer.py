"""Writes the broker's tables to their files.

A `TableWriter` knows a table only as a function that renders its text. Changes are marked; however
many are marked while a file is being written, one more write saves them all.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import StorageError, to_keep
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.files import ConfigFile

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0
"""How long after a failed write the next one is tried when nothing asks for it earlier."""


class TableWriter:
    """Writes one file whenever its table has changed.

    `render` returns the text, at once or in pieces between which other tasks may run. `changes` may
    return a number that moves with the content, for tables that change too often to be marked.
    """

    def __init__(
        self,
        file: ConfigFile,
        render: Callable[[], str | Iterator[str]],
        name: str,
        *,
        changes: Callable[[], int] | None = None,
        retry_s: float = RETRY_S,
    ) -> None:
        self._file = file
        self._render = render
        self._name = name
        self._changes = changes or (lambda: 0)
        self._retry_s = retry_s
        self._marked = 0
        self._saved = 0
        self._changes_saved = self._changes()
        self._wakes_on_mark = False
        self._wake = trio.Event()
        self._writing = trio.Lock()
        self._current: _Attempt | None = None
        self._next = _Attempt()
        self._limiter = trio.CapacityLimiter(1)
        self._failures = 0
        self.error: StorageError | None = None
        """Why the last attempt to write failed; None if it did not."""

    def mark(self) -> int:
        """Note that something changed; return what `wait_saved` takes to wait for it."""
        self._marked += 1
        if self._wakes_on_mark:
            self._wake.set()
        return self._marked

    @property
    def is_unsaved(self) -> bool:
        """Whether there are changes that are not in the file yet."""
        return self._marked > self._saved or self._changes() != self._changes_saved

    async def wait_saved(self, mark: int) -> None:
        """Wait until a marked change is in the file, without waiting for the next interval.

        Raises `StorageError` if it could not be written. The writer goes on trying, so the change
        may be saved later nevertheless.
        """
        await trio.lowlevel.checkpoint()
        while self._saved < mark:
            attempt = self._current
            if attempt is None or attempt.marked < mark:
                attempt = self._next
                self._wake.set()
            await attempt.ended.wait()
            if attempt.error is not None:
                error = attempt.error
                # Not the same object for all waiting tasks: a traceback belongs to one of them.
                raise type(error)(
                    error.operation, error.path, error.reason, hint=error.hint
                ) from error

    async def run(self, interval_s: float | None) -> None:
        """Write the file soon after each mark, or if changed every `interval_s` seconds; for ever.

        Does not write when cancelled: `save_now` does.
        """
        self._wakes_on_mark = interval_s is None
        if self._wakes_on_mark and self.is_unsaved:
            self._wake.set()
        while True:
            pause_s = interval_s
            if pause_s is None:
                pause_s = math.inf if self.error is None else self._retry_s
            with trio.move_on_after(pause_s):
                await self._wake.wait()
            self._wake = trio.Event()
            if self.is_unsaved:
                await self._save()

    async def save_now(self) -> None:
        """Write the file if there are changes; raise `StorageError` if that fails."""
        await trio.lowlevel.checkpoint()
        if self.is_unsaved:
            await self._save()
            if self.error is not None:
                raise self.error

    async def _save(self) -> None:
        async with self._writing:
            if not self.is_unsaved:  # the write that had to be waited for saved it all
                return
            attempt, self._next = self._next, _Attempt()
            self._current = attempt
            attempt.marked = self._marked
            changes = self._changes()
            try:
                text = await self._text()
                await run_in_thread(self._file.write, text, limiter=self._limiter)
            except StorageError as exc:
                attempt.error = to_keep(exc)
                self._note_failure(attempt.error)
            else:
                self._saved = attempt.marked
                self._changes_saved = changes
                self._note_success()
            finally:
                # After a cancellation there is neither an error nor a saved mark, and tasks that
                # wait for this attempt go on waiting for the next.
                self._current = None
                attempt.ended.set()

    async def _text(self) -> str:
        rendered = self._render()
        if isinstance(rendered, str):
            return rendered
        pieces: list[str] = []
        for piece in rendered:
            pieces.append(piece)
            await trio.lowlevel.checkpoint()
        return "".join(pieces)

    def _note_failure(self, exc: StorageError) -> None:
        self._failures += 1
        if self.error is None or str(exc) != str(self.error):
            logger.error("%s not saved, trying again: %s", self._name, exc.with_hint)
        self.error = exc

    def _note_success(self) -> None:
        if self.error is not None:
            logger.info("%s saved after %d failed attempts", self._name, self._failures)
        self.error = None
        self._failures = 0


class _Attempt:
    """One attempt to write a file, with an event for the tasks that wait for it."""

    def __init__(self) -> None:
        self.marked = 0
        self.error: StorageError | None = None
        self.ended = trio.Event()
