"""The table of bench_fairness.py: delays beside each request, before and after. No I/O here."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.broker_load.figures import Outcome
    from benchmarks.fairness.scenario import Scenario

OURS: Final = "rmq"
BEFORE: Final = "before"
GOAL_MS: Final = 20.0
"""What a send may be delayed at the 99.9th percentile."""
_MISSING: Final = "-"


class Delays:
    """All that was measured, by scenario and checkout."""

    def __init__(self) -> None:
        self._taken: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
        self.problems: dict[tuple[str, str], str] = {}
        """Why a scenario has no figures."""

    def add(self, scenario: Scenario, who: str, outcome: Outcome) -> None:
        self._taken[scenario.name, who].append(outcome)

    def value(self, scenario: Scenario, who: str, figure: str) -> float | None:
        """Return the median of the rounds; None if there is none."""
        taken = self._taken.get((scenario.name, who))
        return statistics.median(each.figures[figure] for each in taken) if taken else None

    def worst(self, scenario: Scenario, who: str) -> float | None:
        """Return the worst delay of all rounds."""
        taken = self._taken.get((scenario.name, who))
        return max(each.figures["worst_ms"] for each in taken) if taken else None

    def failures(self, scenario: Scenario, who: str) -> set[str]:
        taken = self._taken.get((scenario.name, who), [])
        return {text for outcome in taken for text in outcome.failures}

    def as_json(self) -> dict[str, object]:
        return {
            f"{who}: {name}": [outcome.figures for outcome in taken]
            for (name, who), taken in self._taken.items()
        }


def table_text(delays: Delays, scenarios: Iterable[Scenario], who: Sequence[str]) -> str:
    """Return the table as Markdown."""
    heads = ["request"]
    for each in who:
        suffix = f", {each}" if len(who) > 1 else ""
        heads += [f"p99.9 ms{suffix}", f"worst ms{suffix}", f"answered after s{suffix}"]
    lines = [_line(heads), "|" + " --- |" * len(heads)]
    for scenario in scenarios:
        cells = [scenario.name]
        for each in who:
            cells += [
                _shown(delays.value(scenario, each, "p999_ms"), 1),
                _shown(delays.worst(scenario, each), 1),
                _shown(delays.value(scenario, each, "took_s"), 2),
            ]
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def remarks(delays: Delays, scenarios: Iterable[Scenario], who: Sequence[str]) -> list[str]:
    """Return what has to be known beside the figures."""
    found: list[str] = []
    for scenario in scenarios:
        for each in who:
            problem = delays.problems.get((scenario.name, each))
            if problem is not None:
                found.append(f"{scenario.name} ({each}): no figure: {problem}")
            found += [
                f"{scenario.name} ({each}): answered {text}"
                for text in sorted(delays.failures(scenario, each))
            ]
    return found


def missed(delays: Delays, scenarios: Iterable[Scenario]) -> list[str]:
    """Return the names of the requests of ours that delay others for too long."""
    return [
        scenario.name
        for scenario in scenarios
        if (value := delays.value(scenario, OURS, "p999_ms")) is not None and value > GOAL_MS
    ]


def _shown(value: float | None, digits: int) -> str:
    return _MISSING if value is None else f"{value:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
