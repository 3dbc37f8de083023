"""What Prometheus watches, under load: a nameserver, a pair, a lone master with a small disk."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from interop.support.cluster import Against, Cluster, RmqLauncher, open_cluster
from interop.support.processes import running_process
from interop.support.stock import free_port
from interop.support.topics import create_topics
from rmq.client import Message, open_producer
from rmq.errors import RmqError

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from interop.support.cluster import Broker, Nameserver

TOPIC: Final = "Load"
LONE_TOPIC: Final = "Lone"
REFUSED_TOPIC: Final = "Refused"
NAME: Final = "broker-a"
LONE_NAME: Final = "broker-lone"
QUEUES: Final = 4
LAST_DELAY_LEVEL: Final = 6
DISK_BYTES: Final = 64 << 20
_PAUSE_S: Final = 0.02
_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "20000",
    "maxIndexNum": "80000",
    # Retries, which begin at level 3, come soon; the last level is for messages that wait.
    "messageDelayLevel": "1s 1s 1s 1s 1s 30s",
    "registerNameServerPeriod": "10000",
    "haSendHeartbeatInterval": "1000",
    # No send is refused because the machine is busy.
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}


@final
class DiskLauncher:
    """Runs servers of rmq; the store of some brokers is on a small disk that only they see."""

    def __init__(self) -> None:
        self._plain = RmqLauncher()
        self.small: set[Path] = set()
        """The folders of these brokers."""

    def nameserver(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        return self._plain.nameserver(config, log=log)

    def broker(self, config: Path, *, log: Path) -> AbstractAsyncContextManager[trio.Process]:
        if config.parent not in self.small:
            return self._plain.broker(config, log=log)
        store = config.parent / "store"
        store.mkdir(exist_ok=True)
        script = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", script, "sh", str(DISK_BYTES), str(store)]
        command += [sys.executable, "-m", "rmq", "broker", "-c", str(config)]
        return running_process(command, log=log, environment=dict(os.environ))


@dataclass
class Watched:
    """The servers, and the ports of their metrics."""

    cluster: Cluster
    nameserver: Nameserver
    nameserver_metrics: str
    master: Broker
    slave: Broker
    lone: Broker
    metrics: dict[Path, str]
    """Where metrics are shown, by the folder of the broker."""
    sent: int = 0
    failed: int = 0

    def target_of(self, broker: Broker) -> str:
        return self.metrics[broker.folder]

    @property
    def brokers(self) -> list[str]:
        return list(self.metrics.values())

    def signal(self, broker: Broker, number: signal.Signals) -> None:
        os.kill(self.cluster.pid_of(broker), number)

    # --- starting ------------------------------------------------------------------------------

    async def start_master(self) -> None:
        await self._start(self.master, brokerRole="SYNC_MASTER", metricsQueueGroups="readers")

    async def start_slave(self) -> None:
        await self._start(self.slave, brokerRole="SLAVE", brokerId="1")

    async def start_lone(self) -> None:
        small = {
            "mappedFileSizeCommitLog": str(1 << 20),
            "maxHashSlotNum": "2000",
            "maxIndexNum": "8000",
            "diskMaxUsedSpaceRatio": "75",
        }
        await self._start(self.lone, brokerRole="ASYNC_MASTER", expectedSlaves="0", **small)
        await create_topics(self.cluster, self.lone, {LONE_TOPIC: 1})

    async def _start(self, broker: Broker, **settings: str) -> None:
        port = self.target_of(broker).rpartition(":")[2]
        defaults = {"expectedSlaves": "1", "metricsPort": port}
        await self.cluster.start_broker(broker, {**_SETTINGS, **defaults, **settings})

    # --- load ----------------------------------------------------------------------------------

    async def send_always(self, topic: str, group: str) -> None:
        """Send until it is cancelled, and go on after every failure."""
        async with open_producer(self.cluster.nameserver, group) as producer:
            while True:
                try:
                    await producer.send(Message(topic, b"x" * 200))
                    self.sent += 1
                except RmqError:
                    self.failed += 1
                await trio.sleep(_PAUSE_S)

    # --- the small disk ------------------------------------------------------------------------

    def fill_lone(self, ratio: float) -> None:
        """Let so much of the disk be used."""
        ballast = self._ballast()
        found = os.statvfs(ballast.parent)
        size = found.f_blocks * found.f_frsize
        used = size - found.f_bavail * found.f_frsize
        now = ballast.stat().st_size if ballast.exists() else 0
        ballast.write_bytes(bytes(max(0, now + int(size * ratio) - used)))

    def empty_lone(self) -> None:
        self._ballast().unlink()

    def _ballast(self) -> Path:
        pid = self.cluster.pid_of(self.lone)
        store = self.lone.folder / "store"
        root = type(store)(f"/proc/{pid}/root")
        return root / store.relative_to("/") / "ballast"


@asynccontextmanager
async def watched_cluster(folder: Path) -> AsyncIterator[Watched]:
    """Start all, and keep it busy for the length of a block."""
    launcher = DiskLauncher()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_cluster(Against.RMQ, folder))
        cluster.launcher = launcher
        port = free_port()
        nameserver = await cluster.add_nameserver({"metricsPort": str(port)})
        master = cluster.place_broker(NAME)
        slave = cluster.place_broker(NAME, folder="slave")
        lone = cluster.place_broker(LONE_NAME)
        launcher.small.add(lone.folder)
        metrics = {each.folder: f"127.0.0.1:{free_port()}" for each in (master, slave, lone)}
        watched = Watched(cluster, nameserver, f"127.0.0.1:{port}", master, slave, lone, metrics)
        await watched.start_master()
        await watched.start_slave()
        await watched.start_lone()
        await create_topics(cluster, master, {TOPIC: QUEUES, REFUSED_TOPIC: 1})
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(watched.send_always, TOPIC, "load")
        nursery.start_soon(watched.send_always, LONE_TOPIC, "lone-load")
        yield watched
        nursery.cancel_scope.cancel()
