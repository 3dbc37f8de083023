"""A broker that knows clients and nothing else, served to peers that speak frames by hand."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rmq.broker.clients.calls import ConsumerCalls, MemberNotifier
from rmq.broker.clients.housekeeping import ClientHousekeeping
from rmq.broker.clients.locks import QueueLocks
from rmq.broker.clients.registry import ClientRegistry, ConsumerGroupInfo
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.saved import Tables
from rmq.broker.tables.topics import topic_sys_flag
from rmq.model.names import retry_topic
from rmq.model.topic_flags import PERM_READ_WRITE
from rmq.remoting.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.store.store import MessageStore
from rmq.testing.storage import MemoryStorage
from tests.remoting.server_kit import Peer, Served, serving, table_with_ping
from tests.store.store_kit import open_core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rmq.remoting.header import Header


def frame(
    code: RequestCode,
    opaque: int = 1,
    *,
    header: Header | None = None,
    body: bytes = b"",
    oneway: bool = False,
    version: int = VERSION,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return a request of a client."""
    head = encode_frame(
        code=code,
        flag=FLAG_ONEWAY if oneway else 0,
        opaque=opaque,
        header=header,
        body_length=len(body),
        version=version,
        serialization=serialization,
    )
    return head + body


def heartbeat(
    client_id: str,
    *consumers: ConsumerData,
    producers: tuple[str, ...] = (),
    opaque: int = 1,
    version: int = VERSION,
) -> bytes:
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=consumers,
        producer_data_set=tuple(ProducerData(group_name=name) for name in producers),
    )
    return frame(RequestCode.HEART_BEAT, opaque, body=data.encode(), version=version)


def check_expression(expression_type: str | None, expression: str = "a > 1") -> bytes:
    """Return the question whether the broker can filter by an expression."""
    body = CheckClientRequestBody(
        client_id="a",
        group="group",
        subscription_data=SubscriptionData(
            topic="T", sub_string=expression, expression_type=expression_type
        ),
    )
    return frame(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())


class ClientBroker:
    """The parts, and the peers connected to them."""

    def __init__(
        self,
        settings: dict[str, str],
        compile_filter: Callable[[str, str], object] | None,
    ) -> None:
        self.config = LiveConfig(
            load_broker_config(None, {"storePathRootDir": "/store"} | settings, {}), now_ms=1
        )
        current = self.config.current
        tables = Tables(current, lambda: 1)
        self.topics, self.groups = tables.topics, tables.groups
        self.notifier = MemberNotifier(self.config)
        self.clients = ClientRegistry(self.notifier.notify_members)
        self.locks = QueueLocks()
        self.offsets = ConsumerOffsets()
        self.core = open_core(MemoryStorage())
        self.calls = ConsumerCalls(
            self.config,
            self.clients,
            self.topics,
            self.offsets,
            MessageStore(self.core, trio.CapacityLimiter(1)),
        )
        self.housekeeping = ClientHousekeeping(self.clients, self.locks)
        self.retry_topics: list[tuple[str, int, bool]] = []
        self.handlers = ClientHandlers(
            self.config,
            tables,
            self.clients,
            self.locks,
            self._create_retry_topic,
            compile_filter=compile_filter,
        )
        self.served: Served

    def _create_retry_topic(self, group: str, queues: int, unit_mode: bool) -> None:
        self.retry_topics.append((group, queues, unit_mode))
        self.topics.create_on_send_back(
            retry_topic(group), queues, PERM_READ_WRITE, topic_sys_flag(unit_sub=unit_mode)
        )

    def group(self, name: str = "group") -> ConsumerGroupInfo:
        group = self.clients.consumer_group(name)
        assert group is not None, f"nobody consumes in {name}"
        return group

    def attach(self, name: str = "peer") -> Peer:
        return self.served.attach(name)

    async def join(self, name: str, *consumers: ConsumerData, version: int = VERSION) -> Peer:
        """Connect a client called `name` and send its heartbeat; read all that comes of it."""
        peer = self.attach(name)
        await peer.send(heartbeat(name, *consumers, version=version))
        while (await peer.read()).opaque != 1:
            pass
        return peer


@asynccontextmanager
async def client_broker(
    settings: dict[str, str] | None = None,
    *,
    compile_filter: Callable[[str, str], object] | None = None,
    paced: bool = False,
    housekeeping: bool = False,
) -> AsyncIterator[ClientBroker]:
    """Serve a broker for the length of the block, with its tasks if wanted."""
    broker = ClientBroker(settings or {}, compile_filter)
    table = table_with_ping()
    broker.handlers.add_to(table)
    async with (
        serving(table, listeners=[broker.housekeeping]) as broker.served,
        trio.open_nursery() as nursery,
    ):
        if paced:
            nursery.start_soon(broker.notifier.run)
        if housekeeping:
            nursery.start_soon(broker.housekeeping.run)
        yield broker
        nursery.cancel_scope.cancel()
