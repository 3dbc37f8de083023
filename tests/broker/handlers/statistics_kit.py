"""What the tests of statistics share: the parts they are about, served to a peer that asks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.handlers.statistics import StatisticsHandlers
from rmq.broker.origin import Origin
from rmq.broker.serving_parts import ServingParts
from rmq.broker.stats.broker import BrokerStats
from rmq.broker.tables.saved import Tables
from rmq.model.queues import MessageQueue
from rmq.model.record import pack_host
from rmq.remoting.bodies import TopicConfig
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.store.store import MessageStore
from rmq.testing.storage import MemoryStorage
from tests.broker.clients.registry_kit import Clients
from tests.remoting.server_kit import Frame, Peer, serving
from tests.store.store_kit import START_MS, Clock, message, open_core, put, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.remoting.bodies import Body
    from rmq.remoting.groups import GroupStatistics
    from rmq.remoting.header import Header

B = TypeVar("B", bound="Body")

GROUP: Final = "readers"
SECOND: Final = 1000


class StatisticsBroker:
    """The parts that statistics are about, and a peer that asks for them."""

    def __init__(self, directory: Path) -> None:
        settings = {
            "brokerName": "broker-a",
            "brokerClusterName": "cluster",
            "brokerIP1": "192.0.2.7",
            "listenPort": "10911",
            "storePathRootDir": str(directory),
            "sendThreadPoolQueueCapacity": "111",
            "startAcceptSendRequestTimeStamp": "222",
        }
        self.live = LiveConfig(load_broker_config(None, settings, {}), now_ms=START_MS)
        self.clock = Clock()
        self.core = open_core(
            MemoryStorage(), small_config(segment_bytes=1 << 20), clock=self.clock
        )
        tables = Tables(self.live.current, self.clock)
        self.topics, self.groups, self.offsets = tables.topics, tables.groups, tables.offsets
        self.clients = Clients()
        self.stats = BrokerStats("cluster", boot_ms=START_MS)
        self.loads: list[GroupStatistics] = []
        self.delays: dict[int, tuple[int, int]] = {}
        self.handlers = StatisticsHandlers(
            ServingParts(
                self.live,
                MessageStore(self.core, trio.CapacityLimiter(1)),
                tables,
                self.stats,
                Origin(pack_host("192.0.2.1", 10911), self.clock),
            ),
            self.clients.registry,
            loads=lambda: self.loads,
            delay_progress=lambda: self.delays,
        )
        self.peer: Peer

    def topic(self, name: str, *, read: int = 2, write: int = 2, order: bool = False) -> None:
        self.topics.put(
            TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, order=order)
        )

    def store(self, topic: str, queue_id: int, count: int) -> None:
        """Store messages, one a second."""
        for number in range(count):
            put(self.core, [message(number, topic=topic, queue_id=queue_id)])
            self.clock.ms += SECOND

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        serialization: Serialization = Serialization.JSON,
    ) -> Frame:
        return await self.peer.request(
            encode_frame(
                code=code,
                flag=0,
                opaque=1,
                header=header,
                body_length=0,
                serialization=serialization,
            )
        )

    async def body(self, kind: type[B], code: RequestCode, header: Header | None = None) -> B:
        """Return what a request is answered with if all goes well."""
        answer = await self.ask(code, header)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        return kind.decode(answer.body)


@asynccontextmanager
async def statistics_broker(directory: Path) -> AsyncIterator[StatisticsBroker]:
    broker = StatisticsBroker(directory)
    table = HandlerTable()
    broker.handlers.add_to(table)
    async with serving(table) as served:
        broker.peer = served.attach()
        yield broker


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)
