"""The differences of an audit as a table of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rmq.spark.jobs.audit.naming import DIFFERS, FOUND, LOST, ROW_SCHEMA, UNREADABLE

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import Column, DataFrame, SparkSession

    from rmq.spark.jobs.audit.naming import Row

MISSING: Final = "missing"
"""The slave does not have this record of the master."""
EXTRA: Final = "extra"
"""The master does not have this record of the slave."""
MOVED: Final = "moved"
"""The slave has this record at another offset."""

KINDS: Final = (DIFFERS, MISSING, EXTRA, UNREADABLE, MOVED)

_NAMES: Final = {LOST: MISSING, FOUND: EXTRA}
_PLACE: Final = ("topic", "queue_id", "queue_offset")


def put_together(spark: SparkSession, rows: RDD[Row]) -> DataFrame:
    """Return one row for each difference.

    A record that is not where it should be is searched among the records of the other side that are
    not where they should be: by its place in its queue. If it is there it has moved, as all do
    behind one that is missing.
    """
    kinds = rows.persist().map(_kind_of).countByValue()
    found = spark.createDataFrame(rows.map(tuple), ROW_SCHEMA, verifySchema=False)
    found = found.withColumn("slave_offset", F.lit(None).cast("BIGINT"))
    if LOST in kinds and FOUND in kinds:
        whole = found.filter(F.col("kind").isin(DIFFERS, UNREADABLE)).unionByName(_matched(found))
    else:
        # Nothing to search for: what one side lacks the other has nowhere.
        named = F.create_map(*(F.lit(word) for pair in _NAMES.items() for word in pair))
        whole = found.withColumn("kind", F.coalesce(named[F.col("kind")], F.col("kind")))
    times = F.timestamp_millis(F.col("store_ms"))
    return whole.withColumn("store_time", times).drop("digest", "store_ms")


def _kind_of(row: Row) -> str:
    return row.kind


def _matched(found: DataFrame) -> DataFrame:
    """Put the halves together: what one side lost and what the other has elsewhere."""
    order = Window.partitionBy("kind", *_PLACE).orderBy("physical_offset")
    halves = found.filter(F.col("kind").isin(LOST, FOUND)).withColumn(
        "number", F.row_number().over(order)
    )
    lost = halves.filter(F.col("kind") == LOST).alias("lost")
    extra = halves.filter(F.col("kind") == FOUND).alias("extra")
    is_pair = [
        F.col(f"lost.{name}").eqNullSafe(F.col(f"extra.{name}")) for name in (*_PLACE, "number")
    ]
    joined = lost.join(extra, is_pair, "full_outer")
    is_lost, is_extra = F.col("lost.kind").isNotNull(), F.col("extra.kind").isNotNull()
    is_changed = F.col("lost.digest") != F.col("extra.digest")
    columns: dict[str, Column] = {
        name: F.coalesce(F.col(f"lost.{name}"), F.col(f"extra.{name}")) for name in found.columns
    }
    columns["kind"] = (
        F.when(is_lost & is_extra & is_changed, DIFFERS)
        .when(is_lost & is_extra, MOVED)
        .when(is_lost, MISSING)
        .otherwise(EXTRA)
    )
    columns["slave_offset"] = F.col("extra.physical_offset")
    return joined.select(*(column.alias(name) for name, column in columns.items()))


def count_by_kind(differences: DataFrame) -> dict[str, int]:
    """Return how many differences there are of each kind, 0 included."""
    counts = dict.fromkeys(KINDS, 0)
    for row in differences.groupBy("kind").count().collect():
        counts[str(row["kind"])] = int(row["count"])
    return counts


def first_of(differences: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return the differences at the lowest offsets; those that moved come last."""
    order = (F.when(F.col("kind") == MOVED, 1).otherwise(0), "physical_offset", "kind")
    return [row.asDict() for row in differences.orderBy(*order).limit(limit).collect()]
