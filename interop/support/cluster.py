"""A nameserver and brokers to check clients against: those of rmq, or the stock ones.

Both kinds are given the same configuration files and are run as processes of their own. Checks are
written for rmq; the same check against stock servers shows that what it expects is what RocketMQ
does.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from interop.support.java import fetch_jars, running_java
from interop.support.processes import running_process
from interop.support.stock import (
    HA_DISTANCE,
    VIP_DISTANCE,
    ServerHome,
    free_port,
    wait_listening,
    write_properties,
)
from interop.support.waiting import wait_until
from rmq.errors import RmqError
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

CLUSTER: Final = "InteropCluster"

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_SERVERS_POM: Final = _ROOT / "interop" / "checks" / "java-servers" / "pom.xml"
_REGISTRATION_TIMEOUT_S: Final = 30
_STOP_TIMEOUT_S: Final = 60
_ASK_TIMEOUT_S: Final = 3
_LOGGED_ERROR: Final = re.compile(r"^\S+ (ERROR|CRITICAL) |^Traceback ")


class Against(StrEnum):
    """Whose servers."""

    RMQ = "rmq"
    STOCK = "stock"


class Launcher(Protocol):
    """Runs servers of one kind, each for the length of a block."""

    def nameserver(
        self, config: Path, *, log: Path
    ) -> AbstractAsyncContextManager[trio.Process]: ...

    def broker(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]: ...


@final
class RmqLauncher:
    """The servers of this project."""

    def nameserver(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        return self._run("namesrv", config, log)

    def broker(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        return self._run("broker", config, log)

    def _run(
        self, command: str, config: Path, log: Path
    ) -> AbstractAsyncContextManager[trio.Process]:
        return running_process(
            [sys.executable, "-m", "rmq", command, "-c", str(config)],
            log=log,
            environment={**os.environ, "PYTHONPATH": str(_ROOT)},
        )


@final
class StockLauncher:
    """The servers of RocketMQ 4.9.7 (4.9.8 of them was never published)."""

    def __init__(
        self, jars: Path, folder: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        self._home = ServerHome(jars, folder, properties or {})

    def nameserver(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        return self._run("org.apache.rocketmq.namesrv.NamesrvStartup", config, log)

    def broker(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        return self._run("org.apache.rocketmq.broker.BrokerStartup", config, log)

    def _run(
        self, main_class: str, config: Path, log: Path
    ) -> AbstractAsyncContextManager[trio.Process]:
        return running_java(self._home.program(main_class, config), log=log)


@dataclass(frozen=True)
class Nameserver:
    """A nameserver that may run or not."""

    port: int
    folder: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        return self.folder / "namesrv.conf"


@dataclass(frozen=True)
class Broker:
    """A broker that may run or not; its store stays where it is in between."""

    name: str
    port: int
    folder: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        return self.folder / "broker.conf"


@dataclass(frozen=True)
class _Running:
    process: trio.Process
    stack: AsyncExitStack


@final
@dataclass
class Cluster:
    """Servers of one kind in one folder."""

    folder: Path
    launcher: Launcher
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of all servers, in their configuration files."""
    nameservers: list[Nameserver] = field(default_factory=list)
    _running: dict[Path, _Running] = field(default_factory=dict)

    @property
    def nameserver(self) -> str:
        """The addresses of all nameservers, as clients are told them."""
        return ";".join(nameserver.address for nameserver in self.nameservers)

    def logged_errors(self) -> list[str]:
        """Return what servers had to say that no client should ever make them say."""
        return [
            f"{log.parent.name}: {line}"
            for log in sorted(self.folder.glob("*/log"))
            for line in log.read_text(errors="replace").splitlines()
            if _LOGGED_ERROR.search(line)
        ]

    # ---- nameservers -----------------------------------------------------------------------------

    async def add_nameserver(self, settings: Mapping[str, str] | None = None) -> Nameserver:
        """Start one more nameserver; brokers that start afterwards register there, too."""
        folder = self._folder(f"nameserver-{len(self.nameservers)}")
        nameserver = Nameserver(free_port(), folder)
        write_properties(
            nameserver.config,
            {
                "listenPort": str(nameserver.port),
                "kvConfigPath": str(folder / "kvConfig.json"),
                **self.settings,
                **(settings or {}),
            },
        )
        await self.start_nameserver(nameserver)
        self.nameservers.append(nameserver)
        return nameserver

    async def start_nameserver(self, nameserver: Nameserver) -> None:
        """Start one again that was killed."""
        folder = nameserver.folder
        log = folder / "log"
        await self._start(folder, self.launcher.nameserver(nameserver.config, log=log))
        await wait_listening(self._running[folder].process, nameserver.port, log)

    async def kill_nameserver(self, nameserver: Nameserver) -> None:
        """End it in the middle of what it does; it keeps its place among the others."""
        await self._kill(nameserver.folder)

    async def stop_nameserver(self, nameserver: Nameserver) -> None:
        await self._stop(nameserver.folder)
        self.nameservers.remove(nameserver)

    # ---- brokers ---------------------------------------------------------------------------------

    def place_broker(self, name: str, *, folder: str | None = None) -> Broker:
        """Choose where a broker will be; a slave has the name of its master, and a `folder`."""
        return Broker(name, free_port(VIP_DISTANCE, HA_DISTANCE), self._folder(folder or name))

    async def start_broker(self, broker: Broker, settings: Mapping[str, str]) -> None:
        """Start a broker, new or again; it is registered everywhere when this returns."""
        store = broker.folder / "store"
        write_properties(
            broker.config,
            {
                "brokerClusterName": CLUSTER,
                "brokerName": broker.name,
                "brokerId": "0",
                "listenPort": str(broker.port),
                "haListenPort": str(broker.port + HA_DISTANCE),
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "namesrvAddr": self.nameserver,
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
                "diskMaxUsedSpaceRatio": "95",
                **self.settings,
                **settings,
            },
        )
        log = broker.folder / "log"
        await self._start(broker.folder, self.launcher.broker(broker.config, log=log))
        await wait_listening(self._running[broker.folder].process, broker.port, log)
        broker_id = int(settings.get("brokerId", 0))
        for nameserver in self.nameservers:
            await _wait_registered(nameserver.address, broker, broker_id)

    async def stop_broker(self, broker: Broker) -> None:
        """Stop a broker as an operator would."""
        await self._stop(broker.folder)

    async def kill_broker(self, broker: Broker) -> None:
        """End a broker in the middle of whatever it does."""
        await self._kill(broker.folder)

    def pid_of(self, broker: Broker) -> int:
        """Return the process of a broker that runs."""
        return self._running[broker.folder].process.pid

    # ---- processes -------------------------------------------------------------------------------

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    async def _start(
        self, folder: Path, running: AbstractAsyncContextManager[trio.Process]
    ) -> None:
        stack = AsyncExitStack()
        self._running[folder] = _Running(await stack.enter_async_context(running), stack)

    async def _stop(self, folder: Path) -> None:
        running = self._running.pop(folder)
        running.process.terminate()
        with trio.move_on_after(_STOP_TIMEOUT_S):
            await running.process.wait()
        stopped = running.process.poll() is not None
        await running.stack.aclose()
        if not stopped:
            raise RuntimeError(f"{folder.name} still ran {_STOP_TIMEOUT_S} s after SIGTERM")

    async def _kill(self, folder: Path) -> None:
        running = self._running.pop(folder)
        running.process.kill()
        await running.stack.aclose()

    async def aclose(self) -> None:
        """End everything that still runs, the last one first."""
        while self._running:
            _, running = self._running.popitem()
            await running.stack.aclose()


