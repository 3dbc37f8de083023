"""The figures of bench_broker.py: medians, ratios and verdicts, as tables and as JSON."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from benchmarks.entry import commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.broker_load.figures import Outcome
    from benchmarks.broker_rows import Goal, Group, Row

OURS: Final = "rmq"
RIVAL: Final = "Java"
_BUSY: Final = 0.95
"""A load generator that uses more of its core than this may be what sets the rate."""
_DISTURBED: Final = 0.05
"""When other processes use more than this of the broker's core, the rate is not the broker's."""


class Results:
    """All figures taken so far, by row and broker."""

    def __init__(self, brokers: Sequence[str]) -> None:
        self.brokers = brokers
        self._taken: defaultdict[tuple[str, str, str], list[Outcome]] = defaultdict(list)

    def add(self, row: Row, broker: str, outcome: Outcome) -> None:
        self._taken[row.group, row.name, broker].append(outcome)

    def rounds(self, row: Row, broker: str) -> list[Outcome]:
        return self._taken.get((row.group, row.name, broker), [])

    def median(self, row: Row, broker: str, figure: str) -> float | None:
        """Return the median of the rounds; None if this broker was not measured."""
        taken = self.rounds(row, broker)
        return statistics.median(outcome.figures[figure] for outcome in taken) if taken else None

    def ratio(self, row: Row, figure: str) -> float | None:
        """Return our median by the Java broker's; None unless both were measured."""
        ours, rival = self.median(row, OURS, figure), self.median(row, RIVAL, figure)
        return None if ours is None or not rival else ours / rival

    def value(self, row: Row, goal: Goal) -> float | None:
        return self.ratio(row, goal.figure) if goal.ratio else self.median(row, OURS, goal.figure)

    def as_json(self, rows: Sequence[Row]) -> dict[str, object]:
        return {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "commit": commit(),
            "rows": [
                {
                    "group": row.group,
                    "name": row.name,
                    "rounds": {
                        broker: [
                            dataclasses.asdict(outcome) for outcome in self.rounds(row, broker)
                        ]
                        for broker in self.brokers
                    },
                    "goals": [
                        {
                            "what": goal.what,
                            "bound": goal.bound,
                            "value": (value := self.value(row, goal)),
                            "met": None if value is None else goal.is_met(value),
                        }
                        for goal in row.goals
                    ],
                }
                for row in rows
            ],
        }


def show_group(group: Group, rows: Sequence[Row], results: Results) -> None:
    """Print a group's table, and a line for whatever makes a figure doubtful."""
    with_ratio = group.has_ratio and len(results.brokers) > 1
    titles = [group.title]
    for broker in results.brokers:
        titles += [f"{broker} {column.title}" for column in group.columns]
    if with_ratio:
        titles.append(f"{OURS}/{RIVAL}")
    print(f"| {' | '.join(titles)} |")
    print(f"| {' | '.join('---' for _ in titles)} |")
    for row in rows:
        cells = [row.name]
        for broker in results.brokers:
            for column in group.columns:
                value = results.median(row, broker, column.figure)
                cells.append("" if value is None else column.form.format(value))
        if with_ratio:
            ratio = results.ratio(row, "messages_per_s")
            cells.append("" if ratio is None else f"{ratio:.2f}")
        print(f"| {' | '.join(cells)} |")
    print()
    for row in rows:
        for broker in results.brokers:
            for remark in remarks(results.rounds(row, broker)):
                print(f"{row.name}, {broker}: {remark}")
    print(flush=True)


def remarks(rounds: Sequence[Outcome]) -> list[str]:
    """Return what a reader of a row should know besides its medians."""
    found = []
    load = _median_of(rounds, "load_cpu_share")
    if load > _BUSY:
        found.append(f"the load generator used {load:.0%} of its core")
    others = _median_of(rounds, "others_cpu_share")
    if others > _DISTURBED:
        found.append(f"other processes took {others:.0%} of the broker's core")
    found += [f"failures: {outcome.failures}" for outcome in rounds if outcome.failures]
    return found


def _median_of(rounds: Sequence[Outcome], figure: str) -> float:
    values = [outcome.figures[figure] for outcome in rounds if figure in outcome.figures]
    return statistics.median(values) if values else 0.0


def show_goals(rows: Sequence[Row], results: Results) -> list[str]:
    """Print the goals that could be measured; return those that were missed."""
    missed = []
    print("| goal | figure | |\n| --- | --- | --- |")
    for row in rows:
        for goal in row.goals:
            value = results.value(row, goal)
            if value is None:
                continue
            met = goal.is_met(value)
            if not met:
                missed.append(goal.what)
            verdict = "met" if met else "missed"
            what = f"{row.group}, {row.name}: {goal.what}"
            print(f"| {what} | {goal.form.format(value)} | {verdict} |")
    return missed
