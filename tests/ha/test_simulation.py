"""The simulator: seeds that break no rule, and planted bugs that it must find.

Few seeds run here. Many more are run with
python -m tests.ha.simulation.run --seeds 100000 --jobs 2.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.ha.simulation.planted import BUGS, TRIED_MAX, planted
from tests.ha.simulation.world import explain, simulate

if TYPE_CHECKING:
    from tests.ha.simulation.planted import Planted
    from tests.ha.simulation.world import Result

SEEDS: Final = 2000
"""More than most planted bugs need to be found (planted.py)."""
BATCH: Final = 100
"""Seeds that run as one test."""

OFTEN: Final = (
    "fault: cut",
    "fault: half-open",
    "fault: partition",
    "fault: one-way partition",
    "fault: delay",
    "fault: reconnection",
    "fault: kill of a slave",
    "fault: kill of a master",
    "fault: power cut of a slave",
    "fault: power cut of a master",
    "fault: pause",
    "fault: stuck slave",
    "fault: disk full",
    "fault: wiped disk",
    "fault: mode switch",
    "fault: other rules",
    "fault: retention",
    "fault: forgery",
    "fault: stranger",
    "fault: hand-over",
    "fault: fail-over",
    "fault: promotion",
    "fault: demotion",
    "fault: demotion by force",
    "fault: promotion after a demotion",
    "fault: hang and promotion",
    "fault: promotion beside a hung master",
    "promotions overtaken",
    "fault: slave pointed",
    "fault: degraded master",
    "fault: nameserver cut off",
    "fault: nameserver down",
    "fault: nameserver wiped",
    "fault: resync",
    "re-seeds",
    "promotions",
    "promotions refused",
    "sends acknowledged, sync",
    "sends acknowledged, async",
    "sends timed out",
    "sends not available",
    "sends refused",
)
"""What the seeds of a test run live through, each many times."""


@cache
def lived_through(first: int) -> tuple[Result, ...]:
    """What became of the seeds of a batch. Each is the same every time."""
    return tuple(simulate(seed) for seed in range(first, first + BATCH))


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_no_rule_is_broken(first: int) -> None:
    for result in lived_through(first):
        if result.broken is not None:
            pytest.fail(explain(result), pytrace=False)


@pytest.mark.parametrize(
    "seed",
    [
        18138,
        27319,
        29823,
        31169,
        31283,
        31370,
        40552,
        47436,
        48904,
        50246,
        53155,
        58687,
        91081,
        96456,
        98557,
        158611,
        171428,
        231168,
        243039,
        13639,
        47092,
    ],
)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    result = simulate(seed)
    if result.broken is not None:
        pytest.fail(explain(result), pytrace=False)


def test_everything_that_can_go_wrong_does() -> None:
    counts: Counter[str] = Counter()
    for first in range(0, 5 * BATCH, BATCH):
        for result in lived_through(first):
            counts += result.counts
    assert [what for what in OFTEN if counts[what] < 5] == []


def test_a_seed_runs_the_same_way_every_time() -> None:
    one, other = (simulate(7, is_traced=True) for _ in range(2))
    assert one == other
    assert len(one.trace) > 10


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in BUGS])
def test_a_planted_bug_is_found(bug: Planted) -> None:
    with planted(bug):
        for seed in bug.seeds():
            result = simulate(seed)
            if result.broken is not None:
                assert result.broken.rule in bug.found_by, explain(result)
                return
    pytest.fail(
        f"neither seed {bug.likely_seed} nor the first {TRIED_MAX} find it any more; search with"
        f" python -m tests.ha.simulation.run --planted '{bug.name}' --seeds {bug.seeds_max}"
    )


def test_a_broken_rule_is_explained_so_that_it_can_be_seen_again() -> None:
    bug = BUGS[0]
    with planted(bug):
        result = next(r for r in map(simulate, bug.seeds()) if r.broken is not None)
        text = explain(result)
    assert f"--first {result.seed} --seeds 1 --trace" in text
    assert bug.found_by[0].value in text
    assert "n1[0..0] dials n0" in text
