"""Messages that are in a topic more than once, and why; and those of a ledger that are nowhere.

Two messages of a topic are the same if they have the same message id (the column `msgId`: the
UNIQ_KEY that the producer gave it), or if one is a copy of the other (COPY_OF, see `copies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
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
"""Bodies are not read: their checksums tell whether they differ."""

RETRY_WINDOW_S: Final = 60
"""A producer that gets no answer sends again within seconds, with a new time of birth."""
PLACES_MAX: Final = 20
"""How many places of one message are listed."""
ID: Final = "id"
_COPY_KEY: Final = "copyKey"
_SPARK_KEY: Final = "sparkKey"
LEDGER_KEY: Final = "ledgerKey"


def find_duplicates(messages: DataFrame) -> DataFrame:
    """Return one row for each message that is in its topic more than once.

    What has the same COPY_KEY, or has none, is one part. One of the parts is the message itself,
    the others are copies that were made on purpose, by a redrive or a replay. Whatever a part has
    more than once has a cause of its own.
    """
    parts = _parts(_more_than_once(messages))
    together = parts.groupBy(schema.TOPIC, ID).agg(
        F.sum("copies").alias("copies"),
        F.array_sort(
            F.collect_list(F.struct("isCopy", "firstStored", "madeBy", "again", "cause"))
        ).alias("parts"),
        F.min("firstStored").alias("firstStored"),
        F.max("lastStored").alias("lastStored"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("brokers")))).alias("brokers"),
        F.slice(F.array_sort(F.flatten(F.collect_list("places"))), 1, PLACES_MAX).alias("places"),
    )
    return together.withColumn("extra", _extra()).select(
        schema.TOPIC,
        ID,
        "copies",
        F.element_at("extra", 1)["cause"].alias("cause"),
        "extra",
        "firstStored",
        "lastStored",
        "brokers",
        "places",
    )


def _more_than_once(messages: DataFrame) -> DataFrame:
    """Return what shares its id with others. They are few, as a rule: all else is about them."""
    copy_key = _property(COPY_KEY)
    is_ours = copy_key.startswith(REDRIVE) | copy_key.startswith(REPLAY)
    same = Window.partitionBy(schema.TOPIC, ID)
    return (
        messages.withColumn(ID, first_id())
        .withColumn(_COPY_KEY, F.when(is_ours, copy_key))
        .withColumn(_SPARK_KEY, _property(SPARK_KEY))
        .drop(schema.PROPERTIES, schema.KEYS, schema.MSG_ID)
        .withColumn("together", F.count("*").over(same))
        .filter(F.col("together") > 1)
    )


def _parts(messages: DataFrame) -> DataFrame:
    """Return one row for all messages that have the same id and the same COPY_KEY."""
    place = F.struct(
        schema.BROKER_NAME,
        schema.QUEUE_ID,
        schema.QUEUE_OFFSET,
        schema.COMMIT_LOG_OFFSET,
        schema.STORE_TIMESTAMP,
    )
    parts = messages.groupBy(schema.TOPIC, ID, _COPY_KEY).agg(
        F.count("*").alias("copies"),
        *_bounds("crc", F.col(schema.BODY_CRC)),
        *_bounds("sparkKey", F.col(_SPARK_KEY)),
        F.count(_SPARK_KEY).alias("sparkKeys"),
        *_bounds("reconsumed", F.col(schema.RECONSUME_TIMES)),
        *_bounds("prepared", F.col(schema.PREPARED_TRANSACTION_OFFSET)),
        *_bounds("host", F.regexp_replace(schema.BORN_HOST, ":[0-9]+$", "")),
        *_bounds("born", F.col(schema.BORN_TIMESTAMP)),
        F.min(schema.STORE_TIMESTAMP).alias("firstStored"),
        F.max(schema.STORE_TIMESTAMP).alias("lastStored"),
        F.collect_set(schema.BROKER_NAME).alias("brokers"),
        F.slice(F.array_sort(F.collect_list(place)), 1, PLACES_MAX).alias("places"),
    )
    made_by = F.when(F.col(_COPY_KEY).startswith(REDRIVE), Cause.REDRIVE.value).otherwise(
        Cause.REPLAY.value
    )
    return (
        parts.withColumn("isCopy", F.col(_COPY_KEY).isNotNull())
        .withColumn("madeBy", made_by)
        .withColumn("again", F.col("copies") - 1)
        .withColumn("cause", _cause())
    )


def _extra() -> Column:
    """Return how many copies are too many by cause, those made on purpose last."""
    again = F.transform(
        F.filter("parts", lambda part: part["again"] > 0),
        lambda part: F.struct(part["cause"].alias("cause"), part["again"].alias("copies")),
    )
    # The first part is the message: one that is no copy, or else the copy that was stored first.
    made = F.transform(
        F.slice("parts", 2, F.size("parts")),
        lambda part: F.struct(
            part["madeBy"].alias("cause"), F.lit(1).cast("BIGINT").alias("copies")
        ),
    )
    every = F.concat(again, made)
    causes = F.array_distinct(F.transform(every, lambda each: each["cause"]))

    def total(cause: Column) -> Column:
        return F.aggregate(
            F.filter(every, lambda each: each["cause"] == cause),
            F.lit(0).cast("BIGINT"),
            lambda sum_, each: sum_ + each["copies"],
        )

    return F.transform(
        causes, lambda cause: F.struct(cause.alias("cause"), total(cause).alias("copies"))
    )


def first_id() -> Column:
    """Return the id of a message, or that of the message that it is a copy of."""
    return F.coalesce(_property(COPY_OF), F.col(schema.MSG_ID))


def _cause() -> Column:
    """Return why a part is there more than once, most likely.

    The first cause that fits counts: those that leave a mark come first.
    """
    born_s = F.unix_seconds("bornMax") - F.unix_seconds("bornMin")
    is_retry = _is_same("host") & (born_s <= RETRY_WINDOW_S)
    return (
        F.when(~_is_same("crc"), Cause.REUSED_ID.value)
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
