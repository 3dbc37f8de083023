"""The seam to the operating system: everything the store does to files goes through `Storage`.

`Storage` and `MappedFile` say what the store needs; `DiskStorage` does it with mmap. Tests put
`rmq.testing.MemoryStorage` in its place, which forgets on a crash what was not synced.

What the seam guarantees:

- Bytes written into `MappedFile.buffer` are seen by every reader of the file at once, survive the
  end of this process, and survive the end of the machine once `sync` has returned.
- A file made by `create` survives the end of the machine once `sync_directory` has returned.
- Writing into a reserved range cannot fail for want of room. Writing into an unreserved one can,
  and then the process dies (SIGBUS): the store reserves before it writes.
- Views of a buffer stay valid after `close` and after `delete`, until they are released. The room
  of a deleted file is free when the last of them is.
- A file can be synced after `delete`, not after `close`.

Errors of the operating system leave here as `StorageError`, with path and operation.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
import threading
from typing import TYPE_CHECKING, Final, Protocol

from rmq.errors import StorageError
from rmq.files import LOCK_IN_MEMORY, storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MADV_POPULATE_WRITE: Final = 23
_MS_SYNC: Final = 4
_FALLOC_FL_KEEP_SIZE: Final = 1
_FALLOC_FL_PUNCH_HOLE: Final = 2
_ZERO_BLOCK_BYTES: Final = 65536
_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
"""What opening a file without a name fails with where the file system or kernel cannot do it."""


class MappedFile(Protocol):
    """A file of fixed size, mapped into memory."""

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int: ...

    @property
    def buffer(self) -> memoryview: ...

    def write_at(self, position: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write long data at `position`, one part after the other, as if copied into the buffer."""

    def sync(self) -> None:
        """Make everything written so far durable. Blocks; may run in a thread."""

    def reserve(self, start: int, stop: int) -> None:
        """Make sure the disk has room for these bytes; raise `DiskFullError` if not."""

    def clear_from(self, position: int) -> None:
        """Set everything from `position` on to zero, durably, and give its room back."""

    def is_clear_from(self, position: int) -> bool:
        """Tell whether everything from `position` on is zero, without reading what has no room."""

    def touch(self, start: int, stop: int) -> None:
        """Bring these pages in, ready to be written. Blocks; may run in a thread."""

    def advise_random(self) -> None:
        """Let the system read no more than what is touched.

        Writing into a page that is not in memory otherwise brings in what lies around it as well:
        megabytes of zeros, which takes milliseconds in which no other thread runs either.
        """

    def lock_memory(self) -> None:
        """Keep the file in memory; raise `StorageError` if the limits do not allow it."""

    def unlock_memory(self) -> None:
        """Undo `lock_memory`."""

    def fileno(self) -> int:
        """Return a descriptor of the file, for the kernel to read from (`os.sendfile`).

        It is the file's own and ends with `close`, which for a segment that expires happens in a
        thread: it is good until the next await, and a thread that needs it gets a duplicate.
        """

    def close(self) -> None:
        """Close the file; views of the buffer that are in use stay valid."""


class StoreLock(Protocol):
    """A held lock on a store directory."""

    def release(self) -> None: ...


