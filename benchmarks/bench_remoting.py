"""How fast the remoting layer is, beside a bare socket loop in the same run.

    make bench                          everything, about four minutes
    make bench ARGS="--quick"           one short round
    make bench ARGS="--only rate"       rate, flood, idle or stall

Server and load generator are processes of their own, each on its core. rmq and the bare loop take
turns for every row, and the median of the rounds counts, so that a slow minute of the machine hits
both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.entry import heading  # noqa: E402 - needs the path above
from benchmarks.load import make_frames  # noqa: E402
from benchmarks.servers import STALL_TIMEOUT_S  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE_CONNECTIONS: Final = 10_000
SHAPES: Final = ((1, 1), (64, 1), (64, 16), (1_000, 1), (1_000, 16))
"""Requests under way, connections."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server process."""

    process: subprocess.Popen[str]
    port: int

    def cpu_s(self) -> float:
        """CPU seconds used so far, in user and kernel mode."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")


@contextmanager
def server(kind: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.servers", kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        _pin(process.pid, 0)
        assert process.stdout is not None
        yield Server(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


def load(
    port: int, *, inflight: int, connections: int, body: int, seconds: float, flood: bool = False
) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.load", str(port)]
    command += ["--inflight", str(inflight), "--connections", str(connections)]
    command += ["--body", str(body), "--seconds", str(seconds)]
    if flood:
        command.append("--flood")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    _pin(process.pid, 1)
    output, _ = process.communicate(timeout=seconds + 60)
    if process.returncode:
        raise RuntimeError(f"load generator failed with {process.returncode}")
    result: dict[str, float] = json.loads(output)
    if result["failures"]:
        raise RuntimeError(f"{result['failures']} answers were failures")
    return result


def _pin(pid: int, core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > core:
        os.sched_setaffinity(pid, {cores[core]})


@dataclass(frozen=True, slots=True)
class Row:
    """Median figures of one server under one load."""

    answers_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


def measure(kind: str, *, inflight: int, connections: int, body: int, seconds: float) -> Row:
    with server(kind) as running:
        load(running.port, inflight=inflight, connections=connections, body=body, seconds=0.3)
        before = running.cpu_s()
        result = load(
            running.port, inflight=inflight, connections=connections, body=body, seconds=seconds
        )
        # The warm-up of the generator is in the CPU time too, so it is scaled by the whole run.
        cpu_s = running.cpu_s() - before
        answers = result["all_answers_per_s"] * (seconds + 0.5)
        return Row(
            result["answers_per_s"], cpu_s / answers * 1e6, result["p50_ms"], result["p99_ms"]
        )


def median(rows: list[Row]) -> Row:
    return Row(
        statistics.median(row.answers_per_s for row in rows),
        statistics.median(row.cpu_us for row in rows),
        statistics.median(row.p50_ms for row in rows),
        statistics.median(row.p99_ms for row in rows),
    )


def bench_rate(rounds: int, seconds: float) -> None:
    ours: dict[tuple[int, int, int], Row] = {}
    bare: dict[tuple[int, int, int], Row] = {}
    print(
        f"{'body':>6} {'under way':>9} {'conns':>5}   "
        f"{'rmq/s':>9} {'µs CPU':>7} {'p50 ms':>7} {'p99 ms':>7}   "
        f"{'bare/s':>9} {'µs CPU':>7} {'p50 ms':>7}   {'rmq/bare':>8}"
    )
    for body in (128, 1024):
        for inflight, connections in SHAPES:
            rows: dict[str, list[Row]] = {"rmq": [], "bare": []}
            for _ in range(rounds):
                for kind, taken in rows.items():
                    row = measure(
                        kind, inflight=inflight, connections=connections, body=body, seconds=seconds
                    )
                    taken.append(row)
            key = body, inflight, connections
            one = ours[key] = median(rows["rmq"])
            other = bare[key] = median(rows["bare"])
            print(
                f"{body:>6} {inflight:>9} {connections:>5}   "
                f"{one.answers_per_s:>9,.0f} {one.cpu_us:>7.2f} {one.p50_ms:>7.3f} "
                f"{one.p99_ms:>7.3f}   "
                f"{other.answers_per_s:>9,.0f} {other.cpu_us:>7.2f} {other.p50_ms:>7.3f}   "
                f"{one.answers_per_s / other.answers_per_s:>8.0%}",
                flush=True,
            )
    print()
    rate = ours[128, 64, 1].answers_per_s
    bare_rate = bare[128, 64, 1].answers_per_s
    _goal("64 on one connection, of the bare loop's rate", rate / bare_rate, 0.60, "{:.0%}")
    rate_1000 = ours[128, 1_000, 1].answers_per_s
    _goal("1,000 on one connection, answers/s", rate_1000, 150_000, "{:,.0f}")
    rate_16 = ours[128, 64, 16].answers_per_s
    _goal("64 on 16 connections, of 64 on one", rate_16 / rate, 0.70, "{:.0%}")
    latency = ours[128, 1, 1].p50_ms / bare[128, 1, 1].p50_ms
    _goal("p50 of one at a time, times the bare loop's", latency, 1.7, "{:.2f}", at_most=True)


def bench_flood(rounds: int, seconds: float) -> None:
    """One connection floods with 1,000 requests under way, another sends one at a time."""
    worst = 0.0
    for _ in range(rounds):
        with server("rmq") as running:
            result = load(
                running.port, inflight=1, connections=1, body=128, seconds=seconds, flood=True
            )
        worst = max(worst, result["p99_ms"])
        print(
            f"beside a flood: p50 {result['p50_ms']:.2f} ms, p99 {result['p99_ms']:.2f} ms,"
            f" max {result['max_ms']:.2f} ms; all together {result['all_answers_per_s']:,.0f}/s"
        )
    _goal("p99 beside a flooding connection, ms", worst, 20.0, "{:.2f}", at_most=True)


def bench_idle() -> None:
    """Hold many idle connections, each of which has sent one request."""
    frame = make_frames(128)[0]
    with server("rmq") as running:
        before = running.resident_mb()
        sockets: list[socket.socket] = []
        try:
            for _ in range(IDLE_CONNECTIONS):
                sock = socket.create_connection(("127.0.0.1", running.port))
                sock.sendall(frame)
                sockets.append(sock)
            for sock in sockets:
                if not sock.recv(1 << 16):
                    raise RuntimeError("the server closed an idle connection")
            after = running.resident_mb()
        finally:
            for sock in sockets:
                sock.close()
    print(
        f"{IDLE_CONNECTIONS:,} idle connections: {after:.0f} MB resident ({before:.0f} MB before),"
        f" {(after - before) * 1024 / IDLE_CONNECTIONS:.1f} KB each"
    )
    _goal("resident with 10,000 idle connections, MB", after, 300.0, "{:.0f}", at_most=True)


def bench_stall() -> None:
    """A client sends as much as it can and never reads an answer."""
    data = make_frames(128)[0] * 1_000
    with server("stalling") as running:
        before = running.resident_mb()
        peak = before
        sent = 0
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            sock.setblocking(False)
            while True:
                peak = max(peak, running.resident_mb())
                try:
                    sent += sock.send(data[sent % len(data) :])
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError:
                    break
        took = time.perf_counter() - started
    print(
        f"a client that never reads: cut off after {took:.1f} s"
        f" (stall timeout {STALL_TIMEOUT_S:g} s),"
        f" {sent / 1e6:.1f} MB taken from it, {peak - before:.1f} MB more resident at the peak"
    )
    _goal(
        "memory taken by a client that never reads, MB", peak - before, 64.0, "{:.1f}", at_most=True
    )


_missed: list[str] = []


def _goal(what: str, value: float, goal: float, form: str, *, at_most: bool = False) -> None:
    met = value <= goal if at_most else value >= goal
    if not met:
        _missed.append(what)
    relation = "at most" if at_most else "at least"
    verdict = "met   " if met else "MISSED"
    figures = f"{form.format(value)} (goal: {relation} {form.format(goal)})"
    print(f"{verdict} {what}: {figures}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", choices=("rate", "flood", "idle", "stall"))
    args = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        print("this benchmark reads CPU time and memory from /proc, which this system lacks")
        return 1
    rounds, seconds = (1, 1.0) if args.quick else (args.rounds, args.seconds)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(heading())
    print(f"\n{rounds} rounds of {seconds:g} s\n")
    if args.only in (None, "rate"):
        bench_rate(rounds, seconds)
    if args.only in (None, "flood"):
        bench_flood(rounds, seconds)
    if args.only in (None, "idle"):
        bench_idle()
    if args.only in (None, "stall"):
        bench_stall()
    return 1 if _missed else 0


if __name__ == "__main__":
    sys.exit(main())
