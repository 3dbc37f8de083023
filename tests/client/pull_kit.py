"""For tests of pulling consumers: messages put into queues, and a broker that says what it is told.

`ScriptedBroker` is nameserver and broker in one, on a real socket. It has one topic, answers what
consumers ask for from its tables, and pulls with whatever the test gives it; it keeps all requests.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from rmq.model.properties import encode_properties
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    BrokerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    QueueData,
    TopicRouteData,
)
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    GetMaxOffsetResponse,
    GetMinOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.lite_pull import LitePullConsumer
    from rmq.errors import ClientError
    from rmq.remoting.command import Command
    from rmq.remoting.request import Request
    from tests.client.cluster_kit import Cluster

WAIT_S: Final = 20.0
TOPIC: Final = "Orders"


def queue(number: int = 0, *, topic: str = TOPIC, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def bodies(messages: Iterable[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def numbered(count: int, *, first: int = 0) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]


async def put(
    it: Cluster,
    to: MessageQueue,
    texts: Iterable[str],
    *,
    tag: str | None = None,
    properties: dict[str, str] | None = None,
) -> list[int]:
    """Send messages to one queue, in order; return their offsets."""
    known = dict(properties or {})
    if tag is not None:
        known["TAGS"] = tag
    header = SendMessageRequestV2(
        producer_group="p",
        topic=to.topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=to.queue_id,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=encode_properties(known).decode(),
    )
    answers: list[Command | ClientError] = []
    async with open_client() as client:
        channel = await client.channel(it.address(to.broker_name))
        wanted = list(texts)
        for text in wanted:
            channel.submit(
                RequestCode.SEND_MESSAGE_V2,
                header,
                body=text.encode(),
                timeout_s=WAIT_S,
                on_outcome=answers.append,
            )
        await until(lambda: len(answers) == len(wanted))
    offsets: list[int] = []
    for answer in answers:
        assert not isinstance(answer, Exception), answer
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        offsets.append(answer.header(SendMessageResponse).queue_offset)
    return sorted(offsets)


async def poll_all(
    consumer: LitePullConsumer, count: int, *, max_messages: int = 1_000
) -> list[ReceivedMessage]:
    """Poll until so many messages are there."""
    found: list[ReceivedMessage] = []
    with trio.fail_after(WAIT_S):
        while len(found) < count:
            found += await consumer.poll(1, max_messages)
    return found


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    with trio.fail_after(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is of many kinds
            await trio.sleep(0.005)


# --- a broker that says what it is told ------------------------------------------------------


class Asked(NamedTuple):
    """A request as it came."""

    code: int
    fields: dict[str, str]
    body: bytes | None
    is_oneway: bool


class ScriptedBroker:
    """Use `scripted_broker` to get a running one."""

    def __init__(self, queues: int) -> None:
        self.asked: list[Asked] = []
        self.offsets: dict[int, int] = {}
        """Where the group goes on, by queue."""
        self.max_offset = 100
        self.members: tuple[str, ...] = ()
        """Who is in the group, beside whoever sent the last heartbeat."""
        self.forgets_heartbeats = False
        self.on_heartbeat: Callable[[Request[Any]], None] | None = None
        """Takes heartbeats instead, if it is there."""
        self.on_pull: Callable[[Request[PullMessageRequest]], None] = no_new
        self.address = ""
        self.told_address: str | None = None
        """What routes say instead of the address."""
        self._queues = queues
        self._beaten: tuple[str, ...] = ()

    def asked_for(self, code: RequestCode) -> list[Asked]:
        return [asked for asked in self.asked if asked.code == code]

    def heartbeats(self) -> list[HeartbeatData]:
        return [
            HeartbeatData.decode(asked.body) for asked in self.asked_for(RequestCode.HEART_BEAT)
        ]

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(Requests.GET_ROUTEINFO_BY_TOPIC, self._noted(self._route))
        table.add(Requests.HEART_BEAT, self._noted(self._beat))
        table.add(Requests.GET_CONSUMER_LIST_BY_GROUP, self._noted(self._list))
        table.add(Requests.QUERY_CONSUMER_OFFSET, self._noted(self._offset))
        table.add(Requests.UPDATE_CONSUMER_OFFSET, self._noted(self._update))
        table.add(Requests.UNREGISTER_CLIENT, self._noted(lambda request: request.reply()))
        table.add(
            Requests.GET_MIN_OFFSET,
            self._noted(lambda request: request.reply(GetMinOffsetResponse(offset=0))),
        )
        table.add(
            Requests.GET_MAX_OFFSET,
            self._noted(
                lambda request: request.reply(GetMaxOffsetResponse(offset=self.max_offset))
            ),
        )

        def on_pull(request: Request[PullMessageRequest]) -> None:
            self._note(request)
            self.on_pull(request)

        table.add(Requests.PULL_MESSAGE, on_pull)
        return table

    def _noted(self, handler: Callable[[Request[Any]], None]) -> Callable[[Request[Any]], None]:
        def handle(request: Request[Any]) -> None:
            self._note(request)
            handler(request)

        return handle

    def _note(self, request: Request[Any]) -> None:
        command = request.command
        self.asked.append(Asked(command.code, command.ext_fields, command.body, command.is_oneway))

    def _route(self, request: Request[Any]) -> None:
        if self.asked[-1].fields["topic"] != TOPIC:
            request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
            return
        route = TopicRouteData(
            queue_datas=(
                QueueData(
                    broker_name="broker-a",
                    read_queue_nums=self._queues,
                    write_queue_nums=self._queues,
                    perm=6,
                    topic_sys_flag=0,
                ),
            ),
            broker_datas=(
                BrokerData(
                    cluster="DefaultCluster",
                    broker_name="broker-a",
                    broker_addrs={0: self.told_address or self.address},
                ),
            ),
        )
        request.reply(body=route.encode())

    def _beat(self, request: Request[Any]) -> None:
        if not self.forgets_heartbeats:
            self._beaten = (HeartbeatData.decode(request.body).client_id,)
        if self.on_heartbeat is not None:
            request.defer()
            self.on_heartbeat(request)
        else:
            request.reply()

    def _list(self, request: Request[Any]) -> None:
        body = GetConsumerListByGroupResponseBody(consumer_id_list=self._beaten + self.members)
        request.reply(body=body.encode())

    def _offset(self, request: Request[Any]) -> None:
        offset = self.offsets.get(int(self.asked[-1].fields["queueId"]))
        if offset is None:
            request.reply(code=ResponseCode.QUERY_NOT_FOUND)
        else:
            request.reply(QueryConsumerOffsetResponse(offset=offset))

    def _update(self, request: Request[Any]) -> None:
        fields = self.asked[-1].fields
        self.offsets[int(fields["queueId"])] = int(fields["commitOffset"])
        request.reply()


def no_new(request: Request[PullMessageRequest]) -> None:
    """Hold the pull for ever, as a broker does for a while when there is nothing new."""
    request.defer()


def place(next_offset: int, *, broker_id: int = 0) -> PullMessageResponse:
    return PullMessageResponse(
        suggest_which_broker_id=broker_id,
        next_begin_offset=next_offset,
        min_offset=0,
        max_offset=1_000,
    )


@asynccontextmanager
async def scripted_broker(queues: int = 1) -> AsyncIterator[ScriptedBroker]:
    """Run one for the length of a block."""
    it = ScriptedBroker(queues)
    server = RemotingServer(it.table(), ServerConfig(host="127.0.0.1"))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        it.address = f"127.0.0.1:{server.port}"
        try:
            yield it
        finally:
            nursery.cancel_scope.cancel()


def record(offset: int, text: str, *, number: int = 0) -> bytes:
    """Return a message as it is stored in a queue."""
    return build_record(
        topic=TOPIC.encode(), queue_id=number, queue_offset=offset, body=text.encode()
    )


# --- cancellations ---------------------------------------------------------------------------


class _Canceller(trio.abc.Instrument):
    """Cancels a scope when a task is about to do its nth step."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self._task = task
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def cancelled_at(step: int, act: Callable[[], Awaitable[None]]) -> bool:
    """Do something, and cancel it when its task does its nth step; tell whether it was done."""
    with trio.CancelScope() as scope:
        canceller = _Canceller(trio.lowlevel.current_task(), scope, step)
        trio.lowlevel.add_instrument(canceller)
        try:
            await act()
            return True
        finally:
            trio.lowlevel.remove_instrument(canceller)
    return False
