"""The ConsumeQueue: where the messages of one queue of a topic lie in the CommitLog.

Twenty bytes per message, in order, so that a queue offset is an address: entry n is at byte 20 n.
Everything in it can be built again from the CommitLog; the rules of building are those of RocketMQ
4.9.8 ConsumeQueue. Bytes behind the last entry are zero (a stock broker leaves old entries there;
they are cleared when the store is opened).
"""

from __future__ import annotations

import enum
import logging
import threading
from typing import TYPE_CHECKING, Final

from rmq.errors import StorageError
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import FILLER_SIZE, QUEUE_ENTRY, QUEUE_ENTRY_BYTES
from rmq.store.segments import Segment, Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmq.store.storage import Storage

RESERVE_STEP_BYTES: Final = 64 * 1024
_RECOVER_SEGMENTS: Final = 3
_DIRECTORIES_ABOVE: Final = 3
"""Those of the topic, of all queues and of the store: the first file of a queue may be new in all
of them.
"""
_FILLER: Final = QUEUE_ENTRY.pack(0, FILLER_SIZE, 0)

logger = logging.getLogger(__name__)
_write_entry = QUEUE_ENTRY.pack_into
_read_entry = QUEUE_ENTRY.unpack_from


class PutOutcome(enum.Enum):
    """What `put` did with an entry."""

    PUT = "put"
    KNOWN = "known"
    GAP = "gap"
    """Entries before it are missing; it was not added."""


