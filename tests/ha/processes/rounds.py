"""Kills, hangs, cuts off, switches and promotes a pair under load, round after round.

    python -m tests.ha.processes.rounds --rounds 200 --seed 1
    python -m tests.ha.processes.rounds --only planned --rounds 10

Producers send plain, delayed and transactional messages, and a consumer group reads them, all the
time. Promotions never accept a loss. One that is refused is counted with its reason, and the old
master comes back. At the end everything that was answered SEND_OK (of transactions: what was
committed) must be in the log and with the group, nothing that was rolled back may be, and both logs
must be equal. The exit code is 1 if anything is missing.

With `--minutes` no round begins later than that. With `--pause` a random time of at most so many
seconds passes before each: without, a stock producer has always looked at the route just before.
The load here is that of our client; `interop/checks/java-rounds` does the same with the stock one.
"""

# ruff: noqa: T201 - standard output is what it is for

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.errors import RmqError
from tests.ha.processes.load import Consumer
from tests.ha.processes.network import build_network
from tests.ha.processes.pair import MASTER, SLAVE, running_pair
from tests.ha.processes.rounds_account import Account
from tests.ha.processes.rounds_load import OurLoad
from tests.ha.processes.rounds_readers import Readers
from tests.ha.processes.rounds_result import Result
from tests.ha.processes.surroundings import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.ha.processes.network import Network
    from tests.ha.processes.pair import Pair
    from tests.ha.processes.rounds_account import Load, Trouble

    Prepare = Callable[[Path], Load]

SETTINGS: Final = {
    "registerNameServerPeriod": "10000",
    # Twelve times as often as by default, and given up after as long.
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "5000",
    "transactionCheckMax": "180",
}
SYNC: Final = "SYNC_MASTER"
WELL_S: Final = 60.0
OK_S: Final = 90.0
"""So long producers may take to find a master: stock ones look at the route every 30 s."""
FLUSH_WAIT_S: Final = 180.0
"""So long delays, questions about transactions and consumers may take at the end."""
ACTIONS: Final = ("planned", "kill", "hang", "cut", "kill_slave", "hang_slave", "switch")
NOTHING_DONE: Final = 77
"""The exit code where nothing that was asked for can be done on this machine."""


class Rounds:
    """Who is who, and what is done to them."""

    def __init__(
        self, it: Pair, chance: random.Random, network: Network | None, result: Result
    ) -> None:
        self.it = it
        self.chance = chance
        self.network = network
        self.result = result
        self.master, self.slave = MASTER, SLAVE

    def actions(self) -> dict[str, Callable[[], Awaitable[None]]]:
        found: dict[str, Callable[[], Awaitable[None]]] = {
            "planned": self.planned,
            "kill": self.kill,
            "hang": self.hang,
            "kill_slave": self.kill_slave,
            "hang_slave": self.hang_slave,
            "switch": self.switch,
        }
        return found if self.network is None else {**found, "cut": self.cut}

    async def wait_well(self) -> None:
        """Wait until the slave is in sync and all is recorded."""
        await self.it.until(
            self.master,
            lambda said: bool(said.in_sync) and not said.waits_for and said.in_force == "sync",
            "the pair is in sync",
            WELL_S,
        )

    async def repair(self) -> None:
        """Let everybody run who was left dead, hung or cut off."""
        if self.network is not None:
            self.network.wire.heal()
        for name in (MASTER, SLAVE):
            process = self.it.process(name)
            if process.is_running:
                process.signal(signal.SIGCONT)
            else:
                await self.it.start(name)

    async def promote(self, action: str) -> bool:
        it = self.it
        try:
            done = await it.ha.promote(it.address(self.slave), accept_loss=False, mode=None)
        except RmqError as exc:
            reason = str(exc).rpartition("may be lost: ")[2][:100]
            self.result.outcomes[f"{action}: refused: {reason}"] += 1
            return False
        self.result.outcomes[f"{action}: promoted"] += 1
        self.master, self.slave = self.slave, self.master
        if done.mode != SYNC:
            self.result.faults.append(
                f"{action}: the pair was sync, and its new master is {done.mode} in epoch"
                f" {done.epoch}"
            )
            await it.ha.configure(it.address(self.master), {"brokerRole": SYNC})
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
            self.result.outcomes["resync"] += 1
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

    async def cut(self) -> None:
        """Cut the wire between the two, both ways or one; clients reach both of them."""
        assert self.network is not None
        self.network.wire.set(is_cut=True, only_from=self.chance.choice((None, 0, 1)))
        await trio.sleep(self.chance.choice((0.1, 2.5)))
        is_promoted = await self.promote("cut")
        self.network.wire.heal()
        if is_promoted:
            await self.take_back()

    async def kill_slave(self) -> None:
        await self.it.kill(self.slave)
        await trio.sleep(0.5)
        await self.it.start(self.slave)
        self.result.outcomes["slave killed"] += 1

    async def hang_slave(self) -> None:
        process = self.it.process(self.slave)
        process.signal(signal.SIGSTOP)
        await trio.sleep(2.5)
        process.signal(signal.SIGCONT)
        self.result.outcomes["slave hung"] += 1

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
            self.result.outcomes["switched"] += 1
        await it.ha.configure(it.address(self.master), {"brokerRole": SYNC})


