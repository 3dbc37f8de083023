"""The CommitLog: all messages of a broker, one after the other, over segments.

It knows bytes and offsets, not queues: `append.Appender` encodes messages into it, a slave adds raw
bytes, and readers take views out of it. Three watermarks, `flushed <= readable <= written`, whose
order is asserted wherever one of them moves:

    written    where the next byte goes
    readable   readers may read below it; less than `written` only while a transient pool is in use
    flushed    everything below it is known to be on disk

A segment's room on disk is reserved when it is created, so that a full disk is an error here and
not the end of the process. The next segment is made ahead of need if a task calls `create_spare`,
and pages are brought in ahead of the writer if a task acts on `touch_wanted`; without such tasks,
an append does both when it needs them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final, Protocol

from rmq.errors import LogGapError, StorageError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record_layout import BLANK, BLANK_BYTES, BLANK_MAGIC
from rmq.store.config import MIB
from rmq.store.segments import Segment, Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.store.config import StoreConfig
    from rmq.store.storage import MappedFile, Storage
    from rmq.store.transient_pool import TransientPool

TOUCH_STEP_BYTES: Final = 8 * MIB
TOUCH_LEAD_BYTES: Final = 4 * MIB
RAW_TOUCH_MIN_BYTES: Final = 64 * 1024
RAW_TOUCH_BYTES: Final = 2 * MIB

logger = logging.getLogger(__name__)


class LogReads(Protocol):
    """The log as the rest of a broker sees it: watermarks, and bytes that never change."""

    @property
    def segments(self) -> Segments: ...

    @property
    def min_offset(self) -> PhysicalOffset: ...

    @property
    def written(self) -> PhysicalOffset: ...

    @property
    def readable(self) -> PhysicalOffset: ...

    @property
    def flushed(self) -> PhysicalOffset: ...

    @property
    def uncommitted(self) -> int: ...

    def view(self, offset: PhysicalOffset, size: int) -> memoryview | None: ...

    def view_from(self, offset: PhysicalOffset) -> memoryview | None: ...

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes: ...


class CommitLog:
    """The log of one store."""

    def __init__(
        self, config: StoreConfig, storage: Storage, pool: TransientPool | None = None
    ) -> None:
        self.segments = Segments(storage, config.commit_log_paths, config.segment_bytes)
        self.written = PhysicalOffset(0)
        self.flushed = PhysicalOffset(0)
        self.readable = PhysicalOffset(0)
        self.buffer = memoryview(b"")
        """What is written into: the mapping of the last segment, or its buffer of the pool."""
        self.segment_first = PhysicalOffset(0)
        """The offset at which `buffer` begins."""
        self.cuts = 0
        """How many times the log was given another end."""
        self._config = config
        self._storage = storage
        self._pool = pool
        self._pooled: dict[PhysicalOffset, memoryview] = {}
        self._spare: Segment | None = None
        self._spare_guard = threading.Lock()
        self._touched = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings from now on; sizes and paths stay."""
        self._config = config

    @property
    def min_offset(self) -> PhysicalOffset:
        return PhysicalOffset(self.segments.first)

    def load(self) -> None:
        """Find the segments. The last one may be short until `segments.extend_last`."""
        self.segments.load(size_key="mappedFileSizeCommitLog")

    # --- writing ---------------------------------------------------------------------------

    def room(self) -> int:
        """Return how many bytes the current segment has left; 0 before the first append."""
        return len(self.buffer) - (self.written - self.segment_first)

    def advance(self, position: int) -> None:
        """Note that the bytes of `buffer` up to `position` are written."""
        self.written = written = self.segment_first + position
        if not self._pooled:
            self.readable = written
        assert self.flushed <= self.readable <= written, self._marks()

    def _marks(self) -> str:
        return f"flushed {self.flushed} <= readable {self.readable} <= written {self.written}"

    def write_at(self, position: int, parts: Sequence[bytes | memoryview]) -> None:
        """Put long data at a position of the current segment, as into `buffer`."""
        segment = self.segments.last
        assert segment is not None
        if segment.first in self._pooled:
            for part in parts:
                self.buffer[position : position + len(part)] = part
                position += len(part)
            return
        segment.file.write_at(position, parts)
        # Writing it brings in the pages it needs.
        stop = position + sum(map(len, parts))
        self._touched = max(self._touched, stop + TOUCH_LEAD_BYTES + 1)

    def roll(self) -> None:
        """Close the current segment with a blank, if there is one, and begin the next.

        Nothing is changed if the next segment cannot be made.
        """
        room = self.room()
        next_first = self.written + room
        # If a thread is making it, wait for that: making another one would take as long.
        with self._spare_guard:
            segment = self._take_spare(next_first) or self._create(next_first)
            if room >= BLANK_BYTES:
                position = self.written - self.segment_first
                if self.segment_first in self._pooled:
                    # Its buffer was used before.
                    self.buffer[position:] = bytes(room)
                BLANK.pack_into(self.buffer, position, room, BLANK_MAGIC)
            self.written = next_first
            full = self.segments.last
            if full is not None and self._config.warm_up:
                full.file.unlock_memory()
            self._enter(segment)

    def append_raw(self, offset: PhysicalOffset, data: bytes | memoryview) -> None:
        """Add bytes of another log at `offset`, which must be the end of this one.

        An empty log takes the beginning of any segment: a slave begins where its master says. Not
        the middle of one: what comes before it would be read as the end of the log.
        """
        if offset != self.written:
            self.begin_at(offset)
        view = memoryview(data)
        while len(view):
            room = self.raw_room(len(view))
            room[:] = view[: len(room)]
            self.raw_written(len(room))
            view = view[len(room) :]

    def raw_room(self, size_max: int) -> memoryview:
        """Return where the next bytes of another log go: at most `size_max`, in one segment."""
        room = self.room()
        if room == 0:
            self.roll()
            room = self.room()
        position = self.written - self.segment_first
        if position + size_max > self._touched and size_max >= RAW_TOUCH_MIN_BYTES:
            # A slave that catches up is faster than the task that brings pages in ahead of it; page
            # faults one by one cost half of its time.
            self._touch_inline(position)
        return self.buffer[position : position + min(size_max, room)]

    def _touch_inline(self, position: int) -> None:
        segment = self.segments.last
        if segment is not None and segment.first == self.segment_first and not self._pooled:
            stop = min(position + RAW_TOUCH_BYTES, segment.size)
            segment.file.touch(position, stop)
            self._touched = max(self._touched, stop)

    def raw_written(self, size: int) -> None:
        """Note that `size` bytes are written where `raw_room` said."""
        assert 0 <= size <= self.room(), (size, self.room())
        self.advance(self.written - self.segment_first + size)

    def begin_at(self, offset: PhysicalOffset) -> None:
        """Let an empty log begin at `offset`, the beginning of a segment."""
        if self.written or len(self.segments) or offset % self.segments.segment_bytes:
            raise LogGapError(offset, self.written)
        segment = self._create(offset)
        self.flushed = self.readable = offset
        self.written = offset
        self._enter(segment)

    def _enter(self, segment: Segment) -> None:
        if segment.first not in {known.first for known in list(self.segments)[-2:]}:
            self.segments.add(segment)
        self.segment_first = first = PhysicalOffset(segment.first)
        self.buffer = segment.buffer
        self._touched = self.written - first
        borrowed = self._pooled.get(first)
        if borrowed is None and self._pool is not None and self.written == first:
            borrowed = self._pool.borrow()
        if borrowed is not None:
            self._pooled[first] = borrowed
            self.buffer = borrowed
        if not self._pooled:
            self.readable = self.written
        assert self.flushed <= self.readable <= self.written, self._marks()

    # --- segments made ahead ---------------------------------------------------------------

    def wants_spare(self) -> bool:
        """Tell whether the next segment is not there yet."""
        return self._spare is None and len(self.segments) > 0

    def create_spare(self) -> None:
        """Make the segment after the current one. Blocks; may run in a thread."""
        with self._spare_guard:
            last = self.segments.last
            if self._spare is None and last is not None:
                self._spare = self._create(PhysicalOffset(last.end))
                if self._config.warm_up:
                    self._warm_up(self._spare)

    def _take_spare(self, first: PhysicalOffset) -> Segment | None:
        spare, self._spare = self._spare, None
        if spare is not None and spare.first != first:
            spare.delete()
            return None
        return spare

    def discard_spare(self) -> None:
        """Remove the segment made ahead; a stock broker does so on a clean stop, too."""
        with self._spare_guard:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.delete()

    def _create(self, first: PhysicalOffset) -> Segment:
        segment = self.segments.create(first)
        try:
            segment.reserve(segment.size, segment.size)
            self._storage.sync_directory(segment.path.parent)
            self.segments.unsynced_directories.pop(segment.path.parent, None)
        except StorageError:
            segment.delete()
            raise
        return segment

    def _warm_up(self, segment: Segment) -> None:
        segment.file.touch(0, segment.size)
        try:
            segment.file.lock_memory()
        except StorageError as exc:
            logger.warning("%s; %s", exc, exc.hint)

    def touch_wanted(self) -> tuple[MappedFile, int, int] | None:
        """Return the file and the range to touch next, so that appends find their pages there."""
        segment = self.segments.last
        if segment is None or self._touched >= segment.size:
            return None
        position = self.written - segment.first
        if self._touched - position > TOUCH_LEAD_BYTES:
            return None
        start = max(self._touched, position)
        stop = min(start + TOUCH_STEP_BYTES, segment.size)
        self._touched = stop
        return segment.file, start, stop

    def attention_at(self) -> PhysicalOffset:
        """Return the value of `written` at which pages or the next segment are due."""
        segment = self.segments.last
        if segment is None:
            return self.written
        if self._touched >= segment.size:
            return PhysicalOffset(segment.end)
        return PhysicalOffset(segment.first + self._touched - TOUCH_LEAD_BYTES)

    # --- the transient pool ----------------------------------------------------------------

    @property
    def uncommitted(self) -> int:
        """Bytes that are in the pool only."""
        return self.written - self.readable

    def commit(self) -> None:
        """Copy what is in the pool into the files; readers see it from now on."""
        for first in sorted(self._pooled):
            segment = self.segments.find(first)
            assert segment is not None, first
            start = max(self.readable, first) - first
            stop = min(self.written, segment.end) - first
            segment.buffer[start:stop] = self._pooled[first][start:stop]
            self.readable = first + stop
            if stop == segment.size and self._pool is not None:
                self._pool.give_back(self._pooled.pop(first))
        if not self._pooled:
            self.readable = self.written
        assert self.flushed <= self.readable <= self.written, self._marks()

    # --- flushing --------------------------------------------------------------------------

    def dirty_segments(self, until: PhysicalOffset) -> list[Segment]:
        """Return the segments with bytes below `until` that may not be on disk."""
        return [
            segment for segment in self.segments.from_offset(self.flushed) if segment.first < until
        ]

    def mark_flushed(self, until: PhysicalOffset) -> None:
        assert until <= self.readable, f"flushed {until} <= readable {self.readable}"
        self.flushed = max(self.flushed, until)

    # --- reading ---------------------------------------------------------------------------

    def view(self, offset: PhysicalOffset, size: int) -> memoryview | None:
        """Return `size` bytes from `offset` on, or None if they are not all there.

        The view is read-only and stays valid while it is held, also when the segment expires.
        """
        segment = self.segments.find(offset)
        end = offset + size
        if segment is None or end > self.readable or end > segment.end or size <= 0:
            return None
        start = offset - segment.first
        return segment.buffer[start : start + size].toreadonly()

    def view_from(self, offset: PhysicalOffset) -> memoryview | None:
        """Return what is readable from `offset` to the end of its segment."""
        segment = self.segments.find(offset)
        if segment is None or offset >= self.readable:
            return None
        stop = min(segment.end, self.readable)
        return segment.buffer[offset - segment.first : stop - segment.first].toreadonly()

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes:
        """Return the SHA-256 of a range. Blocks while its pages are read; may run in a thread."""
        # The views are taken first: while they are held, no segment goes away beneath them.
        views: list[memoryview] = []
        offset = start
        while offset < stop:
            view = self.view_from(offset)
            if view is None:
                break
            views.append(view[: stop - offset])
            offset += len(views[-1])
        if offset != stop:
            raise StoreUnavailableError(
                f"the log goes from {self.min_offset} to {self.readable}, not from {start} to"
                f" {stop}"
            )
        found = hashlib.sha256()
        for view in views:
            found.update(view)
        return found.digest()

    # --- recovery --------------------------------------------------------------------------

    def set_end(self, end: PhysicalOffset, *, flushed: PhysicalOffset, clear: bool = True) -> None:
        """Make `end` the end of the log: later segments go, and later bytes if `clear`.

        What lies below `flushed` is known to be on disk. The rest may be in the page cache only:
        the process that wrote it was killed before it was flushed.
        """
        self.cuts += 1
        last = self.segments.find(end)
        if last is None and self.segments.end == end:
            last = self.segments.last
        keep_from = last.first + 1 if last is not None else 0
        self.segments.drop_from(keep_from)
        if self._pool is not None:
            for first in [first for first in self._pooled if first >= keep_from]:
                self._pool.give_back(self._pooled.pop(first))
        if last is not None:
            # The process that created it may have been killed before it got to this.
            self._storage.sync_directory(last.path.parent)
        self.written = self.readable = end
        self.flushed = min(flushed, end)
        if last is None:
            self.buffer, self.segment_first = memoryview(b""), end
            return
        position = end - last.first
        if position < last.size:
            if clear:
                # Not checked first: that would also read the room that was reserved and never
                # written.
                last.file.clear_from(position)
            last.reserved = position
            last.reserve(last.size, last.size)
        self._enter(last)

    def close(self) -> None:
        self.buffer = memoryview(b"")
        self.segment_first = self.written
        with self._spare_guard:
            if self._spare is not None:
                self._spare.close()
                self._spare = None
        self.segments.close()
