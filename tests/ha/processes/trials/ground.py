"""Nameservers and brokers for one trial, the gates in front of them, and what is asked of them.

async with place.pair() as it:
    await it.send("one", 500)
    it.gates["one"].cut()
    it.kill("one")
    said = await it.rmq("ha", "promote", "-b", it.address("two"), "--yes")
    lost = await it.lost_at("two")
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import RmqError
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.processes.cluster import SEGMENT_BYTES
from tests.ha.processes.load import Consumer, Producer, create_topic, status, wait_topic
from tests.ha.processes.network import OUTSIDE
from tests.ha.processes.pair import QUICK
from tests.ha.processes.trials.gate import Gate
from tests.ha.processes.trials.ports import GATE_HOST, HOST, free_port
from tests.ha.processes.trials.programs import Program, Said, run_command

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.remoting.bodies import HaStatusBody
    from rmq.remoting.client import RemotingClient
    from tests.ha.processes.network import Network

NAME: Final = "broker-a"
MASTER: Final = "one"
SLAVE: Final = "two"
THIRD: Final = "three"
WAIT_S: Final = 30.0
POLL_S: Final = 0.02
SENDERS: Final = 16
OK: Final = ResponseCode.SUCCESS
PERIOD: Final = {"registerNameServerPeriod": "10000"}
"""The shortest there is, so that what lasts until the next registration is seen."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial finds the programs, and room for its files."""

    code: Path
    folder: Path
    network: Network | None = None
    """A network with a wire that can be made bad, for trials that ask for one."""

    @property
    def host(self) -> str:
        """Where nameservers are, and brokers that do not live on either side of a wire."""
        return HOST if self.network is None else OUTSIDE

    @asynccontextmanager
    async def ground(self, *, nameservers: int = 1) -> AsyncIterator[Ground]:
        """Give a trial its ground; whatever was started on it is stopped at the end."""
        async with open_client() as client, trio.open_nursery() as nursery:
            it = Ground(self, client, nursery, nameservers)
            try:
                yield it
            finally:
                with trio.CancelScope(shield=True):
                    await it.stop_all()
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def pair(
        self,
        *,
        role: str = "SYNC_MASTER",
        settings: Mapping[str, str] | None = None,
        nameservers: int = 1,
    ) -> AsyncIterator[Ground]:
        """Start a master and a slave that is in sync."""
        async with self.ground(nameservers=nameservers) as it:
            await it.add(MASTER, role, 0, settings)
            await it.add(SLAVE, "SLAVE", 1, settings)
            await it.start_all()
            await it.until_in_sync(MASTER)
            await wait_topic(it.client, it.address(SLAVE))
            yield it


