"""How a server ends: gracefully within a deadline, or cancelled. Nothing stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Events,
    Gate,
    Holder,
    Logs,
    Told,
    ask,
    serving,
    table_with_ping,
)


async def test_stopping_answers_what_is_in_hand_and_then_closes(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, holder, events = Gate(), Holder(), Events()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table, listeners=[events]) as served:
        peer, idle = served.attach("busy"), served.attach("idle")
        await peer.send(ask(QUERY, 1), ask(PULL, 2))
        assert await idle.ping() == []
        await wait_all_tasks_blocked()
        served.server.stop(grace_s=10)
        await trio.sleep(5)
        assert events.reasons == []
        gate.let(1)
        assert (await peer.read()).opaque == 1
        holder.requests[0].reply(Told(number=2), body=bytes(100_000))
        assert len((await peer.read()).body) == 100_000
        assert await peer.read_to_end() == await idle.read_to_end() == []
        assert set(events.reasons) == {"the server is stopping"}
        assert trio.current_time() < 6
    assert Logs(caplog).lines == []


async def test_the_deadline_cuts_off_what_is_unanswered_and_says_how_much(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, holder = Gate(), Holder()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(QUERY, 1), ask(QUERY, 2), ask(PULL, 3))
        await wait_all_tasks_blocked()
        start = trio.current_time()
        served.server.stop(grace_s=7)
        gate.let(1)
        assert [frame.opaque for frame in await peer.read_to_end()] == [1]
        assert trio.current_time() - start == pytest.approx(7)
        await wait_all_tasks_blocked()
        assert gate.inside == 0
    assert Logs(caplog).lines == ["stopping with 2 requests unanswered after 7 s"]


@pytest.mark.parametrize("over", ["memory", "tcp"])
async def test_a_stopping_server_closes_its_port_first_and_takes_nothing_more(over: str) -> None:
    holder = Holder()
    seen: list[int] = []
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    table.add(RequestType(Ask, code=SEND), lambda request: seen.append(request.header.number))
    async with serving(table) as served:
        peer = served.attach() if over == "memory" else await served.dial()
        port = served.server.port
        await peer.send(ask(PULL, 1))
        while not holder.requests:
            await wait_all_tasks_blocked()
        served.server.stop(grace_s=1_000)
        await wait_all_tasks_blocked()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
        await peer.send(ask(SEND, 2))
        await wait_all_tasks_blocked()
        assert seen == []
        holder.requests[0].reply(Told(number=1))
        assert [frame.opaque for frame in await peer.read_to_end()] == [1]
        assert seen == []


async def test_a_stopping_server_waits_for_large_answers_to_be_read() -> None:
    table = table_with_ping()
    body = bytes(8 * 1024 * 1024)
    table.add(RequestType(Ask, code=SEND), lambda request: request.reply(body=body))
    async with serving(table) as served:
        peer = await served.dial()
        await peer.send(ask(SEND, 1))
        while not served.server.statistics().endpoint.outbox_bytes:
            await wait_all_tasks_blocked()
        served.server.stop(grace_s=1_000)
        await wait_all_tasks_blocked()
        (told,) = await peer.read_to_end()
        assert told.body == body


async def test_a_stopping_server_does_not_wait_for_requests_of_connections_that_are_gone(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(*(ask(QUERY, number) for number in range(40)))
        await wait_all_tasks_blocked()
        assert (served.group("admin").running, served.group("admin").waiting) == (16, 24)
        await peer.aclose()
        await wait_all_tasks_blocked()
        start = trio.current_time()
        served.server.stop(grace_s=100)
        gate.let(*range(16))
        while served.server.channels or served.group("admin").unanswered:
            await wait_all_tasks_blocked()
        assert trio.current_time() == start
    assert len(gate.entered) == 16


async def test_a_server_told_to_stop_returns_and_its_port_can_be_used_again() -> None:
    with trio.fail_after(5):
        server = RemotingServer(table_with_ping(), ServerConfig(host="127.0.0.1"))
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            port = server.port
            server.stop()
        again = RemotingServer(table_with_ping(), ServerConfig(host="127.0.0.1", port=port))
        async with trio.open_nursery() as nursery:
            await nursery.start(again.run)
            assert again.port == port
            again.stop()


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_server_leaves_no_task_and_no_file_behind(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, holder = Gate(), Holder()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    table.add(RequestType(Ask, code=PULL), holder)
    table.add(
        RequestType(Ask, code=SEND), lambda request: request.reply(body=bytes(8 * 1024 * 1024))
    )
    with trio.fail_after(5):
        tasks = trio.lowlevel.current_statistics().tasks_living
        files = count_open_files()
        async with trio.open_nursery() as nursery:
            server = RemotingServer(table, ServerConfig(host="127.0.0.1"))
            await nursery.start(server.run)
            streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(3)]
            # One in every state: waiting for a coroutine, holding a request and half a frame,
            # with answers that nobody reads.
            await streams[0].send_all(ask(QUERY, 1))
            await streams[1].send_all(ask(PULL, 1) + ask(PULL, 2)[:50])
            await streams[2].send_all(ask(SEND, 1))
            while not (
                gate.inside and holder.requests and server.statistics().endpoint.outbox_bytes
            ):
                await wait_all_tasks_blocked()
            if how == "stop":
                server.stop(grace_s=0)
            else:
                nursery.cancel_scope.cancel()
        for stream in streams:
            await trio.aclose_forcefully(stream)
        assert server.channels == frozenset()
        assert server.statistics().endpoint.connections == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert count_open_files() == files
    assert len(Logs(caplog).lines) == (1 if how == "stop" else 0)


async def test_bytes_that_arrive_as_the_server_is_cancelled_do_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate)
    with trio.fail_after(5):
        # Which task sees the end first is up to the scheduler.
        for _ in range(30):
            async with serving(table) as served:
                near, far = memory_stream_pair()
                await served.attach_streams(near, far).ping()
                near.receive_stream.put_data(ask(QUERY, 1))
    assert Logs(caplog).lines == []
