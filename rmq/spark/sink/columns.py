"""Which columns of a table are written to messages, and as what. Pure.

    topic         STRING                   or the option `topic`, which counts for all rows
    body          BINARY or STRING         must be there, in every row, and not be empty
    tags          STRING
    keys          STRING or ARRAY<STRING>  several in a STRING are parted by blanks
    properties    MAP<STRING,STRING>       without those that belong to the system, see below
    shardingKey   STRING                   rows of one key go to one queue, in their order
    delayLevel    INT                      0 to 18
    flag          INT

Only `body` has to be there. Nulls mean that a message has no such thing.

A table that was read from a topic can be written as it is. What its other columns say of a message
(`queueId`, `queueOffset`, `storeTimestamp`, `msgId` ...: `METADATA`) is true of the message that
was read, and not of its copy: it is accepted and not written. The same holds for properties with
names of `rmq.client.core.messages.RESERVED` and for SPARK_KEY: tags, keys and delay are taken from
their columns, the message id is the row's own, and everything else is the broker's business. Bodies
are sent as they are in the table, so one that was read with `decompress=false` stays compressed and
is no longer marked as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError
from rmq.settings.setting import nearest_word
from rmq.spark import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARDING_KEY: Final = "shardingKey"
DELAY_LEVEL: Final = "delayLevel"

TYPES: Final = {
    schema.TOPIC: ("string",),
    schema.BODY: ("binary", "string"),
    schema.TAGS: ("string",),
    schema.KEYS: ("string", "array<string>"),
    schema.PROPERTIES: ("map<string,string>",),
    SHARDING_KEY: ("string",),
    DELAY_LEVEL: ("int",),
    schema.FLAG: ("int",),
}
"""The columns that are written, and what Spark may call their types."""

METADATA: Final = frozenset(schema.COLUMNS) - frozenset(TYPES)
"""Columns of our own sources that are accepted and not written."""


class SchemaError(ConfigError):
    """A table cannot be written; the text names every column that stands in the way."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("columns", "; ".join(self.problems))
        self.args = ("the table cannot be written as messages: " + "; ".join(self.problems),)


class ChosenColumn(NamedTuple):
    """A column of the table that is written."""

    place: int
    """Its number in the table, the first being 0."""
    spark_type: str


def choose_columns(
    fields: Iterable[tuple[str, str]], *, has_topic: bool, ignores_extra: bool
) -> dict[str, ChosenColumn]:
    """Return what is written of a table whose columns have these names and types.

    Names are compared without regard to case. `has_topic`: the option `topic` is set.
    Raises `SchemaError`, which tells of everything that is wrong.
    """
    known = {name.lower(): name for name in TYPES}
    metadata = {name.lower() for name in METADATA}
    chosen: dict[str, ChosenColumn] = {}
    problems: list[str] = []
    for index, (found, spark_type) in enumerate(fields):
        name = known.get(found.lower())
        if name is None:
            if found.lower() not in metadata and not ignores_extra:
                near = nearest_word(found, TYPES)
                advice = f"did you mean {near}?" if near else "drop it"
                problems.append(
                    f"column {found} ({spark_type.upper()}) is not known: {advice}"
                    " (ignoreExtraColumns=true leaves out what is not known)"
                )
        elif name in chosen:
            problems.append(f"column {name} is there twice")
        else:
            chosen[name] = ChosenColumn(index, spark_type)
            if spark_type not in TYPES[name]:
                wanted = " or ".join(each.upper() for each in TYPES[name])
                problems.append(f"column {name} is {spark_type.upper()}, not {wanted}")
    if schema.BODY not in chosen:
        problems.append("there is no column body (BINARY or STRING)")
    if schema.TOPIC not in chosen and not has_topic:
        problems.append("there is neither a column topic (STRING) nor the option topic")
    if problems:
        raise SchemaError(problems)
    return chosen