class Ground:
    """What is started for one trial."""

    def __init__(
        self, place: Place, client: RemotingClient, nursery: trio.Nursery, nameservers: int
    ) -> None:
        self.place = place
        self.client = client
        self.nursery = nursery
        self.nameservers: dict[str, Program] = {}
        """By address."""
        self.brokers: dict[str, Program] = {}
        self.ports: dict[str, int] = {}
        self.hosts: dict[str, str] = {}
        self.gates: dict[str, Gate] = {}
        """By the name of a broker: what its slaves come through."""
        self.client_gates: dict[str, Gate] = {}
        """What other brokers come through that ask it as clients do, for those that have one."""
        self.producer = Producer(client)
        for number in range(nameservers):
            self._add_nameserver(number)

    # --- who is there ------------------------------------------------------------------------

    def _add_nameserver(self, number: int) -> None:
        folder, port, host = self.place.folder, free_port(), self.place.host
        conf = folder / f"namesrv{number}.conf"
        conf.write_text(
            f"bindAddress={host}\nlistenPort={port}\nmetricsPort=0\n"
            f"kvConfigPath={folder / f'kv{number}.json'}\n"
        )
        arguments = ["namesrv", "-c", str(conf)]
        program = Program(f"namesrv{number}", folder, self.place.code, arguments)
        self.nameservers[f"{host}:{port}"] = program

    @property
    def namesrv_addr(self) -> str:
        return ";".join(self.nameservers)

    async def add(
        self,
        name: str,
        role: str,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
        *,
        has_client_gate: bool = False,
        side: int | None = None,
    ) -> Program:
        """Prepare a broker: with its gates, or on one side of the wire."""
        port = free_port()
        network = self.place.network
        host = HOST if network is None or side is None else network.host(side)
        gate_host = GATE_HOST if side is None else host
        wanted = {
            "brokerClusterName": "C",
            "brokerName": NAME,
            "brokerId": str(broker_id),
            "brokerRole": role,
            "brokerIP1": gate_host if has_client_gate else host,
            "brokerIP2": gate_host,
            "bindAddress": host,
            "listenPort": str(port),
            "metricsPort": "0",
            "namesrvAddr": self.namesrv_addr,
            "storePathRootDir": str(self.store_of(name)),
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            # No send is refused because the machine is busy.
            "waitTimeMillsInSendQueue": "10000",
            "mappedFileSizeConsumeQueue": "60000",
            "maxHashSlotNum": "20000",
            "maxIndexNum": "80000",
            "diskMaxUsedSpaceRatio": "95",
            "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
            "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
            "shutdownDrainTime": "100",
            **QUICK,
            **PERIOD,
            **(settings or {}),
        }
        conf = self.place.folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        arguments = ["broker", "-c", str(conf)]
        program = Program(name, self.place.folder, self.place.code, arguments)
        self.brokers[name], self.ports[name], self.hosts[name] = program, port, host
        if network is not None and side is not None:
            program.surroundings = network.surroundings(side)
            return program
        self.gates[name] = Gate(port + 1)
        await self.nursery.start(self.gates[name].run)
        if has_client_gate:
            self.client_gates[name] = Gate(port)
            await self.nursery.start(self.client_gates[name].run)
        return program

    def address(self, name: str) -> str:
        """Return where clients find a broker, past its gates."""
        return f"{self.hosts[name]}:{self.ports[name]}"

    def ha_address(self, name: str) -> str:
        """Return where slaves find a broker, past its gate."""
        return f"{self.hosts[name]}:{self.ports[name] + 1}"

    def store_of(self, name: str) -> Path:
        return self.place.folder / name

    # --- starting and ending -----------------------------------------------------------------

    async def start_all(self) -> None:
        """Start all nameservers and brokers, and create the topic at the first master."""
        programs = (*self.nameservers.values(), *self.brokers.values())
        for program in programs:
            program.launch()
        for program in programs:
            await program.ready()
        await self.create_topic(next(iter(self.brokers)))

    async def create_topic(self, name: str) -> None:
        """Create the topic as soon as the broker takes it."""
        with trio.fail_after(WAIT_S):
            while True:
                try:
                    await create_topic(self.client, self.address(name))
                except (RmqError, AssertionError):
                    await trio.sleep(POLL_S)
                else:
                    return

    async def start(self, *names: str) -> None:
        for name in names:
            for gate in self._gates_of(name):
                gate.heal()
            self.brokers[name].launch()
        for name in names:
            await self.brokers[name].ready()

    def kill(self, *names: str) -> None:
        """Kill brokers; their gates refuse connections as their ports do."""
        for name in names:
            self.brokers[name].kill()
            for gate in self._gates_of(name):
                gate.cut()

    def _gates_of(self, name: str) -> list[Gate]:
        found = (self.gates.get(name), self.client_gates.get(name))
        return [gate for gate in found if gate is not None]

    def signal(self, name: str, number: signal.Signals) -> None:
        self.brokers[name].signal(number)

    async def stop_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for program in (*self.brokers.values(), *self.nameservers.values()):
                nursery.start_soon(program.stop)

    # --- asking ------------------------------------------------------------------------------

    async def rmq(self, *arguments: str) -> Said:
        """Run a command of the same code as the brokers."""
        return await run_command(self.place.code, *arguments)

    async def promote(self, name: str, *options: str) -> Said:
        return await self.rmq("ha", "promote", "-b", self.address(name), "--yes", *options)

    async def health(self, *options: str) -> Said:
        """Ask for the state of all, as an operator does."""
        return await self.rmq("ha", "status", "-n", self.namesrv_addr, "--name", NAME, *options)

    async def status(self, name: str) -> HaStatusBody:
        return await status(self.client, self.address(name))

    async def until(
        self, name: str, is_so: Callable[[HaStatusBody], bool], what: str, wait_s: float = WAIT_S
    ) -> HaStatusBody:
        """Wait until the status of a broker is as wanted."""
        last: HaStatusBody | None = None
        with trio.move_on_after(wait_s):
            while True:
                try:
                    last = await self.status(name)
                    if is_so(last):
                        return last
                except RmqError:
                    pass
                await trio.sleep(POLL_S)
        raise AssertionError(f"not so after {wait_s:g} s: {what}; {name} says {last}")

    async def until_in_sync(self, master: str, count: int = 1) -> HaStatusBody:
        return await self.until(
            master,
            lambda said: len(said.in_sync) >= count and not said.waits_for,
            f"{count} slaves are in sync",
        )

    async def until_out_of_sync(self, master: str) -> HaStatusBody:
        return await self.until(master, lambda said: not said.in_sync, "no slave is in sync")

    async def listed(self, broker_id: int = 0) -> list[str | None]:
        """Return whom each nameserver that answers lists, by default as master."""
        found: list[str | None] = []
        for address in self.nameservers:
            try:
                answer = await self.client.request(
                    address, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=5
                )
            except RmqError:
                continue
            data = ClusterInfo.decode(answer.body).broker_addr_table.get(NAME)
            found.append(None if data is None else data.broker_addrs.get(broker_id))
        return found

    async def until_listed(self, name: str, wait_s: float = WAIT_S) -> None:
        """Wait until all nameservers list a broker as master."""
        port = f":{self.ports[name]}"
        found: list[str | None] = []
        with trio.move_on_after(wait_s):
            while True:
                found = await self.listed()
                if found and all((each or "").endswith(port) for each in found):
                    return
                await trio.sleep(POLL_S)
        raise AssertionError(f"{name} is not listed as master after {wait_s:g} s: {found}")

    # --- messages ----------------------------------------------------------------------------

    async def send(self, name: str, count: int) -> Counter[int]:
        """Send so many messages; return the codes of the answers. -1: there was none."""
        left = count
        before = self.producer.codes.copy()
        unanswered = self.producer.unanswered

        async def send() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.producer.send_one(self.address(name))

        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(send)
        codes = Counter({code: n - before[code] for code, n in self.producer.codes.items()})
        codes[-1] = self.producer.unanswered - unanswered
        return +codes

    @property
    def acknowledged(self) -> int:
        """How many messages were answered SEND_OK so far."""
        return len(self.producer.acknowledged)

    async def lost_at(self, name: str) -> int:
        """Return how many messages that were answered SEND_OK a consumer does not get there."""
        consumer = Consumer(self.client)
        await consumer.read_all(self.address(name))
        return len(set(self.producer.acknowledged) - set(consumer.bodies))
