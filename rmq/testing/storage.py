"""A `Storage` in memory that forgets on a crash what was not made durable.

`MemoryStorage` gives the guarantees of `rmq.store.storage` and no more: what the real one does not
guarantee to survive, `crash` may lose. One suite of tests runs against both, so that they stay
alike. What differs:

- A file of which there are views cannot change its size. On disk it can, and a process that reads
  behind the new end is killed (SIGBUS).
- The room of a deleted file is free at once, not when the last view of it is released.
- The time of a file moves when it is created, written, resized, cleared or synced with something
  new in it, not at the moment a view is written to.
- A call that fails by an injected fault has done nothing, except that `sync` has lost what it
  should have brought to disk.

`crash` and `kill` return another storage, as the next process finds the disk. The old one goes on
by itself, so one moment can be crashed many times, and views of it never reach the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from typing import TYPE_CHECKING, Final

from rmq.errors import StorageError
from rmq.testing.disk_model import BLOCK_BYTES, Choose, DirectoryNode, FileNode
from rmq.testing.faults import Faults, Operation
from rmq.testing.volume import Volume, refusal

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SECTOR_BYTES: Final = 512
"""The unit that a disk writes at once; a power cut may tear it."""


def _system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStorage:
    """`Storage` in memory, empty at first apart from the root directory."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        sector_bytes: int = SECTOR_BYTES,
        now_ms: Callable[[], int] = _system_clock_ms,
    ) -> None:
        self.faults = Faults()
        """What fails, and how often each operation was called."""
        self.reported_used_ratio: float | None = None
        """What `used_ratio` returns; None: the real share."""
        self._volume = Volume(
            capacity_bytes=capacity_bytes, sector_bytes=sector_bytes, now_ms=now_ms
        )
        self._locked: set[FileNode] = set()

    # --- what tests do with it --------------------------------------------------------------

    def kill(self) -> MemoryStorage:
        """Return what the next process finds after this one was killed.

        Everything written is there, synced or not, and a power cut can still take the latter.
        Locks are free, faults forgotten.
        """
        return self._continued(self._volume.root.after_kill())

    def crash(self, choose: random.Random | Choose) -> MemoryStorage:
        """Return what the next boot finds after a power cut, as described in
        `rmq.testing.disk_model`.

        Locks are free, faults forgotten.
        """
        return self._continued(self._volume.root.after_power_cut(_chooser(choose)))

    def write_back(self, choose: random.Random | Choose) -> None:
        """Make some of what is not durable yet durable, as the kernel does at any time."""
        self._volume.root.write_back(_chooser(choose))

    @property
    def calls(self) -> Counter[Operation]:
        return self.faults.calls

    @property
    def capacity_bytes(self) -> int | None:
        """How much room there is, given out in blocks of 4 KiB; None is no limit."""
        return self._volume.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self._volume.capacity_bytes = capacity_bytes

    @property
    def used_bytes(self) -> int:
        """The room in use: blocks that are reserved or hold data."""
        return self._volume.used_bytes

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._volume.find(path).modified_ms = modified_ms

    def writes_without_room(self) -> list[str]:
        """Return each file that was written to where nothing was reserved, and where.

        On a real disk that is full, such a write kills the process (SIGBUS).
        """
        found = [(name, file.first_write_without_room()) for name, file in self._volume.files()]
        return [f"{name}, position {place}" for name, place in found if place is not None]

    def _continued(self, root: DirectoryNode) -> MemoryStorage:
        other = MemoryStorage()
        other._volume = self._volume.after(root)
        other.reported_used_ratio = self.reported_used_ratio
        return other

    # --- Storage ----------------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        with self.faults.call("exists", path):
            return self._volume.peek(path) is not None

    def names(self, directory: Path) -> list[str]:
        with self.faults.call("names", directory):
            try:
                return sorted(self._volume.find_directory(directory).entries)
            except FileNotFoundError:
                return []

    def is_directory(self, path: Path) -> bool:
        with self.faults.call("is_directory", path):
            return isinstance(self._volume.peek(path), DirectoryNode)

    def size_of(self, path: Path) -> int:
        with self.faults.call("size_of", path):
            node = self._volume.find(path)
            return node.size if isinstance(node, FileNode) else BLOCK_BYTES

    def modified_ms(self, path: Path) -> int:
        with self.faults.call("modified_ms", path):
            return self._volume.find(path).modified_ms

    def make_directory(self, path: Path) -> None:
        with self.faults.call("make_directory", path):
            self._volume.make_directories(path, is_durable=True)

    def add_directory(self, path: Path) -> None:
        with self.faults.call("add_directory", path):
            self._volume.make_directories(path, is_durable=False)

    def create(self, path: Path, size: int) -> MemoryFile:
        with self.faults.call("create", path):
            return self._mapped(path, self._volume.create(path, size), writable=True)

    def open(self, path: Path, *, writable: bool = True) -> MemoryFile:
        with self.faults.call("open", path):
            return self._mapped(path, self._volume.find_file(path), writable=writable)

    def resize(self, path: Path, size: int) -> None:
        with self.faults.call("resize", path), _without_views(path):
            node = self._volume.find_file(path)
            if size < 0:
                raise refusal(errno.EINVAL)
            node.resize(size)
            node.modified_ms = self._volume.now_ms()

    def read(self, path: Path) -> bytes:
        with self.faults.call("read", path):
            return bytes(self._volume.find_file(path).content)

    def write(self, path: Path, data: bytes) -> None:
        with self.faults.call("write", path), _without_views(path):
            node = self._volume.find_or_create(path)
            self._volume.need_blocks(node.blocks_lacking(0, len(data)))
            node.replace(bytes(data))
            node.modified_ms = self._volume.now_ms()
            self._volume.find_directory(path.parent).make_durable()

    def replace(self, path: Path, data: bytes) -> None:
        with self.faults.call("replace", path):
            self._volume.replace(path, bytes(data))

    def delete(self, path: Path) -> None:
        with self.faults.call("delete", path), contextlib.suppress(FileNotFoundError):
            self._volume.remove(path)

    def move(self, path: Path, target: Path) -> None:
        with self.faults.call("move", path):
            self._volume.move(path, target)

    def sync_directory(self, path: Path) -> None:
        with self.faults.call("sync_directory", path):
            self._volume.find_directory(path).make_durable()

    def used_ratio(self, path: Path) -> float:
        self.faults.before("used_ratio", path)
        if self.reported_used_ratio is not None:
            return self.reported_used_ratio
        try:
            self._volume.find(path)
        except OSError:
            return -1.0
        return self._volume.used_ratio

    def lock(self, path: Path) -> MemoryLock | None:
        with self.faults.call("lock", path), _without_views(path):
            node = self._volume.find_or_create(path)
            if node in self._locked:
                return None
            node.replace(b"lock" + node.content[4:])
            self._locked.add(node)
            return MemoryLock(self._locked, node)

    def _mapped(self, path: Path, node: FileNode, *, writable: bool) -> MemoryFile:
        return MemoryFile(self._volume, self.faults, path, node, writable=writable)


