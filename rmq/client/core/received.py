"""Messages as consumers get them, decoded from the body of a pull in one pass. Pure.

Consumers live on the speed of this: a message of 128 bytes takes about 1.5 us. So only what every
consumer needs is decoded at once. Properties, hosts and ids are worked out when they are asked for,
and compressed bodies are inflated then.

A record that is not sound ends the decoding with `BadRecordError`. A sound record whose body cannot
be read (damaged, or compressed in a way that is not known here) is a message nevertheless: only its
`body` raises `UnreadableBodyError`. A listener that asks for it fails as with any other error: the
message is retried and ends among the dead letters, while those behind it go on. (A 4.9.8 client
drops such a message and all that came with it, without a word.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from rmq.errors import RmqError
from rmq.model import flags
from rmq.model.compression import DecompressError, decompressed
from rmq.model.crc import crc32
from rmq.model.names import retry_topic
from rmq.model.properties import (
    KEY_SEPARATOR,
    PropertyFinder,
    decode_properties,
    decode_text,
    find_delay,
    find_keys,
    find_tags,
    find_unique_key,
)
from rmq.model.queues import MessageQueue
from rmq.model.record import TOPIC_BYTES_MAX, BadRecordError, message_id, unpack_host
from rmq.model.record_layout import (
    HOST_FLAGS,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    RECORD_BYTES_MIN,
    RECORD_HEAD_V4,
    RECORD_HEADS,
    Record,
)
from rmq.remoting.addresses import format_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import SubscriptionData


class UnreadableBodyError(RmqError):
    """The body of one message cannot be read; its stored bytes are in `raw_body`."""

    def __init__(self, message: ReceivedMessage, reason: str, *, hint: str | None = None) -> None:
        queue = message.queue
        super().__init__(
            f"the body of message {message.message_id} (topic {queue.topic}, broker"
            f" {queue.broker_name}, queue {queue.queue_id}, offset {message.queue_offset})"
            f" cannot be read: {reason}"
        )
        self.message_id = message.message_id
        self.queue = queue
        self.queue_offset = message.queue_offset
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return self.with_hint


class BadMessagesError(BadRecordError):
    """The body of a pull is sound up to a place, and not behind it."""

    def __init__(
        self, reason: str, messages: list[ReceivedMessage], next_offset: int | None
    ) -> None:
        """`next_offset` follows the last sound record; None if already the first is bad."""
        super().__init__(reason)
        self.messages = messages
        self.next_offset = next_offset


# Where the fields of a record's fixed part are in the tuple that a head unpacks to.
_AT: Final = {field.name: index for index, field in enumerate(Record.subcons)}
_SIZE: Final = _AT["total_size"]
_MAGIC: Final = _AT["magic"]
_BODY_CRC: Final = _AT["body_crc"]
_QUEUE_ID: Final = _AT["queue_id"]
_FLAG: Final = _AT["flag"]
_QUEUE_OFFSET: Final = _AT["queue_offset"]
_PHYSICAL_OFFSET: Final = _AT["physical_offset"]
_SYS_FLAG: Final = _AT["sys_flag"]
_BORN_MS: Final = _AT["born_ms"]
_BORN_HOST: Final = _AT["born_host"]
_STORE_MS: Final = _AT["store_ms"]
_STORE_HOST: Final = _AT["store_host"]
_RECONSUME_TIMES: Final = _AT["reconsume_times"]
_PREPARED_OFFSET: Final = _AT["prepared_offset"]
_BODY_LENGTH: Final = _AT["body_length"]

_find_retry_topic: Final = PropertyFinder("RETRY_TOPIC")
_find_transaction: Final = PropertyFinder("TRAN_MSG")


@final
class ReceivedMessage(msgspec.Struct, eq=False, gc=False):
    """A message that a broker gave out. Made by `decode_messages` and `received`.

    Two are equal only if they are the same object: one place of a queue may be received twice.
    """

    topic: str
    """What it was sent to. In a group's retry queue this is the first topic, not the queue's."""
    queue: MessageQueue
    """Where it was received from."""
    queue_offset: int
    stored_bytes: int
    """The size of the whole record."""
    reconsume_times: int
    """How often it was delivered and failed. Orderly consumers count further in memory."""
    raw_body: bytes
    """The body as it is stored, compressed or not."""
    properties_bytes: bytes
    """The properties as they are stored."""
    # The fixed part of the record, see `_AT`.
    _head: tuple[Any, ...]
    # None: it has to be inflated first, or is damaged.
    _body: bytes | None
    _is_damaged: bool = False
    _properties: dict[str, str] | None = None

    @property
    def body(self) -> bytes:
        """What was sent; raise `UnreadableBodyError`."""
        body = self._body
        if body is None:
            body = self._body = _readable_body(self)
        return body

    @property
    def body_error(self) -> UnreadableBodyError | None:
        """What `body` would raise, if it would. Inflates a compressed body."""
        if self._body is None:
            try:
                self._body = _readable_body(self)
            except UnreadableBodyError as exc:
                return exc
        return None

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, those of the system included."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_bytes)
        return self._properties

    @property
    def tag(self) -> str | None:
        return decode_text(find_tags(self.properties_bytes)) or None

    @property
    def keys(self) -> tuple[str, ...]:
        keys = decode_text(find_keys(self.properties_bytes))
        return tuple(key for key in keys.split(KEY_SEPARATOR) if key)

    @property
    def message_id(self) -> str:
        """What the producer named it, or where it is stored if the producer did not."""
        return decode_text(find_unique_key(self.properties_bytes)) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Where it is stored."""
        return message_id(self._head[_STORE_HOST], self._head[_PHYSICAL_OFFSET])

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction it was sent in, if any."""
        if decode_text(_find_transaction(self.properties_bytes)).lower() != "true":
            return None
        return decode_text(find_unique_key(self.properties_bytes)) or None

    @property
    def delay_level(self) -> int:
        """The level it was delayed by; 0: it was not."""
        text = find_delay(self.properties_bytes)
        return int(text) if text.isdigit() and len(text) < 10 else 0

    @property
    def physical_offset(self) -> int:
        return int(self._head[_PHYSICAL_OFFSET])

    @property
    def born_at_ms(self) -> int:
        """When it was sent, by the producer's clock."""
        return int(self._head[_BORN_MS])

    @property
    def stored_at_ms(self) -> int:
        """When it was stored, by the broker's clock."""
        return int(self._head[_STORE_MS])

    @property
    def born_host(self) -> str:
        """Where it was sent from, as `host:port`."""
        return format_address(unpack_host(self._head[_BORN_HOST]))

    @property
    def store_host(self) -> str:
        """The broker that stored it first, as `host:port`."""
        return format_address(unpack_host(self._head[_STORE_HOST]))

    @property
    def flag(self) -> int:
        """The number that the application put in."""
        return int(self._head[_FLAG])

    @property
    def sys_flag(self) -> int:
        return int(self._head[_SYS_FLAG])

    @property
    def is_compressed(self) -> bool:
        """Whether `raw_body` is compressed."""
        return bool(self._head[_SYS_FLAG] & flags.COMPRESSED)

    @property
    def prepared_offset(self) -> int:
        """The physical offset of the half message that became this one; 0: it was none."""
        return int(self._head[_PREPARED_OFFSET])

    @property
    def body_crc(self) -> int:
        return int(self._head[_BODY_CRC])

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage {self.message_id}: {self.topic}, {self.queue.broker_name}"
            f" queue {self.queue.queue_id} offset {self.queue_offset},"
            f" {len(self.raw_body)} bytes>"
        )


