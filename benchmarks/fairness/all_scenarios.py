"""All scenarios, in the order in which they are run: those that grow the state come last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.fairness import client_requests, store_requests, table_requests
from benchmarks.fairness.scenario import Scenario, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.fairness.scenario import Site


def _nothing(_: Site) -> Sequence[bytes]:
    return ()


IDLE: Final = (
    Scenario("nothing", _nothing),
    Scenario("nothing (nameserver)", _nothing, target=Target.NAMESERVER),
)
"""What a probe sees while nothing happens, for comparison."""

SCENARIOS: Final = (
    *IDLE,
    *client_requests.SCENARIOS,
    *store_requests.SCENARIOS,
    *table_requests.SCENARIOS,
)


def scenarios_matching(texts: Sequence[str]) -> list[Scenario]:
    """Return the scenarios whose names contain one of the texts; all if there are no texts."""
    return [
        scenario
        for scenario in SCENARIOS
        if not texts or any(text.lower() in scenario.name.lower() for text in texts)
    ]
