"""Archive to topic to archive: the same content, in the order of queues, nothing twice."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyspark.sql import functions as F

from rmq.client.core.messages import Message
from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.queues import MessageQueue
from rmq.spark import schema
from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.jobs.copies import CONTENT, KEY, Comparison, compare, content_hash, lost_parts
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF
from rmq.spark.jobs.replay.run import Replayed, ReplayState, read_source, run_name, send_name
from rmq.spark.pipelines.archive import PIPELINE as ARCHIVE
from rmq.spark.pipelines.duplicates import PIPELINE as DUPLICATES
from rmq.spark.pipelines.replay import PIPELINE, make_verdict
from rmq.spark.pipelines.verdict import Outcome
from rmq.spark.sink.identity import SPARK_KEY
from tests.spark.pipelines.pipeline_cluster import pipeline_cluster, run_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

QUEUE = MessageQueue(topic="Copy", broker_name="broker-a", queue_id=1)


# --- without Spark ------------------------------------------------------------------------------


def test_the_name_of_a_run_follows_from_what_is_sent_where() -> None:
    name = run_name("T", 5, -7)
    assert name == run_name("T", 5, -7)
    assert len({name, run_name("U", 5, -7), run_name("T", 6, -7), run_name("T", 5, 7)}) == 4


def test_what_is_left_of_a_run_has_ids_of_its_own() -> None:
    assert send_name("replay-1", 0) == "replay-1"
    assert send_name("replay-1", 7) == send_name("replay-1", 7)
    assert len({send_name("replay-1", already) for already in (0, 7, 8)}) == 3


def test_what_cannot_be_looked_for_any_more_is_named() -> None:
    other = MessageQueue(topic="Copy", broker_name="broker-a", queue_id=2)
    assert lost_parts({QUEUE: 5, other: 0}, {QUEUE: 5, other: 0}) == []
    assert lost_parts({QUEUE: 5}, {QUEUE: 2, other: 8}) == []
    assert lost_parts({QUEUE: 5, other: 0}, {QUEUE: 8}) == [
        "topic Copy, broker broker-a, queue 1 before offset 8, where it begins now",
        "topic Copy, broker broker-a, queue 2, which is not there: its broker is down, or the topic"
        " was deleted",
    ]


def test_where_a_topic_ended_is_kept_for_the_next_run(tmp_path: Path) -> None:
    assert ReplayState(None, "replay-1").read() is None
    state = ReplayState(tmp_path / "state", "replay-1")
    assert state.read() is None
    state.begin({QUEUE: 5})
    assert ReplayState(tmp_path / "state", "replay-1").read() == {QUEUE: 5}
    assert ReplayState(tmp_path / "state", "replay-2").read() is None
    (tmp_path / "state" / "replay-1.json").write_text("{")
    with pytest.raises(CorruptStoreError, match="not what a replay wrote"):
        state.read()


@pytest.mark.parametrize(
    ("comparison", "outcome", "words"),
    [
        pytest.param(Comparison(5, 5, 0), Outcome.HOLDS, "each once and unchanged", id="all"),
        pytest.param(Comparison(5, 4, 0), Outcome.FAILS, "1 message not in the topic", id="lost"),
        pytest.param(
            Comparison(5, 5, 2), Outcome.FAILS, "2 messages in the topic more", id="twice"
        ),
        pytest.param(Comparison(5, 5, 0, 1), Outcome.FAILS, "another content", id="changed"),
        pytest.param(None, Outcome.UNKNOWN, "nothing to send", id="not sent"),
    ],
)
def test_it_holds_if_everything_is_there_once_and_unchanged(
    comparison: Comparison | None, outcome: Outcome, words: str
) -> None:
    result = Replayed("replay-1", 5, 100, 2, 0, 5, comparison)
    verdict = make_verdict(result, "T", {}, is_dry=False)
    assert verdict.outcome is outcome
    assert words in " ".join([verdict.sentence, *(each.text for each in verdict.findings)])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--from", "/nowhere", "--topic", "T"], "no such file", id="no table"),
        pytest.param(["--from", ".", "--topic", "a b"], "--topic", id="no topic"),
    ],
)
def test_what_is_asked_wrongly_is_said_clearly(argv: list[str], words: str) -> None:
    code, verdict = run_json(PIPELINE, "-n", "127.0.0.1:1", *argv)
    assert (code, verdict["outcome"]) == (2, "unknown")
    assert words in verdict["verdict"]


# --- tables -----------------------------------------------------------------------------------


def test_any_parquet_table_with_bodies_is_a_source(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f"body {number}", number) for number in range(5)]
    spark.createDataFrame(rows, "body STRING, other INT").coalesce(1).write.parquet(
        str(tmp_path / "table")
    )
    source = read_source(spark, tmp_path / "table", None)
    assert not source.has_queues
    found = source.table.orderBy("orderA").select("place", "body").collect()
    assert [row.body for row in found] == [body for body, _ in rows]
    assert [row.place.rpartition("/")[2] for row in found] == list("01234")
    spark.createDataFrame([(1,)], "a INT").write.parquet(str(tmp_path / "bodiless"))
    with pytest.raises(ConfigError, match="no column body; it has a"):
        read_source(spark, tmp_path / "bodiless", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither an archive nor a Parquet table"):
        read_source(spark, tmp_path / "empty", None)
    with pytest.raises(ConfigError, match="no column topic"):
        read_source(spark, tmp_path / "table", ["Orders"])


@pytest.mark.parametrize("name", ["table", "a table+b %41 ü"])
def test_rows_of_files_with_the_same_name_are_told_apart(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Spark names files of different partitions alike if one task wrote them."""
    root = tmp_path / name
    for day in (1, 2):
        folder = root / f"day={day}"
        folder.mkdir(parents=True)
        rows = {"body": [f"{day}/{row}" for row in range(3)]}
        pq.write_table(pa.table(rows), folder / "part-0.parquet")
    for path in (root, root / "day=1" / ".."):
        source = read_source(spark, path, None)
        found = source.table.select("place", "queue", "body").collect()
        assert {row.place: row.body for row in found} == {
            f"day={day}/part-0.parquet/{row}": f"{day}/{row}" for day in (1, 2) for row in range(3)
        }
        assert len({row.queue for row in found}) == 2
    file = read_source(spark, root / "day=1" / "part-0.parquet", None)
    assert {row.place for row in file.table.select("place").collect()} == {
        f"part-0.parquet/{row}" for row in range(3)
    }


