"""What a trial found, and the list of all trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.ha.processes.trials.ground import Place

    Run = Callable[[Place], Awaitable["Outcome"]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, in one line, and whether the promise held."""

    holds: bool
    happened: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One of them."""

    name: str
    run: Run
    is_repair: bool
    """It was broken once, and can be shown with the code of that time."""
    needs_network: bool = False
    """It wants a network of its own, so it runs in a process of its own."""


TRIALS: Final[dict[str, Trial]] = {}


def trial(
    name: str, *, is_repair: bool = False, needs_network: bool = False
) -> Callable[[Run], Run]:
    """Put a trial on the list."""

    def add(run: Run) -> Run:
        assert name not in TRIALS, name
        TRIALS[name] = Trial(name, run, is_repair, needs_network)
        return run

    return add
