"""How fast the store is, beside a copy loop and a plain sequential write in the same run.

    make bench-store                          everything, about eight minutes and 12 GB of disk
    make bench-store ARGS="--quick"           small stores, under a minute
    make bench-store ARGS="--only append"     append, sync, read or recovery
    make bench-store ARGS="--dir PATH"        the disk to measure (default: a temporary folder)

Appends go through a running store (flusher, recovery points and pages touched ahead included), in
one process. The rivals write the same bytes: a loop that copies ready-made records into a mapping,
and `write` calls one after the other. Everyone takes turns, and the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

# Run as a script, the first entry of the path is this folder; the packages are beside it.
ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import trio  # noqa: E402 - needs the path above

from benchmarks.entry import heading  # noqa: E402
from rmq.model.offsets import QueueOffset  # noqa: E402
from rmq.model.record import NewMessage, pack_host  # noqa: E402
from rmq.store.config import MIB, FlushMode, StoreConfig  # noqa: E402
from rmq.store.core import StoreCore  # noqa: E402
from rmq.store.flusher import FlushOutcome  # noqa: E402
from rmq.store.store import MessageStore, open_store  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC: Final = "BenchTopic"
QUEUES: Final = 4
BORN_HOST: Final = pack_host("10.0.0.1", 40000)
BORN_MS: Final = 1_700_000_000_000
GROUP: Final = 64
SYNC_WAITERS: Final = 64
# A store of many small messages: what a stock broker took 94 s to open again after kill -9.
BIG_STORE_MESSAGES: Final = 18_000_000
BIG_STORE_BODY: Final = b"b" * 80

_missed: list[str] = []


def goal(text: str, figure: str, met: bool) -> None:
    """Print one line of the table of goals."""
    print(f"| {text} | {figure} | {'met' if met else 'missed'} |")
    if not met:
        _missed.append(text)


def tagged(number: int) -> bytes:
    """Properties with a tag and no key."""
    return b"TAGS\x01TagA"


def keyed(number: int) -> bytes:
    """Properties as a stock client sends them: unique key and tag."""
    return b"UNIQ_KEY\x010A00000100002A9F18B4AAC2%08X\x02TAGS\x01TagA" % number


def make_messages(count: int, body: bytes, properties: Callable[[int], bytes]) -> list[NewMessage]:
    return [
        NewMessage(
            TOPIC,
            number % QUEUES,
            body,
            properties(number),
            born_ms=BORN_MS,
            born_host=BORN_HOST,
        )
        for number in range(count)
    ]


@contextmanager
def folder(parent: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bench-store-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def quiet_gc() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


# --- appends -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the table of appends."""

    name: str
    body_bytes: int
    group: int
    total_bytes: int
    properties: Callable[[int], bytes]

    @property
    def count(self) -> int:
        return self.total_bytes // (self.body_bytes + 120)


@dataclass(frozen=True, slots=True)
class Timing:
    """What one run took."""

    wall_s: float
    cpu_s: float
    durable_s: float
    """Until everything was on disk."""


async def append_all(root: Path, messages: list[NewMessage], group: int) -> Timing:
    config = StoreConfig(root=root)
    async with open_store(config) as store:
        # The first segment and its pages are there before the clock starts.
        store.append(messages[:1])
        await trio.sleep(0.3)
        started, cpu = time.perf_counter(), time.process_time()
        since_pause = 0
        for start in range(0, len(messages), group):
            store.append(messages[start : start + group])
            since_pause += group
            if since_pause >= GROUP * 16:
                since_pause = 0
                await trio.lowlevel.checkpoint()
        ended, cpu_ended = time.perf_counter(), time.process_time()
        await store.flush()
        durable = time.perf_counter()
        assert store.statistics().dispatch_lag_bytes == 0
    return Timing(ended - started, cpu_ended - cpu, durable - started)


def copy_into_mapping(root: Path, record: bytes, count: int) -> Timing:
    size = -(-(len(record) * count) // 4096) * 4096
    path = root / "mapped"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, size)
    mapping = mmap.mmap(fd, size)
    started, cpu = time.perf_counter(), time.process_time()
    position = 0
    for _ in range(count):
        mapping[position : position + len(record)] = record
        position += len(record)
    ended, cpu_ended = time.perf_counter(), time.process_time()
    os.fdatasync(fd)
    durable = time.perf_counter()
    mapping.close()
    os.close(fd)
    path.unlink()
    return Timing(ended - started, cpu_ended - cpu, durable - started)


