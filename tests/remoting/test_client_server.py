"""Client and server together, over real sockets: what only a kernel can show.

Nothing here sleeps; every test has a deadline and waits for events only.
"""

from __future__ import annotations

import functools
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.errors import ConnectFailedError, ConnectionLostError
from rmq.remoting.client import ClientConfig, TcpConnector, open_client
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode, Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.header import EmptyHeader, Header
from rmq.remoting.headers import (
    EndTransactionRequest,
    GetRouteInfoRequest,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    SendMessageRequestV2,
    SendMessageResponse,
    UnregisterClientRequest,
)
from rmq.remoting.protocol import Requests, RequestType
from rmq.remoting.server import ServerConfig
from tests.remoting.client_kit import (
    ECHO,
    READY,
    Collector,
    Names,
    RawServer,
    RecordingTransport,
    address_of,
    cancelled_at_every_step,
    echo_table,
    open_files,
    reset,
    serving,
    start_call,
    wait_until,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.request import Request
    from rmq.remoting.transport import Transport

MIB: Final = 1024 * 1024


# ---- round trips -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    """A request of 4.9.8 and its answer."""

    code: RequestCode
    request: Header
    answer: Header | None
    answer_code: int = ResponseCode.SUCCESS


EXCHANGES: Final = [
    Exchange(
        RequestCode.SEND_MESSAGE_V2,
        SendMessageRequestV2(
            producer_group="PG",
            topic="Tópico",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=3,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=-1,
            properties="KEYS\x01k\x02TAGS\x01t\x02",
            batch=True,
        ),
        SendMessageResponse(
            msg_id="7F0000010000A1B2", queue_id=3, queue_offset=2**62, trace_on=True
        ),
    ),
    Exchange(
        RequestCode.PULL_MESSAGE,
        PullMessageRequest(
            consumer_group="CG",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=6,
            commit_offset=-1,
            suspend_timeout_millis=15_000,
            subscription="TagA || TagB",
            sub_version=1,
            expression_type="TAG",
        ),
        PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=32, min_offset=0, max_offset=100
        ),
        ResponseCode.PULL_NOT_FOUND,
    ),
    Exchange(
        RequestCode.QUERY_CONSUMER_OFFSET,
        QueryConsumerOffsetRequest(consumer_group="CG", topic="T", queue_id=1, broker_name="b"),
        QueryConsumerOffsetResponse(offset=-1),
    ),
    Exchange(
        RequestCode.UNREGISTER_CLIENT,
        UnregisterClientRequest(client_id="10.0.0.1@42", consumer_group="CG"),
        EmptyHeader(),
    ),
    Exchange(
        RequestCode.QUERY_DATA_VERSION,
        QueryDataVersionRequest(broker_addr="10.0.0.1:10911", broker_id=0),
        QueryDataVersionResponse(changed=True),
    ),
    Exchange(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoRequest(topic="nowhere"),
        None,
        ResponseCode.TOPIC_NOT_EXIST,
    ),
]


@pytest.mark.parametrize("serialization", list(Serialization), ids=lambda each: each.name)
@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.code.name)
@within(10)
async def test_typed_headers_and_bodies_arrive_as_they_were_sent(
    exchange: Exchange, serialization: Serialization
) -> None:
    seen: list[Request[Header]] = []

    def handle(request: Request[Header]) -> None:
        seen.append(request)
        request.reply(
            exchange.answer, code=exchange.answer_code, body=b"\0answer\xff", remark="Größe"
        )

    table = HandlerTable()
    table.add(RequestType(type(exchange.request), code=exchange.code), handle)
    async with (
        serving(table) as server,
        open_client(ClientConfig(serialization=serialization)) as client,
    ):
        answer = await client.request(
            address_of(server), exchange.code, exchange.request, body=b"\0request\xff"
        )
    (request,) = seen
    assert request.header == exchange.request
    assert request.body == b"\0request\xff"
    assert request.command.serialization is serialization
    assert request.command.language is LanguageCode.PYTHON
    assert (answer.code, answer.body, answer.remark) == (
        exchange.answer_code,
        b"\0answer\xff",
        "Größe",
    )
    assert answer.serialization is serialization
    if exchange.answer is not None:
        assert answer.header(type(exchange.answer)) == exchange.answer


