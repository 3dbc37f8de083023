"""How fast a master and its slave are, beside a plain copy and the stock Java pair in the same run.

    make bench-ha                                 all of it, about seven minutes
    make bench-ha ARGS="--brokers rmq"            ours alone, about two
    make bench-ha ARGS="--quick"                  one short round
    make bench-ha ARGS="--only send --rounds 5 --json figures.json"
    make bench-ha ARGS="--only send --brokers rmq --before FOLDER"

`--before` names another checkout of rmq, whose pair takes turns with this one's.

Master, slave and load generator are processes of their own and share all cores. Those who are
compared take turns, and the median of the rounds counts, so that a slow minute of the machine hits
all of them; ratios are those of one round. Figures are printed as tables for README.md; the exit
code is 1 when a goal was missed, 77 when a broker that was asked for cannot be had.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.broker_load.figures import Outcome  # noqa: E402 - needs the path above
from benchmarks.broker_load.peer import NoAnswerError  # noqa: E402
from benchmarks.broker_servers import (  # noqa: E402
    BrokerFolder,
    BrokerKind,
    OurBroker,
    RunningBroker,
    fetch_java_broker,
    spawn,
)
from benchmarks.entry import heading  # noqa: E402
from benchmarks.ha_pairs import (  # noqa: E402
    ASYNC,
    SYNC,
    Pair,
    drop,
    log_end,
    master_folder,
    running_nameserver,
    slave_folder,
    start_pair,
    wait_topic,
    warm,
    warm_share,
    watch_catch_up,
)
from benchmarks.ha_rows import (  # noqa: E402
    ALONE,
    ASYNC_PAIR,
    BEFORE_ASYNC,
    BEFORE_SYNC,
    DISK,
    IN_FLIGHT,
    JAVA_ASYNC,
    JAVA_STOCK,
    JAVA_SYNC,
    MEMORY,
    NATIVE,
    PACE_PER_S,
    PACED,
    PLAIN,
    PLAIN_FILE,
    SLAVE,
    STOCK,
    SYNC_PAIR,
    TABLES,
    Figures,
    Line,
    goals_text,
    table_text,
)
from benchmarks.ha_stream import GIB  # noqa: E402
from interop.support.java import MissingPartError  # noqa: E402
from interop.support.stock import HA_DISTANCE  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXIT_MISSING: Final = 77
BEFORE: Final = "before"
TOPIC: Final = "BenchHa"
QUEUES: Final = 4
STREAM_BODY: Final = 1_024
_STREAM_RECORD: Final = 1_200
"""About what a record with such a body takes."""
_STREAM_BATCH: Final = 32
_STREAMED: Final = (PLAIN, NATIVE, STOCK, PLAIN_FILE, SLAVE)
"""Who takes turns in the stream: each after the one it is compared with."""
_COLD_MAX: Final = 0.05
"""What is read from a disk must not be in memory but for this share."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One who takes part in a comparison: in this mode, with this slave."""

    who: str
    pair: Pair
    mode: str


