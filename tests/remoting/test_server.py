"""The server as a whole: opening its port, taking connections, large bodies, and stopping."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from rmq.errors import ConfigError, ListenError
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import Serialization
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.poller import Poller
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Events,
    Holder,
    Logs,
    Told,
    ask,
    echo,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.header import Header
    from rmq.remoting.request import Request
    from tests.remoting.server_kit import Peer

# ---- listening -----------------------------------------------------------------------------------


async def test_the_system_chooses_a_port_and_the_server_tells_which() -> None:
    async with serving() as served:
        assert served.server.port > 0
        assert served.server.addresses == [f"127.0.0.1:{served.server.port}"]
        peer = await served.dial()
        assert await peer.ping() == []
        assert served.server.statistics().accepted == 1


async def test_a_host_with_several_addresses_has_one_port_on_all_of_them() -> None:
    server = RemotingServer(HandlerTable(), ServerConfig(host=""))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            ports = {address.rpartition(":")[2] for address in server.addresses}
            assert ports == {str(server.port)}
            nursery.cancel_scope.cancel()


async def listen_error(config: ServerConfig) -> ListenError:
    with trio.fail_after(5):
        with pytest.raises(ListenError) as caught:
            await RemotingServer(HandlerTable(), config).run()
    return caught.value


async def test_a_port_in_use_is_reported_with_a_hint() -> None:
    async with serving() as served:
        port = served.server.port
        error = await listen_error(ServerConfig(host="127.0.0.1", port=port))
        assert error.address == f"127.0.0.1:{port}"
        assert error.reason == os.strerror(errno.EADDRINUSE)
        assert error.hint is not None
        assert f":{port}" in error.hint
        # The first one is not disturbed.
        assert await (await served.dial()).ping() == []


@pytest.mark.parametrize(
    ("host", "hint"),
    [
        # Set aside for documentation: no machine has it.
        pytest.param("192.0.2.1", "no such address", id="address-of-another"),
        pytest.param("no such host", "check the host name", id="not-a-name"),
        pytest.param("a" * 70, "check the host name", id="label-too-long"),
        pytest.param("a..b", "check the host name", id="empty-label"),
    ],
)
async def test_a_host_that_cannot_be_listened_on_is_reported_with_a_hint(
    host: str, hint: str
) -> None:
    error = await listen_error(ServerConfig(host=host))
    assert error.address == f"{host}:0"
    assert error.hint is not None
    assert hint in error.hint


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", -1),
        ("port", 65_536),
        ("backlog", 0),
        ("connections_max", 0),
        ("handshake_timeout_s", 0),
    ],
)
def test_an_impossible_setting_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=field):
        ServerConfig(**{field: value})  # type: ignore[arg-type]


# ---- many connections ----------------------------------------------------------------------------


async def test_connections_over_the_limit_are_closed_and_places_are_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(connections_max=2) as served:
        first, second = await served.dial(), await served.dial()
        assert await first.ping() == await second.ping() == []
        for _ in range(5):
            assert await (await served.dial()).read_to_end() == []
        statistics = served.server.statistics()
        assert (statistics.accepted, statistics.refused_connections) == (2, 5)
        # The first, the second and the fourth refusal; a flood must not fill the log.
        assert len(Logs(caplog).lines) == 3
        assert "2 are open, the limit is 2; 4 refused so far" in Logs(caplog).lines[-1]
        assert await first.ping() == []
        await first.aclose()
        while len(served.server.channels) == 2:
            await wait_all_tasks_blocked()
        third = await served.dial()
        assert await third.ping() == await second.ping() == []


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_flood_of_short_connections_leaves_the_server_as_it_was(how: str) -> None:
    events = Events()
    async with serving(listeners=[events]) as served:
        steady = await served.dial()
        assert await steady.ping() == []
        for _ in range(50):
            with ExitStack() as stack:
                for _ in range(10):
                    sock = stack.enter_context(socket.socket())
                    if how == "reset":
                        linger = struct.pack("ii", 1, 0)
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    sock.connect(("127.0.0.1", served.server.port))
            assert await steady.ping() == []
        while served.server.statistics().accepted < 501 or len(served.server.channels) > 1:
            await wait_all_tasks_blocked()
        assert await (await served.dial()).ping() == []
        assert len(events.reasons) == 500


def reset(peer: Peer) -> None:
    """End a TCP connection the hard way."""
    assert isinstance(peer.stream, trio.SocketStream)
    linger = struct.pack("ii", 1, 0)
    peer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.stream.socket.close()


@pytest.mark.parametrize("doing", ["nothing", "half a frame", "not reading", "waiting its turn"])
async def test_a_connection_that_is_reset_ends_alone_whatever_it_was_doing(
    doing: str, caplog: pytest.LogCaptureFixture
) -> None:
    events, holder = Events(), Holder()
    table = table_with_ping()
    once = HandlerGroup(name="once", concurrency=1, capacity=10, per_connection=1)
    table.add(RequestType(Ask, code=PULL), holder, group=once)
    table.add(RequestType(Ask, code=SEND), lambda request: request.reply(body=bytes(16_000_000)))
    async with serving(table, listeners=[events]) as served:
        other, peer = await served.dial(), await served.dial()
        assert await other.ping() == await peer.ping() == []
        if doing == "half a frame":
            await peer.send(ask(PULL, 1)[:50])
        elif doing == "not reading":
            await peer.send(ask(SEND, 1))
        elif doing == "waiting its turn":
            await peer.send(ask(PULL, 1))
            await wait_all_tasks_blocked()
            await peer.send(ask(PULL, 2))
        await wait_all_tasks_blocked()
        reset(peer)
        while not events.reasons:
            await wait_all_tasks_blocked()
        assert len(served.server.channels) == 1
        assert served.server.statistics().endpoint.outbox_bytes == 0
        assert holder.numbers in ([], [1])
        for request in holder.requests:
            request.reply(Told(number=1))
        assert await other.ping() == []
    assert len(events.reasons) == 2
    assert all("Error" not in line for line in Logs(caplog).lines)


async def test_without_epoll_every_connection_has_a_task_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Poller, "available", False)
    events = Events()
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table, listeners=[events]) as served:
        first, second = await served.dial(), await served.dial()
        body = bytes(4 * 1024 * 1024)
        await first.send(*(ask(SEND, number) for number in range(1_000)))
        assert (await second.request(ask(SEND, 1, body=body))).body == body
        assert await first.read_numbers(1_000) == list(range(1_000))
        await first.send(b"\xff\xff\xff\xff")
        assert await first.read_to_end() == []
        reset(second)
        while len(events.reasons) < 2:
            await wait_all_tasks_blocked()
        assert await (await served.dial()).ping() == []


# ---- large bodies --------------------------------------------------------------------------------


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_large_bodies_arrive_intact_both_ways(serialization: Serialization) -> None:
    pattern = bytes(range(256)) * (4 * 1024 * 1024 // 256) + b"end"
    wrong: list[int] = []

    def handle(request: Request[Ask]) -> None:
        if request.body != pattern:
            wrong.append(request.header.number)
        # A slice of something larger, as a store hands it out.
        whole = memoryview(b"junk" + pattern + b"junk")
        request.reply(Told(number=request.header.number), body=whole[4:-4])

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served, trio.open_nursery() as nursery:
        peers = [await served.dial() for _ in range(2)]

        async def talk(number: int) -> None:
            peer = peers[number]
            for opaque in range(2):
                told = await peer.request(
                    ask(SEND, opaque, body=pattern, serialization=serialization)
                )
                assert (told.opaque, told.code) == (opaque, 0)
                assert told.body == pattern

        for number in range(2):
            nursery.start_soon(talk, number)
    assert wrong == []


async def test_small_answers_behind_a_large_one_keep_their_order_and_their_bytes() -> None:
    sizes = [3, 3 * 1024 * 1024, 0, 1, 700_000, 17, 0, 2 * 1024 * 1024, 5]

    def handle(request: Request[Ask]) -> None:
        number = request.header.number
        request.reply(Told(number=number), body=memoryview(bytes([number]) * sizes[number]))

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), handle)
    async with serving(table) as served:
        peer = await served.dial()
        await peer.send(*(ask(SEND, number) for number in range(len(sizes))))
        for number, size in enumerate(sizes):
            told = await peer.read()
            assert (told.opaque, told.body) == (number, bytes([number]) * size)


# ---- any split, any interleaving -----------------------------------------------------------------


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Requests of three peers by kind, and the order and size of the pieces in which they come."""
    kinds = [draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)) for _ in range(3)]
    pieces = draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400)), min_size=1, max_size=60)
    )
    return kinds, pieces


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=conversations(), batch_frames=st.integers(1, 5))
async def test_however_requests_are_cut_and_mixed_each_peer_gets_its_own_answers(
    conversation: tuple[list[list[int]], list[tuple[int, int]]], batch_frames: int
) -> None:
    kinds, pieces = conversation
    codes = (SEND, PULL, QUERY, 9_999)

    def batch(requests: Sequence[Request[Ask]]) -> list[Header | None]:
        return [Told(number=r.header.number, text=r.header.text) for r in requests]

    async def coroutine(request: Request[Ask]) -> None:
        await trio.lowlevel.checkpoint()
        echo(request)

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    table.add_batch(RequestType(Ask, code=PULL), batch)
    table.add_async(RequestType(Ask, code=QUERY), coroutine)
    async with serving(table, channel=ChannelConfig(batch_frames=batch_frames)) as served:
        peers = [served.attach("peer-0"), served.attach("peer-1"), served.attach_recorded()[0]]
        streams = [
            b"".join(
                ask(
                    codes[kind],
                    opaque,
                    number=peer * 1_000 + opaque,
                    text="ü" * (opaque * 7),
                    serialization=Serialization((peer + opaque) % 2),
                )
                for opaque, kind in enumerate(peer_kinds)
            )
            for peer, peer_kinds in enumerate(kinds)
        ]
        for peer, size in (*pieces, (0, 10**6), (1, 10**6), (2, 10**6)):
            if streams[peer]:
                await peers[peer].send(streams[peer][:size])
                streams[peer] = streams[peer][size:]
        for peer, peer_kinds in enumerate(kinds):
            told = {frame.opaque: frame for frame in await peers[peer].read_many(len(peer_kinds))}
            assert set(told) == set(range(len(peer_kinds)))
            for opaque, kind in enumerate(peer_kinds):
                if codes[kind] == 9_999:
                    assert told[opaque].code == 3
                else:
                    assert told[opaque].number == peer * 1_000 + opaque
                    text = (told[opaque].fields or {}).get("text")
                    # An empty text is absent in the binary header.
                    assert (text or "") == "ü" * (opaque * 7)
            assert await peers[peer].ping() == []
