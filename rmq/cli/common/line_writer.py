"""Writes lines to standard error in a thread, so that nothing waits for those who read it.

A pipe holds 64 KiB. When its reader stops, the next write blocks: in an event loop that would stop
every connection. So lines are queued, and a thread writes them in order. The queue is bounded: when
it is full, lines are dropped and counted, and a line in their place says how many they were.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_MAX: Final = 10_000
CHARS_MAX: Final = 4 * 1024 * 1024
"""How much may wait to be written."""
_WRITE_CHARS: Final = 16 * 1024


class Stream(Protocol):
    """What a writer needs of a text stream; its descriptor is used if it has one."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


@final
class LineWriter:
    """Writes what it is given to a stream, in a thread of its own."""

    def __init__(
        self,
        stream: Stream,
        dropped_line: Callable[[int], str],
        *,
        lines_max: int = LINES_MAX,
        chars_max: int = CHARS_MAX,
    ) -> None:
        """`dropped_line` returns the line that says how many were dropped."""
        self._write = _writer_to(stream)
        self._dropped_line = dropped_line
        self._lines_max = lines_max
        self._chars_max = chars_max
        self._lines: deque[str] = deque()
        self._chars = 0
        self._dropped = 0
        self._is_closing = False
        # Re-entrant: a finalizer that runs in the middle of `put` may log, too.
        self._change = threading.Condition(threading.RLock())
        # It may hang in a write for ever, which must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="rmq log writer", daemon=True)

    def start(self) -> None:
        """Begin to write; raise `RuntimeError` if the system allows no more threads."""
        self._thread.start()

    def put(self, text: str) -> None:
        """Have a text of whole lines written. Never waits."""
        with self._change:
            if len(self._lines) >= self._lines_max or self._chars + len(text) > self._chars_max:
                self._dropped += 1
                return
            self._say_dropped()
            self._add(text)
            self._change.notify()

    def drop(self) -> None:
        """Count a line that could not even be made."""
        with self._change:
            self._dropped += 1

    def close(self, timeout_s: float) -> bool:
        """Write what is queued and end; return whether that was done in time."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _add(self, text: str) -> None:
        self._lines.append(text)
        self._chars += len(text)

    def _say_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._add(self._dropped_line(dropped))

    def _run(self) -> None:
        while (text := self._next()) is not None:
            try:
                self._write(text)
            except (OSError, ValueError, MemoryError):
                # The reader is gone, or the disk is full: perhaps the next ones can be written.
                with self._change:
                    self._dropped += text.count("\n")

    def _next(self) -> str | None:
        """Wait for something to write and return it, in pieces of moderate size; None: the end."""
        with self._change:
            while not self._lines:
                if self._is_closing:
                    return None
                self._change.wait()
            pieces: list[str] = []
            size = 0
            while self._lines and size < _WRITE_CHARS:
                piece = self._lines.popleft()
                pieces.append(piece)
                size += len(piece)
            self._chars -= size
            if not self._lines:
                self._say_dropped()
        return "".join(pieces)


def _writer_to(stream: Stream) -> Callable[[str], None]:
    """Return a function that writes to a stream.

    Where there is a file, its descriptor is used: a thread that hangs in the write of a buffered
    stream has that locked, and the interpreter, which flushes it when it ends, would not end.
    """
    try:
        descriptor: int = stream.fileno()  # type: ignore[attr-defined] # AttributeError is expected
    except (OSError, ValueError, AttributeError):

        def write_text(text: str) -> None:
            stream.write(text)
            stream.flush()

        return write_text

    def write(text: str) -> None:
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(descriptor, data) :]

    return write
