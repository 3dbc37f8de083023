"""What Spark calls, called without Spark: plans, tasks, reports."""

from __future__ import annotations

import itertools
import logging
import pickle
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from rmq.errors import ConfigError, IllegalMessageError, NoRouteError, RmqError
from rmq.model.properties import decode_properties
from rmq.remoting.bodies import TopicRouteData
from rmq.remoting.bodies.batch import decode_batch
from rmq.remoting.codes import ResponseCode
from rmq.spark.sink import pool
from rmq.spark.sink.identity import RowIdentity
from rmq.spark.sink.sending import RowsNotSentError
from rmq.spark.sink.writer import (
    BatchWriter,
    SentRows,
    Sink,
    StreamWriter,
    batch_writer,
    refuse_speculation,
    stream_writer,
)
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import WriterCommitMessage

    from tests.client.blocking.scripted_cluster import ScriptedCluster

SCHEMA = StructType([StructField("body", BinaryType()), StructField("shardingKey", StringType())])
LOCAL = {"spark.master": "local[2]", "spark.speculation": "false"}


@pytest.fixture(autouse=True)
def _no_producers_are_kept() -> Iterator[None]:
    yield
    pool.close_all()


def sink_of(cluster: ScriptedCluster, **options: str) -> Sink:
    writer = batch_writer(
        {"nameservers": cluster.nameserver, "topic": TOPIC, **options}, SCHEMA, overwrite=False
    )
    assert isinstance(writer, BatchWriter)
    # As it gets to a task.
    again = pickle.loads(pickle.dumps(writer))
    assert isinstance(again, BatchWriter)
    return again._sink


def table(*bodies: bytes, key: str | None = None) -> Iterator[pa.RecordBatch]:
    arrays = [pa.array(bodies, pa.binary()), pa.array([key] * len(bodies), pa.string())]
    yield pa.RecordBatch.from_arrays(arrays, SCHEMA.names)


def send(sink: Sink, batches: Iterator[pa.RecordBatch], **settings: str) -> SentRows:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return sink.send_rows(batches, RowIdentity("run", 0), {**LOCAL, **named}.get)


