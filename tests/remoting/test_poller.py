"""The task that reads from all plain connections: turns, hang-ups, and the way without it."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.remoting.channel import FRAMES_PER_TURN
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.poller import Poller
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import PULL, SEND, Ask, Holder, ask, echo, serving, table_with_ping

if TYPE_CHECKING:
    from rmq.remoting.request import Request

needs_poller = pytest.mark.skipif(not Poller.available, reason="needs epoll and eventfd")
ONE_AT_A_TIME = HandlerGroup(name="one", concurrency=1, capacity=10, per_connection=1)


@pytest.mark.parametrize("available", [True, False])
async def test_many_connections_are_served_with_and_without_it(
    available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Poller, "available", available and Poller.available)
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peers = [await served.dial() for _ in range(20)]
        for peer in peers:
            await peer.send(*(ask(SEND, number) for number in range(100)))
        for peer in peers:
            assert await peer.read_numbers(100) == list(range(100))


@needs_poller
async def test_idle_plain_connections_have_no_task() -> None:
    async with serving() as served:
        await (await served.dial()).ping()
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(10):
            await (await served.dial()).ping()
        assert trio.lowlevel.current_statistics().tasks_living == before


@needs_poller
async def test_ready_connections_take_turns() -> None:
    """Nobody is done before the others have had a turn, however much each has sent."""
    order: list[int] = []

    def note(request: Request[Ask]) -> None:
        order.append(request.header.number)
        request.reply()

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), note)
    count = 2 * FRAMES_PER_TURN
    async with serving(table) as served:
        peers = [served.attach_recorded(f"peer {number}")[0] for number in range(3)]
        for number, peer in enumerate(peers):
            peer.channel.pause()
            await peer.send(*(ask(SEND, opaque, number=number) for opaque in range(count)))
        await wait_all_tasks_blocked()
        for peer in peers:
            peer.channel.resume()
        for peer in peers:
            assert len(await peer.read_many(count)) == count
    first_of_each = [order.index(number) for number in range(3)]
    assert max(first_of_each) <= 2 * FRAMES_PER_TURN
    assert len(order) == 3 * count


@needs_poller
async def test_a_peer_that_hangs_up_while_it_is_not_read_is_let_go_without_spinning() -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder, group=ONE_AT_A_TIME)
    async with serving(table) as served:
        peer, other = await served.dial(), await served.dial()
        await peer.send(ask(PULL, 1))
        while not holder.requests:
            await wait_all_tasks_blocked()
        channel = holder.requests[0].channel
        await peer.send(ask(PULL, 2))
        while not channel.busy:
            await wait_all_tasks_blocked()
        # Reset, not just closed: the kernel reports this whether one listens for it or not.
        assert isinstance(peer.stream, trio.SocketStream)
        peer.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await peer.aclose()
        while channel.is_open:
            await wait_all_tasks_blocked()
        assert channel.close_reason == "the connection was reset"
        holder.requests[0].drop()
        # Were the poller still told of the hang-up, tasks would never all be blocked.
        await wait_all_tasks_blocked()
        assert await other.ping() == []
