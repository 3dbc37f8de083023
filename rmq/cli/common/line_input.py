"""Standard input, line by line, with at most one unfinished line in memory.

Lines are bytes that are not interpreted. A line that is too long is not kept, but
counted: it comes out as None.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

LINE_BYTES_MAX: Final = 16 * 1024**2
"""Several times the largest body: JSON may need six characters for one."""
_READ_BYTES: Final = 256 * 1024
_STDIN: Final = 0


class InputError(RmqError):
    """Standard input cannot be read."""


@final
class LineSplitter:
    """Cuts what is read into lines. Pure."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self._is_too_long = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that end in `data`, without their ends."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for line in ended:
            self._add(line)
            lines.append(self._line())
        self._add(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """Return the last line, if it has no end."""
        return [self._line()] if self._size or self._is_too_long else []

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._bytes_max:
            self._is_too_long = True
            self._parts.clear()
        if part and not self._is_too_long:
            self._parts.append(part)

    def _line(self) -> bytes | None:
        line = None if self._is_too_long else b"".join(self._parts)
        self._parts, self._size, self._is_too_long = [], 0, False
        return line


async def read_lines(
    read: Callable[[], bytes] | None = None,
) -> AsyncGenerator[list[bytes | None], None]:
    """Give the lines of standard input, as many at a time as a read brings.

    Reading happens in a thread: standard input may be a file, a pipe or a terminal, and trio cannot
    wait for all of them. A thread that still reads when the command ends is abandoned.
    """
    splitter = LineSplitter()
    while True:
        try:
            data = await trio.to_thread.run_sync(read or _read_stdin, abandon_on_cancel=True)
        except OSError as exc:
            raise InputError(f"cannot read standard input: {exc.strerror}") from exc
        if not data:
            yield splitter.end()
            return
        yield splitter.feed(data)


def _read_stdin() -> bytes:
    if sys.__stdin__ is None:
        # Closed by the parent process. Its number belongs to something else by now.
        raise InputError("standard input is closed")
    # Not through sys.stdin: an abandoned thread in it would keep its lock.
    return os.read(_STDIN, _READ_BYTES)
