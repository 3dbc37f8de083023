"""Messages that are in a topic more than once, and why; and those of a ledger that are nowhere.

Two messages of a topic are the same if they have the same message id (the column `msgId`: the
UNIQ_KEY that the producer gave it), or if one is a copy of the other (COPY_OF, see `copies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmq.spark import schema
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF, REDRIVE, REPLAY
from rmq.spark.jobs.duplicates.causes import Cause
from rmq.spark.sink.identity import SPARK_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

READ_COLUMNS: Final = (
    schema.TOPIC,
    schema.BROKER_NAME,
    schema.QUEUE_ID,
    schema.QUEUE_OFFSET,
    schema.COMMIT_LOG_OFFSET,
    schema.STORE_TIMESTAMP,
    schema.BORN_TIMESTAMP,
    schema.BORN_HOST,
    schema.BODY_CRC,
    schema.RECONSUME_TIMES,
    schema.PREPARED_TRANSACTION_OFFSET,
    schema.MSG_ID,
    schema.KEYS,
    schema.PROPERTIES,
)
"""Bodies are not looked at: their checksums tell whether they differ."""

RETRY_WINDOW_S: Final = 60
"""A producer that gets no answer sends again within seconds, with a new time of birth."""
PLACES_MAX: Final = 20
"""How many places of one message are listed."""
ID: Final = "id"
LEDGER_KEY: Final = "ledgerKey"


def find_duplicates(messages: DataFrame) -> DataFrame:
    """Return one row for each message that is in its topic more than once."""
    place = F.struct(
        schema.BROKER_NAME,
        schema.QUEUE_ID,
        schema.QUEUE_OFFSET,
        schema.COMMIT_LOG_OFFSET,
        schema.STORE_TIMESTAMP,
    )
    together = messages.groupBy(schema.TOPIC, first_id().alias(ID)).agg(
        F.count("*").alias("copies"),
        *_bounds("crc", F.col(schema.BODY_CRC)),
        *_bounds("sparkKey", _property(SPARK_KEY)),
        F.count(_property(SPARK_KEY)).alias("sparkKeys"),
        F.count_if(_property(COPY_KEY).startswith(REDRIVE)).alias("redriven"),
        F.count_if(_property(COPY_KEY).startswith(REPLAY)).alias("replayed"),
        *_bounds("reconsumed", F.col(schema.RECONSUME_TIMES)),
        *_bounds("prepared", F.col(schema.PREPARED_TRANSACTION_OFFSET)),
        *_bounds("host", F.regexp_replace(schema.BORN_HOST, ":[0-9]+$", "")),
        *_bounds("born", F.col(schema.BORN_TIMESTAMP)),
        F.min(schema.STORE_TIMESTAMP).alias("firstStored"),
        F.max(schema.STORE_TIMESTAMP).alias("lastStored"),
        F.collect_set(schema.BROKER_NAME).alias("brokers"),
        F.slice(F.array_sort(F.collect_list(place)), 1, PLACES_MAX).alias("places"),
    )
    return together.filter(F.col("copies") > 1).select(
        schema.TOPIC,
        ID,
        "copies",
        _cause().alias("cause"),
        "firstStored",
        "lastStored",
        F.array_sort("brokers").alias("brokers"),
        "places",
    )


def first_id() -> Column:
    """Return the id of a message, or that of the message that it is a copy of."""
    return F.coalesce(_property(COPY_OF), F.col(schema.MSG_ID))


def _cause() -> Column:
    """Return the likely cause. The first that fits counts: those that leave a mark come first."""
    born_s = F.unix_seconds("bornMax") - F.unix_seconds("bornMin")
    is_retry = _is_same("host") & (born_s <= RETRY_WINDOW_S)
    return (
        F.when(F.col("redriven") > 0, Cause.REDRIVE.value)
        .when(F.col("replayed") > 0, Cause.REPLAY.value)
        .when(~_is_same("crc"), Cause.REUSED_ID.value)
        .when((F.col("sparkKeys") == F.col("copies")) & _is_same("sparkKey"), Cause.SINK.value)
        .when(F.col("reconsumedMax") > 0, Cause.CONSUMER.value)
        .when(_is_same("prepared") & (F.col("preparedMin") > 0), Cause.COMMIT.value)
        .when(is_retry & (F.size("brokers") > 1), Cause.FAILOVER.value)
        .when(is_retry, Cause.PRODUCER.value)
        .otherwise(Cause.UNKNOWN.value)
    )


def _bounds(name: str, column: Column) -> tuple[Column, Column]:
    return F.min(column).alias(f"{name}Min"), F.max(column).alias(f"{name}Max")


def _is_same(name: str) -> Column:
    return F.col(f"{name}Min").eqNullSafe(F.col(f"{name}Max"))


def _property(name: str) -> Column:
    return F.try_element_at(F.col(schema.PROPERTIES), F.lit(name))


# --- against a ledger ---------------------------------------------------------------------------


def find_missing(messages: DataFrame, ledger: DataFrame) -> DataFrame:
    """Return the keys of a ledger that no message has, neither as its id nor among its keys."""
    words = F.split(F.coalesce(schema.KEYS, F.lit("")), " ")
    keys = F.array_distinct(F.concat(F.array(schema.MSG_ID), words))
    present = messages.select(F.explode(keys).alias(LEDGER_KEY)).distinct()
    return ledger.select(LEDGER_KEY).distinct().join(present, LEDGER_KEY, "left_anti")
