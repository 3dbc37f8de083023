"""What a server does when the system gives no more: files, memory, places for connections."""

from __future__ import annotations

import errno
import os
import resource
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.process_limits import open_files_limit
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.poller import Poller
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import NEWCOMER_S, RemotingServer, ServerConfig
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import TlsMode, TlsServerConfig
from rmq.remoting.transport import SocketTransport
from tests.remoting.server_kit import (
    PING,
    SEND,
    Ask,
    Events,
    Logs,
    Peer,
    ask,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

    from rmq.remoting.request import Request


# ---- no more files -------------------------------------------------------------------------------


@contextmanager
def no_more_files() -> Iterator[None]:
    """Leave this process without a single free file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, hard))
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_a_server_out_of_files_turns_peers_away_at_once_and_goes_on(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as served:
        steady = await served.dial()
        assert await steady.ping() == []
        with socket.socket() as first, socket.socket() as second:
            with no_more_files():
                for number, sock in enumerate((first, second), start=1):
                    sock.settimeout(10)
                    sock.connect(("127.0.0.1", served.server.port))
                    while served.server.statistics().refused_connections < number:
                        await wait_all_tasks_blocked()
                    await wait_all_tasks_blocked()
                    # Its peer is told, and does not wait for an answer that never comes.
                    assert sock.recv(1) == b""
                    assert await steady.ping() == []
            lines = Logs(caplog).lines
            assert lines[0].startswith("cannot accept: Too many open files; 1 connections open")
            assert len(lines) <= 4
        late = await served.dial()
        assert await late.ping() == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.ENOBUFS, "No buffer space available"), id="ENOBUFS"),
        pytest.param(OSError(errno.ENOMEM, "Cannot allocate memory"), id="ENOMEM"),
        pytest.param(OSError(errno.ECONNABORTED, "Software caused connection abort"), id="aborted"),
        pytest.param(MemoryError(), id="MemoryError"),
    ],
)
async def test_a_listener_survives_what_accepting_may_run_into(
    error: Exception, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures: list[Exception] = []

    def fail_first(sock: socket.socket) -> tuple[socket.socket, Any]:
        if len(failures) < 3:
            failures.append(error)
            raise error
        return accept(sock)

    async with serving() as served:
        monkeypatch.setattr(socket.socket, "accept", fail_first)
        with socket.create_connection(("127.0.0.1", served.server.port)):
            while not served.server.channels:
                await wait_all_tasks_blocked()
                # Between two attempts it sleeps, so that it does not spin.
                mock_clock.jump(0.1)
        assert len(failures) == 3


# ---- no more memory ------------------------------------------------------------------------------


@pytest.mark.skipif(not Poller.available, reason="needs epoll and eventfd")
async def test_a_read_without_memory_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = Events()
    async with serving(listeners=[events]) as served:
        steady, other = await served.dial(), await served.dial()
        assert await steady.ping() == []
        assert await other.ping() == []
        receive = SocketTransport.receive_nowait
        failures: list[str] = []

        def fail_once(transport: SocketTransport, bytes_max: int) -> bytes | None:
            if not failures:
                failures.append(transport.peer)
                raise MemoryError
            return receive(transport, bytes_max)

        monkeypatch.setattr(SocketTransport, "receive_nowait", fail_once)
        await other.send(ask(PING, 1))
        assert await other.read_to_end() == []
        assert events.reasons == ["MemoryError: "]
        assert await steady.ping() == []


async def test_without_memory_for_a_request_the_largest_holders_are_closed() -> None:
    events = Events()
    table = table_with_ping()

    def fail(request: Request[Ask]) -> None:
        raise MemoryError

    table.add(RequestType(Ask, code=SEND), fail)
    half = ask(SEND, 1, body=bytes(400_000))[:300_000]
    async with serving(table, listeners=[events]) as served:
        large, small, other = (served.attach(name) for name in ("large", "small", "other"))
        await large.send(half)
        await small.send(half[:80_000])
        await wait_all_tasks_blocked()
        answer = await other.request(ask(SEND, 1))
        assert (answer.code, answer.remark) == (
            2,
            "[OVERLOAD]system busy, start flow control for a while",
        )
        assert await large.read_to_end() == []
        assert events.reasons == ["out of memory"]
        assert small.channel.is_open
        assert await other.ping() == []


# ---- no more places ------------------------------------------------------------------------------


async def test_no_more_connections_are_taken_than_files_may_be_open() -> None:
    async with serving(connections_max=10**9) as served:
        assert 0 < served.server.connections_max < open_files_limit()
    async with serving(connections_max=7) as served:
        assert served.server.connections_max == 7


async def test_silent_connections_make_room_for_new_ones_the_oldest_first(
    mock_clock: MockClock,
) -> None:
    events = Events()
    async with serving(connections_max=3, listeners=[events]) as served:
        speaking = await served.dial()
        assert await speaking.ping() == []
        dripping, silent = await served.dial(), await served.dial()
        await dripping.send(ask(PING, 1)[:10])
        while len(served.server.channels) < 3:
            await wait_all_tasks_blocked()
        # They had no time yet to say anything.
        assert await (await served.dial()).read_to_end() == []
        mock_clock.jump(NEWCOMER_S)
        third = await served.dial()
        assert await third.ping() == []
        assert await dripping.read_to_end() == []
        fourth = await served.dial()
        assert await fourth.ping() == []
        assert await silent.read_to_end() == []
        # Those that are left have spoken.
        assert await (await served.dial()).read_to_end() == []
        assert events.reasons == ["it has sent nothing, and others wait"] * 2
        for peer in (speaking, third, fourth):
            assert await peer.ping() == []


async def test_silent_connections_make_room_also_before_it_is_known_whether_they_speak_tls(
    mock_clock: MockClock,
) -> None:
    server = RemotingServer(
        table_with_ping(),
        ServerConfig(host="127.0.0.1", connections_max=2, channel=ChannelConfig()),
        tls=TlsServer(TlsServerConfig(mode=TlsMode.PERMISSIVE)),
    )
    with trio.fail_after(3_600):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            silent = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(2)]
            while server.statistics().accepted < 2:
                await wait_all_tasks_blocked()
            mock_clock.jump(NEWCOMER_S)
            peer = Peer(await trio.open_tcp_stream("127.0.0.1", server.port))
            assert await peer.ping() == []
            assert await silent[0].receive_some() == b""
            for stream in (*silent, peer.stream):
                await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()
