"""Rows for tests of the encoder, and what a client would send for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmq.client.core.messages import RESERVED, Message
from rmq.client.core.producing.outbound import properties_text
from rmq.model.properties import decode_properties
from rmq.model.queues import MessageQueue
from rmq.spark.sink.columns import ChosenColumn
from rmq.spark.sink.encoding import Limits, Outgoing, RowEncoder
from rmq.spark.sink.identity import SPARK_KEY, RowIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

IDENTITY: Final = RowIdentity("run", 3)
LIMITS: Final = Limits(batch_bytes=64 * 1024, batch_messages=1000, message_bytes=4 * 1024**2)
ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "shardingKey": pa.string(),
    "delayLevel": pa.int32(),
    "flag": pa.int32(),
}

Row = dict[str, Any]


def queues_of(topic: str, count: int = 5) -> Sequence[MessageQueue]:
    """Return so many queues, on two brokers."""
    return [
        MessageQueue(topic=topic, broker_name=f"broker-{number % 2}", queue_id=number // 2)
        for number in range(count)
    ]


def record_batch(rows: Sequence[Row], **types: pa.DataType) -> pa.RecordBatch:
    """Return rows as Arrow, with the columns that the first row has."""
    names = list(rows[0])
    arrays = [
        pa.array([row[name] for row in rows], types.get(name, ARROW_TYPES[name])) for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names)


def encoder_of(
    batch: pa.RecordBatch,
    *,
    topic: str | None = None,
    limits: Limits = LIMITS,
    identity: RowIdentity = IDENTITY,
    spark_key_in_keys: bool = False,
    queues: Callable[[str], Sequence[MessageQueue]] = queues_of,
) -> RowEncoder:
    """Return an encoder for the columns that a batch has."""
    columns = {name: ChosenColumn(place, "") for place, name in enumerate(batch.schema.names)}
    return RowEncoder(
        columns,
        identity,
        limits,
        topic=topic,
        spark_key_in_keys=spark_key_in_keys,
        queues_of=queues,
    )


def encoded(rows: Sequence[Row], **options: Any) -> list[Outgoing]:  # noqa: ANN401
    """Encode rows at once."""
    batch = record_batch(rows)
    return list(encoder_of(batch, **options).encode(batch))


def message_of(row: Row, *, topic: str | None = None) -> Message:
    """Return a row as an application would send it."""
    keys = row.get("keys") or ()
    pairs = dict(row.get("properties") or ())
    return Message(
        topic or row["topic"],
        row["body"],
        tag=row.get("tags"),
        keys=tuple(keys.split()) if isinstance(keys, str) else tuple(filter(None, keys)),
        delay_level=row.get("delayLevel") or 0,
        properties={
            name: value
            for name, value in pairs.items()
            if name not in RESERVED and name != SPARK_KEY and value is not None
        },
        flag=row.get("flag") or 0,
    )


def expected_properties(row: Row, number: int, *, topic: str | None = None) -> dict[str, str]:
    """Return the properties of a row as the client would write them, and the row's own."""
    message_id = bytes(IDENTITY.ids(_rows(number))[0]).decode()
    text = properties_text(message_of(row, topic=topic), message_id)
    return {**decode_properties(text.encode()), SPARK_KEY: f"run/3/{number}"}


def _rows(number: int) -> Any:  # noqa: ANN401 - numpy's types are long
    return pa.array([number], pa.int64()).to_numpy()
