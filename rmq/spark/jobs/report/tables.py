"""Traffic as tables of Spark: messages by topic, producer and time, and delays until stored.

Messages are read once: they are counted by topic, queue, minute, producer and delay, and every
table is made from those counts. Delays are exact up to 100 ms; above it they have two digits, so
that a table of counts stays small however many messages there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmq.spark import schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

COLUMNS: Final = (
    schema.TOPIC,
    schema.BROKER_NAME,
    schema.QUEUE_ID,
    schema.STORE_SIZE,
    schema.STORE_TIMESTAMP,
    schema.BORN_TIMESTAMP,
    schema.BORN_HOST,
)
"""What the report reads of a message."""

PERCENTILES: Final = (0.5, 0.95, 0.99)
NO_BROKER: Final = ""
"""Used as the broker name of a store if none is given."""

TOTAL: Final[tuple[str, ...]] = ()
BY_TOPIC: Final = ("topic",)
BY_QUEUE: Final = ("topic", "broker_name", "queue_id")
BY_PRODUCER: Final = ("producer",)
BY_TOPIC_AND_TIME: Final = ("topic", "at")
BY_DELAY: Final = ("delay_ms",)
BY_TOPIC_AND_DELAY: Final = ("topic", "delay_ms")
BY_TIME_AND_DELAY: Final = ("delay_ms", "at")
ROLLUPS: Final = (
    TOTAL,
    BY_TOPIC,
    BY_QUEUE,
    BY_PRODUCER,
    BY_TOPIC_AND_TIME,
    BY_DELAY,
    BY_TOPIC_AND_DELAY,
    BY_TIME_AND_DELAY,
)
"""What `rollups` sums up."""

NEGATIVE: Final = -1
"""What stands for all negative delays."""

_ROLLUP_KEYS: Final = ("topic", "broker_name", "queue_id", "producer", "delay_ms", "at")
_EXACT_MS: Final = 100


def counted(messages: DataFrame) -> DataFrame:
    """Return how many messages there are of each kind: what all other tables are made from."""
    delay = F.unix_millis(schema.STORE_TIMESTAMP) - F.unix_millis(schema.BORN_TIMESTAMP)
    return (
        messages.select(
            F.col(schema.TOPIC).alias("topic"),
            F.coalesce(F.col(schema.BROKER_NAME), F.lit(NO_BROKER)).alias("broker_name"),
            F.col(schema.QUEUE_ID).alias("queue_id"),
            F.date_trunc("minute", F.col(schema.STORE_TIMESTAMP)).alias("minute"),
            _address(F.col(schema.BORN_HOST)).alias("producer"),
            rounded_delay(delay).alias("delay_ms"),
            F.col(schema.STORE_SIZE).alias("size"),
        )
        .groupBy("topic", "broker_name", "queue_id", "minute", "producer", "delay_ms")
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("size").alias("bytes"))
    )


def _address(host: Column) -> Column:
    """Return an address without its port: a producer that connects again has another one."""
    return F.left(host, F.length(host) - F.instr(F.reverse(host), ":"))


def rounded_delay(delay: Column) -> Column:
    """Return a delay with two digits where it is longer than 100 ms; -1 if it is negative.

    A delay is negative if the clock of the producer is ahead of the broker's.
    """
    unit = F.pow(F.lit(10.0), F.floor(F.log10(delay)) - 1)
    rounded = (F.floor(delay / unit) * unit).cast("BIGINT")
    return F.when(delay < 0, F.lit(NEGATIVE)).when(delay <= _EXACT_MS, delay).otherwise(rounded)


def span(counts: DataFrame) -> tuple[int, int] | None:
    """Return the first and the last minute that has messages, in seconds since 1970."""
    first, last = F.min("minute"), F.max("minute")
    row = counts.agg(F.unix_seconds(first), F.unix_seconds(last)).collect()[0]
    return None if row[0] is None else (int(row[0]), int(row[1]))


def rollups(counts: DataFrame, step_s: int) -> dict[tuple[str, ...], list[Row]]:
    """Return messages and bytes for all that the page shows, made in one pass; by the columns.

    Only sums are made here, which Spark does quickly; percentiles come from the counts by delay.
    """
    sets = [[F.col(name) for name in chosen] for chosen in ROLLUPS]
    rows = (
        counts.withColumn("at", bucket(step_s))
        .groupingSets(sets, *(F.col(name) for name in _ROLLUP_KEYS))
        .agg(
            F.grouping_id().alias("which"),
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
        )
        .collect()
    )
    # Each column that is not part of a set has its bit in the number of the set.
    bits = {name: 1 << at for at, name in enumerate(reversed(_ROLLUP_KEYS))}
    numbers = {
        sum(bit for name, bit in bits.items() if name not in chosen): chosen for chosen in ROLLUPS
    }
    found: dict[tuple[str, ...], list[Row]] = {chosen: [] for chosen in ROLLUPS}
    for row in rows:
        found[numbers[row["which"]]].append(row)
    return found


def traffic(counts: DataFrame) -> DataFrame:
    """Return the table of the report: a row for each topic, broker, queue and minute."""
    is_known = F.col("delay_ms") >= 0
    known = F.when(is_known, F.col("delay_ms"))
    table = counts.groupBy("topic", "broker_name", "queue_id", "minute").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.percentile(known, [*PERCENTILES], F.col("messages")).alias("percentiles"),
        F.max(known).alias("delay_max_ms"),
        F.coalesce(F.sum(F.when(~is_known, F.col("messages"))), F.lit(0)).alias("negative_delays"),
    )
    table = table.withColumns(
        {
            f"delay_p{round(share * 100)}_ms": F.col("percentiles")[index]
            for index, share in enumerate(PERCENTILES)
        }
    ).drop("percentiles")
    return table.repartitionByRange(1, "topic", "minute").sortWithinPartitions(
        "topic", "broker_name", "queue_id", "minute"
    )


def producers(counts: DataFrame) -> DataFrame:
    """Return producers by topic, the busiest first."""
    table = counts.groupBy("producer", "topic").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("minute").alias("first_minute"),
        F.max("minute").alias("last_minute"),
    )
    return table.orderBy(F.desc("messages"), "producer", "topic").coalesce(1)


def bucket(step_s: int) -> Column:
    """Return the beginning of the stretch of time that a minute lies in, in seconds since 1970."""
    return F.floor(F.unix_seconds("minute") / step_s) * step_s
