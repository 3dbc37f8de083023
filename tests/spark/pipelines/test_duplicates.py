"""Duplicates and why they are there; what a ledger has and nobody got."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rmq.errors import ConfigError
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, pack_host
from rmq.spark.jobs import outputs
from rmq.spark.jobs.copy_names import COPY_KEY, COPY_OF
from rmq.spark.jobs.duplicates.causes import Cause
from rmq.spark.jobs.duplicates.run import Duplicates, read_ledger
from rmq.spark.jobs.duplicates.tables import READ_COLUMNS, find_duplicates
from rmq.spark.pipelines.arguments import amount, moment_ms, names, natural, positive, size_bytes
from rmq.spark.pipelines.duplicates import PIPELINE, make_verdict
from rmq.spark.pipelines.verdict import Outcome
from rmq.spark.schema import TOPIC, spark_schema
from tests.patching import patch
from tests.spark.pipelines.pipeline_cluster import run_json
from tests.spark.pipelines.verify_kit import START_MS, files_below, open_store, write_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


# --- verdicts and arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "missing", "allowed", "outcome"),
    [
        pytest.param({}, 0, set(), Outcome.HOLDS, id="nothing"),
        pytest.param({"replay": 3}, 0, set(), Outcome.FAILS, id="duplicates"),
        pytest.param({"replay": 3}, 0, {Cause.REPLAY}, Outcome.HOLDS, id="allowed"),
        pytest.param(
            {"replay": 3, "unknown": 1}, 0, {Cause.REPLAY}, Outcome.FAILS, id="some allowed"
        ),
        pytest.param({}, 2, {Cause.REPLAY}, Outcome.FAILS, id="missing"),
    ],
)
def test_it_fails_for_what_is_missing_or_too_much(
    extra: dict[str, int], missing: int, allowed: set[Cause], outcome: Outcome
) -> None:
    result = Duplicates(
        messages=10,
        duplicated=extra,
        extra=extra,
        ledger_keys=5,
        missing=missing,
        missing_shown=[f"k{number}" for number in range(missing)],
    )
    verdict = make_verdict(result, frozenset(allowed), {})
    assert verdict.outcome is outcome
    assert f"{missing} of 5 keys of the ledger missing" in verdict.sentence
    assert verdict.facts["extra_copies"] == sum(extra.values())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(["-n", "127.0.0.1:1"], "which topics?", id="no topic"),
        pytest.param(["--archive", ".", "--store", "."], "both say", id="two places"),
        pytest.param(["--store", "/nowhere"], "no such directory", id="no store"),
    ],
)
def test_what_is_asked_wrongly_is_said_clearly(argv: list[str], words: str) -> None:
    code, verdict = run_json(PIPELINE, *argv)
    assert (code, verdict["outcome"]) == (2, "unknown")
    assert words in verdict["verdict"]


def test_a_cause_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_json(PIPELINE, "--store", ".", "--allow", "redrives")
    assert "did you mean redrive?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        pytest.param(natural, "0", 0, id="natural"),
        pytest.param(positive, "7", 7, id="positive"),
        pytest.param(amount, "1.5", 1.5, id="amount"),
        pytest.param(size_bytes, "4096", 4096, id="bytes"),
        pytest.param(size_bytes, "1.5T", 3 << 39, id="terabytes"),
        pytest.param(size_bytes, "2GiB", 2 << 30, id="gibibytes"),
        pytest.param(names, "a, b,", ["a", "b"], id="names"),
        pytest.param(moment_ms, "1700000000000", START_MS, id="moment"),
    ],
)
def test_values_are_read(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (natural, "-1"),
        (positive, "0"),
        (positive, "many"),
        (amount, "0"),
        (amount, "nan"),
        (size_bytes, "large"),
        (size_bytes, "0"),
        (names, " , "),
        (moment_ms, "soon"),
    ],
)
def test_what_is_no_value_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not|names nothing|is no"):
        read(text)


# --- causes -------------------------------------------------------------------------------------


def row(number: int, key: str, **changes: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any column
    values: dict[str, Any] = {
        "topic": "Orders",
        "brokerName": "broker-a",
        "queueId": number % 4,
        "queueOffset": number,
        "commitLogOffset": number * 300,
        "storeTimestamp": NOON + timedelta(seconds=number),
        "bornTimestamp": NOON + timedelta(seconds=number),
        "bornHost": f"10.0.0.1:{4000 + number}",
        "bodyCrc": 4711,
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "msgId": key,
        "keys": None,
        "properties": {},
    } | changes
    return tuple(values[name] for name in READ_COLUMNS)


def test_each_duplicate_has_its_cause(spark: SparkSession) -> None:
    rows = [
        row(0, "once"),
        row(1, "retry"),
        row(2, "retry"),
        row(3, "retry"),
        row(4, "failover"),
        row(5, "failover", brokerName="broker-b"),
        row(6, "late"),
        row(7, "late", bornTimestamp=NOON + timedelta(hours=2)),
        row(8, "host"),
        row(9, "host", bornHost="10.0.0.2:4000"),
        row(10, "reused"),
        row(11, "reused", bodyCrc=4712),
        row(12, "sink", properties={"SPARK_KEY": "run/0/1"}),
        row(13, "sink", properties={"SPARK_KEY": "run/0/1"}),
        row(14, "dead"),
        row(15, "new1", properties={COPY_OF: "dead", COPY_KEY: "redrive/%DLQ%g/b/0/1"}),
        row(16, "old"),
        row(17, "new2", properties={COPY_OF: "old", COPY_KEY: "replay/run/Orders/b/0/1"}),
        row(18, "back", reconsumeTimes=1),
        row(19, "back", reconsumeTimes=2),
        row(20, "commit", preparedTransactionOffset=900),
        row(21, "commit", preparedTransactionOffset=900),
        row(22, "once", topic="Payments"),
    ]
    table = spark.createDataFrame(rows, spark_schema(READ_COLUMNS))
    found = {each["id"]: each for each in find_duplicates(table).collect()}
    assert {key: (each["copies"], each["cause"]) for key, each in found.items()} == {
        "retry": (3, "producer-retry"),
        "failover": (2, "producer-failover"),
        "late": (2, "unknown"),
        "host": (2, "unknown"),
        "reused": (2, "reused-id"),
        "sink": (2, "sink-retry"),
        "dead": (2, "redrive"),
        "old": (2, "replay"),
        "back": (2, "consumer-retry"),
        "commit": (2, "committed-twice"),
    }
    assert [place["queueOffset"] for place in found["retry"]["places"]] == [1, 2, 3]
    assert found["failover"]["brokers"] == ["broker-a", "broker-b"]


REDRIVEN = {COPY_OF: "dead", COPY_KEY: "redrive/%DLQ%g/b/0/1/dead"}
REPLAYED = {COPY_OF: "dead", COPY_KEY: "replay/run/Orders/b/0/1"}
MUCH_LATER = NOON + timedelta(hours=5)


COPIES: dict[str, tuple[list[tuple[Any, ...]], dict[str, int]]] = {
    "redriven": ([row(0, "dead"), row(1, "new", properties=REDRIVEN)], {"redrive": 1}),
    "copies of copies": (
        [
            row(0, "dead"),
            row(1, "new1", properties=REDRIVEN, bornTimestamp=MUCH_LATER),
            row(2, "new2", properties=REPLAYED),
            row(3, "new3", properties=REDRIVEN | {COPY_KEY: "redrive/%DLQ%g/b/0/7/new1"}),
        ],
        {"redrive": 2, "replay": 1},
    ),
    "redriven twice": (
        [
            row(0, "dead"),
            row(1, "new1", properties=REDRIVEN),
            row(2, "new2", properties=REDRIVEN),
        ],
        {"producer-retry": 1, "redrive": 1},
    ),
    "task run again": (
        [
            row(0, "dead"),
            row(1, "new1", properties=REDRIVEN | {"SPARK_KEY": "r/0/1"}),
            row(2, "new1", properties=REDRIVEN | {"SPARK_KEY": "r/0/1"}),
            row(3, "new1", properties=REDRIVEN | {"SPARK_KEY": "r/0/1"}),
        ],
        {"sink-retry": 2, "redrive": 1},
    ),
    "sent twice and redriven": (
        [
            row(0, "dead"),
            row(1, "dead"),
            row(2, "new", properties=REDRIVEN, bornTimestamp=MUCH_LATER, bornHost="9.9.9.9:1"),
        ],
        {"producer-retry": 1, "redrive": 1},
    ),
    "replayed twice to another topic": (
        [row(0, "new1", properties=REPLAYED), row(1, "new2", properties=REPLAYED)],
        {"producer-retry": 1},
    ),
    "copies only": (
        [row(0, "new1", properties=REPLAYED), row(1, "new2", properties=REDRIVEN)],
        {"redrive": 1},
    ),
    "keys of somebody else": (
        [row(0, "own", properties={COPY_KEY: "x"}), row(1, "own", properties={COPY_KEY: "y"})],
        {"producer-retry": 1},
    ),
}
"""Rows of one topic, and how many copies too many there are for each cause."""


@pytest.fixture(scope="module")
def found_copies(spark: SparkSession) -> dict[str, Row]:
    """What is found of all cases in one query; each case is a topic of its own."""
    assert READ_COLUMNS[0] == TOPIC
    rows = [(name, *row[1:]) for name, (them, _) in COPIES.items() for row in them]
    table = spark.createDataFrame(rows, spark_schema(READ_COLUMNS))
    found = find_duplicates(table).collect()
    assert len(found) == len(COPIES)
    return {each["topic"]: each for each in found}


@pytest.mark.parametrize("name", COPIES)
def test_only_one_copy_for_each_key_was_made_on_purpose(
    found_copies: dict[str, Row], name: str
) -> None:
    found, extra = found_copies[name], COPIES[name][1]
    assert {each["cause"]: each["copies"] for each in found["extra"]} == extra
    assert found["copies"] == 1 + sum(extra.values()) == len(found["places"])
    assert found["cause"] == next(iter(extra)), "what was not made on purpose comes first"


def test_a_ledger_is_read_from_any_kind_of_file(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,key\n1,k1\n2, k2 \n3,\n")
    (tmp_path / "b.jsonl").write_text('{"order": 7}\n{"order": 8}\n')
    (tmp_path / "c.txt").write_text("k1\n")
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    assert sorted(r[0] for r in read_ledger(spark, tmp_path / "a.csv", None).collect()) == [
        "k1",
        "k2",
    ]
    assert sorted(r[0] for r in read_ledger(spark, tmp_path / "b.jsonl", None).collect()) == [
        "7",
        "8",
    ]
    for name, column, words in (
        ("c.txt", None, "cannot be told"),
        ("d.csv", None, "which column"),
        ("d.csv", "c", "has no column c; it has a, b"),
        ("e.csv", None, "no such file"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_ledger(spark, tmp_path / name, column)


def test_a_store_with_duplicates_and_a_ledger(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for number in range(30):
        pairs = {"UNIQ_KEY": f"id{number % 27:02d}", "KEYS": f"order{number}"}
        store.append(
            [
                NewMessage(
                    "Orders",
                    number % 3,
                    b"body %d" % (number % 27),
                    encode_properties(pairs),
                    born_ms=START_MS + number * 10,
                    born_host=pack_host("10.0.0.1", 4000 + number),
                )
            ]
        )
    store.close()
    ledger = tmp_path / "sent.csv"
    ledger.write_text("key\nid05\norder29\norder30\nid99\n")
    argv = ("--store", str(tmp_path / "store"), "--ledger", str(ledger))
    code, verdict = run_json(PIPELINE, *argv, "--out", str(tmp_path / "out"))
    assert (code, verdict["outcome"]) == (1, "fails")
    assert verdict["facts"] == {
        "messages": 30,
        "duplicated": 3,
        "extra_copies": 3,
        "extra_copies_not_allowed": 3,
        "extra_copies_by_cause": {"producer-retry": 3},
        "ledger_keys": 4,
        "missing": 2,
    }
    texts = [finding["text"] for finding in verdict["findings"]]
    assert "key id99 of the ledger is missing" in texts
    assert any("message id01 is there 2 times (producer-retry)" in text for text in texts)
    missing = spark.read.parquet(verdict["outputs"]["missing"]).collect()
    assert sorted(each[0] for each in missing) == ["id99", "order30"]
    assert spark.read.parquet(verdict["outputs"]["duplicates"]).count() == 3
    assert json.loads((tmp_path / "out" / "duplicates.json").read_text())["facts"]["missing"] == 2


def store_with_a_redrive(root: Path, copies: int) -> None:
    """Make a store with a message that was redriven so many times under one key."""
    store = open_store(root)
    pairs = [{"UNIQ_KEY": "first"}] + [
        {"UNIQ_KEY": f"copy{number}", COPY_OF: "first", COPY_KEY: "redrive/%DLQ%g/b/0/1/first"}
        for number in range(copies)
    ]
    for each in pairs:
        store.append([NewMessage("Orders", 0, b"body", encode_properties(each), born_ms=START_MS)])
    store.close()


def test_what_is_allowed_does_not_hide_other_duplicates(
    spark: SparkSession, tmp_path: Path
) -> None:
    store_with_a_redrive(tmp_path / "once", 1)
    store_with_a_redrive(tmp_path / "twice", 2)
    allow = ("--allow", "redrive,replay")
    code, verdict = run_json(PIPELINE, "--store", str(tmp_path / "once"), *allow)
    assert (code, verdict["facts"]["extra_copies_by_cause"]) == (0, {"redrive": 1})
    code, verdict = run_json(PIPELINE, "--store", str(tmp_path / "twice"), *allow)
    assert code == 1
    assert verdict["facts"]["extra_copies_by_cause"] == {"redrive": 1, "producer-retry": 1}
    assert (verdict["facts"]["duplicated"], verdict["facts"]["extra_copies_not_allowed"]) == (1, 1)
    assert any(
        "message first is there 3 times (producer-retry, redrive)" in finding["text"]
        for finding in verdict["findings"]
    )


def test_damage_to_a_store_is_passed_over_if_that_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = write_store(tmp_path / "store", 100)
    segments = files_below(root, "commitlog")
    patch(segments[0], 4, b"\xff" * 4)  # the magic number of the first record
    code, verdict = run_json(PIPELINE, "--store", str(root))
    assert (code, verdict["outcome"]) == (2, "unknown")
    code, verdict = run_json(PIPELINE, "--store", str(root), "--skip-corrupt")
    assert code == 0, verdict
    assert 90 < verdict["facts"]["messages"] < 100


def test_tables_on_the_disks_of_executors_are_not_taken_for_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_with_a_redrive(tmp_path / "store", 1)
    monkeypatch.setattr(outputs, "spark_path", lambda _: f"file://{tmp_path}/executor")
    out = tmp_path / "out"
    code, verdict = run_json(PIPELINE, "--store", str(tmp_path / "store"), "--out", str(out))
    assert code == 2
    assert f"--out: {out}/duplicates is not on storage that all machines" in verdict["verdict"]