def test_a_task_reports_what_it_has_sent_and_leaves_its_connection_to_the_next() -> None:
    with scripted_cluster("a") as cluster:
        sink = sink_of(cluster)
        assert send(sink, table(b"1", b"2", b"3")) == SentRows({TOPIC: 3})
        assert send(sink, table()) == SentRows({})
        assert send(sink, table(b"4", key="k")) == SentRows({TOPIC: 1})
        peer = cluster["a"].peer
        assert peer is not None
        assert peer.accepted == 1
        cluster["a"].play = cluster["a"].refuse(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(RowsNotSentError, match="0 rows of the task were stored before"):
            send(sink, table(b"5"))
        cluster["a"].play = cluster["a"].store
        assert send(sink, table(b"6")) == SentRows({TOPIC: 1})
        assert peer.accepted == 2
        found = [each for body in cluster["a"].stored for each in decode_batch(body)]
        assert [each.body for each in found] == [b"1", b"2", b"3", b"4", b"6"]
        keys = [decode_properties(each.properties)["SPARK_KEY"] for each in found]
        assert keys == ["run/0/0", "run/0/1", "run/0/2", "run/0/0", "run/0/0"]


def test_producers_that_are_kept_are_few() -> None:
    with scripted_cluster("a") as cluster:
        for number in range(2 * pool.PRODUCERS_MAX):
            send(sink_of(cluster, producerGroup=f"g{number}"), table(b"1"))
        assert len(pool._producers) == pool.PRODUCERS_MAX


def test_a_row_that_cannot_be_sent_is_told_with_how_far_the_task_has_come() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from table(b"1", b"2")
        yield from table(b"3", b"")

    with scripted_cluster("a") as cluster:
        with pytest.raises(IllegalMessageError) as caught:
            send(sink_of(cluster), batches())
        assert "row 3 of the task" in str(caught.value)
        assert "2 rows of the task were stored before" in str(caught.value)


def test_a_topic_without_queues_is_told_of_sharding_keys_too() -> None:
    with scripted_cluster("a") as cluster:
        known = cluster.route()
        empty = TopicRouteData(queue_datas=(), broker_datas=known.broker_datas)
        cluster.route = lambda: empty  # type: ignore[method-assign]
        with pytest.raises(NoRouteError, match="none of its queues takes messages"):
            send(sink_of(cluster, brokerTimeoutMs="0"), table(b"1", key="k"))


def test_queues_of_a_sharding_key_are_waited_for_while_nobody_can_tell_them() -> None:
    with scripted_cluster("a") as cluster:
        known = cluster.route()
        empty = TopicRouteData(queue_datas=(), broker_datas=known.broker_datas)
        cluster.route = lambda: empty if cluster.asked < 3 else known  # type: ignore[method-assign]
        sent = send(sink_of(cluster), itertools.chain(table(b"1"), table(b"2", key="k")))
        assert sent == SentRows({TOPIC: 2})


def test_the_limit_is_shared_by_tasks_that_run_at_the_same_time() -> None:
    with scripted_cluster("a") as cluster:
        limited = sink_of(cluster, maxMessagesPerSecond="3000", batchMessages="5000")
        assert send(limited, table(*[b"x"] * 2000), spark_master="local[3]").by_topic == {
            TOPIC: 2000
        }
        # No batch has more than what a task may send in a second.
        assert [len(decode_batch(body)) for body in cluster["a"].stored] == [1000, 1000]
        with pytest.raises(ConfigError, match="how many tasks share it"):
            send(limited, table(b"1"), spark_master="yarn")
        told = sink_of(cluster, maxMessagesPerSecond="3000", parallelTasks="1")
        assert send(told, table(b"1"), spark_master="yarn").by_topic == {TOPIC: 1}


def test_the_limit_holds_for_tasks_that_follow_each_other() -> None:
    with scripted_cluster("a") as cluster:
        limited = sink_of(cluster, maxMessagesPerSecond="1000")
        started = time.monotonic()
        for _ in range(3):
            send(limited, table(*[b"x"] * 100), spark_master="local[1]")
        assert time.monotonic() - started >= 0.3


def test_speculation_is_refused_before_anything_is_sent() -> None:
    with scripted_cluster("a") as cluster:
        with pytest.raises(ConfigError, match=r"spark.speculation"):
            send(sink_of(cluster), table(b"1"), spark_speculation="TRUE")
        assert not cluster["a"].stored
    for value in ("false", None):
        refuse_speculation({"spark.speculation": value}.get)


def test_plans_check_options_and_columns() -> None:
    options = {"nameservers": "host:1", "topic": "T"}
    for planned in (batch_writer, stream_writer):
        with pytest.raises(ConfigError, match="cannot be overwritten"):
            planned(options, SCHEMA, True)
        with pytest.raises(ConfigError, match="did you mean topic"):
            planned({**options, "topics": "T"}, SCHEMA, False)
        with pytest.raises(ConfigError, match="column body is BIGINT"):
            planned(options, StructType([StructField("body", LongType())]), False)
    assert isinstance(stream_writer(options, SCHEMA, False), StreamWriter)


def test_every_write_has_a_run_of_its_own_unless_it_is_told_one() -> None:
    options = {"nameservers": "host:1", "topic": "T"}
    runs = set()
    for given in ({}, {}, {"runId": "mine"}):
        writer = batch_writer({**options, **given}, SCHEMA, overwrite=False)
        assert isinstance(writer, BatchWriter)
        runs.add(writer._run_id)
    assert len(runs) == 3
    assert "mine" in runs


def test_reports_are_added_up_and_none_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    options = {"nameservers": "host:1", "topic": "T", "runId": "mine"}
    batch = batch_writer(options, SCHEMA, overwrite=False)
    del options["runId"]
    stream = stream_writer(options, SCHEMA, overwrite=False)
    reports: list[WriterCommitMessage | None] = [
        SentRows({"A": 2, "B": 1}),
        SentRows({"A": 3}),
        SentRows(),
    ]
    with caplog.at_level(logging.INFO):
        batch.commit(reports)
        stream.commit(reports, 7)
        batch.abort([*reports, None])
        stream.abort([None, None], 8)
    assert [record.getMessage() for record in caplog.records] == [
        "run mine: 6 messages sent (A 5, B 1)",
        "batch 7: 6 messages sent (A 5, B 1)",
        "run mine has failed: 6 messages sent (A 5, B 1) by the 3 tasks that were done, what the"
        " other 1 have sent is in their errors; written again with the option runId=mine, the same"
        " rows have the same message ids",
        "batch 8 has failed: 0 messages sent by the 0 tasks that were done, what the other 2 have"
        " sent is in their errors; when the query goes on, the batch is sent again with the same"
        " message ids",
    ]
    with pytest.raises(RmqError, match="1 of 4 tasks did not report"):
        batch.commit([*reports, None])
    with pytest.raises(RmqError, match="1 of 1 tasks did not report"):
        stream.commit([None], 9)
