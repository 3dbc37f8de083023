"""The source in real Spark, on a real master and its slave: what only they can show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from rmq.spark.wire.positions import read_offset
from rmq.spark.wire.progress import commit_progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.wire.wire_cluster import WireCluster


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def table(spark: SparkSession, cluster: WireCluster, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**cluster.options(**options)).load()


# --- batches ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(cluster: WireCluster) -> WireCluster:
    """Two topics: 20,000 messages in four queues, every other one of tag `odd`, and 100 in one."""
    cluster.create_topic("Many", queues=4)
    cluster.create_topic("Few")
    for queue_id in range(4):
        first = 5000 * queue_id
        cluster.send("Many", numbers(first, first + 2500), queue_id, tag="even")
        cluster.send("Many", numbers(first + 2500, first + 5000), queue_id, tag="odd")
    cluster.send("Few", numbers(20_000, 20_100))
    return cluster


def test_every_message_is_a_row(spark: SparkSession, filled: WireCluster) -> None:
    rows = table(spark, filled, subscribe="Many,Few", minPartitions="8", batchRows="1000")
    found = (
        rows.selectExpr("*", "cast(cast(body as string) as int) as number")
        .groupBy("topic", "brokerName", "queueId")
        .agg(
            {"*": "count", "number": "sum", "queueOffset": "max", "msgId": "approx_count_distinct"}
        )
        .withColumnsRenamed({"count(1)": "rows", "sum(number)": "sum", "max(queueOffset)": "last"})
        .orderBy("topic", "queueId")
        .collect()
    )
    assert [(row.topic, row.queueId, row.rows, row["sum"], row["last"]) for row in found] == [
        ("Few", 0, 100, sum(range(20_000, 20_100)), 99),
        *(
            ("Many", number, 5000, sum(range(5000 * number, 5000 * number + 5000)), 4999)
            for number in range(4)
        ),
    ]
    assert {row.brokerName for row in found} == {"broker-a"}


def test_options_choose_columns_and_tags(spark: SparkSession, filled: WireCluster) -> None:
    odd = table(spark, filled, subscribe="Many", tags="odd", columns="body,tags,bornTimestamp")
    assert odd.columns == ["bornTimestamp", "tags", "body"]
    row = odd.selectExpr(
        "count(distinct cast(body as string)) as bodies",
        "min(cast(cast(body as string) as int) % 5000) as least",
        "collect_set(tags) as tags",
        "max(bornTimestamp) < current_timestamp() as is_past",
    ).first()
    assert row is not None
    assert row.asDict() == {"bodies": 10_000, "least": 2500, "tags": ["odd"], "is_past": True}


def test_filters_of_one_query_do_not_reach_the_next(
    spark: SparkSession, filled: WireCluster
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = table(spark, filled, subscribe="Few", columns="queueOffset")
        assert rows.filter("queueOffset < 10").count() == 10
        assert rows.count() == 100
        parts = rows.filter("queueOffset < 10").union(rows.filter("queueOffset >= 10"))
        assert parts.distinct().count() == 100
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_table_is_what_it_was_when_it_was_first_used(
    spark: SparkSession, cluster: WireCluster
) -> None:
    cluster.create_topic("Growing")
    rows = table(spark, cluster, subscribe="Growing", columns="queueOffset")
    assert rows.count() == 0, "no message, and no task to read it"
    cluster.send("Growing", numbers(0, 5))
    assert rows.count() == 0
    assert table(spark, cluster, subscribe="Growing").count() == 5


def test_what_is_wrong_is_told_with_what_to_do(
    spark: SparkSession, filled: WireCluster, tmp_path: Path
) -> None:
    def said(**options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            table(spark, filled, **options).count()
        return str(caught.value)

    assert "did you mean subscribe?" in said(subscribr="Many")
    assert "did you mean Many?" in said(subscribe="Mani")
    lost = json.dumps({"Few": {"broker-a": {"0": 101}}})
    assert "failOnDataLoss=false" in said(subscribe="Few", startingOffsets=lost)
    assert "do the nameservers run" in said(subscribe="Few", nameservers="127.0.0.1:1")
    with pytest.raises(PySparkException, match="option columns"):
        (
            spark.read.format("rocketmq")
            .schema("body STRING")
            .options(**filled.options(subscribe="Few"))
            .load()
            .count()
        )
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    rows = table(spark, filled, subscribe="Few", accessKey="me", secretKeyFile=str(secret))
    assert rows.count() == 100
    jvm: Any = rows._jdf  # Plans are seen on the Java side only.
    assert "hunter2" not in jvm.queryExecution().toString()
    assert "secretKeyFile" in said(subscribe="Few", secretKey="hunter2")
    assert "hunter2" not in said(subscribe="Few", secretKey="hunter2")
    with pytest.raises(AnalysisException, match="mode"):
        rows.write.format("rocketmq").options(**filled.options(topic="Few")).save()


# --- streams ---------------------------------------------------------------------------------


class Archive:
    """A query that copies topics to Parquet, run as often as a test likes."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.options = options
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"

    def run(self) -> StreamingQuery:
        """Copy what there is; raise what the query failed with."""
        query = (
            self.spark.readStream.format("rocketmq")
            .options(**self.options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .option("path", str(self.out))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def bodies(self) -> list[int]:
        """Return what was copied, in order."""
        rows = self.spark.read.parquet(str(self.out)).selectExpr("cast(body as string) as body")
        return sorted(int(row.body) for row in rows.collect())

    def batches(self) -> list[int]:
        """Return how many messages all queues had been read up to after each batch."""
        ends = []
        for number in range(len([*self.checkpoint.glob("offsets/[0-9]*")])):
            *_, offset = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
            ends.append(sum(read_offset(json.loads(offset)).values()))
        return ends

    def forget_commit(self, batch: int) -> None:
        """Make it look as if the process had died before a batch was done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


def row_counts(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_stream_in_limits_with_restarts_and_a_new_queue(
    spark: SparkSession, filled: WireCluster, tmp_path: Path
) -> None:
    cluster = filled
    cluster.create_topic("Streamed", queues=2)
    cluster.send("Streamed", numbers(0, 10))
    options = cluster.options(
        subscribe="Streamed", maxOffsetsPerTrigger="400", commitGroup="streamers"
    )
    archive = Archive(spark, tmp_path, **options)
    archive.run()
    assert archive.batches() == [10], "a stream starts at the end unless it is told otherwise"

    # It dies before its first batch is done. What comes meanwhile must not be taken for read.
    archive.forget_commit(0)
    cluster.send("Streamed", numbers(10, 710), 0)
    cluster.send("Streamed", numbers(710, 1010), 1)
    query = archive.run()
    assert archive.bodies() == [*range(10, 1010)]
    assert archive.batches() == [10, 410, 810, 1010]
    assert max(row_counts(query)) == 400
    # Spark has not told of the last batch; whoever ran the query does.
    told = [cluster.committed("streamers", "Streamed", number) for number in range(2)]
    assert sum(place or 0 for place in told) == 810
    commit_progress(query, options)
    told = [cluster.committed("streamers", "Streamed", number) for number in range(2)]
    assert told == [710, 300]

    # Nothing new makes no batch, and is no reason to run for ever.
    archive.run()
    assert archive.batches() == [10, 410, 810, 1010]

    # A batch that was planned and not finished is read again, exactly.
    archive.forget_commit(3)
    cluster.create_topic("Streamed", queues=3)
    cluster.send("Streamed", numbers(1010, 1020), 2)
    archive.run()
    assert archive.bodies() == [*range(10, 1020)]

    # What keeps it from going on is told, with what to do about it.
    def said(**given: str) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            Archive(spark, tmp_path, **{**options, **given}).run()
        return str(caught.value)

    assert "checkpointLocation of its own" in said(subscribe="Few")
    cluster.delete_topic("Streamed")
    cluster.create_topic("Streamed", queues=3)
    lost = said()
    for word in ("topic Streamed", "up to 710, and ends at 0 now", "failover", "failOnDataLoss"):
        assert word in lost


def test_a_stream_outlives_its_master(
    spark: SparkSession, cluster: WireCluster, tmp_path: Path
) -> None:
    """The last test: it takes the master away."""
    cluster.create_topic("Survivor", queues=2)
    cluster.send("Survivor", numbers(0, 500), 0)
    cluster.send("Survivor", numbers(500, 1000), 1)
    options = cluster.options(
        subscribe="Survivor", startingOffsets="earliest", maxOffsetsPerTrigger="300"
    )
    archive = Archive(spark, tmp_path, **options)
    copied: list[Sequence[int]] = []

    def kill_master(_rows: DataFrame, batch: int) -> None:
        copied.append([int(row.body) for row in _rows.collect()])
        if batch == 2:
            cluster.kill_master()
        if batch == 3:
            cluster.promote_slave()

    query = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .writeStream.foreachBatch(kill_master)
        .option("checkpointLocation", str(archive.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert archive.batches() == [0, 300, 600, 900, 1000]
    assert sorted(number for batch in copied for number in batch) == [*range(1000)]