class Storage(Protocol):
    """The file system, as far as the store needs it."""

    def exists(self, path: Path) -> bool: ...

    def names(self, directory: Path) -> list[str]:
        """Return the sorted names in a directory, none if it does not exist."""

    def is_directory(self, path: Path) -> bool: ...

    def size_of(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last written, in milliseconds since 1970."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents, durably."""

    def add_directory(self, path: Path) -> None:
        """Create a directory and its parents; each survives the end of the machine once
        `sync_directory` of the one that it is in has returned.
        """

    def create(self, path: Path, size: int) -> MappedFile:
        """Create a zero-filled file, without room on disk yet; it must not exist."""

    def open(self, path: Path, *, writable: bool = True) -> MappedFile:
        """Map an existing file as it is."""

    def resize(self, path: Path, size: int) -> None:
        """Cut a file or extend it with zeros, durably."""

    def read(self, path: Path) -> bytes:
        """Return a small file's content."""

    def write(self, path: Path, data: bytes) -> None:
        """Create a small file, or replace its content in place, durably."""

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file as a whole, durably: there is what was before, or all of `data`."""

    def delete(self, path: Path) -> None:
        """Remove a file or an empty directory; one that is gone already is fine."""

    def move(self, path: Path, target: Path) -> None:
        """Move a file, or a directory, within a device; sync both directories, that of `target`
        first. Nothing may be at `target`.
        """

    def sync_directory(self, path: Path) -> None:
        """Make creations and removals in a directory durable."""

    def used_ratio(self, path: Path) -> float:
        """Return how full the file system of `path` is, 0 to 1; -1 if it cannot be told."""

    def lock(self, path: Path) -> StoreLock | None:
        """Take the exclusive lock of a store; None when another process holds it."""


class DiskStorage:
    """`Storage` on the real file system."""

    def exists(self, path: Path) -> bool:
        return _mode_of(path) is not None

    def names(self, directory: Path) -> list[str]:
        with _errors("list", directory):
            try:
                with os.scandir(directory) as entries:
                    return sorted(entry.name for entry in entries)
            except FileNotFoundError:
                return []

    def is_directory(self, path: Path) -> bool:
        mode = _mode_of(path)
        return mode is not None and stat.S_ISDIR(mode)

    def size_of(self, path: Path) -> int:
        with _errors("read the size of", path):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        with _errors("read the time of", path):
            return path.stat().st_mtime_ns // 1_000_000

    def make_directory(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not self.exists(folder)]
        self.add_directory(path)
        for folder in missing:
            self.sync_directory(folder.parent)

    def add_directory(self, path: Path) -> None:
        with _errors("create the directory", path):
            path.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path, size: int) -> DiskFile:
        # A process killed between creating a file and giving it its size leaves a file that a
        # stock broker refuses to start with, so the file gets its name last where that can be done.
        unnamed = _create_unnamed(path, size)
        if unnamed is not None:
            return unnamed
        with _errors("create", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with _errors("create", path):
                os.ftruncate(fd, size)
                return DiskFile(path, fd, size, writable=True)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        finally:
            os.close(fd)

    def open(self, path: Path, *, writable: bool = True) -> DiskFile:
        with _errors("open", path):
            fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            with _errors("open", path):
                status = os.fstat(fd)
                if stat.S_ISDIR(status.st_mode):
                    # Reading, the system opens a directory like a file.
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                return DiskFile(path, fd, status.st_size, writable=writable)
        finally:
            os.close(fd)

    def resize(self, path: Path, size: int) -> None:
        with _errors("resize", path):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(fd, size)
                os.fsync(fd)
            finally:
                os.close(fd)

    def read(self, path: Path) -> bytes:
        with _errors("read", path):
            return path.read_bytes()

    def write(self, path: Path, data: bytes) -> None:
        with _errors("write", path):
            _write_synced(path, data)
        self.sync_directory(path.parent)

    def replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(f"{path.name}.tmp")
        with _errors("write", path):
            try:
                _write_synced(new, data)
                new.replace(path)
            except OSError:
                # It may have taken the last room of the device.
                with contextlib.suppress(OSError):
                    new.unlink()
                raise
        self.sync_directory(path.parent)

    def delete(self, path: Path) -> None:
        try:
            with _errors("delete", path):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
        except StorageError as exc:
            if not isinstance(exc.__cause__, FileNotFoundError):
                raise

    def move(self, path: Path, target: Path) -> None:
        with _errors("move", path):
            path.rename(target)

    def sync_directory(self, path: Path) -> None:
        with _errors("sync the directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def used_ratio(self, path: Path) -> float:
        """Return the share of used space as RocketMQ 4.9.8 UtilAll counts it.

        Room that only the superuser may use is left out, and the share is rounded up to whole
        percents, as `df` does.
        """
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return -1.0
        entire = usage.used + usage.free
        return -(-usage.used * 100 // entire) / 100 if entire > 0 else -1.0

    def lock(self, path: Path) -> DiskLock | None:
        """Take the lock as a stock broker does (same kind, same range): each keeps the other out.

        Nothing else in this process may open the file while the lock is held: POSIX locks belong to
        a process, and closing any descriptor of the file ends them.
        """
        with held_locks_guard:
            # A second store in this process would get the lock as well, and opening the file to
            # find out would end the first one's: the table of held locks is asked before it is
            # opened.
            if holds_lock(path):
                return None
            with _errors("lock", path):
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            lock = DiskLock(fd, _identity_of(os.fstat(fd)))
            try:
                with _errors("lock", path):
                    if not _try_lock(fd):
                        return None
                    os.pwrite(fd, b"lock", 0)
                    os.fsync(fd)
                _held_locks.add(lock.identity)
                return lock
            finally:
                if lock.identity not in _held_locks:
                    os.close(fd)


def _write_synced(path: Path, data: bytes) -> None:
    """Give a file this content, and bring it to disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(fd, data[written:], written)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def _create_unnamed(path: Path, size: int) -> DiskFile | None:
    """Create a file that appears under its name with its size; None if the system cannot."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    with _errors("create", path):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=folder)
            except OSError as exc:
                if exc.errno in _NO_TMPFILE:
                    return None
                raise
            try:
                os.ftruncate(fd, size)
                file = DiskFile(path, fd, size, writable=True)
                try:
                    os.link(f"/proc/self/fd/{fd}", path.name, dst_dir_fd=folder)
                except FileNotFoundError:
                    # Without /proc there is no way to name it.
                    file.close()
                    return None
                except BaseException:
                    file.close()
                    raise
                return file
            finally:
                os.close(fd)
        finally:
            os.close(folder)


class DiskFile:
    """A file mapped with mmap."""

    def __init__(self, path: Path, fd: int, size: int, *, writable: bool) -> None:
        self.path = path
        self.size = size
        self._identity = _identity_of(os.fstat(fd))
        self._writable = writable
        self._fd = -1
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        # An empty file cannot be mapped, but its size can be asked for.
        self._mapping = mmap.mmap(fd, size, access=access) if size else None
        self.buffer = memoryview(self._mapping) if self._mapping is not None else memoryview(b"")

    def write_at(self, position: int, parts: Sequence[bytes | memoryview]) -> None:
        # Copying into the mapping takes a page fault for every 4 KiB that is new; the kernel's own
        # write does not, and mappings of the file see it at once.
        with _errors("write", self.path):
            self._check_writable()
            written = os.pwritev(self._kept_fd(), parts, position)
        if written < sum(map(len, parts)):
            rest = b"".join(parts)[written:]
            self.buffer[position + written : position + written + len(rest)] = rest

    def sync(self) -> None:
        if not self.size or not self._writable:
            return
        # msync and not fdatasync, because it needs no descriptor: a store of thousands of queues
        # holds one per file, not two, running out of them cannot fail a sync, and it reaches this
        # file also when its name is gone. Through ctypes because that releases the interpreter lock
        # while the disk works, as mmap.flush does not.
        with _errors("sync", self.path), self._pinned() as (mapping, address):
            if sys.platform != "linux":
                mapping.flush()
            else:
                _call("msync", ctypes.c_void_p(address), ctypes.c_size_t(self.size), _MS_SYNC)

    def reserve(self, start: int, stop: int) -> None:
        stop = min(stop, self.size)
        if stop <= start:
            return
        with _errors("reserve room for", self.path), self._reopened(os.O_RDWR) as fd:
            os.posix_fallocate(fd, start, stop - start)

    def clear_from(self, position: int) -> None:
        with _errors("clear the end of", self.path), self._reopened(os.O_RDWR) as fd:
            if position < self.size:
                _clear(fd, position, self.size)
            os.fsync(fd)

    def is_clear_from(self, position: int) -> bool:
        with _errors("read the end of", self.path), self._reopened(os.O_RDONLY) as fd:
            for start, stop in _data_extents(fd, position, self.size):
                if any(_blocks_with_data(self.buffer[start:stop])):
                    return False
        return True

    def touch(self, start: int, stop: int) -> None:
        start -= start % mmap.PAGESIZE
        stop = min(stop, self.size)
        if stop <= start or not self._writable:
            return
        # It is done ahead of need, so a failure changes nothing (kernels before 5.14 cannot do it;
        # the file may be closed meanwhile): the pages then come in as they are written. Through
        # ctypes because that releases the interpreter lock, as mmap.madvise does not.
        with contextlib.suppress(OSError, ValueError, AttributeError), self._pinned() as (_, base):
            length = ctypes.c_size_t(stop - start)
            _call("madvise", ctypes.c_void_p(base + start), length, _MADV_POPULATE_WRITE)

    def advise_random(self) -> None:
        if self._mapping is not None:
            self._mapping.madvise(mmap.MADV_RANDOM)

    def lock_memory(self) -> None:
        if self.size:
            with _errors(LOCK_IN_MEMORY, self.path), self._pinned() as (_, address):
                _call("mlock", ctypes.c_void_p(address), ctypes.c_size_t(self.size))

    def unlock_memory(self) -> None:
        # A mapping that has ended is not locked any longer.
        with contextlib.suppress(OSError, ValueError), self._pinned() as (_, address):
            _call("munlock", ctypes.c_void_p(address), ctypes.c_size_t(self.size))

    def fileno(self) -> int:
        with _errors("open", self.path):
            return self._kept_fd()

    def _kept_fd(self) -> int:
        """Return the descriptor that is opened when it is first needed, and kept."""
        if self._fd < 0:
            if self._mapping is None:
                raise ValueError("the file is closed")
            with self._reopened(os.O_RDWR if self._writable else os.O_RDONLY) as fd:
                self._fd = os.dup(fd)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(BufferError):
            self.buffer.release()
        if self._mapping is not None:
            # With views still in use this fails, and the mapping ends with the last of them.
            with contextlib.suppress(BufferError):
                self._mapping.close()
            self._mapping = None

    @contextlib.contextmanager
    def _pinned(self) -> Iterator[tuple[mmap.mmap, int]]:
        """Keep the mapping where it is, also if another thread closes the file meanwhile."""
        mapping = self._mapping
        if mapping is None:
            raise ValueError("the file is closed")
        self._check_writable()
        pin = ctypes.c_char.from_buffer(mapping)
        try:
            yield mapping, ctypes.addressof(pin)
        finally:
            del pin

    def _check_writable(self) -> None:
        if not self._writable:
            raise ValueError("the file is open for reading only")

    @contextlib.contextmanager
    def _reopened(self, mode: int) -> Iterator[int]:
        """Open the file again, for what cannot be done through the mapping."""
        if mode == os.O_RDWR:
            self._check_writable()
        fd = os.open(self.path, mode | os.O_CLOEXEC)
        try:
            if _identity_of(os.fstat(fd)) != self._identity:
                # It was deleted, and another file has its name now.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            yield fd
        finally:
            os.close(fd)


def _clear(fd: int, position: int, size: int) -> None:
    """Set a file to zero from `position` on and give the room back; mapped views see it."""
    try:
        _call(
            "fallocate",
            fd,
            _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE,
            ctypes.c_int64(position),
            ctypes.c_int64(size - position),
        )
    except (OSError, AttributeError) as exc:
        if isinstance(exc, OSError) and exc.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # Cutting does the same on file systems that know no holes. It is the second choice because
        # a crash in between leaves the file short, and a process that reads the end in between is
        # killed (SIGBUS).
        os.ftruncate(fd, position)
        os.ftruncate(fd, size)


def _data_extents(fd: int, position: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges from `position` on that may hold something other than zeros."""
    if not hasattr(os, "SEEK_DATA"):
        yield position, size
        return
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, position


def _blocks_with_data(view: memoryview) -> Iterator[bool]:
    for start in range(0, len(view), _ZERO_BLOCK_BYTES):
        block = bytes(view[start : start + _ZERO_BLOCK_BYTES])
        yield block.count(0) != len(block)


class DiskLock:
    """A POSIX lock on the first byte of the lock file."""

    def __init__(self, fd: int, identity: tuple[int, int]) -> None:
        self.identity = identity
        self._fd = fd

    def release(self) -> None:
        with held_locks_guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held_locks.discard(self.identity)


_held_locks: set[tuple[int, int]] = set()
"""Which lock files this process holds, as device and inode."""
held_locks_guard = threading.Lock()
"""Held while the table is asked or changed, and while a lock file is opened or closed."""


def holds_lock(path: Path) -> bool:
    """Tell whether this process holds the lock of a file; ask under `held_locks_guard`."""
    with _errors("lock", path):
        try:
            return _identity_of(path.stat()) in _held_locks
        except FileNotFoundError:
            return False


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except (BlockingIOError, PermissionError):
        # Which of the two a held lock gives is up to the system.
        return False
    return True


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _mode_of(path: Path) -> int | None:
    with _errors("read the attributes of", path):
        try:
            return path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None


_loaded_libc: ctypes.CDLL | None = None


def _call(function: str, *arguments: object) -> None:
    """Call the C library, without the interpreter lock; raise `OSError` if it fails."""
    global _loaded_libc  # loaded on first use: readers of a store never need it
    if _loaded_libc is None:
        _loaded_libc = ctypes.CDLL(None, use_errno=True)
    if getattr(_loaded_libc, function)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def _errors(operation: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise storage_error(operation, path, exc) from exc
    except (OverflowError, ValueError) as exc:
        # Raised by Python before it asks the system: a size that no file can have, a file that was
        # cut while it was being mapped, or one that is closed.
        raise StorageError(operation, str(path), str(exc)) from exc
