"""Small text files that must be whole, for tables and settings of brokers and nameservers.

A `ConfigFile` is written so that the end of the process or of the machine at any moment leaves
either what was there before or what was to be written, whole, for the next `load`:

    write <file>.tmp and sync it
    rename <file> to <file>.bak
    rename <file>.tmp to <file>, and sync the directory

These are the names stock servers use, so both can go on from what the other left. Unlike a stock
server, nothing that cannot be read is ever replaced silently: a damaged file is set aside as
`<file>.damaged` and never takes the place of a good `.bak`, and where there is no good file left
`load` refuses.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import ConfigError, RmqError
from rmq.store.storage import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PADDING: Final = b"\0 \t\r\n"


class ConfigFile:
    """One small text file that is always replaced as a whole. All calls block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = _beside(path, ".bak")
        self._new = _beside(path, ".tmp")
        self._set_aside = _beside(path, ".damaged")
        self._old_goes_to: Path | None = self._backup

    def load(self, parse: Callable[[str], T]) -> T | None:
        """Return what `parse` makes of the content; None if nothing was ever written.

        A file that is missing, empty, or that `parse` refuses with an `RmqError` or a `ValueError`
        is passed over for its `.bak`. Raises `ConfigError` if only damaged content is left, and
        `StorageError` if the operating system does not let it be read.
        """
        self._old_goes_to = self._backup
        damage: str | None = None
        for path in (self.path, self._backup):
            data = _read(path)
            if data is None:
                continue
            if not data.strip(_PADDING):
                # What a power cut makes of a file that was not synced. There is nothing to lose.
                logger.warning("%s is empty", path)
                if path == self.path:
                    self._old_goes_to = None
                continue
            try:
                content = parse(data.decode())
            except (RmqError, ValueError) as exc:
                if path == self._backup:
                    raise self._lost(damage, f"{path}: {exc}") from exc
                logger.error("%s is damaged, trying %s: %s", path, self._backup, exc)
                damage = f"{path}: {exc}"
                self._old_goes_to = self._set_aside
            else:
                if path == self._backup:
                    logger.warning("went on from %s", path)
                return content
        if damage is not None:
            raise self._lost(damage)
        return None

    def _lost(self, *damages: str | None) -> ConfigError:
        return ConfigError(
            str(self.path),
            "cannot be read: " + "; ".join(filter(None, damages)),
            hint=f"repair it or restore a copy; to begin without its content, move it and"
            f" {self._backup.name} away",
        )

    def write(self, text: str) -> None:
        """Replace the content; raise `StorageError` if that fails, the old one is then kept."""
        data = text.encode("utf-8", "replace")
        try:
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                sync_directory(self.path.parent.parent)
            write_synced(self._new, data)
            if self._old_goes_to is not None:
                with contextlib.suppress(FileNotFoundError):
                    self.path.replace(self._old_goes_to)
            self._new.replace(self.path)
            self._old_goes_to = self._backup
            sync_directory(self.path.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):  # it may have taken the last room of the device
                self._new.unlink()
            raise storage_error("write", self.path, exc) from exc


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise storage_error("read", path, exc) from exc


def write_synced(path: Path, data: bytes) -> None:
    """Write a file anew and bring it to disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Bring to disk which files a directory has."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
