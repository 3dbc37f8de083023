"""Runs many seeds of the simulation: python -m tests.ha.simulation.run --seeds 100000 --jobs 2.

Prints what was lived through. A seed that breaks a rule is explained with its trace and the command
that runs it again; after ten of them the run ends. Exit code 1 if there was any.

With --planted NAME a rule is taken away (planted.py), and the run ends with the first seed that
breaks the rules which should notice: exit code 0 if there is one.
"""

# ruff: noqa: T201 - standard output is what it is for

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from functools import partial
from typing import Final

from tests.ha.simulation.planted import BUGS, planted
from tests.ha.simulation.world import explain, simulate

_BUGS: Final = {bug.name: bug for bug in BUGS}
BROKEN_MAX: Final = 10
_PROGRESS_SEEDS: Final = 5000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="print what happens in each seed")
    parser.add_argument("--planted", choices=sorted(_BUGS), metavar="NAME", help="plant a bug")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.planted is not None:
        return _search(arguments.planted, seeds, arguments.jobs)
    started_at = time.perf_counter()
    counts: Counter[str] = Counter()
    events, virtual_s, done = 0, 0.0, 0
    failed: list[int] = []
    run = partial(simulate, is_traced=arguments.trace)
    with multiprocessing.Pool(arguments.jobs) as pool:
        results = (
            pool.imap_unordered(run, seeds, chunksize=50) if arguments.jobs > 1 else map(run, seeds)
        )
        for result in results:
            done += 1
            events += result.events
            virtual_s += result.virtual_s
            counts += result.counts
            if arguments.trace:
                print("\n".join((f"seed {result.seed}", *result.trace)))
            if result.broken is not None:
                failed.append(result.seed)
                print(explain(result), end="\n\n", flush=True)
                if len(failed) == BROKEN_MAX:
                    break
            if not done % _PROGRESS_SEEDS:
                print(f"{done} seeds, {len(failed)} broken", flush=True)
        pool.terminate()
    _print_summary(done, virtual_s, events, time.perf_counter() - started_at, counts)
    print(f"broken: {len(failed)} {sorted(failed) if failed else ''}")
    return 1 if failed else 0


def _search(name: str, seeds: range, jobs: int) -> int:
    """Print the first seed found that shows a planted bug."""
    with multiprocessing.Pool(jobs) as pool:
        for found in pool.imap_unordered(partial(_shows, name), seeds, chunksize=50):
            if found is not None:
                print(f"seed {found} shows: {name}")
                pool.terminate()
                return 0
    print(f"{len(seeds)} seeds do not show: {name}")
    return 1


def _shows(name: str, seed: int) -> int | None:
    bug = _BUGS[name]
    with planted(bug):
        broken = simulate(seed).broken
    return seed if broken is not None and broken.rule in bug.found_by else None


def _print_summary(
    done: int, virtual_s: float, events: int, wall_s: float, counts: Counter[str]
) -> None:
    print(
        f"{done} seeds in {wall_s:.0f} s: {virtual_s / 3600:.1f} virtual hours, {events} events,"
        f" {1000 * wall_s / max(done, 1):.1f} ms a seed"
    )
    for name, count in sorted(counts.items()):
        print(f"  {count:>10}  {name}")


if __name__ == "__main__":
    sys.exit(main())
