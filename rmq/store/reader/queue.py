"""The ConsumeQueue of one queue in a store directory, for reading only.

Entries count only if the log confirms them. Behind the last real entry a stock broker
leaves zeros, and after a recovery also entries of messages that are gone; so the end of a queue is
found from behind: the last entry whose record lies in the log and says that it belongs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.layout import FILLER_SIZE, QUEUE_ENTRY, QUEUE_ENTRY_BYTES
from rmq.store.reader.files import FileGoneError, FilePool, SegmentFile, list_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK_ENTRIES: Final = 4096


class QueueEntry(NamedTuple):
    """One message of a queue: where its record is."""

    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    size: int
    tags_code: int
    """The hash of the tag; for a delayed message the time of its delivery."""


class QueueFiles:
    """The segments of one ConsumeQueue."""

    def __init__(self, files: FilePool, directory: Path, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.segments: list[SegmentFile] = []
        self.foreign: list[Path] = []
        self._files = files
        self.refresh()

    def refresh(self) -> None:
        """Read the directory again."""
        self.segments, self.foreign = list_segments([self.directory])

    @property
    def first_offset(self) -> QueueOffset:
        """The queue offset of the first entry in the files, real or not."""
        return QueueOffset(self.segments[0].first // QUEUE_ENTRY_BYTES if self.segments else 0)

    @property
    def file_end(self) -> QueueOffset:
        """The queue offset behind the last segment."""
        return QueueOffset(self.segments[-1].end // QUEUE_ENTRY_BYTES if self.segments else 0)

    def path_of(self, queue_offset: QueueOffset) -> Path:
        """Return the file that holds an entry, or the directory if there is none."""
        place = queue_offset * QUEUE_ENTRY_BYTES
        for segment in self.segments:
            if segment.first <= place < segment.end:
                return segment.path
        return self.directory

    # --- entries ---------------------------------------------------------------------------

    def entries(self, start: QueueOffset, stop: QueueOffset) -> Iterator[QueueEntry]:
        """Yield what the files contain from `start` to `stop`, real entries or not.

        Segments that are deleted before their turn are skipped; one that is missing between
        others is a `CorruptStoreError`.
        """
        offset = max(start, self.first_offset)
        while offset < min(stop, self.file_end):
            chunk = self.read(offset, min(stop - offset, CHUNK_ENTRIES))
            if not chunk:
                if offset >= self.first_offset:
                    raise self._missing(offset)
                offset = self.first_offset
                continue
            yield from chunk
            offset = chunk[-1].queue_offset + 1

    def read(self, start: QueueOffset, count: int) -> list[QueueEntry]:
        """Return up to `count` entries from `start` on, not beyond their segment."""
        place = start * QUEUE_ENTRY_BYTES
        segment = next((each for each in self.segments if each.first <= place < each.end), None)
        if segment is None:
            return []
        position = place - segment.first
        try:
            data = self._files.read(segment.path, position, count * QUEUE_ENTRY_BYTES)
        except FileGoneError:
            self.refresh()
            return []
        whole = len(data) - len(data) % QUEUE_ENTRY_BYTES
        return [
            QueueEntry(start + number, *fields)
            for number, fields in enumerate(QUEUE_ENTRY.iter_unpack(data[:whole]))
        ]

    def _missing(self, queue_offset: QueueOffset) -> CorruptStoreError:
        return CorruptStoreError(
            str(self.directory),
            f"the file with queue offset {queue_offset} is missing, but earlier and later ones are"
            " there",
            hint="ConsumeQueues are built again from the log when consumequeue is moved away and"
            " the broker is started",
        )

    # --- bounds ----------------------------------------------------------------------------

    def min_offset(self, log_min: PhysicalOffset) -> QueueOffset:
        """Return the queue offset of the first entry whose record the log still has.

        Physical offsets grow along a queue; fillers come first, and count as gone.
        """
        for segment in self.segments:
            low = QueueOffset(segment.first // QUEUE_ENTRY_BYTES)
            end = high = QueueOffset(segment.end // QUEUE_ENTRY_BYTES)
            while low < high:
                middle = QueueOffset((low + high) // 2)
                entry = self.read(middle, 1)
                if entry and is_gone(entry[0], log_min):
                    low = middle + 1
                else:
                    high = middle
            if low < end:
                return low
        return self.file_end

    def max_offset(
        self, log_end: PhysicalOffset, is_right: Callable[[QueueEntry], bool]
    ) -> QueueOffset:
        """Return the queue offset behind the last entry whose record ends at or below `log_end`.

        `is_right` tells whether the record of an entry belongs to it.
        """
        for segment in reversed(self.segments):
            first = QueueOffset(segment.first // QUEUE_ENTRY_BYTES)
            stop = self._written_end(segment)
            while stop > first:
                start = max(first, QueueOffset(stop - CHUNK_ENTRIES))
                for entry in reversed(self.read(start, stop - start)):
                    if entry.size == FILLER_SIZE and entry.physical_offset == 0:
                        return entry.queue_offset + 1
                    if entry.physical_offset + entry.size <= log_end and is_right(entry):
                        return entry.queue_offset + 1
                stop = start
        return self.first_offset

    def _written_end(self, segment: SegmentFile) -> QueueOffset:
        """Return the queue offset of the first entry of a segment that was never written."""
        low = QueueOffset(segment.first // QUEUE_ENTRY_BYTES)
        high = QueueOffset(segment.end // QUEUE_ENTRY_BYTES)
        while low < high:
            middle = QueueOffset((low + high) // 2)
            entry = self.read(middle, 1)
            if entry and is_written(entry[0]):
                low = middle + 1
            else:
                high = middle
        return low


def is_written(entry: QueueEntry) -> bool:
    """Tell an entry from the zeros behind the last one, by the rule of a stock recovery."""
    return entry.physical_offset >= 0 and entry.size > 0


def is_gone(entry: QueueEntry, log_min: PhysicalOffset) -> bool:
    """Tell whether an entry stands for a message that the log has no longer."""
    return is_written(entry) and (
        entry.physical_offset < log_min
        or (entry.physical_offset == 0 and entry.size == FILLER_SIZE)
    )
