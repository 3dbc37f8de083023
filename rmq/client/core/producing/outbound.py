"""Messages on their way out: what a producer puts on the wire for them, and what brokers answer.
Pure.

The bytes are those of a stock 4.9.8 producer: properties in the order of its hash map, bodies of
4 KiB and more compressed by zlib, batches uncompressed with an entry per message.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.client.core.messages import SendResult, SendStatus
from rmq.client.core.producing.master_waits import refusal
from rmq.errors import BadAnswerError, IllegalMessageError, ProtocolError
from rmq.model.flags import COMPRESSED, TRANSACTION_PREPARED
from rmq.model.java import hash_map_order
from rmq.model.limits import INT32_MAX, INT32_MIN
from rmq.model.names import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)
from rmq.model.properties import DELAY, KEY_SEPARATOR, KEYS, TAGS, TRAN_MSG, UNIQ_KEY, WAIT
from rmq.model.queues import MessageQueue
from rmq.model.record import PROPERTIES_BYTES_MAX
from rmq.remoting.bodies.batch import BatchMessage, encode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmq.client.core.messages import Message
    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.remoting.command import Command

PGROUP: Final = "PGROUP"

COMPRESSED_BY_ZLIB: Final = COMPRESSED | 0x300
"""The type is in bits 8 to 10: stock producers of 4.9.8 always name it."""

UNSENDABLE_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        OFFSET_MOVED_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
    )
)
"""Topics that only brokers write to."""

_KEY_CHARS_MAX: Final = 56
_PLAIN_ENTRY_BYTES: Final = 22 + _KEY_CHARS_MAX + 20
"""What an entry of a batch has beside its body and what the application adds, or a few bytes more:
its fixed fields, and the names UNIQ_KEY and WAIT with their values and three separators.
"""

_STATUSES: Final = {
    int(ResponseCode.SUCCESS): SendStatus.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Answers that mean the message is stored."""


class OutboundMessage(msgspec.Struct, frozen=True, gc=False):
    """A message, a batch of them or a reply, ready to be sent to any queue of its topic."""

    topic: str
    message_id: str
    """The unique key; those of a batch joined by commas."""
    properties: str
    body: bytes
    sys_flag: int = 0
    flag: int = 0
    code: RequestCode = RequestCode.SEND_MESSAGE_V2
    is_batch: bool = False


# --- single messages -------------------------------------------------------------------------


def prepare(
    message: Message,
    *,
    unique_keys: UniqueKeys,
    now_ms: int,
    compress_above: int,
    compress_level: int,
    bytes_max: int,
    extra_properties: Mapping[str, str] | None = None,
) -> OutboundMessage:
    """Turn a message into what is sent; raise `IllegalMessageError` for one too large.

    `extra_properties` are those of the system that go with this one.
    """
    body = message.body
    size = len(body)
    if size > bytes_max:
        raise _too_large(size, bytes_max)
    message_id = unique_keys.next(now_ms)
    sys_flag = 0
    if size >= compress_above:
        body, sys_flag = compressed(body, compress_level)
    return OutboundMessage(
        message.topic,
        message_id,
        properties_text(message, message_id, extra_properties),
        body,
        sys_flag,
        message.flag,
    )


def compressed(body: bytes, level: int) -> tuple[bytes, int]:
    """Return a body as it is sent, and its flags.

    One that compression makes no smaller stays as it is. (4.9.8 sends it compressed nevertheless,
    and brokers refuse it if it was just below their limit.)
    """
    smaller = zlib.compress(body, level)
    return (smaller, COMPRESSED_BY_ZLIB) if len(smaller) < len(body) else (body, 0)


