"""The brokers of one name, ours and stock ones mixed, and the nameserver they register with.

Each broker has its port and its store for the whole check, whatever is stopped, killed and started
in between.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from interop.support.cluster import CLUSTER, Against, RmqLauncher, StockLauncher
from interop.support.stock import (
    HA_DISTANCE,
    VIP_DISTANCE,
    free_port,
    wait_listening,
    write_properties,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from interop.support.cluster import Launcher

BROKER_NAME: Final = "broker-a"
SEGMENT_BYTES: Final = 1 << 20
"""So small that little makes a history of several files."""
_STOP_S: Final = 40

_SETTINGS: Final[Mapping[str, str]] = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER_NAME,
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "maxMessageSize": str(256 << 10),
    "diskMaxUsedSpaceRatio": "95",
    "registerNameServerPeriod": "10000",
    # A stock slave says nothing at all before this time is over.
    "haSendHeartbeatInterval": "1000",
}
_SETTINGS_OF: Final[Mapping[Against, Mapping[str, str]]] = {
    Against.RMQ: {
        "bindAddress": "127.0.0.1",
        "shutdownDrainTime": "100",
        "waitTimeMillsInSendQueue": "20000",
    },
    # Refuse no sends because the machine is slow.
    Against.STOCK: {"waitTimeMillsInSendQueue": "20000", "osPageCacheBusyTimeOutMills": "20000"},
}


@final
@dataclass
class Member:
    """A broker that may run or not."""

    kind: Against
    broker_id: int
    folder: Path
    launcher: Launcher
    nameserver: str
    port: int = field(default_factory=lambda: free_port(VIP_DISTANCE, HA_DISTANCE))
    _process: trio.Process | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ha_port(self) -> int:
        return self.port + HA_DISTANCE

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    async def start(self, role: str, settings: Mapping[str, str] | None = None) -> None:
        """Start it, new or again; it listens when this returns."""
        write_properties(
            self.folder / "broker.conf",
            {
                **_SETTINGS,
                **_SETTINGS_OF[self.kind],
                "brokerRole": role,
                "brokerId": str(self.broker_id),
                "listenPort": str(self.port),
                "haListenPort": str(self.ha_port),
                "namesrvAddr": self.nameserver,
                "storePathRootDir": str(self.store),
                "storePathCommitLog": str(self.store / "commitlog"),
                **(settings or {}),
            },
        )
        await self.start_again()

    async def start_again(self) -> None:
        """Start it by the settings in its file as they are now."""
        running = self.launcher.broker(self.folder / "broker.conf", log=self.log)
        self._process = await self._stack.enter_async_context(running)
        await wait_listening(self._process, self.port, self.log)

    async def stop(self) -> None:
        """Stop it as an operator would."""
        process = self._running()
        process.terminate()
        with trio.move_on_after(_STOP_S):
            await process.wait()
        stopped = process.poll() is not None
        await self.aclose()
        if not stopped:
            raise RuntimeError(f"{self.folder.name} still ran {_STOP_S} s after SIGTERM")

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._running().kill()
        await self.aclose()

    def _running(self) -> trio.Process:
        assert self._process is not None, f"{self.folder.name} does not run"
        return self._process

    async def aclose(self) -> None:
        self._process = None
        await self._stack.aclose()


@final
@dataclass
class Members:
    """Brokers of one name and one nameserver."""

    folder: Path
    launchers: Mapping[Against, Launcher]
    nameserver: str = ""
    all: list[Member] = field(default_factory=list)

    def add(self, kind: Against, broker_id: int, name: str) -> Member:
        """Choose where a broker will be; `start` it next."""
        folder = self.folder / name
        folder.mkdir()
        member = Member(kind, broker_id, folder, self.launchers[kind], self.nameserver)
        self.all.append(member)
        return member


@asynccontextmanager
async def open_members(folder: Path, jars: Path, nameserver: Against) -> AsyncIterator[Members]:
    """Run a nameserver of one kind for the length of a block, and what is added to it."""
    await trio.Path(folder).mkdir()
    launchers: dict[Against, Launcher] = {
        Against.RMQ: RmqLauncher(),
        Against.STOCK: StockLauncher(jars, folder),
    }
    port = free_port()
    settings = {"listenPort": str(port), "kvConfigPath": str(folder / "kvConfig.json")}
    config = write_properties(folder / "namesrv.conf", settings)
    log = folder / "namesrv.log"
    async with launchers[nameserver].nameserver(config, log=log) as process:
        await wait_listening(process, port, log)
        members = Members(folder, launchers, f"127.0.0.1:{port}")
        try:
            yield members
        finally:
            with trio.CancelScope(shield=True):
                for member in members.all:
                    await member.aclose()