# --- decoding --------------------------------------------------------------------------------

_HEADS: Final = {bits: (head.unpack_from, head.size) for bits, head in RECORD_HEADS.items()}
_read_head_v4 = RECORD_HEAD_V4.unpack_from
_HEAD_V4_BYTES: Final = RECORD_HEAD_V4.size
_read_properties_length = PROPERTIES_LENGTH.unpack_from


def decode_messages(
    data: bytes | memoryview,
    queue: MessageQueue,
    *,
    subscription: SubscriptionData | None = None,
    group: str | None = None,
    checks_crc: bool = True,
) -> list[ReceivedMessage]:
    """Decode what a pull from `queue` brought.

    Brokers compare hashes of tags, so messages with a tag that `subscription` does not name are
    left out here. Messages in the retry queue of `group` have their first topic again. Raises
    `BadMessagesError`, a `BadRecordError`, with what is sound before the place that is not.
    """
    content = data if type(data) is bytes else bytes(data)
    limit = len(content)
    topic = queue.topic
    topic_bytes = topic.encode("utf-8", "replace")
    expected_topic = bytes((len(topic_bytes) & 0xFF,)) + topic_bytes
    expected_bytes = len(expected_topic)
    wanted = _wanted_tags(subscription)
    is_retry = group is not None and topic == retry_topic(group)
    messages: list[ReceivedMessage] = []
    append = messages.append
    next_offset: int | None = None
    position = 0
    while position < limit:
        left = limit - position
        if left < RECORD_BYTES_MIN:
            _stop(f"{left} bytes after the last record", messages, next_offset)
        head = _read_head_v4(content, position)
        size: int = head[_SIZE]
        if head[_MAGIC] != MESSAGE_MAGIC:
            magic = head[_MAGIC] & 0xFFFFFFFF
            _stop(f"magic 0x{magic:08X} is not that of a message", messages, next_offset)
        if not RECORD_BYTES_MIN <= size <= left:
            _stop(f"size {size} with {left} bytes left", messages, next_offset)
        sys_flag: int = head[_SYS_FLAG]
        body_start = position + _HEAD_V4_BYTES
        end = position + size
        if sys_flag & HOST_FLAGS:
            read_head, head_bytes = _HEADS[sys_flag & HOST_FLAGS]
            body_start = position + head_bytes
            if body_start > end:
                _stop(f"size {size} is less than its fixed part", messages, next_offset)
            head = read_head(content, position)
        body_end = body_start + head[_BODY_LENGTH]
        if body_end < body_start or body_end + 3 > end:
            _stop(
                f"body length {head[_BODY_LENGTH]} in a record of {size} bytes",
                messages,
                next_offset,
            )
        # Nearly always the topic of the queue. Found without cutting it out and decoding it.
        if content.startswith(expected_topic, body_end):
            topic_end = body_end + expected_bytes
            message_topic = topic
        else:
            topic_end = body_end + 1 + content[body_end]
            message_topic = decode_text(content[body_end + 1 : topic_end])
        properties_start = topic_end + 2
        if content[body_end] > TOPIC_BYTES_MAX or properties_start > end:
            _stop(
                f"topic length {content[body_end]} in a record of {size} bytes",
                messages,
                next_offset,
            )
        if _read_properties_length(content, topic_end)[0] != end - properties_start:
            _stop(f"size {size} is not the sum of its fields", messages, next_offset)
        properties = content[properties_start:end]
        position = end
        queue_offset: int = head[_QUEUE_OFFSET]
        next_offset = queue_offset + 1
        if wanted is not None and not wanted(properties):
            continue
        if is_retry:
            message_topic = decode_text(_find_retry_topic(properties)) or message_topic
        body = content[body_start:body_end]
        is_damaged = checks_crc and bool(body) and crc32(body) & 0x7FFFFFFF != head[_BODY_CRC]
        append(
            ReceivedMessage(
                message_topic,
                queue,
                queue_offset,
                size,
                head[_RECONSUME_TIMES],
                body,
                properties,
                head,
                None if is_damaged or sys_flag & flags.COMPRESSED else body,
                is_damaged,
            )
        )
    return messages


