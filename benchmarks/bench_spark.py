"""How fast the sources, the sink and the pipelines of Spark are, beside rivals in the same run.

    make bench-spark                            everything, about a quarter of an hour, 6 GB of disk
    make bench-spark ARGS="--quick"             a tenth of the data
    make bench-spark ARGS="--only store wire"   store, wire, sink, pipelines, memory
    make bench-spark ARGS="--cores 2"           not at 1 and 2 cores, but at these
    make bench-spark ARGS="--dir PATH"          the disk to measure (default: a temporary folder)

The store is made first: records of about 350 bytes with bodies of 200, unique keys and tags. Its
rivals are Spark's own read of the same table as Parquet, a source that makes one tuple per record,
and `cat` of the same files. Wire and sink share the machine with the broker, whose CPU time is
shown beside Spark's own. A session of Spark is a process of its own for every row; it is warm.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.spark_process import cpu_seconds, descendants  # noqa: E402 - needs the path above
from benchmarks.spark_store import fill_store  # noqa: E402
from rmq.client.blocking import BlockingAdmin  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STORE_RECORDS: Final = 3_000_000
WIRE_MESSAGES: Final = 1_000_000
MEMORY_RECORDS: Final = 10_000_000
PARTS: Final = ("store", "wire", "sink", "pipelines", "memory")
JOB_TIMEOUT_S: Final = 1_800.0
SINK_TOPIC: Final = "BenchSink"

STORE_GOAL: Final = 800_000
PARQUET_GOAL: Final = 0.5
NAIVE_GOAL: Final = 8.0
WIRE_GOAL: Final = 300_000
SINK_GOAL: Final = 200_000
MEMORY_GOAL: Final = 1.1


@dataclass(slots=True)
class Bench:
    """What a run is about, and what it has found so far."""

    folder: Path
    scale: float
    cores: Sequence[int]
    missed: list[str] = field(default_factory=list)
    goals: list[str] = field(default_factory=list)

    def goal(self, text: str, figure: str, is_met: bool) -> None:
        self.goals.append(f"| {text} | {figure} | {'met' if is_met else 'missed'} |")
        if not is_met:
            self.missed.append(text)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    name: str
    cores: int
    records: int
    size_bytes: int
    wall_s: float
    cpu_s: float
    broker_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.records / self.wall_s

    def show(self) -> Row:
        broker = f"{self.broker_cpu_s / self.records * 1e6:.2f}" if self.broker_cpu_s else ""
        print(
            f"| {self.name} | {self.cores} | {self.rate:,.0f} |"
            f" {self.size_bytes / self.wall_s / 1e6:,.0f} |"
            f" {self.cpu_s / self.records * 1e6:.2f} | {broker} |",
            flush=True,
        )
        return self


def head() -> None:
    print("| work | cores | records/s | MB/s | µs CPU per record | µs CPU of the broker |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)


def run_job(kind: str, cores: int, **job: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Run a job of `spark_jobs` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_jobs"],
        input=json.dumps({"kind": kind, "cores": cores, **job}).encode(),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=JOB_TIMEOUT_S,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# --- the store --------------------------------------------------------------------------------


def bench_store(bench: Bench, store: Path, records: int, log_bytes: int) -> None:
    print("\nThe same records from segments, from Parquet, one by one, and as bytes:\n")
    head()
    part = {"toOffset": str(log_bytes // 20)}
    table = {"format": "rocketmq-store", "path": str(store)}
    parquet = str(bench.folder / "table.parquet")
    few = records // 10
    few_bytes = log_bytes // 10
    small = bench.folder / "small"
    fill_store(small, few)
    rates: dict[tuple[str, int], float] = {}

    def row(name: str, cores: int, count: int, size: int, **job: Any) -> None:  # noqa: ANN401
        done = run_job(job.pop("kind", "read"), cores, **job)
        shown = Row(name, cores, count, size, done["wall_s"], done["cpu_s"]).show()
        rates[name, cores] = shown.rate

    for cores in bench.cores:
        row("store", cores, records, log_bytes, **table, options={}, warm={"options": part})
        for name, options in (
            ("store, no properties", {"includeProperties": "false"}),
            ("store, no body", {"columns": "topic,queueId,queueOffset,storeTimestamp,storeSize"}),
            ("store, CRC unchecked", {"verifyCrc": "false"}),
        ):
            warm = {"options": {**options, **part}}
            row(name, cores, records, log_bytes, **table, options=options, warm=warm)
        row(
            "store to Parquet",
            cores,
            records,
            log_bytes,
            kind="save",
            **table,
            options={},
            warm={"options": part},
            out=parquet,
        )
        row(
            "Parquet, by Spark",
            cores,
            records,
            log_bytes,
            format="parquet",
            path=parquet,
            options={},
            warm={},
        )
        row(
            "one tuple per record",
            cores,
            few,
            few_bytes,
            format="naive-store",
            path=str(small),
            options={},
            warm={},
        )
    started = time.perf_counter()
    segments = sorted((store / "commitlog").iterdir())
    with Path(os.devnull).open("wb") as nowhere:
        subprocess.run(["cat", *segments], stdout=nowhere, check=True)
    Row("cat", 1, records, log_bytes, time.perf_counter() - started, 0.0).show()
    shutil.rmtree(parquet, ignore_errors=True)
    cores = max(bench.cores)
    rate = rates["store", cores]
    bench.goal(
        f"store source at least {STORE_GOAL:,} records/s on 2 cores, all columns",
        f"{rate:,.0f}",
        rate >= STORE_GOAL,
    )
    ratio = rate / rates["Parquet, by Spark", cores]
    bench.goal(
        f"store source at least {PARQUET_GOAL} of Spark's own Parquet read",
        f"{ratio:.2f}",
        ratio >= PARQUET_GOAL,
    )
    ratio = rate / rates["one tuple per record", cores]
    bench.goal(
        f"store source at least {NAIVE_GOAL:g} times the naive source",
        f"{ratio:.1f}",
        ratio >= NAIVE_GOAL,
    )


# --- the wire ---------------------------------------------------------------------------------


@contextmanager
def servers(folder: Path, *settings: str) -> Iterator[tuple[str, list[int]]]:
    """Run a nameserver and a broker; yield the address of the first and the second's processes."""
    children: list[subprocess.Popen[str]] = []
    folder.mkdir()

    def start(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "rmq", "--log-level", "error", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        children.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            if "boot success" in line:
                return child
        raise SystemExit(f"{arguments[0]} did not start")

    ports = free_ports(2)
    nameserver = f"127.0.0.1:{ports[0]}"
    try:
        conf = folder / "namesrv.conf"
        conf.write_text(
            f"bindAddress=127.0.0.1\nlistenPort={ports[0]}\nkvConfigPath={folder / 'kv.json'}\n"
        )
        start("namesrv", "-c", str(conf))
        conf = folder / "broker.conf"
        lines = (
            "brokerName=broker-a",
            "brokerIP1=127.0.0.1",
            "bindAddress=127.0.0.1",
            f"listenPort={ports[1]}",
            f"namesrvAddr={nameserver}",
            f"storePathRootDir={folder / 'store'}",
            "brokerRole=ASYNC_MASTER",
            *settings,
        )
        conf.write_text("\n".join(lines) + "\n")
        broker = start("broker", "-c", str(conf))
        yield nameserver, [broker.pid]
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait(timeout=60)


def free_ports(count: int) -> list[int]:
    from rmq.cli.dev_processes import free_port

    return [free_port("127.0.0.1", -2, 1) for _ in range(count)]


def bench_wire(bench: Bench) -> None:
    print("\nTopics read over the wire, from a broker that shares the machine:\n")
    head()
    count = round(WIRE_MESSAGES * bench.scale)
    best = 0.0
    for name, settings in (
        ("wire, 32 messages a pull", ()),
        (
            "wire, 1,024 messages a pull",
            ("maxTransferCountOnMessageInMemory=1024", "maxTransferBytesOnMessageInMemory=1048576"),
        ),
    ):
        with servers(bench.folder / f"broker-{len(settings)}", *settings) as (nameserver, broker):
            stored_bytes = fill_topic(nameserver, "BenchWire", count)
            for cores in bench.cores:
                before = cpu_seconds(broker)
                options = {"nameservers": nameserver, "subscribe": "BenchWire"}
                job = {"format": "rocketmq", "options": options}
                few = {"BenchWire": {"broker-a": {str(queue): 200 for queue in range(8)}}}
                warm = {"options": {**options, "endingOffsets": json.dumps(few)}}
                done = run_job("read", cores, **job, warm=warm)
                used = cpu_seconds(broker) - before
                row = Row(name, cores, count, stored_bytes, done["wall_s"], done["cpu_s"], used)
                best = max(best, row.show().rate)
    bench.goal(f"wire source at least {WIRE_GOAL:,} records/s", f"{best:,.0f}", best >= WIRE_GOAL)


def fill_topic(nameserver: str, topic: str, count: int) -> int:
    """Fill a topic of eight queues by way of the sink; return about how many bytes are stored."""
    with BlockingAdmin(nameserver) as admin:
        admin.create_topic(topic, queues=8, cluster="DefaultCluster")
    run_job(
        "write",
        2,
        count=count,
        topic=topic,
        body_bytes=200,
        options={"nameservers": nameserver},
    )
    return count * 400


def bench_sink(bench: Bench) -> None:
    print("\nRows sent to a topic, to a broker that shares the machine:\n")
    head()
    count = round(WIRE_MESSAGES * bench.scale)
    best = 0.0
    with servers(bench.folder / "broker-sink") as (nameserver, broker):
        with BlockingAdmin(nameserver) as admin:
            admin.create_topic(SINK_TOPIC, queues=8, cluster="DefaultCluster")
        for cores in bench.cores:
            before = cpu_seconds(broker)
            done = run_job(
                "write",
                cores,
                count=count,
                topic=SINK_TOPIC,
                body_bytes=128,
                options={"nameservers": nameserver},
            )
            used = (cpu_seconds(broker) - before) / 1.05
            row = Row("sink", cores, count, count * 128, done["wall_s"], done["cpu_s"], used)
            best = max(best, row.show().rate)
    bench.goal(f"sink at least {SINK_GOAL:,} messages/s", f"{best:,.0f}", best >= SINK_GOAL)


# --- pipelines and memory ---------------------------------------------------------------------


def bench_pipelines(bench: Bench, store: Path, records: int, log_bytes: int) -> None:
    print("\nPipelines over the store, in a session that is up:\n")
    head()
    out = bench.folder / "out"
    slave = bench.folder / "slave"
    shutil.copytree(store, slave)
    topic = ["--topic", "Bench-0,Bench-1,Bench-2,Bench-3"]
    archive = ["--from-store", str(store), "--broker-name", "broker-a", "--out", str(out / "a")]
    cores = max(bench.cores)
    for name, arguments in (
        ("report", ["report", "--store", str(store), "--out", str(out / "r")]),
        ("audit", ["audit", "--master-store", str(store), "--slave-store", str(slave)]),
        ("archive", ["archive", *topic, *archive]),
        ("verify", ["verify", "--store", str(store)]),
        ("duplicates", ["duplicates", "--store", str(store)]),
    ):
        done = run_job("pipeline", cores, arguments=arguments)
        if done["code"] != 0:
            bench.goal(f"{name} of a sound store ends with 0", str(done["code"]), False)
        Row(name, cores, records, log_bytes, done["wall_s"], done["cpu_s"]).show()
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(slave, ignore_errors=True)


def bench_memory(bench: Bench, store: Path, records: int) -> None:
    times = max(1, -(-round(MEMORY_RECORDS * bench.scale) // records))
    job = {"format": "rocketmq-store", "path": str(store), "options": {}}
    done = run_job("memory", max(bench.cores), **job, warm={}, times=times)
    first, second = done["first_half_bytes"], done["second_half_bytes"]
    figure = f"{first / 1e6:.0f} MB at most in the first half, {second / 1e6:.0f} MB in the second"
    bench.goal(
        f"memory of a worker flat over {times * records:,} records",
        figure,
        0 < second <= first * MEMORY_GOAL,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dir", type=Path, help="where to put stores and tables")
    args = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=args.dir))
    bench = Bench(folder, 0.1 if args.quick else 1.0, args.cores)
    try:
        if {"store", "pipelines", "memory"} & set(args.only):
            records = round(STORE_RECORDS * bench.scale)
            store = folder / "store"
            log_bytes = fill_store(store, records)
            print(f"{records:,} records in {log_bytes / 2**30:.2f} GiB", flush=True)
            if "store" in args.only:
                bench_store(bench, store, records, log_bytes)
            if "pipelines" in args.only:
                bench_pipelines(bench, store, records, log_bytes)
            if "memory" in args.only:
                bench_memory(bench, store, records)
        if "wire" in args.only:
            bench_wire(bench)
        if "sink" in args.only:
            bench_sink(bench)
    finally:
        for pid in descendants(os.getpid())[1:]:
            os.kill(pid, 9)
        shutil.rmtree(folder, ignore_errors=True)
    print("\n| goal | figure | |\n| --- | --- | --- |")
    print("\n".join(bench.goals))
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
