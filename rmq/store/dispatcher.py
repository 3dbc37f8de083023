"""Dispatch: for every record of the log its entry in a ConsumeQueue and its keys in the index.

There is one path, `Dispatcher.dispatch`, and two ways to it: `Appender` hands over records it has
just written, and `catch_up` reads them back from the log: on a slave, after a failure, and in
recovery. Both give the same bytes, because both hand over what the log says and nothing else.

The watermark `dispatched` moves record by record, so that after an error the rest is done later. It
never passes the log's `readable`; only a recovery, which finds out where the log ends, reads ahead.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rmq.errors import StorageError, to_keep
from rmq.model import flags
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import (
    PAIR,
    decode_text,
    find_delay,
    find_keys,
    find_tags,
    find_unique_key,
)
from rmq.store.consume_queue import PutOutcome
from rmq.store.key_hash import TagCodes
from rmq.store.layout import QUEUE_ENTRY, QUEUE_ENTRY_BYTES
from rmq.store.log_scan import LogScan
from rmq.store.queue_table import is_legal_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.model.record import RecordHead
    from rmq.store.commit_log import CommitLog
    from rmq.store.config import StoreConfig
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.index_file import Index
    from rmq.store.queue_table import QueueTable

CATCH_UP_STEP_BYTES: Final = 128 * 1024
"""Bytes per step: a few milliseconds, in which a slave receives nothing else."""
_SCAN_BATCH: Final = 256

_TAGS: Final = b"TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
"""Their lengths stand as numbers where they are used: 5, 5 and 9."""
_PAIR_BYTE: Final = PAIR[0]
_UNQUEUED_FLAG: Final = flags.TRANSACTION_PREPARED
"""Prepared and rolled back messages have this bit; they are in no queue."""
_TRANSACTION_MASK: Final = flags.TRANSACTION_MASK
_ROLLBACK: Final = flags.TRANSACTION_ROLLBACK

logger = logging.getLogger(__name__)
_write_entry = QUEUE_ENTRY.pack_into


WrittenRecord: TypeAlias = "tuple[ConsumeQueue, PhysicalOffset, int, QueueOffset, int, int, bytes]"
"""A record as `dispatch` takes it: its queue, physical offset, size, queue offset, sysFlag, store
time and encoded properties. A plain tuple, because one is made for every message.
"""


class Dispatched(NamedTuple):
    """A record that got its entry in a queue, as `StoreListener.dispatched` gets it."""

    topic: str
    queue_id: int
    queue_offset: QueueOffset
    tags_code: int
    store_ms: int
    properties: bytes


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The log of one store, and what is built from it."""

    config: StoreConfig
    log: CommitLog
    queues: QueueTable
    index: Index | None
    """None: keys are not indexed."""


class QueueGapError(Exception):
    """The entries before a record are missing from its queue."""

    def __init__(
        self, queue: ConsumeQueue, physical: PhysicalOffset, queue_offset: QueueOffset
    ) -> None:
        super().__init__(
            f"queue {queue.queue_id} of {queue.topic} goes from {queue.begin} to"
            f" {queue.next_offset}, but the record at physical offset {physical} has queue offset"
            f" {queue_offset}"
        )
        self.queue = queue


