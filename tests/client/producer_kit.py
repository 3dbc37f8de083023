"""For tests of producers: what brokers have stored, and a broker that answers as it is told."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from rmq.client.core.consuming.pulls import PullStatus, pull
from rmq.client.core.routes import RouteTable, TopicRoute
from rmq.client.trio.opening import open_client
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.expressions import build_subscription
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse
from rmq.remoting.protocol import Requests, RequestType
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import ConsumeCode, Sent, TransactionEnded
    from rmq.remoting.channel import Channel
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request
    from tests.client.cluster_kit import Cluster

WAIT_S: Final = 20.0
TOPIC: Final = "Orders"


class Notes:
    """A tracer that keeps what producers tell it."""

    def __init__(self) -> None:
        self.sends: list[Sent] = []
        self.ends: list[TransactionEnded] = []

    def sent(self, event: Sent) -> None:
        self.sends.append(event)

    def transaction_ended(self, event: TransactionEnded) -> None:
        self.ends.append(event)

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        return ""

    def consumed(
        self,
        group: str,
        messages: Sequence[ReceivedMessage],
        *,
        request_id: str,
        ended_at_ms: int,
        took_ms: int,
        code: ConsumeCode,
    ) -> None: ...


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await trio.sleep(0.005)


async def stored(
    it: Cluster, topic: str = TOPIC, *, queues: int = 4, brokers: Iterable[str] | None = None
) -> list[ReceivedMessage]:
    """Return all messages of a topic, by broker and queue."""
    found: list[ReceivedMessage] = []
    async with open_client(it.nameserver) as client:
        for name in sorted(it.brokers if brokers is None else brokers):
            table = RouteTable()
            table.put(_route(topic, {name: it.address(name)}, queues))
            for number in range(queues):
                queue = MessageQueue(topic=topic, broker_name=name, queue_id=number)
                offset = 0
                while True:
                    result = await client.run(
                        pull(
                            table,
                            queue,
                            group="reader",
                            subscription=build_subscription(topic, "*", version=1),
                            offset=offset,
                            suspend_s=0,
                            sends_expression=True,
                        )
                    )
                    offset = result.next_offset
                    if result.status is not PullStatus.FOUND:
                        break
                    found += result.messages
    return found


def bodies(messages: Sequence[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def _route(topic: str, masters: dict[str, str], queues: int) -> TopicRoute:
    return TopicRoute(topic, route_data(masters, queues))


def route_data(
    masters: dict[str, str], queues: int, slaves: Collection[str] = ()
) -> TopicRouteData:
    """Return a route; the brokers of the names in `slaves` are slaves."""
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for name in masters
        ),
        broker_datas=tuple(
            BrokerData(
                cluster="DefaultCluster",
                broker_name=name,
                broker_addrs={1 if name in slaves else 0: address},
            )
            for name, address in masters.items()
        ),
    )


# --- a broker that answers as it is told -----------------------------------------------------


class OddBroker:
    """Nameserver and brokers in one. Use `odd_brokers` to get a running one."""

    def __init__(self, names: Sequence[str], queues: int) -> None:
        self.sends: list[tuple[str, bytes]] = []
        """Broker name and body of each send that came."""
        self.routes_asked = 0
        self.knows_topics = True
        """Whether it answers where topics are; it is silent about them otherwise."""
        self.on_send: Callable[[str, Request[SendMessageRequestV2]], None] = answer_ok
        self.addresses: dict[str, str] = {}
        """Where each broker is said to be."""
        self.slaves: set[str] = set()
        """Brokers that are said to be slaves: their names have no master."""
        self.further: dict[str, dict[int, str]] = {}
        """Further brokers of these names, by id."""
        self.on_route_asked: Callable[[], None] = lambda: None
        self.channels: list[Channel] = []
        self._names = tuple(names)
        self._queues = queues

    @property
    def nameserver(self) -> str:
        return self._nameserver

    @nameserver.setter
    def nameserver(self, address: str) -> None:
        self._nameserver = address
        self.addresses = dict.fromkeys(self._names, address)

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(Requests.GET_ROUTEINFO_BY_TOPIC, self._answer_route)
        table.add(Requests.HEART_BEAT, lambda request: request.reply())
        table.add(Requests.UNREGISTER_CLIENT, lambda request: request.reply())
        table.add(Requests.SEND_MESSAGE_V2, self._take_send)
        table.add(Requests.SEND_BATCH_MESSAGE, self._take_send)
        return table

    def _answer_route(self, request: Request) -> None:  # type: ignore[type-arg]
        self.routes_asked += 1
        self.on_route_asked()
        if not self.knows_topics:
            request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
            return
        route = route_data(self.addresses, self._queues, self.slaves)
        for broker in route.broker_datas:
            broker.broker_addrs.update(self.further.get(broker.broker_name, {}))
        request.reply(body=route.encode())

    def _take_send(self, request: Request[SendMessageRequestV2]) -> None:
        name = request.header.broker_name or ""
        self.sends.append((name, request.body or b""))
        if request.channel not in self.channels:
            self.channels.append(request.channel)
        self.on_send(name, request)


_offsets = itertools.count()


def answer_ok(name: str, request: Request[SendMessageRequestV2]) -> None:
    """Say that it is stored."""
    answer_stored(request, ResponseCode.SUCCESS)


def answer_stored(request: Request[SendMessageRequestV2], code: int) -> None:
    request.reply(
        SendMessageResponse(
            msg_id="7F00000100002A9F0000000000000400",
            queue_id=request.header.queue_id,
            queue_offset=next(_offsets),
            trace_on=True,
            msg_region="DefaultRegion",
        ),
        code=code,
    )


def answer_never(name: str, request: Request[SendMessageRequestV2]) -> None:
    """Say nothing."""
    request.defer()


@asynccontextmanager
async def odd_brokers(
    names: Sequence[str] = ("broker-a",),
    *,
    queues: int = 4,
    handlers: Mapping[RequestCode, tuple[Callable[[Any], None], type[Header]]] | None = None,
) -> AsyncIterator[OddBroker]:
    """Run one for the length of a block; `handlers` are for further requests."""
    it = OddBroker(names, queues)
    table = it.table()
    for code, (handler, header) in (handlers or {}).items():
        table.add(RequestType(header, code=code), handler)
    server = RemotingServer(table, ServerConfig(host="127.0.0.1"))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        it.nameserver = f"127.0.0.1:{server.port}"
        try:
            yield it
        finally:
            nursery.cancel_scope.cancel()
