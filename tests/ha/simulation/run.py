"""Runs many seeds of the simulation: python -m tests.ha.simulation.run --seeds 100000 --jobs 2.

Prints what was lived through. A seed that breaks a rule is explained with its trace and the command
that runs it again; after ten of them the run ends. Exit code 1 if there was any.
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

from tests.ha.simulation.world import explain, simulate

BROKEN_MAX: Final = 10
_PROGRESS_SEEDS: Final = 5000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="print what happens in each seed")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
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
