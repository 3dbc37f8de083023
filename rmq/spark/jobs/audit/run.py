"""The audit at work: both logs opened, compared by tasks of Spark, differences named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.model.offsets import PhysicalOffset
from rmq.spark.jobs.audit.compare import compare_stretches
from rmq.spark.jobs.audit.ends import look_at, open_pair
from rmq.spark.jobs.audit.naming import MASTER, Task, name_differences
from rmq.spark.jobs.audit.plan import Range, by_segment, make_plan, merged, stretches
from rmq.spark.jobs.audit.result import Audit, page_of, target_text, verdict_of
from rmq.spark.jobs.audit.tables import KINDS, count_by_kind, first_of, put_together
from rmq.spark.jobs.outputs import write_table
from rmq.spark.pages.page import write_text
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.spark.jobs.audit.compare import Compared
    from rmq.spark.jobs.audit.plan import Plan
    from rmq.spark.pipelines.job import Job
    from rmq.spark.pipelines.verdict import Verdict
    from rmq.store.reader import Reader

SHOWN_MAX: Final = 1_000
"""How many differences the page and the JSON file have; the table has all."""


def run(job: Job, args: Namespace) -> Verdict:
    """Compare the two logs."""
    master_reader, slave_reader = open_pair(
        args.master_store, args.slave_store, args.master_log, args.slave_log
    )
    folders = (
        _folder(args.master_store, args.master_log),
        _folder(args.slave_store, args.slave_log),
    )
    with master_reader, slave_reader:
        with job.step("finding the ends of the logs"):
            master, slave = look_at(master_reader, slave_reader)
        plan = make_plan(master, slave)
        compared = _compare(job, plan, folders)
        runs, expired = _sort_out(compared, master_reader, slave_reader)
        audit = Audit(
            master=master,
            slave=slave,
            plan=plan,
            runs=merged([*runs, plan.beyond]),
            counts=dict.fromkeys(KINDS, 0),
            rows=(),
            lag_age_s=_lag_age_s(master_reader, plan, job.started_s),
            expired=expired,
        )
    audit = _name(job, args.out, audit, folders)
    return verdict_of(audit) if args.out is None else _write(job, args.out, audit)


def _folder(root: Path, log: Path | None) -> Path:
    return (log or root / "commitlog").absolute()


def _compare(job: Job, plan: Plan, folders: tuple[Path, Path]) -> list[Compared]:
    parts = stretches(plan.compared, plan.segment_bytes)
    if not parts:
        return []
    spark = job.spark.sparkContext
    work = partial(compare_stretches, master=folders[0], slave=folders[1])
    with job.step("comparing the logs"):
        return spark.parallelize(parts, len(parts)).mapPartitions(work).collect()


def _sort_out(
    compared: Sequence[Compared], master: Reader, slave: Reader
) -> tuple[list[Range], list[Range]]:
    """Return where bytes differ, and what retention deleted before it was compared."""
    runs: list[Range] = []
    expired: list[Range] = []
    if any(each.absent for each in compared):
        master.refresh()
        slave.refresh()
    for each in compared:
        where = Range(each.stretch.start, each.stretch.stop)
        if not each.absent:
            runs += each.runs
            continue
        reader = master if each.absent == MASTER else slave
        if reader.log.find(PhysicalOffset(each.stretch.segment)) is not None:
            raise ConfigError(
                "--spark-master",
                f"a task did not find the segment {each.stretch.segment} of {reader.root}, which is"
                " there",
                hint="stores must be on storage that all machines of the cluster see",
            )
        if each.stretch.segment < reader.min_offset:
            expired.append(where)
        else:
            runs.append(where)
    return runs, expired


def _lag_age_s(master: Reader, plan: Plan, now_s: float) -> float | None:
    """Return how long ago the first record was stored that the slave lacks."""
    if not plan.lag.size:
        return None
    stop = PhysicalOffset(plan.lag.stop)
    offset = master.log.next_sound(PhysicalOffset(plan.lag.start), stop)
    record = None if offset is None else master.log.record_at(offset, stop)
    return None if record is None else max(0.0, now_s - record.store_ms / 1000)


def _name(job: Job, out: Path | None, audit: Audit, folders: tuple[Path, Path]) -> Audit:
    """Add which records differ, and write them where there is a place for it."""
    if not audit.runs and out is None:
        return audit
    tasks = [
        Task(segment, tuple(runs))
        for segment, runs in by_segment(audit.runs, audit.plan.segment_bytes).items()
    ]
    work = partial(
        name_differences,
        master=(folders[0], audit.master.end),
        slave=(folders[1], audit.slave.end),
        segment_bytes=audit.plan.segment_bytes,
    )
    rows = job.spark.sparkContext.parallelize(tasks, max(1, len(tasks))).mapPartitions(work)
    differences = put_together(job.spark, rows).persist()
    try:
        if audit.runs:
            with job.step("naming the records that differ"):
                counts = count_by_kind(differences)
                audit = replace(audit, counts=counts, rows=first_of(differences, SHOWN_MAX))
        if out is not None:
            # An empty table too: what an earlier run found must not stay.
            with job.step("writing the differences"):
                found = sum(audit.counts.values())
                write_table(differences, out / "differences", found)
    finally:
        differences.unpersist()
    return audit


def _write(job: Job, out: Path, audit: Audit) -> Verdict:
    """Write page and JSON beside the table."""
    paths = {"differences": "differences", "json": "audit.json", "page": "audit.html"}
    audit = replace(audit, outputs={name: str(out / path) for name, path in paths.items()})
    verdict = verdict_of(audit)
    run = Run.of(job, target_text(audit.master.root, audit.slave.root))
    write_text(out / "audit.html", page_of(audit, verdict, run.ended_s))
    write_verdict(out / "audit.json", run, verdict)
    return verdict
