"""CHECK_TRANSACTION_STATE (39): what a producer is asked about a half message. Pure.

The body is a record as a pull would bring it, made for the question alone: the half message in the
topic it was sent to, at the offsets of the copy that the producer is to decide. Like the one of
RocketMQ 4.9.8 AbstractTransactionalMessageCheckListener it has the store time of the message that
was copied, and says `WAIT=false`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rmq.broker.transactions.half import CHECK_TIMES, PRODUCER_GROUP
from rmq.model.properties import UNIQ_KEY, WAIT, encode_properties
from rmq.model.record import PROPERTIES_BYTES_MAX, message_id
from rmq.model.record_layout import HOST_FLAGS, MESSAGE_MAGIC, PROPERTIES_LENGTH, RECORD_HEADS
from rmq.remoting.headers import CheckTransactionStateRequest

if TYPE_CHECKING:
    from rmq.broker.transactions.half import Home
    from rmq.model.record import StoredRecord
    from rmq.store.append import AppendResult


class Question(NamedTuple):
    """A question, and the producer group to ask."""

    producer_group: str | None
    header: CheckTransactionStateRequest
    body: bytes


def question(
    record: StoredRecord, home: Home, times: int, copy: AppendResult, store_host: bytes
) -> Question:
    """Return the question about a half message of which a copy was just stored."""
    pairs = record.properties
    pairs[CHECK_TIMES] = str(times)
    pairs[WAIT] = "false"
    properties = encode_properties(pairs)
    if len(properties) > PROPERTIES_BYTES_MAX:
        # The copy, which has WAIT as it was sent, fits; producers do not read it.
        del pairs[WAIT]
        properties = encode_properties(pairs)
    unique_key = pairs.get(UNIQ_KEY)
    header = CheckTransactionStateRequest(
        tran_state_table_offset=copy.queue_offset,
        commit_log_offset=copy.physical_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=message_id(store_host, copy.physical_offset),
    )
    asked = msgspec.structs.replace(
        record,
        topic=home.topic,
        queue_id=home.queue_id,
        queue_offset=copy.queue_offset,
        physical_offset=copy.physical_offset,
        properties_bytes=properties,
    )
    return Question(pairs.get(PRODUCER_GROUP), header, encode_record(asked))


def encode_record(record: StoredRecord) -> bytes:
    """Return a record as it would lie in a log; its `size` does not count."""
    head = RECORD_HEADS[record.sys_flag & HOST_FLAGS]
    topic = record.topic.encode("utf-8", "replace")
    tail = b"".join(
        (
            bytes((len(topic),)),
            topic,
            PROPERTIES_LENGTH.pack(len(record.properties_bytes)),
            record.properties_bytes,
        )
    )
    fixed = head.pack(
        head.size + len(record.body) + len(tail),
        MESSAGE_MAGIC,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.store_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_offset,
        len(record.body),
    )
    return fixed + record.body + tail
