"""Standard output for message bodies: bytes are written as they are, without blocking the loop.

The reader may be slow, or a terminal that was stopped. So a thread writes, while connections are
kept alive, and the task that produces waits for it. A reader that goes away is noticed at the next
write, or within a second if there is nothing to write.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import Final

import trio

from rmq.errors import RmqError

_STDOUT: Final = 1
_LOOK_S: Final = 0.5


class OutputError(RmqError):
    """Standard output takes no more."""


async def write_out(data: bytes, *, fd: int = _STDOUT) -> None:
    """Write everything; raise `BrokenPipeError` if the reader is gone, else `OutputError`."""
    if not data:
        return
    if fd == _STDOUT and sys.__stdout__ is None:
        # Closed by the parent process. Its number belongs to something else by now.
        raise OutputError("standard output is closed")
    try:
        # Cancelled only when the command must end now, even if data is lost.
        await trio.to_thread.run_sync(_write_all, fd, data, abandon_on_cancel=True)
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OutputError(f"cannot write to standard output: {exc.strerror}") from exc


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def wait_reader_gone(*, fd: int = _STDOUT) -> None:
    """Return when the reader is gone; never, if that cannot be seen."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode) or stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        is_pipe = False
    if not is_pipe:
        await trio.sleep_forever()
    poller = select.poll()
    # Only errors matter, and poll reports those in any case.
    poller.register(fd, 0)
    while not poller.poll(0):  # noqa: ASYNC110 - the other end is another process
        await trio.sleep(_LOOK_S)
