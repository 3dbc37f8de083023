"""What metrics cost a broker, and a scrape those who wait meanwhile.

    make bench-metrics                                    all of it, about a quarter of an hour
    make bench-metrics ARGS="--only overhead"             what counting and scraping cost by send
    make bench-metrics ARGS="--only instructions"         the same in instructions, by valgrind
    make bench-metrics ARGS="--only crowd"                scrapes of many topics and groups
    make bench-metrics ARGS="--quick"                     two short rounds, small numbers

Broker and load are processes of their own, each on its core. The exit code is 1 when a goal was
missed: metrics cost at most 3 % of a send (of its rate and of its CPU time); a scrape of 500 topics
and 500 groups takes at most 200 ms (p99), and the event loop is not more than 10 ms late meanwhile
(p99). Without valgrind there are no instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.broker_load.peer import NoAnswerError  # noqa: E402 - needs the path above
from benchmarks.broker_servers import LOAD_CORE, use_core  # noqa: E402
from benchmarks.entry import heading  # noqa: E402
from benchmarks.fairness.site import raise_descriptor_limit  # noqa: E402
from benchmarks.metrics import crowd, instructions, overhead  # noqa: E402

if TYPE_CHECKING:
    from typing import Any

PARTS: Final = ("overhead", "instructions", "crowd")


def main() -> int:
    args = _parse()
    raise_descriptor_limit()
    use_core(LOAD_CORE)
    # The blocks that stop the brokers and remove their files are left at a signal, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(heading())
    print(f"\n{os.getloadavg()[0]:.1f} processes ran already\n", flush=True)
    figures: dict[str, Any] = {}
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-metrics-", dir=args.dir) as folder:
        try:
            if "overhead" in args.only:
                missed += _overhead(Path(folder), args, figures)
            if "instructions" in args.only:
                missed += _instructions(Path(folder), figures)
            if "crowd" in args.only:
                missed += _crowd(Path(folder), args, figures)
        except KeyboardInterrupt:
            print("stopped")
            return 130
        except (RuntimeError, NoAnswerError, LookupError) as exc:
            print(f"failed: {exc}")
            return 1
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def _overhead(folder: Path, args: argparse.Namespace, figures: dict[str, Any]) -> list[str]:
    rounds, seconds = (2, 1.0) if args.quick else (args.rounds, args.seconds)
    print(f"{rounds} rounds of {seconds:g} s\n", flush=True)
    costs = overhead.measure_overhead(folder, rounds=rounds, seconds=seconds)
    print(overhead.overhead_table(costs), flush=True)
    figures["overhead"] = {name: cost._asdict() for name, cost in costs.items()}
    return [
        f"metrics cost more than {overhead.GOAL:.0%} of a send: {name}"
        for name in overhead.dear(costs)
    ]


def _instructions(folder: Path, figures: dict[str, Any]) -> list[str]:
    try:
        counts = instructions.count_instructions(folder)
    except instructions.ToolMissingError as exc:
        print(f"no instructions: {exc}\n", flush=True)
        return []
    print(instructions.instructions_table(counts), flush=True)
    figures["instructions"] = {name: each._asdict() for name, each in counts.items()}
    return [
        f"counting takes more than {overhead.GOAL:.0%} of the instructions: {name}"
        for name, each in counts.items()
        if each.share > overhead.GOAL
    ]


def _crowd(folder: Path, args: argparse.Namespace, figures: dict[str, Any]) -> list[str]:
    sizes = crowd.SIZES[:1] if args.quick else crowd.SIZES
    found = []
    for size in sizes:
        found.append(crowd.measure_crowd(folder, size, 2.0 if args.quick else args.crowd_seconds))
        print(f"{size.name}, {size.pairs:,} pairs: measured", file=sys.stderr, flush=True)
    print(crowd.crowd_table(found), flush=True)
    figures["crowd"] = [
        {**each._asdict(), "size": f"{each.size.name}, {each.size.pairs} pairs"} for each in found
    ]
    return [
        f"a scrape of {each.size.name}, {each.size.pairs:,} pairs, takes longer than"
        f" {crowd.GOAL_SCRAPE_S * 1e3:g} ms, or others wait more than {crowd.GOAL_LAG_S * 1e3:g} ms"
        for each in found
        if each.size.has_goal and not each.is_met
    ]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short and small")
    parser.add_argument("--only", action="append", choices=PARTS, help="one of the parts")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each load")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument(
        "--crowd-seconds", type=float, default=20.0, help="how long each crowd is scraped"
    )
    parser.add_argument("--dir", type=Path, help="where to put the stores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    args = parser.parse_args()
    args.only = args.only or list(PARTS)
    return args


if __name__ == "__main__":
    sys.exit(main())