class Plan(NamedTuple):
    """How long to go on, and with what."""

    rounds: int
    minutes: float
    pause_s: float
    seed: int
    only: list[str]
    """Nothing but these actions; all of them if there are none."""


async def run(load: Load, network: Network | None, folder: Path, plan: Plan) -> int:
    """Live through them; return the exit code."""
    account = Account()
    result = Result(account)
    try:
        async with running_pair(folder, settings=SETTINGS, network=network) as it:
            pair = Rounds(it, random.Random(plan.seed), network, result)
            readers = Readers(it.client)
            nameserver = it.cluster.nameserver_address
            async with load.running(nameserver, account) as stop, readers.running(nameserver):
                try:
                    await _live_through(pair, readers, result, plan)
                except (AssertionError, RmqError, trio.TooSlowError) as exc:
                    number = len(result.troubles) + 1
                    result.faults.append(f"round {number} ended early: {type(exc).__name__}: {exc}")
                    await pair.repair()
                await stop()
                not_read = await readers.wait_for(account.promised, FLUSH_WAIT_S)
            consumer = Consumer(it.client)
            await consumer.read_all(it.address(pair.master))
            result.judge(readers, consumer.bodies, not_read)
            await pair.wait_well()
            await it.check_equal(pair.master, pair.slave)
    finally:
        # Also when something in between goes wrong: hours may have passed.
        print(f"{len(result.troubles)} rounds, seed {plan.seed}: {account.ok_count} SEND_OK")
        result.show()
    return 1 if result.faults or not account.promised else 0


async def _live_through(pair: Rounds, readers: Readers, result: Result, plan: Plan) -> None:
    it, account = pair.it, result.account
    actions = {
        name: do for name, do in pair.actions().items() if name in plan.only or not plan.only
    }
    deadline = trio.current_time() + plan.minutes * 60
    await _until_more_ok(account)
    for number in range(plan.rounds):
        if trio.current_time() > deadline:
            break
        if plan.pause_s:
            await trio.sleep(pair.chance.uniform(0, plan.pause_s))
        name = pair.chance.choice(list(actions))
        when = f"round {number + 1} ({name})"
        await pair.wait_well()
        await readers.look(it.address(pair.master), f"before {when}")
        account.take_trouble()
        master = pair.master
        await actions[name]()
        is_new = pair.master != master
        await readers.look(it.address(pair.master), f"after {when}", is_new_master=is_new)
        await pair.wait_well()
        await _until_more_ok(account)
        await trio.sleep(0.5)
        result.troubles.append((name, account.take_trouble()))
        _show_round(when, account, result.troubles[-1][1], is_new=is_new)


async def _until_more_ok(account: Account) -> None:
    """Wait until the load goes on: its producers may be looking for the master."""
    before = account.ok_count
    with trio.fail_after(OK_S):
        while account.ok_count < before + 50:  # noqa: ASYNC110 - told by other tasks
            await trio.sleep(0.05)


def _show_round(when: str, account: Account, trouble: Trouble, *, is_new: bool) -> None:
    print(
        f"{when}: {'another master' if is_new else 'same master'}, {account.ok_count} SEND_OK,"
        f" {trouble.longest_s:.2f} s without an answer, {trouble.longest_ok_s:.2f} s without"
        f" SEND_OK, {trouble.failed} failed",
        flush=True,
    )


def live(prepare: Prepare, description: str, scratch: Path | None = None) -> int:
    """Read the command line and do what it says; return the exit code.

    `prepare` makes the load, given a folder that is there for the run. It is called before there is
    a network for the run, so that it may use that of the machine, but in threads and processes that
    end with it: what goes on has the wrong network. Temporary folders are made in `scratch`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0, help="no round begins later")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between rounds, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", default=[], choices=ACTIONS, help="one action (may be repeated)"
    )
    parser.add_argument("--folder", type=Path, help="where stores and logs are left behind")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    plan = Plan(
        arguments.rounds, arguments.minutes, arguments.pause, arguments.seed, arguments.only
    )
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True)
        return _live_in(arguments.folder, prepare, plan)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        return _live_in(Path(folder), prepare, plan)


def _live_in(folder: Path, prepare: Prepare, plan: Plan) -> int:
    load = prepare(folder)
    network: Network | None = None
    try:
        network = build_network()
    except NotAllowedError as exc:
        print(f"nothing is cut, no network can be made here: {exc}")
    if plan.only == ["cut"] and network is None:
        return NOTHING_DONE
    return trio.run(run, load, network, folder, plan)


def main() -> int:
    return live(lambda _: OurLoad(), (__doc__ or "").partition("\n")[0])


if __name__ == "__main__":
    sys.exit(main())
