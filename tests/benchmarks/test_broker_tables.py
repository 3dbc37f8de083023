"""Medians, ratios and verdicts of the broker benchmark."""

from __future__ import annotations

import pytest

from benchmarks.broker_load.figures import Outcome, percentile
from benchmarks.broker_rows import GROUPS, ROWS, Goal, Row, rows_matching
from benchmarks.broker_tables import Results, remarks, show_goals

RATE = Goal("rate", "messages_per_s", 1.0, "{:.2f}", ratio=True)
LATENCY = Goal("latency", "p99_ms", 5.0, "{:.1f}", at_most=True)
ROW = Row("produce", "64", "produce", (), (RATE, LATENCY))


def results(ours: list[float], rival: list[float], p99_ms: float = 1.0) -> Results:
    taken = Results(["rmq", "Java"])
    for broker, rates in (("rmq", ours), ("Java", rival)):
        for rate in rates:
            taken.add(ROW, broker, Outcome({"messages_per_s": rate, "p99_ms": p99_ms}))
    return taken


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value


def test_the_ratio_is_that_of_the_medians() -> None:
    assert results([10, 120, 500], [100, 1, 900]).ratio(ROW, "messages_per_s") == 1.2


@pytest.mark.parametrize(
    ("ours", "p99_ms", "missed"),
    [
        pytest.param(100.0, 5.0, [], id="all met"),
        pytest.param(99.0, 5.0, ["rate"], id="too slow"),
        pytest.param(100.0, 5.1, ["latency"], id="too late"),
    ],
)
def test_goals_are_met_at_their_bounds(ours: float, p99_ms: float, missed: list[str]) -> None:
    assert show_goals([ROW], results([ours], [100.0], p99_ms)) == missed


def test_a_ratio_without_a_rival_is_neither_met_nor_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert show_goals([ROW], results([1.0], [])) == []
    shown = capsys.readouterr().out
    assert "latency" in shown
    assert "rate" not in shown


def test_what_makes_a_rate_doubtful_is_remarked_on() -> None:
    calm = Outcome({"load_cpu_share": 0.4, "others_cpu_share": 0.01})
    busy = Outcome({"load_cpu_share": 0.99, "others_cpu_share": 0.4}, {"code 2": 7})
    assert remarks([calm]) == []
    assert remarks([busy]) == [
        "the load generator used 99% of its core",
        "other processes took 40% of the broker's core",
        "failures: {'code 2': 7}",
    ]


def test_rows_are_chosen_by_group_or_name() -> None:
    assert rows_matching([]) == list(ROWS)
    assert {row.group for row in rows_matching(["sync"])} == {"sync"}
    assert [row.name for row in rows_matching(["64 on 16"])] == ["64 on 16 connections"]
    assert rows_matching(["no such row"]) == []


def test_every_row_has_a_name_of_its_own_and_a_group() -> None:
    names = [(row.group, row.name) for row in ROWS]
    assert len(set(names)) == len(names)
    assert {row.group for row in ROWS} == {group.name for group in GROUPS}
