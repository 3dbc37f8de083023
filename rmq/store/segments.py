"""An ordered run of fixed-size files, each named by the offset of its first byte.

CommitLog and ConsumeQueue both lie on one. Files are mapped when they are first used, because most
files of a store with many queues are never read. Offsets count all bytes ever written; a
position is a byte inside one segment.
"""

from __future__ import annotations

import bisect
import logging
from typing import TYPE_CHECKING, Final

from rmq.errors import CorruptStoreError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmq.store.storage import MappedFile, Storage

NAME_DIGITS: Final = 20

logger = logging.getLogger(__name__)


def segment_name(first: int) -> str:
    """Return the file name of the segment that begins at offset `first`."""
    return f"{first:0{NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    """Tell whether a file name is that of a segment; anything else in the folder is foreign."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()


class Segment:
    """One file of the run."""

    __slots__ = ("_file", "_storage", "first", "is_deleted", "is_gone", "path", "reserved", "size")

    def __init__(
        self, storage: Storage, path: Path, first: int, size: int, file: MappedFile | None = None
    ) -> None:
        self.path = path
        self.first = first
        self.size = size
        self.reserved = 0
        """Up to which position room on disk is known to be there; set by the writer only."""
        self.is_deleted = False
        """It was taken out of the run, though the file may be there still."""
        self.is_gone = False
        """The file is deleted."""
        self._storage = storage
        self._file = file

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.first + self.size

    @property
    def file(self) -> MappedFile:
        if self._file is None:
            self._file = self._storage.open(self.path)
        return self._file

    @property
    def buffer(self) -> memoryview:
        return self.file.buffer

    def reserve(self, position: int, step: int) -> int:
        """Make sure there is room up to `position`, and some more; return the position up to which
        there is.
        """
        if position > self.reserved:
            stop = min(max(position, self.reserved + step), self.size)
            self.file.reserve(self.reserved, stop)
            self.reserved = stop
        return self.reserved

    def sync(self) -> None:
        """Make everything written so far durable. Blocks; may run in a thread.

        One that is not in use is opened for this only. One that is deleted meanwhile needs it no
        longer.
        """
        file = self._file
        try:
            if file is not None:
                file.sync()
                return
            file = self._storage.open(self.path)
            try:
                file.sync()
            finally:
                file.close()
        except StorageError:
            if not self.is_deleted:
                raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def delete(self) -> None:
        self.is_deleted = True
        self.close()
        self._storage.delete(self.path)
        self.is_gone = True