class MemoryFile:
    """`MappedFile` in memory."""

    def __init__(
        self, volume: Volume, faults: Faults, path: Path, node: FileNode, *, writable: bool
    ) -> None:
        self.path = path
        self.size = node.size
        view = memoryview(node.image)
        self.buffer = view if writable else view.toreadonly()
        self._volume = volume
        self._faults = faults
        self._node = node
        self._writable = writable
        self._closed = False

    def sync(self) -> None:
        try:
            self._faults.before("sync", self.path)
        except StorageError:
            self._node.lose()
            raise
        if self.size and self._writable:
            with self._faults.translated("sync", self.path):
                self._check_open()
                if self._node.commit():
                    self._node.modified_ms = self._volume.now_ms()

    def write_at(self, position: int, parts: Sequence[bytes | memoryview]) -> None:
        data = b"".join(parts)
        self.buffer[position : position + len(data)] = data

    def reserve(self, start: int, stop: int) -> None:
        with self._faults.call("reserve", self.path):
            stop = min(stop, self.size)
            if stop <= start:
                return
            self._check_writable()
            self._check_named()
            if start < 0:
                raise refusal(errno.EINVAL)
            self._volume.need_blocks(self._node.blocks_lacking(start, stop))
            self._node.reserve(start, stop)

    def clear_from(self, position: int) -> None:
        with self._faults.call("clear_from", self.path):
            self._check_writable()
            self._check_named()
            if position < 0:
                raise refusal(errno.EINVAL)
            self._node.clear_from(position)
            self._node.modified_ms = self._volume.now_ms()

    def is_clear_from(self, position: int) -> bool:
        with self._faults.call("is_clear_from", self.path):
            self._check_named()
            return self._node.content.count(0, position) == max(self.size - position, 0)

    def touch(self, start: int, stop: int) -> None:
        self._faults.before("touch", self.path)

    def advise_random(self) -> None:
        self._faults.before("advise_random", self.path)

    def lock_memory(self) -> None:
        with self._faults.call("lock_memory", self.path):
            if self.size:
                self._check_open()
                self._check_writable()

    def unlock_memory(self) -> None:
        self._faults.before("unlock_memory", self.path)

    def fileno(self) -> int:
        # There is nothing the kernel could read from.
        raise StorageError("open", str(self.path), os.strerror(errno.ENOTSUP))

    def close(self) -> None:
        self._faults.before("close", self.path)
        self._closed = True
        with contextlib.suppress(BufferError):
            self.buffer.release()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the file is closed")

    def _check_writable(self) -> None:
        if not self._writable:
            raise ValueError("the file is open for reading only")

    def _check_named(self) -> None:
        """Refuse what needs the file by its name, when that is gone or another file's."""
        if self._volume.find(self.path) is not self._node:
            raise refusal(errno.ENOENT)


class MemoryLock:
    """`StoreLock` in memory."""

    def __init__(self, locked: set[FileNode], node: FileNode) -> None:
        self._locked = locked
        self._node: FileNode | None = node

    def release(self) -> None:
        if self._node is not None:
            self._locked.discard(self._node)
            self._node = None


def _chooser(choose: random.Random | Choose) -> Choose:
    return choose.randrange if isinstance(choose, random.Random) else choose


@contextlib.contextmanager
def _without_views(path: Path) -> Iterator[None]:
    try:
        yield
    except BufferError as exc:
        raise AssertionError(f"{path} changes its size while there are views of it") from exc
