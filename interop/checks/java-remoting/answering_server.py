"""The handlers that the Java client's cases talk to, one of every kind a `HandlerTable` has.

What each request gets is agreed with the Java cases: sends come back, pulls are held, queries are
slow, some requests fail, and two of them make the server itself misbehave.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, final

import trio

from interop.support.cases import expect
from rmq.errors import RefusedError, RequestTimeoutError
from rmq.remoting import bodies, headers
from rmq.remoting.codes import VERSION, LanguageCode, RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.groups import CLIENT_MANAGEMENT, HEARTBEAT, PULL, QUERY, SEND
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.channel import Channel
    from rmq.remoting.request import Request
    from rmq.remoting.tls import TlsServer

NO_ECHO_TOPIC: Final = "no echo"
STOP_GRACE_S: Final = 5.0
CALLBACK_TIMEOUT_S: Final = 1.0
UNUSED: Final = "unused"

_IRREGULAR_HEADER_NAMES: Final[dict[str, type[Header]]] = {
    "ConsumeMessageDirectlyResultRequestHeader": headers.ConsumeMessageDirectlyRequest,
    "GetConsumeStatsInBrokerHeader": headers.GetBrokerConsumeStatsRequest,
    "QueryCorrectionOffsetHeader": headers.QueryCorrectionOffsetRequest,
    "ReplyMessageRequestHeader": headers.PushReplyMessageRequest,
}
# Java has a class without fields for each of these answers.
_EMPTY_HEADERS: Final = frozenset(
    (
        "GetAllProducerInfoRequestHeader",
        "GetAllTopicConfigResponseHeader",
        "GetConsumerListByGroupResponseHeader",
        "UnregisterClientResponseHeader",
        "UpdateConsumerOffsetResponseHeader",
    )
)
# In the jar, but nothing in 4.9.8 sends or reads them.
_UNUSED_HEADERS: Final = frozenset(
    (
        "CheckTransactionStateResponseHeader",
        "EndTransactionResponseHeader",
        "RegisterFilterServerRequestHeader",
        "RegisterFilterServerResponseHeader",
        "RegisterOrderTopicRequestHeader",
        "ViewMessageResponseHeader",
    )
)
_UNUSED_BODIES: Final = frozenset(("ClusterAclVersionInfo", "ConsumeByWho"))

_HEADERS_BY_NAME: Final[dict[str, type[Header]]] = {
    name.lower(): exported
    for name, exported in vars(headers).items()
    if isinstance(exported, type) and issubclass(exported, Header)
}

_ROUTE: Final = bodies.TopicRouteData(
    order_topic_conf="broker-a:4;broker-b:8",
    queue_datas=tuple(
        bodies.QueueData(broker_name=name, read_queue_nums=4, write_queue_nums=8, perm=6)
        for name in ("broker-a", "broker-b")
    ),
    broker_datas=tuple(
        bodies.BrokerData(
            cluster="cluster",
            broker_name=name,
            broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
        )
        for name in ("broker-a", "broker-b")
    ),
)


@final
class AnsweringServer:
    """A remoting server for the Java cases, and what it has seen of its clients."""

    def __init__(
        self, nursery: trio.Nursery, config: ServerConfig, tls: TlsServer | None = None
    ) -> None:
        self.opened: list[Channel] = []
        self.closed: list[str] = []
        self.peers_seen: set[tuple[int, LanguageCode | None]] = set()
        self._nursery = nursery
        self._offsets: dict[tuple[str, str, int], int] = {}
        self.server = RemotingServer(self._table(), config, tls=tls, listeners=[self])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    # ---- connection events -----------------------------------------------------------------------

    def connection_opened(self, channel: Channel) -> None:
        self.opened.append(channel)

    def connection_closed(self, channel: Channel, reason: str) -> None:
        self.closed.append(reason)

    def connection_idle(self, channel: Channel) -> None:
        pass

    # ---- handlers --------------------------------------------------------------------------------

    def _table(self) -> HandlerTable:
        table = HandlerTable()
        table.add_batch(Requests.SEND_MESSAGE_V2, self._echo, group=SEND)
        table.add(Requests.GET_ROUTEINFO_BY_TOPIC, self._route)
        table.add(Requests.PULL_MESSAGE, self._hold, group=PULL)
        table.add_async(Requests.QUERY_MESSAGE, self._query_slowly, group=QUERY)
        table.add(Requests.UPDATE_CONSUMER_OFFSET, self._update_offset)
        table.add(Requests.QUERY_CONSUMER_OFFSET, self._query_offset)
        table.add(Requests.GET_MAX_OFFSET, self._raise)
        table.add(Requests.GET_MIN_OFFSET, self._refuse)
        table.add(Requests.HEART_BEAT, self._heartbeat, group=HEARTBEAT)
        table.add_async(Requests.GET_CONSUMER_RUNNING_INFO, self._ask_back, group=CLIENT_MANAGEMENT)
        table.add(Requests.GET_BROKER_CONFIG, self._mirror_header)
        table.add(Requests.GET_NAMESRV_CONFIG, self._mirror_body)
        table.add(Requests.CLEAN_EXPIRED_CONSUMEQUEUE, self._drop_connection)
        table.add(Requests.CLEAN_UNUSED_TOPIC, self._stop)
        return table

    def _echo(
        self, requests: Sequence[Request[headers.SendMessageRequestV2]]
    ) -> list[Header | None]:
        answers: list[Header | None] = []
        for request in requests:
            body, header = request.body, request.header
            self.peers_seen.add((request.command.version, request.command.language))
            answer = headers.SendMessageResponse(
                msg_id=f"{zlib.crc32(body or b''):08X}",
                queue_id=header.queue_id,
                queue_offset=-1 if body is None else len(body),
                transaction_id=header.topic,
                trace_on=True,
                msg_region="DefaultRegion",
            )
            if body is None or header.topic == NO_ECHO_TOPIC:
                answers.append(answer)
            else:
                request.reply(answer, body=body)
                answers.append(None)
        return answers

    def _route(self, request: Request[headers.GetRouteInfoRequest]) -> None:
        request.reply(body=_ROUTE.encode(standard=request.header.topic == "standard"))

    def _hold(self, request: Request[headers.PullMessageRequest]) -> None:
        request.defer()
        self._nursery.start_soon(self._answer_held, request)

    async def _answer_held(self, request: Request[headers.PullMessageRequest]) -> None:
        await trio.sleep(request.header.suspend_timeout_millis / 1000)
        request.reply(
            headers.PullMessageResponse(
                suggest_which_broker_id=1,
                next_begin_offset=request.header.queue_offset + 1,
                min_offset=-(2**63),
                max_offset=2**63 - 1,
            ),
            body=b"held",
        )

    async def _query_slowly(self, request: Request[headers.QueryMessageRequest]) -> None:
        await trio.sleep(request.header.max_num / 1000)
        request.reply(
            headers.QueryMessageResponse(
                index_last_update_timestamp=request.header.max_num, index_last_update_phyoffset=0
            )
        )

    def _update_offset(self, request: Request[headers.UpdateConsumerOffsetRequest]) -> None:
        header = request.header
        key = (header.consumer_group, header.topic, header.queue_id)
        self._offsets[key] = header.commit_offset
        request.reply(EmptyHeader())

    def _query_offset(self, request: Request[headers.QueryConsumerOffsetRequest]) -> None:
        header = request.header
        offset = self._offsets[header.consumer_group, header.topic, header.queue_id]
        request.reply(headers.QueryConsumerOffsetResponse(offset=offset))

    def _raise(self, request: Request[headers.GetMaxOffsetRequest]) -> None:
        raise ValueError(f"broken on purpose for {request.header.topic}")

    def _refuse(self, request: Request[headers.GetMinOffsetRequest]) -> None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"no topic {request.header.topic}")

    def _heartbeat(self, request: Request[EmptyHeader]) -> None:
        heartbeat = bodies.HeartbeatData.decode(request.body)
        (producer,) = heartbeat.producer_data_set
        (consumer,) = heartbeat.consumer_data_set
        (subscription,) = consumer.subscription_data_set
        request.channel.oneway(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            headers.NotifyConsumerIdsChangedRequest(consumer_group=consumer.group_name),
            serialization=request.command.serialization,
        )
        names = heartbeat.client_id, producer.group_name, consumer.group_name, subscription.topic
        request.reply(remark=" ".join(names))

    async def _ask_back(self, request: Request[headers.GetConsumerRunningInfoRequest]) -> None:
        """Ask the asker its own question, as a broker asks the consumer it is about."""
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        if request.header.client_id == "other code":
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        try:
            answer = await request.channel.request(
                code,
                request.header,
                timeout_s=CALLBACK_TIMEOUT_S,
                serialization=request.command.serialization,
            )
        except RequestTimeoutError as exc:
            raise RefusedError(ResponseCode.CONSUME_MSG_TIMEOUT, str(exc)) from exc
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark or "")
        expect("version of the client's answer", answer.version, VERSION)
        request.reply(body=bodies.ConsumerRunningInfo.decode(answer.body).encode())

    def _mirror_header(self, request: Request[EmptyHeader]) -> None:
        """Read the header as the class its remark names and send it back."""
        name = request.command.remark or ""
        if name in _UNUSED_HEADERS:
            request.reply(remark=UNUSED)
            return
        header_class = _IRREGULAR_HEADER_NAMES.get(name)
        if header_class is None and name in _EMPTY_HEADERS:
            header_class = EmptyHeader
        if header_class is None:
            header_class = _HEADERS_BY_NAME[name.replace("Header", "").lower()]
        request.reply(request.command.header(header_class))

    def _mirror_body(self, request: Request[EmptyHeader]) -> None:
        """Read the body as the class its remark names and send it back."""
        name = request.command.remark or ""
        if name in _UNUSED_BODIES:
            request.reply(remark=UNUSED)
            return
        body_class: type[bodies.Body] = getattr(bodies, name)
        request.reply(body=body_class.decode(request.body).encode())

    def _drop_connection(self, request: Request[EmptyHeader]) -> None:
        request.channel.close("dropped on purpose")

    def _stop(self, request: Request[EmptyHeader]) -> None:
        request.reply()
        self.server.stop(grace_s=STOP_GRACE_S)
