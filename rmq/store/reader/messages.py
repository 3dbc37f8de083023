"""One queue of a store directory, its entries together with their records.

What a queue has is decided by entries and log together, see `rmq.store.reader.queue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.layout import QUEUE_ENTRY_BYTES
from rmq.store.reader.queue import QueueEntry, QueueFiles, is_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.model.record import RecordHead, StoredRecord
    from rmq.store.reader.log import LogFiles, OnBad


class QueueBounds(NamedTuple):
    """What a queue has: messages from `min_offset` up to, and without, `max_offset`."""

    topic: str
    queue_id: int
    min_offset: QueueOffset
    max_offset: QueueOffset

    @property
    def entry_count(self) -> int:
        return self.max_offset - self.min_offset


class QueueReader:
    """One queue, read against a log that ends at a given offset."""

    def __init__(self, queue: QueueFiles, log: LogFiles, log_end: PhysicalOffset) -> None:
        self._queue = queue
        self._log = log
        self._log_end = log_end
        self._max_offset: QueueOffset | None = None

    def bounds(self) -> QueueBounds:
        """Return what the queue has."""
        queue = self._queue
        if self._max_offset is None:
            self._max_offset = queue.max_offset(self._log_end, self._belongs)
        start = min(queue.min_offset(self._log.min_offset), self._max_offset)
        return QueueBounds(
            queue.topic, queue.queue_id, QueueOffset(start), QueueOffset(self._max_offset)
        )

    def entries(
        self, start: QueueOffset | None = None, stop: QueueOffset | None = None
    ) -> Iterator[QueueEntry]:
        """Yield the entries of messages from `start` to `stop`, as far as the queue has them."""
        bounds = self.bounds()
        first = bounds.min_offset if start is None else max(start, bounds.min_offset)
        last = bounds.max_offset if stop is None else min(stop, bounds.max_offset)
        for entry in self._queue.entries(first, last):
            if not is_gone(entry, self._log.min_offset):
                yield entry

    def messages(
        self, start: QueueOffset | None, stop: QueueOffset | None, on_bad: OnBad | None
    ) -> Iterator[StoredRecord]:
        """Yield the records of these entries; see `Reader.messages`."""
        for entry in self.entries(start, stop):
            try:
                record = self._record_of(entry)
            except CorruptStoreError as bad:
                if on_bad is None:
                    raise
                on_bad(bad)
                continue
            if record is not None:
                yield record

    def has(self, head: RecordHead) -> bool:
        """Tell whether a record has its entry."""
        return any(
            entry.physical_offset == head.physical_offset
            for entry in self._queue.read(head.queue_offset, 1)
        )

    def _belongs(self, entry: QueueEntry) -> bool:
        """Tell whether an entry is that of the record it points to; its body is not read."""
        start = entry.physical_offset
        if not self._log.min_offset <= start < self._log_end:
            return is_gone(entry, self._log.min_offset)
        try:
            heads = list(self._log.heads(start, start + entry.size))
        except CorruptStoreError:
            return False
        return len(heads) == 1 and self._is_here(entry, heads[0].topic, heads[0])

    def _is_here(self, entry: QueueEntry, topic: bytes, record: RecordHead | StoredRecord) -> bool:
        return (
            record.queue_offset == entry.queue_offset
            and record.queue_id == self._queue.queue_id
            and record.size == entry.size
            and topic == self._queue.topic.encode()
        )

    def _record_of(self, entry: QueueEntry) -> StoredRecord | None:
        """Return the record of an entry; None if it expired meanwhile."""
        offset = entry.physical_offset
        record = self._log.record_at(offset, self._log_end, entry.size)
        if record is None and offset < self._log.min_offset:
            return None
        if record is not None and self._is_here(entry, record.topic.encode(), record):
            return record
        found = (
            "has no record"
            if record is None
            else f"has {record.size} bytes with offset {record.queue_offset} of queue"
            f" {record.queue_id} of {record.topic}"
        )
        raise CorruptStoreError(
            str(self._queue.path_of(entry.queue_offset)),
            f"the entry with queue offset {entry.queue_offset} is for {entry.size} bytes where the"
            f" log {found}",
            offset=offset,
            hint="rmq store verify lists all damage; ConsumeQueues are built again from the log"
            " when consumequeue is moved away and the broker is started",
        )

    def offset_by_time(self, store_ms: int) -> QueueOffset:
        """Return the queue offset of the message stored nearest to a time; see `Reader`."""
        bounds = self.bounds()
        low, high = int(bounds.min_offset), bounds.max_offset - 1
        for segment in self._queue.segments:
            last = QueueOffset(segment.end // QUEUE_ENTRY_BYTES - 1)
            if low <= last < high:
                if self._store_ms(last) >= store_ms:
                    high = last
                else:
                    low = last + 1
        left: tuple[int, QueueOffset] | None = None
        right: tuple[int, QueueOffset] | None = None
        while low <= high:
            middle = QueueOffset((low + high) // 2)
            stored = self._store_ms(middle)
            if stored == store_ms:
                return middle
            if stored > store_ms:
                high, right = middle - 1, (stored - store_ms, middle)
            else:
                low, left = middle + 1, (store_ms - stored, middle)
        # Of two equally near ones the left one is the smaller tuple.
        nearest = min(
            (side for side in (left, right) if side is not None), default=(0, QueueOffset(0))
        )
        return nearest[1]

    def _store_ms(self, queue_offset: QueueOffset) -> int:
        for entry in self._queue.read(queue_offset, 1):
            record = self._record_of(entry)
            if record is not None:
                return record.store_ms
        return 0  # expired meanwhile, so older than what is there
