"""Real tables of a real Spark to a real broker, and back by a client that knows no Spark."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

from rmq.client.blocking import BlockingConsumer
from rmq.client.core.producing.selection import by_hash
from tests.client.blocking.cluster_process import process_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rmq.client.core.received import ReceivedMessage
    from tests.client.blocking.cluster_process import ProcessCluster

WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with process_cluster(tmp_path_factory.mktemp("cluster"), messageDelayLevel="1s 2s") as it:
        yield it


def read_all(cluster: ProcessCluster, topic: str, count: int) -> list[ReceivedMessage]:
    """Return all messages of a topic, once there are so many."""
    deadline = time.monotonic() + WAIT_S
    with BlockingConsumer(cluster.nameserver, "readers") as consumer:
        while True:
            queues = consumer.queues(topic)
            ends = consumer.end_offsets(queues)
            if sum(ends.values()) >= count:
                return [
                    message
                    for queue, end in ends.items()
                    for message in consumer.read_range(queue, 0, end)
                ]
            assert time.monotonic() < deadline, ends
            consumer.client.connections.sleep(0.02)


def save(table: DataFrame, cluster: ProcessCluster, **options: str) -> None:
    table.write.format("rocketmq").options(nameservers=cluster.nameserver, **options).mode(
        "append"
    ).save()


def identities(messages: list[ReceivedMessage]) -> dict[str, str]:
    """Return the message ids by the keys of rows."""
    return {message.properties["SPARK_KEY"]: message.message_id for message in messages}


def test_a_table_becomes_messages_with_all_they_carry(
    spark: SparkSession, cluster: ProcessCluster
) -> None:
    cluster.create_topic("Orders", queues=3)
    cluster.create_topic("Payments", queues=2)
    table = spark.range(0, 4000, 1, 2).select(
        f.expr("if(id % 4 = 0, 'Payments', 'Orders')").alias("topic"),
        f.expr("concat('body of ', id)").alias("Body"),
        f.expr("if(id % 3 = 0, null, concat('tag', id % 5))").alias("tags"),
        f.expr("if(id % 7 = 0, null, array(concat('k', id), 'all'))").alias("keys"),
        f.expr("map('number', string(id), 'UNIQ_KEY', 'not mine', 'empty', null)").alias(
            "properties"
        ),
        f.expr("if(id % 2 = 0, null, concat('customer ', id % 11))").alias("shardingKey"),
        f.expr("if(id % 1000 = 999, 1, 0)").alias("delayLevel"),
        f.expr("int(id)").alias("flag"),
        f.lit("ignored").alias("brokerName"),
        f.lit(1.5).alias("weight"),
    )
    options = {"runId": "run-1", "ignoreExtraColumns": "true", "batchMessages": "100"}
    save(table, cluster, **options)

    found = read_all(cluster, "Orders", 3000) + read_all(cluster, "Payments", 1000)
    assert sorted(message.flag for message in found) == list(range(4000))
    with BlockingConsumer(cluster.nameserver, "readers") as consumer:
        queues = {topic: consumer.queues(topic) for topic in ("Orders", "Payments")}
    in_order: dict[tuple[int, str], list[int]] = defaultdict(list)
    for message in found:
        number = message.flag
        assert message.topic == ("Orders" if number % 4 else "Payments")
        assert message.body == b"body of %d" % number
        assert message.tag == (f"tag{number % 5}" if number % 3 else None)
        assert message.keys == ((f"k{number}", "all") if number % 7 else ())
        assert message.properties["number"] == str(number)
        assert "empty" not in message.properties
        assert message.properties["UNIQ_KEY"] == message.message_id != "not mine"
        partition, row = divmod(number, 2000)
        assert message.properties["SPARK_KEY"] == f"run-1/{partition}/{row}"
        if number % 1000 == 999:
            assert message.properties["REAL_TOPIC"] == message.topic
        if number % 2:
            key = f"customer {number % 11}"
            assert message.queue == by_hash(queues[message.topic], None, key)  # type: ignore[arg-type]
            if number % 1000 != 999:
                in_order[partition, f"{message.topic} {key}"].append(number)
    assert len(in_order) == 2 * 11
    for numbers in in_order.values():
        assert numbers == sorted(numbers)
    assert len({message.message_id for message in found}) == 4000


def test_rows_that_are_sent_again_have_the_same_ids(
    spark: SparkSession, cluster: ProcessCluster
) -> None:
    cluster.create_topic("Again", queues=2)
    table = spark.range(0, 2000, 1, 2).select(
        f.expr("if(id = 1900, '', string(id))").alias("body"), f.lit("k").alias("keys")
    )
    options = {"topic": "Again", "runId": "run-2", "sparkKeyInKeys": "true"}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(PySparkException) as caught:
            save(table, cluster, **options)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    text = str(caught.value)
    assert "row 900 of the task, SPARK_KEY run-2/1/900: the body is null or empty" in text
    assert "900 rows of the task were stored before" in text

    first = identities(read_all(cluster, "Again", 900))
    assert {f"run-2/1/{row}" for row in range(900)} <= first.keys()
    # As Spark does it with a task that failed, and as somebody does who has mended the table.
    save(table.withColumn("body", f.lit("mended")), cluster, **options)
    both = read_all(cluster, "Again", len(first) + 2000)
    second = identities([message for message in both if message.body == b"mended"])
    assert len(second) == 2000
    assert first.items() <= second.items()
    assert {message.keys for message in both} == {("k", key) for key in second}


def test_a_stream_goes_on_where_it_was_and_sends_a_batch_again_under_the_same_ids(
    spark: SparkSession, cluster: ProcessCluster, tmp_path: Path
) -> None:
    cluster.create_topic("Stream", queues=2)
    checkpoint = tmp_path / "checkpoint"

    def add_rows(start: int) -> None:
        rows = spark.range(start, start + 50, 1, 1).select(f.expr("string(id)").alias("body"))
        rows.write.mode("append").text(str(tmp_path / "in"))

    def run() -> None:
        stream = spark.readStream.schema("body STRING").text(str(tmp_path / "in"))
        query = (
            stream.writeStream.format("rocketmq")
            .options(nameservers=cluster.nameserver, topic="Stream", maxMessagesPerSecond="100000")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    add_rows(0)
    run()
    before = read_all(cluster, "Stream", 50)
    query_id = before[0].properties["SPARK_KEY"].split("/")[0]
    assert sorted(identities(before)) == sorted(f"{query_id}/0/0/{row}" for row in range(50))
    add_rows(50)
    run()
    both = read_all(cluster, "Stream", 100)
    assert sorted(int(message.body) for message in both) == list(range(100))
    assert {key.rpartition("/")[0] for key in identities(both)} == {
        f"{query_id}/0/0",
        f"{query_id}/1/0",
    }
    # As if the driver had died after the last batch was sent, before it was written down.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run()
    again = read_all(cluster, "Stream", 150)
    counts = Counter((each.message_id, each.properties["SPARK_KEY"], each.body) for each in again)
    assert len(counts) == 100
    assert sorted(counts.values()) == [1] * 50 + [2] * 50


def test_what_is_wrong_is_said_before_anything_is_sent(
    spark: SparkSession, cluster: ProcessCluster, tmp_path: Path
) -> None:
    cluster.create_topic("Untouched", queues=1)
    good = spark.range(10).select(f.expr("string(id)").alias("body"))
    bad = spark.range(10).select(f.col("id").alias("body"), f.col("id").alias("weight"))

    def refused(table: DataFrame, **options: str) -> str:
        with pytest.raises(PySparkException) as caught:
            save(table, cluster, **{"topic": "Untouched", **options})
        return str(caught.value)

    text = refused(bad)
    assert "column body is BIGINT, not BINARY or STRING" in text
    assert "column weight (BIGINT) is not known" in text
    assert "did you mean batchBytes?" in refused(good, batchByte="1")
    assert "secretKeyFile" in refused(good, secretKey="hidden")
    writer = good.write.format("rocketmq").options(
        nameservers=cluster.nameserver, topic="Untouched"
    )
    with pytest.raises(AnalysisException, match="Append"):
        writer.save()
    with pytest.raises(PySparkException, match=r"cannot be overwritten.*append"):
        writer.mode("overwrite").save()

    # A setting of the application; tasks see it among those of the session.
    eager = spark.newSession()
    eager.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    eager.conf.set("spark.speculation", "true")
    with pytest.raises(PySparkException, match=r"spark.speculation.*set spark.speculation=false"):
        save(eager.range(10).select(f.expr("string(id)").alias("body")), cluster, topic="Untouched")

    (tmp_path / "rows.csv").write_text("a,1\n")
    stream = spark.readStream.schema("body STRING, weight INT").csv(str(tmp_path))
    query = (
        stream.writeStream.format("rocketmq")
        .options(nameservers=cluster.nameserver, topic="Untouched")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    with pytest.raises(PySparkException, match=r"column weight \(INT\) is not known"):
        query.trigger(availableNow=True).start().awaitTermination()
    assert not read_all(cluster, "Untouched", 0)