@pytest.mark.parametrize("serialization", list(Serialization), ids=lambda each: each.name)
@within(10)
async def test_bodies_of_four_mebibytes_go_both_ways(serialization: Serialization) -> None:
    body = bytes(range(256)) * (4 * MIB // 256)
    async with (
        serving(echo_table()) as server,
        open_client(ClientConfig(serialization=serialization)) as client,
    ):
        answer = await client.request(address_of(server), ECHO, body=body, timeout_s=9)
        assert answer.body == body


@within(15)
async def test_many_large_requests_at_once_do_not_block_their_own_answers() -> None:
    """More than all buffers hold is on its way in both directions: had either end to finish writing
    before it reads, both would wait for the other until one is cut off.
    """
    bodies = [bytes([number]) * (4 * MIB) for number in range(12)]
    async with (
        serving(echo_table()) as server,
        open_client() as client,
        trio.open_nursery() as nursery,
    ):
        address = address_of(server)
        calls = [
            start_call(nursery, client, body=body, timeout_s=10, address=address) for body in bodies
        ]
        for body, call in zip(bodies, calls, strict=True):
            await call.wait()
            assert call.error is None
            assert call.answer is not None
            assert call.answer.body == body
        assert server.statistics().accepted == 1


@within(10)
async def test_a_thousand_requests_answered_in_reverse_find_their_callers() -> None:
    held: list[Request[EmptyHeader]] = []

    def hold(request: Request[EmptyHeader]) -> None:
        request.defer()
        held.append(request)
        if len(held) == 1_000:
            for each in reversed(held):
                each.reply(body=each.body)

    table = HandlerTable()
    table.add(RequestType(code=ECHO), hold)
    async with (
        serving(table) as server,
        open_client() as client,
        trio.open_nursery() as nursery,
    ):
        calls = [
            start_call(
                nursery, client, body=b"%d" % number, timeout_s=9, address=address_of(server)
            )
            for number in range(1_000)
        ]
        for number, call in enumerate(calls):
            await call.wait()
            assert call.answer is not None, call.error
            assert call.answer.body == b"%d" % number
        statistics = server.statistics()
        assert statistics.accepted == 1
        assert client.statistics().calls_under_way == 0


@within(10)
async def test_a_host_name_is_looked_up() -> None:
    trio.socket.set_custom_hostname_resolver(Names(broker="127.0.0.1"))
    async with serving(echo_table()) as server, open_client() as client:
        answer = await client.request(f"broker:{server.port}", ECHO, body=b"by name")
        assert answer.body == b"by name"


# ---- few writes --------------------------------------------------------------------------------


class RecordingConnector:
    """Dials TCP and keeps the transports, which note their writes."""

    def __init__(self) -> None:
        self.transports: list[RecordingTransport] = []

    async def __call__(self, address: str) -> Transport:
        transport = RecordingTransport(await TcpConnector()(address))
        self.transports.append(transport)
        return transport


@within(10)
async def test_requests_submitted_in_one_step_leave_in_few_writes() -> None:
    connector = RecordingConnector()
    async with serving(echo_table()) as server, open_client(connector=connector) as client:
        channel = await client.channel(address_of(server))
        collector = Collector()
        for number in range(500):
            channel.submit(ECHO, body=b"%d" % number, timeout_s=9, on_outcome=collector)
        await collector.wait_count(500)
    assert len(collector.outcomes) == 500
    assert not any(isinstance(outcome, Exception) for outcome in collector.outcomes)
    (transport,) = connector.transports
    # One would do; the kernel may take less than all at once.
    assert 1 <= len(transport.writes) <= 3


@within(10)
async def test_calls_of_many_tasks_in_one_step_leave_in_few_writes() -> None:
    connector = RecordingConnector()
    async with serving(echo_table()) as server, open_client(connector=connector) as client:
        address = address_of(server)
        await client.channel(address)
        (transport,) = connector.transports
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(client.request, address, ECHO)
        assert 1 <= len(transport.writes) <= 5


# ---- the end of a connection -------------------------------------------------------------------


@within(10)
async def test_a_port_where_nobody_listens_is_named_and_dialled_again_by_the_next_call() -> None:
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    address = f"127.0.0.1:{port}"
    async with open_client() as client:
        with pytest.raises(ConnectFailedError) as caught:
            await client.request(address, ECHO)
        assert caught.value.peer == address
        assert "refused" in caught.value.reason
        assert address in str(caught.value)
        reserved.close()
        async with serving(echo_table(), ServerConfig(host="127.0.0.1", port=port)):
            assert (await client.request(address, ECHO, body=b"now")).body == b"now"


def _close(stream: trio.SocketStream) -> None:
    stream.socket.close()


@pytest.mark.parametrize(
    ("end", "reasons"),
    [
        pytest.param(_close, ("closed by the peer", "ConnectionResetError"), id="closed"),
        pytest.param(reset, ("ConnectionResetError", "the connection was reset"), id="reset"),
    ],
)
@within(10)
async def test_the_end_of_a_connection_wakes_every_waiter_at_once(
    end: Callable[[trio.SocketStream], None], reasons: tuple[str, ...]
) -> None:
    with RawServer() as raw:
        async with open_client() as client, trio.open_nursery() as nursery:
            calls = [
                start_call(nursery, client, timeout_s=60, address=raw.address) for _ in range(50)
            ]
            stream = await raw.accept()
            await wait_until(lambda: client.statistics().calls_under_way == 50)
            await stream.receive_some()
            end(stream)
            for call in calls:
                error = (await call.wait()).error
                assert isinstance(error, ConnectionLostError)
                assert error.reason.startswith(reasons)
            statistics = client.statistics()
            assert (statistics.calls_under_way, statistics.connections) == (0, 0)


@within(10)
async def test_a_server_that_stops_wakes_the_waiters_and_one_that_comes_back_is_found() -> None:
    def hold(request: Request[EmptyHeader]) -> None:
        request.defer()

    table = echo_table()
    table.add(RequestType(code=READY), hold)
    async with open_client() as client, trio.open_nursery() as nursery:
        async with serving(table) as server:
            address, port = address_of(server), server.port
            call = start_call(nursery, client, code=READY, timeout_s=60, address=address)
            await wait_until(lambda: sum(g.unanswered for g in server.statistics().groups) == 1)
        assert isinstance((await call.wait()).error, ConnectionLostError)
        with pytest.raises(ConnectFailedError):
            await client.request(address, ECHO)
        async with serving(table, ServerConfig(host="127.0.0.1", port=port)):
            assert (await client.request(address, ECHO, body=b"back")).body == b"back"


# ---- both directions ---------------------------------------------------------------------------


@within(10)
async def test_server_and_client_call_each_other_on_one_connection() -> None:
    """Each of our calls is answered only after the server has called us back, under numbers that
    are also ours.
    """
    opaques: list[int] = []

    async def ask_back(request: Request[EmptyHeader]) -> None:
        answer = await request.channel.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, body=request.body, timeout_s=9
        )
        request.reply(body=b"via client: " + (answer.body or b""))

    def served_by_client(request: Request[EmptyHeader]) -> None:
        opaques.append(request.command.opaque)
        request.reply(body=(request.body or b"")[::-1])

    server_table, client_table = HandlerTable(), HandlerTable()
    server_table.add_async(RequestType(code=ECHO), ask_back)
    client_table.add(RequestType(code=RequestCode.GET_CONSUMER_RUNNING_INFO), served_by_client)
    async with (
        serving(server_table) as server,
        open_client(table=client_table) as client,
        trio.open_nursery() as nursery,
    ):
        calls = [
            start_call(
                nursery, client, body=b"call %d" % n, timeout_s=9, address=address_of(server)
            )
            for n in range(100)
        ]
        for number, call in enumerate(calls):
            await call.wait()
            assert call.answer is not None, call.error
            assert call.answer.body == b"via client: " + (b"call %d" % number)[::-1]
        assert server.statistics().accepted == 1
        assert sorted(opaques) == list(range(100)), "the server has numbers of its own"


