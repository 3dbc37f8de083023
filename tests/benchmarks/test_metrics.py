"""The benchmark of metrics: what it takes out of rmq is there, and its tables are right."""

from __future__ import annotations

import ast

import pytest

from benchmarks.broker_load.peer import NoAnswerError
from benchmarks.metrics.crowd import SIZES, Scraped, Size, crowd_table
from benchmarks.metrics.overhead import COUNTED, SCRAPED, UNCOUNTED, Cost, dear, overhead_table
from benchmarks.metrics.scraping import lag_at, loop_lags, samples
from benchmarks.metrics.uncounted import REMOVALS, Removal, uncounted_modules, without
from tests.paths import ROOT

TEXT = """\
# HELP rocketmq_event_loop_lag_seconds How late.
rocketmq_event_loop_lag_seconds_bucket{cluster="c",le="0.01"} %d
rocketmq_event_loop_lag_seconds_bucket{cluster="c",le="+Inf"} %d
rocketmq_broker_epoch 1
"""


def test_what_is_counted_for_metrics_can_be_taken_out() -> None:
    for path, changed in uncounted_modules(ROOT).items():
        compile(changed, path, "exec")
        gone = [each.statement for each in REMOVALS if each.path == path and each.statement]
        before = ast.unparse(ast.parse((ROOT / path).read_text()))
        for statement in gone:
            assert changed.count(statement) < before.count(statement)


def test_a_statement_that_is_gone_is_named() -> None:
    source = "def f():\n    x = 1\n    g(x)\n"
    assert without(source, [Removal("m.py", "f", "g(x)")]) == "def f():\n    x = 1\n    pass\n"
    with pytest.raises(LookupError, match=r"m\.py has no statement 'h\(x\)' in f\(\)"):
        without(source, [Removal("m.py", "f", "h(x)")])


def test_lags_between_two_scrapes_are_those_that_were_noted_meanwhile() -> None:
    before, after = loop_lags(TEXT % (10, 20)), loop_lags(TEXT % (109, 120))
    assert samples(TEXT) == 3
    assert lag_at(0.99, before, after) == 0.01
    assert lag_at(0.999, before, after) == float("inf")
    with pytest.raises(NoAnswerError):
        lag_at(0.99, before, before)


def test_costs_are_compared_within_a_round() -> None:
    cost = Cost(
        {UNCOUNTED: [100.0, 50.0, 80.0], COUNTED: [99.0, 49.5, 80.0], SCRAPED: [96.0, 48.0, 80.0]},
        {UNCOUNTED: [10.0, 20.0, 10.0], COUNTED: [10.1, 20.2, 10.0], SCRAPED: [10.2, 20.4, 10.0]},
    )
    assert dear({"sends": cost}) == ["sends"]
    table = overhead_table({"sends": cost})
    assert "| sends | counted | 80 | 10.10 | 1.0% (0.5% to 1.0%) | 1.0% (0.5% to 1.0%) |" in table
    assert dear({"sends": cost._replace(rates=cost.rates | {SCRAPED: [98.0, 49.0, 80.0]})}) == []


def test_a_scrape_meets_its_goals_or_not() -> None:
    size = Size(500, 500, 10)
    found = Scraped(size, 9, 1_000, 0.3, [0.1, 0.12], 0.05, 0.01, [0.001], [0.001])
    assert found.is_met
    assert not found._replace(lag_s=0.02).is_met
    assert not found._replace(took_s=[0.21]).is_met
    assert "| 500 topics, 500 groups | 5,000 | 9 | 1 | 300 | 110, 120, 120 | 50 |" in crowd_table(
        [found]
    )
    assert [each.pairs for each in SIZES] == [500, 5_000, 250_000, 10_000]
