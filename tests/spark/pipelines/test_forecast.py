"""The forecast: verdicts, earlier runs of the report, and a store of the Java broker."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking import BlockingProducer
from rmq.client.core.messages import Message
from rmq.model.queues import MessageQueue
from rmq.spark.jobs.forecast.data import Observed, make_forecast, verdict_of
from rmq.spark.jobs.forecast.model import (
    DAY_S,
    HOUR_S,
    Disk,
    GroupState,
    HotKey,
    LagPoint,
    Sample,
)
from rmq.spark.jobs.forecast.page import page_of
from rmq.spark.jobs.forecast.sources import hot_queues
from rmq.spark.jobs.report.history import write_run
from rmq.spark.jobs.report.lag import GroupLag, Skew
from rmq.spark.pipelines.forecast import PIPELINE
from rmq.spark.pipelines.job import main
from rmq.spark.pipelines.verdict import Outcome
from rmq.store.reader import Reader
from tests.client.blocking.cluster_process import process_cluster
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rmq.spark.pipelines.verdict import Verdict

NOW_S = 1_700_000_000.0
GIB = 1024.0**3
WITHIN_S = 72 * HOUR_S


def _samples(a_day: float, count: int = 5) -> list[Sample]:
    size = a_day / DAY_S * HOUR_S
    first_s = NOW_S - count * HOUR_S
    return [Sample(first_s + at * HOUR_S, HOUR_S, 0, size) for at in range(count)]


def _disk(a_day: float = 10 * GIB, **changes: object) -> Disk:
    disk = Disk("disk of a", 100 * GIB, 10 * GIB, 5 * GIB, _samples(a_day), 72 * HOUR_S)
    return replace(disk, **changes)  # type: ignore[arg-type]


def _group(*ages_h: float | None, lag: int = 50, group: str = "slow") -> GroupState:
    """Return a group that was seen each hour."""
    points = [
        LagPoint(NOW_S + (at + 1 - len(ages_h)) * HOUR_S, lag, age and age * HOUR_S)
        for at, age in enumerate(ages_h)
    ]
    return GroupState(group, "Orders", points)


def _seen(**changes: object) -> Observed:
    # It has had messages for two hours.
    new = [sample._replace(messages=int(at > 2)) for at, sample in enumerate(_samples(0))]
    values = {
        "target": "cluster",
        "made_s": NOW_S,
        "seen_s": NOW_S,
        "basis": "5 buckets of 60 min",
        "topics": {"Orders": _samples(8 * GIB), "New": new, "Logs": _samples(9 * GIB)},
        "disks": [_disk()],
        "groups": [_group(1, 1, 1)],
        "hot_queues": [Skew("Orders", 3.0, ("a", 0), 1_000, 4)],
        "hot_keys": [HotKey("Orders", "k1", 70, 0.07)],
        "more_hint": "run it again",
    }
    return Observed(**(values | changes))  # type: ignore[arg-type]


def _verdict(**changes: object) -> Verdict:
    return verdict_of(make_forecast(_seen(**changes), WITHIN_S))


def _kinds(verdict: Verdict) -> list[object]:
    return [finding.facts["kind"] for finding in verdict.findings]


def test_all_is_well() -> None:
    verdict = _verdict()
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.sentence == (
        "disk of a grows by 10.0 GiB a day, is never full at a retention of 3 d 0 h;"
        " no group loses unread messages within 3 d 0 h"
    )
    assert _kinds(verdict) == []
    topics = verdict.facts["topics"]
    assert isinstance(topics, list)
    assert [each["topic"] for each in topics if isinstance(each, dict)] == ["Logs", "Orders", "New"]
    gauges = {(gauge.name, *gauge.labels.values()): gauge.value for gauge in verdict.gauges}
    assert gauges["disk_full_seconds", "disk of a"] == math.inf
    assert gauges["loss_in_seconds", "slow", "Orders"] == math.inf
    assert gauges["growth_bytes", "Logs"] == pytest.approx(9 * GIB / DAY_S)
    assert ("growth_bytes", "New") not in gauges


def test_a_disk_is_full_in_time() -> None:
    verdict = _verdict(disks=[_disk(), _disk(40 * GIB, name="disk of b")])
    assert verdict.outcome is Outcome.FAILS
    assert verdict.sentence == (
        "disk of b is full in 2 d 0 h (2023-11-16 22:13 UTC): 90% of 100.0 GiB are used,"
        " and messages are refused"
    )
    assert _kinds(verdict) == ["disk_full", "early_deletion"]
    gauges = {(gauge.name, *gauge.labels.values()): gauge.value for gauge in verdict.gauges}
    assert gauges["disk_full_seconds", "disk of b"] == pytest.approx(2 * DAY_S)
    # Later than was asked for.
    later = verdict_of(make_forecast(_seen(disks=[_disk(40 * GIB)]), 47 * HOUR_S))
    assert later.outcome is Outcome.HOLDS
    assert "full in 2 d 0 h" in later.sentence


def test_a_group_loses_messages_in_time() -> None:
    verdict = _verdict(groups=[_group(0, 0, 0, lag=0, group="quick"), _group(10, 11, 12)])
    assert verdict.outcome is Outcome.FAILS
    assert verdict.sentence == (
        "group slow on Orders loses unread messages in 2 d 12 h (2023-11-17 10:13 UTC),"
        " when they expire: 50 messages behind, the first 12 h 0 min old"
    )
    facts = verdict.findings[0].facts
    assert (facts["group"], facts["topic"], facts["in_seconds"]) == ("slow", "Orders", 216_000.0)
    gauges = {(gauge.name, *gauge.labels.values()): gauge.value for gauge in verdict.gauges}
    assert gauges["loss_in_seconds", "slow", "Orders"] == 216_000.0
    assert gauges["loss_in_seconds", "quick", "Orders"] == math.inf
    late = verdict_of(make_forecast(_seen(groups=[_group(10, 11, 12)]), 59 * HOUR_S))
    assert late.outcome is Outcome.HOLDS
    assert "the first is slow on Orders in 2 d 12 h" in late.sentence
    lost = _verdict(groups=[replace(_group(1), expired=7)])
    assert lost.sentence == (
        "group slow on Orders loses unread messages now: 7 messages deleted already"
    )


def test_too_little_to_tell() -> None:
    little = _verdict(disks=[_disk(samples=_samples(1, 2))])
    assert little.outcome is Outcome.UNKNOWN
    assert little.sentence == (
        "disk of a: too little history to tell growth: 2 measurements, and it takes 3; run it again"
    )
    assert "--capacity" in _verdict(disks=[_disk(total_bytes=None)]).sentence
    alone = _verdict(groups=[_group(10)])
    assert alone.outcome is Outcome.UNKNOWN
    assert "too little history to tell whether it catches up" in alone.sentence
    assert "in 2 d 14 h" in alone.sentence
    assert _verdict(groups=[_group(0.5)]).outcome is Outcome.HOLDS
    ageless = _verdict(groups=[_group(None)], age_failures=["age of what slow has not read: gone"])
    assert ageless.outcome is Outcome.UNKNOWN
    assert _kinds(ageless) == ["trend", "failure"]
    assert ageless.facts["failures"] == ["age of what slow has not read: gone"]
    # The group is one that is ignored.
    assert _verdict(age_failures=["age of what unused has not read"]).outcome is Outcome.HOLDS
    assert _kinds(_verdict(has_groups=False)) == ["no_groups"]
    assert _kinds(_verdict(disks=[])) == ["no_disk"]
    assert _kinds(_verdict(failures=["broker-a: no answer"])) == ["failure"]
    # What is known to go wrong counts more than what is not known.
    both = _verdict(groups=[_group(10), _group(10, 11, 12, group="lost")])
    assert both.outcome is Outcome.FAILS
    assert _kinds(both) == ["loss", "trend"]


def test_times_count_from_now_not_from_the_last_run() -> None:
    stale = _verdict(seen_s=NOW_S - 30 * HOUR_S, groups=[_group(10, 11, 12)])
    assert stale.findings[0].facts["in_seconds"] == 30 * HOUR_S
    assert _kinds(stale) == ["loss", "stale"]


def test_bursts_are_mentioned() -> None:
    samples = [*_samples(10 * GIB), Sample(NOW_S, HOUR_S, 0, 400 * GIB)]
    verdict = _verdict(disks=[_disk(samples=samples)])
    assert verdict.outcome is Outcome.HOLDS
    assert _kinds(verdict) == ["bursts"]
    assert "by the mean the disk is full in" in verdict.findings[0].text


def test_pages() -> None:
    busy = _seen(disks=[_disk(40 * GIB)], groups=[_group(10, 11, 12)])
    empty = _seen(topics={}, disks=[], groups=[], hot_queues=(), hot_keys=(), has_groups=False)
    for seen in (_seen(), busy, empty):
        forecast = make_forecast(seen, WITHIN_S)
        page = page_of(forecast, verdict_of(forecast), NOW_S)
        assert "nan" not in re.sub(r"<style>.*</style>", "", page, flags=re.DOTALL)
        assert page.count("<section>") >= 4


def test_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(PIPELINE, [*out, "--store", "x", "--history", "y"]) == 2
    assert "both say what to read" in capsys.readouterr().out
    assert main(PIPELINE, [*out, "--history", str(tmp_path)]) == 2
    assert "has no runs of the report" in capsys.readouterr().out
    assert main(PIPELINE, [*out, "--history", str(tmp_path), "--used", "5G"]) == 2
    assert "without --capacity" in capsys.readouterr().out
    assert main(PIPELINE, [*out, "--store", str(tmp_path / "none")]) == 2
    assert "there is no such directory" in capsys.readouterr().out


def test_what_the_report_saw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group that reads half as fast as is sent, over a week of reports."""
    for day in range(7):
        end_s = NOW_S + day * DAY_S
        age_s = 2 * HOUR_S + day * DAY_S / 2
        lags = [
            GroupLag("slow", "Orders", 1_000 * (day + 1), age_s, 0, 4, 4, 1.0),
            GroupLag("quick", "Orders", 3, 1.0, 0, 4, 1, 1.0),
            GroupLag("unused", "Orders", 9_999, 80 * HOUR_S, 0, 4, 1, 1.0),
        ]
        topics = {"Orders": (86_400, int(GIB) * (100 if day == 3 else 1))}
        span_s = (end_s - DAY_S, end_s - 60)
        write_run(tmp_path / "history", end_s, "10.0.0.1:9876", lags, topics, span_s)
    last_s = NOW_S + 6 * DAY_S
    arguments = ["--history", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--ignore-group", "unused"]

    def told(*more: str) -> dict[str, object]:
        main(PIPELINE, [*arguments, *more])
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict)
        return found

    unknown = told()
    # The history ended years ago: what was going to be lost is lost.
    assert unknown["outcome"] == "fails"
    facts = unknown["facts"]
    assert isinstance(facts, dict)
    groups = {each["group"]: each for each in facts["groups"]}
    assert set(groups) == {"slow", "quick"}
    assert groups["slow"]["lag_seconds_growth"] == pytest.approx(0.5)
    assert groups["slow"]["loss_in_seconds"] == 0.0
    assert groups["quick"]["loss_in_seconds"] is None
    # One day had a hundred times as much, which the median does not believe.
    assert facts["topics"][0]["bytes_per_hour"] == pytest.approx(GIB / 24)
    assert facts["topics"][0]["samples"] == 7
    assert facts["seen_s"] == last_s
    kinds = [each["kind"] for each in unknown["findings"]]  # type: ignore[attr-defined]
    assert kinds == ["loss", "capacity", "stale", "bursts"]
    small = told("--capacity", "2G", "--used", "1.5G", "--reserved-hours", "1000")
    assert [each["kind"] for each in small["findings"]] == [  # type: ignore[attr-defined]
        "disk_full",
        "loss",
        "stale",
        "bursts",
        "early_deletion",
    ]
    assert json.loads((tmp_path / "out" / "forecast.json").read_text())["facts"] == small["facts"]
    assert "slow" in (tmp_path / "out" / "forecast.html").read_text()


