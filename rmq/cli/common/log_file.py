"""A log file that is renamed when it is full, and opened again on request.

Only the thread of a `LineWriter` writes; `reopen` may be called from any other. A file that cannot
be renamed goes on growing: lines count more than its size.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, final

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO


@final
class LogFile:
    """The stream behind a log file: `FILE`, and the renamed `FILE.1` to `FILE.<kept>`."""

    def __init__(self, path: Path, *, bytes_max: int, kept: int) -> None:
        """Open the file to append to it; raise `ConfigError` if that is not possible."""
        self.path = path
        self._bytes_max = bytes_max
        self._kept = kept
        self._must_reopen = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._size = self._open()
        except OSError as exc:
            reason = exc.strerror or str(exc)
            raise ConfigError("logFile", f"{path} cannot be opened: {reason}") from exc

    def write(self, text: str) -> None:
        """Write whole lines; the file is flushed afterwards."""
        if self._must_reopen:
            self._must_reopen = False
            self._replace()
        data = text.encode("utf-8", "backslashreplace")
        if self._size and self._size + len(data) > self._bytes_max:
            self._rotate()
        self._file.write(data)
        self._size += len(data)

    def flush(self) -> None:
        self._file.flush()

    def reopen(self) -> None:
        """Have the file opened again by the next write: another program has moved it away."""
        self._must_reopen = True

    def close(self) -> None:
        self._file.close()

    def _open(self) -> tuple[IO[bytes], int]:
        file = self.path.open("ab", buffering=0)
        return file, os.fstat(file.fileno()).st_size

    def _replace(self) -> None:
        try:
            file, size = self._open()
        except OSError:
            return
        self._file.close()
        self._file, self._size = file, size

    def _rotate(self) -> None:
        """Rename the file and its predecessors, and begin another one."""
        try:
            if self._kept:
                for number in range(self._kept - 1, 0, -1):
                    older = self._numbered(number)
                    if older.exists():
                        older.replace(self._numbered(number + 1))
                self.path.replace(self._numbered(1))
            else:
                self.path.unlink()
        except OSError:
            return
        self._replace()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
