"""The columns of a table of messages: their names, order and types. No Spark is needed for it.

All columns may be null. Spark compares the Arrow schema of every batch with its own to the letter,
so both are written down here, side by side, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from rmq.errors import ConfigError
from rmq.settings.setting import nearest_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Column(NamedTuple):
    """One column, as Spark and as Arrow call it."""

    name: str
    spark_type: str
    arrow_type: pa.DataType


_TEXT: Final = ("STRING", pa.string())
_INT: Final = ("INT", pa.int32())
_LONG: Final = ("BIGINT", pa.int64())
_TIME: Final = ("TIMESTAMP", pa.timestamp("us", tz="UTC"))

TOPIC: Final = "topic"
BROKER_NAME: Final = "brokerName"
QUEUE_ID: Final = "queueId"
QUEUE_OFFSET: Final = "queueOffset"
COMMIT_LOG_OFFSET: Final = "commitLogOffset"
STORE_SIZE: Final = "storeSize"
STORE_TIMESTAMP: Final = "storeTimestamp"
BORN_TIMESTAMP: Final = "bornTimestamp"
BORN_HOST: Final = "bornHost"
STORE_HOST: Final = "storeHost"
SYS_FLAG: Final = "sysFlag"
FLAG: Final = "flag"
BODY_CRC: Final = "bodyCrc"
RECONSUME_TIMES: Final = "reconsumeTimes"
PREPARED_TRANSACTION_OFFSET: Final = "preparedTransactionOffset"
MSG_ID: Final = "msgId"
TAGS: Final = "tags"
KEYS: Final = "keys"
PROPERTIES: Final = "properties"
BODY: Final = "body"

COLUMNS: Final = {
    column.name: column
    for column in (
        Column(TOPIC, *_TEXT),
        Column(BROKER_NAME, *_TEXT),
        Column(QUEUE_ID, *_INT),
        Column(QUEUE_OFFSET, *_LONG),
        Column(COMMIT_LOG_OFFSET, *_LONG),
        Column(STORE_SIZE, *_INT),
        Column(STORE_TIMESTAMP, *_TIME),
        Column(BORN_TIMESTAMP, *_TIME),
        Column(BORN_HOST, *_TEXT),
        Column(STORE_HOST, *_TEXT),
        Column(SYS_FLAG, *_INT),
        Column(FLAG, *_INT),
        Column(BODY_CRC, *_INT),
        Column(RECONSUME_TIMES, *_INT),
        Column(PREPARED_TRANSACTION_OFFSET, *_LONG),
        Column(MSG_ID, *_TEXT),
        Column(TAGS, *_TEXT),
        Column(KEYS, *_TEXT),
        Column(PROPERTIES, "MAP<STRING,STRING>", pa.map_(pa.string(), pa.string())),
        Column(BODY, "BINARY", pa.binary()),
    )
}
"""All columns by name, in the order of the table."""


def chosen_columns(text: str, *, include_properties: bool) -> tuple[str, ...]:
    """Return the columns that the option `columns` names, in the order of the table.

    Empty text means all, of which `includeProperties` leaves out the map. Names may be written in
    any case. Raises `ConfigError` for a name that is no column.
    """
    if not text.strip():
        return tuple(name for name in COLUMNS if include_properties or name != PROPERTIES)
    by_lower = {name.lower(): name for name in COLUMNS}
    wanted = set()
    for word in text.split(","):
        name = word.strip()
        known = by_lower.get(name.lower())
        if known is None:
            near = nearest_word(name, COLUMNS)
            advice = f"did you mean {near}?" if near else f"there are {', '.join(COLUMNS)}"
            raise ConfigError("columns", f"{name!r} is not a column; {advice}")
        wanted.add(known)
    return tuple(name for name in COLUMNS if name in wanted)


def spark_schema(names: Iterable[str]) -> str:
    """Return the schema of a table with these columns, as Spark reads it."""
    return ", ".join(f"{name} {COLUMNS[name].spark_type}" for name in names)


def check_asked(asked: Iterable[tuple[str, str]], names: Sequence[str]) -> None:
    """Raise `ConfigError` if a query asks for other columns than a table has.

    `asked` are names and types as Spark names them. Readers are made where there is no session that
    could read a schema from text.
    """
    wanted = ", ".join(f"{name} {spark_type.upper()}" for name, spark_type in asked)
    columns = spark_schema(names)
    if wanted != columns:
        raise ConfigError(
            "schema",
            f"{wanted} is asked for, and the columns are {columns}: choose among them with the"
            " option columns, and change their types with select",
        )


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema that batches of these columns must have."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow_type) for name in names])
