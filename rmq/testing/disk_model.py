"""A disk and the page cache before it, as far as a power cut tells them apart.

A `FileNode` has an image in the page cache, which every view shows, and one on disk. A
`DirectoryNode` has entries as programs see them and entries as the disk has them. `commit` and
`make_durable` make the two sides equal; a power cut leaves something in between:

- Each sector that differs is as before, or as written, or torn at any byte.
- A file whose creation was not made durable is there or not, and without a commit may lack its
  size. One whose deletion was not made durable may be back.

What is not modelled: a sector that had several contents since the last commit is never found with
one in between, unless `write_back` wrote it at that moment.

The nodes know nothing of paths, errors or capacity, and all choices are made by the caller's
`Choose`, so that a seed or a test generator replays them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Choose: TypeAlias = Callable[[int], int]
"""Given n, returns one of 0 .. n-1; 0 is the choice in which less happened.

`random.Random(seed).randrange` is one; with hypothesis it is
`lambda n: data.draw(st.integers(0, n - 1))`.
"""

BLOCK_BYTES: Final = 4096
"""The unit in which room on disk is given out."""

_ZERO_BLOCK: Final = bytes(BLOCK_BYTES)
_CHUNK_BYTES: Final = 32 * 1024
_FATES: Final = 3
_FATES_PER_CHOICE: Final = 32


class FileNode:
    """A file: its content on disk, and its content in the page cache."""

    def __init__(self, durable: bytes, *, sector_bytes: int, modified_ms: int) -> None:
        self.modified_ms = modified_ms
        self.reserved = 0
        """The blocks that have room on disk, one bit each."""
        self.has_durable_size = not durable
        """Whether the file would have its size if only its name reached the disk."""
        self._durable = durable
        self._durable_reserved = 0
        self._sector_bytes = sector_bytes
        # Most files are never used between two crashes: None until the first use.
        self._image: bytearray | None = None
        # What the kernel assumes to be on disk, where that is wrong because of a failed sync.
        self._believed: bytes | None = None

    @property
    def size(self) -> int:
        return len(self._durable)

    @property
    def image(self) -> bytearray:
        """The page cache: what programs read and write."""
        if self._image is None:
            self._image = bytearray(self._durable)
        return self._image

    @property
    def content(self) -> bytes | bytearray:
        """The page cache, read-only."""
        return self._durable if self._image is None else self._image

    def commit(self) -> bool:
        """Bring what was written to disk; return whether there was anything new."""
        self.has_durable_size = True
        self._durable_reserved = self.reserved
        image = self._image
        if image is None:
            return False
        if self._believed is None:
            if image == self._durable:
                return False
            self._durable = bytes(image)
            return True
        dirty = self._dirty_sectors()
        self._write(dirty)
        return bool(dirty)

    def lose(self) -> None:
        """Fail to bring what was written to disk.

        Linux then takes the pages for clean: a later commit that succeeds does not write them,
        unless something else was written into them meanwhile.
        """
        if self._image is not None and self._image != self._durable:
            self._believed = bytes(self._image)

    def write_back(self, choose: Choose) -> None:
        """Bring some of what was written to disk, as the kernel does at any time."""
        dirty = self._dirty_sectors()
        if dirty:
            chosen = choose(1 << len(dirty))
            self._write([sector for place, sector in enumerate(dirty) if chosen >> place & 1])

    def clear_from(self, position: int) -> None:
        """Set everything from `position` on to zero and give its room back, durably."""
        if position < self.size:
            self.image[position:] = bytes(self.size - position)
            self._resize_durable(position)
            self._resize_durable(len(self.image))
        self.commit()

    def resize(self, size: int) -> None:
        """Cut or extend with zeros, durably; raise `BufferError` if there are views."""
        self.commit()
        if self._image is not None:
            self._image[size:] = bytes(max(size - self.size, 0))
        self._resize_durable(size)

    def replace(self, content: bytes) -> None:
        """Take this content, durably; raise `BufferError` if there are views of another size."""
        if self._image is not None:
            self._image[:] = content
        self._durable = content
        self._believed = None
        self.has_durable_size = True
        self.reserved = self._durable_reserved = self.blocks_between(0, len(content))

    def reserve(self, start: int, stop: int) -> None:
        self.reserved |= self.blocks_between(start, stop)

    @staticmethod
    def blocks_between(start: int, stop: int) -> int:
        """Return the bits of the blocks that hold these positions."""
        return (1 << _blocks(stop)) - (1 << start // BLOCK_BYTES)

    def blocks_lacking(self, start: int, stop: int) -> int:
        """Return how many blocks these positions need that are not in use yet."""
        return (self.blocks_between(start, stop) & ~self.blocks_in_use()).bit_count()

    def blocks_in_use(self) -> int:
        """Return the bits of the blocks that are reserved or hold anything but zeros."""
        return self.reserved | self._unreserved_data()

    def first_write_without_room(self) -> int | None:
        """Return where the first block begins that holds data without being reserved."""
        blocks = self._unreserved_data()
        return ((blocks & -blocks).bit_length() - 1) * BLOCK_BYTES if blocks else None

    def after_kill(self) -> FileNode:
        """Return the file as the next process finds it; nothing is lost."""
        copy = self._with(self._durable)
        copy.has_durable_size = self.has_durable_size
        copy.reserved = self.reserved
        copy._durable_reserved = self._durable_reserved
        copy._believed = self._believed
        if self._image is not None and self._image != self._durable:
            copy._image = bytearray(self._image)
        return copy

    def after_power_cut(self, choose: Choose) -> FileNode:
        """Return the file as the next boot finds it."""
        if self._image is None or self._image == self._durable:
            copy = self._with(self._durable)
        else:
            copy = self._with(_torn(self._durable, self._image, choose, self._sector_bytes))
        copy.has_durable_size = True
        copy.reserved = self._durable_reserved
        # Where there is data there is room, reserved or not.
        copy.reserved = copy._durable_reserved = copy.blocks_in_use()
        return copy

    def without_size(self) -> FileNode:
        """Return the file as it is when only its creation reached the disk."""
        return self._with(b"")

    def _with(self, durable: bytes) -> FileNode:
        return FileNode(durable, sector_bytes=self._sector_bytes, modified_ms=self.modified_ms)

    def _dirty_sectors(self) -> list[int]:
        if self._image is None:
            return []
        believed = self._durable if self._believed is None else self._believed
        return _differing_sectors(believed, self._image, self._sector_bytes)

    def _resize_durable(self, size: int) -> None:
        self._durable = self._durable[:size].ljust(size, b"\0")
        if self._believed is not None:
            self._believed = self._believed[:size].ljust(size, b"\0")
        self.reserved &= self.blocks_between(0, size)
        self._durable_reserved &= self.reserved

    def _write(self, sectors: list[int]) -> None:
        self._durable = self._patched(self._durable, sectors)
        if self._believed is not None:
            self._believed = self._patched(self._believed, sectors)
            if self._believed == self._durable:
                self._believed = None

    def _patched(self, old: bytes, sectors: list[int]) -> bytes:
        patched = bytearray(old)
        for start in sectors:
            stop = start + self._sector_bytes
            patched[start:stop] = self.image[start:stop]
        return bytes(patched)

    def _unreserved_data(self) -> int:
        content = self.content
        found = 0
        for block in range(_blocks(self.size)):
            start = block * BLOCK_BYTES
            # The last block may be a short one: what it lacks compares as zeros.
            if not self.reserved >> block & 1 and not _ZERO_BLOCK.startswith(
                content[start : start + BLOCK_BYTES]
            ):
                found |= 1 << block
        return found


class DirectoryNode:
    """A directory: its entries as programs see them, and as the disk has them."""

    def __init__(self, *, modified_ms: int) -> None:
        self.modified_ms = modified_ms
        self.entries: dict[str, Node] = {}
        self._durable: dict[str, Node] = {}

    def make_durable(self) -> None:
        """Bring creations and deletions to disk."""
        self._durable = dict(self.entries)

    def write_back(self, choose: Choose) -> None:
        """Bring some creations, deletions and contents to disk, as the kernel does."""
        for name in self._not_durable():
            if choose(2):
                _put(self._durable, name, self.entries.get(name))
        for name in sorted(self.entries):
            self.entries[name].write_back(choose)

    def after_kill(self) -> DirectoryNode:
        """Return the directory as the next process finds it; nothing is lost."""
        copies: dict[int, Node] = {}

        def copy_of(node: Node) -> Node:
            # An entry on both sides stays one file.
            if id(node) not in copies:
                copies[id(node)] = node.after_kill()
            return copies[id(node)]

        copy = DirectoryNode(modified_ms=self.modified_ms)
        copy.entries = {name: copy_of(node) for name, node in self.entries.items()}
        copy._durable = {name: copy_of(node) for name, node in self._durable.items()}
        return copy

    def after_power_cut(self, choose: Choose) -> DirectoryNode:
        """Return the directory as the next boot finds it."""
        found = {
            name: node for name, node in self._durable.items() if self.entries.get(name) is node
        }
        survivors = {name: found[name].after_power_cut(choose) for name in sorted(found)}
        for name in self._not_durable():
            _put(survivors, name, self._survivor(name, choose))
        copy = DirectoryNode(modified_ms=self.modified_ms)
        copy.entries = survivors
        copy.make_durable()
        return copy

    def _not_durable(self) -> list[str]:
        """Return the names whose entries differ, sorted so that choices can be replayed."""
        names = self.entries.keys() | self._durable.keys()
        return sorted(n for n in names if self.entries.get(n) is not self._durable.get(n))

    def _survivor(self, name: str, choose: Choose) -> Node | None:
        old, new = self._durable.get(name), self.entries.get(name)
        outcomes: list[Callable[[], Node | None]] = []
        if old is not None:
            outcomes.append(lambda: old.after_power_cut(choose))
        outcomes.append(lambda: None)
        if new is not None:
            if isinstance(new, FileNode) and not new.has_durable_size:
                outcomes.append(new.without_size)
            outcomes.append(lambda: new.after_power_cut(choose))
        return outcomes[choose(len(outcomes))]()


Node: TypeAlias = FileNode | DirectoryNode


def _put(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _torn(old: bytes, new: bytearray, choose: Choose, sector_bytes: int) -> bytes:
    """Return what a power cut leaves of a file that was being changed from `old` to `new`.

    Every mix of sectors is possible. Losing all or nothing, and losing everything behind a point as
    a log does that was written in order, are more frequent than by chance alone.
    """
    dirty = _differing_sectors(old, new, sector_bytes)
    left = bytearray(old)

    def write(start: int) -> None:
        left[start : start + sector_bytes] = new[start : start + sector_bytes]

    def tear(start: int) -> None:
        stop = min(start + sector_bytes, len(old))
        cut = start + choose(stop - start)
        if choose(2):
            left[cut:stop] = new[cut:stop]
        else:
            left[start:cut] = new[start:cut]

    fate_of_all = choose(4)
    if fate_of_all == 0:
        return old
    if fate_of_all == 1:
        return bytes(new)
    if fate_of_all == 2:
        reached = choose(len(dirty))
        for start in dirty[:reached]:
            write(start)
        tear(dirty[reached])
        return bytes(left)
    for place in range(0, len(dirty), _FATES_PER_CHOICE):
        group = dirty[place : place + _FATES_PER_CHOICE]
        # One choice for many sectors: test generators pay for each.
        fates = choose(_FATES ** len(group))
        for start in group:
            fates, fate = divmod(fates, _FATES)
            if fate == 1:
                write(start)
            elif fate == 2:
                tear(start)
    return bytes(left)


def _differing_sectors(
    old: bytes | bytearray, new: bytes | bytearray, sector_bytes: int
) -> list[int]:
    """Return where the sectors begin that differ, in order."""
    if old == new:
        return []
    step = max(_CHUNK_BYTES // sector_bytes, 1) * sector_bytes
    return [
        start
        for chunk in range(0, len(old), step)
        if old[chunk : chunk + step] != new[chunk : chunk + step]
        for start in range(chunk, min(chunk + step, len(old)), sector_bytes)
        if old[start : start + sector_bytes] != new[start : start + sector_bytes]
    ]


def _blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES)