class Bench:
    """One run: which brokers, where, how often and how long."""

    def __init__(self, kinds: Sequence[BrokerKind], folder: Path, args: argparse.Namespace) -> None:
        self.figures = Figures()
        self._kinds = kinds
        self._folder = folder
        self._rounds: int = args.rounds
        self._seconds: float = args.seconds
        self._run_in_s: float | None = args.run_in
        self._log_bytes: int = args.log_mib * 1024**2
        self._stores = 0
        self._nameserver = ""
        """Where the nameserver of this run listens."""

    def run(self, only: Sequence[str]) -> None:
        """Measure the tables whose names are given, and show each; all if none is."""
        wanted = [table for table in TABLES if not only or table.name in only]
        with ExitStack() as stack:
            self._nameserver = stack.enter_context(running_nameserver(self._folder))
            if any(table.name == "stream" for table in wanted):
                self._stream()
            loads = [table.name for table in wanted if table.name != "stream"]
            if loads:
                self._load(loads)
        for table in wanted:
            print(table_text(table, self.figures), flush=True)

    def _take(self, line: Line, outcome: Outcome) -> None:
        self.figures.add(line, outcome)
        # Whoever waits sees what is going on; the tables come at the end.
        shown = ", ".join(f"{name} {value:,.3f}" for name, value in outcome.figures.items())
        text = f"{line.table}, {line.load}, {line.who}: {shown}"
        print(text, file=sys.stderr, flush=True)

    # --- the stream --------------------------------------------------------------------------

    def _stream(self) -> None:
        for kind in self._kinds:
            place = master_folder(
                kind, self._folder / f"{kind.name}-stream", self._nameserver, name="bench"
            )
            try:
                self._fill(place)
                if kind.name == "Java":
                    self._stream_java(place)
                else:
                    self._stream_ours(place)
            finally:
                place.remove()

    def _fill(self, place: BrokerFolder) -> None:
        """Write the log, and have its writer end: what it has mapped stays in memory."""
        with place.running() as master:
            run_process("broker_load", "topics", str(master.port), f"{TOPIC}={QUEUES}")
            each = self._log_bytes // _STREAM_RECORD // QUEUES
            shape = ("--topic", TOPIC, "--queues", str(QUEUES), "--batch", str(_STREAM_BATCH))
            run_process(
                *("broker_load", "fill", str(master.port), *shape),
                *("--body", str(STREAM_BODY), "--each", str(each)),
            )
            master.stop()

    def _stream_ours(self, place: BrokerFolder) -> None:
        log = place.path / "store" / "commitlog" / f"{0:020d}"
        with place.running() as master:
            stop = log_end(master.port)
            for _ in range(self._rounds):
                rates: dict[str, float] = {}
                for who in _STREAMED:
                    warm(log)
                    self._stream_turn(Line("stream", MEMORY, who), place, master, rates, stop)
            master.stop()
        for _ in range(self._rounds):
            rates = {}
            for who in _STREAMED:
                # What a master has mapped and read stays in memory until it ends.
                drop(log)
                with place.running() as master:
                    _check_cold(log, stop)
                    self._stream_turn(Line("stream", DISK, who), place, master, rates, stop)
                    master.stop()

    def _stream_turn(
        self,
        line: Line,
        place: BrokerFolder,
        master: RunningBroker,
        rates: dict[str, float],
        stop: int,
    ) -> None:
        """Measure one of those that are compared; `rates` has those before it in this round."""
        who = line.who
        log = place.path / "store" / "commitlog" / f"{0:020d}"
        copied = self._folder / "copied"
        if who in (PLAIN, PLAIN_FILE):
            into = ("--into", str(copied)) if who == PLAIN_FILE else ()
            outcome = run_process("ha_stream", "copy", str(log), "--stop", str(stop), *into)
            copied.unlink(missing_ok=True)
            rates[who] = outcome.figures["gb_per_s"]
        elif who == SLAVE:
            outcome = self._catch_up(place, master, stop)
            outcome.figures["of_plain"] = outcome.figures["gb_per_s"] / rates[PLAIN_FILE]
        else:
            outcome = _follow(master, stop, "native" if who == NATIVE else "stock")
            outcome.figures["of_plain"] = outcome.figures["gb_per_s"] / rates[PLAIN]
        self._take(line, outcome)

    def _catch_up(self, master_place: BrokerFolder, master: RunningBroker, stop: int) -> Outcome:
        """Start an empty slave, and see how long it takes to have everything."""
        self._stores += 1
        path = self._folder / f"slave-{self._stores}"
        place = slave_folder(OurBroker(), path, self._nameserver, name="bench", master=master_place)
        try:
            cpu_s = master.usage.cpu_s()
            with place.running() as slave:
                slave_cpu_s = slave.usage.cpu_s()
                took_s = watch_catch_up(slave, stop)
                slave_cpu_s = slave.usage.cpu_s() - slave_cpu_s
                cpu_s = master.usage.cpu_s() - cpu_s
        finally:
            place.remove()
        return Outcome(
            {
                "gb_per_s": stop / took_s / 1e9,
                "cpu_s_per_gib": cpu_s / stop * GIB,
                "slave_cpu_s_per_gib": slave_cpu_s / stop * GIB,
            }
        )

    def _stream_java(self, place: BrokerFolder) -> None:
        # From memory only: when it starts it reads, and maps, all of its last files.
        with place.running() as master:
            stop = log_end(master.port)
            _follow(master, stop, "stock")
            for _ in range(self._rounds):
                self._take(Line("stream", MEMORY, JAVA_STOCK), _follow(master, stop, "stock"))

    # --- sends -------------------------------------------------------------------------------

    def _load(self, tables: Sequence[str]) -> None:
        nameserver = self._nameserver
        with ExitStack() as stack:
            pairs = [
                start_pair(kind, self._folder, nameserver, stack, with_slave=True)
                for kind in self._kinds
            ]
            ours = next((pair for pair in pairs if pair.name == "rmq"), None)
            java = next((pair for pair in pairs if pair.name == "Java"), None)
            before = next((pair for pair in pairs if pair.name == BEFORE), None)
            alone = None
            if ours is not None:
                alone = start_pair(OurBroker(), self._folder, nameserver, stack, with_slave=False)
            for pair in pairs if alone is None else [*pairs, alone]:
                self._run_in(pair)
            if "send" in tables:
                self._send(list(_turns(alone, ours, java, before)))
            if ours is not None and alone is not None:
                ours.switch(ASYNC)
                if "cost" in tables:
                    self._cost(alone, ours)
                if "lag" in tables:
                    self._lag(ours)

    def _run_in(self, pair: Pair) -> None:
        """Load it with what will be measured, and forget the figures."""
        run_process("broker_load", "topics", str(pair.master.port), f"{TOPIC}={QUEUES}")
        modes = [ASYNC]
        if pair.slave is not None:
            wait_topic(pair.slave.port, TOPIC)
            pair.wait_in_sync(TOPIC)
            modes = [ASYNC, SYNC]
        run_in_s = pair.run_in_s if self._run_in_s is None else self._run_in_s
        each_s = run_in_s / len(modes) / len(IN_FLIGHT)
        for mode in modes:
            pair.switch(mode)
            for in_flight in IN_FLIGHT:
                _send(pair, in_flight, each_s)

    def _send(self, turns: Sequence[Turn]) -> None:
        for in_flight in IN_FLIGHT:
            for _ in range(self._rounds):
                rates: dict[str, float] = {}
                costs: dict[str, float] = {}
                for turn in turns:
                    turn.pair.switch(turn.mode)
                    outcome = _send(turn.pair, in_flight, self._seconds)
                    rates[turn.who] = outcome.figures["messages_per_s"]
                    costs[turn.who] = outcome.figures["cpu_us"]
                    for who, other, figure in (
                        (SYNC_PAIR, ASYNC_PAIR, "of_async"),
                        (JAVA_SYNC, JAVA_ASYNC, "of_async"),
                        (SYNC_PAIR, JAVA_SYNC, "of_java"),
                        (ASYNC_PAIR, JAVA_ASYNC, "of_java"),
                        (SYNC_PAIR, BEFORE_SYNC, "of_before"),
                        (ASYNC_PAIR, BEFORE_ASYNC, "of_before"),
                    ):
                        if who == turn.who and other in rates:
                            outcome.figures[figure] = rates[who] / rates[other]
                            if figure == "of_before":
                                outcome.figures["cpu_of_before"] = costs[who] / costs[other]
                    self._take(Line("send", f"{in_flight:,}", turn.who), outcome)

    def _cost(self, alone: Pair, ours: Pair) -> None:
        for _ in range(self._rounds):
            without = _pace(alone, self._seconds)
            self._take(Line("cost", PACED, ALONE), without)
            outcome = _pace(ours, self._seconds)
            outcome.figures["over_alone"] = (
                outcome.figures["cpu_us"] / without.figures["cpu_us"] - 1
            )
            self._take(Line("cost", PACED, ASYNC_PAIR), outcome)

    def _lag(self, ours: Pair) -> None:
        assert ours.slave is not None
        for _ in range(self._rounds):
            outcome = run_process(
                *("ha_load", "lag", str(ours.master.port), "--pid", str(ours.master.process.pid)),
                *("--slave-port", str(ours.slave.port), "--topic", TOPIC),
                *("--rate", str(PACE_PER_S), "--seconds", str(self._seconds)),
            )
            self._take(Line("lag", PACED, ASYNC_PAIR), outcome)


