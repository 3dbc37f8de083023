"""The client, call by call, on connections in memory and in virtual time.

The far end of each connection is played by the test, frame by frame, so that every order of events
can be had. Real sockets are in test_client_server.py, TLS is in test_tls.py.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import TYPE_CHECKING, Final

import pytest
import trio
import trio.testing

from rmq.errors import (
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.addresses import parse_address
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    VERSION,
    LanguageCode,
    RequestCode,
    ResponseCode,
    Serialization,
)
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import GetMaxOffsetRequest, GetMaxOffsetResponse
from rmq.remoting.protocol import RequestType
from tests.remoting.client_kit import (
    ECHO,
    PEER,
    READY,
    Collector,
    EventLog,
    MemoryNetwork,
    MemoryPeer,
    Names,
    Outcome,
    answer_frame,
    cancelled_at_every_step,
    in_virtual_time,
    memory_client,
    request_frame,
    start_call,
    tasks_living,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request
    from rmq.remoting.transport import Transport

REFUSED: Final = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


# ---- one connection per peer -------------------------------------------------------------------


@in_virtual_time()
async def test_a_burst_of_first_calls_dials_once() -> None:
    network = MemoryNetwork()
    network.dial_s = 1.0
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        calls = [start_call(nursery, client, body=b"%d" % n) for n in range(50)]
        answers = [(await call.wait()).answer for call in calls]
        assert [answer and answer.body for answer in answers] == [b"%d" % n for n in range(50)]
        assert network.dials == [PEER]
        assert client.statistics().connections == 1


@in_virtual_time()
async def test_calls_one_after_another_share_a_connection_and_number_their_requests() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        opaques = []
        for number in range(3):
            call = start_call(nursery, client)
            if number == 0:
                peer = await network.accept()
            command = await peer.next_command()
            opaques.append(command.opaque)
            await peer.answer(command)
            await call.wait()
        assert len(set(opaques)) == 3
        assert network.dials == [PEER]


@in_virtual_time()
async def test_two_addresses_have_two_connections() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        await client.request("one:1", ECHO)
        await client.request("two:2", ECHO)
        await client.request("one:1", ECHO)
        assert network.dials == ["one:1", "two:2"]
        assert client.statistics().connections == 2


@in_virtual_time()
async def test_a_call_after_the_peer_closed_dials_again() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        first = start_call(nursery, client)
        peer = await network.accept()
        await peer.answer(await peer.next_command())
        assert (await first.wait()).error is None
        await peer.close()
        await trio.testing.wait_all_tasks_blocked()
        assert client.open_channel_to(PEER) is None
        nursery.start_soon(network.serve_echo)
        assert (await client.request(PEER, ECHO, body=b"again")).body == b"again"
        assert network.dials == [PEER, PEER]


@in_virtual_time()
async def test_close_channel_wakes_the_waiters_and_the_next_call_dials_again() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        waiting = start_call(nursery, client)
        peer = await network.accept()
        await peer.next_command()
        client.close_channel(PEER, "the route has changed")
        error = (await waiting.wait()).error
        assert isinstance(error, ConnectionLostError)
        assert error.reason == "the route has changed"
        await peer.wait_closed()
        nursery.start_soon(network.serve_echo)
        await client.request(PEER, ECHO)
        assert network.dials == [PEER, PEER]


@in_virtual_time()
async def test_close_channel_of_an_unknown_address_does_nothing() -> None:
    async with memory_client(MemoryNetwork()) as (client, _):
        client.close_channel("never.dialled:1")
        assert client.statistics().connections == 0


@in_virtual_time()
async def test_close_channel_while_dialling_leaves_at_most_one_connection() -> None:
    network = MemoryNetwork()
    network.dial_s = 1.0
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        early = start_call(nursery, client)
        await trio.sleep(0.5)
        client.close_channel(PEER)
        late = start_call(nursery, client)
        await early.wait()
        await late.wait()
        assert late.error is None
        assert client.statistics().connections == 1


@in_virtual_time(600)
async def test_an_idle_connection_is_closed_after_two_minutes_and_dialled_again() -> None:
    network = MemoryNetwork()
    events = EventLog()
    async with (
        trio.open_nursery() as nursery,
        open_client(connector=network, listeners=[events]) as client,
    ):
        nursery.start_soon(network.serve_echo)
        await client.request(PEER, ECHO)
        await trio.sleep(119)
        assert client.open_channel_to(PEER) is not None
        await trio.sleep(2)
        assert client.open_channel_to(PEER) is None
        assert len(events.idle) == 1
        assert [reason for _, reason in events.closed] == ["idle for 120 s"]
        await client.request(PEER, ECHO)
        assert len(events.opened) == 2
        nursery.cancel_scope.cancel()


# ---- dials that fail ---------------------------------------------------------------------------


@in_virtual_time()
async def test_a_failed_dial_names_address_and_reason_and_the_next_call_dials_again() -> None:
    network = MemoryNetwork()
    network.failures.append(REFUSED)
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        with pytest.raises(
            ConnectFailedError, match=r"cannot connect to peer:9876: Connection refused"
        ) as caught:
            await client.request(PEER, ECHO)
        assert caught.value.peer == PEER
        assert caught.value.reason == "Connection refused"
        assert caught.value.retriable
        assert client.statistics().connections == 0
        await client.request(PEER, ECHO)
        assert network.dials == [PEER, PEER]


@in_virtual_time()
async def test_a_dial_that_takes_too_long_is_a_failed_one() -> None:
    network = MemoryNetwork()
    network.dial_s = 1_000
    async with memory_client(network, ClientConfig(connect_timeout_s=2.5)) as (client, _):
        with pytest.raises(ConnectFailedError, match=r"peer:9876: no connection within 2.5 s"):
            await client.request(PEER, ECHO, timeout_s=10)
        assert trio.current_time() == 2.5


@in_virtual_time()
async def test_a_burst_of_calls_shares_one_failed_dial() -> None:
    """RocketMQ 4.9.8 NettyRemotingClient lets all callers wait for one connect attempt. If each
    dialled in turn, the last of them would wait for all the others' failures.
    """
    network = MemoryNetwork()
    network.dial_s = 1_000
    async with memory_client(network, ClientConfig(connect_timeout_s=2)) as (client, nursery):
        calls = [start_call(nursery, client, timeout_s=30) for _ in range(5)]
        for call in calls:
            await call.wait()
            assert isinstance(call.error, ConnectFailedError)
            assert call.at == 2.0
        assert network.dials == [PEER]


@in_virtual_time()
async def test_an_impatient_first_caller_does_not_spoil_the_dial_for_the_others() -> None:
    network = MemoryNetwork()
    network.dial_s = 1.0
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        impatient = start_call(nursery, client, timeout_s=0.5)
        await trio.testing.wait_all_tasks_blocked()
        patient = start_call(nursery, client, timeout_s=3)
        assert isinstance((await impatient.wait()).error, RequestTimeoutError)
        assert (await patient.wait()).error is None
        assert client.statistics().connections == 1


@in_virtual_time()
async def test_listeners_hear_of_connections_opened_and_closed() -> None:
    network = MemoryNetwork()
    events = EventLog()
    async with (
        trio.open_nursery() as nursery,
        open_client(connector=network, listeners=[events]) as client,
    ):
        channel = await client.channel(PEER)
        assert events.opened == [channel]
        assert events.closed == []
        await (await network.accept()).close()
        await trio.testing.wait_all_tasks_blocked()
        assert events.closed == [(channel, "closed by the peer")]
        nursery.cancel_scope.cancel()


# ---- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        pytest.param("127.0.0.1:10911", "127.0.0.1", 10911, id="ipv4"),
        pytest.param("broker-a.example:9876", "broker-a.example", 9876, id="name"),
        pytest.param("[::1]:9876", "::1", 9876, id="ipv6-in-brackets"),
        pytest.param("fe80::2:65535", "fe80::2", 65535, id="ipv6-bare"),
        pytest.param("h:1", "h", 1, id="least-port"),
    ],
)
def test_an_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert parse_address(address) == (host, port)


BAD_ADDRESSES: Final = [
    pytest.param("", id="empty"),
    pytest.param("localhost", id="no-port"),
    pytest.param("localhost:", id="empty-port"),
    pytest.param(":9876", id="no-host"),
    pytest.param("[]:9876", id="empty-brackets"),
    pytest.param("localhost:http", id="port-in-letters"),
    pytest.param("localhost:-1", id="negative-port"),
    pytest.param("localhost:0", id="port-0"),
    pytest.param("localhost:65536", id="port-too-large"),
    pytest.param("localhost:９８７６", id="digits-beyond-ascii"),  # noqa: RUF001 - that is the point
    pytest.param("localhost: 9876", id="space"),
]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_a_malformed_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(address)
    assert caught.value.key == "address"
    assert repr(address) in str(caught.value)


@pytest.mark.parametrize("address", BAD_ADDRESSES)
@in_virtual_time()
async def test_a_call_to_a_malformed_address_says_so(address: str) -> None:
    async with open_client() as client:
        with pytest.raises(ConfigError):
            await client.request(address, ECHO)
        assert client.statistics().connections == 0


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("no-such-host.example", id="unknown"),
        pytest.param("two..dots", id="empty-label"),
        pytest.param("x" * 64 + ".example", id="label-too-long"),
    ],
)
@in_virtual_time()
async def test_a_call_to_a_host_that_cannot_be_looked_up_says_which(host: str) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    async with open_client() as client:
        with pytest.raises((ConnectFailedError, ConfigError)) as caught:
            await client.request(f"{host}:9876", ECHO)
        assert host in str(caught.value)


# ---- deadlines ---------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_timeout_names_code_peer_and_seconds() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, _):
        with pytest.raises(RequestTimeoutError) as caught:
            await client.request(PEER, RequestCode.PULL_MESSAGE, timeout_s=1.5)
    assert str(caught.value) == "PULL_MESSAGE to peer:9876: no answer within 1.5 s"
    assert (caught.value.peer, caught.value.what, caught.value.timeout_s) == (
        PEER,
        "PULL_MESSAGE",
        1.5,
    )
    assert caught.value.retriable


@in_virtual_time()
async def test_the_deadline_covers_connecting_and_the_answer() -> None:
    network = MemoryNetwork()
    network.dial_s = 2.0
    async with memory_client(network) as (client, nursery):
        call = start_call(nursery, client, timeout_s=2.5)
        assert isinstance((await call.wait()).error, RequestTimeoutError)
        assert call.at == 2.5


@in_virtual_time()
async def test_a_timeout_names_the_whole_time_allowed_even_where_connecting_took_part_of_it() -> (
    None
):
    network = MemoryNetwork()
    network.dial_s = 2.0
    async with memory_client(network) as (client, nursery):
        error = (await start_call(nursery, client, timeout_s=2.5).wait()).error
    assert isinstance(error, RequestTimeoutError)
    assert error.timeout_s == 2.5


@in_virtual_time()
async def test_a_deadline_that_passes_while_connecting_is_a_timeout_of_the_request() -> None:
    network = MemoryNetwork()
    network.dial_s = 1_000
    async with memory_client(network) as (client, nursery):
        call = start_call(nursery, client, timeout_s=0.75)
        error = (await call.wait()).error
        assert isinstance(error, RequestTimeoutError)
        assert str(error) == "HEART_BEAT to peer:9876: no answer within 0.75 s"
        assert call.at == 0.75


@in_virtual_time()
async def test_a_one_way_request_to_a_peer_that_cannot_be_reached_in_time_is_refused() -> None:
    network = MemoryNetwork()
    network.dial_s = 1_000
    async with memory_client(network) as (client, _):
        with pytest.raises(RequestTimeoutError):
            await client.oneway(PEER, ECHO, timeout_s=0.75)
        assert trio.current_time() == 0.75


@in_virtual_time()
async def test_a_timeout_on_a_silent_connection_closes_it_and_the_next_call_dials_again() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        call = start_call(nursery, client, timeout_s=1)
        peer = await network.accept()
        assert isinstance((await call.wait()).error, RequestTimeoutError)
        await peer.wait_closed()
        assert client.open_channel_to(PEER) is None
        nursery.start_soon(network.serve_echo)
        await client.request(PEER, ECHO)
        assert len(network.dials) == 2


@in_virtual_time()
async def test_others_on_a_silent_connection_learn_why_it_was_closed() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        short = start_call(nursery, client, timeout_s=1)
        long = start_call(nursery, client, timeout_s=10)
        assert isinstance((await short.wait()).error, RequestTimeoutError)
        error = (await long.wait()).error
        assert isinstance(error, ConnectionLostError)
        assert error.reason == "no byte received since HEART_BEAT was sent 1 s ago"
        assert long.at == 1.0


async def _answer_another_call(peer: MemoryPeer, other: Command) -> None:
    await peer.answer(other, body=b"other")


async def _send_a_request(peer: MemoryPeer, _: Command) -> None:
    await peer.ask(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 7, flag=FLAG_ONEWAY)


async def _send_half_a_frame(peer: MemoryPeer, other: Command) -> None:
    await peer.send(answer_frame(other.opaque)[:9])


@pytest.mark.parametrize(
    "sign_of_life",
    [
        pytest.param(_answer_another_call, id="another-answer"),
        pytest.param(_send_a_request, id="a-request-of-the-peer"),
        pytest.param(_send_half_a_frame, id="half-a-frame"),
    ],
)
@in_virtual_time()
async def test_a_timeout_on_a_connection_that_gives_signs_of_life_leaves_it_open(
    sign_of_life: Callable[[MemoryPeer, Command], Awaitable[None]],
) -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        slow = start_call(nursery, client, timeout_s=1)
        peer = await network.accept()
        await peer.next_command()
        start_call(nursery, client, timeout_s=10)
        other_request = await peer.next_command()
        await trio.sleep(0.5)
        await sign_of_life(peer, other_request)
        assert isinstance((await slow.wait()).error, RequestTimeoutError)
        assert slow.at == 1.0
        assert client.open_channel_to(PEER) is not None
        assert network.dials == [PEER]


@in_virtual_time()
async def test_a_late_answer_is_dropped_and_the_other_waiters_get_theirs() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        slow = start_call(nursery, client, timeout_s=1)
        peer = await network.accept()
        slow_request = await peer.next_command()
        first = start_call(nursery, client, timeout_s=10)
        first_request = await peer.next_command()
        second = start_call(nursery, client, timeout_s=10)
        second_request = await peer.next_command()
        await trio.sleep(0.5)
        await peer.answer(first_request, body=b"first")
        assert isinstance((await slow.wait()).error, RequestTimeoutError)
        await peer.answer(slow_request, body=b"too late")
        await peer.answer(second_request, body=b"second")
        for call, body in ((first, b"first"), (second, b"second")):
            answer = (await call.wait()).answer
            assert answer is not None
            assert answer.body == body
        assert client.statistics().calls_under_way == 0
        assert network.dials == [PEER]


@in_virtual_time()
async def test_deadlines_are_kept_in_whatever_order_they_were_set() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        patient = start_call(nursery, client, timeout_s=9)
        peer = await network.accept()
        calls = {t: start_call(nursery, client, timeout_s=t) for t in (5, 1, 3, 2, 4)}
        for second in range(6):
            # Alive all along, or the first timeout would close the connection.
            await trio.sleep(0.5)
            await peer.ask(ECHO, second, flag=FLAG_ONEWAY)
            await trio.sleep(0.5)
        for timeout_s, call in calls.items():
            assert isinstance((await call.wait()).error, RequestTimeoutError)
            assert call.at == timeout_s
        assert patient.at is None


# ---- matching answers --------------------------------------------------------------------------


@in_virtual_time()
async def test_a_thousand_answers_in_reverse_order_find_their_calls() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        calls = [start_call(nursery, client, body=b"%d" % n) for n in range(1_000)]
        peer = await network.accept()
        commands = await peer.next_commands(1_000)
        assert client.statistics().calls_under_way == 1_000
        await peer.send(
            b"".join(
                answer_frame(each.opaque, body=each.body or b"") for each in reversed(commands)
            )
        )
        for number, call in enumerate(calls):
            answer = (await call.wait()).answer
            assert answer is not None
            assert answer.body == b"%d" % number
        assert client.statistics().calls_under_way == 0
        assert network.dials == [PEER]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ResponseCode.SUCCESS, id="success"),
        pytest.param(ResponseCode.SYSTEM_ERROR, id="system-error"),
        pytest.param(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, id="not-supported"),
        pytest.param(12_345, id="unknown"),
        pytest.param(-9, id="negative"),
    ],
)
@in_virtual_time()
async def test_an_answer_is_returned_whatever_its_code(code: int) -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        call = start_call(nursery, client)
        peer = await network.accept()
        await peer.answer(await peer.next_command(), code=code, remark="as it is")
        answer = (await call.wait()).answer
        assert answer is not None
        assert (answer.code, answer.remark, answer.is_response) == (code, "as it is", True)


@in_virtual_time()
async def test_an_answer_that_comes_byte_by_byte_is_one_answer() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        call = start_call(nursery, client)
        peer = await network.accept()
        for byte in answer_frame((await peer.next_command()).opaque, body=b"in pieces"):
            await peer.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        answer = (await call.wait()).answer
        assert answer is not None
        assert answer.body == b"in pieces"


@pytest.mark.parametrize("serialization", list(Serialization), ids=lambda each: each.name)
@in_virtual_time()
async def test_requests_are_written_in_the_serialization_that_is_configured(
    serialization: Serialization,
) -> None:
    network = MemoryNetwork()
    async with memory_client(network, ClientConfig(serialization=serialization)) as (
        client,
        nursery,
    ):
        header = GetMaxOffsetRequest(topic="T", queue_id=3)
        await client.oneway(
            PEER,
            RequestCode.GET_MAX_OFFSET,
            header,
            body=b"one way",
            extra={"ReqT": "0"},
            remark="r",
        )
        outcome = Outcome()
        nursery.start_soon(
            outcome.of,
            functools.partial(
                client.request,
                PEER,
                RequestCode.GET_MAX_OFFSET,
                header,
                body=b"two ways",
                extra={"ReqT": "0"},
                remark="r",
            ),
        )
        peer = await network.accept()
        for flag, body in ((FLAG_ONEWAY, b"one way"), (0, b"two ways")):
            command = await peer.next_command()
            assert command.serialization is serialization
            assert command.flag == flag
            assert command.body == body
            assert command.code == RequestCode.GET_MAX_OFFSET
            assert command.language is LanguageCode.PYTHON
            assert command.version == VERSION
            assert command.remark == "r"
            assert command.ext_fields["ReqT"] == "0"
            assert command.header(GetMaxOffsetRequest) == header
        await peer.answer(command, header=GetMaxOffsetResponse(offset=2**40))
        answer = (await outcome.wait()).answer
        assert answer is not None
        assert answer.serialization is serialization
        assert answer.header(GetMaxOffsetResponse).offset == 2**40


@pytest.mark.parametrize("asked", list(Serialization), ids=lambda each: f"asked-{each.name}")
@pytest.mark.parametrize("told", list(Serialization), ids=lambda each: f"told-{each.name}")
@in_virtual_time()
async def test_an_answer_may_be_in_the_other_serialization(
    asked: Serialization, told: Serialization
) -> None:
    network = MemoryNetwork()
    async with memory_client(network, ClientConfig(serialization=asked)) as (client, nursery):
        call = start_call(nursery, client)
        peer = await network.accept()
        await peer.answer(
            await peer.next_command(),
            header=GetMaxOffsetResponse(offset=-1),
            remark="müde",
            serialization=told,
        )
        answer = (await call.wait()).answer
        assert answer is not None
        assert answer.serialization is told
        assert answer.remark == "müde"
        assert answer.header(GetMaxOffsetResponse).offset == -1


@in_virtual_time()
async def test_answers_that_nobody_waits_for_are_ignored() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        await client.oneway(PEER, ECHO, body=b"no answer wanted")
        call = start_call(nursery, client)
        peer = await network.accept()
        one_way, request = await peer.next_commands(2)
        assert one_way.is_oneway
        await peer.answer(one_way, code=ResponseCode.SYSTEM_BUSY)
        for opaque in (request.opaque + 1_000, -1, 2**31 - 1, -(2**31)):
            await peer.send(answer_frame(opaque, body=b"not yours"))
        await peer.answer(request, body=b"yours")
        await peer.answer(request, body=b"yours once more")
        answer = (await call.wait()).answer
        assert answer is not None
        assert answer.body == b"yours"
        await trio.testing.wait_all_tasks_blocked()
        assert client.open_channel_to(PEER) is not None


@in_virtual_time()
async def test_a_cancelled_call_leaves_nothing_and_its_late_answer_is_ignored() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        other = start_call(nursery, client, body=b"other")
        peer = await network.accept()
        other_request = await peer.next_command()
        with trio.move_on_after(0.5) as scope:
            await client.request(PEER, ECHO, body=b"abandoned")
        assert scope.cancelled_caught
        assert client.statistics().calls_under_way == 1
        abandoned_request = await peer.next_command()
        await peer.answer(abandoned_request, body=b"late")
        await peer.answer(other_request, body=b"kept")
        answer = (await other.wait()).answer
        assert answer is not None
        assert answer.body == b"kept"
        # Past the deadline that the cancelled call would have had, the connection still stands.
        await trio.sleep(5)
        assert client.open_channel_to(PEER) is not None
        assert network.dials == [PEER]


@in_virtual_time()
async def test_an_answer_and_a_cancellation_in_the_same_step_lose_neither_task_nor_entry() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        channel = await client.channel(PEER)
        peer = await network.accept()
        with trio.CancelScope() as scope:

            async def answer_and_cancel() -> None:
                await peer.answer(await peer.next_command(), body=b"in time")
                scope.cancel()

            nursery.start_soon(answer_and_cancel)
            await channel.request(ECHO)
        await trio.testing.wait_all_tasks_blocked()
        assert channel.calls_under_way == 0
        assert channel.is_open


# ---- limits ------------------------------------------------------------------------------------


@in_virtual_time()
async def test_calls_beyond_the_limit_are_refused_and_nothing_is_sent_for_them() -> None:
    network = MemoryNetwork()
    config = ClientConfig(channel=ChannelConfig(calls_max=3))
    async with memory_client(network, config) as (client, nursery):
        first = start_call(nursery, client)
        peer = await network.accept()
        first_request = await peer.next_command()
        for _ in range(2):
            start_call(nursery, client)
        await peer.next_commands(2)
        with pytest.raises(TooManyRequestsError, match="3 requests are under way") as caught:
            await client.request(PEER, RequestCode.PULL_MESSAGE)
        assert (caught.value.peer, caught.value.what, caught.value.limit) == (
            PEER,
            "PULL_MESSAGE",
            3,
        )
        await peer.answer(first_request)
        await first.wait()
        start_call(nursery, client, code=READY)
        assert (await peer.next_command()).code == READY, "a refused request was sent after all"


@in_virtual_time()
async def test_a_cancelled_and_a_timed_out_call_make_room_for_others() -> None:
    network = MemoryNetwork()
    config = ClientConfig(channel=ChannelConfig(calls_max=2))
    async with memory_client(network, config) as (client, nursery):
        start_call(nursery, client, timeout_s=1)
        peer = await network.accept()
        await peer.next_command()
        with trio.move_on_after(0.5):
            await client.request(PEER, ECHO)
        await peer.ask(ECHO, 1, flag=FLAG_ONEWAY)
        await trio.sleep(1)
        nursery.start_soon(peer.echo)
        async with trio.open_nursery() as callers:
            for _ in range(2):
                callers.start_soon(client.request, PEER, ECHO)
        assert network.dials == [PEER]


@in_virtual_time()
async def test_one_way_requests_that_cannot_be_written_are_bounded() -> None:
    network = MemoryNetwork(lockstep=True)
    config = ClientConfig(channel=ChannelConfig(oneways_max=4))
    async with memory_client(network, config) as (client, _):
        for _ in range(4):
            await client.oneway(PEER, ECHO)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TooManyRequestsError) as caught:
            await client.oneway(PEER, READY)
        assert (caught.value.what, caught.value.limit) == (READY.name, 4)
        peer = await network.accept()
        await peer.next_commands(4)
        await trio.testing.wait_all_tasks_blocked()
        await client.oneway(PEER, RequestCode.UNREGISTER_CLIENT)
        assert (await peer.next_command()).code == RequestCode.UNREGISTER_CLIENT


@in_virtual_time()
async def test_one_way_requests_count_only_until_they_are_written() -> None:
    """A steady flow that the peer keeps up with is never refused, even where there is always one
    more waiting.
    """
    network = MemoryNetwork(lockstep=True)
    config = ClientConfig(channel=ChannelConfig(oneways_max=4))
    async with memory_client(network, config) as (client, _):
        await client.oneway(PEER, ECHO)
        await client.oneway(PEER, ECHO)
        peer = await network.accept()
        for _ in range(20):
            # One is read, one more is sent: at no time are there more than three.
            await trio.testing.wait_all_tasks_blocked()
            await client.oneway(PEER, ECHO)
            await peer.next_command()


@in_virtual_time()
async def test_a_request_too_large_to_send_is_refused_here_and_harms_nobody() -> None:
    network = MemoryNetwork()
    config = ClientConfig(channel=ChannelConfig(frame_bytes_max=10_000))
    async with memory_client(network, config) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        with pytest.raises(LocalProtocolError, match="limit of 10000"):
            await client.request(PEER, ECHO, body=bytes(10_000))
        with pytest.raises(LocalProtocolError, match="limit of 10000"):
            await client.oneway(PEER, ECHO, body=bytes(10_000))
        assert client.statistics().calls_under_way == 0
        assert (await client.request(PEER, ECHO, body=b"small")).body == b"small"
        assert network.dials == [PEER]


@in_virtual_time()
async def test_requests_are_refused_while_too_many_bytes_wait_to_be_written() -> None:
    network = MemoryNetwork(lockstep=True)
    config = ClientConfig(channel=ChannelConfig(outbox_bytes_max=100_000))
    async with memory_client(network, config) as (client, nursery):
        calls = [start_call(nursery, client, body=bytes(60_000)) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        for send in (client.request, client.oneway):
            with pytest.raises(TooManyRequestsError) as caught:
                await send(PEER, READY)
            assert (caught.value.what, caught.value.limit) == (READY.name, 100_000)
            assert "bytes wait to be written" in str(caught.value)
        nursery.start_soon(network.serve_echo)
        for call in calls:
            assert (await call.wait()).error is None
        await client.request(PEER, READY)
        assert network.dials == [PEER]


@in_virtual_time(600)
async def test_a_peer_that_takes_nothing_for_long_is_cut_off() -> None:
    network = MemoryNetwork(lockstep=True)
    config = ClientConfig(channel=ChannelConfig(stall_timeout_s=20))
    async with memory_client(network, config) as (client, nursery):
        call = start_call(nursery, client, timeout_s=300)
        error = (await call.wait()).error
        assert isinstance(error, ConnectionLostError)
        assert error.reason == "the peer did not read for 20 s"
        assert call.at is not None
        assert 20 <= call.at <= 22


@in_virtual_time()
async def test_answers_are_read_while_requests_are_still_being_written() -> None:
    """A peer that reads a request, writes its answer and only then reads the next one must not be
    waited for before that answer is read: both would wait for ever.
    """
    network = MemoryNetwork(lockstep=True)
    async with memory_client(network) as (client, nursery):
        # Large enough to be written one by one.
        calls = [start_call(nursery, client, body=bytes(200_000)) for _ in range(4)]
        nursery.start_soon(network.serve_echo)
        for call in calls:
            assert (await call.wait()).error is None


# ---- submit ------------------------------------------------------------------------------------


@in_virtual_time()
async def test_a_submitted_request_calls_back_once_with_its_answer() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, _):
        channel = await client.channel(PEER)
        collector = Collector()
        channel.submit(ECHO, body=b"hello", on_outcome=collector)
        peer = await network.accept()
        command = await peer.next_command()
        await peer.answer(command, body=b"world")
        await peer.answer(command, body=b"world")
        await collector.wait_count(1)
        await trio.sleep(10)
        await peer.close()
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = collector.outcomes
        assert not isinstance(outcome, Exception)
        assert outcome.body == b"world"


@in_virtual_time()
async def test_a_submitted_request_calls_back_once_with_its_timeout() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, _):
        channel = await client.channel(PEER)
        collector = Collector()
        channel.submit(ECHO, timeout_s=2, on_outcome=collector)
        peer = await network.accept()
        command = await peer.next_command()
        await trio.sleep(1)
        await peer.ask(ECHO, 1, flag=FLAG_ONEWAY)
        await trio.sleep(2)
        await peer.answer(command)
        await trio.testing.wait_all_tasks_blocked()
        await peer.close()
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = collector.outcomes
        assert isinstance(outcome, RequestTimeoutError)
        assert outcome.timeout_s == 2


@in_virtual_time()
async def test_a_submitted_request_calls_back_once_with_the_loss_of_its_connection() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, _):
        channel = await client.channel(PEER)
        collector = Collector()
        for _ in range(3):
            channel.submit(ECHO, timeout_s=2, on_outcome=collector)
        peer = await network.accept()
        await peer.next_commands(3)
        await peer.close()
        await collector.wait_count(3)
        await trio.sleep(10)
        assert len(collector.outcomes) == 3
        for outcome in collector.outcomes:
            assert isinstance(outcome, ConnectionLostError)
            assert outcome.reason == "closed by the peer"
        with pytest.raises(ConnectionLostError, match="closed by the peer"):
            channel.submit(ECHO, on_outcome=collector)
        with pytest.raises(ConnectionLostError, match="closed by the peer"):
            channel.oneway(ECHO)
        assert len(collector.outcomes) == 3


@in_virtual_time()
async def test_an_outcome_may_submit_the_next_request() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        channel = await client.channel(PEER)
        bodies: list[bytes] = []
        done = trio.Event()

        def go_on(outcome: object) -> None:
            assert not isinstance(outcome, Exception)
            bodies.append(b"%d" % len(bodies))
            if len(bodies) == 100:
                done.set()
            else:
                channel.submit(ECHO, on_outcome=go_on)

        channel.submit(ECHO, on_outcome=go_on)
        await done.wait()
        assert len(bodies) == 100


# ---- the end of a connection -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "closed by the peer", id="closed"),
        pytest.param(b"\0\0\1\0\0\0\0\4{", "closed by the peer", id="closed-inside-a-frame"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "protocol error: HTTP bytes", id="http"),
        pytest.param(b"\x15\3\3\0\2\2\x46", "protocol error: frame length", id="tls-alert"),
        pytest.param(b"\xff\xff\xff\xff", "protocol error: frame length -1", id="negative-length"),
        pytest.param(b"\0\0\0\3\0\0\0\0", "protocol error: frame length 3", id="short-length"),
        pytest.param(
            b"\0\0\0\6\7\0\0\2{}", "protocol error: unknown header serialization 7", id="type-7"
        ),
        pytest.param(b"\0\0\0\6\0\0\0\2[]", "protocol error: malformed JSON", id="json-list"),
        pytest.param(b"\0\0\0\6\0\0\0\3{}", "protocol error: header length 3", id="header-length"),
    ],
)
@in_virtual_time()
async def test_what_ends_a_connection_wakes_every_waiter_with_the_reason(
    data: bytes, reason: str
) -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        calls = [start_call(nursery, client, timeout_s=50) for _ in range(20)]
        peer = await network.accept()
        await peer.next_commands(20)
        if data:
            await peer.send(data)
            await trio.testing.wait_all_tasks_blocked()
        if reason == "closed by the peer":
            await peer.close()
        for call in calls:
            error = (await call.wait()).error
            assert isinstance(error, ConnectionLostError)
            assert error.peer == PEER
            assert error.reason.startswith(reason)
            assert error.retriable
            assert call.at == 0.0, "woken by a deadline, not by the end of the connection"
        statistics = client.statistics()
        assert (statistics.calls_under_way, statistics.connections) == (0, 0)


@in_virtual_time()
async def test_answers_before_the_end_of_a_connection_still_reach_their_callers() -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        answered = start_call(nursery, client)
        peer = await network.accept()
        request = await peer.next_command()
        unanswered = start_call(nursery, client)
        await peer.next_command()
        await peer.send(answer_frame(request.opaque, body=b"in time") + b"garbage")
        answer = (await answered.wait()).answer
        assert answer is not None
        assert answer.body == b"in time"
        assert isinstance((await unanswered.wait()).error, ConnectionLostError)


@in_virtual_time()
async def test_leaving_the_block_wakes_every_waiter() -> None:
    network = MemoryNetwork()
    calls = []
    async with trio.open_nursery() as nursery:
        async with open_client(connector=network) as client:
            calls = [start_call(nursery, client, timeout_s=50) for _ in range(20)]
            peer = await network.accept()
            await peer.next_commands(20)
        for call in calls:
            error = (await call.wait()).error
            assert isinstance(error, ConnectionLostError)
            assert error.reason == "the endpoint is closing"
        await peer.wait_closed()


@in_virtual_time()
async def test_leaving_the_block_wakes_those_who_are_still_connecting() -> None:
    network = MemoryNetwork()
    network.dial_s = 1.0
    async with trio.open_nursery() as nursery:
        async with open_client(connector=network) as client:
            calls = [start_call(nursery, client) for _ in range(3)]
            await trio.testing.wait_all_tasks_blocked()
        for call in calls:
            assert isinstance((await call.wait()).error, ConnectionLostError | ConnectFailedError)
        with trio.move_on_after(5):
            # A connection that came after all must not stay behind.
            await (await network.accept()).wait_closed()
        assert client.statistics().connections == 0


@in_virtual_time()
async def test_a_connection_that_is_made_too_late_is_closed() -> None:
    """A connect that completes in the very step in which the client closes can no longer be
    cancelled.
    """
    network = MemoryNetwork()
    network.dial_s = 1.0

    async def dial_whatever_comes(address: str) -> Transport:
        with trio.CancelScope(shield=True):
            transport = await network(address)
        return transport

    async with trio.open_nursery() as nursery:
        async with open_client(connector=dial_whatever_comes) as client:
            call = start_call(nursery, client)
            await trio.testing.wait_all_tasks_blocked()
        error = (await call.wait()).error
        assert isinstance(error, ConnectionLostError | ConnectFailedError)
        await (await network.accept()).wait_closed()


@in_virtual_time()
async def test_an_error_in_the_block_comes_out_as_itself() -> None:
    network = MemoryNetwork()
    network.failures.append(REFUSED)
    with pytest.raises(ConnectFailedError):
        async with open_client(connector=network) as client:
            await client.request(PEER, ECHO)


@in_virtual_time()
async def test_a_cancelled_block_closes_its_connections() -> None:
    network = MemoryNetwork()
    before = tasks_living()
    with trio.move_on_after(1) as scope:
        async with open_client(connector=network) as client:
            await client.request(PEER, ECHO, timeout_s=50)
    assert scope.cancelled_caught
    await (await network.accept()).wait_closed()
    assert tasks_living() == before


@pytest.mark.parametrize("steps", range(6))
@in_virtual_time()
async def test_closing_a_connection_while_it_is_written_harms_no_other(steps: int) -> None:
    network = MemoryNetwork()
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        await client.request("other:1", ECHO)
        for _ in range(5):
            await client.oneway(PEER, ECHO, body=b"x")
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            client.close_channel(PEER)
            await trio.testing.wait_all_tasks_blocked()
        assert (await client.request("other:1", ECHO, body=b"unharmed")).body == b"unharmed"
        assert network.dials.count("other:1") == 1


# ---- requests of the peer ----------------------------------------------------------------------


def _callback_table() -> HandlerTable:
    def notified(request: Request[EmptyHeader]) -> None:
        request.reply(body=b"handled " + (request.body or b""))

    def fail(request: Request[EmptyHeader]) -> None:
        raise LookupError("no such group")

    table = HandlerTable()
    table.add(RequestType(code=RequestCode.GET_CONSUMER_RUNNING_INFO), notified)
    table.add(RequestType(code=RequestCode.CHECK_TRANSACTION_STATE), fail)
    return table


@in_virtual_time()
async def test_requests_of_the_peer_and_our_own_share_a_connection_and_the_same_numbers() -> None:
    network = MemoryNetwork()
    async with memory_client(network, table=_callback_table()) as (client, nursery):
        calls = [start_call(nursery, client, body=b"%d" % n) for n in range(10)]
        peer = await network.accept()
        requests = await peer.next_commands(10)
        for request in requests:
            # The peer asks with the very number of our request, and answers ours only afterwards.
            await peer.ask(
                RequestCode.GET_CONSUMER_RUNNING_INFO, request.opaque, body=request.body or b""
            )
        theirs = await peer.next_commands(10)
        for request, answer in zip(requests, theirs, strict=True):
            assert answer.is_response
            assert answer.opaque == request.opaque
            assert answer.body == b"handled " + (request.body or b"")
        assert all(call.at is None for call in calls), "taken for the answer to a call"
        for request in requests:
            await peer.answer(request, body=b"ours " + (request.body or b""))
        for number, call in enumerate(calls):
            ours = (await call.wait()).answer
            assert ours is not None
            assert ours.body == b"ours %d" % number


@in_virtual_time()
async def test_a_read_that_mixes_requests_and_answers_serves_both() -> None:
    network = MemoryNetwork()
    async with memory_client(network, table=_callback_table()) as (client, nursery):
        call = start_call(nursery, client)
        peer = await network.accept()
        request = await peer.next_command()
        await peer.send(
            request_frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 5, body=b"a")
            + answer_frame(request.opaque, body=b"answer")
            + request_frame(RequestCode.GET_CONSUMER_RUNNING_INFO, 6, body=b"b")
        )
        answer = (await call.wait()).answer
        assert answer is not None
        assert answer.body == b"answer"
        assert [each.opaque for each in await peer.next_commands(2)] == [5, 6]


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        pytest.param(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            " request type 326 not supported",
            id="unknown",
        ),
        pytest.param(
            RequestCode.CHECK_TRANSACTION_STATE,
            ResponseCode.SYSTEM_ERROR,
            "LookupError: no such group",
            id="handler-raises",
        ),
    ],
)
@in_virtual_time()
async def test_a_request_of_the_peer_that_cannot_be_served_is_answered_so(
    code: RequestCode, answer_code: ResponseCode, remark: str
) -> None:
    network = MemoryNetwork()
    async with memory_client(network, table=_callback_table()) as (client, _):
        await client.channel(PEER)
        peer = await network.accept()
        await peer.ask(code, 99)
        answer = await peer.next_command()
        assert (answer.opaque, answer.code, answer.remark) == (99, answer_code, remark)
        assert client.open_channel_to(PEER) is not None


@in_virtual_time()
async def test_a_handler_of_a_request_may_call_the_peer_back_before_it_answers() -> None:
    async def ask_back(request: Request[EmptyHeader]) -> None:
        answer = await request.channel.request(READY, body=b"which topic?")
        request.reply(body=answer.body)

    table = HandlerTable()
    table.add_async(RequestType(code=ECHO), ask_back)
    network = MemoryNetwork()
    async with memory_client(network, table=table) as (client, _):
        await client.channel(PEER)
        peer = await network.accept()
        await peer.ask(ECHO, 1)
        question = await peer.next_command()
        assert (question.code, question.is_response) == (READY, False)
        await peer.answer(question, body=b"that one")
        answer = await peer.next_command()
        assert (answer.opaque, answer.body, answer.is_response) == (1, b"that one", True)


# ---- leaving -----------------------------------------------------------------------------------


@in_virtual_time()
async def test_one_way_requests_sent_just_before_leaving_still_arrive() -> None:
    network = MemoryNetwork(lockstep=True)
    received: list[Command] = []

    async def read_slowly() -> None:
        peer = await network.accept()
        for _ in range(20):
            await trio.sleep(0.1)
            received.append(await peer.next_command())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_slowly)
        async with open_client(connector=network) as client:
            for number in range(20):
                await client.oneway(PEER, ECHO, body=b"%d" % number)
    assert [command.body for command in received] == [b"%d" % number for number in range(20)]


@in_virtual_time()
async def test_leaving_is_not_held_up_for_long_by_a_peer_that_does_not_read() -> None:
    network = MemoryNetwork(lockstep=True)
    async with open_client(ClientConfig(connect_timeout_s=2), connector=network) as client:
        await client.oneway(PEER, ECHO)
    assert trio.current_time() == 2.0


# ---- cancellation at every await ---------------------------------------------------------------


async def _request(client: RemotingClient) -> object:
    return await client.request(PEER, ECHO, body=b"x", timeout_s=30)


async def _oneway(client: RemotingClient) -> object:
    await client.oneway(PEER, ECHO, body=b"x", timeout_s=30)
    return None


async def _channel(client: RemotingClient) -> object:
    return await client.channel(PEER)


@pytest.mark.parametrize("dial_s", [pytest.param(0, id="quick"), pytest.param(1, id="slow")])
@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(_request, id="request"),
        pytest.param(_oneway, id="oneway"),
        pytest.param(_channel, id="channel"),
    ],
)
@in_virtual_time(600)
async def test_a_call_cancelled_at_any_await_leaves_no_task_no_waiter_and_no_connection(
    victim: Callable[[RemotingClient], Awaitable[object]], dial_s: float
) -> None:
    network = MemoryNetwork()
    network.dial_s = dial_s
    async with memory_client(network) as (client, nursery):
        nursery.start_soon(network.serve_echo)
        await trio.testing.wait_all_tasks_blocked()
        before = tasks_living()

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked()
            statistics = client.statistics()
            assert statistics.calls_under_way == 0
            assert statistics.connections == (0 if client.open_channel_to(PEER) is None else 1)
            # The next caller finds nothing in its way, and what it made is cleared for the next
            # round.
            assert (await client.request(PEER, ECHO, body=b"y")).body == b"y"
            client.close_channel(PEER)
            await trio.testing.wait_all_tasks_blocked()
            assert tasks_living() == before
            assert client.statistics().connections == 0

        cancelled = await cancelled_at_every_step(lambda: victim(client), check)
        assert cancelled >= 1, "nothing was cancelled"


@in_virtual_time(600)
async def test_a_client_cancelled_at_any_await_leaves_no_task_and_no_connection() -> None:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.serve_echo)
        await trio.testing.wait_all_tasks_blocked()
        before = tasks_living()

        async def live() -> None:
            async with open_client(connector=network) as client:
                await client.request(PEER, ECHO)
                await client.oneway(PEER, ECHO)

        async def check() -> None:
            # The far end of a connection that was left open would be a task too many.
            await trio.testing.wait_all_tasks_blocked()
            assert tasks_living() == before

        assert await cancelled_at_every_step(live, check, of_all_tasks=True) >= 5
        nursery.cancel_scope.cancel()
