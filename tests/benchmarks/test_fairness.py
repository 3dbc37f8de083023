"""Scenarios of the fairness benchmark are well-formed, and its table says what was measured."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from benchmarks.broker_load.figures import Outcome
from benchmarks.fairness.acl_cost import OFF, ON, report
from benchmarks.fairness.all_scenarios import SCENARIOS, scenarios_matching
from benchmarks.fairness.floods import Flooded, floods_text
from benchmarks.fairness.rows import BEFORE, OURS, Delays, missed, remarks, table_text
from benchmarks.fairness.scenario import QUICK, Scenario, Target
from rmq.remoting.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW = Scenario("slow", lambda _: ())
FAST = Scenario("fast", lambda _: ())


class NoServers:
    """A site for builders: it notes what would be asked."""

    size = QUICK
    is_quick = True

    def __init__(self) -> None:
        self.asked = 0
        self._numbers = itertools.count()

    def fresh(self, stem: str) -> str:
        return f"{stem}{next(self._numbers)}"

    def ask(self, frames: Sequence[bytes], target: Target = Target.BROKER) -> list[bytes]:
        self.asked += len(frames)
        return [b""] * len(frames)


def outcome(worst_ms: float, p999_ms: float) -> Outcome:
    return Outcome({"worst_ms": worst_ms, "p999_ms": p999_ms, "p50_ms": 0.3, "took_s": 0.01})


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])
def test_every_scenario_builds_whole_frames(scenario: Scenario) -> None:
    frames = scenario.build(NoServers())
    decoder = FrameDecoder()
    for data in frames:
        decoder.feed(data)
    assert len(decoder.take(len(frames) + 1)) == len(frames)
    assert decoder.error is None


def test_scenarios_have_names_of_their_own_and_are_chosen_by_them() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert scenarios_matching([]) == list(SCENARIOS)
    assert {each.name[:3] for each in scenarios_matching(["215"])} == {"215"}
    assert scenarios_matching(["no such request"]) == []


def test_the_table_has_the_median_of_the_rounds_and_the_worst_of_all() -> None:
    delays = Delays()
    for worst_ms, p999_ms in ((100.0, 21.0), (5.0, 2.0), (6.0, 3.0)):
        delays.add(SLOW, BEFORE, outcome(worst_ms, p999_ms))
    delays.add(SLOW, OURS, outcome(4.0, 1.5))
    assert "| slow | 3.0 | 100.0 | 0.01 | 1.5 | 4.0 | 0.01 |" in table_text(
        delays, [SLOW, FAST], [BEFORE, OURS]
    )
    assert "| fast | - | - | - | - | - | - |" in table_text(delays, [SLOW, FAST], [BEFORE, OURS])


def test_only_delays_of_this_checkout_beyond_the_goal_are_missed() -> None:
    delays = Delays()
    delays.add(SLOW, BEFORE, outcome(2_000.0, 1_500.0))
    delays.add(SLOW, OURS, outcome(90.0, 20.0))
    delays.add(FAST, OURS, outcome(90.0, 20.1))
    assert missed(delays, [SLOW, FAST]) == ["fast"]


def test_refusals_and_missing_figures_are_told() -> None:
    delays = Delays()
    delays.add(SLOW, OURS, Outcome({"worst_ms": 1.0}, {'{"code":1 no': 2}))
    delays.problems["fast", OURS] = "the server hung up"
    assert remarks(delays, [SLOW, FAST], [OURS]) == [
        'slow (rmq): answered {"code":1 no',
        "fast (rmq): no figure: the server hung up",
    ]


@pytest.mark.parametrize(("cost_us", "is_met"), [(22.0, True), (22.1, False)])
def test_access_control_may_cost_a_tenth_of_a_send(cost_us: float, is_met: bool) -> None:
    rates = {"messages_per_s": 40_000.0}
    ours = {OFF: [{**rates, "cpu_us": 20.0}], ON: [{**rates, "cpu_us": cost_us}]}
    stock = {OFF: [{**rates, "cpu_us": 10.0}], ON: [{**rates, "cpu_us": 15.0}]}
    text, met = report({"rmq": ours, "Java": stock})
    assert met is is_met
    assert f"| rmq, ACL on | 40,000 | {cost_us:.1f} |" in text
    assert "Java: ACL costs 50.0% of a send" in text


def flooded(**figures: float) -> Flooded:
    known = dict.fromkeys(("flood_p99_s", "probe_p50_s", "probe_p99_s", "probe_worst_s"), 0.5)
    return Flooded(
        name="a flood",
        accepted=1_200,
        refused=3,
        probes=40,
        probes_refused=1,
        cpu_s=1.5,
        memory_mb=(40.0, 90.0, 80.0),
        **{**known, "after_p99_s": 0.001, **figures},
    )


def test_accepted_work_may_take_three_seconds_beside_a_flood_and_after_it() -> None:
    assert flooded().is_met
    assert flooded(probe_p99_s=3.0, flood_p99_s=3.0).is_met
    for late in ("flood_p99_s", "probe_p99_s", "after_p99_s"):
        assert not flooded(**{late: 3.01}).is_met
    (*_, row) = floods_text([flooded()]).splitlines()
    assert row == (
        "| a flood | 1,200 | 3 | 0.50 | 40 (1) | 500.0 | 500.0 | 500.0 | 1.0 | 1.5 | 40, 90, 80 |"
    )
