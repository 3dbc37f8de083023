"""Nameservers and brokers of rmq as real processes on free ports.

A `Cluster` is nameservers and brokers in a folder. They can be stopped, killed and started again on
the same port and store; whatever still runs at the end is killed.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.remoting.client import open_client
from rmq.remoting.codes import LanguageCode
from tests.e2e.admin import Admin
from tests.e2e.waiting import wait_until
from tests.paths import ROOT
from tests.port_shares import own_share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

HOST: Final = "127.0.0.1"
DELAY_LEVELS: Final = "1s 3s 1s 1s 1s 1s"
"""The first two are told apart by tests of delays; retries begin with the third."""

_ROOT: Final = ROOT
_STOP_S: Final = 10.0
"""A broker has that long to stop after SIGTERM."""

# Below the range that systems take the ports of outgoing connections from: a broker comes back to
# its port after a restart, and no client may have got it meanwhile.
_PORTS: Final = own_share(range(20_000, 32_000))
_given_ports: set[int] = set()
_VIP_DISTANCE: Final = -2
_HA_DISTANCE: Final = 1

_SETTINGS: Final = {
    "brokerClusterName": "E2eCluster",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "metricsPort": "0",
    "messageDelayLevel": DELAY_LEVELS,
    # Small files.
    "mappedFileSizeCommitLog": str(4 * 1024**2),
    "mappedFileSizeConsumeQueue": str(1000 * 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": str(1024**2),
    # A machine that is busy with other things, or whose disk is nearly full, is no reason to refuse
    # messages here.
    "osPageCacheBusyTimeOutMills": "10000",
    "waitTimeMillsInSendQueue": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
}


@final
class Server:
    """A process of `rmq` that may run or not. Each start of it appends to the same log."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = arguments
        self._process: trio.Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Return when it serves."""
        assert not self.is_running, f"{self.name} runs already"
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "rmq", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )

        def is_up() -> bool:
            said = self.log.read_bytes()[offset:]
            assert process.poll() is None, f"{self.name} ended: {said.decode()}"
            return b"boot success" in said

        await wait_until(f"{self.name} to start", is_up, otherwise=self.log.read_text)

    async def stop(self) -> None:
        """Stop it as an operator would; it has to obey in time."""
        process = self._give_up()
        process.terminate()
        with trio.move_on_after(_STOP_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
            raise AssertionError(f"{self.name} did not stop within {_STOP_S:g} s of SIGTERM")
        assert process.returncode == 0, f"{self.name} stopped with {process.returncode}"

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        process = self._give_up()
        process.kill()
        await process.wait()

    def _give_up(self) -> trio.Process:
        assert self._process is not None, f"{self.name} does not run"
        process, self._process = self._process, None
        return process


@dataclass(frozen=True)
class Member:
    """A nameserver or a broker, running or not."""

    name: str
    address: str
    server: Server


@final
@dataclass
class Cluster:
    """Nameservers and brokers. Use `open_cluster`."""

    folder: Path
    admin: Admin
    nameservers: list[Member] = field(default_factory=list)
    brokers: list[Member] = field(default_factory=list)

    @property
    def nameserver(self) -> str:
        """The addresses of all nameservers, as clients are told them."""
        return ";".join(nameserver.address for nameserver in self.nameservers)

    async def add_nameserver(self) -> Member:
        """Start one more nameserver; only brokers that are added later register there."""
        name = f"nameserver-{len(self.nameservers)}"
        port = free_port()
        folder = self._folder_of(name)
        config = folder / "namesrv.conf"
        config.write_text(f"kvConfigPath={folder / 'kvConfig.json'}\n")
        arguments = ["namesrv", "-c", str(config), "--host", HOST, "--port", str(port)]
        return await self._start(name, port, arguments, self.nameservers)

    async def add_broker(self, name: str) -> Member:
        """Start one more broker; all nameservers know it when this returns."""
        port = free_port(_VIP_DISTANCE, _HA_DISTANCE)
        folder = self._folder_of(name)
        config = folder / "broker.conf"
        settings = {
            **_SETTINGS,
            "brokerName": name,
            "listenPort": str(port),
            "storePathRootDir": str(folder / "store"),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments = ["broker", "-c", str(config), "-n", self.nameserver]
        return await self._start(name, port, arguments, self.brokers)

    async def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic at every broker; clients that start from now on find it."""
        for broker in self.brokers:
            await self.admin.create_topic(broker.address, topic, queues)
        names = {broker.name for broker in self.brokers}

        async def is_known() -> bool:
            return all(
                [
                    await self.admin.brokers_of(nameserver.address, topic) == names
                    for nameserver in self.nameservers
                    if nameserver.server.is_running
                ]
            )

        await wait_until(f"a route to {topic}", is_known)

    async def kill_all(self) -> None:
        """End whatever still runs."""
        for member in (*self.brokers, *self.nameservers):
            if member.server.is_running:
                await member.server.kill()

    async def queue_sizes(self, topic: str, *, queues: int = 4) -> list[int]:
        """Return how many messages each queue of a topic has got, broker by broker."""
        return [
            await self.admin.max_offset(broker.address, topic, queue_id)
            for broker in self.brokers
            for queue_id in range(queues)
        ]

    async def wait_consumed(self, topic: str, group: str, *, queues: int = 4) -> None:
        """Return when a group has committed that it got all of a topic."""
        sizes = await self.queue_sizes(topic, queues=queues)
        offsets: list[int] = []

        async def is_so() -> bool:
            offsets[:] = [
                await self.admin.consumer_offset(broker.address, group, topic, queue_id)
                for broker in self.brokers
                for queue_id in range(queues)
            ]
            return offsets == sizes

        await wait_until(f"offsets {sizes} of {group}", is_so, otherwise=lambda: offsets)

    def _folder_of(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    async def _start(
        self, name: str, port: int, arguments: Sequence[str], members: list[Member]
    ) -> Member:
        server = Server(name, arguments, self.folder / name / "log")
        member = Member(name, f"{HOST}:{port}", server)
        members.append(member)
        await server.start()
        return member


@asynccontextmanager
async def open_cluster(folder: Path, *, nameservers: int = 1) -> AsyncIterator[Cluster]:
    """Run nameservers, and brokers that are added, for the length of a block."""
    # A broker asked by a C++ program speaks to consumers as C++ ones understand it.
    async with open_client(language=LanguageCode.CPP) as client:
        cluster = Cluster(folder, Admin(client))
        try:
            for _ in range(nameservers):
                await cluster.add_nameserver()
            yield cluster
        finally:
            with trio.CancelScope(shield=True):
                await cluster.kill_all()


def free_port(*distances: int) -> int:
    """Return a port that is free, and so are the ones at the given distances from it.

    None of them is given out again.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        ports = {port, *(port + distance for distance in distances)}
        if _given_ports.isdisjoint(ports) and all(map(_is_free, ports)):
            _given_ports.update(ports)
            return port
    raise RuntimeError(f"no port between {_PORTS[0]} and {_PORTS[-1]} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
