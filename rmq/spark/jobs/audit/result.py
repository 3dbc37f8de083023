"""The result of an audit, as text and as a page. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rmq.model.words import count_text, offset_text, seconds_text, size_text
from rmq.spark.pages.cells import CELLS_MAX, cell_map
from rmq.spark.pages.cells import Cell as MapCell
from rmq.spark.pages.page import Cell, Tile, findings_list, page, section, table, tiles
from rmq.spark.pages.scales import moment_text
from rmq.spark.pipelines.verdict import FINDINGS_MAX, Finding, Gauge, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmq.spark.jobs.audit.plan import Log, Plan, Range
    from rmq.spark.pages.markup import Markup
    from rmq.spark.pipelines.verdict import Json

CELL_BYTES_MIN: Final = 4096

_KEY: Final = {
    "equal": ("equal", "cell-equal"),
    "differs": ("differs or is missing", "cell-differs"),
    "beyond": ("only the slave has it, behind the master's end", "cell-beyond"),
    "lag": ("not received yet", "cell-missing"),
    "apart": ("only one of them still has it", "cell-apart"),
}


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that an audit found out."""

    master: Log
    slave: Log
    plan: Plan
    runs: Sequence[Range]
    """Where bytes differ."""
    counts: Mapping[str, int]
    """Differences by kind."""
    rows: Sequence[Mapping[str, Any]]
    """The first of them."""
    lag_age_s: float | None
    """How long ago the first record that the slave lacks was stored."""
    expired: Sequence[Range] = ()
    """What retention deleted while it was to be compared."""
    outputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return sum(self.counts.values())

    @property
    def compared_bytes(self) -> int:
        return self.plan.compared.size - sum(each.size for each in self.expired)


def target_text(master: str, slave: str) -> str:
    """Return how results name the pair."""
    return f"{slave} against {master}"


def verdict_of(audit: Audit) -> Verdict:
    """Decide; every difference fails, lag and retention do not."""
    plan, counts = audit.plan, audit.counts
    named = [finding_of(row) for row in audit.rows if row["kind"] != "moved"]
    total = audit.differences - counts["moved"]
    if counts["moved"]:
        first = next((row for row in audit.rows if row["kind"] == "moved"), None)
        named = [*named[: FINDINGS_MAX - 1], _moved_finding(counts["moved"], first)]
        total += 1
    listed = tuple(named[:FINDINGS_MAX])
    facts: dict[str, Json] = {
        **counts,
        "differences": audit.differences,
        "first_difference": min((run.start for run in audit.runs), default=None),
        "compared_start": plan.compared.start,
        "compared_stop": plan.compared.stop,
        "compared_bytes": audit.compared_bytes,
        "lag_bytes": plan.lag.size,
        "lag_seconds": audit.lag_age_s,
        "beyond_bytes": plan.beyond.size,
        "expired_bytes": sum(each.size for each in audit.expired),
        "master": _log_facts(audit.master),
        "slave": _log_facts(audit.slave),
    }
    gauges = [
        Gauge("differences", "Records that differ, are missing or cannot be read.", total),
        Gauge("replica_lag_bytes", "Bytes that the slave has not received yet.", plan.lag.size),
    ]
    if audit.lag_age_s is not None:
        gauges.append(
            Gauge(
                "replica_lag_seconds",
                "Age of what the slave has not received yet.",
                audit.lag_age_s,
            )
        )
    return Verdict(
        outcome=Outcome.FAILS if audit.runs else Outcome.HOLDS,
        sentence=_sentence(audit),
        facts=facts,
        findings=listed,
        findings_left_out=max(0, total - len(listed)),
        outputs=audit.outputs,
        size_bytes=audit.compared_bytes,
        gauges=tuple(gauges),
    )