# ---- one-way requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size"),
    [
        pytest.param(200, 10, id="small"),
        pytest.param(8, 2 * MIB, id="more-than-the-kernel-takes"),
    ],
)
@within(10)
async def test_one_way_requests_sent_just_before_leaving_still_arrive(
    count: int, size: int
) -> None:
    transactions: list[int] = []

    def ended(request: Request[EndTransactionRequest]) -> None:
        assert request.command.is_oneway
        assert len(request.body or b"") == size
        transactions.append(request.header.commit_log_offset)

    table = HandlerTable()
    table.add(Requests.END_TRANSACTION, ended)
    async with serving(table) as server:
        async with open_client() as client:
            for number in range(count):
                await client.oneway(
                    address_of(server),
                    RequestCode.END_TRANSACTION,
                    EndTransactionRequest(
                        producer_group="PG",
                        tran_state_table_offset=0,
                        commit_log_offset=number,
                        commit_or_rollback=8,
                    ),
                    body=bytes(size),
                )
        await wait_until(lambda: server.statistics().endpoint.connections == 0)
    assert transactions == list(range(count))


# ---- cancellation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(lambda client, address: client.request(address, ECHO), id="request"),
        pytest.param(lambda client, address: client.oneway(address, ECHO), id="oneway"),
        pytest.param(lambda client, address: client.channel(address), id="channel"),
    ],
)
@within(10)
async def test_a_call_cancelled_at_any_await_leaves_no_socket_open(
    victim: Callable[[RemotingClient, str], Awaitable[object]],
) -> None:
    async with serving(echo_table()) as server, open_client() as client:
        address = address_of(server)
        files = open_files()

        async def check() -> None:
            assert client.statistics().calls_under_way == 0
            # The attempt to connect goes on without those who gave up, for the next who calls.
            await client.channel(address)
            client.close_channel(address)
            await wait_until(lambda: open_files() <= files)

        cancelled = await cancelled_at_every_step(functools.partial(victim, client, address), check)
        assert cancelled >= 1, "nothing was cancelled"
        assert server.statistics().accepted == cancelled + 1, "one dial a round"


@within(10)
async def test_a_client_cancelled_at_any_await_of_any_task_leaves_no_socket_open() -> None:
    async with serving(echo_table()) as server:
        files = open_files()

        async def live() -> None:
            async with open_client() as client:
                await client.request(address_of(server), ECHO)
                await client.oneway(address_of(server), ECHO)

        async def check() -> None:
            await wait_until(lambda: open_files() <= files)

        assert await cancelled_at_every_step(live, check, of_all_tasks=True) >= 5


@within(10)
async def test_a_client_closes_every_socket_it_opened() -> None:
    async with serving(echo_table()) as one, serving(echo_table()) as two:
        files = open_files()
        for _ in range(3):
            async with open_client() as client:
                await client.request(address_of(one), ECHO)
                await client.request(address_of(two), ECHO)
        await wait_until(lambda: open_files() <= files)
