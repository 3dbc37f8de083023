"""What a forecast needs of messages, counted by Spark: growth over time, queues and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmq.model.properties import KEY_SEPARATOR
from rmq.spark import schema
from rmq.spark.jobs.forecast.model import HotKey
from rmq.spark.jobs.report.tables import BY_QUEUE, NO_BROKER, bucket, span
from rmq.spark.pages.scales import time_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

COLUMNS: Final = (
    schema.TOPIC,
    schema.BROKER_NAME,
    schema.QUEUE_ID,
    schema.STORE_SIZE,
    schema.STORE_TIMESTAMP,
    schema.KEYS,
)
"""What a forecast reads of a message; Spark leaves keys out of what is not about keys."""
STRETCHES: Final = 48
"""About how many stretches of time growth is measured over."""
STEP_MIN_S: Final = 60
KEYS_MAX: Final = 20

Sums = dict[tuple[str, str], dict[int, tuple[int, int]]]
"""Messages and bytes by topic and broker, and by the beginning of their stretch of time."""


def counted(messages: DataFrame) -> DataFrame:
    """Return messages and bytes per topic, queue and minute."""
    return (
        messages.select(
            F.col(schema.TOPIC).alias("topic"),
            F.coalesce(F.col(schema.BROKER_NAME), F.lit(NO_BROKER)).alias("broker_name"),
            F.col(schema.QUEUE_ID).alias("queue_id"),
            F.date_trunc("minute", F.col(schema.STORE_TIMESTAMP)).alias("minute"),
            F.col(schema.STORE_SIZE).alias("size"),
        )
        .groupBy(*BY_QUEUE, "minute")
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("size").alias("bytes"))
    )


def window(counts: DataFrame) -> tuple[float, float, int] | None:
    """Return the first and the last minute that has messages, and how long stretches should be."""
    known = span(counts)
    if known is None:
        return None
    first_s, last_s = known
    return first_s, last_s, max(STEP_MIN_S, time_step((last_s - first_s) / STRETCHES))


def over_time(counts: DataFrame, step_s: int) -> Sums:
    """Return how much came when."""
    found: Sums = {}
    rows = counts.groupBy("topic", "broker_name", bucket(step_s).alias("at"))
    for row in rows.agg(F.sum("messages"), F.sum("bytes")).collect():
        topic, broker, at, messages, size = row
        found.setdefault((topic, broker), {})[int(at)] = (int(messages), int(size))
    return found


def by_queue(counts: DataFrame) -> dict[tuple[str, str, int], int]:
    """Return how many messages each queue got."""
    rows = counts.groupBy(*BY_QUEUE).agg(F.sum("messages")).collect()
    return {(topic, broker, int(queue)): int(count) for topic, broker, queue, count in rows}


def hot_keys(messages: DataFrame, totals: Mapping[str, int]) -> list[HotKey]:
    """Return the keys that most messages have, more than one of a topic each."""
    words = F.split(F.col(schema.KEYS), KEY_SEPARATOR)
    keys = messages.select(
        F.col(schema.TOPIC).alias("topic"), F.explode(F.array_distinct(words)).alias("key")
    )
    rows = (
        keys.filter(F.col("key") != "")
        .groupBy("topic", "key")
        .agg(F.count(F.lit(1)).alias("messages"))
        .filter(F.col("messages") > 1)
        .orderBy(F.desc("messages"), "topic", "key")
        .limit(KEYS_MAX)
        .collect()
    )
    return [
        HotKey(topic, key, int(count), int(count) / max(1, totals.get(topic, 0)))
        for topic, key, count in rows
    ]
