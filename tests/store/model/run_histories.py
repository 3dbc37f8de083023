"""Runs many histories and says in one line how it went.

    python -m tests.store.model.run_histories [--histories N] [--seed S] [--steps K]

Nine of ten are histories of a store, one of a slave. They come in rows of a hundred, each with a
seed of its own that follows from S and the number of the row; a failing one is shrunk, printed, and
repeated with `--seed S --start ROW --histories 1`. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.store.model.machine import StoreMachine
from tests.store.model.slave_machine import SlaveMachine
from tests.store.model.subject import Subject

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

HISTORIES: Final = 10_000
SEED: Final = 4
STEPS: Final = 30
ROW: Final = 100
"""So many histories are drawn with one seed."""
SLAVE_EVERY: Final = 10
"""Each such row is of a slave."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that went wrong."""

    row: int
    error: BaseException

    def __str__(self) -> str:
        history = "\n".join(getattr(self.error, "__notes__", ()))
        where = "".join(traceback.format_tb(self.error.__traceback__)[-6:])
        return f"row {self.row}:\n{where}{type(self.error).__name__}: {self.error}\n{history}"


def run_row(
    machine: type[RuleBasedStateMachine], row_seed: int, histories: int, *, steps: int = STEPS
) -> None:
    """Run histories of one seed; raises what the first failing one does, shrunk."""

    class Row(machine):  # type: ignore[misc, valid-type]  # a base that is an argument
        """A class of its own, for the seed is kept in it."""

    seed(row_seed)(Row)
    run_state_machine_as_test(
        Row,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            print_blob=False,
            # Histories are long by nature, and the machine may be busy.
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_histories(
    histories: int, first_seed: int, *, start: int = 0, steps: int = STEPS
) -> Failure | None:
    """Run rows until there are enough histories, or one that fails."""
    row = start
    while histories > 0:
        machine = SlaveMachine if row % SLAVE_EVERY == SLAVE_EVERY - 1 else StoreMachine
        try:
            run_row(machine, first_seed * 1_000_003 + row, min(histories, ROW), steps=steps)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is what we look for
            return Failure(row, exc)
        histories -= ROW
        row += 1
    return None


@contextmanager
def silence() -> Iterator[None]:
    """Keep the log quiet: a store has much to say about all that happens here."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)


def summary(tally: Counter[str], seconds: float, first_seed: int) -> str:
    named = (
        "steps",
        "the power is cut",
        "the process is killed",
        "clean stops",
        "calls failed",
        "recovery points",
        "segments expired",
        "pieces shipped",
        "records lost",
        "records torn",
    )
    interrupted = sum(count for name, count in tally.items() if "interrupted" in name)
    figures = ", ".join(f"{name}: {tally[name]}" for name in named)
    return (
        f"{tally['histories']} histories, {figures}, interrupted on the way: {interrupted},"
        f" messages: {tally['appends: PUT_OK']}, {tally['histories'] / max(seconds, 1e-9):.0f}/s,"
        f" seed {first_seed}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--start", type=int, default=0, help="the row to begin with")
    parser.add_argument("--steps", type=int, default=STEPS, help="most steps of a history")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with silence():
        failure = run_histories(
            options.histories, options.seed, start=options.start, steps=options.steps
        )
    sys.stdout.write(summary(Subject.tally, time.monotonic() - began, options.seed) + "\n")
    if failure is not None:
        sys.stdout.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