class ConsumeQueue:
    """One queue of one topic."""

    def __init__(
        self,
        storage: Storage,
        directory: Path,
        topic: str,
        queue_id: int,
        segment_bytes: int,
        *,
        unsynced_directories: dict[Path, None] | None = None,
    ) -> None:
        """`directory` is `<root>/consumequeue/<topic>/<queue id>`."""
        self.topic = topic
        self.queue_id = queue_id
        encoded = topic.encode()
        self.topic_field = bytes((len(encoded),)) + encoded
        """The topic as records hold it, length first."""
        self.keys = TopicKeys(topic)
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.min_offset = QueueOffset(0)
        self.next_offset = QueueOffset(0)
        """The queue offset of the entry to come: the max offset of the queue."""
        self.assigned = QueueOffset(0)
        """The queue offset that the next message appended to the log gets."""
        self.max_physical = PhysicalOffset(-1)
        """The end of the last record that has an entry."""
        self.is_dirty = False
        self.is_deleted = False
        """No file is made for it any longer."""
        self.is_watched = False
        """Whether `StoreListener.dispatched` is called for its new entries."""
        self.segments = Segments(
            storage,
            [directory],
            segment_bytes,
            parents=directory.parents[:_DIRECTORIES_ABOVE],
            unsynced_directories=unsynced_directories,
        )
        self._storage = storage
        self._directory = directory
        # Where the next entry goes. `Dispatcher` writes there itself when nothing is special.
        self.buffer = memoryview(b"")
        self.position = 0
        self.limit = 0
        self._synced = 0
        self._making = threading.Lock()
        """Held while the first file is made or deleted: a thread may make it ahead."""
        self._ahead: Segment | None = None
        """The first file, made before there is an entry."""

    # --- writing ---------------------------------------------------------------------------

    def put(
        self, physical: PhysicalOffset, size: int, tags_code: int, queue_offset: QueueOffset
    ) -> PutOutcome:
        """Add the entry of a record, unless it is there already."""
        if physical + size <= self.max_physical:
            return PutOutcome.KNOWN
        if queue_offset != self.next_offset:
            if queue_offset < self.next_offset:
                return PutOutcome.KNOWN
            if self.segments.last is not None:
                return PutOutcome.GAP
            self._begin_at(queue_offset)
        position = self.position
        if position >= self.limit:
            position = self._make_room()
        _write_entry(self.buffer, position, physical, size, tags_code)
        self.position = position + QUEUE_ENTRY_BYTES
        self.next_offset = queue_offset + 1
        self.max_physical = physical + size
        return PutOutcome.PUT

    def put_after_gap(self, physical: PhysicalOffset, size: int, tags_code: int) -> None:
        """Add an entry although some before it are missing: it goes where they begin.

        So does a stock broker. Its queue offset then differs from the one in the record.
        """
        self.put(physical, size, tags_code, self.next_offset)

    def _begin_at(self, queue_offset: QueueOffset) -> None:
        """Begin a queue whose first messages are gone: fillers stand for them in the first file."""
        first = queue_offset * QUEUE_ENTRY_BYTES
        segment_first = first - first % self.segments.segment_bytes
        segment = self._first_segment(segment_first)
        position = first - segment_first
        self._reserve_or_delete(segment, position)
        segment.buffer[:position] = _FILLER * (position // QUEUE_ENTRY_BYTES)
        self.segments.add(segment)
        self.buffer = segment.buffer
        # The room for the first entry is made when it comes.
        self.position = self.limit = position
        self.min_offset = queue_offset
        self.next_offset = queue_offset
        self.assigned = max(self.assigned, self.next_offset)
        self._synced = segment_first

    def _make_room(self) -> int:
        """Reserve more of the file, or begin the next one; return where the entry goes."""
        segment = self.segments.last
        if segment is None or self.position >= segment.size:
            make = self._first_segment if segment is None else self.segments.create
            segment = make(self.next_offset * QUEUE_ENTRY_BYTES)
            self._reserve_or_delete(segment, QUEUE_ENTRY_BYTES)
            self.segments.add(segment)
            self.buffer = segment.buffer
            self.position = 0
        limit = segment.reserve(self.position + QUEUE_ENTRY_BYTES, RESERVE_STEP_BYTES)
        # Whole entries only: a step may end inside one.
        self.limit = limit - limit % QUEUE_ENTRY_BYTES
        return self.position

    @property
    def begin(self) -> QueueOffset:
        """The queue offset of the first entry in the files, fillers included."""
        return QueueOffset(self.segments.first // QUEUE_ENTRY_BYTES)

    @property
    def has_file(self) -> bool:
        """Tell whether the next entry needs no directory and no first file to be made."""
        return len(self.segments) > 0 or self._ahead is not None

    def make_first_file(self) -> None:
        """Make the first file before there is an entry. Blocks; a thread may do it.

        Several threads may, and the queue may get its first entry, or be deleted, meanwhile.
        """
        with self._making:
            if not self.has_file and not self.is_deleted:
                segment = self.segments.make(0)
                self._reserve_or_delete(segment, QUEUE_ENTRY_BYTES)
                self._ahead = segment

    def _first_segment(self, first: int) -> Segment:
        """Return the first file of the queue: the one that was made ahead, or a new one."""
        with self._making:
            segment = self._ahead
            if segment is None or first:
                self._delete_ahead()
                segment = self.segments.make(first)
            self._ahead = None
        self.segments.note(segment)
        return segment

    def _delete_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.delete()

    def _reserve_or_delete(self, segment: Segment, position: int) -> None:
        """Make sure a new segment has room; if not, it is made again, and must not be there."""
        is_new = segment.reserved == 0
        try:
            segment.reserve(position, RESERVE_STEP_BYTES)
        except StorageError:
            segment.delete()
            raise
        if is_new:
            segment.file.advise_random()

    # --- flushing --------------------------------------------------------------------------

    @property
    def dirty_bytes(self) -> int:
        return self.next_offset * QUEUE_ENTRY_BYTES - self._synced

    @property
    def synced_bytes(self) -> int:
        """Up to which byte offset the entries are known to be on disk."""
        return self._synced

    def dirty_segments(self) -> list[Segment]:
        """Return the segments that hold entries not yet synced."""
        return self.segments.from_offset(self._synced) if self.dirty_bytes > 0 else []

    def mark_synced(self, next_offset: QueueOffset) -> None:
        """Note that the entries below `next_offset` are on disk."""
        self._synced = max(self._synced, next_offset * QUEUE_ENTRY_BYTES)

    # --- reading ---------------------------------------------------------------------------

    def entries(self, queue_offset: QueueOffset, count: int) -> memoryview | None:
        """Return up to `count` entries from `queue_offset` on, not beyond their segment.

        None if the segment is gone. The view stays valid while it is held.
        """
        offset = queue_offset * QUEUE_ENTRY_BYTES
        segment = self.segments.find(offset)
        if segment is None or queue_offset >= self.next_offset:
            return None
        start = offset - segment.first
        stop = min(
            segment.size,
            start + count * QUEUE_ENTRY_BYTES,
            self.next_offset * QUEUE_ENTRY_BYTES - segment.first,
        )
        return segment.buffer[start:stop]

    def entry(self, queue_offset: QueueOffset) -> tuple[PhysicalOffset, int, int] | None:
        """Return physical offset, size and tags code of one entry."""
        view = self.entries(queue_offset, 1)
        return _read_entry(view) if view else None

    def start_of_next_segment(self, queue_offset: QueueOffset) -> QueueOffset:
        """Return the first queue offset of the segment behind the one of `queue_offset`."""
        per_segment = self.segments.segment_bytes // QUEUE_ENTRY_BYTES
        return queue_offset + (per_segment - queue_offset % per_segment)

    def offset_by_time(
        self,
        timestamp_ms: int,
        log_min: PhysicalOffset,
        store_ms_at: Callable[[PhysicalOffset, int], int | None],
    ) -> QueueOffset:
        """Return the entry whose record was stored nearest to a time, as 4.9.8 chooses it.

        An exact hit if there is one; otherwise the nearer neighbour, the earlier of two equally
        near. `store_ms_at` gives the store time of the record at (physical offset, size). Where a
        stock broker picks the segment to search by the time of its file, this reads the records:
        the file's time is lost when a store is copied.
        """
        segment = self._segment_by_time(timestamp_ms, log_min, store_ms_at)
        if segment is None:
            return QueueOffset(0)
        first = segment.first // QUEUE_ENTRY_BYTES
        low = max(first, self.min_offset)
        high = min(segment.end // QUEUE_ENTRY_BYTES, self.next_offset) - 1
        left: tuple[int, int] | None = None
        right: tuple[int, int] | None = None
        below = -1
        while low <= high:
            middle = (low + high) // 2
            physical, size, _ = _read_entry(
                segment.buffer, middle * QUEUE_ENTRY_BYTES - segment.first
            )
            if physical < log_min or size == FILLER_SIZE:
                low = middle + 1
                below = middle
                continue
            stored = store_ms_at(physical, size)
            if stored is None:
                return QueueOffset(0)
            if stored == timestamp_ms:
                return QueueOffset(middle)
            if stored > timestamp_ms:
                high, right = middle - 1, (middle, stored)
            else:
                low, left = middle + 1, (middle, stored)
        if left is None:
            return QueueOffset(right[0] if right is not None else max(below, 0))
        if right is None:
            return QueueOffset(left[0])
        is_right_nearer = timestamp_ms - left[1] > right[1] - timestamp_ms
        return QueueOffset(right[0] if is_right_nearer else left[0])

    def _segment_by_time(
        self,
        timestamp_ms: int,
        log_min: PhysicalOffset,
        store_ms_at: Callable[[PhysicalOffset, int], int | None],
    ) -> Segment | None:
        """Return the first segment whose last record is not older than a time, else the last."""
        for segment in self.segments:
            if segment.end > self.next_offset * QUEUE_ENTRY_BYTES:
                break
            physical, size, _ = _read_entry(segment.buffer, segment.size - QUEUE_ENTRY_BYTES)
            if physical < log_min or size == FILLER_SIZE:
                continue
            stored = store_ms_at(physical, size)
            if stored is not None and stored >= timestamp_ms:
                return segment
        return self.segments.last

    # --- recovery and retention ------------------------------------------------------------

    def load(self) -> None:
        """Find the files; nothing is known of their contents until one of the recoveries."""
        self.segments.load(size_key="mappedFileSizeConsumeQueue", ends_at_hole=True)
        self.segments.extend_last()

    def recover(self) -> None:
        """Find the end as 4.9.8 does: the first entry without a size, in the last three files."""
        end = 0
        segments = list(self.segments)[-_RECOVER_SEGMENTS:]
        for segment in segments:
            end = segment.first
            count = _leading_entries(segment.buffer)
            end += count * QUEUE_ENTRY_BYTES
            if end < segment.end:
                break
        self._set_end(QueueOffset(end // QUEUE_ENTRY_BYTES))
        if segments:
            self.segments.note_directories()

    def recover_to(self, physical: PhysicalOffset) -> None:
        """Find the end by a recovery point: entries of records below `physical` are on disk.

        They are followed by zeros or by entries of later records, so that a binary search finds the
        last of them.
        """
        while (segment := self.segments.last) is not None and len(self.segments) > 1:
            first_physical, first_size, _ = _read_entry(segment.buffer, 0)
            if first_size > 0 and first_physical < physical:
                break
            self.segments.drop_from(segment.first)
        if segment is None:
            self._set_end(QueueOffset(0))
            return
        count = _entries_below(segment, physical)
        self._set_end(QueueOffset(segment.first // QUEUE_ENTRY_BYTES + count))
        if count == 0:
            # The file came after the point, and its name may not be on disk.
            self.segments.note_directories()
        self.mark_synced(self.next_offset)

    def end_below(self, physical: PhysicalOffset) -> QueueOffset:
        """Return the queue offset behind the last entry of a record that begins below `physical`.

        `recover_to` ends the queue there.
        """
        for segment in reversed(list(self.segments)):
            count = _entries_below(segment, physical)
            if count or segment is self.segments[0]:
                return QueueOffset(segment.first // QUEUE_ENTRY_BYTES + count)
        return QueueOffset(0)

    def step_back(
        self, physical: PhysicalOffset, is_true: Callable[[QueueOffset, PhysicalOffset, int], bool]
    ) -> None:
        """Find the end again by reading every entry: they ascend, and stay below `physical`.

        Then drop entries at the end until one is right, by its queue offset, physical and size.
        """
        end = min(self._end_of_row(physical), self.next_offset)
        while end > self.segments.first // QUEUE_ENTRY_BYTES:
            last = QueueOffset(end - 1)
            entry = self.entry(last)
            assert entry is not None, end
            if entry[1] == FILLER_SIZE or is_true(last, entry[0], entry[1]):
                break
            end = last
        if end != self.next_offset:
            self._set_end(end)

    def _end_of_row(self, physical: PhysicalOffset) -> QueueOffset:
        last = -1
        for segment in self.segments:
            first = segment.first // QUEUE_ENTRY_BYTES
            for place, (found, size, _) in enumerate(QUEUE_ENTRY.iter_unpack(segment.buffer)):
                if size == FILLER_SIZE:
                    continue
                if size <= 0 or not last < found <= physical - size:
                    return QueueOffset(first + place)
                last = found
        return QueueOffset(self.segments.end // QUEUE_ENTRY_BYTES)

    def truncate(self, physical: PhysicalOffset) -> None:
        """Drop the entries of records at or behind `physical`."""
        end = self.next_offset
        while end > self.segments.first // QUEUE_ENTRY_BYTES:
            last = QueueOffset(end - 1)
            entry = self.entry(last)
            if entry is not None and (entry[0] < physical or entry[1] == FILLER_SIZE):
                break
            end = last
        if end != self.next_offset:
            self._set_end(end)

    def clear_tail(self) -> None:
        """Set what lies behind the last entry to zero, so that it never counts as an entry."""
        end = self.next_offset * QUEUE_ENTRY_BYTES
        segment = self.segments.find(end)
        if segment is not None and not segment.file.is_clear_from(end - segment.first):
            segment.file.clear_from(end - segment.first)
            segment.reserved = 0
            self.limit = self.position

    def _set_end(self, next_offset: QueueOffset) -> None:
        end = next_offset * QUEUE_ENTRY_BYTES
        self.next_offset = next_offset
        self.segments.drop_from(max(end, self.segments.first + 1) if end else 0)
        self.max_physical = PhysicalOffset(-1)
        last = self.segments.last
        if last is None:
            self.next_offset = QueueOffset(0)
            self.buffer, self.position, self.limit = memoryview(b""), 0, 0
        else:
            self.buffer = last.buffer
            last.file.advise_random()
            self.position = self.limit = end - last.first
            last.reserved = 0
            entry = self.entry(QueueOffset(next_offset - 1)) if self.position else None
            if entry is not None and entry[1] != FILLER_SIZE:
                self.max_physical = entry[0] + entry[1]
        self.assigned = self.next_offset
        self._synced = min(self._synced, self.next_offset * QUEUE_ENTRY_BYTES)

    def correct_min_offset(self, log_min: PhysicalOffset) -> None:
        """Move the min offset to the first entry whose record the log still has."""
        for segment in self.segments:
            low = 0
            high = min(segment.size, self.next_offset * QUEUE_ENTRY_BYTES - segment.first)
            high = end = high // QUEUE_ENTRY_BYTES
            while low < high:
                middle = (low + high) // 2
                physical, size, _ = _read_entry(segment.buffer, middle * QUEUE_ENTRY_BYTES)
                if physical < log_min or size == FILLER_SIZE:
                    low = middle + 1
                else:
                    high = middle
            if low < end:
                self.min_offset = QueueOffset(segment.first // QUEUE_ENTRY_BYTES + low)
                return
        self.min_offset = self.next_offset

    def last_entries(self) -> Iterator[tuple[int, PhysicalOffset]]:
        """Yield each segment's first offset and the physical offset of its last entry."""
        for segment in self.segments:
            stop = min(segment.end, self.next_offset * QUEUE_ENTRY_BYTES) - segment.first
            if stop > 0:
                physical, _, _ = _read_entry(segment.buffer, stop - QUEUE_ENTRY_BYTES)
                yield segment.first, PhysicalOffset(physical)

    def clear(self) -> None:
        """Remove all entries, to build them again."""
        self._set_end(QueueOffset(0))
        self.min_offset = QueueOffset(0)

    def retire(self) -> None:
        """Make no file for this queue any longer: it is deleted, and its files are elsewhere."""
        with self._making:
            self.is_deleted = True
        for segment in self.segments:
            segment.is_deleted = True

    def delete(self) -> None:
        """Remove the queue's files, and its directory unless it contains other files."""
        with self._making:
            self.is_deleted = True
            self._delete_ahead()
        self.clear()
        if not self._storage.names(self._directory):
            self._storage.delete(self._directory)

    def close(self) -> None:
        self.buffer = memoryview(b"")
        self.limit = 0
        with self._making:
            self.is_deleted = True
            if self._ahead is not None:
                self._ahead.close()
        self.segments.close()


def _entries_below(segment: Segment, physical: PhysicalOffset) -> int:
    """Return how many entries of records that begin below `physical` a segment begins with.

    Zeros or entries of later records follow them.
    """
    low, high = 0, segment.size // QUEUE_ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        found, size, _ = _read_entry(segment.buffer, middle * QUEUE_ENTRY_BYTES)
        if size > 0 and found < physical:
            low = middle + 1
        else:
            high = middle
    return low


def _leading_entries(buffer: memoryview) -> int:
    """Return how many entries with an offset and a size a segment begins with."""
    count = 0
    for physical, size, _ in QUEUE_ENTRY.iter_unpack(buffer):
        if physical < 0 or size <= 0:
            break
        count += 1
    return count
