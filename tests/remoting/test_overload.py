"""More requests than can be served: who waits for whom, and what is refused until it is over.

Requests cost virtual time here: their handler moves the clock.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.poller import Poller
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import (
    QUERY,
    SEND,
    Ask,
    Gate,
    Told,
    ask,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request
    from tests.remoting.server_kit import Frame, Peer, Served

pytestmark = pytest.mark.skipif(not Poller.available, reason="needs epoll and eventfd")

COST_S: Final = 0.001
WAIT_S: Final = 0.2
IMPATIENT: Final = HandlerGroup(
    name="impatient", concurrency=1, capacity=100_000, per_connection=10_000, wait_max_s=WAIT_S
)
TOO_LATE: Final = re.compile(
    r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while,"
    r" period in queue: (\d+)ms, size of queue: (\d+)"
)


class Costly:
    """A plain handler that takes `COST_S` for each request."""

    def __init__(self, clock: MockClock) -> None:
        self.handled = 0
        self.waits: list[float] = []
        self.on_handled: Callable[[int], None] = lambda _: None
        self._clock = clock

    def __call__(self, request: Request[Ask]) -> None:
        self.handled += 1
        self.waits.append(trio.current_time() - request.channel.arrived_at)
        self._clock.jump(COST_S)
        self.on_handled(self.handled)
        request.reply(Told(number=request.header.number))


def table_of(costly: Costly, group: HandlerGroup = IMPATIENT) -> HandlerTable:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), costly, group=group)
    return table


async def flood(served: Served, connections: int, each: int) -> list[Peer]:
    """Have many connections bring many requests at the same time."""
    peers = [served.attach_recorded(f"10.0.0.1:{number}")[0] for number in range(connections)]
    for peer in peers:
        peer.channel.pause()
        await peer.send(*(ask(SEND, opaque) for opaque in range(each)))
    await wait_all_tasks_blocked()
    for peer in peers:
        peer.channel.resume()
    return peers


async def answers_of(peers: list[Peer], each: int) -> list[Frame]:
    found: list[Frame] = []
    for peer in peers:
        frames = await peer.read_many(each)
        assert [frame.opaque for frame in frames] == list(range(each))
        found += frames
    return found


@pytest.mark.parametrize(
    ("slice_max", "is_heavy"),
    [
        pytest.param(1_200, False, id="requests that take no time"),
        pytest.param(80, True, id="requests that take a millisecond"),
    ],
)
async def test_one_who_sends_little_waits_for_a_slice_of_a_flood_only(
    mock_clock: MockClock, slice_max: int, is_heavy: bool
) -> None:
    costly = Costly(mock_clock)
    seen_at: list[int] = []

    def note(request: Request[Ask]) -> None:
        seen_at.append(costly.handled)
        request.reply()

    table = table_of(
        costly, HandlerGroup(name="g", concurrency=1, capacity=9**9, per_connection=9**9)
    )
    table.add(RequestType(Ask, code=QUERY), note)
    work_now = trio.current_time if is_heavy else lambda: 0.0
    async with serving(table, work_now=work_now) as served:
        other, transport = served.attach_recorded("10.0.0.2:1")
        assert await other.ping() == []

        def ask_in_the_middle(handled: int) -> None:
            if handled == 5_000:
                assert isinstance(other.stream, trio.SocketStream)
                # Sent in the middle of a step: it is there when the next one begins.
                os.write(other.stream.socket.fileno(), ask(QUERY, 7))

        costly.on_handled = ask_in_the_middle
        peers = await flood(served, 150, 100)
        assert (await other.read()).opaque == 7
        (at,) = seen_at
        assert at - 5_000 <= slice_max, "it waited for more than a slice"
        await answers_of(peers, 100)
        assert transport.writes


async def test_a_host_has_its_part_however_many_connections_others_have(
    mock_clock: MockClock,
) -> None:
    costly = Costly(mock_clock)
    handled: list[str] = []
    table = table_with_ping()

    def note(request: Request[Ask]) -> None:
        handled.append(request.channel.host)
        costly(request)

    bounds = HandlerGroup(name="g", concurrency=1, capacity=9**9, per_connection=9**9)
    table.add(RequestType(Ask, code=SEND), note, group=bounds)
    async with serving(table) as served:
        busy, _ = served.attach_recorded("10.0.0.2:1")
        busy.channel.pause()
        await busy.send(*(ask(SEND, opaque) for opaque in range(1_500)))
        peers = await flood(served, 300, 20)
        busy.channel.resume()
        assert len(await busy.read_many(1_500)) == 1_500
        await answers_of(peers, 20)
    last = max(at for at, host in enumerate(handled) if host == "10.0.0.2")
    others = last + 1 - 1_500
    # One connection got about as much done as three hundred, whose bytes had all been new once.
    assert others <= 2 * 1_500, others


async def test_requests_that_have_waited_too_long_are_refused_and_it_ends_by_itself(
    mock_clock: MockClock,
) -> None:
    costly = Costly(mock_clock)
    async with serving(table_of(costly)) as served:
        began = trio.current_time()
        peers = await flood(served, 20, 100)
        answers = await answers_of(peers, 100)
        taken = [frame for frame in answers if frame.code == ResponseCode.SUCCESS]
        refused = [frame for frame in answers if frame.code == ResponseCode.SYSTEM_BUSY]
        assert len(taken) + len(refused) == 2_000
        assert len(taken) == costly.handled
        # What is taken within the time allowed is served, and so is the turn that had begun.
        assert WAIT_S / COST_S <= len(taken) <= 2 * WAIT_S / COST_S
        assert max(costly.waits) < 2 * WAIT_S
        assert trio.current_time() - began < 1
        for frame in refused:
            match = TOO_LATE.fullmatch(frame.remark or "")
            assert match is not None, frame.remark
            assert int(match[1]) >= 200
        assert served.group("impatient").refused == len(refused)
        # Those who come when it is over are served at once.
        assert {frame.code for frame in await answers_of(await flood(served, 2, 50), 50)} == {0}
        (again,) = await answers_of([await ask_once(served)], 1)
        assert again.code == ResponseCode.SUCCESS


async def ask_once(served: Served) -> Peer:
    peer, _ = served.attach_recorded("10.0.0.3:1")
    await peer.send(ask(SEND, 0))
    return peer


async def test_one_connection_alone_is_slowed_down_and_not_refused(mock_clock: MockClock) -> None:
    costly = Costly(mock_clock)
    async with serving(table_of(costly)) as served:
        (peer,) = await flood(served, 1, 1_000)
        assert {frame.code for frame in await answers_of([peer], 1_000)} == {0}


async def test_a_limit_may_be_changed_and_lifted_while_it_serves(mock_clock: MockClock) -> None:
    costly = Costly(mock_clock)
    async with serving(table_of(costly)) as served:
        served.server.limit_waits({})
        codes = {frame.code for frame in await answers_of(await flood(served, 20, 50), 50)}
        assert codes == {ResponseCode.SUCCESS}
        served.server.limit_waits({"impatient": 0.05})
        codes = {frame.code for frame in await answers_of(await flood(served, 20, 50), 50)}
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}


async def test_time_in_which_we_did_not_read_on_purpose_does_not_count(
    mock_clock: MockClock,
) -> None:
    costly = Costly(mock_clock)
    async with serving(table_of(costly)) as served:
        first, second = (served.attach_recorded(f"10.0.0.1:{number}")[0] for number in range(2))
        for peer in (first, second):
            peer.channel.pause()
            await peer.send(ask(SEND, 0), ask(SEND, 1))
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        for peer in (first, second):
            peer.channel.resume()
        assert {frame.code for frame in await answers_of([first, second], 2)} == {0}


async def test_requests_that_wait_for_a_coroutine_are_refused_when_their_time_is_over(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), gate, group=IMPATIENT)
    async with serving(table) as served:
        peer = served.attach("10.0.0.1:1")
        await peer.send(*(ask(QUERY, number) for number in range(5)))
        # The first one runs, for longer than the others may wait.
        refused = await peer.read_many(4)
        assert sorted(frame.opaque for frame in refused) == [1, 2, 3, 4]
        assert {frame.code for frame in refused} == {ResponseCode.SYSTEM_BUSY}
        assert all(TOO_LATE.fullmatch(frame.remark or "") for frame in refused)
        gate.let(0)
        assert (await peer.read()).opaque == 0
        assert gate.entered == [0]
        assert served.group("impatient").unanswered == 0


async def test_large_requests_that_wait_count_against_the_memory_of_all_connections(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    table = table_with_ping()
    patient = HandlerGroup(name="patient", concurrency=1, capacity=100, per_connection=100)
    table.add_async(RequestType(Ask, code=QUERY), gate, group=patient)
    async with serving(table, channel=ChannelConfig(), held_bytes_max=1_000_000) as served:
        peers = [served.attach(f"10.0.0.1:{number}") for number in range(3)]
        for peer in peers:
            await peer.send(*(ask(QUERY, number, body=bytes(60_000)) for number in range(7)))
        await wait_all_tasks_blocked()
        # Of 21 there is room for 16; the others are told so at once.
        assert served.group("patient").unanswered == 16
        assert served.group("patient").refused == 5
        for _ in range(16):
            gate.let(*range(7))
            await wait_all_tasks_blocked()
        answers = [frame for peer in peers for frame in await peer.read_many(7)]
        codes = [frame.code for frame in answers]
        assert (codes.count(ResponseCode.SUCCESS), codes.count(ResponseCode.SYSTEM_BUSY)) == (16, 5)
        # All of it is given back.
        await peers[0].send(*(ask(QUERY, 7 + number, body=bytes(60_000)) for number in range(7)))
        gate.let(*range(7, 14))
        assert {frame.code for frame in await peers[0].read_many(7)} == {ResponseCode.SUCCESS}