class Segments:
    """The run: contiguous segments in one or several directories."""

    def __init__(
        self,
        storage: Storage,
        directories: Sequence[Path],
        segment_bytes: int,
        *,
        parents: Sequence[Path] | None = None,
        unsynced_directories: dict[Path, None] | None = None,
    ) -> None:
        """With `parents`, for what can be built again, a directory is made without waiting for the
        disk: it is durable when these are synced. `unsynced_directories` may be shared by many
        runs.
        """
        self.directories = tuple(sorted(directories))
        self.segment_bytes = segment_bytes
        self.full_directories: frozenset[Path] = frozenset()
        """Directories on full disks: new segments go to the others while there are any."""
        self.unsynced_directories = {} if unsynced_directories is None else unsynced_directories
        """Directories in which something was created or deleted since the directory was synced.

        A power cut may undo either. The code that syncs them removes them from here. A dict, for
        its order.
        """
        self.had_hole = False
        """`load` found files behind a hole and deleted them."""
        self.end_on_disk = 0
        """Where the files end that `load` found; before `end` if the last one is too short."""
        self._storage = storage
        self._parents = parents
        self._segments: list[Segment] = []

    def load(self, *, size_key: str, ends_at_hole: bool = False) -> None:
        """Find the segments that are there; raise `CorruptStoreError` if they are no run.

        The last file may be too short: a crash while it was created or cut leaves it so. It stays
        as it is until `extend_last`. `size_key` is the setting that gives the size of a segment,
        for the hint.

        With `ends_at_hole`, for what can be built again, the run ends before a file that is missing
        or empty: a power cut can take the name or the size of any file whose directory was not
        synced. The files behind it are deleted.
        """
        found: dict[int, Path] = {}
        for directory in self.directories:
            for name in self._storage.names(directory):
                path = directory / name
                if not is_segment_name(name):
                    logger.warning("%s is no segment; it is left alone", path)
                    continue
                first = int(name)
                if first in found:
                    raise CorruptStoreError(
                        str(path),
                        f"the same segment is also {found[first]}",
                        hint="move one of the two out of the store; compare them first",
                    )
                found[first] = path
        firsts = sorted(found)
        sizes = [self._storage.size_of(found[first]) for first in firsts]
        if ends_at_hole:
            whole = self._count_before_hole(firsts, sizes)
            self.had_hole = whole < len(firsts)
            for first in reversed(firsts[whole:]):
                logger.warning("%s is not whole, or one before it; it is removed", found[first])
                self._storage.delete(found[first])
                self.unsynced_directories[found[first].parent] = None
            del firsts[whole:], sizes[whole:]
        for index, first in enumerate(firsts):
            path = found[first]
            is_short_last = index == len(firsts) - 1 and sizes[index] < self.segment_bytes
            if sizes[index] != self.segment_bytes and not is_short_last:
                raise self._wrong_size(path, sizes, index, size_key)
            if first % self.segment_bytes:
                raise CorruptStoreError(
                    str(path),
                    f"the name is not a multiple of {size_key}={self.segment_bytes}",
                    hint=f"set {size_key} to the size the store was written with",
                )
            if index and first != firsts[index - 1] + self.segment_bytes:
                raise CorruptStoreError(
                    str(path),
                    f"segment {segment_name(firsts[index - 1] + self.segment_bytes)} is missing"
                    " before it",
                    hint="put the missing file back (a slave or a backup has the same one), or"
                    " move the segments before the gap out of the store to give them up",
                )
        self._segments = [
            Segment(self._storage, found[first], first, self.segment_bytes) for first in firsts
        ]
        self.end_on_disk = firsts[-1] + sizes[-1] if firsts else 0

    def _count_before_hole(self, firsts: list[int], sizes: list[int]) -> int:
        for index, (first, size) in enumerate(zip(firsts, sizes, strict=True)):
            is_next = index == 0 or first == firsts[index - 1] + self.segment_bytes
            if size == 0 or (not is_next and first % self.segment_bytes == 0):
                return index
        return len(firsts)

    def _wrong_size(
        self, path: Path, sizes: list[int], index: int, size_key: str
    ) -> CorruptStoreError:
        # The last file may be short for another reason, and then it says nothing.
        whole = {*sizes[:-1], max(sizes)}
        if len(whole) == 1 and self.segment_bytes not in whole:
            hint = f"set {size_key}={whole.pop()}, the size the store was written with"
        else:
            hint = (
                f"put the file back from a slave or a backup; if {size_key} was changed, set it to"
                " the size the store was written with"
            )
        return CorruptStoreError(
            str(path),
            f"the file has {sizes[index]} bytes, a segment has {self.segment_bytes}",
            hint=hint,
        )

    def extend_last(self) -> None:
        """Give the last segment its size, if `load` found it too short."""
        if self.end_on_disk < self.end:
            segment = self._segments[-1]
            logger.warning(
                "%s has %d of %d bytes; the rest was never written and is added as zeros",
                segment.path,
                self.end_on_disk - segment.first,
                self.segment_bytes,
            )
            self._storage.resize(segment.path, self.segment_bytes)
            self.end_on_disk = segment.end

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def first(self) -> int:
        """The offset of the first byte there is, 0 when there is none."""
        return self._segments[0].first if self._segments else 0

    @property
    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    @property
    def end(self) -> int:
        """The offset behind the last segment."""
        return self._segments[-1].end if self._segments else 0

    def find(self, offset: int) -> Segment | None:
        """Return the segment that holds the byte at `offset`."""
        if not self._segments:
            return None
        index = (offset - self._segments[0].first) // self.segment_bytes
        return self._segments[index] if 0 <= index < len(self._segments) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segments that hold anything at or behind `offset`."""
        index = bisect.bisect_right(self._segments, offset, key=lambda segment: segment.end)
        return self._segments[index:]

    def create(self, first: int) -> Segment:
        """Create the file of the segment that begins at `first`; it joins the run by `add`."""
        segment = self.make(first)
        self.note(segment)
        return segment

    def make(self, first: int) -> Segment:
        """Do the part of `create` that blocks; a thread may, and `note` follows in the loop."""
        for directory in self.directories:
            # What a failed attempt left, if removing it failed as well.
            if self._storage.exists(left := directory / segment_name(first)):
                self._storage.delete(left)
        path = self._directory_for(first) / segment_name(first)
        if self._parents is None:
            self._storage.make_directory(path.parent)
        else:
            self._storage.add_directory(path.parent)
        file = self._storage.create(path, self.segment_bytes)
        return Segment(self._storage, path, first, self.segment_bytes, file)

    def note(self, segment: Segment) -> None:
        """Note what has to be synced for a new segment to stay."""
        self.unsynced_directories[segment.path.parent] = None
        if not self._segments and self._parents is not None:
            # Its directory may be new, too.
            self.unsynced_directories.update(dict.fromkeys(self._parents))

    def note_directories(self) -> None:
        """Note that it is not known which of the names of files and directories are on disk."""
        self.unsynced_directories.update(dict.fromkeys((*self.directories, *(self._parents or ()))))

    def add(self, segment: Segment) -> None:
        assert not self._segments or segment.first == self.end, (segment.first, self.end)
        self._segments.append(segment)

    def _directory_for(self, first: int) -> Path:
        usable = [path for path in self.directories if path not in self.full_directories]
        usable = usable or list(self.directories)
        return usable[first // self.segment_bytes % len(usable)]

    def drop_first(self) -> Segment:
        """Delete the oldest segment."""
        segment = self._segments[0]
        if segment.path.parent in self.unsynced_directories:
            # A power cut must not bring back the one before without this one.
            self._storage.sync_directory(segment.path.parent)
        segment.delete()
        self.unsynced_directories[segment.path.parent] = None
        del self._segments[0]
        return segment

    def detach_first(self) -> Segment:
        """Take the oldest segment out of the run; its file is still there."""
        return self._segments.pop(0)

    def drop_from(self, offset: int) -> None:
        """Delete the segments that begin at or behind `offset`, the last one first, durably.

        One that came back after a power cut would stand for a part of the log that is not there.
        """
        while self._segments and self._segments[-1].first >= offset:
            segment = self._segments.pop()
            segment.delete()
            # One by one: a power cut must not leave a later one without this.
            self._storage.sync_directory(segment.path.parent)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
