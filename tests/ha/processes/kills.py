"""Kills brokers again and again under load, and looks at what is left.

    python -m tests.ha.processes.kills --kills 100 --mode sync --victim master

The master, sync: every message that was answered SEND_OK is on the slave when the master is dead,
the slave's log is the beginning of the master's, byte for byte, and a consumer gets it all from the
slave. Async: as much may be missing as the master's last status said the slave lacks, and what was
appended since; how much that was is counted.
The slave: the master goes on, and when the slave is back and in sync it has everything.
Both at once: they come back in any order, and then the slave has everything.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rmq.errors import RmqError
from rmq.remoting.client import open_client
from rmq.remoting.codes import ResponseCode
from tests.ha.processes.cluster import Cluster, assert_same_log, kill_together
from tests.ha.processes.load import (
    Consumer,
    Producer,
    create_topic,
    status,
    wait_end,
    wait_in_sync,
    wait_settled,
    wait_topic,
)

if TYPE_CHECKING:
    from rmq.remoting.bodies import HaStatusBody
    from rmq.remoting.client import RemotingClient


@dataclass
class Outcome:
    """What a run came to."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    lost_bytes_max: int = 0
    compared_bytes: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    unanswered: int = 0
    restart_s: list[float] = field(default_factory=list)
    """From the start of what was killed until the slave is in sync again."""


async def kill_brokers(folder: Path, kills: int, *, mode: str, victim: str, seed: int) -> Outcome:
    """Kill brokers `kills` times; raise AssertionError if a promise was broken."""
    cluster = Cluster(folder)
    role = "SYNC_MASTER" if mode == "sync" else "ASYNC_MASTER"
    master = cluster.add("one", role, 0)
    slave = cluster.add("two", "SLAVE", 1)
    try:
        for process in (cluster.nameserver, master):
            await trio.to_thread.run_sync(process.start)
        async with open_client() as client:
            # The slave hears of a topic that is there when it starts sooner than of a later one.
            await create_topic(client, cluster.addresses["one"])
            await trio.to_thread.run_sync(slave.start)
            await wait_in_sync(client, cluster.addresses["one"])
            await wait_topic(client, cluster.addresses["two"])
            run = _Run(cluster, client, random.Random(seed), is_sync=mode == "sync")
            once = {
                "master": run.kill_master,
                "slave": run.kill_slave,
                "both": run.kill_both,
            }[victim]
            for number in range(kills):
                try:
                    await once()
                except (AssertionError, trio.TooSlowError) as exc:
                    exc.add_note(f"kill {number} of seed {seed}")
                    raise
                run.outcome.kills += 1
            return await run.finish()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(cluster.stop)


