"""Messages that are sent again: each names what it is a copy of, and is searched after sending.

A copy carries two properties of its own:

    COPY_KEY   why and of what it was made, `replay/<run>/<place>` or `redrive/<place>/<id>`, where
               a place is `topic/broker/queue/offset`, or file and row, and the id that of the dead
               letter: no two copies that should be made have the same
    COPY_OF    the message id of the message that was sent first, also in a copy of a copy

By the first a run that was interrupted finds out what it has done, and every run proves what it
did; by the second `rmq pipeline duplicates` knows copies from messages that were sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmq.client.blocking.consumer import BlockingConsumer
from rmq.client.core.messages import RESERVED
from rmq.errors import NoRouteError
from rmq.model.properties import KEY_SEPARATOR
from rmq.spark import schema
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF
from rmq.spark.jobs.topic_ranges import CONSUMER_GROUP, read_range
from rmq.spark.sink.columns import SHARDING_KEY
from rmq.spark.sink.identity import SPARK_KEY
from rmq.spark.wire.positions import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from rmq.client.core.config import ClientConfig
    from rmq.model.queues import MessageQueue

KEY: Final = "copyKey"
"""The column that holds COPY_KEY, of what is to be sent and of what was found."""

PLACE_COLUMNS: Final = (schema.TOPIC, schema.BROKER_NAME, schema.QUEUE_ID, schema.QUEUE_OFFSET)
FOUND_COLUMNS: Final = (
    *PLACE_COLUMNS,
    schema.STORE_TIMESTAMP,
    schema.MSG_ID,
    schema.PROPERTIES,
)
CONTENT_COLUMNS: Final = (schema.BODY, schema.TAGS, schema.KEYS, schema.FLAG, schema.PROPERTIES)
PARTS_SHOWN_MAX: Final = 5
CONTENT: Final = "content"
"""The column with the hash of what a message and its copy have in common."""

_NOT_CONTENT: Final = sorted(RESERVED | {SPARK_KEY, COPY_KEY, COPY_OF})


def place_of() -> Column:
    """Return `topic/broker/queue/offset` of a message."""
    parts = [F.coalesce(F.col(name).cast("STRING"), F.lit("")) for name in PLACE_COLUMNS]
    return F.concat_ws("/", *parts)


def as_copies(
    table: DataFrame,
    key: Column,
    topic: Column,
    sharding: Column | None,
    kept: Sequence[str] = (),
) -> DataFrame:
    """Return what the sink is to write for a table of messages, with the keys of copies.

    The table has the columns of `rmq.spark.schema` or some of them, of which `body` must be there.
    `kept` are further columns that are left in.
    """
    there = set(table.columns)

    def column(name: str, spark_type: str) -> Column:
        return F.col(name) if name in there else F.lit(None).cast(spark_type)

    properties = F.coalesce(
        column(schema.PROPERTIES, "MAP<STRING,STRING>"),
        F.create_map().cast("MAP<STRING,STRING>"),
    )
    own = F.map_filter(properties, lambda name, _: ~name.isin(COPY_KEY, COPY_OF))
    first_id = F.coalesce(
        F.try_element_at(properties, F.lit(COPY_OF)), column(schema.MSG_ID, "STRING")
    )
    added = F.map_filter(
        F.create_map(F.lit(COPY_KEY), F.col(KEY), F.lit(COPY_OF), first_id),
        lambda _, value: value.isNotNull(),
    )
    chosen = table.withColumn(KEY, key)
    columns = [
        topic.alias(schema.TOPIC),
        F.col(schema.BODY),
        column(schema.TAGS, "STRING").alias(schema.TAGS),
        column(schema.KEYS, "STRING").alias(schema.KEYS),
        column(schema.FLAG, "INT").alias(schema.FLAG),
        F.map_concat(own, added).alias(schema.PROPERTIES),
    ]
    if sharding is not None:
        columns.append(sharding.alias(SHARDING_KEY))
    return chosen.select(KEY, *columns, *kept)


def content_hash(keys: Column) -> Column:
    """Return a hash of what a message and its copy have in common.

    That is the body, the tag, the keys, the flag and the properties of the application. What
    belongs to the system (`rmq.client.core.messages.RESERVED`: UNIQ_KEY, CLUSTER ...), SPARK_KEY
    and the two properties of copies differ by nature.
    """
    own = F.map_filter(F.col(schema.PROPERTIES), lambda name, _: ~name.isin(*_NOT_CONTENT))
    return F.xxhash64(
        F.col(schema.BODY).cast("BINARY"),
        F.coalesce(schema.TAGS, F.lit("")),
        F.coalesce(keys, F.lit("")),
        F.coalesce(schema.FLAG, F.lit(0)),
        F.array_sort(F.map_entries(F.coalesce(own, F.create_map().cast("MAP<STRING,STRING>")))),
    )


def joined_keys(table: DataFrame) -> Column:
    """Return the keys of messages as one text; they may be a text or a list."""
    is_list = table.schema[schema.KEYS].dataType.simpleString().startswith("array")
    return F.array_join(schema.KEYS, KEY_SEPARATOR) if is_list else F.col(schema.KEYS)


def first_offsets(config: ClientConfig, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return where queues begin now; those that no broker has are left out."""
    wanted = set(queues)
    there: list[MessageQueue] = []
    with BlockingConsumer(config, CONSUMER_GROUP) as consumer:
        for topic in sorted({queue.topic for queue in wanted}):
            try:
                there += wanted.intersection(consumer.queues(topic))
            except NoRouteError:
                continue
        return dict(sorted(consumer.begin_offsets(there).items()))


