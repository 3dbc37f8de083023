"""`rmq pipeline verify --store DIR`: everything in a store is as it should be.

Every record of the CommitLog has the right CRC and is followed by the next; each has exactly one
ConsumeQueue entry, with its offset, size and tag hash (for a delayed message the time of delivery);
queue offsets have no gaps; the index leads to every key; transactions are decided and delayed
messages delivered. The rules are those of `rmq store verify`, which reads record by record in one
process; this reads segments and queues in parallel, many records at a time.

It reads only, works on a store that a broker has open, and is best run on a slave or on a copy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.model.words import count_text
from rmq.spark.pipelines.arguments import amount, positive
from rmq.spark.pipelines.job import Pipeline, main
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.results import write_verdict
from rmq.spark.pipelines.verdict import Finding, Gauge, Json, Outcome, Verdict, bounded
from rmq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from rmq.spark.jobs.verify.job import StoreCheck
    from rmq.spark.jobs.verify.pending import Pending
    from rmq.spark.pipelines.job import Job
    from rmq.store.verify.finding import Finding as StoreFinding

OVERDUE_MINUTES: Final = 30.0
"""Brokers ask for the outcome of a transaction every minute, 15 times, and then give it up."""

TABLE_SCHEMA: Final = (
    "severity STRING, kind STRING, path STRING, physical_offset BIGINT, queue_offset BIGINT,"
    " text STRING"
)
Row = tuple[str, str, str, int | None, int | None, str]
"""One finding, as `TABLE_SCHEMA` has it."""


def run(job: Job, args: Namespace) -> Verdict:
    """Check a store."""
    from rmq.store.reader import Reader

    delay_levels_ms = parse_delay_levels(args.delay_levels)
    reader = Reader(
        args.store,
        commit_log_paths=args.commit_log or None,
        segment_bytes=args.segment_bytes,
        index_slots=args.index_slots,
        index_entries=args.index_entries,
    )
    from rmq.spark.jobs.outputs import write_table
    from rmq.spark.jobs.verify.job import Check, SparkTasks
    from rmq.spark.jobs.verify.pending import find_pending

    with reader:
        check = Check(
            reader,
            SparkTasks(job),
            delay_levels_ms=delay_levels_ms,
            check_index=not args.skip_index,
        ).run()
        now_ms = int(job.started_s * 1000) if reader.state.is_live else check.last_store_ms
        overdue_ms = int(args.overdue_minutes * 60_000)
        pending = find_pending(reader, check.log_end, now_ms, overdue_ms)
    rows = [*_rows(check.found.findings), *_pending_rows(pending)]
    rows.sort(key=lambda row: (row[0], row[3] is None, row[3] or 0))
    outputs: dict[str, str] = {}
    if args.out is not None:
        outputs = {"findings": str(args.out / "findings"), "summary": str(args.out / "verify.json")}
        with job.step("writing findings"):
            table = job.spark.createDataFrame(rows, TABLE_SCHEMA)
            write_table(table.coalesce(1), args.out / "findings", len(rows))
    verdict = make_verdict(check, pending, rows, outputs)
    if args.out is not None:
        write_verdict(args.out / "verify.json", Run.of(job, target(args)), verdict)
    return verdict


def make_verdict(
    check: StoreCheck, pending: Pending, rows: Sequence[Row], outputs: dict[str, str]
) -> Verdict:
    """Return the verdict of a check."""
    errors = check.found.errors + pending.overdue_total
    looked_at = (
        f"{count_text(check.records, 'record')} up to physical offset {check.log_end:,},"
        f" {check.queue_entries:,} of them in {count_text(check.queues, 'queue')},"
        f" {count_text(check.index_entries, 'key')} in the index"
    )
    notes = check.found.notes + len(pending.unknown)
    result = count_text(errors, "error") if errors else "sound"
    if notes:
        result += f" ({count_text(notes, 'note')})"
    facts: dict[str, Json] = {
        "errors": errors,
        "notes": notes,
        "log_end": check.log_end,
        "queues": check.queues,
        "queues_checked_one_by_one": check.queues_checked_one_by_one,
        "queue_entries": check.queue_entries,
        "index_entries": check.index_entries,
        "index_checked_one_by_one": check.is_index_checked_one_by_one,
        "undecided_half_messages": pending.half_messages,
        "undelivered_delayed_messages": pending.delayed_messages,
        "not_known": list(pending.unknown),
    }
    listed, left_out = bounded(
        (Finding(finding_text(row), _finding_facts(row)) for row in rows),
        total=errors + notes,
    )
    return Verdict(
        outcome=Outcome.FAILS if errors else Outcome.HOLDS,
        sentence=f"{result}: {looked_at}",
        facts=facts,
        findings=listed,
        findings_left_out=left_out,
        outputs=outputs,
        records=check.records,
        size_bytes=check.size_bytes,
        gauges=(
            Gauge("store_errors", "Errors found in the store.", errors),
            Gauge("store_notes", "Notes about the store.", notes),
            Gauge("undecided_half_messages", "Transactions not decided.", pending.half_messages),
            Gauge(
                "undelivered_delayed_messages",
                "Delayed messages not delivered.",
                pending.delayed_messages,
            ),
        ),
    )


def finding_text(row: Row) -> str:
    """Return a finding as a sentence that names its place."""
    severity, kind, path, physical_offset, queue_offset, text = row
    place = [path] if path else []
    if queue_offset is not None:
        place.append(f"queue offset {queue_offset:,}")
    if physical_offset is not None:
        place.append(f"physical offset {physical_offset:,}")
    where = f"{', '.join(place)}: " if place else ""
    return f"{severity}: {kind}: {where}{text}"


def _finding_facts(row: Row) -> dict[str, Json]:
    severity, kind, path, physical_offset, queue_offset, _ = row
    return {
        "severity": severity,
        "kind": kind,
        "path": path,
        "physical_offset": physical_offset,
        "queue_offset": queue_offset,
    }


def _rows(findings: Sequence[StoreFinding]) -> list[Row]:
    return [
        (
            finding.severity.value,
            finding.kind.value,
            finding.path,
            finding.physical_offset,
            finding.queue_offset,
            finding.text,
        )
        for finding in findings
    ]


def _pending_rows(pending: Pending) -> list[Row]:
    overdue: list[Row] = [
        ("error", each.kind, str(each.path), each.physical_offset, each.queue_offset, each.text)
        for each in pending.overdue
    ]
    return overdue + [("note", "unknown", "", None, None, text) for text in pending.unknown]


def target(args: Namespace) -> str:
    """Return the store that is checked."""
    return str(args.store)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--store",
        type=Path,
        required=True,
        metavar="DIR",
        help="the store (storePathRootDir of its broker); on a cluster, where all machines see it",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write findings (Parquet) and verify.json there"
    )
    parser.add_argument("--skip-index", action="store_true", help="do not check the index")
    parser.add_argument(
        "--overdue-minutes",
        type=amount,
        default=OVERDUE_MINUTES,
        metavar="N",
        help="an undecided transaction, or a delayed message not delivered, is an error this long"
        " after its time (default: %(default)g)",
    )
    where = parser.add_argument_group("how the store was written")
    where.add_argument(
        "--commit-log",
        type=Path,
        action="append",
        metavar="PATH",
        help="directory of the log, if not commitlog in DIR; may be repeated (storePathCommitLog)",
    )
    for option, key in (
        ("--segment-bytes", "mappedFileSizeCommitLog"),
        ("--index-slots", "maxHashSlotNum"),
        ("--index-entries", "maxIndexNum"),
    ):
        where.add_argument(
            option, type=positive, metavar="N", help=f"{key} of the broker (default: found out)"
        )
    where.add_argument(
        "--delay-levels",
        default=DEFAULT_DELAY_LEVELS,
        metavar="LEVELS",
        help="messageDelayLevel of the broker (default: %(default)s)",
    )


PIPELINE: Final = Pipeline(
    name="verify",
    help="check everything in a store: records, queues, index, transactions, delays",
    description=(
        "Reads every record of a store and compares queues and index with the log, in parallel.\
"
        "Finds the same as `rmq store verify`, and names each defect by its offset. Notes are\n"
        "about what a broker leaves like that or repairs; only errors make the exit code 1."
    ),
    add_arguments=add_arguments,
    run=run,
    target=target,
    examples=(
        "rmq pipeline verify --store /data/rmq/store",
        "rmq pipeline verify --store /data/rmq/store --out verified --json",
    ),
)

if __name__ == "__main__":
    sys.exit(main(PIPELINE))