def _turns(
    alone: Pair | None, ours: Pair | None, java: Pair | None, before: Pair | None
) -> Iterator[Turn]:
    """Who takes turns: first those with whom others are compared."""
    if before is not None:
        yield Turn(BEFORE_ASYNC, before, ASYNC)
        yield Turn(BEFORE_SYNC, before, SYNC)
    if java is not None:
        yield Turn(JAVA_ASYNC, java, ASYNC)
        yield Turn(JAVA_SYNC, java, SYNC)
    if alone is not None:
        yield Turn(ALONE, alone, ASYNC)
    if ours is not None:
        yield Turn(ASYNC_PAIR, ours, ASYNC)
        yield Turn(SYNC_PAIR, ours, SYNC)


def _check_cold(log: Path, stop: int) -> None:
    share = warm_share(log, stop)
    if share > _COLD_MAX:
        raise RuntimeError(f"{share:.0%} of the log stay in memory: nothing is read from a disk")


def _follow(master: RunningBroker, stop: int, dialect: str) -> Outcome:
    return run_process(
        *("ha_stream", "follow", str(master.port + HA_DISTANCE)),
        *("--pid", str(master.process.pid), "--stop", str(stop), "--dialect", dialect),
    )


def _send(pair: Pair, in_flight: int, seconds: float) -> Outcome:
    return _load_pair("send", pair, "--inflight", str(in_flight), "--seconds", str(seconds))