def write_in_order(root: Path, record: bytes, count: int) -> Timing:
    path = root / "written"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    block = record * max(1, 65536 // len(record))
    total = len(record) * count
    started, cpu = time.perf_counter(), time.process_time()
    written = 0
    while written < total:
        written += os.write(fd, block)
    ended, cpu_ended = time.perf_counter(), time.process_time()
    os.fdatasync(fd)
    durable = time.perf_counter()
    os.close(fd)
    path.unlink()
    return Timing(ended - started, cpu_ended - cpu, durable - started)


def bench_append(parent: Path | None, rounds: int, scale: float) -> None:
    shapes = [
        Shape("128 B, one by one", 128, 1, int(80 * MIB * scale), tagged),
        Shape("128 B, 64 at a time", 128, GROUP, int(80 * MIB * scale), tagged),
        Shape("128 B with unique key, one by one", 128, 1, int(80 * MIB * scale), keyed),
        Shape("128 B with unique key, 64 at a time", 128, GROUP, int(80 * MIB * scale), keyed),
        Shape("1 KiB, one by one", 1024, 1, int(200 * MIB * scale), tagged),
        Shape("1 KiB, 64 at a time", 1024, GROUP, int(200 * MIB * scale), tagged),
        Shape("64 KiB, one by one", 65536, 1, int(700 * MIB * scale), tagged),
        Shape("64 KiB, 8 at a time", 65536, 8, int(700 * MIB * scale), tagged),
    ]
    print(
        "| appends, ASYNC_FLUSH | per s | µs CPU | MB/s | MB/s to disk | copy loop MB/s |"
        " write MB/s | write MB/s to disk |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rates: dict[str, float] = {}
    ratios: dict[str, tuple[float, float]] = {}
    for shape in shapes:
        messages = make_messages(shape.count, os.urandom(shape.body_bytes), shape.properties)
        record = bytes(shape.body_bytes + 101 + len(messages[0].properties))
        megabytes = len(record) * shape.count / 1e6
        ours: list[Timing] = []
        copied: list[Timing] = []
        written: list[Timing] = []
        for _ in range(rounds):
            with folder(parent) as root, quiet_gc():
                ours.append(trio.run(append_all, root / "store", messages, shape.group))
                copied.append(copy_into_mapping(root, record, shape.count))
                written.append(write_in_order(root, record, shape.count))
        wall = statistics.median(timing.wall_s for timing in ours)
        cpu = statistics.median(timing.cpu_s for timing in ours)
        durable = statistics.median(timing.durable_s for timing in ours)
        plain = statistics.median(timing.wall_s for timing in written)
        plain_durable = statistics.median(timing.durable_s for timing in written)
        rates[shape.name] = shape.count / wall
        ratios[shape.name] = (plain / wall, plain_durable / durable)
        print(
            f"| {shape.name} | {shape.count / wall:,.0f} | {cpu / shape.count * 1e6:.2f} |"
            f" {megabytes / wall:,.0f} | {megabytes / durable:,.0f} |"
            f" {megabytes / statistics.median(timing.wall_s for timing in copied):,.0f} |"
            f" {megabytes / plain:,.0f} | {megabytes / plain_durable:,.0f} |"
        )
    print("\n| goal | figure | |\n| --- | --- | --- |")
    grouped, single = rates["128 B, 64 at a time"], rates["128 B, one by one"]
    goal("128 B, 64 at a time: at least 250,000/s", f"{grouped:,.0f}/s", grouped >= 250_000)
    goal("128 B, one by one: at least 150,000/s", f"{single:,.0f}/s", single >= 150_000)
    to_cache, to_disk = ratios["64 KiB, one by one"]
    goal(
        "64 KiB: at least 85 % of the sequential write, everything on disk at the end",
        f"{to_disk:.0%} (into the page cache: {to_cache:.0%})",
        to_disk >= 0.85,
    )
    print()


# --- sync flush ----------------------------------------------------------------------------------


async def put_with_waiters(root: Path, waiters: int, seconds: float) -> tuple[float, float]:
    """Return messages per second and per sync when so many wait for the disk at a time.

    As in a broker: answers go out when the disk has the messages, the peers send their next ones,
    and what has come in by the time of the next read is appended together.
    """
    config = StoreConfig(root=root, flush_mode=FlushMode.SYNC)
    messages = make_messages(1024, bytes(128), tagged)
    done = arrived = 0
    has_arrived = trio.Event()

    def answer(outcome: FlushOutcome) -> None:
        nonlocal done, arrived
        assert outcome is FlushOutcome.FLUSHED, outcome
        done += 1
        arrived += 1
        has_arrived.set()

    async with open_store(config) as store:
        store.append(messages[:1])
        await trio.sleep(0.3)
        syncs = store.syncs
        started = time.perf_counter()
        arrived = waiters
        while time.perf_counter() - started < seconds:
            if not arrived:
                has_arrived = trio.Event()
                await has_arrived.wait()
            count, arrived = arrived, 0
            for result in store.append(messages[:count]):
                store.when_flushed(result.end_offset, answer)
        elapsed = time.perf_counter() - started
        made = store.syncs - syncs
    return done / elapsed, done / max(made, 1)


def sync_in_order(root: Path, seconds: float) -> float:
    """Return how many times a second a plain loop writes 128 bytes and syncs them."""
    path = root / "synced"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 64 * MIB)
    block = bytes(229)
    count = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        os.pwrite(fd, block, count * len(block))
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    path.unlink()
    return count / elapsed


def bench_sync(parent: Path | None, rounds: int, seconds: float) -> None:
    print("| appends, SYNC_FLUSH | per s | messages per sync |\n| --- | --- | --- |")
    medians: dict[int, float] = {}
    for waiters in (1, SYNC_WAITERS, 1000):
        figures = []
        for _ in range(rounds):
            with folder(parent) as root:
                figures.append(trio.run(put_with_waiters, root / "store", waiters, seconds))
        medians[waiters] = statistics.median(rate for rate, _ in figures)
        shared = statistics.median(shared for _, shared in figures)
        print(f"| {waiters} waiting | {medians[waiters]:,.0f} | {shared:.1f} |")
    with folder(parent) as root:
        print(f"| plain loop of write and sync | {sync_in_order(root, seconds):,.0f} | 1 |")
    ratio = medians[SYNC_WAITERS] / medians[1]
    print("\n| goal | figure | |\n| --- | --- | --- |")
    goal("SYNC_FLUSH: 64 waiting at least 20 times one", f"{ratio:.1f} times", ratio >= 20)
    print()


# --- a big store: recovery, reads, queries -------------------------------------------------------


def big_messages(start: int, count: int) -> list[NewMessage]:
    return [
        NewMessage(
            TOPIC,
            number % QUEUES,
            BIG_STORE_BODY,
            keyed(number),
            born_ms=BORN_MS,
            born_host=BORN_HOST,
        )
        for number in range(start, start + count)
    ]


async def fill(root: Path, count: int, *, idle: bool) -> None:
    """Append messages, say so, and wait to be killed: under load, or idle for a while."""
    async with open_store(StoreConfig(root=root)) as store:
        for start in range(store_count(store), count, GROUP):
            store.append(big_messages(start, GROUP))
            if start % (GROUP * 16) == 0:
                await trio.lowlevel.checkpoint()
        if idle:
            await trio.sleep(store.config.recovery_point_interval_ms / 1000 + 2)
        print(json.dumps({"written": store.statistics().written}), flush=True)
        number = count
        while not idle:
            store.append(big_messages(number, GROUP))
            number += GROUP
            await trio.lowlevel.checkpoint()
        await trio.sleep_forever()


def store_count(store: MessageStore) -> int:
    return sum(queue.next_offset for queue in store.queues)


def fill_and_kill(root: Path, count: int, *, idle: bool) -> float:
    """Run `fill` in a process of its own and kill it; return how long filling took."""
    started = time.perf_counter()
    command = [sys.executable, __file__, "--fill", str(root), "--messages", str(count)]
    with subprocess.Popen(
        command + (["--idle"] if idle else []), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed = time.perf_counter() - started
        if not idle:
            time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
        process.wait()
    if not line:
        raise RuntimeError("the process that fills the store failed")
    return elapsed


def reopen(root: Path) -> dict[str, float]:
    """Open the store in a fresh process; return what it says about that."""
    command = [sys.executable, __file__, "--reopen", str(root)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(answer.stdout)
    return figures


def open_and_tell(root: Path) -> None:
    """Open, tell how long that took, and close cleanly."""
    started = time.perf_counter()
    core = StoreCore(StoreConfig(root=root))
    opened = time.perf_counter() - started
    figures = {
        "open_s": opened,
        "records_read": core.recovery.records_read,
        "messages": sum(queue.next_offset for queue in core.queues),
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "private_mb": private_mb(),
    }
    core.close()
    print(json.dumps(figures))


def private_mb() -> float:
    """Return the memory that is this process's own, without the pages of mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def bench_reads(core: StoreCore, count: int) -> None:
    chooser = random.Random(4098)
    print(f"| reads from a store of {count:,} messages | per s | µs each |\n| --- | --- | --- |")
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    wanted = min(1_000_000, queue.next_offset)
    started = time.perf_counter()
    offset, found = QueueOffset(0), 0
    while found < wanted:
        result = core.reads.get(TOPIC, 0, offset, 32)
        found += result.count
        offset = result.next_offset
    show_rate("in order, 32 at a time", found, time.perf_counter() - started)
    lookups = 200_000
    offsets = [QueueOffset(chooser.randrange(queue.next_offset)) for _ in range(lookups)]
    started = time.perf_counter()
    for offset in offsets:
        assert core.reads.get(TOPIC, 0, offset, 1).count == 1
    show_rate("one at a random offset", lookups, time.perf_counter() - started)
    queries = 20_000
    keys = [f"0A00000100002A9F18B4AAC2{chooser.randrange(count):08X}" for _ in range(queries)]
    started = time.perf_counter()
    for key in keys:
        assert core.reads.query(TOPIC, key, 32, 0, 2**62), key
    show_rate("query by unique key", queries, time.perf_counter() - started)
    print()


def show_rate(name: str, count: int, elapsed: float) -> None:
    print(f"| {name} | {count / elapsed:,.0f} | {elapsed / count * 1e6:.1f} |")


def bench_recovery(parent: Path | None, count: int) -> None:
    with folder(parent) as root:
        path = root / "store"
        elapsed = fill_and_kill(path, count, idle=False)
        size = sum(file.stat().st_size for file in (path / "commitlog").iterdir())
        print(
            f"{count:,} messages with unique keys, {size / 2**30:.1f} GiB of segments, filled in"
            f" {elapsed:.0f} s ({count / elapsed:,.0f}/s, making the messages included)\n"
        )
        killed = reopen(path)
        clean = reopen(path)
        fill_and_kill(path, count, idle=True)
        idle = reopen(path)
        core = StoreCore(StoreConfig(root=path))
        bench_reads(core, count)
        core.close()
        print("| opened again after | s | records read | private MB | resident MB |")
        print("| --- | --- | --- | --- | --- |")
        for name, figures in (
            ("kill -9 under load", killed),
            ("clean stop", clean),
            ("kill -9 while idle", idle),
        ):
            print(
                f"| {name} | {figures['open_s']:.2f} | {figures['records_read']:,} |"
                f" {figures['private_mb']:.0f} | {figures['resident_mb']:.0f} |"
            )
        print("\n| goal | figure | |\n| --- | --- | --- |")
        goal("open within 10 s after kill -9", f"{killed['open_s']:.2f} s", killed["open_s"] < 10)
        goal("open within 1 s after a clean stop", f"{clean['open_s']:.2f} s", clean["open_s"] < 1)
        goal(
            "open within 1 s after kill -9 of an idle store",
            f"{idle['open_s']:.2f} s",
            idle["open_s"] < 1,
        )
        print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round on small stores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("append", "sync", "recovery"))
    parser.add_argument("--dir", type=Path, help="where to put the stores")
    parser.add_argument("--messages", type=int, default=BIG_STORE_MESSAGES)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reopen", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill is not None:
        gc.freeze()
        trio.run(partial(fill, args.fill, args.messages, idle=args.idle))
        return 0
    if args.reopen is not None:
        open_and_tell(args.reopen)
        return 0
    rounds, scale = (1, 0.25) if args.quick else (args.rounds, 1.0)
    print(heading())
    print(f"\n{rounds} rounds\n")
    if args.only in (None, "append"):
        bench_append(args.dir, rounds, scale)
    if args.only in (None, "sync"):
        bench_sync(args.dir, rounds, 1.0 if args.quick else 3.0)
    if args.only in (None, "recovery"):
        bench_recovery(args.dir, args.messages // 20 if args.quick else args.messages)
    return 1 if _missed else 0


if __name__ == "__main__":
    sys.exit(main())
