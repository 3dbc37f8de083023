"""A nameserver and masters in one process, on real sockets, for tests of the client.

async with cluster(tmp_path) as it:
    await it.create_topic("Orders", queues=4)
    async with open_client(it.nameserver) as client:
        ...
    await it.kill("broker-a")       # its connections are reset, as when a process dies
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import CreateTopicRequest
from tests.broker.broker_kit import NEVER_FULL, SMALL_STORE
from tests.ha.pair_kit import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.broker.broker import Broker

WAIT_S: Final = 20.0


class Cluster:
    """What runs, by broker name."""

    def __init__(self, root: Path, nursery: trio.Nursery, nameserver: str) -> None:
        self.root = root
        self.nameserver = nameserver
        self.brokers: dict[str, Broker] = {}
        self._nursery = nursery
        self._ports: dict[str, int] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._ended: dict[str, trio.Event] = {}

    def address(self, name: str = "broker-a") -> str:
        return f"127.0.0.1:{self._ports[name]}"

    async def start(self, name: str = "broker-a", **settings: str) -> Broker:
        """Start a master, or start it again at the same port with the same store."""
        port = self._ports.setdefault(name, free_port())
        wanted = {
            **SMALL_STORE,
            **NEVER_FULL,
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "brokerName": name,
            "brokerClusterName": "DefaultCluster",
            "listenPort": str(port),
            "namesrvAddr": self.nameserver,
            "storePathRootDir": str(self.root / name),
            "shutdownDrainTime": "100",
            **settings,
        }
        loaded = load_broker_config(None, wanted, {})
        live = LiveConfig(loaded, now_ms=time.time_ns() // 1_000_000)
        ended = self._ended[name] = trio.Event()
        scope = self._scopes[name] = trio.CancelScope()

        async def serve(*, task_status: trio.TaskStatus[Broker]) -> None:
            try:
                with scope:
                    await serve_broker(live, task_status=task_status)
            finally:
                ended.set()

        broker: Broker = await self._nursery.start(serve)
        self.brokers[name] = broker
        await self._wait_registered(name)
        return broker

    async def stop(self, name: str = "broker-a") -> None:
        """Stop a broker in good order: it says good-bye to nameservers and clients."""
        self.brokers.pop(name).stop()
        await self._ended[name].wait()

    async def kill(self, name: str = "broker-a") -> None:
        """End a broker at once, without a word to anybody."""
        self.brokers.pop(name)
        self._scopes[name].cancel()
        await self._ended[name].wait()

    async def create_topic(
        self, topic: str, *, queues: int = 4, perm: int = 6, broker: str = "broker-a"
    ) -> None:
        """Create a topic, and wait until the nameserver knows it."""
        header = CreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        )
        async with open_client() as client:
            answer = await client.request(
                self.address(broker), RequestCode.UPDATE_AND_CREATE_TOPIC, header
            )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def _wait_registered(self, name: str) -> None:
        with trio.fail_after(WAIT_S):
            await self.brokers[name].registration.wait_told()


@asynccontextmanager
async def cluster(
    root: Path, brokers: tuple[str, ...] = ("broker-a",), **settings: str
) -> AsyncIterator[Cluster]:
    """Run a nameserver and some masters for the length of a block."""
    config = load_nameserver_config(
        None,
        {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "kvConfigPath": str(root / "kvConfig.json"),
            "configStorePath": str(root / "namesrv.properties"),
        },
        environ={},
    ).config
    async with trio.open_nursery() as nursery:
        nameserver = await nursery.start(serve_nameserver, config)
        it = Cluster(root, nursery, f"127.0.0.1:{nameserver.server.port}")
        for name in brokers:
            await it.start(name, **settings)
        try:
            yield it
        finally:
            nursery.cancel_scope.cancel()