def test_what_is_missing_doubled_or_changed_is_counted(spark: SparkSession) -> None:
    names = f"{KEY} STRING, {CONTENT} BIGINT"
    wanted = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3), ("d", 4)], names)
    found = spark.createDataFrame([("a", 1), ("b", 2), ("b", 2), ("c", 9), ("x", 5)], names)
    assert compare(wanted, found) == Comparison(wanted=4, found=3, doubled=1, changed=1)


# --- archive, replay, archive -------------------------------------------------------------------


def contents(table: DataFrame) -> list[int]:
    rows = table.select(content_hash(F.col(schema.KEYS)).alias("hash")).collect()
    return sorted(row.hash for row in rows)


def test_archive_replay_and_archive_give_the_same_content(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pipeline_cluster(tmp_path / "cluster") as cluster:
        for topic in ("Orders", "Copy"):
            cluster.create_topic(topic, queues=3)
        cluster.send(
            Message(
                "Orders",
                b"order %d" % number,
                f"Tag{number % 3}" if number % 4 else None,
                (f"k{number}", "all") if number % 2 else (),
                properties={"shop": f"north {number % 5}"} if number % 7 else {},
                flag=number % 3,
            )
            for number in range(60)
        )
        nameserver = ("-n", cluster.nameserver)
        first, again, state = (str(tmp_path / name) for name in ("first", "again", "state"))
        code, verdict = run_json(ARCHIVE, *nameserver, "--topic", "Orders", "--out", first)
        assert code == 0, verdict
        argv = (*nameserver, "--from", first, "--topic", "Copy", "--out", state)
        code, verdict = run_json(PIPELINE, *argv)
        assert (code, verdict["facts"]["sent"], verdict["facts"]["found"]) == (0, 60, 60), verdict
        code, _ = run_json(ARCHIVE, *nameserver, "--topic", "Copy", "--out", again)
        assert code == 0

        before, after = (
            read_archive(spark, tmp_path / "first"),
            read_archive(spark, tmp_path / "again"),
        )
        assert contents(before) == contents(after)
        assert len(set(contents(before))) == 60
        copied = [dict(row.properties) for row in after.select("properties").collect()]
        ids = {row.msgId for row in before.select("msgId").collect()}
        assert {properties[COPY_OF] for properties in copied} == ids

        # Messages of one queue are in one queue, in their order.
        by_origin = defaultdict(list)
        for message in cluster.messages("Copy"):
            origin, _, offset = message.properties[COPY_KEY].rpartition("/")
            by_origin[origin].append((message.queue.queue_id, int(offset)))
        assert len(by_origin) == 3
        for places in by_origin.values():
            assert len({queue_id for queue_id, _ in places}) == 1
            assert places == sorted(places)

        # As if the first run had been killed when it had sent a part.
        (path,) = (tmp_path / "state").glob("replay-*.json")
        starts = {q.queue.queue_id: 0 for q in cluster.messages("Copy")}
        largest = max(
            starts,
            key=lambda queue_id: len(
                [m for m in cluster.messages("Copy") if m.queue.queue_id == queue_id]
            ),
        )
        value = json.loads(path.read_text())
        value["starts"]["Copy"]["broker-a"][str(largest)] = 4
        path.write_text(json.dumps(value))
        code, verdict = run_json(PIPELINE, *argv)
        assert (code, verdict["facts"]["sent_before"], verdict["facts"]["sent"]) == (0, 56, 4)
        assert verdict["facts"]["found"] == 60
        assert "56 of them by an earlier run" in verdict["verdict"]
        # Whoever drops what has an id that was there before must not drop others for it.
        messages = cluster.messages("Copy")
        assert len(messages) == 64
        for names in (
            {message.message_id for message in messages},
            {message.properties[SPARK_KEY] for message in messages},
        ):
            assert len(names) == 64

        # Copies that should have been made once are duplicates, be they of a replay or not.
        code, verdict = run_json(DUPLICATES, *nameserver, "--topic", "Copy", "--allow", "replay")
        assert (code, verdict["facts"]["extra_copies_not_allowed"]) == (1, 4)
        assert "replay" not in verdict["facts"]["extra_copies_by_cause"]

        # As if a broker were down that has a part of what was sent.
        value["starts"]["Copy"]["broker-b"] = {"0": 7}
        path.write_text(json.dumps(value))
        code, verdict = run_json(PIPELINE, *argv)
        assert code == 2
        assert "can no longer be found in topic Copy, broker broker-b" in verdict["verdict"]
        assert path.name in verdict["facts"]["hint"]
        assert len(cluster.messages("Copy")) == 64
