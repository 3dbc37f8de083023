"""Half messages, and the messages that are made of them. Pure.

A half message rests in a queue of the broker's own until its producer decides, with its topic and
queue in REAL_TOPIC and REAL_QID (`rmq.broker.sending.properties.half`). What is made of it follows
RocketMQ 4.9.8 TransactionalMessageBridge, EndTransactionProcessor and AdminBrokerProcessor:

- committed: a message of its real topic, with the stored properties as they are,
- decided, either way: an op message that names the queue offset of the half message,
- asked about or put off: a copy at the end of the half queue, so that the queue can move on,
- given up: a message of TRANS_CHECK_MAX_TIME_TOPIC.

Unlike 4.9.8, a copy keeps the flag of the message: a transaction that was asked about once would
otherwise be delivered without it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.broker.sending import properties as inbound
from rmq.model import flags
from rmq.model.limits import QUEUE_ID_MAX
from rmq.model.name_rules import topic_refusal
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from rmq.model.properties import REAL_QUEUE_ID, REAL_TOPIC, TAGS, TRAN_MSG, WAIT, encode_properties
from rmq.model.record import NewMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.model.record import StoredRecord

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which the broker reads half and op messages."""
QUEUE_ID: Final = 0
"""All half messages are in one queue, and so are the op messages."""
PROGRESS_KEYS: Final = tuple(f"{topic}@{GROUP}" for topic in (HALF_TOPIC, OP_HALF_TOPIC))
"""The consumer offsets that tell how far the broker is; one is true only with the other."""
PROGRESS_PAIRS: Final = frozenset(PROGRESS_KEYS)

PRODUCER_GROUP: Final = "PGROUP"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

DONE_TAG: Final = b"d"
"""The tag of op messages; there is no other kind."""
_OP_PROPERTIES: Final = encode_properties({WAIT: "true", TAGS: DONE_TAG.decode()})
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class Home(NamedTuple):
    """Where a half message belongs once it is committed."""

    topic: str
    queue_id: int


def home_of(properties: Mapping[str, str]) -> Home | None:
    """Return where a half message belongs, None if it does not say."""
    topic = properties.get(REAL_TOPIC)
    queue_id = number(properties, REAL_QUEUE_ID)
    if topic is None or topic_refusal(topic) is not None:
        return None
    if queue_id is None or not 0 <= queue_id <= QUEUE_ID_MAX:
        return None
    return Home(topic, queue_id)


def number(properties: Mapping[str, str], name: str) -> int | None:
    """Return a property as a whole number, None if there is none or it is something else."""
    text = properties.get(name)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def committed(record: StoredRecord, home: Home, level_max: int) -> NewMessage:
    """Return the message that consumers get of a half message.

    One with a delay level is delayed from now on. Java clients take the level out, because 4.9.8
    loses such messages.
    """
    message = NewMessage(
        home.topic,
        home.queue_id,
        record.body,
        record.properties_bytes,
        record.flag,
        record.sys_flag & ~flags.TRANSACTION_MASK | flags.TRANSACTION_COMMIT,
        record.born_ms,
        record.born_host,
        record.reconsume_times,
        record.physical_offset,
    )
    try:
        level = inbound.delay_level(record.properties_bytes)
    except ValueError:
        # It was taken like that, and the producer cannot take it back any more.
        level = 0
    if level <= 0:
        return message
    pairs = record.properties
    pairs.pop(TRAN_MSG, None)
    return inbound.parked(message, level, level_max, encode_properties(pairs))


def op_message(half_offset: int, now_ms: int, store_host: bytes) -> NewMessage:
    """Return the note that the half message at a queue offset is decided."""
    return NewMessage(
        OP_HALF_TOPIC,
        QUEUE_ID,
        str(half_offset).encode(),
        _OP_PROPERTIES,
        born_ms=now_ms,
        born_host=store_host,
    )


def asked(record: StoredRecord, times: int) -> NewMessage:
    """Return the copy that stands for a half message while its producer is asked."""
    return _again(record, HALF_TOPIC, {CHECK_TIMES: str(times)})


def put_off(record: StoredRecord) -> NewMessage:
    """Return the copy that stands for a half message which wants to be asked about later.

    It names the queue offset that the producer knows.
    """
    first = number(record.properties, FIRST_OFFSET)
    return _again(
        record, HALF_TOPIC, {FIRST_OFFSET: str(record.queue_offset if first is None else first)}
    )


def resumed(record: StoredRecord) -> NewMessage:
    """Return the copy of a half message that is to be asked about as if it never had been."""
    return _again(record, HALF_TOPIC, {CHECK_TIMES: "0"})


def given_up(record: StoredRecord) -> NewMessage:
    """Return a half message as it is kept for operators."""
    return _again(record, TRANSACTION_CHECK_MAX_TOPIC, {})


def _again(record: StoredRecord, topic: str, changes: Mapping[str, str]) -> NewMessage:
    properties = record.properties_bytes
    if changes:
        properties = encode_properties({**record.properties, **changes})
    return NewMessage(
        topic,
        QUEUE_ID,
        record.body,
        properties,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.reconsume_times,
    )
