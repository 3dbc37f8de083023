"""Reads of messages: by queue offset, by time, by physical offset, by key.

Nothing is copied: results are read-only views into the segments. They stay valid while they are
held, also when the segment is deleted meanwhile. The rules of `get` are those of RocketMQ 4.9.8
DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import find_keys, find_unique_key
from rmq.model.record import BadRecordError, StoredRecord, decode_record
from rmq.model.record_layout import HOST_FLAGS, RECORD_BYTES_MIN, RECORD_HEADS, RECORD_PREFIX
from rmq.store.key_hash import TopicKeys
from rmq.store.layout import QUEUE_ENTRY

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmq.store.config import StoreConfig
    from rmq.store.dispatcher import StoreFiles

SCAN_ENTRIES_MIN: Final = 800
"""One `get` reads up to this many entries, even if it wants fewer messages."""
SCAN_ENTRIES_MAX: Final = 8_000
"""And no more than this many, whatever it wants: about 5 ms if no entry matches. The consumer goes
on behind them. (The clients of 4.9.8 want at most 1,024 messages.)
"""
RECORDS_REFUSED_MAX: Final = 400
"""One `get` looks into no more records that do not match, up to 50 µs each."""

_NOTHING: Final = memoryview(b"")
_QUERY_ROUNDS: Final = 3
_FIRST: Final = QueueOffset(0)
_SYS_FLAG_FIELD: Final = 7
_STORE_MS_FIELD: Final = 10
_read_prefix = RECORD_PREFIX.unpack_from
_iter_entries = QUEUE_ENTRY.iter_unpack


class GetStatus(enum.Enum):
    """How a `get` ended; the names are those of RocketMQ 4.9.8 GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"

    # Members are one of a kind, and looked up for every pull; Enum's own hash is ten times slower.
    __hash__ = object.__hash__


class MessageFilter(Protocol):
    """Chooses messages for a consumer, first by what the queue knows, then by the record."""

    def matches_tags_code(self, tags_code: int) -> bool: ...

    def matches_record(self, record: memoryview) -> bool: ...


class GetResult(msgspec.Struct, frozen=True):
    """The result of a `get`."""

    status: GetStatus
    next_offset: QueueOffset
    """Where the consumer should go on."""
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: tuple[memoryview, ...] = ()
    """The records; several that lie next to each other in the log may share one view."""
    count: int = 0
    size: int = 0
    suggests_slave: bool = False
    """The messages are so old that they are likely on disk: a slave should serve them."""
    behind_bytes: int = 0
    """How many bytes of the log lie behind the record of the last entry that was read."""