class _Run:
    """One pair, killed many times."""

    def __init__(
        self, cluster: Cluster, client: RemotingClient, rng: random.Random, *, is_sync: bool
    ) -> None:
        self.outcome = Outcome()
        self._cluster = cluster
        self._client = client
        self._rng = rng
        self._is_sync = is_sync
        self._master, self._slave = cluster.addresses["one"], cluster.addresses["two"]
        self._producer, self._consumer = Producer(client), Consumer(client)
        self._compared = 0

    async def kill_master(self) -> None:
        last = await self._load_and_kill("one")
        settled = await wait_settled(self._client, self._slave)
        # A record at the end of the slave may be half there.
        self._compare(settled.end)
        lost = await self._lost()
        if self._is_sync:
            assert not lost, f"{len(lost)} acknowledged messages are missing"
        else:
            self._check_loss(lost, last, settled)
        await self._start("one")

    async def kill_both(self) -> None:
        await self._load_and_kill("one", "two")
        names = ["one", "two"]
        self._rng.shuffle(names)
        await self._start(*names)
        await self._check_copy()

    async def kill_slave(self) -> None:
        async with self._producer.sending(self._master):
            await trio.sleep(self._moment())
            await self._kill("two")
            await trio.sleep(self._moment())
            await self._start("two")
        await self._check_copy()

    async def finish(self) -> Outcome:
        """Compare all of it once more."""
        self._compared = 0
        await self._check_copy()
        outcome = self.outcome
        outcome.acknowledged = len(self._producer.acknowledged)
        outcome.compared_bytes = self._compared
        outcome.codes = dict(sorted(self._producer.codes.items()))
        outcome.unanswered = self._producer.unanswered
        return outcome

    def _moment(self) -> float:
        """In the middle of anything: right away, or after many messages."""
        rng = self._rng
        return rng.choice((rng.uniform(0.01, 0.1), rng.uniform(0.1, 0.8)))

    async def _load_and_kill(self, *names: str) -> HaStatusBody:
        """Send for a while, kill; return what the master said of its slave shortly before."""
        last = [await status(self._client, self._master)]

        async def watch() -> None:
            while True:
                try:
                    last.append(await status(self._client, self._master))
                except RmqError:
                    return
                del last[:-1]
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._producer.send_until_gone, self._master)
            nursery.start_soon(watch)
            await trio.sleep(self._moment())
            await self._kill(*names)
        return last[0]

    async def _kill(self, *names: str) -> None:
        brokers = [self._cluster.brokers[name] for name in names]
        await trio.to_thread.run_sync(kill_together, brokers)

    async def _start(self, *names: str) -> None:
        started = time.monotonic()
        for name in names:
            await trio.to_thread.run_sync(self._cluster.brokers[name].start)
        await wait_in_sync(self._client, self._master)
        self.outcome.restart_s.append(time.monotonic() - started)

    async def _check_copy(self) -> None:
        """See that the slave gets all that the master has."""
        await wait_in_sync(self._client, self._master)
        end = (await status(self._client, self._master)).end
        await wait_end(self._client, self._slave, end)
        self._compare(end)
        lost = await self._lost()
        assert not lost, f"{len(lost)} acknowledged messages are missing on the slave"

    def _compare(self, end: int) -> None:
        """Compare what was not compared before."""
        one, two = (self._cluster.store_of(name) for name in ("one", "two"))
        assert_same_log(one, two, self._compared, end)
        self._compared = end

    async def _lost(self) -> set[bytes]:
        with trio.fail_after(30):
            await self._consumer.read_all(self._slave)
        return set(self._producer.acknowledged) - set(self._consumer.bodies)

    def _check_loss(self, lost: set[bytes], last: HaStatusBody, settled: HaStatusBody) -> None:
        """See that no more is missing on the slave than its master said, and count it."""
        if not lost:
            return
        end = max(self._producer.acknowledged[body] for body in lost)
        missing = end + 1 - settled.end
        lag = max(slave.lag_bytes for slave in last.slaves if slave.connected)
        appended_since = max(0, end + 1 - last.end)
        assert missing <= lag + appended_since, (
            f"{missing} bytes are missing, but the lag was {lag} and {appended_since} came since"
        )
        self.outcome.lost += len(lost)
        self.outcome.lost_bytes_max = max(self.outcome.lost_bytes_max, missing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--victim", choices=("master", "slave", "both"), default="master")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-kills-") as folder:
        outcome = trio.run(
            lambda: kill_brokers(
                Path(folder), args.kills, mode=args.mode, victim=args.victim, seed=args.seed
            )
        )
    names = {
        ResponseCode(code).name if code in list(ResponseCode) else str(code): count
        for code, count in outcome.codes.items()
    }
    mean_s = sum(outcome.restart_s) / len(outcome.restart_s)
    lost = ""
    if args.victim == "master":
        lost = (
            f" {outcome.lost} not on the slave when its master died (at most"
            f" {outcome.lost_bytes_max} bytes, all there when it was back),"
        )
    sys.stdout.write(
        f"{outcome.kills} kills of {args.victim}, {args.mode}: {outcome.acknowledged} messages"
        f" acknowledged,{lost} none missing in the end, {outcome.compared_bytes} bytes compared,"
        f" answers {names}, {outcome.unanswered} sends without one, in sync again after"
        f" {mean_s:.2f} s ({max(outcome.restart_s):.2f} s at most)\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
