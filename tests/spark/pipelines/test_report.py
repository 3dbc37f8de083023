"""The report: lag and its trend, skew, limits, history; and tables that say what was stored."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rmq.spark.jobs import outputs
from rmq.spark.jobs.report.data import (
    Delays,
    Limits,
    Plots,
    Producer,
    Report,
    Traffic,
    verdict_of,
)
from rmq.spark.jobs.report.delays import delay_bins, delays_of, negative_of
from rmq.spark.jobs.report.history import read_history, write_run
from rmq.spark.jobs.report.lag import (
    GroupLag,
    QueueLag,
    Skew,
    Trend,
    by_group,
    skew_of,
    skews,
    trend_of,
)
from rmq.spark.jobs.report.page import page_of
from rmq.spark.pipelines.job import build_parser, main
from rmq.spark.pipelines.report import PIPELINE
from rmq.spark.pipelines.verdict import Outcome
from rmq.store.reader import Reader
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOW_S = 1_700_000_000.0


def _queue(
    group: str = "G", queue_id: int = 0, last: int = 100, offset: int = 90, **others: int
) -> QueueLag:
    return QueueLag(group, "Orders", "b", queue_id, others.pop("first", 0), last, offset, **others)


def test_lag_of_a_queue() -> None:
    queue = _queue(unread_ms=int((NOW_S - 30) * 1000))
    assert (queue.lag, queue.lag_s(NOW_S), queue.expired) == (10, 30.0, 0)
    assert _queue(offset=100).lag_s(NOW_S) == 0.0
    assert _queue().lag_s(NOW_S) is None
    assert _queue(offset=120).lag == 0
    # Its clock is behind the broker's.
    assert _queue(unread_ms=int((NOW_S + 5) * 1000)).lag_s(NOW_S) == 0.0
    assert _queue(offset=90, first=95).expired == 5
    assert _queue(offset=-1, first=5, last=5).expired == 6


def test_lag_of_groups() -> None:
    queues = [
        _queue(queue_id=0, offset=90, unread_ms=int((NOW_S - 7) * 1000)),
        _queue(queue_id=1, offset=60, unread_ms=int((NOW_S - 40) * 1000)),
        _queue(queue_id=2, offset=100),
        _queue("H", offset=100),
    ]
    first, second = by_group(queues, NOW_S)
    assert (first.group, first.lag, first.lag_s) == ("G", 50, 40.0)
    assert (first.queues, first.queues_behind) == (3, 2)
    assert first.skew == pytest.approx(40 * 3 / 50)
    assert (second.group, second.lag, second.lag_s, second.skew) == ("H", 0, 0.0, 1.0)
    assert by_group([_queue()], NOW_S)[0].lag_s is None


def test_the_age_of_a_group_is_known_if_that_of_all_its_queues_is() -> None:
    queues = [
        _queue(queue_id=0, offset=100),
        _queue(queue_id=1, offset=60, unread_ms=int((NOW_S - 40) * 1000)),
        _queue(queue_id=2, last=1_000_000, offset=0),
    ]
    (lag,) = by_group(queues, NOW_S)
    assert (lag.lag, lag.lag_s, lag.known_lag_s) == (1_000_040, None, 40.0)
    (lag,) = by_group(queues[:2], NOW_S)
    assert (lag.lag_s, lag.known_lag_s) == (40.0, 40.0)
    (lag,) = by_group([queues[0], queues[2]], NOW_S)
    assert (lag.lag_s, lag.known_lag_s) == (None, 0.0)


def test_trend() -> None:
    assert trend_of([]) is None
    assert trend_of([(NOW_S, 5)]) is None
    assert trend_of([(NOW_S, 5), (NOW_S, 6)]) is None
    shrinking = trend_of([(NOW_S, 100), (NOW_S + 10, 80), (NOW_S + 20, 60)])
    assert shrinking is not None
    assert shrinking.runs == 3
    assert shrinking.per_second == pytest.approx(-2.0)
    assert shrinking.eta_s(60) == pytest.approx(30)
    assert shrinking.eta_s(0) == 0.0
    assert Trend(1.0, 2).eta_s(5) is None
    assert Trend(0.0, 2).eta_s(5) is None
    many = trend_of([(NOW_S + at, 0 if at < 90 else at) for at in range(100)])
    assert many is not None
    assert many.runs == 10
    assert many.per_second == pytest.approx(1.0)


def test_skew() -> None:
    assert skew_of([5, 5, 5]) == 1.0
    assert skew_of([0, 0]) == 1.0
    found = skews(
        {("A", "b", 0): 30, ("A", "b", 1): 10, ("B", "b", 0): 7},
        [("A", "b", 2), ("A", "b", 3), ("C", "b", 0), ("C", "b", 1)],
    )
    assert found == [Skew("A", 3.0, ("b", 0), 40, 4)]


def test_delays_come_from_how_often_they_were_seen() -> None:
    assert delays_of({}) == Delays(None, None, None)
    assert delays_of({-1: 5}) == Delays(None, None, None)
    assert delays_of({7: 1}) == Delays(7, 7, 7)
    # Of 100 messages, those with rank 50, 95 and 99 count.
    assert delays_of({1: 50, 2: 45, 3: 4, 90: 1, -1: 1_000}) == Delays(1, 2, 3)
    assert delays_of(dict.fromkeys(range(1, 101), 1)) == Delays(50, 95, 99)
    assert negative_of({-1: 4, 5: 7}) == 4
    assert delay_bins({-1: 9, 0: 2, 1: 3, 4: 1, 150: 5}) == [
        ("< 1 ms", 2),
        ("1 ms", 3),
        ("2 ms", 1),
        *(("5 ms", 0), ("10 ms", 0), ("20 ms", 0), ("50 ms", 0)),
        ("100 ms", 5),
    ]
    assert delay_bins({}) == []


def test_history_is_kept_by_target(tmp_path: Path) -> None:
    lag = GroupLag("G", "Orders", 50, 40.0, 0, 3, 2, 1.5)
    folder = tmp_path / "history"
    assert read_history(folder, "cluster") == []
    for index in range(3):
        target = "other" if index == 1 else "cluster"
        write_run(folder, NOW_S + index, target, [lag], {"Orders": (5, 500)}, (1.0, 2.0))
    (folder / "run-9.json").write_text("{")
    (folder / "run-8.json").write_text('{"version": 2}')
    runs = read_history(folder, "cluster")
    assert [run.time_s for run in runs] == [NOW_S, NOW_S + 2]
    assert runs[0].lags == {("G", "Orders"): 50}
    assert runs[0].lag_seconds == {("G", "Orders"): 40.0}
    assert runs[0].topics == {"Orders": (5, 500)}


def _report(limits: Limits = Limits(), **changes: object) -> Report:  # noqa: B008 - a value
    traffic = Traffic(1_000, 100_000, Delays(1.0, 5.0, 20.0), 3)
    values = {
        "target": "cluster",
        "made_s": NOW_S,
        "whole": traffic,
        "topics": {"Orders": traffic},
        "lags": [GroupLag("G", "Orders", 50, 40.0, 2, 3, 2, 1.5, Trend(-1.0, 2))],
        "groups": 1,
        "skews": [Skew("Orders", 3.0, ("b", 0), 1_000, 4), Skew("Few", 9.0, ("b", 0), 5, 4)],
        "producers": [Producer("10.0.0.1", 1_000, 100_000)],
        "plots": Plots((), 60, {}, {}, (), {}, ()),
        "history": [],
        "failures": [],
        "limits": limits,
        "span_s": (NOW_S - 600, NOW_S),
    }
    return Report(**(values | changes))  # type: ignore[arg-type]


def test_a_report_holds_without_limits() -> None:
    verdict = verdict_of(_report())
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.sentence == (
        "1,000 messages (97.7 KiB) in 1 topic; 1 group behind, most G on Orders with 50 messages,"
        " the oldest 40.0 s old"
    )
    assert [finding.facts["kind"] for finding in verdict.findings] == ["expired"]
    assert verdict.facts["max_lag"] == 50
    names = {(gauge.name, gauge.value) for gauge in verdict.gauges}
    assert {("lag_messages", 50), ("lag_seconds", 40.0), ("queue_skew", 3.0)} <= names


@pytest.mark.parametrize(
    ("limits", "kinds"),
    [
        (Limits(50, 40.0, 3.0), []),
        (Limits(lag=49), ["lag"]),
        (Limits(lag_s=39.0), ["lag_seconds"]),
        (Limits(skew=2.9), ["skew"]),
        (Limits(0, 1.0, 1.0), ["lag", "lag_seconds", "skew"]),
    ],
)
def test_limits(limits: Limits, kinds: list[str]) -> None:
    verdict = verdict_of(_report(limits))
    assert verdict.outcome is (Outcome.FAILS if kinds else Outcome.HOLDS)
    assert [finding.facts["kind"] for finding in verdict.findings] == [*kinds, "expired"]


def test_what_nobody_told_is_not_within_limits() -> None:
    failures = ["broker-a: no answer"]
    assert verdict_of(_report(failures=failures)).outcome is Outcome.HOLDS
    assert verdict_of(_report(Limits(lag=100), failures=failures)).outcome is Outcome.UNKNOWN
    assert verdict_of(_report(Limits(lag=1), failures=failures)).outcome is Outcome.FAILS
    for limits in (Limits(lag=100), Limits(lag_s=100)):
        nobody = _report(limits, lags=[], groups=0, has_groups=False)
        verdict = verdict_of(nobody)
        assert verdict.outcome is Outcome.UNKNOWN
        assert (verdict.facts["max_lag"], verdict.facts["max_lag_seconds"]) == (None, None)
    skewed = _report(Limits(skew=9), lags=[], groups=0, has_groups=False)
    assert verdict_of(skewed).outcome is Outcome.HOLDS


def test_an_age_that_nobody_told_is_not_within_limits() -> None:
    fresh = GroupLag("H", "Orders", 1, 2.0, 0, 3, 1, 1.0)
    lag = GroupLag("G", "Orders", 1_000_000, None, 0, 3, 2, 1.5, known_lag_s=40.0)
    ages = ["age of what group G has not read of Orders: its queue is damaged"]

    def told(limits: Limits) -> tuple[Outcome, list[object]]:
        verdict = verdict_of(_report(limits, lags=[lag, fresh], groups=2, age_failures=ages))
        assert verdict.facts["max_lag_seconds"] is None
        assert verdict.facts["failures"] == ages
        return verdict.outcome, [finding.facts["kind"] for finding in verdict.findings]

    assert told(Limits()) == (Outcome.HOLDS, ["failure"])
    assert told(Limits(lag_s=60)) == (Outcome.UNKNOWN, ["failure"])
    # What is known of it is too old already.
    assert told(Limits(lag_s=30)) == (Outcome.FAILS, ["lag_seconds", "failure"])
    # How many messages it is behind is known all the same.
    assert told(Limits(lag=1_000_000)) == (Outcome.HOLDS, ["failure"])
    verdict = verdict_of(_report(Limits(lag_s=60), lags=[lag, fresh], groups=2, age_failures=ages))
    assert verdict.sentence.endswith("the age of unread messages is not known for 1 group")
    page = page_of(_report(lags=[lag, fresh], groups=2), verdict)
    assert "not known" in page


def test_queues_that_nobody_told_may_be_empty() -> None:
    failures = ["how many queues topics have: there is no config/topics.json"]
    report = _report(Limits(skew=9), queue_failures=failures)
    assert verdict_of(report).outcome is Outcome.UNKNOWN
    assert verdict_of(_report(Limits(skew=2), queue_failures=failures)).outcome is Outcome.FAILS
    held = verdict_of(_report(Limits(lag=100), queue_failures=failures))
    assert held.outcome is Outcome.HOLDS
    assert held.facts["failures"] == failures


def test_a_page_of_nothing() -> None:
    nothing = Traffic(0, 0, Delays(None, None, None), 0)
    report = _report(whole=nothing, topics={}, lags=[], skews=[], producers=[], span_s=(None, None))
    page = page_of(report, verdict_of(report))
    assert "none were stored" in page
    assert "nothing to show" in page


def test_arguments() -> None:
    parser = build_parser(PIPELINE)
    args = parser.parse_args(
        ["--out", "o", "--topic", "A,B", "--topic", "C", "--from", "2024-05-31T08:00:00Z"]
    )
    assert (args.topic, args.from_ms, args.to_ms) == (["A", "B", "C"], 1_717_142_400_000, None)


def test_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path)]
    assert main(PIPELINE, [*arguments, "--store", "x", "-n", "y:1"]) == 2
    assert "both say what to read" in capsys.readouterr().out
    assert main(PIPELINE, [*arguments, "--store", "x", "--from", "5", "--to", "5"]) == 2
    assert "is not before --to" in capsys.readouterr().out
    assert main(PIPELINE, [*arguments, "--store", str(tmp_path / "none")]) == 2
    assert "there is no such directory" in capsys.readouterr().out


def test_the_golden_store(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    out = tmp_path / "out"
    arguments = ["--store", str(root), "--broker-name", "gold", "--out", str(out), "--json"]
    # An earlier run, after which one group has fallen behind.
    past = GroupLag("golden_pull", "GoldenTopic", 8, 1.0, 0, 4, 4, 1.0)
    write_run(out / "history", time.time() - 100, f"store {root}", [past], {}, (None, None))
    assert main(PIPELINE, [*arguments, "--max-lag", "24"]) == 1
    told = json.loads(capsys.readouterr().out)
    topics = ("GoldenTopic", "GoldenFill")
    with Reader(root) as reader:
        records = [record for record in reader.records() if record.topic in topics]
    expected: Counter[tuple[str, int, int]] = Counter()
    sizes: Counter[str] = Counter()
    for record in records:
        expected[record.topic, record.queue_id, record.store_ms // 60_000] += 1
        sizes[record.topic] += record.size
    rows = spark.read.parquet(str(out / "traffic")).collect()
    found = {
        (row["topic"], row["queue_id"], _minute(row["minute"])): row["messages"]
        for row in rows
        if row["topic"] in topics
    }
    assert found == dict(expected)
    assert {row["broker_name"] for row in rows} == {"gold"}
    by_topic = {each["topic"]: each for each in told["facts"]["topics"]}
    assert {topic: by_topic[topic]["bytes"] for topic in topics} == dict(sizes)
    delays = sorted(
        record.store_ms - record.born_ms for record in records if record.topic == "GoldenFill"
    )
    median = by_topic["GoldenFill"]["delay_p50_ms"]
    assert delays[len(delays) // 2 - 1] <= median <= delays[len(delays) // 2]
    groups = {each["group"] for each in told["facts"]["groups"]}
    assert "golden_push" in groups
    lag = spark.read.parquet(str(out / "lag")).collect()
    assert all(row["lag"] == max(0, row["max_offset"] - row["consumer_offset"]) for row in lag)
    assert json.loads((out / "report.json").read_text())["facts"] == told["facts"]
    assert "<figure>" in (out / "report.html").read_text()
    assert told["facts"]["earlier_runs"] == 1
    growth = {
        (each["group"], each["topic"]): each["growth_per_second"]
        for each in told["facts"]["groups"]
    }
    assert growth["golden_pull", "GoldenTopic"] == pytest.approx(0.4, rel=0.2)
    assert growth["golden_sql", "GoldenTopic"] is None
    assert [(finding["group"], finding["lag"]) for finding in told["findings"]] == [
        ("golden_pull", 48),
        ("golden_sql", 25),
    ]
    assert len(list((out / "history").iterdir())) == 2
    # As on a cluster without a shared disk: what tasks write is elsewhere under the same path.
    monkeypatch.setattr(outputs, "spark_path", lambda path: f"{tmp_path}/executor/{path.name}")
    arguments[arguments.index(str(out))] = str(tmp_path / "elsewhere")
    assert main(PIPELINE, arguments) == 2
    told = json.loads(capsys.readouterr().out)
    assert "traffic is not on storage that all machines see" in told["verdict"]
    assert not (tmp_path / "elsewhere" / "history").exists()


def _minute(moment: datetime) -> int:
    # Spark's times have no zone and are those of the session, which is UTC.
    return int(moment.replace(tzinfo=UTC).timestamp()) // 60
