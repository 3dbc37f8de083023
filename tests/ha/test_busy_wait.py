"""Looking whether a peer has sent something, before sleeping."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.ha import busy_wait as looking
from rmq.ha.busy_wait import SocketBusyWait
from rmq.remoting.busy_wait import BusyWait

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    # Whoever looks so long finds what comes, however slow the machine is.
    monkeypatch.setattr(looking, "BusyWait", lambda: BusyWait(30))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def test_what_comes_while_others_run_is_seen(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    seen: list[bool] = []

    async def wait() -> None:
        seen.append(await SocketBusyWait(ours).wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        assert not seen
        theirs.send(b"x")
    assert seen == [True]
    assert ours.recv(10) == b"x", "looking takes nothing away"


async def test_the_end_of_a_connection_is_seen(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    assert await SocketBusyWait(ours).wait()


async def test_a_socket_that_is_closed_meanwhile_is_told(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, _ = pair

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await SocketBusyWait(ours).wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        ours.close()


async def test_it_can_be_cancelled(pair: tuple[socket.socket, socket.socket]) -> None:
    with trio.move_on_after(0) as scope:
        await SocketBusyWait(pair[0]).wait()
    assert scope.cancelled_caught


async def test_where_nothing_comes_it_is_left_out_more_and_more(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "BusyWait", lambda: BusyWait(1e-9))
    busy_wait = SocketBusyWait(pair[0])
    steps: list[int] = []
    for _ in range(20):
        counted = _Steps()
        trio.lowlevel.add_instrument(counted)
        assert not await busy_wait.wait()
        trio.lowlevel.remove_instrument(counted)
        steps.append(counted.count)
    assert [number for number, count in enumerate(steps) if count] == [0, 2, 6, 14]


class _Steps(trio.abc.Instrument):
    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1
