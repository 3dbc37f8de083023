"""What bench_client.py measures and shows: loads, tables, columns and goals. No I/O here."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broker_rows import Column
from benchmarks.ha_rows import Goal, Line, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.broker_load.figures import Outcome
    from benchmarks.ha_rows import Figures

JAVA: Final = "Java 4.9.8"
CPP: Final = "C++ binding"
TRIO: Final = "rmq"
AIO: Final = "rmq, asyncio"
BLOCKING: Final = "rmq, blocking"

SEND_TOPIC: Final = "BenchClientSend"
SEND_QUEUES: Final = 4
READ_TOPIC: Final = "BenchClientRead"
READ_QUEUES: Final = 16
MEMORY_TOPIC: Final = "BenchClientMemory"
BATCH: Final = 32
UNDER_WAY: Final = 5_000
"""Pipelined sends under way. The stock client gets slower with more, and throws at 50,000."""
MEMORY_GROWTH_MB_MAX: Final = 8.0
"""A byte and a half for each of five million messages is found out by this."""


@dataclass(frozen=True, slots=True)
class Row:
    """One load of a table, and who can bear it."""

    table: str
    name: str
    work: str
    who: tuple[str, ...]
    """In the order of their turns; those with whom others are compared come first."""
    topic: str = SEND_TOPIC
    at_once: int = 1
    batch: int = 1
    is_default: bool = True
    """Whether it is run when nothing is chosen."""


ROWS: Final = (
    Row("send", "one at a time", "send", (JAVA, CPP, TRIO, AIO, BLOCKING)),
    Row("send", "64 in flight", "send", (JAVA, CPP, TRIO, AIO, BLOCKING), at_once=64),
    Row("send", "from 8 threads", "threads", (BLOCKING,), at_once=8),
    Row("send", "pipelined", "pipeline", (JAVA, TRIO, BLOCKING), at_once=UNDER_WAY),
    Row("send", "pipelined, awaited", "send_soon", (TRIO, AIO), at_once=UNDER_WAY),
    Row("send", "batches of 32", "batch", (JAVA, TRIO, BLOCKING), at_once=8, batch=BATCH),
    Row("consume", "push", "push", (JAVA, CPP, TRIO, AIO), READ_TOPIC, batch=BATCH),
    Row("consume", "lite pull", "lite_pull", (JAVA, TRIO), READ_TOPIC, batch=BATCH),
    Row("consume", "range", "read_range", (JAVA, TRIO, BLOCKING), READ_TOPIC, batch=BATCH),
    Row("memory", "both ways", "memory", (TRIO,), MEMORY_TOPIC, is_default=False),
)

_RATES: Final = (
    Column("/s", "messages_per_s", "{:,.0f}"),
    Column("µs CPU", "cpu_us", "{:.2f}"),
    Column("p50 ms", "p50_ms", "{:.2f}"),
    Column("p99 ms", "p99_ms", "{:.2f}"),
    Column("broker's µs CPU", "broker_cpu_us", "{:.2f}"),
    Column("of Java", "of_java", "{:.2f}"),
)

TABLES: Final = (
    Table("send", "sent, 128 B", _RATES),
    Table("consume", "consumed from memory, 128 B", _RATES),
    Table(
        "memory",
        "memory of the client",
        (
            Column("messages", "messages", "{:,.0f}"),
            Column("/s", "messages_per_s", "{:,.0f}"),
            Column("MB before", "before_mb", "{:.1f}"),
            Column("most MB in the first half", "first_half_mb", "{:.1f}"),
            Column("in the second", "second_half_mb", "{:.1f}"),
            Column("MB more", "growth_mb", "{:.1f}"),
        ),
    ),
)


def _of_java(load: str, bound: float, what: str, table: str = "send") -> Goal:
    return Goal(what, Line(table, load, TRIO), "of_java", bound, "{:.2f}")


GOALS: Final = (
    _of_java("one at a time", 1.0, "no slower than the Java client"),
    _of_java("64 in flight", 1.2, "at least 1.2 of the Java client's 64 threads"),
    _of_java("pipelined", 0.6, "at least 0.6 of the Java client's async sends"),
    _of_java("batches of 32", 1.0, "at least 1.0 of the Java client's"),
    Goal(
        "at least 100,000 messages/s per core",
        Line("consume", "push", TRIO),
        "messages_per_s",
        100_000,
        "{:,.0f}/s",
    ),
    Goal(
        f"at most {MEMORY_GROWTH_MB_MAX:g} MB more in the second half",
        Line("memory", "both ways", TRIO),
        "growth_mb",
        MEMORY_GROWTH_MB_MAX,
        "{:.1f} MB",
        at_most=True,
    ),
)

_BUSY: Final = 0.95
"""A broker that uses more of its core than this may be what sets the rate."""
DISTURBED: Final = 0.1
"""When others use more than this of a core, the rate is not the client's."""


def rows_matching(texts: Sequence[str]) -> list[Row]:
    """Return the rows with any of the texts in table or name; those of a normal run if none is."""
    if not texts:
        return [row for row in ROWS if row.is_default]
    return [row for row in ROWS if any(text in f"{row.table} {row.name}" for text in texts)]


def remarks(rounds: Sequence[Outcome]) -> list[str]:
    """Return what a reader of a line should know besides its medians."""
    found = []
    if _median_of(rounds, "broker_cpu_share") > _BUSY:
        found.append("the broker had no time left")
    others = _median_of(rounds, "others_cpu_share")
    if others > DISTURBED:
        found.append(f"other processes took {others:.0%} of a core")
    return found


def _median_of(rounds: Sequence[Outcome], figure: str) -> float:
    values = [outcome.figures[figure] for outcome in rounds if figure in outcome.figures]
    return statistics.median(values) if values else 0.0


def goals_text(figures: Figures) -> tuple[str, bool]:
    """Return the goals that could be measured, and whether all of them were met."""
    rows = ["| goal | figure | |", "| --- | --- | --- |"]
    all_met = True
    for goal in GOALS:
        value = figures.median(goal.line, goal.figure)
        if value is None:
            continue
        met = goal.is_met(value)
        all_met = all_met and met
        shown = goal.form.format(value)
        verdict = "met" if met else "missed"
        rows.append(f"| {goal.line.table}, {goal.line.load}: {goal.what} | {shown} | {verdict} |")
    return "\n".join(rows) + "\n", all_met


def memory_figures(samples_mb: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Judge resident sizes, each with how many messages had been done: the first is before any.

    What grows only while buffers and caches fill is in the first half; a leak is in both.
    """
    last = samples_mb[-1][0]
    first_half = [size for done, size in samples_mb if 2 * done <= last]
    second_half = [size for done, size in samples_mb if 2 * done > last]
    return {
        "before_mb": samples_mb[0][1],
        "first_half_mb": max(first_half),
        "second_half_mb": max(second_half),
        "growth_mb": max(second_half) - max(first_half),
    }
