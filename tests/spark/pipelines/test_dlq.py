"""Dead letters: arguments, verdicts, ledger and signatures; and a redrive on a real broker."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from rmq.client.core.config import ClientConfig
from rmq.client.core.messages import Message
from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.queues import MessageQueue
from rmq.spark.jobs import outputs
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF
from rmq.spark.jobs.dlq.ledger import LEDGER_SCHEMA, Ledger, Redrive
from rmq.spark.jobs.dlq.run import matching
from rmq.spark.jobs.dlq.signature import body_signature
from rmq.spark.jobs.dlq.tables import READ_COLUMNS, letters_of, marked
from rmq.spark.jobs.dlq.topics import find_queues
from rmq.spark.jobs.topic_ranges import range_options
from rmq.spark.pipelines.dlq import PIPELINE, check_arguments
from rmq.spark.pipelines.job import build_parser
from rmq.spark.schema import spark_schema
from tests.spark.pipelines.pipeline_cluster import pipeline_cluster, run_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=1)
OTHER = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["--redrive"], "which dead letters?", id="none chosen"),
        pytest.param(["--redrive", "--all", "--where", "true"], "both say", id="chosen twice"),
        pytest.param(["--redrive", "--where", " "], "is empty", id="empty condition"),
        pytest.param(["--where", "true"], "--where: has no effect", id="condition alone"),
        pytest.param(["--dry-run"], "--dry-run: has no effect", id="dry run alone"),
        pytest.param(["--rate", "5"], "--rate: has no effect", id="rate alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(argv: list[str], words: str) -> None:
    args = build_parser(PIPELINE).parse_args(["-n", "127.0.0.1:1", "--out", "dlq", *argv])
    with pytest.raises(ConfigError, match=words):
        check_arguments(args)


def test_without_a_cluster_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    code, verdict = run_json(PIPELINE, "--out", str(tmp_path))
    assert (code, verdict["outcome"]) == (2, "unknown")
    assert "which cluster?" in verdict["verdict"]


# --- ranges and the ledger ----------------------------------------------------------------------


def test_a_range_has_only_queues_with_something_in_it() -> None:
    options = range_options({QUEUE: 5, OTHER: 7}, {QUEUE: 9, OTHER: 7})
    assert options is not None
    assert json.loads(options["assign"]) == {"Orders": {"broker-a": [1]}}
    assert json.loads(options["startingOffsets"]) == {"Orders": {"broker-a": {"1": 5}}}
    assert json.loads(options["endingOffsets"]) == {"Orders": {"broker-a": {"1": 9}}}
    assert range_options({QUEUE: 9}, {QUEUE: 9}) is None
    new = range_options({}, {QUEUE: 3, OTHER: 0})
    assert new is not None
    assert json.loads(new["startingOffsets"]) == {"Orders": {"broker-a": {"1": -2}}}


def test_the_ledger_knows_which_runs_were_interrupted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "dlq")
    assert ledger.unfinished() == []
    first = Redrive("redrive-1", 1, 10, {QUEUE: 5, OTHER: 0})
    ledger.begin(first)
    ledger.begin(Redrive("redrive-2", 2, 3, {QUEUE: 15}))
    assert [each.run for each in Ledger(tmp_path / "dlq").unfinished()] == [
        "redrive-1",
        "redrive-2",
    ]
    assert dict(ledger.unfinished()[0].starts) == dict(first.starts)
    ledger.finish(first)
    assert [each.run for each in ledger.unfinished()] == ["redrive-2"]


def test_a_ledger_that_cannot_be_read_stops_everything(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.begin(Redrive("redrive-1", 1, 10, {QUEUE: 5}))
    (tmp_path / "redrives" / "redrive-1.json").write_text('{"run": "redrive-1"')
    with pytest.raises(CorruptStoreError, match=r"redrive-1\.json"):
        ledger.unfinished()


def test_only_one_run_sends(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(Ledger(tmp_path).locked())
        with pytest.raises(ConfigError, match="another run"):
            stack.enter_context(Ledger(tmp_path).locked())
    with Ledger(tmp_path).locked():
        pass


# --- tables -----------------------------------------------------------------------------------

SIGNATURES = {
    b'{"id": 4711, "lines": [{"sku": "A-1"}, {"sku": "B-2"}], "ok": true, "x": null}': (
        '{"id":0,"lines":[{"sku":"s"}],"ok":b,"x":null}'
    ),
    b'{"id":5,"lines":[{"sku":"C"}],"ok":false,"x":null}': (
        '{"id":0,"lines":[{"sku":"s"}],"ok":b,"x":null}'
    ),
    b'{"q":"say \\"k\\": 5","t":"trueish"}': '{"q":"s","t":"s"}',
    b"[1, 2.5, -3e7]": "[0]",
    b'{"a":"' + b'\\"' * 5000 + b'"}': '{"a":"s"',
    b"Order 4711 of\n 2024-05-31 failed": "Order 0 of 0-0-0 failed",
    "Käse 12 fehlt".encode(): "Käse 0 fehlt",
    b"id 0A0B0C0D0E0F0A0B0C0D and 123e4567-e89b-12d3-a456-426614174000": "id <hex> and <uuid>",
    b"x" * 300: "x" * 200 + "…",
    b"\x1f\x8b\x08\x00" + bytes(600): "binary 1f8b0800, 2^9 bytes",
    b"\xff\xfe\xfd": "binary fffefd, 2^1 bytes",
    b"": "empty",
}


def test_bodies_that_differ_in_values_only_have_one_signature(spark: SparkSession) -> None:
    table = spark.createDataFrame([(body,) for body in SIGNATURES], "body BINARY")
    rows = table.select("body", body_signature(F.col("body")).alias("signature")).collect()
    assert {bytes(row.body): row.signature for row in rows} == SIGNATURES


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("originTopic = ", id="no condition"),
        pytest.param("orginTopic = 'Orders'", id="no column"),
        pytest.param("ageSeconds + 1", id="no truth value"),
        pytest.param("1 = 1; DROP TABLE x", id="more than one"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused(spark: SparkSession, where: str) -> None:
    letters = spark.createDataFrame([], "originTopic STRING, ageSeconds BIGINT")
    with pytest.raises(ConfigError, match="--where") as caught:
        matching(letters, where)
    assert caught.value.hint is not None
    assert "originTopic" in caught.value.hint


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


def letter(message_id: str, minute: int, **changes: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any
    values: dict[str, Any] = {
        "topic": "%DLQ%billing",
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": 3,
        "storeTimestamp": NOON + timedelta(minutes=minute),
        "msgId": message_id,
        "properties": {"RETRY_TOPIC": "Orders"},
        "body": b"order",
    } | changes
    return tuple(values.get(name) for name in READ_COLUMNS)


def redriven_ids(letters: DataFrame, ledger: DataFrame) -> set[str]:
    rows = marked(letters, ledger).filter("isRedriven").collect()
    return {row.msgId for row in rows}


def test_offsets_that_begin_again_do_not_make_letters_redriven(spark: SparkSession) -> None:
    """A topic that is deleted and made again has other messages at the same offsets."""
    rows = [
        letter("first", 0),
        letter("other", 60),
        letter("again", 90, properties={"RETRY_TOPIC": "Orders", COPY_OF: "first"}),
        letter("behind", 0, queueOffset=4),
    ]
    letters = letters_of(spark.createDataFrame(rows, spark_schema(READ_COLUMNS)), 0)
    (key,) = [row[0] for row in letters.filter("msgId = 'first'").select("copyKey").collect()]
    copied = NOON + timedelta(minutes=30)
    copy = (key, "redrive-1", "Orders", "broker-a", 0, 7, copied, "new")
    ledger = spark.createDataFrame([copy, copy], LEDGER_SCHEMA)
    assert marked(letters, ledger).count() == 4
    assert redriven_ids(letters, ledger) == {"first"}


def test_ledgers_whose_keys_have_no_ids_count_for_letters_of_their_time(
    spark: SparkSession,
) -> None:
    """As the first versions wrote them: `redrive/` and the place of the letter."""
    rows = [
        letter("first", 0),
        letter("skewed", 30, queueOffset=4, storeTimestamp=NOON + timedelta(minutes=30, seconds=5)),
        letter("later", 60, queueOffset=5),
        letter("open", 0, queueOffset=6),
    ]
    letters = letters_of(spark.createDataFrame(rows, spark_schema(READ_COLUMNS)), 0)
    copied = NOON + timedelta(minutes=30)
    ledger = spark.createDataFrame(
        [
            (f"redrive/%DLQ%billing/broker-a/0/{offset}", "r", "Orders", "b", 0, 7, copied, "new")
            for offset in (3, 4, 5)
        ],
        LEDGER_SCHEMA,
    )
    assert redriven_ids(letters, ledger) == {"first", "skewed"}


def test_a_ledger_on_the_disks_of_executors_is_not_taken_for_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "dlq")
    row = ("redrive/1", "", "Orders", "broker-a", 0, 7, NOON, "new")
    found = spark.createDataFrame([row], LEDGER_SCHEMA)
    ledger.require_shared(spark)
    ledger.add(found, "redrive-1", 1)
    known = ledger.read(spark)
    assert known is not None
    assert [each.run for each in known.collect()] == ["redrive-1"]
    monkeypatch.setattr(outputs, "spark_path", lambda _: f"file://{tmp_path}/executor")
    with pytest.raises(ConfigError, match=r"--out: .*redriven is not on storage that all machines"):
        ledger.require_shared(spark)
    with pytest.raises(ConfigError, match=r"--out: .*redriven is not on storage that all machines"):
        ledger.add(found, "redrive-2", 1)


# --- a redrive --------------------------------------------------------------------------------


def open_kinds(verdict: dict[str, Any]) -> set[tuple[str | None, int]]:
    return {
        (each["tag"], each["open"])
        for each in verdict["findings"]
        if each["kind"] == "dead_letters"
    }


def test_dead_letters_are_told_redriven_and_never_redriven_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pipeline_cluster(tmp_path / "cluster") as cluster:
        for topic in ("Orders", "Payments"):
            cluster.create_topic(topic)
        for group in ("billing", "shipping"):
            cluster.create_group(group)
        orders = [
            Message(
                "Orders",
                b'{"order": %d}' % number,
                "TagA" if number % 2 else "TagB",
                (f"k{number}",),
                properties={"shop": "north"},
            )
            for number in range(6)
        ]
        cluster.send([*orders, *(Message("Payments", b"payment %d" % n) for n in range(3))])
        cluster.bury("billing", cluster.messages("Orders"))
        cluster.bury("shipping", cluster.messages("Payments"))
        cluster.bury("billing", cluster.messages("Payments")[:2], level=1)
        cluster.wait_for("%RETRY%billing", 2)
        out = tmp_path / "dlq"
        argv = ("-n", cluster.nameserver, "--out", str(out))
        first_ids = {message.message_id for message in cluster.messages("Orders")}

        # What there is, and what would be sent.
        where = ("--redrive", "--where", "originTopic = 'Orders' AND tags = 'TagA'")
        code, verdict = run_json(PIPELINE, *argv, *where, "--dry-run")
        assert (code, verdict["outcome"]) == (1, "fails"), verdict
        assert "9 dead letters of 2 groups that were not redriven" in verdict["verdict"]
        assert "2 messages to be tried again" in verdict["verdict"]
        assert "3 dead letters would be redriven" in verdict["verdict"]
        assert len(cluster.messages("Orders")) == 6
        kinds = json.loads((out / "dlq.json").read_text())["kinds"]
        assert {
            (k["group"], k["origin_topic"], k["tag"], k["signature"], k["open"]) for k in kinds
        } == {
            ("billing", "Orders", "TagA", '{"order":0}', 3),
            ("billing", "Orders", "TagB", '{"order":0}', 3),
            ("shipping", "Payments", None, "payment 0", 3),
            ("billing", "Payments", None, "payment 0", 0),  # to be tried again
        }
        assert "<h1>Dead letters</h1>" in (out / "dlq.html").read_text()

        # Some of them are sent.
        code, verdict = run_json(PIPELINE, *argv, *where)
        assert (code, verdict["outcome"]) == (0, "holds"), verdict
        assert verdict["facts"]["redriven"] == 3
        assert verdict["facts"]["dead_letters_open"] == 6
        assert open_kinds(verdict) == {("TagB", 3), (None, 3)}
        copies = [m for m in cluster.messages("Orders") if COPY_KEY in m.properties]
        assert {m.properties[COPY_OF] for m in copies} <= first_ids
        assert sorted(m.body for m in copies) == [b'{"order": %d}' % n for n in (1, 3, 5)]
        assert {(m.tag, m.properties["shop"]) for m in copies} == {("TagA", "north")}
        letters = spark.read.parquet(str(out / "letters"))
        assert letters.filter("isRedriven").count() == 3

        # As if that run had been killed after it had sent and before it wrote that down.
        shutil.rmtree(out / "redriven")
        (intent,) = (out / "redrives").glob("*.json")
        intent.write_text(intent.read_text().replace('"done"', '"open"'))
        code, verdict = run_json(PIPELINE, *argv, "--redrive", "--all")
        assert (code, verdict["facts"]["recovered"], verdict["facts"]["redriven"]) == (0, 3, 6)
        # What is said at the end is how things are then.
        assert (verdict["facts"]["dead_letters"], verdict["facts"]["dead_letters_open"]) == (9, 0)
        assert verdict["findings"] == []
        kinds = json.loads((out / "dlq.json").read_text())["kinds"]
        assert {kind["open"] for kind in kinds} == {0}
        assert spark.read.parquet(str(out / "summary")).filter("open > 0").count() == 0
        for topic, count in (("Orders", 6), ("Payments", 3)):
            keys = Counter(m.properties.get(COPY_KEY) for m in cluster.messages(topic))
            assert keys.pop(None) == count
            assert set(keys.values()) == {1}
            assert len(keys) == count
        ledger = spark.read.parquet(str(out / "redriven"))
        assert ledger.select("copyKey").distinct().count() == 9

        # A group that nobody knows is no group without dead letters.
        found = find_queues(ClientConfig(nameservers=cluster.nameserver), "billing")
        assert (found.groups, sum(found.dead_ends.values())) == (("billing",), 6)
        code, verdict = run_json(PIPELINE, *argv, "--group", "biling")
        assert code == 2
        assert "did you mean billing?" in verdict["verdict"]


def test_topics_that_lost_their_first_messages_or_were_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"mappedFileSizeCommitLog": str(64 * 1024)}
    with pipeline_cluster(tmp_path / "cluster", **settings) as cluster:
        for topic in ("Orders", "Filler", "%RETRY%retired"):
            cluster.create_topic(topic, queues=1)
        cluster.create_group("billing")
        retries = MessageQueue(topic="%RETRY%retired", broker_name="broker-a", queue_id=0)
        orders = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)
        cluster.send(Message("%RETRY%retired", b"retry %d" % n) for n in range(5))
        cluster.send(Message("Orders", b"order %d" % n) for n in range(3))
        cluster.commit("retired", retries, 2)
        cluster.fill_segment()
        cluster.send(Message("%RETRY%retired", b"retry %d" % n) for n in range(5, 7))
        cluster.send(Message("Orders", b"order %d" % n) for n in range(3, 5))
        cluster.bury("billing", cluster.messages("Orders")[-2:])
        cluster.expire_segment()

        # A group that stopped long ago is no obstacle.
        found = find_queues(ClientConfig(nameservers=cluster.nameserver), None)
        assert (found.retry_starts, found.retry_ends) == ({retries: 5}, {retries: 7})
        out = tmp_path / "dlq"
        argv = ("-n", cluster.nameserver, "--out", str(out))
        code, verdict = run_json(PIPELINE, *argv)
        assert (code, verdict["facts"]["dead_letters_open"]) == (1, 2), verdict
        assert verdict["facts"]["retrying"] == 2

        # What an interrupted run has sent cannot be found any more.
        ledger = Ledger(out)
        ledger.begin(Redrive("redrive-1", 1, 10, {orders: 1}))
        redrive = (*argv, "--redrive", "--all")
        code, verdict = run_json(PIPELINE, *redrive)
        assert code == 2
        where = "topic Orders, broker broker-a, queue 0 before offset 3"
        assert f"sent by run redrive-1 can no longer be found in {where}" in verdict["verdict"]
        assert "redrives/redrive-1.json" in verdict["facts"]["hint"]
        assert len(cluster.messages("Orders")) == 2
        (out / "redrives" / "redrive-1.json").unlink()

        # Where the ledger could not be kept, nothing is sent.
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(outputs, "spark_path", lambda _: f"file://{tmp_path}/executor")
            code, verdict = run_json(PIPELINE, *redrive)
        assert code == 2
        assert "is not on storage that all machines see" in verdict["verdict"]
        assert len(cluster.messages("Orders")) == 2
        assert ledger.unfinished() == []

        code, verdict = run_json(PIPELINE, *redrive)
        assert (code, verdict["facts"]["redriven"]) == (0, 2), verdict
        assert len(cluster.messages("Orders")) == 4

        # Other dead letters at the same offsets.
        cluster.delete_topic("%DLQ%billing")
        cluster.bury("billing", cluster.messages("Orders")[-1:])
        cluster.wait_for("%DLQ%billing", 1)
        code, verdict = run_json(PIPELINE, *argv)
        assert (code, verdict["facts"]["dead_letters_open"]) == (1, 1), verdict
        code, verdict = run_json(PIPELINE, *redrive)
        assert (code, verdict["facts"]["redriven"]) == (0, 1), verdict
        assert len(cluster.messages("Orders")) == 5