def _sentence(audit: Audit) -> str:
    size = size_text(audit.compared_bytes)
    where = f"physical offsets {offset_text(audit.plan.compared.start)} to"
    where = f"{where} {offset_text(audit.plan.compared.stop)}"
    lag = ""
    if audit.plan.lag.size:
        age = (
            "" if audit.lag_age_s is None else f", stored up to {seconds_text(audit.lag_age_s)} ago"
        )
        lag = f"; the slave has not received {size_text(audit.plan.lag.size)} yet{age}"
    if not audit.runs:
        return f"the slave's log is the master's, byte for byte: {size} compared, {where}{lag}"
    counts = audit.counts
    parts = [
        f"{count_text(counts['differs'], 'record')} differ" + "s" * (counts["differs"] == 1),
        f"{counts['missing']:,} missing on the slave",
        f"{counts['extra']:,} that only the slave has",
        f"{count_text(counts['unreadable'], 'stretch')} of bytes that are no record",
        f"{counts['moved']:,} at other offsets",
    ]
    kinds = ("differs", "missing", "extra", "unreadable", "moved")
    told = ", ".join(part for part, kind in zip(parts, kinds, strict=True) if counts[kind])
    first = offset_text(min(run.start for run in audit.runs))
    return (
        f"{told or 'bytes differ'}; the first byte that differs is at physical offset {first}"
        f" ({size} compared, {where}){lag}"
    )


def finding_of(row: Mapping[str, Any]) -> Finding:
    """Return a difference as text."""
    facts: dict[str, Json] = {
        key: value for key, value in row.items() if value is not None and key != "store_time"
    }
    if row["store_time"] is not None:
        facts["store_time"] = row["store_time"].isoformat()
    offset, size = int(row["physical_offset"]), int(row["size"])
    if row["kind"] == "unreadable":
        text = f"bytes from physical offset {offset} to {offset + size} differ: {row['reason']}"
        return Finding(text, facts)
    record = f"record at physical offset {offset} ({_place(row)})"
    if row["kind"] == "missing":
        return Finding(f"{record} is missing on the slave: {row['reason']}", facts)
    if row["kind"] == "extra":
        return Finding(f"{record} is only on the slave; on the master {row['reason']}", facts)
    if row["slave_offset"] is not None and row["slave_offset"] != offset:
        text = f"{record} is at {row['slave_offset']} on the slave, and differs"
        return Finding(text, facts)
    count = int(row["bytes_differing"] or 0)
    what = f"{row['fields'] or 'bytes'}: {count_text(count, 'byte')} from {row['first_byte']} on"
    return Finding(f"{record} differs in {what}; {_who(row)}", facts)


def _moved_finding(count: int, first: Mapping[str, Any] | None) -> Finding:
    text = f"{count:,} records are at other offsets on the slave than on the master"
    if first is None:
        return Finding(text, {"kind": "moved", "records": count})
    offset, other = int(first["physical_offset"]), int(first["slave_offset"])
    return Finding(
        f"{text}; the first is at {offset} on the master and at {other} on the slave",
        {"kind": "moved", "records": count, "physical_offset": offset, "slave_offset": other},
    )


def _place(row: Mapping[str, Any]) -> str:
    place = f"topic {row['topic']}, queue {row['queue_id']}, offset {row['queue_offset']}"
    return f"{place}, key {row['unique_key']}" if row["unique_key"] else place


def _who(row: Mapping[str, Any]) -> str:
    if row["damaged"] in (None, "neither"):
        return "both are sound records"
    if row["damaged"] == "both":
        return f"both are damaged ({row['reason']})"
    return f"the {row['damaged']}'s is damaged ({str(row['reason']).partition(': ')[2]})"


def _log_facts(log: Log) -> Json:
    return {
        "store": log.root,
        "begin": log.begin,
        "end": log.end,
        "segments": len(log.segments),
        "segment_bytes": log.segment_bytes,
        "is_live": log.is_live,
    }


# --- the page -----------------------------------------------------------------------------------


