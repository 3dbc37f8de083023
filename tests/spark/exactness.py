"""Proves that a stream copies every message once, whatever is killed meanwhile. Run by hand:

    python -m tests.spark.exactness --messages 1000000

Messages are sent to several topics and queues of a master with a slave. A query copies them to
Parquet, in bounded runs (`availableNow`) with a checkpoint, each in a process of its own that is
killed with all its children in the middle of the work and started again, so often and at such
moments as the seed says. In between the master is killed while the query runs, and the slave is
promoted with `rmq ha promote`; messages are sent on to the new master. At the end the table must
hold every message exactly once.

Prints one JSON object; the exit code says whether it holds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rmq.client.blocking import BlockingProducer
from rmq.client.core.messages import Message
from tests.spark.wire.wire_cluster import WireCluster, wire_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

TOPICS: Final = {"Orders": 4, "Payments": 3, "Shipments": 1}
"""Topics, and how many queues they have."""
SHARES: Final = (0.5, 0.25, 0.25)
"""How much is sent at the start, while nothing runs, and after the failover."""
BATCHES: Final = 40
"""About so many batches copy everything."""
PROMOTE_S: Final = 30.0
RUN_S: Final = 1800.0
"""How long one run of the query may take."""
ATTEMPTS_MAX: Final = 5
_TOO_SLOW: Final = "Python worker failed to connect back"
"""What Spark says on a machine that takes more than 10 s to start a process."""
_BATCH: Final = 500
_BODY: Final = b"x" * 100
_LARGE: Final = {
    "mappedFileSizeCommitLog": str(256 * 1024**2),
    "mappedFileSizeConsumeQueue": str(200_000 * 20),
    "messageIndexEnable": "false",
}


# --- the query, in a process of its own ------------------------------------------------------


def copy(args: argparse.Namespace) -> int:
    """Copy what there is, once."""
    spark = _session()
    options = {
        "nameservers": args.nameserver,
        "subscribe": ",".join(TOPICS),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max(1, args.messages // BATCHES)),
    }
    query = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(args.folder / "checkpoint"))
        .option("path", str(args.folder / "table"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return 0


def _session() -> SparkSession:
    # Only where it is needed: it takes a while.
    from rmq.spark import open_session

    return open_session("exactness", "local[2]")


# --- the table, as it is without Spark -------------------------------------------------------


def count(table: Path) -> list[dict[str, object]]:
    """Return what the table holds, by queue: of the files that Spark has committed."""
    files: set[str] = set()
    for log in table.glob("_spark_metadata/[0-9]*"):
        _, *lines = log.read_text().splitlines()
        files.update(json.loads(line)["path"].removeprefix("file://") for line in lines)
    columns = ["topic", "queueId", "queueOffset", "body", "keys"]
    rows = pa.concat_tables([pq.read_table(name, columns=columns) for name in sorted(files)])
    found = rows.group_by(["topic", "queueId"]).aggregate(
        [
            ("queueOffset", "count"),
            ("queueOffset", "count_distinct"),
            ("body", "count_distinct"),
            ("keys", "count_distinct"),
            ("queueOffset", "min"),
            ("queueOffset", "max"),
        ]
    )
    names = ["topic", "queueId", "rows", "offsets", "bodies", "keys", "first", "last"]
    counted: list[dict[str, object]] = found.rename_columns(names).to_pylist()
    return counted


# --- the rest --------------------------------------------------------------------------------


class Sender:
    """Sends numbered messages, dealt to all queues."""

    def __init__(self, cluster: WireCluster) -> None:
        self._cluster = cluster
        self.sent = 0
        self.by_queue: dict[tuple[str, int], int] = {
            (topic, number): 0 for topic, queues in TOPICS.items() for number in range(queues)
        }

    def send(self, messages: int, rng: random.Random) -> None:
        """Send so many more, in batches of random sizes."""
        end = self.sent + messages
        places = list(self.by_queue)
        with BlockingProducer(self._cluster.nameserver, "fillers") as producer:
            while self.sent < end:
                topic, queue_id = place = rng.choice(places)
                size = min(end - self.sent, rng.randint(1, _BATCH))
                batch = [
                    Message(topic, b"%d %s" % (number, _BODY), keys=(str(number),))
                    for number in range(self.sent, self.sent + size)
                ]
                producer.send_batch(batch, queue=self._cluster.queue(topic, queue_id))
                self.by_queue[place] += size
                self.sent += size


class Run:
    """One process of the query."""

    def __init__(self, nameserver: str, folder: Path, messages: int) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "tests.spark.exactness", "--action", "copy"]
        command += ["--nameserver", nameserver, "--folder", str(folder)]
        command += ["--messages", str(messages)]
        with (folder / "query.log").open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command, start_new_session=True, stdout=log, stderr=log
            )

    def batches(self) -> int:
        """Return how many batches have been planned."""
        return len([*self._folder.glob("checkpoint/offsets/[0-9]*")])

    def wait_for_batches(self, number: int) -> bool:
        """Wait until so many batches have been planned; tell whether the run has ended before."""
        deadline = time.monotonic() + RUN_S
        while self.batches() < number:
            if self._process.poll() is not None:
                self._check()
                return True
            assert time.monotonic() < deadline, f"{self.batches()} batches after {RUN_S:g} s"
            time.sleep(0.02)
        return False

    def wait(self) -> bool:
        """Wait until the run has ended by itself; tell whether it was a success."""
        self._process.wait(RUN_S)
        return self._check()

    def _check(self) -> bool:
        """Tell whether the run was a success; what may fail is only what Spark is too slow for."""
        if self._process.returncode == 0:
            return True
        log = (self._folder / "query.log").read_text()
        assert _TOO_SLOW in log[self._log_start :], f"the query failed:\n{log[-3000:]}"
        return False

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        for pid in [self._process.pid, *self._children()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()

    def _children(self) -> Iterator[int]:
        """Yield the processes of the session that the query is the leader of."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self._process.pid:
                    yield int(entry.name)


