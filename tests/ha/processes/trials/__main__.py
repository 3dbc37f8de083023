"""What was broken once, and states that no operator wants: brought about with real processes.

    python -m tests.ha.processes.trials                           all of them
    python -m tests.ha.processes.trials --code FOLDER --repairs   what was broken once, as it was
    python -m tests.ha.processes.trials B4 slow-link              some of them

Each trial starts nameservers and brokers of its own, does the harm, looks at what became of it with
the commands that an operator has, and prints one line. With `--code` the processes run the code of
another checkout (`git worktree add FOLDER COMMIT`), so that the same script shows what an earlier
version did. The exit code is 1 if anything is broken.
"""

# ruff: noqa: T201 - standard output is what it is for

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import RmqError
from tests.ha.processes.network import build_network
from tests.ha.processes.surroundings import NotAllowedError
from tests.ha.processes.trials import (
    copies,
    disks,
    doubles,
    epochs,
    forgeries,
    hangs,
    listings,
    nameservers,
    promotions,
    replicated,
    slow_links,
    tables,
)
from tests.ha.processes.trials.ground import Place
from tests.ha.processes.trials.outcome import TRIALS, Outcome, Trial
from tests.ha.processes.trials.programs import TODAY

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIAL_S: Final = 180.0
_ALL: Final = (
    promotions,
    forgeries,
    hangs,
    replicated,
    slow_links,
    listings,
    disks,
    doubles,
    copies,
    epochs,
    tables,
    nameservers,
)
"""The modules that have trials; they put them on the list."""


async def run(trial: Trial, code: Path, is_verbose: bool) -> Outcome | None:
    """Run one trial; None if it cannot be run here."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        try:
            with trio.fail_after(TRIAL_S):
                network = build_network() if trial.needs_network else None
                return await trial.run(Place(code, Path(folder), network))
        except (
            ExceptionGroup,
            AssertionError,
            trio.TooSlowError,
            RmqError,
            NotAllowedError,
        ) as exc:
            if is_verbose:
                traceback.print_exception(exc)
            cause = _first(exc)
            if isinstance(cause, NotAllowedError):
                print(f"{trial.name}: not run: {cause}", flush=True)
                return None
            text = " ".join((str(cause) or type(cause).__name__).split())
            return Outcome(False, f"went otherwise than it should: {text[:600]}")


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def show(trial: Trial, code: Path, is_verbose: bool) -> bool:
    """Run one trial and print its line; tell whether it held, or could not be run here."""
    started = time.monotonic()
    outcome = await run(trial, code, is_verbose)
    if outcome is None:
        return True
    verdict = "holds" if outcome.holds else "BROKEN"
    took_s = time.monotonic() - started
    print(f"{trial.name}: {verdict}: {outcome.happened} [{took_s:.0f} s]", flush=True)
    return outcome.holds


async def show_apart(trial: Trial, code: Path, is_verbose: bool) -> bool:
    """Do so in a process of its own."""
    command = [sys.executable, "-m", "tests.ha.processes.trials", "--apart", "--code", str(code)]
    options = ["--verbose"] if is_verbose else []
    done = await trio.run_process([*command, *options, trial.name], check=False)
    return not done.returncode


async def show_all(chosen: Sequence[Trial], code: Path, jobs: int, is_verbose: bool) -> list[str]:
    """Run some of them at a time; return the names of those that are broken."""
    broken: list[str] = []
    left = iter(chosen)

    async def work() -> None:
        for trial in left:
            how = show_apart if trial.needs_network else show
            if not await how(trial, code, is_verbose):
                broken.append(trial.name)

    async with trio.open_nursery() as nursery:
        for _ in range(jobs):
            nursery.start_soon(work)
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.ha.processes.trials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--code", type=Path, default=TODAY, help="the checkout to run")
    parser.add_argument("--repairs", action="store_true", help="only what was broken once")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--verbose", action="store_true", help="show where a trial failed")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRIALS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in TRIALS]
    if unknown:
        parser.error(f"no such trial: {', '.join(unknown)}")
    code, is_verbose = arguments.code.resolve(), arguments.verbose
    if arguments.apart:
        return 0 if trio.run(show, TRIALS[arguments.names[0]], code, is_verbose) else 1
    order = [module.__name__ for module in _ALL]
    chosen = [
        trial
        for name, trial in TRIALS.items()
        if (not arguments.names or name in arguments.names)
        and (trial.is_repair or not arguments.repairs)
    ]
    chosen.sort(key=lambda trial: order.index(trial.run.__module__))
    broken = trio.run(show_all, chosen, code, arguments.jobs, is_verbose)
    print(f"{len(chosen)} trials, {len(broken)} broken{': ' if broken else ''}{', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