class MessageReads:
    """Reads of one store."""

    def __init__(self, files: StoreFiles, *, memory_bytes: int) -> None:
        self.keeps_offset = False
        """On a slave, an offset out of range is not corrected (`offsetCheckInSlave` off)."""
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._memory_bytes_in_all = memory_bytes
        self.reconfigure(files.config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings for the reads from now on."""
        self._config = config
        self._memory_bytes = int(self._memory_bytes_in_all * config.memory_ratio)

    # --- by queue offset -------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        count_max: int,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """Return messages of a queue from `offset` on."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return self._nothing(GetStatus.NO_MATCHED_LOGIC_QUEUE, offset, _FIRST, _FIRST, _FIRST)
        low, high = queue.min_offset, queue.next_offset
        if high == 0:
            return self._nothing(GetStatus.NO_MESSAGE_IN_QUEUE, offset, _FIRST, low, high)
        if offset < low:
            return self._nothing(GetStatus.OFFSET_TOO_SMALL, offset, low, low, high)
        if offset == high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, low, high)
        if offset > high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_BADLY, offset, high, low, high)
        entries = queue.entries(offset, max(SCAN_ENTRIES_MIN, min(count_max, SCAN_ENTRIES_MAX)))
        if entries is None:
            following = queue.start_of_next_segment(offset)
            return self._nothing(GetStatus.OFFSET_FOUND_NULL, offset, following, low, high)
        return self._collect(entries, offset, low, high, count_max, message_filter)

    def _nothing(
        self,
        status: GetStatus,
        offset: QueueOffset,
        corrected: QueueOffset,
        low: QueueOffset,
        high: QueueOffset,
    ) -> GetResult:
        next_offset = offset if self.keeps_offset else corrected
        return GetResult(status, next_offset, low, high)

    def _collect(
        self,
        entries: memoryview,
        offset: QueueOffset,
        low: QueueOffset,
        high: QueueOffset,
        count_max: int,
        message_filter: MessageFilter | None,
    ) -> GetResult:
        log, config = self._log, self._config
        end = log.readable
        in_memory_from = end - self._memory_bytes
        status = GetStatus.NO_MATCHED_MESSAGE
        runs: list[memoryview] = []
        run_start = run_end = -1
        # What is readable of the segment the last record was in: slicing it is a third of the price
        # of asking the log for every record.
        window, window_first, window_end = _NOTHING, 0, 0
        count = size_total = scanned = 0
        skip_below = -1
        physical = refused = 0
        for physical, size, tags_code in _iter_entries(entries):
            if physical < skip_below:
                scanned += 1
                continue
            if count:
                is_on_disk = physical < in_memory_from
                bytes_max = (
                    config.transfer_bytes_on_disk if is_on_disk else config.transfer_bytes_in_memory
                )
                messages_max = (
                    config.transfer_count_on_disk if is_on_disk else config.transfer_count_in_memory
                )
                if count >= count_max or count >= messages_max or size_total + size > bytes_max:
                    break
            scanned += 1
            if message_filter is not None and not message_filter.matches_tags_code(tags_code):
                if not count:
                    status = GetStatus.NO_MATCHED_MESSAGE
                continue
            record_end = physical + size
            if physical < window_first or record_end > window_end or size <= 0:
                found = log.view_from(physical) if size > 0 else None
                if found is None or size > len(found):
                    if not count:
                        status = GetStatus.MESSAGE_WAS_REMOVING
                    skip_below = physical - physical % config.segment_bytes + config.segment_bytes
                    continue
                window, window_first, window_end = found, physical, physical + len(found)
            elif physical == run_end and message_filter is None:
                # It follows the last one taken: the same view can hold both.
                runs[-1] = window[run_start - window_first : record_end - window_first]
                run_end = record_end
                count += 1
                size_total += size
                continue
            view = window[physical - window_first : record_end - window_first]
            if message_filter is not None and not message_filter.matches_record(view):
                if not count:
                    status = GetStatus.NO_MATCHED_MESSAGE
                refused += 1
                if refused == RECORDS_REFUSED_MAX:
                    break
                continue
            runs.append(view)
            run_start, run_end = physical, record_end
            count += 1
            size_total += size
            status = GetStatus.FOUND
            skip_below = -1
        return GetResult(
            status,
            offset + scanned,
            low,
            high,
            tuple(runs),
            count,
            size_total,
            end - physical > self._memory_bytes,
            end - physical,
        )

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: QueueOffset) -> bool:
        """Tell whether the message at a queue offset is so old that it likely left memory."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        return entry is not None and self._log.readable - entry[0] > self._memory_bytes

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        """Return the offset of the message stored nearest to a time, 0 if there is none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        return queue.offset_by_time(timestamp_ms, self._log.min_offset, self._store_ms_at)

    def store_time(self, topic: str, queue_id: int, queue_offset: QueueOffset) -> int:
        """Return when the message at a queue offset was stored, -1 if it is not there."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue is not None else None
        stored = self._store_ms_at(entry[0], entry[1]) if entry is not None else None
        return -1 if stored is None else stored

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return when the first message of a queue was stored, -1 if there is none."""
        queue = self._queues.get(topic, queue_id)
        return -1 if queue is None else self.store_time(topic, queue_id, queue.min_offset)

    def earliest_store_time_of_log(self) -> int:
        """Return when the first message of all was stored, -1 if there is none."""
        size = self.size_at(self._log.min_offset)
        stored = self._store_ms_at(self._log.min_offset, size) if size else None
        return -1 if stored is None else stored

    def _store_ms_at(self, physical: PhysicalOffset, size: int) -> int | None:
        view = self._log.view(physical, size)
        if view is None or len(view) < RECORD_BYTES_MIN:
            return None
        sys_flag = RECORD_HEADS[0].unpack_from(view)[_SYS_FLAG_FIELD]
        head = RECORD_HEADS[sys_flag & HOST_FLAGS]
        if len(view) < head.size:
            return None
        store_ms: int = head.unpack_from(view)[_STORE_MS_FIELD]
        return store_ms

    # --- by physical offset ----------------------------------------------------------------

    def size_at(self, physical: PhysicalOffset) -> int:
        """Return the size of the record at a physical offset, 0 if none begins there."""
        view = self._log.view(physical, RECORD_PREFIX.size)
        if view is None:
            return 0
        size: int = _read_prefix(view)[0]
        return size if size >= RECORD_BYTES_MIN and self._log.view(physical, size) else 0

    def record_at(self, physical: PhysicalOffset) -> StoredRecord | None:
        """Return the record at a physical offset, None if no sound one begins there."""
        size = self.size_at(physical)
        view = self._log.view(physical, size) if size else None
        if view is None:
            return None
        try:
            record = decode_record(view)
        except BadRecordError:
            return None
        return record if record.physical_offset == physical else None

    # --- by key ----------------------------------------------------------------------------

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return records of a topic that carry a key and were stored in a time range, in order.

        Takes as long as it takes, with a key of millions of messages seconds: `searching` does the
        same in steps.
        """
        steps = self.searching(topic, key, count_max, begin_ms, end_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: list[memoryview] = end.value
                return found

    def searching(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, list[memoryview]]:
        """Return records of a topic that carry a key and were stored in a time range, in order.

        Hash collisions are sorted out: each record really has the key. Yields after every few
        entries of the index; everything may change meanwhile.
        """
        if self._index is None:
            return []
        hashes, wanted = TopicKeys(topic), key.encode("utf-8", "replace")
        count_max = min(count_max, self._config.query_count_max)
        for _ in range(_QUERY_ROUNDS):
            offsets = sorted(
                (yield from self._index.query(hashes, wanted, count_max, begin_ms, end_ms))
            )
            if not offsets:
                break
            found: list[memoryview] = []
            for physical in dict.fromkeys(offsets):
                record = self.record_at(physical)
                if record is None or record.topic != topic:
                    continue
                if _carries(record, wanted):
                    view = self._log.view(physical, record.size)
                    if view is not None:
                        found.append(view)
            if found:
                return found
            # All of them were gone or others with the same hash: search earlier entries.
            first = self.record_at(offsets[0])
            if first is None or first.store_ms < begin_ms or first.store_ms >= end_ms:
                break
            end_ms = first.store_ms
        return []


def _carries(record: StoredRecord, key: bytes) -> bool:
    properties = record.properties_bytes
    return find_unique_key(properties) == key or key in find_keys(properties).split(b" ")
