"""What bench_ha.py shows: its tables, their lines and columns, and the goals. No I/O here."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broker_rows import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.broker_load.figures import Outcome

IN_FLIGHT: Final = (1, 64, 1_000)
PACE_PER_S: Final = 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """What is measured: a load, and who has to bear it."""

    table: str
    load: str
    who: str


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    title: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure of one line."""

    what: str
    line: Line
    figure: str
    bound: float
    form: str
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


MEMORY: Final = "from memory"
DISK: Final = "from disk"
STOCK: Final = "bare follower, stock dialect"
NATIVE: Final = "bare follower, native dialect"
SLAVE: Final = "slave"
PLAIN: Final = "plain copy, forgotten"
PLAIN_FILE: Final = "plain copy, written to a file"
JAVA_STOCK: Final = "Java master, bare follower"

ALONE: Final = "rmq, async, no slave"
ASYNC_PAIR: Final = "rmq, async"
SYNC_PAIR: Final = "rmq, sync"
BEFORE_ASYNC: Final = "rmq before, async"
BEFORE_SYNC: Final = "rmq before, sync"
JAVA_ASYNC: Final = "Java, async"
JAVA_SYNC: Final = "Java, sync"

PACED: Final = f"{PACE_PER_S:,} messages/s"

TABLES: Final = (
    Table(
        "stream",
        "stream of the log",
        (
            Column("GB/s", "gb_per_s", "{:.2f}"),
            Column("of the plain copy", "of_plain", "{:.0%}"),
            Column("sender's CPU s/GiB", "cpu_s_per_gib", "{:.2f}"),
            Column("receiver's", "slave_cpu_s_per_gib", "{:.2f}"),
        ),
    ),
    Table(
        "send",
        "sent under way, 128 B, one connection",
        (
            Column("/s", "messages_per_s", "{:,.0f}"),
            Column("p50 ms", "p50_ms", "{:.2f}"),
            Column("p99 ms", "p99_ms", "{:.2f}"),
            Column("master µs CPU", "cpu_us", "{:.2f}"),
            Column("slave µs CPU", "slave_cpu_us", "{:.2f}"),
            Column("of async", "of_async", "{:.2f}"),
            Column("of Java", "of_java", "{:.2f}"),
            Column("of before", "of_before", "{:.3f}"),
            Column("master CPU of before", "cpu_of_before", "{:.3f}"),
        ),
    ),
    Table(
        "cost",
        "cost of a slave at an even pace",
        (
            Column("/s", "messages_per_s", "{:,.0f}"),
            Column("master µs CPU", "cpu_us", "{:.2f}"),
            Column("more than without slave", "over_alone", "{:.0%}"),
            Column("slave µs CPU", "slave_cpu_us", "{:.2f}"),
        ),
    ),
    Table(
        "lag",
        "how far the slave is behind",
        (
            Column("/s", "messages_per_s", "{:,.0f}"),
            Column("median bytes", "lag_p50_bytes", "{:,.0f}"),
            Column("most bytes", "lag_max_bytes", "{:,.0f}"),
            Column("p99 ms, as the master says", "lag_p99_ms", "{:.0f}"),
            Column("most ms", "lag_max_ms", "{:.0f}"),
            Column("ms from SEND_OK until readable on the slave, p50", "readable_p50_ms", "{:.2f}"),
            Column("p99", "readable_p99_ms", "{:.2f}"),
            Column("most", "readable_max_ms", "{:.1f}"),
        ),
    ),
)


def _goals() -> tuple[Goal, ...]:
    goals = []
    for who in (NATIVE, STOCK):
        line = Line("stream", MEMORY, who)
        goals += [
            Goal("at least 80 % of the plain copy", line, "of_plain", 0.8, "{:.0%}"),
            Goal("at least 1.0 GB/s", line, "gb_per_s", 1.0, "{:.2f} GB/s"),
        ]
    line = Line("stream", DISK, NATIVE)
    goals.append(Goal("at least 80 % of the plain copy", line, "of_plain", 0.8, "{:.0%}"))
    for in_flight in IN_FLIGHT:
        line = Line("send", f"{in_flight:,}", SYNC_PAIR)
        if in_flight >= 64:
            goals.append(Goal("at least 0.8 of async", line, "of_async", 0.8, "{:.2f}"))
        goals.append(Goal("at least 1.0 of Java's sync rate", line, "of_java", 1.0, "{:.2f}"))
    cost = Line("cost", PACED, ASYNC_PAIR)
    goals.append(
        Goal("a slave costs less than 15 %", cost, "over_alone", 0.15, "{:.0%}", at_most=True)
    )
    lag = Line("lag", PACED, ASYNC_PAIR)
    goals += [
        Goal("p99 below 50 ms", lag, "lag_p99_ms", 50, "{:.0f} ms", at_most=True),
        Goal("readable p99 below 50 ms", lag, "readable_p99_ms", 50, "{:.1f} ms", at_most=True),
    ]
    return tuple(goals)


GOALS: Final = _goals()


class Figures:
    """All that was measured, in the order of its first measurement."""

    def __init__(self) -> None:
        self._taken: defaultdict[Line, list[Outcome]] = defaultdict(list)

    def add(self, line: Line, outcome: Outcome) -> None:
        self._taken[line].append(outcome)

    def lines(self, table: str) -> list[Line]:
        return [line for line in self._taken if line.table == table]

    def rounds(self, line: Line) -> Sequence[Outcome]:
        return self._taken.get(line, [])

    def median(self, line: Line, figure: str) -> float | None:
        """Return the median of the rounds; None if there is no such figure."""
        values = [
            outcome.figures[figure] for outcome in self.rounds(line) if figure in outcome.figures
        ]
        return statistics.median(values) if values else None

    def as_json(self) -> list[dict[str, object]]:
        return [
            {
                "table": line.table,
                "load": line.load,
                "who": line.who,
                "rounds": [
                    {"figures": outcome.figures, "failures": outcome.failures}
                    for outcome in outcomes
                ],
            }
            for line, outcomes in self._taken.items()
        ]


def table_text(table: Table, figures: Figures) -> str:
    """Return a table as README.md has it, and below it what was answered other than success."""
    lines = figures.lines(table.name)
    columns = [
        column
        for column in table.columns
        if any(figures.median(line, column.figure) is not None for line in lines)
    ]
    rows = [_row([table.title, "", *(column.title for column in columns)])]
    rows.append(_row(["---"] * (len(columns) + 2)))
    for line in lines:
        cells = [line.load, line.who]
        for column in columns:
            value = figures.median(line, column.figure)
            cells.append("" if value is None else column.form.format(value))
        rows.append(_row(cells))
    for line in lines:
        rows += [
            f"{line.load}, {line.who}: failures: {outcome.failures}"
            for outcome in figures.rounds(line)
            if outcome.failures
        ]
    return "\n".join(rows) + "\n"


def goals_text(figures: Figures) -> tuple[str, bool]:
    """Return the goals that could be measured, and whether all of them were met."""
    rows = [_row(["goal", "figure", ""]), _row(["---"] * 3)]
    all_met = True
    for goal in GOALS:
        value = figures.median(goal.line, goal.figure)
        if value is None:
            continue
        met = goal.is_met(value)
        all_met = all_met and met
        what = f"{goal.line.table}, {goal.line.load}, {goal.line.who}: {goal.what}"
        rows.append(_row([what, goal.form.format(value), "met" if met else "missed"]))
    return "\n".join(rows) + "\n", all_met


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