class Dispatcher:
    """Builds queues and index from the log."""

    def __init__(self, files: StoreFiles) -> None:
        self.dispatched = PhysicalOffset(0)
        """Everything below this offset has its entries."""
        self.store_ms = 0
        """The store time of the record dispatched last."""
        self.error: StorageError | None = None
        """Why the last attempt to dispatch failed; a later `catch_up` that works clears it."""
        self.on_dispatched: Callable[[Dispatched], None] | None = None
        """See `StoreListener.dispatched`."""
        self.bound: Callable[[], PhysicalOffset] | None = None
        """Up to which offset of the log there may be entries at all; None is no bound.

        What lies behind it is in the log and in no queue: no consumer reads it. When it is set or
        moves, `catch_up` has to be called (`MessageStore.set_visible_bound`).
        """
        self.on_read_back: Callable[[int, int], None] | None = None
        """See `StoreListener.copied`."""
        self.fail_on_gap = False
        """Raise `QueueGapError` where entries are missing, also before the first one of a queue.

        Otherwise a gap is closed and a queue begun as a stock broker does it.
        """
        self._commit_log = files.log
        self._queues = files.queues
        self._index = files.index
        self._delays_ms = files.config.delay_levels_ms
        self._tag_codes = TagCodes({b"": 0})

    @property
    def lag_bytes(self) -> int:
        """How much of the log has no entries yet."""
        return self._commit_log.readable - self.dispatched

    def marks(self) -> str:
        """Return the order that the watermarks should have, with their values, for an assert."""
        return f"dispatched {self.dispatched} <= readable {self._commit_log.readable}"

    def dispatch(self, records: Sequence[WrittenRecord]) -> None:
        """Add the entries of records that follow each other in the log.

        After an error `dispatched` is where to begin again: at the record that failed, or at the
        first of them if it was the index.
        """
        # This runs for every message: PropertyFinder and ConsumeQueue.put are written out here for
        # the case that nothing is special.
        index = self._index
        is_indexed = index is not None
        tag_codes = self._tag_codes
        keyed: list[tuple[int, PhysicalOffset, int]] = []
        done = 0
        try:
            for queue, physical, size, queue_offset, sys_flag, store_ms, properties in records:
                if not sys_flag & _UNQUEUED_FLAG:
                    start = properties.rfind(_TAGS)
                    if start < 0:
                        tags_code = 0
                    else:
                        end = properties.find(PAIR, start)
                        tag = properties[start + 5 : end] if end >= 0 else properties[start + 5 :]
                        if not tag or (start and properties[start - 1] != _PAIR_BYTE):
                            tag = find_tags(properties)
                        tags_code = tag_codes[tag]
                    position = queue.position
                    if (
                        queue_offset == queue.next_offset
                        and position < queue.limit
                        and physical >= queue.max_physical
                        and queue.is_dirty
                        and not queue.is_schedule
                        and not queue.is_watched
                    ):
                        _write_entry(queue.buffer, position, physical, size, tags_code)
                        queue.position = position + QUEUE_ENTRY_BYTES
                        queue.next_offset = queue_offset + 1
                        queue.max_physical = physical + size
                    else:
                        self._put_in_queue(
                            queue, physical, size, queue_offset, store_ms, properties, tags_code
                        )
                if is_indexed and sys_flag & _TRANSACTION_MASK != _ROLLBACK:
                    start = properties.rfind(_UNIQUE_KEY)
                    if start >= 0:
                        end = properties.find(PAIR, start)
                        key = properties[start + 9 : end] if end >= 0 else properties[start + 9 :]
                        if not key or (start and properties[start - 1] != _PAIR_BYTE):
                            key = find_unique_key(properties)
                        if key:
                            keyed.append((queue.keys.index_hash(key), physical, store_ms))
                    start = properties.rfind(_KEYS)
                    if start >= 0:
                        end = properties.find(PAIR, start)
                        keys = properties[start + 5 : end] if end >= 0 else properties[start + 5 :]
                        if not keys or (start and properties[start - 1] != _PAIR_BYTE):
                            keys = find_keys(properties)
                        hash_of = queue.keys.index_hash
                        if b" " in keys:
                            keyed += [
                                (hash_of(key), physical, store_ms)
                                for key in keys.split(b" ")
                                if key
                            ]
                        elif keys:
                            keyed.append((hash_of(keys), physical, store_ms))
                done += 1
        finally:
            if index is not None and done:
                # All keys of these records at once; should that fail, all of it is done again, and
                # what is there already is skipped.
                count, done = done, 0
                index.put_records(keyed, records[count - 1][1])
                done = count
            if done:
                _, physical, size, _, _, store_ms, _ = records[done - 1]
                self.dispatched = physical + size
                self.store_ms = store_ms

    def _put_in_queue(
        self,
        queue: ConsumeQueue,
        physical: PhysicalOffset,
        size: int,
        queue_offset: QueueOffset,
        store_ms: int,
        properties: bytes,
        tags_code: int,
    ) -> None:
        if queue.is_schedule:
            tags_code = self._schedule_code(properties, store_ms, tags_code)
        # What is dispatched may be far behind what is appended, and of a topic deleted in between:
        # moving the end of the queue here must not move the offset that new messages get.
        assigned = queue.assigned
        if queue_offset == 0 and queue.next_offset and physical >= queue.max_physical:
            # Offsets count from 0 once only, so the topic was deleted before this record, and made
            # again. The entries are of the old one: a recovery, or a slave, has just built them.
            logger.warning(
                "queue %d of %s begins again at physical offset %d: its topic was made again",
                queue.queue_id,
                queue.topic,
                physical,
            )
            queue.clear()
            queue.assigned = assigned
        if self.fail_on_gap and not queue.begin <= queue_offset <= queue.next_offset:
            raise QueueGapError(queue, physical, queue_offset)
        outcome = queue.put(physical, size, tags_code, queue_offset)
        queue.assigned = assigned
        if outcome is PutOutcome.KNOWN:
            return
        if outcome is PutOutcome.GAP:
            self._close_gap(queue, physical, size, tags_code, queue_offset)
        if not queue.is_dirty:
            queue.is_dirty = True
            self._queues.dirty.append(queue)
        if queue.is_watched and self.on_dispatched is not None:
            self.on_dispatched(
                Dispatched(
                    queue.topic, queue.queue_id, queue_offset, tags_code, store_ms, properties
                )
            )

    def written_record(self, head: RecordHead) -> WrittenRecord | None:
        """Return a record read from the log as `dispatch` takes it, None if it has no queue."""
        queue = self._queues.by_field.get((head.topic, head.queue_id))
        if queue is None:
            topic = decode_text(head.topic)
            if not is_legal_topic(topic) or head.queue_id < 0:
                # Its directory might be any file; such a record can only come from elsewhere.
                logger.error(
                    "the record at physical offset %d is of topic %r, queue %d, which cannot be;"
                    " it is kept, but no consumer will get it",
                    head.physical_offset,
                    topic,
                    head.queue_id,
                )
                return None
            queue = self._queues.open(topic, head.queue_id)
        return (
            queue,
            head.physical_offset,
            head.size,
            head.queue_offset,
            head.sys_flag,
            head.store_ms,
            head.properties,
        )

    def dispatch_scan(
        self,
        scan: LogScan,
        *,
        bytes_max: float = math.inf,
        on_batch: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Dispatch what a walk over the log yields, some records at a time.

        Returns True if it stopped because of `bytes_max`. `on_batch` gets how many records
        there were, and their size.
        """
        start = self.dispatched
        batch: list[WrittenRecord] = []
        count = size = 0
        has_stopped = False
        for head in scan:
            count += 1
            size += head.size
            record = self.written_record(head)
            if record is not None:
                batch.append(record)
            if count >= _SCAN_BATCH:
                self.dispatch(batch)
                if on_batch is not None:
                    on_batch(count, size)
                batch, count, size = [], 0, 0
                if scan.offset - start >= bytes_max:
                    has_stopped = True
                    break
        self.dispatch(batch)
        if on_batch is not None:
            on_batch(count, size)
        self.dispatched = scan.offset
        return has_stopped

    def catch_up(self, bytes_max: int = CATCH_UP_STEP_BYTES) -> bool:
        """Dispatch what the log has beyond `dispatched`, about `bytes_max`; True if more is left.

        What lies behind the `bound` does not count, nor does a record through which it goes.
        A record that is not whole yet waits for the rest of it. On bytes that are no record the
        walk stops and says so: they are from outside, since what was appended here is sound.
        """
        log = self._commit_log
        stop = log.readable
        if self.bound is not None:
            stop = min(stop, self.bound())
        scan = LogScan(log.segments, self.dispatched, stop, verify_crc=False)
        try:
            has_stopped = self.dispatch_scan(scan, bytes_max=bytes_max, on_batch=self.on_read_back)
        except StorageError as exc:
            self.error = to_keep(exc)
            raise
        finally:
            if self._index is not None:
                self._index.publish()
        self.error = None
        assert self.dispatched <= log.readable, self.marks()
        if scan.bad is not None and not has_stopped:
            raise BadLogError(scan.offset, scan.bad)
        return has_stopped and scan.offset < stop

    def _schedule_code(self, properties: bytes, store_ms: int, tags_code: int) -> int:
        """Return when a delayed message is due; it stands in the place of the tags code."""
        try:
            level = min(int(find_delay(properties)), len(self._delays_ms))
        except ValueError:
            level = 0
        if level <= 0:
            return tags_code
        return store_ms + self._delays_ms[level - 1]

    def _close_gap(
        self,
        queue: ConsumeQueue,
        physical: PhysicalOffset,
        size: int,
        tags_code: int,
        queue_offset: QueueOffset,
    ) -> None:
        gap = QueueGapError(queue, physical, queue_offset)
        logger.error("%s; the entry follows the last one there is", gap)
        queue.put_after_gap(physical, size, tags_code)


class BadLogError(Exception):
    """The log has bytes that are no record before its end."""

    def __init__(self, offset: PhysicalOffset, reason: str) -> None:
        super().__init__(f"physical offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason
