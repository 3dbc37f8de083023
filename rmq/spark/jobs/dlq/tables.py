"""Dead letters and retries as tables: what each is about, and which of them are alike.

A message that a consumer could not process is stored again by the broker, in the retry topic of its
group and at last among its dead letters. It carries the topic that it was sent to (RETRY_TOPIC),
the offset message id of its first version (ORIGIN_MESSAGE_ID), and how often it was tried (the
column `reconsumeTimes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.spark import schema
from rmq.spark.jobs.copies import KEY, place_of
from rmq.spark.jobs.copy_names import REDRIVE
from rmq.spark.jobs.dlq.signature import body_signature

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEAD: Final = "dead"
RETRYING: Final = "retrying"

READ_COLUMNS: Final = tuple(name for name in schema.COLUMNS if name != schema.BODY_CRC)
OWN_COLUMNS: Final = {
    "group": "STRING",
    "kind": "STRING",
    "originTopic": "STRING",
    "originMessageId": "STRING",
    "ageSeconds": "BIGINT",
    "signature": "STRING",
    "isRedriven": "BOOLEAN",
}
"""What a table of letters has besides the columns of messages."""

ALIKE: Final = ("group", "kind", "originTopic", "tags", "signature")
"""What messages have in common that are counted together."""

CLOCKS_APART_S: Final = 60
"""By how much the clocks of two brokers may differ."""

_PREFIXES: Final = f"^({DLQ_PREFIX}|{RETRY_PREFIX})"


def letters_of(messages: DataFrame, now_ms: int) -> DataFrame:
    """Return dead letters and retries with what they are about."""
    topic = F.col(schema.TOPIC)
    stored_ms = F.unix_millis(schema.STORE_TIMESTAMP)
    return (
        messages.withColumn("group", F.regexp_replace(topic, _PREFIXES, ""))
        .withColumn("kind", F.when(topic.startswith(DLQ_PREFIX), DEAD).otherwise(RETRYING))
        .withColumn("originTopic", _origin_topic())
        .withColumn("originMessageId", _property("ORIGIN_MESSAGE_ID"))
        .withColumn("ageSeconds", F.floor((F.lit(now_ms) - stored_ms) / 1000))
        .withColumn("signature", body_signature(F.col(schema.BODY)))
        .withColumn(KEY, F.concat_ws("/", _place_key(), F.col(schema.MSG_ID)))
    )


def _place_key() -> Column:
    """Return the key of a letter without its id, which says only where it is."""
    return F.concat(F.lit(REDRIVE), place_of())


def _origin_topic() -> Column:
    """Return the topic that a message was sent to first; null if it does not say."""
    first = F.coalesce(_property("RETRY_TOPIC"), _property("REAL_TOPIC"))
    return F.when(~first.rlike(_PREFIXES), first)


def _property(name: str) -> Column:
    return F.try_element_at(F.col(schema.PROPERTIES), F.lit(name))


def marked(letters: DataFrame, redriven: DataFrame | None) -> DataFrame:
    """Return letters with whether they were redriven, as the ledger says.

    A topic that is deleted and created again has other letters at the same offsets, so a key holds
    the id of the letter as well. The first ledgers had keys without ids: such a row counts for the
    letter at its place if the copy was stored after the letter.
    """
    if redriven is None:
        return letters.withColumn("isRedriven", F.lit(False))
    copies = redriven.groupBy(KEY).agg(F.max(schema.STORE_TIMESTAMP).alias("copied"))
    by_key = copies.select(KEY, F.lit(True).alias("hasKey"))
    by_place = copies.withColumnRenamed(KEY, "placeKey")
    stored = F.col(schema.STORE_TIMESTAMP)
    is_after = F.col("copied") + F.expr(f"INTERVAL {CLOCKS_APART_S} SECONDS") >= stored
    return (
        letters.withColumn("placeKey", _place_key())
        .join(by_key, KEY, "left")
        .join(by_place, "placeKey", "left")
        .withColumn("isRedriven", F.coalesce("hasKey", is_after, F.lit(False)))
        .drop("placeKey", "hasKey", "copied")
    )


def summary_of(letters: DataFrame) -> DataFrame:
    """Return how many letters are alike, with an example of each kind."""
    return letters.groupBy(*ALIKE).agg(
        F.count("*").alias("letters"),
        F.count_if(~F.col("isRedriven") & (F.col("kind") == DEAD)).alias("open"),
        F.max(schema.RECONSUME_TIMES).alias("reconsumeTimes"),
        F.min(schema.STORE_TIMESTAMP).alias("firstStored"),
        F.max(schema.STORE_TIMESTAMP).alias("lastStored"),
        F.sum(F.length(schema.BODY)).alias("bytes"),
        F.min_by(schema.MSG_ID, schema.STORE_TIMESTAMP).alias("exampleMsgId"),
        F.min_by(place_of(), schema.STORE_TIMESTAMP).alias("examplePlace"),
    )


def ages_of(letters: DataFrame) -> list[dict[str, Any]]:
    """Return how many dead letters there are by whole hours of age, the youngest first."""
    hours = F.floor(F.greatest(F.col("ageSeconds"), F.lit(0)) / 3600).alias("hours")
    rows = letters.filter(F.col("kind") == DEAD).groupBy(hours).count().orderBy("hours").collect()
    return [row.asDict() for row in rows]
