"""Appends messages: encodes them into the log, assigns queue offsets and dispatches.

The unit of work is a list of messages that arrived together: they are encoded, joined and copied
into the mapping in one piece, then dispatched. One message at a time is the same with a list of
one. Nothing here waits: flushing is up to the caller.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.errors import DiskFullError, StorageError, to_keep
from rmq.model import flags
from rmq.model.crc import crc32
from rmq.model.limits import QUEUE_ID_MAX
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import PAIR
from rmq.model.record import PROPERTIES_BYTES_MAX, NewMessage
from rmq.model.record_layout import (
    BLANK_BYTES,
    HOST_FLAGS,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    RECORD_HEADS,
    RECORD_PREFIX,
)
from rmq.store.queue_table import is_legal_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.store.config import StoreConfig
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.dispatcher import Dispatcher, StoreFiles, WrittenRecord

JOIN_BYTES_MAX: Final = 16 * 1024
"""Longer bodies are copied into the mapping by themselves: joining would copy them twice."""

DISPATCHED_AT_ONCE: Final = 2_000
"""Batches of more messages are not dispatched with their append, but by `Dispatcher.catch_up`."""


_HEAD_PACKERS: Final = {bits: head.pack for bits, head in RECORD_HEADS.items()}
_HEAD_SIZES: Final = {
    bits: head.size + PROPERTIES_LENGTH.size for bits, head in RECORD_HEADS.items()
}
_BORN_FLAGS: Final = {HOST_V4_BYTES: 0, HOST_V6_BYTES: flags.BORN_HOST_V6}
_STORE_FLAGS: Final = {HOST_V4_BYTES: 0, HOST_V6_BYTES: flags.STORE_HOST_V6}
_LENGTHS_KNOWN: Final = 1024
_LENGTHS: Final = tuple(PROPERTIES_LENGTH.pack(length) for length in range(_LENGTHS_KNOWN))
_UNQUEUED_FLAG: Final = flags.TRANSACTION_PREPARED
_OTHER_FLAGS: Final = ~HOST_FLAGS


class AppendStatus(enum.Enum):
    """How an append ended; the names are those of RocketMQ 4.9.8 PutMessageStatus."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


