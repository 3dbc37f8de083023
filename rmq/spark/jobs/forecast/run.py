"""The forecast at work: growth counted by Spark or read from history, page and JSON written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rmq.model.words import count_text
from rmq.spark import schema
from rmq.spark.jobs.forecast.data import Observed, make_forecast, verdict_of
from rmq.spark.jobs.forecast.model import HOUR_S, samples_of, whole_stretches
from rmq.spark.jobs.forecast.page import page_of
from rmq.spark.jobs.forecast.sources import (
    Given,
    cluster_disks,
    group_states,
    history_observed,
    hot_queues,
    store_disk,
)
from rmq.spark.jobs.forecast.tables import (
    COLUMNS,
    by_queue,
    counted,
    hot_keys,
    over_time,
    window,
)
from rmq.spark.jobs.report.history import read_history, write_run
from rmq.spark.jobs.report.lag import by_group
from rmq.spark.jobs.report.sources import cluster_progress, store_progress
from rmq.spark.pages.page import write_text
from rmq.spark.pipelines.cluster import cluster_config, cluster_options
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from rmq.spark.jobs.forecast.data import Forecast
    from rmq.spark.jobs.forecast.model import Disk
    from rmq.spark.jobs.forecast.tables import Sums
    from rmq.spark.jobs.report.sources import Progress
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict

WINDOW_HOURS: Final = 24.0
"""How far back a cluster is read."""


def run(job: Job, args: Namespace, target: str) -> Verdict:
    """Make the forecast."""
    given = Given(args.capacity, args.used, args.reserved_hours)
    if args.history is not None:
        seen = history_observed(args.history, given, job.started_s, args.ignore_group)
    elif args.store is not None:
        seen = _store(job, args, given, target)
    else:
        seen = _cluster(job, args, given, target)
    return _write(job, args.out, make_forecast(seen, args.within * HOUR_S))


# --- reading ------------------------------------------------------------------------------------


def _store(job: Job, args: Namespace, given: Given, target: str) -> Observed:
    with job.step("reading the store"), Reader(args.store) as reader:
        progress = store_progress(reader, args.store, "", ())
        disk = store_disk(reader, args.store)
        last_ms = None if reader.state.is_live else reader.last_store_ms
    # In a store that no broker writes to, time ended with the last message.
    now_s = job.started_s if last_ms is None else min(job.started_s, last_ms / 1000)
    options = {"path": str(args.store), "failOnDataLoss": "false"}
    options["skipCorrupt"] = str(args.skip_corrupt).lower()
    messages = _messages(job, "rocketmq-store", options, args, now_s, args.window)
    return _observed(job, args, target, now_s, messages, {"": given.applied(disk)}, progress)


def _cluster(job: Job, args: Namespace, given: Given, target: str) -> Observed:
    config = cluster_config(args)
    with job.step("asking the brokers"):
        disks, failures = cluster_disks(config)
        progress = cluster_progress(config, ())
    progress.failures += failures
    options = cluster_options(args) | {"failOnDataLoss": "false", "subscribePattern": ".*"}
    options["startingOffsetsByTimestampStrategy"] = "latest"
    hours = WINDOW_HOURS if args.window is None else args.window
    messages = _messages(job, "rocketmq", options, args, job.started_s, hours)
    disks = {name: given.applied(disk) for name, disk in disks.items()}
    return _observed(job, args, target, job.started_s, messages, disks, progress)


def _messages(
    job: Job,
    kind: str,
    options: dict[str, str],
    args: Namespace,
    now_s: float,
    hours: float | None,
) -> DataFrame:
    """Return all messages, those of system topics too: they fill the disk as well."""
    names = [name for name in COLUMNS if name != schema.KEYS or not args.no_keys]
    options |= {"includeSystemTopics": "true", "columns": ",".join(names)}
    from_ms = None if hours is None else max(0, int((now_s - hours * HOUR_S) * 1000))
    if from_ms is not None:
        options["startingTimestamp"] = str(from_ms)
    table = job.spark.read.format(kind).options(**options).load()
    if from_ms is None:
        return table
    # Where a queue is entered by time, messages around it may be a little older.
    return table.filter(F.unix_millis(F.col(schema.STORE_TIMESTAMP)) >= from_ms)


def _observed(
    job: Job,
    args: Namespace,
    target: str,
    now_s: float,
    messages: DataFrame,
    disks: Mapping[str, Disk],
    progress: Progress,
) -> Observed:
    history = read_history(args.out / "history", target)
    counts = counted(messages).persist()
    try:
        with job.step("counting messages"):
            known = window(counts)
            first_s, last_s, step_s = known or (now_s, now_s, 60)
            sums = over_time(counts, step_s)
            queues = by_queue(counts)
    finally:
        counts.unpersist()
    stretches = whole_stretches(first_s, max(now_s, last_s), step_s)
    topics, brokers = _added(sums, 0), _added(sums, 1)
    totals = {
        topic: (
            sum(count for count, _ in values.values()),
            sum(size for _, size in values.values()),
        )
        for topic, values in topics.items()
    }
    keys = []
    if known is not None and not args.no_keys:
        with job.step("counting keys"):
            keys = hot_keys(messages, {topic: count for topic, (count, _) in totals.items()})
    lags = by_group(progress.lags, now_s)
    write_run(
        args.out / "history",
        job.started_s,
        target,
        lags,
        totals,
        (None, None) if known is None else (first_s, last_s),
        has_groups=progress.has_groups,
    )
    return Observed(
        target=target,
        made_s=now_s,
        seen_s=now_s,
        basis=f"{count_text(len(stretches), 'bucket')} of {step_s // 60} min",
        topics={
            topic: samples_of(values, stretches, step_s) for topic, values in sorted(topics.items())
        },
        disks=[
            replace(disk, samples=samples_of(brokers.get(name, {}), stretches, step_s))
            for name, disk in sorted(disks.items())
        ],
        groups=group_states(lags, history, job.started_s, args.ignore_group),
        hot_queues=hot_queues(queues, progress.queues),
        hot_keys=keys,
        failures=progress.failures,
        age_failures=progress.age_failures,
        has_groups=progress.has_groups,
        records=sum(count for count, _ in totals.values()),
        size_bytes=sum(size for _, size in totals.values()),
        more_hint="run it again later with the same --out",
    )


def _added(sums: Sums, column: int) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the sums by topic (column 0) or by broker (column 1) alone."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for key, values in sums.items():
        added = found.setdefault(key[column], {})
        for at, (messages, size) in values.items():
            before = added.get(at, (0, 0))
            added[at] = (before[0] + messages, before[1] + size)
    return found


# --- writing ------------------------------------------------------------------------------------


def _write(job: Job, out: Path, forecast: Forecast) -> Verdict:
    outputs = {"json": str(out / "forecast.json"), "page": str(out / "forecast.html")}
    forecast = replace(forecast, outputs=outputs)
    verdict = verdict_of(forecast)
    write_text(out / "forecast.html", page_of(forecast, verdict, job.started_s))
    write_verdict(out / "forecast.json", Run.of(job, forecast.seen.target), verdict)
    return verdict