def page_of(audit: Audit, verdict: Verdict, made_s: float) -> str:
    """Return the page of an audit."""
    plan = audit.plan
    records = audit.differences - audit.counts["unreadable"]
    numbers = [
        Tile("Compared", size_text(audit.compared_bytes), "byte by byte, on both sides"),
        Tile("Records that differ", f"{records:,}", is_bad=records > 0),
        Tile(
            "Unreadable stretches",
            f"{audit.counts['unreadable']:,}",
            is_bad=audit.counts["unreadable"] > 0,
        ),
        Tile(
            "Not received yet",
            size_text(plan.lag.size),
            "" if audit.lag_age_s is None else f"oldest {seconds_text(audit.lag_age_s)} old",
        ),
    ]
    body = [
        tiles(numbers),
        section(
            "The log",
            "One cell is one stretch of the log, in order. What only one of them still has, because"
            " the other deleted it earlier, and what the slave has not received yet is no"
            " difference.",
            _map(audit),
        ),
    ]
    if audit.rows:
        body.append(
            section(
                "Differences",
                "The differences column names fields of the stored record. A damaged side has bytes"
                " that are no sound record; if neither is damaged, they were written differently.",
                _table(audit),
            )
        )
    if verdict.findings:
        body.append(findings_list(verdict))
    body.append(section("Stores", "", _stores(audit)))
    target = target_text(audit.master.root, audit.slave.root)
    return page("Replication audit", target, made_s, verdict, body)


def _map(audit: Audit) -> Markup:
    first = min(audit.master.begin, audit.slave.begin)
    last = max(audit.master.end, audit.slave.end)
    step = max(CELL_BYTES_MIN, -(-(last - first) // CELLS_MAX))
    cells = []
    run = 0
    for start in range(first, last, step):
        stop = min(start + step, last)
        while run < len(audit.runs) and audit.runs[run].stop <= start:
            run += 1
        is_hit = run < len(audit.runs) and audit.runs[run].start < stop
        kind = _cell_kind(audit, start, stop, is_hit=is_hit)
        where = f"{offset_text(start)} to {offset_text(stop)}"
        cells.append(MapCell(kind, f"{where}\n{_KEY[kind][0]}"))
    title = f"{offset_text(first)} to {offset_text(last)}"
    return cell_map(title, f"{size_text(step)} a cell", cells, _KEY)


def _cell_kind(audit: Audit, start: int, stop: int, *, is_hit: bool) -> str:
    plan = audit.plan
    if plan.beyond.start < stop and start < plan.beyond.stop:
        return "beyond"
    if is_hit:
        return "differs"
    if start >= plan.compared.stop:
        return "lag"
    if stop <= plan.compared.start or any(
        each.start <= start and stop <= each.stop for each in audit.expired
    ):
        return "apart"
    return "equal"


def _table(audit: Audit) -> Markup:
    rows: list[list[str | Cell]] = [
        [
            Cell(str(row["kind"]), is_bad=row["kind"] != "moved"),
            Cell(str(row["physical_offset"]), is_code=True),
            str(row["size"]),
            str(row["topic"] or ""),
            "" if row["queue_id"] is None else f"{row['queue_id']} / {row['queue_offset']}",
            str(row["fields"] or ""),
            str(row["damaged"] or ""),
            str(row["reason"] or ""),
            "" if row["store_time"] is None else moment_text(row["store_time"].timestamp()),
        ]
        for row in audit.rows
    ]
    head = ["kind", "offset", "bytes", "topic", "queue / offset", "differs in", "damaged"]
    return table([*head, "why", "stored"], rows, "<>><<<<<<", total=audit.differences)


def _stores(audit: Audit) -> Markup:
    rows: list[list[str | Cell]] = [
        [
            name,
            Cell(log.root, is_code=True),
            offset_text(log.begin),
            offset_text(log.end),
            f"{len(log.segments):,}",
            size_text(log.segment_bytes),
            "running" if log.is_live else "closed",
        ]
        for name, log in (("master", audit.master), ("slave", audit.slave))
    ]
    head = ["", "store", "begins at", "ends at", "segments", "of", "broker"]
    return table(head, rows, "<<>>>><")