_PUT_OK: Final = AppendStatus.PUT_OK
_UNQUEUED: Final = QueueOffset(0)
"""What a record that is in no queue has in the place of its queue offset."""


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The outcome for one message; the offsets are valid if it was appended."""

    status: AppendStatus
    physical_offset: PhysicalOffset = PhysicalOffset(-1)
    queue_offset: QueueOffset = QueueOffset(-1)
    size: int = 0
    store_ms: int = 0
    reason: str = ""
    """Why it was refused, as text."""

    @property
    def end_offset(self) -> PhysicalOffset:
        """The offset that must be flushed for this message to be on disk."""
        return self.physical_offset + self.size


class _BatchRecords(NamedTuple):
    """The records of a batch, ready to be written."""

    parts: list[bytes]
    written: list[WrittenRecord]
    size: int


class _RefusedBatch(Exception):
    """One message of a batch is refused, and with it all of them."""

    def __init__(self, refusal: AppendResult) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class BatchResult(msgspec.Struct, frozen=True, gc=False):
    """The outcome for a batch; the offsets are valid if it was appended."""

    status: AppendStatus
    physical_offsets: list[PhysicalOffset] = []
    queue_offset: QueueOffset = QueueOffset(-1)
    """That of the first message; the others follow."""
    size: int = 0
    store_ms: int = 0
    reason: str = ""
    """Why it was refused, as text."""

    @property
    def end_offset(self) -> PhysicalOffset:
        """The offset that must be flushed for the batch to be on disk."""
        return self.physical_offsets[0] + self.size


class Appender:
    """Writes messages into one store."""

    def __init__(self, files: StoreFiles, dispatcher: Dispatcher, store_host: bytes) -> None:
        self._log = files.log
        self._queues = files.queues
        self._dispatcher = dispatcher
        self._index = files.index
        self._store_host = store_host
        self._store_flag = _STORE_FLAGS[len(store_host)]
        self.room_error: DiskFullError | None = None
        """Why no segment could be begun; with `keeps_room_error` not tried again until reset."""
        self.keeps_room_error = False
        self._numbered: list[WrittenRecord] = []
        self.reconfigure(files.config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings for the appends from now on."""
        self._body_bytes_max = config.message_bytes_max
        # A record, or a batch, and the blank that ends its segment must fit into one segment.
        self._segment_room = config.segment_bytes - BLANK_BYTES
        self._record_bytes_max = min(config.record_bytes_max, self._segment_room)

    def append(
        self, messages: Sequence[NewMessage], now_ms: int, join_bytes_max: int = JOIN_BYTES_MAX
    ) -> list[AppendResult]:
        """Append messages one after the other; each has its own result.

        A message that was appended is in the log, even if dispatching it failed: then
        `Dispatcher.error` says why, and `Dispatcher.catch_up` does what is left.
        """
        try:
            return self._append(messages, now_ms, join_bytes_max)
        except BaseException:
            self._take_numbers_back()
            raise

    def _take_numbers_back(self) -> None:
        """Let the next messages have the queue offsets of those that did not get into the log.

        An append may fail anywhere when memory runs out.
        """
        for queue, physical, _, queue_offset, sys_flag, _, _ in reversed(self._numbered):
            if physical >= self._log.written and not sys_flag & _UNQUEUED_FLAG:
                queue.assigned = queue_offset
        self._numbered = []

    def _append(
        self, messages: Sequence[NewMessage], now_ms: int, join_bytes_max: int
    ) -> list[AppendResult]:
        log = self._log
        by_key = self._queues.by_key
        store_host, store_flag = self._store_host, self._store_flag
        position = start = log.written - log.segment_first
        capacity = len(log.buffer)
        base = log.segment_first
        results: list[AppendResult] = []
        parts: list[bytes] = []
        written: list[WrittenRecord] = []
        self._numbered = written
        failed_roll: StorageError | None = None
        for message in messages:
            queue = by_key.get((message.topic, message.queue_id))
            if queue is None:
                refusal = self._refusal_of_address(message)
                if refusal is not None:
                    results.append(refusal)
                    continue
                queue = self._queues.open(message.topic, message.queue_id)
            body, properties = message.body, message.properties
            body_length, properties_length = len(body), len(properties)
            born_host = message.born_host
            try:
                hosts = store_flag | _BORN_FLAGS[len(born_host)]
                sys_flag = message.sys_flag & _OTHER_FLAGS | hosts
                size = _HEAD_SIZES[hosts] + body_length + len(queue.topic_field) + properties_length
                if (
                    size > self._record_bytes_max
                    or body_length > self._body_bytes_max
                    or properties_length > PROPERTIES_BYTES_MAX
                ):
                    results.append(self._refusal_of_size(body_length, properties_length, size))
                    continue
                if position + size + BLANK_BYTES > capacity:
                    if parts:
                        self._write(parts, start, position)
                        parts, start = [], position
                    self._dispatch(written)
                    self._numbered = written = []
                    if failed_roll is not None:
                        raise failed_roll
                    self._roll()
                    position = start = 0
                    capacity, base = len(log.buffer), log.segment_first
                # Prepared and rolled back messages have this bit; they are in no queue.
                is_queued = not sys_flag & _UNQUEUED_FLAG
                queue_offset = queue.assigned if is_queued else _UNQUEUED
                head = _HEAD_PACKERS[hosts](
                    size,
                    MESSAGE_MAGIC,
                    crc32(body) & 0x7FFFFFFF,
                    message.queue_id,
                    message.flag,
                    queue_offset,
                    base + position,
                    sys_flag,
                    message.born_ms,
                    born_host,
                    now_ms,
                    store_host,
                    message.reconsume_times,
                    message.prepared_offset,
                    body_length,
                )
            except (struct.error, KeyError) as exc:
                reason = f"a field has a value the record cannot hold: {exc}"
                results.append(AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason))
                continue
            except StorageError as exc:
                # The other messages of this call need not try it again.
                failed_roll = exc
                results.append(
                    AppendResult(AppendStatus.CREATE_MAPPED_FILE_FAILED, reason=str(exc))
                )
                continue
            length_field = (
                _LENGTHS[properties_length]
                if properties_length < len(_LENGTHS)
                else PROPERTIES_LENGTH.pack(properties_length)
            )
            if body_length > join_bytes_max:
                if parts:
                    self._write(parts, start, position)
                    parts, start = [], position
                tail = b"".join((queue.topic_field, length_field, properties))
                try:
                    self._write_long(head, body, tail, position)
                except StorageError as exc:
                    results.append(AppendResult(AppendStatus.UNKNOWN_ERROR, reason=str(exc)))
                    continue
                start = position + size
            else:
                parts += (head, body, queue.topic_field, length_field, properties)
            physical = base + position
            written.append((queue, physical, size, queue_offset, sys_flag, now_ms, properties))
            if is_queued:
                queue.assigned = queue_offset + 1
            results.append(AppendResult(_PUT_OK, physical, queue_offset, size, now_ms))
            position += size
        if parts:
            self._write(parts, start, position)
        self._dispatch(written)
        return results

    def append_batch(self, messages: Sequence[NewMessage], now_ms: int) -> list[AppendResult]:
        """Append messages of one queue as a whole: all of them in one segment, or none.

        They get consecutive queue offsets. If one is refused, so are all, for the same reason.
        """
        log = self._log
        total = 0
        for message in messages:
            if (message.topic, message.queue_id) != (messages[0].topic, messages[0].queue_id):
                raise ValueError("a batch is for one queue of one topic")
            refusal = self._refusal_of(message)
            if refusal is not None:
                return [refusal] * len(messages)
            total += (
                _HEAD_SIZES[self._store_flag | _BORN_FLAGS[len(message.born_host)]]
                + len(message.body)
                + 1
                + len(message.topic)
                + len(message.properties)
            )
        if total > self._record_bytes_max:
            reason = f"the batch takes {total} bytes, the limit is {self._record_bytes_max}"
            refusal = AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)
            return [refusal] * len(messages)
        if total + BLANK_BYTES > log.room():
            try:
                self._roll()
            except StorageError as exc:
                failure = AppendResult(AppendStatus.CREATE_MAPPED_FILE_FAILED, reason=str(exc))
                return [failure] * len(messages)
        # Joined however long, so that a process killed meanwhile leaves all of it or nothing.
        results = self.append(messages, now_ms, self._record_bytes_max)
        assert all(result.status is AppendStatus.PUT_OK for result in results), results
        return results

    def append_entries(
        self, shared: NewMessage, entries: Sequence[tuple[int, bytes, bytes]], now_ms: int
    ) -> BatchResult:
        """Append a batch as `append_batch` does, given as clients send it: per message only flag,
        body and properties, everything else shared.

        The properties in `shared` are added behind each message's own; its body and flag are
        ignored. A batch of many messages is left to `Dispatcher.catch_up`.
        """
        refusal = self._refusal_of(shared)
        if refusal is not None:
            return BatchResult(refusal.status, reason=refusal.reason)
        if not entries:
            return BatchResult(AppendStatus.MESSAGE_ILLEGAL, reason="the batch is empty")
        log = self._log
        queue = self._queues.open(shared.topic, shared.queue_id)
        try:
            records = self._records_of(shared, entries, queue, log.written, now_ms)
            if records.size + BLANK_BYTES > log.room():
                self._roll()
                records = self._records_of(shared, entries, queue, log.written, now_ms)
        except _RefusedBatch as exc:
            return BatchResult(exc.refusal.status, reason=exc.refusal.reason)
        except StorageError as exc:
            return BatchResult(AppendStatus.CREATE_MAPPED_FILE_FAILED, reason=str(exc))
        written = records.written
        start = log.written - log.segment_first
        # Joined however long, so that a process killed meanwhile leaves all of it or nothing.
        self._write(records.parts, start, start + records.size)
        if not shared.sys_flag & _UNQUEUED_FLAG:
            queue.assigned += len(written)
        if len(written) <= DISPATCHED_AT_ONCE:
            self._dispatch(written)
        return BatchResult(
            _PUT_OK, [record[1] for record in written], written[0][3], records.size, now_ms
        )

    def _records_of(
        self,
        shared: NewMessage,
        entries: Sequence[tuple[int, bytes, bytes]],
        queue: ConsumeQueue,
        physical: PhysicalOffset,
        now_ms: int,
    ) -> _BatchRecords:
        """Encode a batch for an offset of the log; raise `_RefusedBatch`."""
        hosts = self._store_flag | _BORN_FLAGS[len(shared.born_host)]
        sys_flag = shared.sys_flag & _OTHER_FLAGS | hosts
        step = 0 if sys_flag & _UNQUEUED_FLAG else 1
        queue_offset = queue.assigned if step else _UNQUEUED
        pack_head = _HEAD_PACKERS[hosts]
        topic_field = queue.topic_field
        size_fixed = _HEAD_SIZES[hosts] + len(topic_field)
        born_ms, born_host, store_host = shared.born_ms, shared.born_host, self._store_host
        queue_id, times, prepared = shared.queue_id, shared.reconsume_times, shared.prepared_offset
        tail = shared.properties
        pair_and_tail = PAIR + tail if tail else b""
        body_bytes_max = self._body_bytes_max
        parts: list[bytes] = []
        written: list[WrittenRecord] = []
        start = physical
        for flag, body, properties in entries:
            if not properties:
                properties = tail
            elif properties[-1:] == PAIR:
                properties += tail
            else:
                properties += pair_and_tail
            body_length, properties_length = len(body), len(properties)
            size = size_fixed + body_length + properties_length
            if body_length > body_bytes_max or properties_length > PROPERTIES_BYTES_MAX:
                raise _RefusedBatch(self._refusal_of_size(body_length, properties_length, size))
            try:
                head = pack_head(
                    size,
                    MESSAGE_MAGIC,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    flag,
                    queue_offset,
                    physical,
                    sys_flag,
                    born_ms,
                    born_host,
                    now_ms,
                    store_host,
                    times,
                    prepared,
                    body_length,
                )
            except struct.error as exc:
                reason = f"a field has a value the record cannot hold: {exc}"
                refusal = AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)
                raise _RefusedBatch(refusal) from None
            length_field = (
                _LENGTHS[properties_length]
                if properties_length < _LENGTHS_KNOWN
                else PROPERTIES_LENGTH.pack(properties_length)
            )
            parts += (head, body, topic_field, length_field, properties)
            written.append((queue, physical, size, queue_offset, sys_flag, now_ms, properties))
            queue_offset += step
            physical += size
        total = physical - start
        if total > self._segment_room:
            reason = f"the batch takes {total} bytes, the limit is {self._segment_room}"
            raise _RefusedBatch(AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason))
        return _BatchRecords(parts, written, total)

    def _write(self, parts: list[bytes], start: int, stop: int) -> None:
        """Copy whole records into the log.

        Size and magic of the first come last: until they are there, a recovery finds nothing, so
        that a process killed while copying leaves all of these records or none.
        """
        data = memoryview(b"".join(parts))
        log = self._log
        buffer = log.buffer
        first = start + RECORD_PREFIX.size
        buffer[first:stop] = data[RECORD_PREFIX.size :]
        buffer[start:first] = data[: RECORD_PREFIX.size]
        log.advance(stop)

    def _write_long(self, head: bytes, body: bytes, tail: bytes, start: int) -> None:
        """Copy one record with a long body into the log, its head last."""
        log = self._log
        body_start = start + len(head)
        log.write_at(body_start, (body, tail))
        log.buffer[start:body_start] = head
        log.advance(body_start + len(body) + len(tail))

    def _dispatch(self, written: list[WrittenRecord]) -> None:
        """Dispatch what was written, unless something before it, or its bound, must come first."""
        dispatcher = self._dispatcher
        if not written or dispatcher.dispatched != written[0][1]:
            return
        if self._log.readable != self._log.written:
            return
        if dispatcher.bound is not None and dispatcher.bound() < self._log.written:
            return
        try:
            dispatcher.dispatch(written)
        except StorageError as exc:
            dispatcher.error = to_keep(exc)
        assert dispatcher.dispatched <= self._log.readable, dispatcher.marks()

    def _roll(self) -> None:
        """Begin the next segment; the blank at the end of this one needs no dispatch."""
        log, dispatcher = self._log, self._dispatcher
        is_all_dispatched = dispatcher.dispatched == log.written
        if self.room_error is not None and self.keeps_room_error:
            raise self.room_error
        try:
            log.roll()
        except DiskFullError as exc:
            self.room_error = to_keep(exc)
            raise
        if is_all_dispatched and log.readable == log.written:
            dispatcher.dispatched = log.written

    def _refusal_of(self, message: NewMessage) -> AppendResult | None:
        """Return why `append` would refuse a message."""
        refusal = self._refusal_of_address(message)
        if refusal is not None:
            return refusal
        try:
            hosts = self._store_flag | _BORN_FLAGS[len(message.born_host)]
            body_length, properties_length = len(message.body), len(message.properties)
            size = _HEAD_SIZES[hosts] + body_length + 1 + len(message.topic) + properties_length
            _HEAD_PACKERS[hosts](
                0,
                MESSAGE_MAGIC,
                0,
                message.queue_id,
                message.flag,
                0,
                0,
                message.sys_flag,
                message.born_ms,
                message.born_host,
                0,
                self._store_host,
                message.reconsume_times,
                message.prepared_offset,
                body_length,
            )
        except (struct.error, KeyError) as exc:
            reason = f"a field has a value the record cannot hold: {exc}"
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)
        if (
            size > self._record_bytes_max
            or body_length > self._body_bytes_max
            or properties_length > PROPERTIES_BYTES_MAX
        ):
            return self._refusal_of_size(body_length, properties_length, size)
        return None

    def _refusal_of_address(self, message: NewMessage) -> AppendResult | None:
        if not is_legal_topic(message.topic):
            reason = (
                f"topic {message.topic[:200]!r} is not 1 to 127 of the characters a-z A-Z 0-9 _ - %"
                " |"
            )
        elif not 0 <= message.queue_id <= QUEUE_ID_MAX:
            reason = f"queue id {message.queue_id} is not between 0 and {QUEUE_ID_MAX}"
        else:
            return None
        return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)

    def _refusal_of_size(self, body_length: int, properties_length: int, size: int) -> AppendResult:
        if properties_length > PROPERTIES_BYTES_MAX:
            return AppendResult(
                AppendStatus.PROPERTIES_SIZE_EXCEEDED,
                reason=f"the properties have {properties_length} bytes,"
                f" the limit is {PROPERTIES_BYTES_MAX}",
            )
        return AppendResult(
            AppendStatus.MESSAGE_ILLEGAL,
            reason=f"the body has {body_length} bytes and the record {size}, the limits are"
            f" {self._body_bytes_max} and {self._record_bytes_max}",
        )
