"""Unit tests for promtool, made of a healthy world and its faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from tests.ops.alert_world import Series, healthy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.ops.alert_case import Case
    from tests.ops.alert_world import Value

FAULT_MIN: Final = 12
"""The minute in which a fault begins; before it all is well for longer than most windows."""
_STEP_S: Final = 60


class Trial(NamedTuple):
    """What is tried: a case, how long its alert waits, and the metrics that it asks for."""

    case: Case
    for_s: int
    metrics: set[str]


@dataclass(frozen=True)
class Times:
    """Minutes of a case."""

    quiet: int
    """Still too early."""
    fires: int
    over: int
    """The fault is over."""
    clear: int

    @classmethod
    def of(cls, trial: Trial) -> Times:
        # One minute more at each end: a rule sees what another one has recorded in the next.
        held = -(-trial.for_s // _STEP_S)
        fires = FAULT_MIN + trial.case.delay_min + held + 1
        quiet = FAULT_MIN + held - 1
        return cls(quiet, fires, fires + 1, fires + trial.case.clears_min + 2)


def _packed(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Put trials together that have no metric in common: they are tried out at once."""
    packs: list[list[Trial]] = []
    for trial in trials:
        for pack in packs:
            if not any(trial.metrics & other.metrics for other in pack):
                pack.append(trial)
                break
        else:
            packs.append([trial])
    return packs


def _unit_test(pack: Sequence[Trial]) -> dict[str, Any]:
    """Return a test: each alert is quiet at first, fires in time, and clears again."""
    length = 1 + max(Times.of(trial).clear for trial in pack)
    return {
        "name": ", ".join(trial.case.alert for trial in pack),
        "interval": f"{_STEP_S}s",
        "input_series": [row for trial in pack for row in _rows(trial, length)],
        "promql_expr_test": [check for trial in pack for check in _checks(trial)],
    }


def _rows(trial: Trial, length: int) -> Iterator[dict[str, str]]:
    case, over = trial.case, Times.of(trial).over
    world = {each: value for each, value in healthy().items() if each.name in trial.metrics}
    for each, value in {**dict.fromkeys(case.fault), **world}.items():
        fault = case.fault.get(each, value)
        after = fault if case.kept and value is None else value
        yield _row(each, (value, FAULT_MIN), (fault, over - FAULT_MIN), (after, length - over))


def _checks(trial: Trial) -> Iterator[dict[str, object]]:
    case, times = trial.case, Times.of(trial)
    wanted = ", ".join(f'{name}="{value}"' for name, value in case.labels.items())
    fired = {"labels": f"{{{wanted}}}", "value": 1}
    alerts = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}'
    query = f"group by ({', '.join(case.labels)}) ({alerts})"
    yield _expect(query, times.quiet, [])
    yield _expect(query, times.fires, [fired])
    yield _expect(query, times.clear, [])


def _healthy_test(metrics: set[str]) -> dict[str, Any]:
    """Return a test: nothing fires, nothing is about to."""
    length = 40
    world = {each: value for each, value in healthy().items() if each.name in metrics}
    return {
        "name": "healthy",
        "interval": f"{_STEP_S}s",
        "input_series": [_row(each, (value, length)) for each, value in world.items()],
        "promql_expr_test": [_expect("ALERTS", minute, []) for minute in (1, 10, 30, 39)],
    }


def _expect(query: str, minute: int, samples: list[dict[str, object]]) -> dict[str, object]:
    return {"expr": query, "eval_time": f"{minute}m", "exp_samples": samples}


def _row(which: Series, *phases: tuple[Value, int]) -> dict[str, str]:
    track = _Track()
    values = [track.step(value) for value, minutes in phases for _ in range(minutes)]
    return {"series": str(which), "values": " ".join(values)}


@final
class _Track:
    """What a series is in the minutes of a test, one after the other."""

    def __init__(self) -> None:
        self._minute = 0
        self._last = 0.0
        self._is_there = False

    def step(self, value: Value) -> str:
        now = self._minute * _STEP_S
        self._minute += 1
        if value is None:
            was_there, self._is_there = self._is_there, False
            return "stale" if was_there else "_"
        self._is_there = True
        if value == "now":
            self._last = now
        elif isinstance(value, str):
            self._last += float(value)
        else:
            self._last = value
        return f"{self._last:.10g}"


def unit_tests(trials: Sequence[Trial], rule_files: list[str]) -> dict[str, Any]:
    """Return a file for `promtool test rules`."""
    metrics = set().union(*(trial.metrics for trial in trials))
    return {
        "rule_files": rule_files,
        "evaluation_interval": f"{_STEP_S}s",
        "tests": [_healthy_test(metrics), *map(_unit_test, _packed(trials))],
    }
