"""Kills, hangs, switches and promotes a pair under the load of our client, round after round.

    python -m tests.ha.processes.rounds --rounds 200 --seed 1

Promotions never accept a loss. One that is refused is counted with its reason, and the old master
comes back. At the end everything that was answered SEND_OK must be there, and both logs equal.
"""

# ruff: noqa: T201 - standard output is what it is for

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rmq.client import Message, open_producer
from rmq.errors import RmqError
from tests.ha.processes.load import TOPIC, Consumer
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.ha.processes.pair import Pair

SENDERS: Final = 8
SETTINGS: Final = {"registerNameServerPeriod": "10000"}


class Account:
    """What became of messages."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.statuses: Counter[str] = Counter()
        self.longest_gap_s = 0.0
        self.gap_of: Counter[str] = Counter()
        self._last_at = time.monotonic()
        self._number = 0

    def next(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    def sent(self, body: bytes, status: str) -> None:
        self.statuses[status] += 1
        if status == "OK":
            self.acknowledged.add(body)
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last_at)
        self._last_at = now

    def begin_round(self) -> None:
        self.longest_gap_s, self._last_at = 0.0, time.monotonic()


@asynccontextmanager
async def producing(nameserver: str, account: Account) -> AsyncIterator[None]:
    """Send all the time."""
    is_over = False

    async def send() -> None:
        while not is_over:
            body = account.next()
            try:
                result = await producer.send(Message(TOPIC, body))
            except RmqError as exc:
                account.statuses[type(exc).__name__] += 1
            else:
                account.sent(body, result.status.name)

    async with open_producer(nameserver, "rounds") as producer, trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(send)
        yield
        is_over = True


class Rounds:
    """Who is who, and what is done to them."""

    def __init__(self, it: Pair, chance: random.Random, outcomes: Counter[str]) -> None:
        self.it = it
        self.chance = chance
        self.outcomes = outcomes
        self.master, self.slave = MASTER, SLAVE

    async def wait_well(self) -> None:
        """Wait until the slave is in sync and all is recorded."""
        it = self.it
        await it.until(
            self.master,
            lambda said: bool(said.in_sync) and not said.waits_for and said.in_force == "sync",
            "the pair is in sync",
            60,
        )

    async def promote(self, action: str) -> bool:
        it = self.it
        try:
            await it.ha.promote(it.address(self.slave), accept_loss=False, mode=None)
        except RmqError as exc:
            reason = str(exc).rpartition("may be lost: ")[2][:60]
            self.outcomes[f"{action}: refused: {reason}"] += 1
            return False
        self.outcomes[f"{action}: promoted"] += 1
        self.master, self.slave = self.slave, self.master
        return True

    async def take_back(self) -> None:
        """Make the old master a slave of the new one."""
        it, old = self.it, self.slave
        await it.until(old, lambda said: said.state != "writable", "the old master stops", 60)
        if (await it.status(old)).role == "MASTER":
            await it.ha.demote(it.address(old), None)
        said = await it.until(
            old, lambda said: said.state in ("diverged", "streaming"), "it has a master", 60
        )
        if said.state == "diverged":
            self.outcomes["resync"] += 1
            await it.ha.resync(it.address(old), dry_run=False)

    async def planned(self) -> None:
        await self.promote("planned")

    async def kill(self) -> None:
        old = self.master
        await self.it.kill(old)
        await trio.sleep(self.chance.choice((0.0, 0.3, 2.0)))
        is_promoted = await self.promote("kill")
        await self.it.start(old)
        if is_promoted:
            await self.take_back()

    async def hang(self) -> None:
        process = self.it.process(self.master)
        process.signal(signal.SIGSTOP)
        await trio.sleep(self.chance.choice((0.1, 2.5)))
        is_promoted = await self.promote("hang")
        process.signal(signal.SIGCONT)
        if is_promoted:
            await self.take_back()

    async def kill_slave(self) -> None:
        await self.it.kill(self.slave)
        await trio.sleep(0.5)
        await self.it.start(self.slave)
        self.outcomes["slave killed"] += 1

    async def hang_slave(self) -> None:
        process = self.it.process(self.slave)
        process.signal(signal.SIGSTOP)
        await trio.sleep(2.5)
        process.signal(signal.SIGCONT)
        self.outcomes["slave hung"] += 1

    async def switch(self) -> None:
        """Async for a while; perhaps the slave is gone meanwhile, and the master then."""
        it = self.it
        is_cut = self.chance.random() < 0.5
        if is_cut:
            it.process(self.slave).signal(signal.SIGSTOP)
        await it.ha.configure(it.address(self.master), {"brokerRole": "ASYNC_MASTER"})
        await it.until(self.master, lambda said: said.in_force == "async", "it is async")
        await trio.sleep(0.5)
        if is_cut:
            old = self.master
            await it.kill(old)
            it.process(self.slave).signal(signal.SIGCONT)
            assert not await self.promote("async"), "a promotion lost what was acknowledged"
            await it.start(old)
        else:
            self.outcomes["switched"] += 1
        await it.ha.configure(it.address(self.master), {"brokerRole": "SYNC_MASTER"})


async def run(folder: Path, rounds: int, seed: int) -> int:
    """Live through them; return the exit code."""
    chance, outcomes, account = random.Random(seed), Counter[str](), Account()
    gaps: dict[str, float] = {}
    async with running_pair(folder, settings=SETTINGS) as it:
        pair = Rounds(it, chance, outcomes)
        actions = (
            pair.planned,
            pair.kill,
            pair.hang,
            pair.kill_slave,
            pair.hang_slave,
            pair.switch,
        )
        async with producing(it.cluster.nameserver_address, account):
            for number in range(rounds):
                await pair.wait_well()
                action = chance.choice(actions)
                account.begin_round()
                await action()
                await pair.wait_well()
                await trio.sleep(0.2)
                name = action.__name__
                gaps[name] = max(gaps.get(name, 0.0), account.longest_gap_s)
                if not (number + 1) % 20:
                    print(f"{number + 1} rounds, {len(account.acknowledged)} SEND_OK", flush=True)
        await pair.wait_well()
        await it.check_equal(pair.master, pair.slave)
        consumer = Consumer(it.client)
        await consumer.read_all(it.address(pair.master))
        lost = account.acknowledged - set(consumer.bodies)
    print(f"{rounds} rounds, seed {seed}: {len(account.acknowledged)} SEND_OK, {len(lost)} lost")
    print("answers:", dict(account.statuses))
    print("longest time without an answer:", {k: f"{v:.2f} s" for k, v in sorted(gaps.items())})
    for what, count in sorted(outcomes.items()):
        print(f"  {count:>5}  {what}")
    return 1 if lost or not account.acknowledged else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return trio.run(run, Path(folder), arguments.rounds, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
