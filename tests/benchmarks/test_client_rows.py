"""Medians, ratios and verdicts of the client benchmark."""

from __future__ import annotations

import pytest

from benchmarks.broker_load.figures import Outcome
from benchmarks.client_rows import (
    GOALS,
    MEMORY_GROWTH_MB_MAX,
    ROWS,
    TABLES,
    TRIO,
    goals_text,
    memory_figures,
    remarks,
    rows_matching,
)
from benchmarks.ha_rows import Figures, Line, table_text


def taken(load: str, figure: str, *values: float, table: str = "send") -> Figures:
    figures = Figures()
    for value in values:
        figures.add(Line(table, load, TRIO), Outcome({figure: value}))
    return figures


def test_rows_are_chosen_by_table_or_name() -> None:
    assert [row.name for row in rows_matching(["64 in"])] == ["64 in flight"]
    assert {row.table for row in rows_matching(["consume"])} == {"consume"}
    assert rows_matching(["no such row"]) == []


def test_memory_is_watched_only_when_asked_for() -> None:
    assert {row.table for row in rows_matching([])} == {"send", "consume"}
    assert [row.work for row in rows_matching(["memory"])] == ["memory"]


def test_every_row_has_a_name_of_its_own_and_a_table() -> None:
    names = [(row.table, row.name) for row in ROWS]
    assert len(set(names)) == len(names)
    assert {row.table for row in ROWS} == {table.name for table in TABLES}


def test_every_goal_is_on_a_line_that_is_measured_and_shown() -> None:
    lines = {Line(row.table, row.name, who) for row in ROWS for who in row.who}
    for goal in GOALS:
        assert goal.line in lines
        (table,) = [table for table in TABLES if table.name == goal.line.table]
        assert goal.figure in {column.figure for column in table.columns}


@pytest.mark.parametrize(
    ("rounds", "verdict", "all_met"),
    [
        pytest.param((1.2,), "1.20 | met", True, id="at its bound"),
        pytest.param((0.1, 1.3, 1.3), "1.30 | met", True, id="the median counts"),
        pytest.param((1.19,), "1.19 | missed", False, id="below"),
    ],
)
def test_goals_are_met_at_their_bounds(
    rounds: tuple[float, ...], verdict: str, all_met: bool
) -> None:
    text, met = goals_text(taken("64 in flight", "of_java", *rounds))
    assert verdict in text
    assert met is all_met


def test_a_goal_that_was_not_measured_is_neither_met_nor_missed() -> None:
    text, met = goals_text(Figures())
    assert text.count("\n") == 2
    assert met


def test_columns_that_nobody_has_are_left_out() -> None:
    text = table_text(TABLES[0], taken("pipelined", "messages_per_s", 50_000.0))
    assert "| sent, 128 B |  | /s |\n" in text
    assert "| pipelined | rmq | 50,000 |" in text


def test_what_makes_a_rate_doubtful_is_remarked_on() -> None:
    def rounds(*shares: tuple[float, float]) -> list[Outcome]:
        return [
            Outcome({"broker_cpu_share": broker, "others_cpu_share": others})
            for broker, others in shares
        ]

    assert remarks(rounds((0.5, 0.0), (0.99, 0.9), (0.6, 0.05))) == []
    assert remarks(rounds((0.5, 0.4), (0.99, 0.4), (0.97, 0.0))) == [
        "the broker had no time left",
        "other processes took 40% of a core",
    ]
    assert remarks([]) == []


def test_memory_that_only_fills_its_buffers_is_flat() -> None:
    samples = [(0, 30.0), (100, 50.0), (500, 52.0), (600, 52.0), (1_000, 52.5)]
    figures = memory_figures(samples)
    assert figures["before_mb"] == 30.0
    assert figures["first_half_mb"] == 52.0
    assert figures["growth_mb"] == 0.5


def test_memory_that_leaks_is_not() -> None:
    samples = [(done, 30.0 + done / 10) for done in range(1_001)]
    assert memory_figures(samples)["growth_mb"] > MEMORY_GROWTH_MB_MAX
