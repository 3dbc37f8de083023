"""Servers set up like those whose frames were captured, as real processes on free ports.

A master and a slave named `broker-golden` in `GoldenCluster`, a nameserver where they register, and
another one that they do not know. Captured brokers register at that one: their frames meet a
nameserver that knows nobody, as they did when they were captured.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.client import open_client
from rmq.remoting.codes import LanguageCode, RequestCode
from tests.e2e.servers import HOST, Server, free_port
from tests.e2e.waiting import wait_until
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.remoting.client import RemotingClient

CLUSTER: Final = "GoldenCluster"
BROKER: Final = "broker-golden"
CAPTURED_PORTS: Final = {"master": 10911, "slave": 10921}
CAPTURED_STORES: Final = {"master": "/opt/rmq/g/store-m", "slave": "/opt/rmq/g/store-s"}

_LOOPBACK: Final = bytes([127, 0, 0, 1])

# The levels that captured clients use, but shorter: 1 and 2 for delays, 3 for the first retry.
_DELAY_LEVELS: Final = "1s 1s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_SETTINGS: Final = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER,
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "metricsPort": "0",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "defaultTopicQueueNums": "4",
    "messageDelayLevel": _DELAY_LEVELS,
    # A half message is old after less than a second. It is asked about once, because the answer
    # comes before the next round.
    "transactionTimeOut": "800",
    "transactionCheckInterval": "1000",
    "mappedFileSizeCommitLog": str(golden.SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": str(golden.QUEUE_SEGMENT_BYTES),
    "maxHashSlotNum": str(golden.INDEX_SLOTS),
    "maxIndexNum": str(golden.INDEX_ENTRIES),
    "maxMessageSize": str(golden.SEGMENT_BYTES // 2),
    # What is delivered late counts as delivered when it is on disk.
    "flushIntervalCommitLog": "20",
    "flushCommitLogLeastPages": "0",
    # A machine that is busy with other things, or whose disk is nearly full, is no reason to refuse
    # messages here.
    "osPageCacheBusyTimeOutMills": "10000",
    "waitTimeMillsInSendQueue": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
}


@final
@dataclass(frozen=True)
class GoldenCluster:
    """Running servers. Use `open_golden_cluster`."""

    folder: Path
    client: RemotingClient
    ports: dict[str, int]
    """By the names that captured rows have for them; `empty-namesrv` is the other nameserver."""

    def address(self, server: str) -> str:
        return f"{HOST}:{self.ports[server]}"

    def store(self, server: str) -> Path:
        return self.folder / server / "store"

    def as_captured(self, data: bytes) -> bytes:
        """Return what a server said as captured ones would have, who listened elsewhere."""
        for server, captured_port in CAPTURED_PORTS.items():
            port = self.ports[server]
            for one, other in (
                (f"{HOST}:{port}", f"{HOST}:{captured_port}"),
                # Where slaves fetch the log.
                (f"{HOST}:{port + 1}", f"{HOST}:{captured_port + 1}"),
                # In offset message ids.
                (f"7F000001{port:08X}", f"7F000001{captured_port:08X}"),
                (str(self.store(server)), CAPTURED_STORES[server]),
            ):
                data = data.replace(one.encode(), other.encode())
            data = data.replace(_LOOPBACK + port.to_bytes(4), _LOOPBACK + captured_port.to_bytes(4))
        return data


@asynccontextmanager
async def open_golden_cluster(folder: Path) -> AsyncIterator[GoldenCluster]:
    """Run all servers for the length of a block; brokers are registered when it begins."""
    ports = {"namesrv": free_port(), "empty-namesrv": free_port()}
    for broker in CAPTURED_PORTS:
        ports[broker] = free_port(-2, 1)
    ports["master-vip"] = ports["master"] - 2
    nameservers = [_nameserver(folder, name, ports[name]) for name in ("namesrv", "empty-namesrv")]
    brokers = [_broker(folder, name, ports) for name in CAPTURED_PORTS]
    started: list[Server] = []

    async def start(server: Server) -> None:
        started.append(server)
        await server.start()

    async with open_client(language=LanguageCode.JAVA) as client:
        cluster = GoldenCluster(folder, client, ports)
        try:
            for servers in (nameservers, brokers):
                async with trio.open_nursery() as nursery:
                    for server in servers:
                        nursery.start_soon(start, server)
            await wait_until("both brokers to register", lambda: _are_registered(cluster))
            yield cluster
        finally:
            with trio.CancelScope(shield=True):
                for server in started:
                    if server.is_running:
                        await server.kill()


async def _are_registered(cluster: GoldenCluster) -> bool:
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    answer = await cluster.client.request(cluster.address("namesrv"), code, timeout_s=3)
    known = ClusterInfo.decode(answer.body).broker_addr_table.get(BROKER)
    return known is not None and len(known.broker_addrs) == len(CAPTURED_PORTS)


def _nameserver(folder: Path, name: str, port: int) -> Server:
    config = _write(folder / name, {"kvConfigPath": str(folder / name / "kvConfig.json")})
    arguments = ["namesrv", "-c", str(config), "--host", HOST, "--port", str(port)]
    return Server(name, arguments, folder / name / "log")


def _broker(folder: Path, name: str, ports: dict[str, int]) -> Server:
    is_master = name == "master"
    settings = {
        **_SETTINGS,
        "brokerId": "0" if is_master else "1",
        # The captured one was a SYNC_MASTER. What clients see of that is how long a send takes.
        "brokerRole": "ASYNC_MASTER" if is_master else "SLAVE",
        "listenPort": str(ports[name]),
        "namesrvAddr": f"{HOST}:{ports['namesrv']}",
        "storePathRootDir": str(folder / name / "store"),
    }
    config = _write(folder / name, settings)
    return Server(name, ["broker", "-c", str(config)], folder / name / "log")


def _write(folder: Path, settings: dict[str, str]) -> Path:
    folder.mkdir()
    config = folder / "conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return config
