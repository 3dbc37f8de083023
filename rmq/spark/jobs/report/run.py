"""The report at work: traffic counted by Spark, lag asked for, tables and page written."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from rmq.spark import schema
from rmq.spark.jobs.outputs import write_table
from rmq.spark.jobs.report.data import (
    NO_TRAFFIC,
    SKEW_MESSAGES_MIN,
    Limits,
    Plots,
    Producer,
    Report,
    Traffic,
    verdict_of,
)
from rmq.spark.jobs.report.delays import delay_bins, delays_of, negative_of
from rmq.spark.jobs.report.history import read_history, write_run
from rmq.spark.jobs.report.lag import by_group, skews, trend_of
from rmq.spark.jobs.report.page import page_of
from rmq.spark.jobs.report.sources import cluster_progress, store_progress
from rmq.spark.jobs.report.tables import (
    BY_DELAY,
    BY_PRODUCER,
    BY_QUEUE,
    BY_TIME_AND_DELAY,
    BY_TOPIC,
    BY_TOPIC_AND_DELAY,
    BY_TOPIC_AND_TIME,
    COLUMNS,
    TOTAL,
    bucket,
    counted,
    producers,
    rollups,
    span,
    traffic,
)
from rmq.spark.pages.page import write_text
from rmq.spark.pages.scales import time_step
from rmq.spark.pipelines.cluster import cluster_config, cluster_options
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row

    from rmq.spark.jobs.report.lag import GroupLag, QueueLag, Skew
    from rmq.spark.jobs.report.sources import Progress
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict

DAY_S: Final = 86_400
POINTS_MAX: Final = 120
"""Stretches of time that plots have at most."""
TOPICS_MAX: Final = 30
"""Topics that plots show one by one; the others are put together."""
MAPS_MAX: Final = 3
PRODUCERS_MAX: Final = 100
OTHERS: Final = "other topics"


def run(job: Job, args: Namespace, target: str) -> Verdict:
    """Make the report."""
    progress, now_s, has_groups = _progress(job, args)
    history = read_history(args.out / "history", target)
    messages = _messages(job, args)
    # Few rows in few partitions: every table is made from them in a few tasks.
    counts = counted(messages).coalesce(job.spark.sparkContext.defaultParallelism).persist()
    try:
        with job.step("counting messages"):
            known = span(counts)
        with job.step("making the tables"):
            first, last = known or (0, 0)
            step_s = max(60, time_step((last - first + 60) / POINTS_MAX))
            sums = rollups(counts, step_s)
            spread = skews(_queue_messages(sums[BY_QUEUE]), progress.queues)
            queues = _queue_rows(counts, spread, step_s)
            write_table(traffic(counts), args.out / "traffic")
            write_table(producers(counts), args.out / "producers")
    finally:
        counts.unpersist()
    _write_lag(args.out / "lag", progress.lags, now_s, job.started_s)
    whole, topics = _traffic(sums)
    lags = [_with_trend(lag, history, job.started_s) for lag in by_group(progress.lags, now_s)]
    report = Report(
        target=target,
        made_s=job.started_s,
        whole=whole,
        topics=topics,
        lags=lags,
        groups=progress.groups,
        skews=[each for each in spread if each.topic in topics],
        producers=_producers_of(sums[BY_PRODUCER]),
        plots=_plots(sums, queues, spread, known, step_s),
        history=history,
        failures=progress.failures,
        limits=Limits(args.max_lag, args.max_lag_seconds, args.max_skew),
        span_s=(None, None) if known is None else (float(first), float(last)),
        has_groups=has_groups,
        age_failures=progress.age_failures,
        queue_failures=progress.queue_failures,
    )
    return _write(job, args.out, report)


# --- reading ------------------------------------------------------------------------------------


def _progress(job: Job, args: Namespace) -> tuple[Progress, float, bool]:
    """Return how far groups are, at which moment, and whether that is known."""
    with job.step("asking how far groups are"):
        if args.store is None:
            return cluster_progress(cluster_config(args), args.topic), job.started_s, True
        with Reader(args.store) as reader:
            found = store_progress(reader, args.store, args.broker_name or "", args.topic)
            # In a store that no broker writes to, waiting ended with the last message.
            last_ms = None if reader.state.is_live else reader.last_store_ms
        now_s = job.started_s if last_ms is None else min(job.started_s, last_ms / 1000)
        return found, now_s, found.has_groups and bool(found.groups)


def _messages(job: Job, args: Namespace) -> DataFrame:
    from_ms, to_ms = args.from_ms, args.to_ms
    if args.store is None:
        options = cluster_options(args) | {"failOnDataLoss": "false"}
        if args.topic:
            options["subscribe"] = ",".join(args.topic)
        else:
            options["subscribePattern"] = ".*"
        if from_ms is None and not args.all:
            from_ms = int((job.started_s - DAY_S) * 1000)
        if from_ms is not None:
            options["startingOffsetsByTimestampStrategy"] = "latest"
        reader = job.spark.read.format("rocketmq")
    else:
        options = {"path": str(args.store), "failOnDataLoss": "false"}
        options["skipCorrupt"] = str(args.skip_corrupt).lower()
        if args.topic:
            options["topics"] = ",".join(args.topic)
        if args.broker_name:
            options["brokerName"] = args.broker_name
        reader = job.spark.read.format("rocketmq-store")
    options["columns"] = ",".join(COLUMNS)
    if from_ms is not None:
        options["startingTimestamp"] = str(from_ms)
    if to_ms is not None:
        options["endingTimestamp"] = str(to_ms)
    messages = reader.options(**options).load()
    stored_ms = F.unix_millis(F.col(schema.STORE_TIMESTAMP))
    if from_ms is not None:
        # Where a queue is entered by time, messages around it may be a little older.
        messages = messages.filter(stored_ms >= from_ms)
    if to_ms is not None:
        messages = messages.filter(stored_ms < to_ms)
    return messages


# --- from tables to values ----------------------------------------------------------------------


def _traffic(sums: Mapping[tuple[str, ...], Sequence[Row]]) -> tuple[Traffic, dict[str, Traffic]]:
    """Return the traffic of all topics together, and of each."""
    by_topic: dict[str, dict[int, int]] = {}
    for row in sums[BY_TOPIC_AND_DELAY]:
        by_topic.setdefault(row["topic"], {})[int(row["delay_ms"])] = int(row["messages"])
    topics = {str(row["topic"]): _traffic_of(row, by_topic[row["topic"]]) for row in sums[BY_TOPIC]}
    totals = [row for row in sums[TOTAL] if row["messages"]]
    return _traffic_of(totals[0], _seen(sums)) if totals else NO_TRAFFIC, topics


def _traffic_of(row: Row, seen: Mapping[int, int]) -> Traffic:
    return Traffic(int(row["messages"]), int(row["bytes"]), delays_of(seen), negative_of(seen))


def _seen(sums: Mapping[tuple[str, ...], Sequence[Row]]) -> dict[int, int]:
    return {int(row["delay_ms"]): int(row["messages"]) for row in sums[BY_DELAY]}


def _queue_messages(rows: Iterable[Row]) -> dict[tuple[str, str, int], int]:
    return {
        (row["topic"], row["broker_name"], row["queue_id"]): int(row["messages"]) for row in rows
    }


def _producers_of(rows: Iterable[Row]) -> list[Producer]:
    found = [
        Producer(str(row["producer"]), int(row["messages"]), int(row["bytes"])) for row in rows
    ]
    return sorted(found, key=lambda each: (-each.messages, each.address))[:PRODUCERS_MAX]


def _queue_rows(counts: DataFrame, spread: Sequence[Skew], step_s: int) -> list[Row]:
    """Return messages over time for each queue of the topics that are spread most unevenly."""
    chosen = _mapped(spread)
    if not chosen:
        return []
    rows = counts.filter(F.col("topic").isin(chosen)).groupBy(*BY_QUEUE, bucket(step_s).alias("at"))
    return rows.agg(F.sum("messages").alias("messages")).collect()


def _mapped(spread: Sequence[Skew]) -> list[str]:
    return [each.topic for each in spread if each.messages >= SKEW_MESSAGES_MIN][:MAPS_MAX]


def _plots(
    sums: Mapping[tuple[str, ...], Sequence[Row]],
    queue_rows: Sequence[Row],
    spread: Sequence[Skew],
    known: tuple[int, int] | None,
    step_s: int,
) -> Plots:
    if known is None:
        return Plots((), step_s, {}, {}, (), {}, ())
    start = known[0] - known[0] % step_s
    times = [float(at) for at in range(start, known[1] + 1, step_s)]
    totals = sorted(sums[BY_TOPIC], key=lambda row: (-row["messages"], row["topic"]))
    leading = {row["topic"] for row in totals[:TOPICS_MAX]}
    messages: dict[str, list[float]] = {}
    sizes: dict[str, list[float]] = {}
    for row in sums[BY_TOPIC_AND_TIME]:
        name = row["topic"] if row["topic"] in leading else OTHERS
        index = (int(row["at"]) - start) // step_s
        messages.setdefault(name, [0.0] * len(times))[index] += float(row["messages"])
        sizes.setdefault(name, [0.0] * len(times))[index] += float(row["bytes"])
    by_time: list[dict[int, int]] = [{} for _ in times]
    for row in sums[BY_TIME_AND_DELAY]:
        index = (int(row["at"]) - start) // step_s
        by_time[index][int(row["delay_ms"])] = int(row["messages"])
    queues: dict[str, dict[tuple[str, int], list[float]]] = {name: {} for name in _mapped(spread)}
    for row in queue_rows:
        place = (row["broker_name"], int(row["queue_id"]))
        values = queues[row["topic"]].setdefault(place, [0.0] * len(times))
        values[(int(row["at"]) - start) // step_s] = float(row["messages"])
    return Plots(
        times_s=times,
        step_s=step_s,
        messages=messages,
        sizes=sizes,
        delays=[delays_of(seen) for seen in by_time],
        queues=queues,
        histogram=delay_bins(_seen(sums)),
    )


def _with_trend(lag: GroupLag, history: Sequence[Any], now_s: float) -> GroupLag:
    key = (lag.group, lag.topic)
    points = [(run.time_s, run.lags[key]) for run in history if key in run.lags]
    return replace(lag, trend=trend_of([*points, (now_s, lag.lag)]))


# --- writing ------------------------------------------------------------------------------------

_LAG_SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("consumer_offset", pa.int64()),
        ("lag", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("expired", pa.int64()),
        ("run_time", pa.timestamp("us", tz="UTC")),
    ]
)


def _write_lag(folder: Path, lags: Sequence[QueueLag], now_s: float, run_s: float) -> None:
    """Write the table of lags, which is small: no tasks are needed for it."""
    moment = datetime.fromtimestamp(run_s, UTC)
    rows = [
        {
            "group": each.group,
            "topic": each.topic,
            "broker_name": each.broker_name,
            "queue_id": each.queue_id,
            "min_offset": each.min_offset,
            "max_offset": each.max_offset,
            "consumer_offset": each.consumer_offset,
            "lag": each.lag,
            "lag_seconds": each.lag_s(now_s),
            "expired": each.expired,
            "run_time": moment,
        }
        for each in lags
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lag.parquet"
    fresh = folder / f".lag.{os.getpid()}"
    parquet.write_table(pa.Table.from_pylist(rows, _LAG_SCHEMA), fresh)
    fresh.replace(path)


def _write(job: Job, out: Path, report: Report) -> Verdict:
    names = ("traffic", "producers", "lag")
    outputs = {name: str(out / name) for name in names}
    outputs |= {"json": str(out / "report.json"), "page": str(out / "report.html")}
    report = replace(report, outputs=outputs)
    verdict = verdict_of(report)
    write_text(out / "report.html", page_of(report, verdict))
    write_verdict(out / "report.json", Run.of(job, report.target), verdict)
    sizes = {topic: (each.messages, each.size_bytes) for topic, each in report.topics.items()}
    write_run(
        out / "history",
        job.started_s,
        report.target,
        report.lags,
        sizes,
        report.span_s,
        has_groups=report.has_groups,
    )
    return verdict