def prove(args: argparse.Namespace) -> int:
    """Do all of it; print what came out."""
    rng = random.Random(args.seed)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="exactness") as root:
        cluster_folder, folder = Path(root) / "cluster", Path(root) / "query"
        cluster_folder.mkdir()
        folder.mkdir()
        with wire_cluster(cluster_folder, **_LARGE) as cluster:
            for topic, queues in TOPICS.items():
                cluster.create_topic(topic, queues)
            result = _prove(args, rng, cluster, folder)
    result["seconds"] = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if result["holds"] else 1


def _prove(
    args: argparse.Namespace, rng: random.Random, cluster: WireCluster, folder: Path
) -> dict[str, object]:
    sender = Sender(cluster)
    shares = [int(args.messages * share) for share in SHARES]
    shares[-1] += args.messages - sum(shares)
    sender.send(shares[0], rng)
    _say(f"{sender.sent} messages sent")
    kills = []
    failover_at = rng.randint(1, max(1, args.kills - 1))

    def start() -> Run:
        return Run(cluster.nameserver, folder, args.messages)

    for number in range(args.kills):
        run = start()
        if number == failover_at:
            _fail_over(rng, cluster, run)
            sender.send(shares[2], rng)
            _say(f"failed over; {sender.sent} messages sent")
        has_ended = run.wait_for_batches(run.batches() + rng.randint(1, 4))
        time.sleep(rng.random() * 2)
        run.kill()
        kills.append(run.batches())
        _say(f"killed after {run.batches()} batches" + (", too late" if has_ended else ""))
        if number == 0:
            sender.send(shares[1], rng)
            cluster.wait_in_sync()
            _say(f"{sender.sent} messages sent")
    assert sender.sent == args.messages
    _until_it_succeeds(start)
    found = count(folder / "table")
    expected = [
        {"topic": topic, "queueId": queue_id, "first": 0, "last": number - 1}
        | dict.fromkeys(("rows", "offsets", "bodies", "keys"), number)
        for (topic, queue_id), number in sender.by_queue.items()
        if number
    ]

    def order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(rows, key=lambda row: (str(row["topic"]), str(row["queueId"])))

    return {
        "holds": order(found) == order(expected),
        "messages": sender.sent,
        "rows": _sum(found, "rows"),
        "distinct": _sum(found, "bodies"),
        "queues": len(found),
        "batches": len([*folder.glob("checkpoint/commits/[0-9]*")]),
        "killed_at_batch": kills,
        "failover_before_kill": failover_at + 1,
        "seed": args.seed,
    }


def _sum(rows: list[dict[str, object]], name: str) -> int:
    return sum(int(str(row[name])) for row in rows)


def _until_it_succeeds(start: Callable[[], Run]) -> None:
    for _ in range(ATTEMPTS_MAX):
        if start().wait():
            return
        _say("once more: the machine is too busy for Spark")
    raise AssertionError(f"no success in {ATTEMPTS_MAX} attempts")


def _fail_over(rng: random.Random, cluster: WireCluster, run: Run) -> None:
    """Kill the master while the query runs, and let the slave take its place."""
    run.wait_for_batches(run.batches() + 1)
    time.sleep(rng.random())
    cluster.kill_master()
    time.sleep(rng.random() * 3)
    command = [sys.executable, "-m", "rmq", "ha", "promote", "-b", cluster.slave_address, "--yes"]
    deadline = time.monotonic() + PROMOTE_S
    while subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        # It takes in what is on its way from its old master, and then can be promoted.
        assert time.monotonic() < deadline, "the slave cannot be promoted"
        time.sleep(0.2)
    cluster.master_changed()


def _say(what: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--action", choices=["prove", "copy"], default="prove")
    parser.add_argument("--nameserver", default="")
    parser.add_argument("--folder", type=Path, default=Path())
    args = parser.parse_args()
    return copy(args) if args.action == "copy" else prove(args)


if __name__ == "__main__":
    sys.exit(main())
