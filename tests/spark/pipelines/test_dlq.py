"""Dead letters: arguments, verdicts, ledger and signatures; and a redrive on a real broker."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from rmq.client.config import ClientConfig
from rmq.client.messages import Message
from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.queues import MessageQueue
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF
from rmq.spark.jobs.dlq.ledger import Ledger, Redrive
from rmq.spark.jobs.dlq.run import matching
from rmq.spark.jobs.dlq.signature import body_signature
from rmq.spark.jobs.dlq.topics import find_queues
from rmq.spark.jobs.topic_ranges import range_options
from rmq.spark.pipelines.dlq import PIPELINE, check_arguments
from rmq.spark.pipelines.job import build_parser
from tests.spark.pipelines.pipeline_cluster import pipeline_cluster, run_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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


# --- a redrive --------------------------------------------------------------------------------


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
        assert "9 dead letters of 2 groups that nobody redrove" in verdict["verdict"]
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
