"""Small text files that must be whole, for tables and settings of brokers and nameservers; and the
names that errors of the operating system get.

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
import errno
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from rmq.errors import ConfigError, DiskFullError, RmqError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PRIVATE: Final = 0o600
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


def replace_file(path: Path, text: str) -> None:
    """Replace a file that operators edit, in one step; raise `StorageError` if that fails.

    A link is followed and the permissions stay; a new file is for its owner only. There is no copy
    of the old content, because a secret that was removed must not stay behind.
    """
    path = Path(os.path.realpath(path))
    new = _beside(path, ".tmp")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _PRIVATE
        with contextlib.suppress(FileNotFoundError):
            # It may be there with another mode.
            new.unlink()
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE))
        write_synced(new, text.encode("utf-8", "replace"))
        new.chmod(mode)
        new.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            new.unlink()
        raise storage_error("write", path, exc) from exc


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
    """Write a new file and bring it to disk."""
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


# --- what errors of the operating system are called ---

LOCK_IN_MEMORY: Final = "lock in memory"

_HINTS_BY_OPERATION: Final = {
    LOCK_IN_MEMORY: "raise the limit of locked memory (ulimit -l, LimitMEMLOCK) or turn off"
    " warmMapedFileEnable",
}
_HINTS: Final = {
    errno.ENOSPC: "free room on the device, or lower fileReservedTime or diskMaxUsedSpaceRatio",
    errno.EDQUOT: "raise the quota, or lower fileReservedTime",
    errno.EACCES: "let the user that runs rmq own the store directory",
    errno.EPERM: "let the user that runs rmq own the store directory",
    errno.EROFS: "the file system is mounted read-only: mount it for writing",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f, LimitFSIZE), or use smaller segments",
    errno.ENOTDIR: "a file stands where a directory belongs: move it away, or choose another path",
    errno.EISDIR: "a directory stands where a file belongs: move it away, or choose another path",
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "raise the limit of open files of the machine (fs.file-max)",
    errno.ENOMEM: "raise vm.max_map_count, or give the machine more memory",
    errno.EIO: "the device reports errors: see the kernel log, and restore from the slave",
}


def storage_error(operation: str, path: Path, exc: OSError) -> StorageError:
    """Return what an error of the operating system is called outside this module."""
    code = exc.errno or 0
    kind = DiskFullError if code in (errno.ENOSPC, errno.EDQUOT) else StorageError
    reason = os.strerror(code) if code else str(exc)
    hint = _HINTS_BY_OPERATION.get(operation) or _HINTS.get(code)
    return kind(operation, str(path), reason, hint=hint)
