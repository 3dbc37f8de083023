"""A peer that does not read its answers, or floods, is slowed and bounded in memory, and never
hurts others.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import LanguageCode
from rmq.remoting.dispatch import Dispatcher
from rmq.remoting.endpoint import Endpoint, EndpointConfig
from rmq.remoting.protocol import RequestType
from rmq.remoting.transport import StreamTransport
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Events,
    Holder,
    Logs,
    Peer,
    Told,
    ask,
    echo,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request

ANSWER_BYTES = 2_000


class Answering:
    """A plain handler whose answers have a body of a given size, and which counts."""

    def __init__(self, body_bytes: int = ANSWER_BYTES) -> None:
        self.handled = 0
        self._body = memoryview(bytes(body_bytes))

    def __call__(self, request: Request[Ask]) -> None:
        self.handled += 1
        request.reply(Told(number=request.header.number), body=self._body)


def table_of_answering(answering: Answering) -> HandlerTable:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), answering)
    return table


SMALL = ChannelConfig(batch_frames=4, unread_answer_bytes_max=5 * ANSWER_BYTES)
SMALL_BOUND = 5 * ANSWER_BYTES + 4 * (ANSWER_BYTES + 200)
"""What may wait for one peer: answers up to the limit, and the batch during which it is reached."""


# ---- peers that do not read ----------------------------------------------------------------------


async def test_a_peer_that_does_not_read_its_answers_is_read_no_further() -> None:
    answering = Answering()
    async with serving(table_of_answering(answering), channel=SMALL) as served:
        peer, other = served.attach("deaf", lockstep=True), served.attach("other")
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for number in range(100):
                await peer.send(ask(SEND, number))
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            await wait_all_tasks_blocked()
            # The flood is stuck: the server has stopped to take its bytes.
            assert answering.handled <= sent < 20
            assert 5 * ANSWER_BYTES <= peer.channel.outbox_bytes <= SMALL_BOUND
            for _ in range(3):
                assert await other.ping() == []
            assert answering.handled < 20
            # Once it reads, everything flows again, and nothing was lost.
            assert await peer.read_numbers(100) == list(range(100))
        assert answering.handled == sent == 100
        assert await peer.ping() == []


async def test_a_peer_that_takes_nothing_in_time_is_cut_off(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    table = table_of_answering(Answering())
    async with serving(table, listeners=[events]) as served:
        peer, other = served.attach("deaf", lockstep=True), served.attach("other")
        start = trio.current_time()
        await peer.send(*(ask(SEND, number) for number in range(3)))
        while peer.channel.is_open:
            await trio.sleep(1)
            assert await other.ping() == []
        assert 30 <= trio.current_time() - start <= 32
        assert events.reasons == ["the peer did not read for 30 s"]
        assert peer.channel.outbox_bytes == 0
        await wait_all_tasks_blocked()
        assert await other.ping() == []
    (line,) = Logs(caplog).lines
    assert line.startswith("closing connection of deaf: it took nothing for 30 s while 6")


@pytest.mark.parametrize("over", ["stream", "socket"])
async def test_a_peer_that_reads_slowly_but_steadily_is_not_cut_off(
    over: str, autojump_clock: MockClock
) -> None:
    table = table_of_answering(Answering(4 * 1024 * 1024))
    async with serving(table) as served:
        if over == "stream":
            peer = served.attach("slow", lockstep=True)
        else:
            peer, _ = served.attach_recorded("slow")
        await peer.send(ask(SEND, 1))
        received = 0
        while received < 4 * 1024 * 1024:
            # 64 KiB every 5 s: five minutes for the answer, but never 30 s without a byte.
            await trio.sleep(5)
            data = await peer.stream.receive_some(64 * 1024)
            assert data, f"cut off after {received} bytes"
            received += len(data)
        assert peer.channel.is_open


async def test_a_peer_that_does_not_read_deferred_answers_is_cut_off_at_the_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder, events = Holder(), Events()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    config = ChannelConfig(outbox_bytes_max=50_000)
    async with serving(table, channel=config, listeners=[events]) as served:
        peer, other = served.attach("deaf", lockstep=True), served.attach("other")
        await peer.send(*(ask(PULL, number) for number in range(100)))
        await other.send(ask(PULL, 100))
        await wait_all_tasks_blocked()
        waiting = 0
        for request in holder.requests:
            request.reply(Told(number=request.header.number), body=bytes(1_000))
            await wait_all_tasks_blocked()
            waiting = max(waiting, peer.channel.outbox_bytes)
        assert 40_000 < waiting <= 50_000
        assert not peer.channel.is_open
        assert peer.channel.outbox_bytes == 0
        (reason,) = events.reasons
        assert reason.endswith(" bytes wait for the peer to read")
        assert (await other.read()).opaque == 100
        assert served.group("admin").unanswered == 0
    (line,) = Logs(caplog).lines
    assert line.startswith("closing connection of deaf: 5")


async def test_a_peer_that_never_reads_a_socket_is_bounded_and_can_still_change_its_mind() -> None:
    body_bytes = 512 * 1024
    answering = Answering(body_bytes)
    config = ChannelConfig(batch_frames=2)
    async with serving(table_of_answering(answering), channel=config) as served:
        peer, other = await served.dial(), await served.dial()
        await peer.send(*(ask(SEND, number) for number in range(64)))
        await wait_all_tasks_blocked()
        assert answering.handled < 64
        waiting = served.server.statistics().endpoint.outbox_bytes
        assert 0 < waiting <= 64 * 1024 + 2 * (body_bytes + 200)
        for _ in range(10):
            assert await other.ping() == []
        for number in range(64):
            told = await peer.read()
            assert (told.opaque, told.body) == (number, bytes(body_bytes))
        assert answering.handled == 64
        assert served.server.statistics().endpoint.outbox_bytes == 0


async def test_large_deferred_answers_and_new_requests_go_on_side_by_side() -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    body = memoryview(bytes(300 * 1024))
    async with serving(table) as served, trio.open_nursery() as nursery:
        peer, _ = served.attach_recorded()

        async def complete() -> None:
            while True:
                while holder.requests:
                    request = holder.requests.pop(0)
                    request.reply(Told(number=request.header.number), body=body)
                    await trio.lowlevel.checkpoint()
                await wait_all_tasks_blocked()

        nursery.start_soon(complete)
        await peer.send(*(ask(PULL, number) for number in range(4)))
        for number in range(100):
            told = await peer.read()
            assert (told.opaque, len(told.body)) == (number, len(body))
            await peer.send(ask(PULL, number + 4))
        nursery.cancel_scope.cancel()


# ---- unfinished frames ---------------------------------------------------------------------------


class Budgeted:
    """An endpoint with a small budget for unfinished frames, and peers on it."""

    def __init__(self, held_bytes_max: int, events: Events) -> None:
        table = table_with_ping()
        table.add(RequestType(Ask, code=SEND), echo)
        self.endpoint = Endpoint(
            dispatcher=Dispatcher(table),
            config=EndpointConfig(channel=ChannelConfig(), held_bytes_max=held_bytes_max),
            language=LanguageCode.JAVA,
            dials=False,
            listeners=[events],
        )

    def attach(self, name: str) -> Peer:
        near, far = memory_stream_pair()
        return Peer(far, self.endpoint.open_channel(StreamTransport(near, peer=name)))


async def test_unfinished_frames_of_all_connections_share_one_budget(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = Events()
    budgeted = Budgeted(400_000, events)
    frame = ask(SEND, 1, body=bytes(200_000))
    with trio.fail_after(5):
        async with budgeted.endpoint.running():
            first, second, third, small = (
                budgeted.attach(name) for name in ("first", "second", "third", "small")
            )
            await first.send(frame[:150_000])
            await second.send(frame[:150_000])
            await small.send(frame[:50_000])
            await wait_all_tasks_blocked()
            assert budgeted.endpoint.statistics().held_bytes == 350_000
            await third.send(frame[:150_000])
            assert await third.read_to_end() == []
            assert events.reasons == [
                "unfinished frames of its host, or of all, take too much memory"
            ]
            (line,) = Logs(caplog).lines
            assert line.startswith("closing connection of third: ")
            # Nobody else lost anything, and what is finished counts no more.
            for peer, sent in ((first, 150_000), (second, 150_000), (small, 50_000)):
                await peer.send(frame[sent:])
                assert (await peer.read()).body == bytes(200_000)
            assert budgeted.endpoint.statistics().held_bytes == 0
            fourth, fifth = budgeted.attach("fourth"), budgeted.attach("fifth")
            for peer in (fourth, fifth):
                await peer.send(frame[:190_000])
            await wait_all_tasks_blocked()
            for peer in (fourth, fifth):
                await peer.send(frame[190_000:])
                assert (await peer.read()).body == bytes(200_000)


# ---- floods --------------------------------------------------------------------------------------


def fill(sock: socket.socket, frame: bytes) -> int:
    """Send frames until the kernel takes no more; return how many it took whole."""
    chunk = frame * 500
    taken = 0
    while True:
        try:
            sent = sock.send(chunk)
        except BlockingIOError:
            return taken // len(frame)
        taken += sent
        # What was cut in the middle of a frame goes on there.
        cut = sent % len(frame)
        chunk = frame[cut:] + frame * 500 if cut else frame * 500


@pytest.mark.parametrize("kind", ["plain", "coroutine", "deferred"])
async def test_a_flood_of_one_connection_lets_another_through_in_a_few_steps(kind: str) -> None:
    flooded = 0
    seen_after: list[int] = []
    holder = Holder()

    def take(request: Request[Ask]) -> None:
        nonlocal flooded
        flooded += 1

    def plain(request: Request[Ask]) -> None:
        seen_after.append(flooded)
        echo(request)

    async def coroutine(request: Request[Ask]) -> None:
        plain(request)
        await trio.lowlevel.checkpoint()

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), take)
    if kind == "plain":
        table.add(RequestType(Ask, code=QUERY), plain)
    elif kind == "coroutine":
        table.add_async(RequestType(Ask, code=QUERY), coroutine)
    else:
        table.add(RequestType(Ask, code=QUERY), holder)
    async with serving(table) as served:
        other = await served.dial()
        await other.ping()
        # Its bytes can be sent between two steps of the scheduler, so that they are all there at
        # the next one.
        with socket.create_connection(("127.0.0.1", served.server.port)) as flooder:
            flooder.setblocking(False)
            while len(served.server.channels) < 2:
                await wait_all_tasks_blocked()
            count = fill(flooder, ask(SEND, 1, oneway=True))
            assert count > 6_000, "the flood is too small to show anything"
            await other.send(ask(QUERY, 1))
            if kind == "deferred":
                while not holder.requests:
                    await trio.lowlevel.checkpoint()
                holder.requests[0].reply(Told(number=1))
                before = flooded
                await other.read()
                seen_after.append(flooded - before)
            else:
                await other.read()
            # At 150,000 a second these take 20 ms, the most that another may have to wait.
            assert seen_after[0] <= 3_000
            while flooded < count:
                await wait_all_tasks_blocked()
