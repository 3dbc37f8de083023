"""How fast the client is, beside the stock Java client and the C++ binding in the same run.

    make bench-client                                  everybody on our broker, about six minutes
    make bench-client ARGS="--broker java"             the same on the stock broker
    make bench-client ARGS="--clients rmq,aio,blocking"   ours alone
    make bench-client ARGS="--quick"                   one short round
    make bench-client ARGS="--only '64 in flight' --rounds 5 --json figures.json"
    make bench-client ARGS="--only memory --messages 10000000"

Broker and clients are processes of their own: the broker has a core, the clients share another one
and take turns. What other processes disturb is repeated, and the median of the rounds counts, so
that a slow minute of the machine hits all of them; ratios are those of one round. Figures are
printed as tables for README.md; the exit code is 1 when a goal was missed, 77 when a client or
broker that was asked for cannot be had.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.broker_servers import (  # noqa: E402 - needs the path above
    LOAD_CORE,
    BrokerFolder,
    BrokerKind,
    OurBroker,
    RunningBroker,
    fetch_java_broker,
    spawn,
    use_core,
)
from benchmarks.client_processes import (  # noqa: E402
    ClientEndedError,
    ClientKind,
    RunningClient,
    cpp_client,
    java_client,
    our_client,
    running_client,
)
from benchmarks.client_rows import (  # noqa: E402
    AIO,
    BLOCKING,
    CPP,
    DISTURBED,
    JAVA,
    MEMORY_TOPIC,
    READ_QUEUES,
    READ_TOPIC,
    ROWS,
    SEND_QUEUES,
    SEND_TOPIC,
    TABLES,
    TRIO,
    Row,
    goals_text,
    remarks,
    rows_matching,
)
from benchmarks.client_work import Load  # noqa: E402
from benchmarks.entry import heading  # noqa: E402
from benchmarks.ha_pairs import running_nameserver  # noqa: E402
from benchmarks.ha_rows import Figures, Line, table_text  # noqa: E402
from interop.support.java import MissingPartError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.broker_load.figures import Outcome

EXIT_MISSING: Final = 77
CLIENTS: Final = {"java": JAVA, "cpp": CPP, "rmq": TRIO, "aio": AIO, "blocking": BLOCKING}
"""Everybody, in the order of their turns."""
_FILL_BATCH: Final = 32


class Bench:
    """One run: which clients, on which broker, how often and how long."""

    def __init__(self, folder: Path, nameserver: str, args: argparse.Namespace) -> None:
        self.figures = Figures()
        self._folder = folder
        self._nameserver = nameserver
        self._args = args
        self._numbers = itertools.count()
        self._gone: dict[str, str] = {}
        """Clients whose process ended before its time, and how."""

    def run(self, broker: RunningBroker, kinds: Sequence[ClientKind], rows: Sequence[Row]) -> None:
        """Let everybody take turns for every row, and show the tables."""
        self._prepare(broker, rows)
        with ExitStack() as stack:
            clients = [
                stack.enter_context(running_client(kind, self._folder / f"client-{number}"))
                for number, kind in enumerate(kinds)
            ]
            for client in clients:
                with self._missing_if_it_ends(client):
                    self._run_in(client, [row for row in rows if client.who in row.who])
            for row in rows:
                for _ in range(1 if row.work == "memory" else self._args.rounds):
                    self._round(broker, row, [it for it in clients if it.who in row.who])
        for table in TABLES:
            if any(row.table == table.name for row in rows):
                print(table_text(table, self.figures), end="")
                for line in self.figures.lines(table.name):
                    for remark in remarks(self.figures.rounds(line)):
                        print(f"{line.load}, {line.who}: {remark}")
                print(flush=True)
        for how in self._gone.values():
            print(f"left out from then on: {how}", flush=True)

    @contextmanager
    def _missing_if_it_ends(self, client: RunningClient) -> Iterator[None]:
        """Do without a client that crashes, if nothing is measured by it."""
        try:
            yield
        except ClientEndedError as exc:
            if client.who != CPP:
                raise
            self._gone[client.who] = str(exc)
            print(f"left out from now on: {exc}", file=sys.stderr, flush=True)

    def _prepare(self, broker: RunningBroker, rows: Sequence[Row]) -> None:
        topics = {SEND_TOPIC: SEND_QUEUES, READ_TOPIC: READ_QUEUES, MEMORY_TOPIC: SEND_QUEUES}
        run_load("topics", broker, *(f"{name}={queues}" for name, queues in topics.items()))
        if any(row.topic == READ_TOPIC for row in rows):
            shape = ("--topic", READ_TOPIC, "--queues", str(READ_QUEUES))
            each = ("--batch", str(_FILL_BATCH), "--each", str(self._args.each))
            run_load("fill", broker, *shape, *each)

    def _run_in(self, client: RunningClient, rows: Sequence[Row]) -> None:
        """Have done what will be measured, and forget the figures."""
        run_in_s: float | None = self._args.run_in
        seconds = client.kind.run_in_s if run_in_s is None else run_in_s
        for row in rows:
            if row.work != "memory":
                client.run(self._load(row, seconds / len(rows)))

    def _round(self, broker: RunningBroker, row: Row, clients: Sequence[RunningClient]) -> None:
        rates: dict[str, float] = {}
        for client in clients:
            if client.who in self._gone:
                continue
            with self._missing_if_it_ends(client):
                outcome = self._calm(broker, client, row)
                figures = outcome.figures
                rates[client.who] = figures["messages_per_s"]
                if JAVA in rates and client.who != JAVA:
                    figures["of_java"] = rates[client.who] / rates[JAVA]
                self._take(Line(row.table, row.name, client.who), outcome)

    def _calm(self, broker: RunningBroker, client: RunningClient, row: Row) -> Outcome:
        """Have a load done, again if others disturbed it; return the outcome disturbed least."""
        calmest: Outcome | None = None
        for _ in range(1 if row.work == "memory" else 1 + self._args.again):
            watch = Watch(broker, client)
            outcome = client.run(self._load(row, self._args.seconds))
            outcome.figures.update(watch.read(outcome.figures["messages"]))
            if calmest is None or _disturbance(outcome) < _disturbance(calmest):
                calmest = outcome
            if _disturbance(calmest) <= DISTURBED:
                break
        assert calmest is not None
        return calmest

    def _take(self, line: Line, outcome: Outcome) -> None:
        self.figures.add(line, outcome)
        # Whoever waits sees what is going on; the tables come at the end.
        shown = ", ".join(f"{name} {value:,.3f}" for name, value in outcome.figures.items())
        text = f"{line.table}, {line.load}, {line.who}: {shown}"
        print(text, file=sys.stderr, flush=True)

    def _load(self, row: Row, seconds: float) -> Load:
        messages = READ_QUEUES * self._args.each
        return Load(
            work=row.work,
            nameserver=self._nameserver,
            topic=row.topic,
            # A group that nobody has consumed with begins with the first message.
            group=f"bench-{next(self._numbers)}",
            seconds=seconds if row.work != "memory" else self._args.messages / 1_000,
            at_once=row.at_once,
            batch=row.batch,
            messages=self._args.messages if row.work == "memory" else messages,
        )


def run_load(command: str, broker: RunningBroker, *options: str) -> None:
    """Run the broker's load generator; raise RuntimeError with what it says if it fails."""
    process = spawn(
        [sys.executable, "-m", "benchmarks.broker_load", command, str(broker.port), *options],
        core=LOAD_CORE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{command} {' '.join(options)}: {errors.decode(errors='replace')}")


class Watch:
    """What a load costs beside the time: of the broker, and of others who have no part in it."""

    def __init__(self, broker: RunningBroker, client: RunningClient) -> None:
        self._broker = broker
        self._client = client
        self._started_s = time.perf_counter()
        self._spent_s = self._spent()

    def _spent(self) -> tuple[float, float, float]:
        return self._broker.usage.cpu_s(), self._client.usage.cpu_s(), _busy_s()

    def read(self, messages: float) -> dict[str, float]:
        took_s = time.perf_counter() - self._started_s
        spent = zip(self._spent(), self._spent_s, strict=True)
        broker_s, client_s, busy_s = (after - before for after, before in spent)
        return {
            "broker_cpu_us": broker_s / max(1.0, messages) * 1e6,
            "broker_cpu_share": broker_s / took_s,
            "others_cpu_share": max(0.0, busy_s - broker_s - client_s) / took_s,
        }


def _disturbance(outcome: Outcome) -> float:
    return outcome.figures["others_cpu_share"]


def _busy_s() -> float:
    """CPU seconds that all processes of this machine used, on all cores."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, _, _, stolen = map(int, fields[:8])
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    args = _parse()
    if not Path("/proc/self/stat").exists():
        print("this benchmark reads CPU time and memory from /proc, which this system lacks")
        return 1
    rows = rows_matching(args.only)
    if not rows:
        names = ", ".join(row.name for row in ROWS)
        print(f"no row has {args.only} in its table or name; the rows are {names}")
        return 2
    # The blocks that stop the processes and remove their files are left at a signal, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(heading())
    print(
        f"\n{args.broker} broker, {args.rounds} rounds of {args.seconds:g} s;"
        f" {os.getloadavg()[0]:.1f} processes ran already\n"
    )
    with tempfile.TemporaryDirectory(prefix="bench-client-", dir=args.dir) as name:
        folder = Path(name)
        try:
            broker_kind: BrokerKind = OurBroker() if args.broker == "rmq" else fetch_java_broker()
            kinds = [_client(who, folder) for who in _wanted(args.clients, rows)]
        except MissingPartError as exc:
            print(f"missing: {exc}")
            return EXIT_MISSING
        if not args.all_cores:
            use_core(LOAD_CORE)
        try:
            figures = _run(broker_kind, kinds, rows, folder, args)
        except KeyboardInterrupt:
            print("stopped")
            return 130
        except (RuntimeError, ClientEndedError) as exc:
            print(f"failed: {exc}")
            return 1
    text, all_met = goals_text(figures)
    print(text)
    if args.json is not None:
        args.json.write_text(json.dumps(figures.as_json(), indent=1) + "\n")
    return 0 if all_met else 1


def _run(
    broker_kind: BrokerKind,
    kinds: Sequence[ClientKind],
    rows: Sequence[Row],
    folder: Path,
    args: argparse.Namespace,
) -> Figures:
    with running_nameserver(folder) as nameserver:
        settings = {"namesrvAddr": nameserver}
        place = BrokerFolder(broker_kind, folder / "broker", settings, all_cores=args.all_cores)
        with place.running() as broker:
            bench = Bench(folder, nameserver, args)
            bench.run(broker, kinds, rows)
    return bench.figures


def _wanted(clients: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return who was asked for and has something to do."""
    return [
        who
        for name, who in CLIENTS.items()
        if name in clients and any(who in row.who for row in rows)
    ]


def _client(who: str, folder: Path) -> ClientKind:
    if who == JAVA:
        home = folder / "java"
        home.mkdir()
        return java_client(home)
    return cpp_client() if who == CPP else our_client(who)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a load, at most")
    parser.add_argument(
        "--run-in",
        type=float,
        metavar="SECONDS",
        help="work before the first figure of a client (default: 2 for ours, 40 for Java)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="rows with TEXT in table or name; `memory` is run only if it is asked for",
    )
    parser.add_argument(
        "--clients",
        type=lambda text: text.split(","),
        default=list(CLIENTS),
        metavar=",".join(CLIENTS),
        help="who is measured (default: everybody)",
    )
    parser.add_argument(
        "--again",
        type=int,
        default=3,
        metavar="TIMES",
        help="how often a load is repeated that other processes disturb (default: %(default)s)",
    )
    parser.add_argument("--broker", choices=("rmq", "java"), default="rmq", help="whose broker")
    parser.add_argument(
        "--all-cores",
        action="store_true",
        help="let broker and clients use all cores (default: one for it, one for them)",
    )
    parser.add_argument(
        "--each", type=int, default=32_768, metavar="MESSAGES", help="messages in a queue to read"
    )
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="how many the memory is watched over"
    )
    parser.add_argument("--dir", type=Path, help="where to put the store")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    args = parser.parse_args()
    if unknown := set(args.clients) - CLIENTS.keys():
        parser.error(f"unknown clients: {', '.join(sorted(unknown))}")
    if args.quick:
        args.rounds, args.seconds, args.each = 1, 1.0, 8_192
        args.run_in = 10.0 if args.run_in is None else args.run_in
    return args


if __name__ == "__main__":
    sys.exit(main())
