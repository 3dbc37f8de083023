"""A file system in memory: paths that lead to nodes, and room that runs out.

It refuses as Linux does, with `OSError` and the same code, and knows nothing of faults or of the
seam. Links and permissions do not exist here; `.` and the root are the same directory.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from rmq.testing.disk_model import BLOCK_BYTES, DirectoryNode, FileNode, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NAME_BYTES_MAX: Final = 255


class Volume:
    """A tree of directories and files on a disk of limited or unlimited size."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None,
        sector_bytes: int,
        now_ms: Callable[[], int],
        root: DirectoryNode | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes
        self.now_ms = now_ms
        self.root = root or DirectoryNode(modified_ms=now_ms())

    def after(self, root: DirectoryNode) -> Volume:
        """Return a volume of the same kind with another tree."""
        return Volume(
            capacity_bytes=self.capacity_bytes,
            sector_bytes=self.sector_bytes,
            now_ms=self.now_ms,
            root=root,
        )

    @property
    def used_bytes(self) -> int:
        """The room in use: blocks that are reserved or hold data."""
        return sum(file.blocks_in_use().bit_count() for _, file in self.files()) * BLOCK_BYTES

    @property
    def used_ratio(self) -> float:
        """The same as a share of all there is, in whole percents like the real one."""
        if self.capacity_bytes is None:
            return 0.0
        return min(-(-self.used_bytes * 100 // max(self.capacity_bytes, 1)) / 100, 1.0)

    def need_blocks(self, count: int) -> None:
        """Refuse if there is no room for this many blocks more."""
        if self.capacity_bytes is None or not count:
            return
        if self.used_bytes + count * BLOCK_BYTES > self.capacity_bytes:
            raise refusal(errno.ENOSPC)

    def files(self) -> Iterator[tuple[str, FileNode]]:
        """Yield all files with their paths."""
        return _files(self.root, "")

    def peek(self, path: Path) -> Node | None:
        """Return what is at a path, None for nothing."""
        node: Node | None = self.root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def find(self, path: Path) -> Node:
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                raise refusal(errno.ENOTDIR)
            found = node.entries.get(name)
            if found is None:
                raise refusal(errno.ENOENT)
            node = found
        return node

    def find_directory(self, path: Path) -> DirectoryNode:
        node = self.find(path)
        if not isinstance(node, DirectoryNode):
            raise refusal(errno.ENOTDIR)
        return node

    def find_file(self, path: Path) -> FileNode:
        node = self.find(path)
        if not isinstance(node, FileNode):
            raise refusal(errno.EISDIR)
        return node

    def make_directories(self, path: Path, *, is_durable: bool) -> None:
        """Create what is missing of a path."""
        directory = self.root
        names = _names(path)
        for depth, name in enumerate(names, 1):
            entry = directory.entries.get(name)
            if entry is None:
                entry = DirectoryNode(modified_ms=self.now_ms())
                self._enter(directory, name, entry)
                if is_durable:
                    directory.make_durable()
            elif isinstance(entry, FileNode):
                raise refusal(errno.EEXIST if depth == len(names) else errno.ENOTDIR)
            directory = entry

    def create(self, path: Path, size: int) -> FileNode:
        """Create a file of zeros. It has no room yet, but a full disk has none for its name."""
        directory = self.find_directory(path.parent)
        if self.peek(path) is not None:
            raise refusal(errno.EEXIST)
        self.need_blocks(1)
        if size < 0:
            raise refusal(errno.EINVAL)
        try:
            content = bytes(size)
        except (MemoryError, OverflowError) as exc:
            raise refusal(errno.EFBIG) from exc
        file = FileNode(content, sector_bytes=self.sector_bytes, modified_ms=self.now_ms())
        self._enter(directory, path.name, file)
        return file

    def find_or_create(self, path: Path) -> FileNode:
        return self.create(path, 0) if self.peek(path) is None else self.find_file(path)

    def replace(self, path: Path, content: bytes) -> FileNode:
        """Put a file with this content in the place of what is there, durably."""
        directory = self.find_directory(path.parent)
        if isinstance(self.peek(path), DirectoryNode):
            raise refusal(errno.EISDIR)
        file = FileNode(b"", sector_bytes=self.sector_bytes, modified_ms=self.now_ms())
        self.need_blocks(max(file.blocks_lacking(0, len(content)), 1))
        file.replace(content)
        self._enter(directory, path.name, file)
        directory.make_durable()
        return file

    def remove(self, path: Path) -> None:
        directory = self.find_directory(path.parent)
        node = self.find(path)
        if isinstance(node, DirectoryNode) and node.entries:
            raise refusal(errno.ENOTEMPTY)
        del directory.entries[path.name]
        directory.modified_ms = self.now_ms()

    def move(self, path: Path, target: Path) -> None:
        node = self.find(path)
        self._enter(self.find_directory(target.parent), target.name, node)
        directory = self.find_directory(path.parent)
        del directory.entries[path.name]
        directory.modified_ms = self.now_ms()

    def _enter(self, directory: DirectoryNode, name: str, node: Node) -> None:
        directory.entries[name] = node
        directory.modified_ms = self.now_ms()


def refusal(code: int) -> OSError:
    """Return the error the system raises with this code."""
    return OSError(code, os.strerror(code))


def _names(path: Path) -> tuple[str, ...]:
    names = path.parts
    if names and names[0] == path.anchor:
        names = names[1:]
    for name in names:
        # A character has at most 4 bytes.
        if len(name) > _NAME_BYTES_MAX // 4 and len(os.fsencode(name)) > _NAME_BYTES_MAX:
            raise refusal(errno.ENAMETOOLONG)
    return names


def _files(directory: DirectoryNode, above: str) -> Iterator[tuple[str, FileNode]]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, DirectoryNode):
            yield from _files(node, f"{above}/{name}")
        else:
            yield f"{above}/{name}", node