def lost_parts(starts: Mapping[MessageQueue, int], firsts: Mapping[MessageQueue, int]) -> list[str]:
    """Name what cannot be read any more of queues from `starts` on.

    `firsts` is where they begin now. A copy that was there may have been sent nevertheless: a
    pipeline that sends what is not found must stop here.
    """
    parts = []
    for queue, start in sorted(starts.items()):
        first = firsts.get(queue)
        if first is None:
            parts.append(
                f"{name_of(queue)}, which is not there: its broker is down, or the topic was"
                " deleted"
            )
        elif first > max(0, start):
            parts.append(f"{name_of(queue)} before offset {first}, where it begins now")
    return parts


def parts_text(parts: Sequence[str]) -> str:
    """Return lost parts as one text, not all of them if they are many."""
    more = f" (and {len(parts) - PARTS_SHOWN_MAX} more)" if len(parts) > PARTS_SHOWN_MAX else ""
    return "; ".join(parts[:PARTS_SHOWN_MAX]) + more


def find_copies(
    spark: SparkSession,
    cluster: Mapping[str, str],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    key_prefix: str,
    *,
    with_content: bool = False,
) -> DataFrame:
    """Return the copies in a range of queues whose keys begin with a text, with where they are."""
    names = dict.fromkeys((*FOUND_COLUMNS, *(CONTENT_COLUMNS if with_content else ())))
    found = read_range(spark, cluster, starts, ends, names)
    found = found.withColumn(KEY, F.try_element_at(schema.PROPERTIES, F.lit(COPY_KEY)))
    found = found.filter(F.col(KEY).startswith(key_prefix))
    if with_content:
        found = found.withColumn(CONTENT, content_hash(F.col(schema.KEYS)))
    return found.drop(*CONTENT_COLUMNS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was to be sent against what was found."""

    wanted: int
    found: int
    """How many of them are there, once or more often."""
    doubled: int
    """How many of them are there more than once."""
    changed: int = 0
    """How many of them have another content, if that was compared."""

    @property
    def missing(self) -> int:
        return self.wanted - self.found

    @property
    def is_exact(self) -> bool:
        return self.missing == self.doubled == self.changed == 0


def compare(wanted: DataFrame, found: DataFrame) -> Comparison:
    """Compare what was to be sent with the copies that were found, by key.

    Contents are compared if both tables have them.
    """
    has_content = CONTENT in wanted.columns and CONTENT in found.columns
    counts = found.groupBy(KEY).agg(
        F.count("*").alias("copies"),
        (F.min(CONTENT) if has_content else F.lit(0)).alias("least"),
        (F.max(CONTENT) if has_content else F.lit(0)).alias("most"),
    )
    mine = F.col(CONTENT) if has_content else F.lit(0)
    joined = wanted.withColumn("mine", mine).select(KEY, "mine").join(counts, KEY, "left")
    is_changed = (F.col("least") != F.col("mine")) | (F.col("most") != F.col("mine"))
    (row,) = joined.agg(
        F.count("*").alias("wanted"),
        F.count("copies").alias("found"),
        F.count_if(F.col("copies") > 1).alias("doubled"),
        F.count_if(is_changed).alias("changed"),
    ).collect()
    return Comparison(
        int(row["wanted"]), int(row["found"]), int(row["doubled"]), int(row["changed"])
    )