def prepare_half(
    message: Message,
    *,
    group: str,
    unique_keys: UniqueKeys,
    now_ms: int,
    compress_above: int,
    compress_level: int,
    bytes_max: int,
) -> OutboundMessage:
    """Turn a message into the half message of a transaction; it cannot be delayed."""
    if message.delay_level:
        message = msgspec.structs.replace(message, delay_level=0)
    whole = prepare(
        message,
        unique_keys=unique_keys,
        now_ms=now_ms,
        compress_above=compress_above,
        compress_level=compress_level,
        bytes_max=bytes_max,
        extra_properties={TRAN_MSG: "true", PGROUP: group},
    )
    return msgspec.structs.replace(whole, sys_flag=whole.sys_flag | TRANSACTION_PREPARED)


def properties_text(
    message: Message, message_id: str, extra: Mapping[str, str] | None = None
) -> str:
    """Return the properties of a message as stock producers order them.

    Raises `IllegalMessageError` for what no broker would take.
    """
    if message.topic in UNSENDABLE_TOPICS:
        raise IllegalMessageError(f"topic {message.topic} is written to by brokers only")
    if message.flag and not INT32_MIN <= message.flag <= INT32_MAX:
        raise IllegalMessageError(f"flag {message.flag} needs more than 32 bits")
    if message.properties or extra:
        return _checked(_ordered(message, message_id, extra), message)
    # The order of a hash map of these five names, written out: most messages have no others.
    waits = "true" if message.waits_stored else "false"
    text = f"UNIQ_KEY\x01{message_id}\x02WAIT\x01{waits}"
    if message.keys:
        text = f"KEYS\x01{KEY_SEPARATOR.join(message.keys)}\x02{text}"
    if message.delay_level:
        text = f"{text}\x02DELAY\x01{message.delay_level}"
    if message.tag:
        text = f"{text}\x02TAGS\x01{message.tag}"
    elif not message.keys:
        return text
    return _checked(text, message)


def joined_properties(properties: Mapping[str, str]) -> str:
    """Return properties as text in the order of the hash map of a stock client."""
    return "\x02".join([f"{name}\x01{properties[name]}" for name in _hash_order(tuple(properties))])


def _ordered(message: Message, message_id: str, extra: Mapping[str, str] | None) -> str:
    # In the order in which stock code puts them in: it shows where names share a bucket.
    properties: dict[str, str] = {}
    if message.tag:
        properties[TAGS] = message.tag
    if message.keys:
        properties[KEYS] = KEY_SEPARATOR.join(message.keys)
    properties[WAIT] = "true" if message.waits_stored else "false"
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    properties.update(message.properties)
    if extra:
        properties.update(extra)
    properties[UNIQ_KEY] = message_id
    return joined_properties(properties)


