"""How long one heavy request delays the others: a probe beside each of them.

    make bench-fairness                                   all requests, full state
    make bench-fairness ARGS="--before FOLDER"            another checkout of rmq in the same run
    make bench-fairness ARGS="--only 215 --only 310"      some requests
    make bench-fairness ARGS="--quick"                    a tenth of the state, one round
    make bench-fairness ARGS="--floods"                   many connections that flood, for 3 s each
    make bench-fairness ARGS="--acl"                      what access control costs by send
    make bench-fairness ARGS="--acl --java"               the same, and of the stock Java broker

A nameserver and a broker are started and given topics, groups and connected clients. A probe of its
own process sends one message at a time, or asks the nameserver for a route; then a request is made
over another connection, and the table shows how long the probe had to wait. The exit code is 1 when
the probe was delayed by more than 20 ms (p99.9) beside any request of this checkout, or by more
than 3 s (p99) beside a flood.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from benchmarks.broker_servers import LOAD_CORE, fetch_java_broker, use_core  # noqa: E402
from benchmarks.entry import heading  # noqa: E402
from benchmarks.fairness import floods  # noqa: E402
from benchmarks.fairness.acl_cost import AclMissingError, measure, report  # noqa: E402
from benchmarks.fairness.all_scenarios import scenarios_matching  # noqa: E402
from benchmarks.fairness.firing import fire, probing  # noqa: E402
from benchmarks.fairness.rows import (  # noqa: E402
    BEFORE,
    GOAL_MS,
    OURS,
    Delays,
    missed,
    remarks,
    table_text,
)
from benchmarks.fairness.scenario import FULL, QUICK  # noqa: E402
from benchmarks.fairness.site import RunningSite, raise_descriptor_limit  # noqa: E402
from interop.support.java import MissingPartError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.fairness.scenario import Scenario

EXIT_MISSING: Final = 77


def measure_delays(
    scenarios: Sequence[Scenario], roots: dict[str, Path], folder: Path, args: argparse.Namespace
) -> Delays:
    """Make every request at every checkout."""
    delays = Delays()
    size = QUICK if args.quick else FULL
    if args.connections is not None:
        size = dataclasses.replace(size, connections=args.connections)
    for who, root in roots.items():
        with RunningSite(who, root, folder, size, is_quick=args.quick) as site:
            prepared: set[object] = set()
            for scenario in scenarios:
                try:
                    _measure(scenario, site, prepared, delays, args.rounds)
                except (NoAnswerError, OSError) as exc:
                    delays.problems[scenario.name, who] = str(exc)
                    print(f"{who}, {scenario.name}: {exc}", file=sys.stderr, flush=True)
    return delays


def _measure(
    scenario: Scenario, site: RunningSite, prepared: set[object], delays: Delays, rounds: int
) -> None:
    if scenario.prepare is not None and scenario.prepare not in prepared:
        prepared.add(scenario.prepare)
        scenario.prepare(site)
    with probing(site, scenario.target) as probe:
        for _ in range(rounds):
            outcome = fire(site, scenario, probe)
            delays.add(scenario, site.name, outcome)
            # The table comes at the end; this shows what is going on.
            shown = ", ".join(f"{name} {value:,.2f}" for name, value in outcome.figures.items())
            print(f"{site.name}, {scenario.name}: {shown}", file=sys.stderr, flush=True)


def main() -> int:
    args = _parse()
    raise_descriptor_limit()
    use_core(LOAD_CORE)
    # The blocks that stop the servers and remove their files are left at a signal, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load = os.getloadavg()[0]
    print(heading())
    with tempfile.TemporaryDirectory(prefix="bench-fairness-", dir=args.dir) as folder:
        try:
            if args.floods:
                return _floods(Path(folder), args, load)
            return _acl(Path(folder), args) if args.acl else _delays(Path(folder), args, load)
        except KeyboardInterrupt:
            print("stopped")
            return 130
        except (RuntimeError, NoAnswerError) as exc:
            print(f"failed: {exc}")
            return 1


def _delays(folder: Path, args: argparse.Namespace, load: float) -> int:
    scenarios = scenarios_matching(args.only)
    if not scenarios:
        print(f"no request is called {' or '.join(args.only)}")
        return 1
    # The one that is compared with comes first.
    roots = {} if args.before is None else {BEFORE: args.before.resolve()}
    roots[OURS] = ROOT
    print(f"\n{args.rounds} rounds; {load:.1f} processes ran already\n", flush=True)
    delays = measure_delays(scenarios, roots, folder, args)
    print(table_text(delays, scenarios, list(roots)))
    for remark in remarks(delays, scenarios, list(roots)):
        print(f"- {remark}")
    if args.json is not None:
        args.json.write_text(json.dumps(delays.as_json(), indent=1) + "\n")
    names = missed(delays, scenarios)
    for name in names:
        print(f"missed: others wait for more than {GOAL_MS:g} ms (p99.9) beside {name}")
    return 1 if names or any(who == OURS for _, who in delays.problems) else 0


def _floods(folder: Path, args: argparse.Namespace, load: float) -> int:
    root = ROOT if args.before is None else args.before.resolve()
    print(f"\n{root.name}, {args.seconds:g} s each; {load:.1f} processes ran already\n", flush=True)
    with RunningSite(OURS, root, folder, floods.SIZE, is_quick=True) as site:
        found = floods.measure_floods(site, args.seconds)
    print(floods.floods_text(found))
    late = [each.name for each in found if not each.is_met]
    for name in late:
        print(f"missed: accepted work takes longer than {floods.GOAL_S:g} s (p99) beside {name}")
    return 1 if late else 0


def _acl(folder: Path, args: argparse.Namespace) -> int:
    try:
        java = fetch_java_broker() if args.java else None
        taken = measure(folder, rounds=args.rounds, seconds=args.seconds, java=java)
    except MissingPartError as exc:
        print(f"missing: {exc}")
        return EXIT_MISSING
    except AclMissingError as exc:
        print(f"missing: this checkout has no access control: {exc}")
        return EXIT_MISSING
    text, is_met = report(taken)
    print(f"\n{text}")
    return 0 if is_met else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the state, one round")
    parser.add_argument("--connections", type=int, help="connected clients (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each request is made")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="requests with TEXT in the name"
    )
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout to compare with"
    )
    parser.add_argument("--floods", action="store_true", help="floods, only; of --before if given")
    parser.add_argument("--acl", action="store_true", help="what access control costs, only")
    parser.add_argument("--java", action="store_true", help="the stock Java broker as well (--acl)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=3.0,
        help="length of a load of signed sends (--acl) or of a flood",
    )
    parser.add_argument("--dir", type=Path, help="where to put the stores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    args = parser.parse_args()
    if args.before is not None and not (args.before / "rmq" / "__init__.py").exists():
        parser.error(f"there is no rmq in {args.before}")
    if args.quick:
        args.rounds = 1
    return args


if __name__ == "__main__":
    sys.exit(main())