def test_a_report_that_knew_no_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its store had no file of consumer offsets: that nobody is behind was not said."""
    for hour in range(4):
        end_s = NOW_S + hour * HOUR_S
        span_s = (end_s - HOUR_S, end_s - 60)
        topics = {"Orders": (3_600, 1 << 20)}
        has_groups = hour < 3
        write_run(tmp_path / "history", end_s, "store x", [], topics, span_s, has_groups=has_groups)
    arguments = ["--history", str(tmp_path), "--out", str(tmp_path / "out"), "--capacity", "1T"]
    assert main(PIPELINE, [*arguments, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told["findings"]] == ["no_groups", "stale"]
    assert "how far groups are is not known" in told["verdict"]


def test_hot_queues_are_those_of_topics_with_idle_queues() -> None:
    queues = {("Orders", "a", number) for number in range(4)} | {("Idle", "a", 0), ("Idle", "a", 1)}
    (hot,) = hot_queues({("Orders", "a", 0): 500}, queues)
    assert (hot.topic, hot.largest, hot.ratio, hot.queues) == ("Orders", ("a", 0), 4.0, 4)
    assert hot_queues({("Orders", "a", 0): 500}) == []


def test_the_golden_store(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    root = golden.unpack(golden.CLEAN_MASTER, tmp_path)
    out = tmp_path / "out"
    metrics = tmp_path / "forecast.prom"
    arguments = ["--store", str(root), "--out", str(out), "--json"]
    with Reader(root) as reader:
        records = list(reader.records())
        log_bytes = reader.end_offset - reader.min_offset
    # Groups are behind by less than a hundredth of three days.
    assert main(PIPELINE, [*arguments, "--capacity", "1G", "--no-keys"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["records"], told["bytes"]) == (len(records), sum(each.size for each in records))
    first, last = records[0].store_ms // 60_000, records[-1].store_ms // 60_000
    counts = [0] * (last - first - 1)
    for record in records:
        if first < record.store_ms // 60_000 < last and record.topic == "GoldenTopic":
            counts[record.store_ms // 60_000 - first - 1] += 1
    while counts and counts[0] == 0:
        del counts[0]
    topics = {each["topic"]: each for each in told["facts"]["topics"]}
    assert topics["GoldenTopic"]["messages_per_hour"] == pytest.approx(median(counts) * 60)
    [disk] = told["facts"]["disks"]
    assert (disk["log_bytes"], disk["total_bytes"]) == (log_bytes, 1 << 30)
    assert told["facts"]["hot_keys"] == []
    # The run is history for later ones. With a retention of five minutes what groups have not
    # read is as good as lost; nothing is counted again to know that.
    history = ["--history", str(out), "--out", str(tmp_path / "later"), "--json"]
    more = ["--reserved-hours", "0.08", "--within", "1", "--metrics-file", str(metrics)]
    assert main(PIPELINE, [*history, *more]) == 1
    told = json.loads(capsys.readouterr().out)
    lost = {each["group"] for each in told["findings"] if each["kind"] == "loss"}
    assert {"golden_pull", "golden_sql"} <= lost
    assert all(each["runs"] == 1 for each in told["facts"]["groups"])
    assert "rmq_pipeline_loss_in_seconds{" in metrics.read_text()


def test_a_cluster(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    out = tmp_path / "out"
    with process_cluster(tmp_path, fileReservedTime="48") as cluster:
        cluster.create_topic("Orders", queues=2)
        # Nobody reads it, and all its messages are in one of its queues.
        cluster.create_topic("Lopsided", queues=4)
        first = MessageQueue(topic="Lopsided", broker_name="broker-a", queue_id=0)
        with BlockingProducer(cluster.nameserver, "tests") as producer:
            producer.send_batch([Message("Lopsided", b"x") for _ in range(120)], queue=first)
            for number in range(10):
                producer.send(Message("Orders", b"x", keys=(f"key-{number % 2}",)))
        usage = shutil.disk_usage(tmp_path)
        code = main(PIPELINE, ["-n", cluster.nameserver, "--out", str(out), "--json"])
    told = json.loads(capsys.readouterr().out)
    # It has been there for seconds: nobody can tell yet how fast it grows.
    assert (code, [each["kind"] for each in told["findings"]]) == (2, ["growth"])
    [disk] = told["facts"]["disks"]
    assert disk["disk"] == "disk of broker-a"
    assert disk["reserved_seconds"] == 48 * HOUR_S
    # Brokers tell one digit behind the point.
    assert disk["total_bytes"] == pytest.approx(usage.total, rel=0.06)
    assert disk["log_bytes"] == told["bytes"] > 0
    assert told["records"] == 130
    [hot] = told["facts"]["hot_queues"]
    assert (hot["topic"], hot["skew"], hot["share"]) == ("Lopsided", 4.0, 1.0)
    keys = [(each["key"], each["messages"]) for each in told["facts"]["hot_keys"]]
    assert keys == [("key-0", 5), ("key-1", 5)]
    assert len(list((out / "history").iterdir())) == 1
