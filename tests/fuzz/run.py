"""Feeds damaged inputs to all that reads bytes of others, and reports what should not happen.

    python -m tests.fuzz.run [--inputs N] [--jobs J] [--only ha,store] [--first I] [--seed S]

The inputs are shared out: most of them go to the targets that take thousands in a second. Targets
are `remoting` (frames), `ha` (the replication link), `sql` (filters), `access` (files of access
control), `tables` (files of a broker's tables) and `store` (files of a store). Each finding comes
with the command that repeats it; the exit code is 1 if there are any. `--first` goes on where
another run ended.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from tests.fuzz import fuzz_access, fuzz_ha, fuzz_remoting, fuzz_sql, fuzz_store, fuzz_tables
from tests.fuzz.inputs import SEED, Tally, examine_inputs, repeat_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Target = Callable[[int, int, int], Tally]
    """Examines so many inputs from a number on, with a seed."""

INPUTS: Final = 1_000_000
SHARES: Final = {"remoting": 33, "ha": 25, "sql": 9, "access": 22, "tables": 10, "store": 1}
"""In percent."""
_PART_INPUTS: Final = 20_000
"""How many inputs are examined between two lines of progress; a process takes so many at once."""


def _remoting(inputs: int, first: int, seed: int) -> Tally:
    report = fuzz_remoting.fuzz(frames=inputs, start=first, seed=seed)
    outcomes = Counter({"decoded": report.decoded, "refused": report.refused})
    tally = Tally("remoting", seed, report.frames, report.seconds, outcomes)
    tally.counts = report.counts
    tally.findings = [
        f"remoting: {finding}\n  {_repeat_remoting(finding, first, inputs, seed)}"
        for finding in report.findings
    ]
    return tally


def _repeat_remoting(finding: str, first: int, inputs: int, seed: int) -> str:
    _, mark, behind = finding.partition(f"seed {seed}, number ")
    if mark:
        return repeat_command("remoting", int(behind.partition(",")[0]), seed)
    # It is about memory, and takes all frames of the part.
    return f"python -m tests.fuzz.fuzz_remoting --frames {inputs} --start {first} --seed {seed}"


def _access(inputs: int, first: int, seed: int) -> Tally:
    return examine_inputs("access", fuzz_access.examine_one, inputs, first=first, seed=seed)


def _ha(inputs: int, first: int, seed: int) -> Tally:
    return examine_inputs("ha", fuzz_ha.examine, inputs, first=first, seed=seed)


def _sql(inputs: int, first: int, seed: int) -> Tally:
    return examine_inputs("sql", fuzz_sql.examine, inputs, first=first, seed=seed)


def _store(inputs: int, first: int, seed: int) -> Tally:
    with fuzz_store.examiner() as examine:
        return examine_inputs("store", examine, inputs, first=first, seed=seed)


def _tables(inputs: int, first: int, seed: int) -> Tally:
    with fuzz_tables.examiner() as examine:
        return examine_inputs("tables", examine, inputs, first=first, seed=seed)


TARGETS: Final[dict[str, Target]] = {
    "remoting": _remoting,
    "ha": _ha,
    "sql": _sql,
    "access": _access,
    "tables": _tables,
    "store": _store,
}


def shared_out(inputs: int, names: Sequence[str]) -> dict[str, int]:
    """Return how many of the inputs each target gets: by its share, all of them together."""
    total = sum(SHARES[name] for name in names)
    parts = {name: inputs * SHARES[name] // total for name in names}
    parts[names[0]] += inputs - sum(parts.values())
    return parts


def run(
    inputs: int,
    *,
    only: Sequence[str] = tuple(TARGETS),
    first: int = 0,
    seed: int = SEED,
    jobs: int = 1,
    progress: Callable[[Tally], None] = lambda _: None,
) -> list[Tally]:
    """Examine so many inputs in so many processes; return what each target has come to."""
    tallies: list[Tally] = []
    for name, count in shared_out(inputs, only).items():
        tally = Tally(name, seed)
        for part in _parts(name, count, first, seed, jobs):
            tally.add(part)
            progress(tally)
        tallies.append(tally)
    return tallies


def _parts(name: str, count: int, first: int, seed: int, jobs: int) -> Iterator[Tally]:
    """Give what each part of the inputs has come to, in order of their numbers."""
    end = first + count
    starts = range(first, end, _PART_INPUTS)
    sizes = [min(_PART_INPUTS, end - start) for start in starts]
    seeds = [seed] * len(sizes)
    if jobs == 1:
        yield from map(TARGETS[name], sizes, starts, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(TARGETS[name], sizes, starts, seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of all targets (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=SEED, help="of all chance (%(default)s)")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if options.inputs < 1 or options.jobs < 1 or options.first < 0:
        parser.error("--inputs and --jobs are at least 1, --first at least 0")

    tallies = run(
        options.inputs,
        only=names,
        first=options.first,
        seed=options.seed,
        jobs=options.jobs,
        progress=lambda tally: print(tally, file=sys.stderr, flush=True),
    )
    findings = [finding for tally in tallies for finding in tally.findings]
    print("\n".join([*findings, *map(str, tallies)]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