def received(record: StoredRecord, broker_name: str) -> ReceivedMessage:
    """Return the message in a record, as if it had been pulled from its queue."""
    is_damaged = bool(record.body) and crc32(record.body) & 0x7FFFFFFF != record.body_crc
    values = {
        "total_size": record.size,
        "magic": MESSAGE_MAGIC,
        "body_length": len(record.body),
    }
    head = tuple(
        values[name] if name in values else getattr(record, name)
        for name, index in _AT.items()
        if name is not None and index <= _BODY_LENGTH
    )
    return ReceivedMessage(
        record.topic,
        MessageQueue(topic=record.topic, broker_name=broker_name, queue_id=record.queue_id),
        record.queue_offset,
        record.size,
        record.reconsume_times,
        record.body,
        record.properties_bytes,
        head,
        None if is_damaged or record.sys_flag & flags.COMPRESSED else record.body,
        is_damaged,
    )


def _stop(reason: str, messages: list[ReceivedMessage], next_offset: int | None) -> NoReturn:
    raise BadMessagesError(reason, messages, next_offset)


def _wanted_tags(subscription: SubscriptionData | None) -> Callable[[bytes], bool] | None:
    """Return what tells from encoded properties whether a tag is subscribed to; None: all are."""
    if subscription is None or subscription.class_filter_mode or not subscription.tags_set:
        return None
    names = subscription.tags_set
    encoded = frozenset(name.encode("utf-8", "replace") for name in names)

    def is_wanted(properties: bytes) -> bool:
        tag = find_tags(properties)
        return tag in encoded or (bool(tag) and decode_text(tag) in names)

    return is_wanted


# --- bodies ----------------------------------------------------------------------------------


def _readable_body(message: ReceivedMessage) -> bytes:
    """Return the body; raise `UnreadableBodyError`."""
    raw = message.raw_body
    if message._is_damaged:
        found = crc32(raw) & 0x7FFFFFFF
        raise UnreadableBodyError(
            message, f"its CRC is {found}, the record says {message.body_crc}"
        )
    if not raw or not message.is_compressed:
        return raw
    try:
        return decompressed(raw, message.sys_flag)
    except DecompressError as exc:
        raise UnreadableBodyError(message, str(exc), hint=exc.hint) from exc
