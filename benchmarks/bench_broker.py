"""How fast the broker is, beside the stock Java broker in the same run.

    make bench-broker                             ours alone, about four minutes
    make bench-java                               ours and the Java broker, about twelve
    make bench-java ARGS="--quick"                one short round
    make bench-java ARGS="--only sync"            rows with this in their group or name
    make bench-java ARGS="--only '64 on 16' --rounds 5 --json figures.json"

Broker and load generator are processes of their own, each on its core. The brokers take turns for
every row, and the median of the rounds counts, so that a slow minute of the machine hits both.
Figures are printed as tables for README.md; the exit code is 1 when a goal was missed, 77 when a
broker that was asked for cannot be had.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.broker_load.figures import Outcome  # noqa: E402 - needs the path above
from benchmarks.broker_rows import (  # noqa: E402
    CONSUME_EACH,
    CONSUME_QUEUES,
    GROUPS,
    TOPICS,
    Row,
    rows_matching,
)
from benchmarks.broker_servers import (  # noqa: E402
    LOAD_CORE,
    BrokerFolder,
    BrokerKind,
    OurBroker,
    RunningBroker,
    fetch_java_broker,
    spawn,
    use_core,
)
from benchmarks.broker_tables import Results, show_goals, show_group  # noqa: E402
from benchmarks.entry import heading  # noqa: E402
from interop.support.java import MissingPartError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.broker_rows import Group

EXIT_MISSING: Final = 77
IDLE_S: Final = 3.0
"""After which a broker that has just started is taken to be idle."""


class Bench:
    """One run: which brokers, where, how often and how long."""

    def __init__(
        self,
        kinds: Sequence[BrokerKind],
        folder: Path,
        *,
        rounds: int,
        seconds: float,
        run_in_s: float | None,
        all_cores: bool,
    ) -> None:
        self._all_cores = all_cores
        self.results = Results([kind.name for kind in kinds])
        self._kinds = kinds
        self._folder = folder
        self._rounds = rounds
        self._seconds = seconds
        self._run_in_s = run_in_s
        self._stores = 0

    def run(self, group: Group, rows: Sequence[Row]) -> None:
        """Measure rows of one group on every broker in turns, and show them."""
        if group.name == "start":
            self._run_starts(rows)
        else:
            self._run_loads(group, rows)
        show_group(group, rows, self.results)

    def _run_loads(self, group: Group, rows: Sequence[Row]) -> None:
        with ExitStack() as stack:
            brokers = []
            for kind in self._kinds:
                place = self._place(kind, group.settings, stack)
                broker = stack.enter_context(place.running())
                self._prepare(broker, group)
                if group.run_in:
                    seconds = kind.run_in_s if self._run_in_s is None else self._run_in_s
                    self._run_in(broker, rows, seconds)
                brokers.append(broker)
            for row in rows:
                for _ in range(self._rounds):
                    for broker in brokers:
                        outcome = self._load(broker, row, self._seconds * row.seconds_times)
                        self._take(row, broker.name, outcome)

    def _take(self, row: Row, broker: str, outcome: Outcome) -> None:
        self.results.add(row, broker, outcome)
        # Whoever waits sees what is going on; tables come when a group is complete.
        shown = ", ".join(f"{name} {value:,.3f}" for name, value in outcome.figures.items())
        print(f"{row.group}, {row.name}, {broker}: {shown}", file=sys.stderr, flush=True)

    def _prepare(self, broker: RunningBroker, group: Group) -> None:
        run_load("topics", broker.port, *(f"{name}={queues}" for name, queues in TOPICS.items()))
        for options in group.fill:
            run_load("fill", broker.port, *options)

    def _run_in(self, broker: RunningBroker, rows: Sequence[Row], seconds: float) -> None:
        """Load it with what will be measured, and forget the figures."""
        for row in rows:
            self._load(broker, row, seconds / len(rows))

    def _load(self, broker: RunningBroker, row: Row, seconds: float) -> Outcome:
        options = ("--pid", str(broker.process.pid), *row.options, "--seconds", str(seconds))
        return run_load(row.command, broker.port, *options)

    def _run_starts(self, rows: Sequence[Row]) -> None:
        (row,) = rows
        for _ in range(self._rounds):
            for kind in self._kinds:
                with ExitStack() as stack:
                    place = self._place(kind, {}, stack)
                    self._take(row, kind.name, _start_twice(place))

    def _place(self, kind: BrokerKind, settings: dict[str, str], stack: ExitStack) -> BrokerFolder:
        self._stores += 1
        place = BrokerFolder(
            kind,
            self._folder / f"{kind.name}-{self._stores}",
            settings,
            all_cores=self._all_cores,
        )
        stack.callback(place.remove)
        return place


def _start_twice(place: BrokerFolder) -> Outcome:
    """Start on nothing, look at the idle broker, give it messages, stop it, start again."""
    with place.running() as broker:
        time.sleep(IDLE_S)
        resident_mb, private_mb = broker.usage.memory_mb()
        cpu_s, idle_from_s = broker.usage.cpu_s(), time.perf_counter()
        time.sleep(IDLE_S)
        idle_share = (broker.usage.cpu_s() - cpu_s) / (time.perf_counter() - idle_from_s)
        run_load("topics", broker.port, f"BenchConsume={CONSUME_QUEUES}")
        shape = ("--topic", "BenchConsume", "--queues", str(CONSUME_QUEUES), "--batch", "32")
        run_load("fill", broker.port, *shape, "--each", str(CONSUME_EACH))
        start_s, stop_s = broker.start_s, broker.stop()
    with place.running() as broker:
        restart_s = broker.start_s
    return Outcome(
        {
            "start_s": start_s,
            "restart_s": restart_s,
            "stop_s": stop_s,
            "resident_mb": resident_mb,
            "private_mb": private_mb,
            "idle_cpu_share": idle_share,
        }
    )


def run_load(command: str, port: int, *options: str) -> Outcome:
    """Run the load generator on its core; raise RuntimeError with what it says if it fails."""
    process = spawn(
        [sys.executable, "-m", "benchmarks.broker_load", command, str(port), *options],
        core=LOAD_CORE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{command} {' '.join(options)}: {errors.decode(errors='replace')}")
    return Outcome(**json.loads(output))


def main() -> int:
    args = _parse()
    if not Path("/proc/self/stat").exists():
        print("this benchmark reads CPU time and memory from /proc, which this system lacks")
        return 1
    rounds, seconds, run_in_s = args.rounds, args.seconds, args.run_in
    if args.quick:
        rounds, seconds, run_in_s = 1, 1.0, 8.0 if run_in_s is None else run_in_s
    rows = rows_matching(args.only)
    if not rows:
        groups = ", ".join(group.name for group in GROUPS)
        print(f"no row has {args.only} in its group or name; the groups are {groups}")
        return 2
    kinds: list[BrokerKind] = []
    if "rmq" in args.brokers:
        kinds.append(OurBroker())
    if "java" in args.brokers:
        try:
            kinds.append(fetch_java_broker())
        except MissingPartError as exc:
            print(f"missing: {exc}")
            return EXIT_MISSING
    use_core(LOAD_CORE)
    # The blocks that stop the brokers and remove their files are left at a signal, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(heading())
    print(f"\n{rounds} rounds of {seconds:g} s\n")
    with tempfile.TemporaryDirectory(prefix="bench-broker-", dir=args.dir) as folder:
        bench = Bench(
            kinds,
            Path(folder),
            rounds=rounds,
            seconds=seconds,
            run_in_s=run_in_s,
            all_cores=args.all_cores,
        )
        try:
            for group in GROUPS:
                chosen = [row for row in rows if row.group == group.name]
                if chosen:
                    bench.run(group, chosen)
        except KeyboardInterrupt:
            print("stopped")
            return 130
        except RuntimeError as exc:
            print(f"failed: {exc}")
            return 1
    missed = show_goals(rows, bench.results)
    if args.json is not None:
        args.json.write_text(json.dumps(bench.results.as_json(rows), indent=1) + "\n")
    return 1 if missed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument(
        "--all-cores",
        action="store_true",
        help="let brokers use all cores, also that of the load (default: one of their own)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of most rows")
    parser.add_argument(
        "--run-in",
        type=float,
        metavar="SECONDS",
        help="load before the first figure of a group (default: 4 for rmq, 40 for Java)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="rows with TEXT in group or name",
    )
    parser.add_argument(
        "--brokers",
        type=lambda text: text.split(","),
        default=["rmq"],
        metavar="rmq,java",
        help="who is measured (default: rmq)",
    )
    parser.add_argument("--dir", type=Path, help="where to put the stores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    args = parser.parse_args()
    if unknown := set(args.brokers) - {"rmq", "java"}:
        parser.error(f"unknown brokers: {', '.join(sorted(unknown))}")
    return args


if __name__ == "__main__":
    sys.exit(main())
