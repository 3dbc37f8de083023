"""Messages as rows: what clients have read, in the form in which tables are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from interop.support.cases import MismatchError, expect
from rmq.client.core.messages import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from interop.support.java_messages import Outgoing, Received
    from rmq.client.core.received import ReceivedMessage

    Row = dict[str, Any]

# What the stock client puts into a message for its application; the broker has not stored it.
_OF_THE_CLIENT: Final = ("MIN_OFFSET", "MAX_OFFSET")
# What the sink, and pipelines that send, put into a message.
_OF_SPARK: Final = ("SPARK_KEY", "COPY_KEY", "COPY_OF")
_KEY: Final = ("topic", "brokerName", "queueId", "queueOffset")
_BODY_SHOWN: Final = 60


def stock_row(message: Received) -> Row:
    """Return what the stock client tells of a message: 16 of the columns."""
    return {
        "topic": message.topic,
        "brokerName": message.broker,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeTimestamp": message.store_ms,
        "bornTimestamp": message.born_ms,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "msgId": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": {
            name: value for name, value in message.properties.items() if name not in _OF_THE_CLIENT
        },
        "body": message.body,
    }


def our_row(message: ReceivedMessage) -> Row:
    """Return what our client tells of a message: all columns."""
    return {
        "topic": message.queue.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.stored_bytes,
        "storeTimestamp": message.stored_at_ms,
        "bornTimestamp": message.born_at_ms,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_offset,
        "msgId": message.message_id,
        "tags": message.tag,
        "keys": " ".join(message.keys) or None,
        "properties": dict(message.properties),
        "body": message.body,
    }


def expect_same_rows(rows: Sequence[Row], wanted: Sequence[Row]) -> str:
    """Every message once, and every column that both have equal; return how many there were.

    `rows` may have more columns than `wanted`, but not less.
    """
    got = {tuple(row[name] for name in _KEY): row for row in rows}
    due = {tuple(row[name] for name in _KEY): row for row in wanted}
    if missing := sorted(due.keys() - got.keys()):
        raise MismatchError(f"{len(missing)} of {len(due)} are missing, the first is {missing[0]}")
    if strange := sorted(got.keys() - due.keys()):
        raise MismatchError(f"{len(strange)} are there that should not be, such as {strange[0]}")
    expect("rows", len(rows), len(wanted))
    for place in sorted(due):
        for column, value in due[place].items():
            found = got[place][column]
            if found != value:
                raise MismatchError(
                    f"{place}: {column} is {_shown(found)} and should be {_shown(value)}"
                )
    return f"{len(rows)} messages"


def expect_copies(rows: Iterable[Row], sent: Iterable[Outgoing]) -> None:
    """Every message that was sent must be among the rows, once, as it was sent."""
    got = sorted(rows, key=lambda row: row["body"])
    wanted = sorted(sent, key=lambda message: message.body)
    expect("bodies", [_short(row["body"]) for row in got], [_short(m.body) for m in wanted])
    for row, message in zip(got, wanted, strict=True):
        expect("whole body", row["body"] == message.body, True)
        expect("topic", row["topic"], message.topic)
        expect("tags", row["tags"], message.tags)
        expect("keys", row["keys"], message.keys)
        properties = {name: row["properties"].get(name) for name in message.properties}
        expect("properties", properties, dict(message.properties))


def content(row: Row) -> tuple[bytes, str, str, list[tuple[str, str]]]:
    """Return what an application has put into a message."""
    properties = {
        name: value
        for name, value in row["properties"].items()
        if name not in RESERVED and name not in _OF_SPARK
    }
    return row["body"], row["tags"] or "", row["keys"] or "", sorted(properties.items())


def in_queue_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in _KEY))


def _short(body: bytes) -> bytes:
    return body[:_BODY_SHOWN]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