async def _wait_registered(nameserver: str, broker: Broker, broker_id: int) -> None:
    async with open_client() as client:

        async def registered() -> bool:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            try:
                answer = await client.request(nameserver, code, timeout_s=_ASK_TIMEOUT_S)
            except RmqError:
                return False
            info = ClusterInfo.decode(answer.body)
            known = info.broker_addr_table.get(broker.name)
            return known is not None and known.broker_addrs.get(broker_id) == broker.address

        await wait_until(
            f"{broker.name} to register", registered, timeout_s=_REGISTRATION_TIMEOUT_S
        )


@asynccontextmanager
async def open_cluster(
    against: Against, folder: Path, *, tls: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """Give a cluster without any servers yet; those it gets end with the block.

    `tls` are the `tls.server.*` settings of all of them.
    """
    settings = dict(tls or {})
    if against is Against.STOCK:
        # Stock servers look for these among their system properties.
        jars = await fetch_jars(_SERVERS_POM)
        cluster = Cluster(folder, StockLauncher(jars, folder, settings))
    else:
        cluster = Cluster(folder, RmqLauncher(), settings)
    try:
        yield cluster
    finally:
        with trio.CancelScope(shield=True):
            await cluster.aclose()


def parse_against(arguments: Sequence[str]) -> Against:
    """Return what `--against` says, or the environment, or rmq."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--against",
        type=Against,
        choices=list(Against),
        default=Against(os.environ.get("RMQ_INTEROP_AGAINST", Against.RMQ)),
        help="whose nameserver and broker (default: %(default)s)",
    )
    against: Against = parser.parse_args(arguments).against
    return against