# Applications use few sets of names, and working out the order takes longer than all the rest.
@lru_cache(maxsize=1024)
def _hash_order(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(hash_map_order(names))


def _checked(text: str, message: Message) -> str:
    if len(text) > PROPERTIES_BYTES_MAX // 4:
        size = len(text.encode("utf-8", "replace"))
        if size > PROPERTIES_BYTES_MAX:
            raise IllegalMessageError(
                f"the properties take {size} bytes, above {PROPERTIES_BYTES_MAX}",
                hint="tag and keys count as properties",
            )
    tag = message.tag
    if tag and ("\x01" in tag or "\x02" in tag):
        raise _has_separator(tag)
    for key in message.keys:
        if "\x01" in key or "\x02" in key:
            raise _has_separator(key)
    return text


def _has_separator(value: str) -> IllegalMessageError:
    return IllegalMessageError(f"tag or key {value!r} has a character 1 or 2 in it")


def _too_large(size: int, bytes_max: int) -> IllegalMessageError:
    return IllegalMessageError(
        f"the body has {size} bytes, above {bytes_max}",
        hint="brokers have a limit of their own (maxMessageSize), 4 MiB if it is not set",
    )


# --- batches ---------------------------------------------------------------------------------


def split_batch(messages: Sequence[Message], bytes_max: int) -> list[Sequence[Message]]:
    """Cut messages into runs that each fit into one batch; raise `IllegalMessageError`.

    All of them must have the same topic and wait alike, none may be delayed or of a retry topic.
    """
    if not messages:
        raise IllegalMessageError("a batch of no messages")
    _check_batch(messages)
    runs: list[Sequence[Message]] = []
    start = size = 0
    for number, message in enumerate(messages):
        entry_bytes = _PLAIN_ENTRY_BYTES + len(message.body)
        if message.tag or message.keys or message.properties:
            entry_bytes += _property_bytes(message)
        if entry_bytes > bytes_max:
            raise _too_large(len(message.body), bytes_max)
        size += entry_bytes
        if size > bytes_max:
            runs.append(messages[start:number])
            start, size = number, entry_bytes
    runs.append(messages[start:] if start else messages)
    return runs


def prepare_batch(
    messages: Sequence[Message], *, unique_keys: UniqueKeys, now_ms: int
) -> OutboundMessage:
    """Turn messages into one batch; `split_batch` makes sure that they can be one."""
    ids = unique_keys.many(now_ms, len(messages))
    entries: list[BatchMessage] = []
    # Half the time of the class's own constructor, which reads its arguments by name.
    new_entry = tuple.__new__
    for message, message_id in zip(messages, ids, strict=True):
        text = properties_text(message, message_id)
        properties = text.encode("utf-8", "replace")
        entries.append(new_entry(BatchMessage, (message.flag, message.body, properties)))
    first = messages[0]
    return OutboundMessage(
        topic=first.topic,
        message_id=",".join(ids),
        properties=f"WAIT\x01{'true' if first.waits_stored else 'false'}",
        body=encode_batch(entries),
        code=RequestCode.SEND_BATCH_MESSAGE,
        is_batch=True,
    )


def _check_batch(messages: Sequence[Message]) -> None:
    first = messages[0]
    topic, waits_stored = first.topic, first.waits_stored
    if topic.startswith(RETRY_PREFIX):
        raise IllegalMessageError(f"messages of retry topic {topic} cannot go in a batch")
    for message in messages:
        if message.topic != topic:
            raise IllegalMessageError(
                f"a batch has messages of topics {topic} and {message.topic}",
                hint="send them as two batches",
            )
        if message.delay_level:
            raise IllegalMessageError("a delayed message cannot go in a batch")
        if message.waits_stored != waits_stored:
            raise IllegalMessageError("messages of a batch differ in waits_stored")


def _property_bytes(message: Message) -> int:
    """Return what the properties of an application take, or a few bytes more."""
    size = 0
    if message.tag:
        size += 6 + _utf8_bytes(message.tag)
    for key in message.keys:
        size += 6 + _utf8_bytes(key)
    for name, value in message.properties.items():
        size += 2 + _utf8_bytes(name) + _utf8_bytes(value)
    return size


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# --- requests and answers --------------------------------------------------------------------


def send_request(
    outbound: OutboundMessage,
    *,
    group: str,
    queue: MessageQueue,
    now_ms: int,
    default_queues: int,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
) -> SendMessageRequestV2:
    """Return the header of a request that sends a message to a queue.

    The last two are for messages to a retry topic.
    """
    return SendMessageRequestV2(
        producer_group=group,
        topic=outbound.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=default_queues,
        queue_id=queue.queue_id,
        sys_flag=outbound.sys_flag,
        born_timestamp=now_ms,
        flag=outbound.flag,
        properties=outbound.properties,
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times,
        batch=outbound.is_batch,
        broker_name=queue.broker_name,
    )


def read_send_answer(
    command: Command, *, address: str, queue: MessageQueue, outbound: OutboundMessage
) -> SendResult:
    """Return what a broker answered to a send; raise `ResponseError` or `BadAnswerError`."""
    status = _STATUSES.get(command.code)
    if status is None:
        raise refusal(address, outbound.code.name, command)
    try:
        header = command.header(SendMessageResponse)
    except ProtocolError as exc:
        raise BadAnswerError(address, outbound.code.name, str(exc)) from exc
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=header.queue_id
        )
    return SendResult(
        status,
        outbound.message_id,
        header.msg_id,
        queue,
        header.queue_offset,
        header.msg_region or "DefaultRegion",
        header.trace_on is not False,
    )
