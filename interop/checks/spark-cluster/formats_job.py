"""What is run on the workers to look at the formats there: a job for `spark-submit`.

It is told whether to make the formats known to Spark (`registered`) or to have Spark find them, and
is given a nameserver, a topic to read, one to write to, a store with the first topic, and a folder
for tables. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

REGISTERED: Final = "registered"
TASKS: Final = 8
TASK_S: Final = 0.3
"""How long each takes: so long that one worker does not do them all."""


def look_around(numbers: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Say where a task runs, and where its rmq has come from."""
    import pyspark_rmq
    import rmq

    time.sleep(TASK_S)
    # Their names may be relative to where they run.
    modules = [str(Path(module.__file__ or "").absolute()) for module in (rmq, pyspark_rmq)]
    for _ in numbers:
        yield str(Path.cwd()), modules[0], modules[1]


def contents(table: DataFrame) -> dict[str, int]:
    """Return what can be compared of a table of messages."""
    found = table.selectExpr(
        "count(*) AS rows",
        "count(DISTINCT queueId, queueOffset) AS places",
        "sum(cast(split(cast(body AS STRING), ' ')[0] AS INT)) AS total",
        "bit_xor(xxhash64(body, tags, keys, properties['n'])) AS hash",
    ).first()
    assert found is not None
    values: dict[str, int] = found.asDict()
    return values


def run(mode: str, nameserver: str, topic: str, target: str, store: str, folder: str) -> None:
    spark = SparkSession.builder.appName("formats").getOrCreate()
    cluster = {"nameservers": nameserver}
    result: dict[str, object] = {}
    if mode == REGISTERED:
        import rmq.spark

        rmq.spark.register(spark)
        result["driver"] = rmq.__file__
    wire = spark.read.format("rocketmq").options(**cluster, subscribe=topic).load()
    result["wire"] = contents(wire)
    if mode == REGISTERED:
        places = spark.sparkContext.parallelize(range(TASKS), TASKS).mapPartitions(look_around)
        result["places"] = places.distinct().collect()
        stored = spark.read.format("rocketmq-store").option("topics", topic).load(store)
        result["store"] = contents(stored)
        rows = wire.select("body", "tags", "keys", "properties")
        rows.write.format("rocketmq").mode("append").options(**cluster, topic=target).save()
        written = spark.read.format("rocketmq").options(**cluster, subscribe=target).load()
        result["written"] = contents(written)
        result["streamed"] = contents(streamed(spark, folder, **cluster, subscribe=topic))
    spark.stop()
    sys.stdout.write(json.dumps(result) + "\n")


def streamed(spark: SparkSession, folder: str, **options: str) -> DataFrame:
    """Return a copy of a topic that was made batch by batch."""
    query = (
        spark.readStream.format("rocketmq")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="7000")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/table")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{folder}/table")


if __name__ == "__main__":
    run(*sys.argv[1:])
