"""Saves the messages of a range of a broker's log, before `rmq ha resync` cuts them off.

The file has one message per line, as `rmq consume --json` prints them: `rmq produce --json` sends
them again. It has its name only when all of it is on disk.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rmq.cli.common.message_lines import encode_line
from rmq.client.core.received import received
from rmq.errors import RmqError
from rmq.files import storage_error, sync_directory
from rmq.model.record import BadRecordError, decode_records

if TYPE_CHECKING:
    from rmq.cli.ha.client import HaClient


class NotSavedError(RmqError):
    """The messages could not be saved, so nothing was cut."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


async def save_records(
    client: HaClient, broker: str, name: str, start: int, stop: int, path: Path
) -> int:
    """Write the messages of a range of the log of `broker`, called `name`, to `path`.

    Return how many there are. The file must not exist; on return it is on disk as a whole. Raise
    `NotSavedError` or `StorageError`; then there is no such file.
    """
    in_thread = trio.to_thread.run_sync
    count = 0
    try:
        file = await in_thread(_NewFile, path)
        try:
            while start < stop:
                data, start = await client.records(broker, start, stop)
                lines = _lines(data, name)
                count += len(lines)
                await in_thread(file.write, lines)
            await in_thread(file.keep)
        finally:
            file.close()
    except OSError as exc:
        raise storage_error("write", path, exc) from exc
    return count


class _NewFile:
    """A file that gets its name when it is whole. All methods block."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise NotSavedError(
                f"{path} exists already", hint="name a file that does not exist yet"
            )
        self._path = path
        # For the user that runs this alone.
        number, part = tempfile.mkstemp(suffix=".part", prefix=path.name, dir=path.parent)
        self._part = Path(part)
        self._file = os.fdopen(number, "wb")

    def write(self, lines: list[bytes]) -> None:
        self._file.writelines(lines)

    def keep(self) -> None:
        """Sync it, and give it its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        # Not `replace`: a file that has come there meanwhile is not overwritten.
        self._path.hardlink_to(self._part)
        sync_directory(self._path.parent)

    def close(self) -> None:
        """Close it; what has no name yet is gone."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


def _lines(data: bytes, name: str) -> list[bytes]:
    try:
        return [encode_line(received(record, name)) + b"\n" for record in decode_records(data)]
    except BadRecordError as exc:
        raise NotSavedError(
            f"nothing was saved or cut: a record cannot be read: {exc}",
            hint="rmq store dump DIR --skip-bad on the machine of the slave prints the others",
        ) from exc