def _pace(pair: Pair, seconds: float) -> Outcome:
    return _load_pair("pace", pair, "--rate", str(PACE_PER_S), "--seconds", str(seconds))


def _load_pair(command: str, pair: Pair, *options: str) -> Outcome:
    slave = () if pair.slave is None else ("--slave-pid", str(pair.slave.process.pid))
    return run_process(
        *("ha_load", command, str(pair.master.port), "--pid", str(pair.master.process.pid)),
        *(*slave, "--topic", TOPIC, *options),
    )


def run_process(module: str, *options: str) -> Outcome:
    """Run a load on all cores; raise RuntimeError with what it says if it fails."""
    process = spawn(
        [sys.executable, "-m", f"benchmarks.{module}", *options],
        core=None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    busy_s, started_s = _busy_s(), time.perf_counter()
    try:
        output, errors = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(options)}: {errors.decode(errors='replace')}")
    outcome = Outcome(**json.loads(output))
    took_s = time.perf_counter() - started_s
    outcome.figures["machine_busy"] = (_busy_s() - busy_s) / took_s / (os.cpu_count() or 1)
    return outcome


def _busy_s() -> float:
    """CPU seconds that all processes of this machine used, on all cores."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, _, _, stolen = map(int, fields[:8])
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    args = _parse()
    if not Path("/proc/self/stat").exists():
        print("this benchmark reads CPU time from /proc, which this system lacks")
        return 1
    kinds: list[BrokerKind] = []
    if "rmq" in args.brokers:
        kinds.append(OurBroker())
    if args.before is not None:
        kinds.append(OurBroker(BEFORE, root=args.before.resolve()))
    if "java" in args.brokers:
        try:
            kinds.append(fetch_java_broker())
        except MissingPartError as exc:
            print(f"missing: {exc}")
            return EXIT_MISSING
    # The blocks that stop the brokers and remove their files are left at a signal, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load = os.getloadavg()[0]
    print(heading())
    print(
        f"\n{args.rounds} rounds of"
        f" {args.seconds:g} s, a log of {args.log_mib} MiB; {load:.1f} processes ran already\n"
    )
    with tempfile.TemporaryDirectory(prefix="bench-ha-", dir=args.dir) as folder:
        bench = Bench(kinds, Path(folder), args)
        try:
            bench.run(args.only)
        except KeyboardInterrupt:
            print("stopped")
            return 130
        except (RuntimeError, NoAnswerError) as exc:
            print(f"failed: {exc}")
            return 1
    text, all_met = goals_text(bench.figures)
    print(text)
    if args.json is not None:
        args.json.write_text(json.dumps(bench.figures.as_json(), indent=1) + "\n")
    return 0 if all_met else 1


def _parse() -> argparse.Namespace:
    names = [table.name for table in TABLES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a load")
    parser.add_argument("--log-mib", type=int, default=1_000, help="what is streamed")
    parser.add_argument(
        "--run-in",
        type=float,
        metavar="SECONDS",
        help="load before the first figure of a pair (default: 4 for rmq, 40 for Java)",
    )
    parser.add_argument(
        "--only", action="append", default=[], choices=names, help="this table, not all"
    )
    parser.add_argument(
        "--brokers",
        type=lambda text: text.split(","),
        default=["rmq", "java"],
        metavar="rmq,java",
        help="who is measured (default: both)",
    )
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="another checkout to compare sends with"
    )
    parser.add_argument("--dir", type=Path, help="where to put the stores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    args = parser.parse_args()
    if unknown := set(args.brokers) - {"rmq", "java"}:
        parser.error(f"unknown brokers: {', '.join(sorted(unknown))}")
    if args.before is not None and not (args.before / "rmq" / "__init__.py").exists():
        parser.error(f"there is no rmq in {args.before}")
    if args.log_mib > 1_000:
        parser.error("a stock master sends its last file only: at most 1000 MiB fit into it")
    if args.quick:
        args.rounds, args.seconds, args.log_mib = 1, 1.0, 200
        args.run_in = 8.0 if args.run_in is None else args.run_in
    return args


if __name__ == "__main__":
    sys.exit(main())
