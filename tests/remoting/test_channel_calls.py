"""Requests of the server to its peer, on the connection that the peer opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.errors import (
    ClientError,
    ConnectionLostError,
    LocalProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import Command
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import (
    PULL,
    QUERY,
    SEND,
    Ask,
    Holder,
    Logs,
    Told,
    answer,
    ask,
    echo,
    serving,
    table_with_ping,
)

if TYPE_CHECKING:
    from rmq.remoting.request import Request

CHECK = RequestCode.CHECK_TRANSACTION_STATE
NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO


class Outcomes:
    """Collects what `submit` reports."""

    def __init__(self) -> None:
        self.seen: list[Command | ClientError] = []

    def __call__(self, outcome: Command | ClientError) -> None:
        self.seen.append(outcome)

    @property
    def answered(self) -> list[int]:
        return [each.opaque for each in self.seen if isinstance(each, Command)]

    @property
    def failed(self) -> list[ClientError]:
        return [each for each in self.seen if isinstance(each, ClientError)]


# ---- asking and being answered -------------------------------------------------------------------


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_the_server_asks_its_peer_and_gets_the_answer(
    over: str, serialization: Serialization
) -> None:
    async with serving() as served, trio.open_nursery() as nursery:
        peer = served.attach() if over == "memory" else served.attach_recorded()[0]
        told: list[Command] = []

        async def call() -> None:
            told.append(
                await peer.channel.request(
                    RUNNING_INFO,
                    Ask(number=5),
                    body=b"question",
                    extra={"ReqT": "0"},
                    serialization=serialization,
                )
            )

        nursery.start_soon(call)
        asked = await peer.read()
        assert (asked.code, asked.flag, asked.serialization) == (307, 0, serialization)
        assert asked.fields == {"number": "5", "ReqT": "0"}
        assert asked.body == b"question"
        await peer.send(
            answer(asked.opaque, code=ResponseCode.SYSTEM_ERROR, header=Told(number=6), body=b"a")
        )
        await wait_all_tasks_blocked()
        # Whatever its code: what an error means is for the caller to say.
        assert (told[0].code, told[0].header(Told).number, told[0].body) == (1, 6, b"a")
        assert peer.channel.calls_under_way == 0


async def test_answers_find_their_requests_in_any_order() -> None:
    async with serving() as served, trio.open_nursery() as nursery:
        peer = served.attach()
        told: dict[int, int] = {}

        async def call(number: int) -> None:
            reply = await peer.channel.request(CHECK, Ask(number=number))
            told[number] = reply.header(Told).number

        for number in range(5):
            nursery.start_soon(call, number)
        asked = await peer.read_many(5)
        assert len({frame.opaque for frame in asked}) == 5
        assert served.server.statistics().endpoint.calls_under_way == 5
        for frame in sorted(asked, key=lambda frame: (frame.number * 3) % 5):
            await peer.send(answer(frame.opaque, header=Told(number=frame.number * 10)))
        await wait_all_tasks_blocked()
        assert told == {0: 0, 1: 10, 2: 20, 3: 30, 4: 40}


async def test_the_same_opaque_may_be_under_way_in_both_directions() -> None:
    holder = Holder()
    table = table_with_ping()
    table.add(RequestType(Ask, code=PULL), holder)
    async with serving(table) as served:
        peer = served.attach()
        outcomes = Outcomes()
        for _ in range(3):
            peer.channel.submit(CHECK, on_outcome=outcomes)
        asked = [frame.opaque for frame in await peer.read_many(3)]
        # The peer's requests bear the numbers of the server's, and so do its answers to those.
        await peer.send(*(ask(PULL, opaque) for opaque in asked))
        await wait_all_tasks_blocked()
        assert (holder.numbers, outcomes.seen) == (asked, [])
        await peer.send(*(answer(opaque) for opaque in reversed(asked)))
        await wait_all_tasks_blocked()
        assert outcomes.answered == list(reversed(asked))
        assert not any(request.answered for request in holder.requests)
        for request in holder.requests:
            request.reply(Told(number=request.header.number))
        assert [frame.opaque for frame in await peer.read_many(3)] == asked


async def test_requests_and_answers_of_one_read_are_told_apart() -> None:
    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), echo)
    async with serving(table) as served:
        peer = served.attach()
        outcomes = Outcomes()
        for _ in range(2):
            peer.channel.submit(CHECK, on_outcome=outcomes)
        first, second = (frame.opaque for frame in await peer.read_many(2))
        await peer.send(ask(SEND, 7), answer(second), ask(SEND, 8), answer(first))
        assert await peer.read_numbers(2) == [7, 8]
        assert outcomes.answered == [second, first]


async def test_a_handler_may_ask_the_peer_that_asked_it() -> None:
    async def handle(request: Request[Ask]) -> None:
        reply = await request.channel.request(CHECK, Ask(number=request.header.number))
        request.reply(Told(number=reply.header(Told).number + 1))

    table = table_with_ping()
    table.add_async(RequestType(Ask, code=QUERY), handle)
    async with serving(table) as served:
        peer = served.attach()
        asked_back = await peer.request(ask(QUERY, 1, number=10))
        assert (asked_back.code, asked_back.flag, asked_back.number) == (CHECK, 0, 10)
        await peer.send(answer(asked_back.opaque, header=Told(number=20)))
        told = await peer.read()
        assert (told.opaque, told.flag, told.number) == (1, 1, 21)


async def test_many_requests_of_one_step_leave_in_one_write() -> None:
    async with serving() as served:
        peer, transport = served.attach_recorded()
        outcomes = Outcomes()
        for _ in range(100):
            peer.channel.submit(CHECK, on_outcome=outcomes)
        peer.channel.oneway(NOTIFY)
        asked = await peer.read_many(101)
        assert len(transport.writes) == 1
        await peer.send(*(answer(frame.opaque) for frame in asked[:100]))
        await wait_all_tasks_blocked()
        assert outcomes.answered == [frame.opaque for frame in asked[:100]]


async def test_a_one_way_request_is_marked_and_waits_for_nothing() -> None:
    async with serving() as served:
        peer = served.attach()
        peer.channel.oneway(NOTIFY, Ask(number=1), body=b"b")
        asked = await peer.read()
        assert (asked.code, asked.flag, asked.number, asked.body) == (40, FLAG_ONEWAY, 1, b"b")
        assert peer.channel.calls_under_way == 0
        # Stock peers answer one-way requests that they refuse.
        await peer.send(answer(asked.opaque, code=ResponseCode.SYSTEM_BUSY))
        assert await peer.ping() == []


async def test_answers_nobody_waits_for_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served:
        peer = served.attach()
        outcomes = Outcomes()
        peer.channel.submit(CHECK, on_outcome=outcomes)
        asked = await peer.read()
        await peer.send(answer(12_345), answer(-1), answer(asked.opaque), answer(asked.opaque))
        assert await peer.ping() == []
        assert outcomes.answered == [asked.opaque]
    assert Logs(caplog).lines == []


async def test_a_request_too_large_for_the_wire_is_refused_before_it_is_sent() -> None:
    async with serving(channel=ChannelConfig(frame_bytes_max=1_024)) as served:
        peer = served.attach()
        with pytest.raises(LocalProtocolError, match="over the limit of 1024"):
            await peer.channel.request(CHECK, body=bytes(2_000))
        assert peer.channel.calls_under_way == 0
        assert await peer.ping() == []


# ---- time ----------------------------------------------------------------------------------------


async def test_a_request_without_an_answer_fails_in_its_time_and_a_late_answer_is_ignored(
    autojump_clock: MockClock,
) -> None:
    async with serving() as served, trio.open_nursery() as nursery:
        peer = served.attach("slow")

        async def chat() -> None:
            # The peer is alive, only this answer is late.
            for _ in range(5):
                await trio.sleep(1)
                await peer.ping()

        asked = None
        start = trio.current_time()
        outcomes = Outcomes()
        peer.channel.submit(CHECK, timeout_s=2.5, on_outcome=outcomes)
        asked = await peer.read()
        nursery.start_soon(chat)
        await trio.sleep(2.4)
        assert outcomes.seen == []
        await trio.sleep(0.2)
        (error,) = outcomes.failed
        assert isinstance(error, RequestTimeoutError)
        assert str(error) == "CHECK_TRANSACTION_STATE to slow: no answer within 2.5 s"
        await trio.sleep(5)
        assert trio.current_time() - start > 5
        assert peer.channel.calls_under_way == 0
        await peer.send(answer(asked.opaque))
        assert await peer.ping() == []
        assert len(outcomes.seen) == 1


async def test_each_request_has_its_own_deadline_whatever_the_order(
    autojump_clock: MockClock,
) -> None:
    async with serving() as served, trio.open_nursery() as nursery:
        peers = [served.attach(f"peer-{n}") for n in range(2)]
        timed_out: dict[float, float] = {}

        async def call(timeout_s: float, number: int) -> None:
            start = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await peers[number % 2].channel.request(CHECK, timeout_s=timeout_s)
            timed_out[timeout_s] = trio.current_time() - start

        async def stay_alive() -> None:
            while len(timed_out) < 5:
                await trio.sleep(0.7)
                for peer in peers:
                    await peer.send(answer(999))

        nursery.start_soon(stay_alive)
        for number, timeout_s in enumerate((30.0, 5.0, 20.0, 1.0, 10.0)):
            nursery.start_soon(call, timeout_s, number)
    assert list(timed_out) == [1.0, 5.0, 10.0, 20.0, 30.0]
    assert all(took == pytest.approx(asked) for asked, took in timed_out.items())


@pytest.mark.parametrize("lockstep", [False, True])
async def test_a_server_keeps_a_silent_peer_since_it_could_not_dial_again(
    lockstep: bool, autojump_clock: MockClock
) -> None:
    async with serving() as served:
        peer = served.attach("silent", lockstep=lockstep)
        outcomes = Outcomes()
        peer.channel.submit(CHECK, timeout_s=3, on_outcome=outcomes)
        asked = await peer.read()
        await trio.sleep(5)
        assert isinstance(outcomes.failed[0], RequestTimeoutError)
        assert peer.channel.is_open
        await peer.send(answer(asked.opaque))
        assert await peer.ping() == []
        assert len(outcomes.seen) == 1


async def test_a_peer_that_we_do_not_read_on_purpose_is_not_taken_for_dead(
    autojump_clock: MockClock,
) -> None:
    holder = Holder()
    table = table_with_ping()
    once = HandlerGroup(name="once", concurrency=1, capacity=10, per_connection=1)
    table.add(RequestType(Ask, code=PULL), holder, group=once)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(ask(PULL, 1))
        await wait_all_tasks_blocked()
        await peer.send(ask(9_999, 2))
        with pytest.raises(RequestTimeoutError):
            await peer.channel.request(CHECK, timeout_s=3)
        assert peer.channel.is_open
        holder.requests[0].reply(Told(number=1))
        assert (await peer.read()).code == CHECK
        assert [frame.opaque for frame in await peer.read_many(2)] == [1, 2]


async def test_a_caller_that_gives_up_frees_its_place() -> None:
    async with serving(channel=ChannelConfig(calls_max=1)) as served:
        peer = served.attach()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.channel.request, CHECK)
            asked = await peer.read()
            nursery.cancel_scope.cancel()
        assert peer.channel.calls_under_way == 0
        outcomes = Outcomes()
        peer.channel.submit(CHECK, on_outcome=outcomes)
        second = await peer.read()
        assert second.opaque != asked.opaque
        await peer.send(answer(asked.opaque), answer(second.opaque))
        assert await peer.ping() == []
        assert outcomes.answered == [second.opaque]


async def test_a_caller_cancelled_before_it_asked_sends_nothing() -> None:
    async with serving() as served:
        peer = served.attach()
        with trio.CancelScope() as scope:
            scope.cancel()
            await peer.channel.request(CHECK)
        assert scope.cancelled_caught
        assert await peer.ping() == []


# ---- limits --------------------------------------------------------------------------------------


async def test_requests_under_way_are_limited_per_connection() -> None:
    async with serving(channel=ChannelConfig(calls_max=3)) as served:
        peer, other = served.attach("busy"), served.attach("other")
        outcomes = Outcomes()
        for _ in range(3):
            peer.channel.submit(CHECK, on_outcome=outcomes)
        with pytest.raises(TooManyRequestsError, match="CHECK_TRANSACTION_STATE to busy: 3 req"):
            peer.channel.submit(CHECK, on_outcome=outcomes)
        with pytest.raises(TooManyRequestsError):
            await peer.channel.request(CHECK)
        other.channel.submit(CHECK, on_outcome=outcomes)
        # What was refused was not sent either.
        asked = await peer.ping()
        assert len(asked) == 3
        await peer.send(answer(asked[0].opaque))
        assert await peer.ping() == []
        peer.channel.submit(CHECK, on_outcome=outcomes)
        assert len(await peer.ping()) == 1


async def test_one_way_requests_not_yet_written_are_limited() -> None:
    async with serving(channel=ChannelConfig(oneways_max=3)) as served:
        peer = served.attach(lockstep=True)
        for _ in range(3):
            peer.channel.oneway(NOTIFY)
        with pytest.raises(TooManyRequestsError):
            peer.channel.oneway(NOTIFY)
        await wait_all_tasks_blocked()
        # Handed to the transport, but the peer has not read them.
        with pytest.raises(TooManyRequestsError):
            peer.channel.oneway(NOTIFY)
        await peer.read_many(3)
        await wait_all_tasks_blocked()
        peer.channel.oneway(NOTIFY)
        await peer.read()


async def test_no_request_is_taken_while_too_many_bytes_wait_to_be_written() -> None:
    async with serving(channel=ChannelConfig(outbox_bytes_max=10_000)) as served:
        peer = served.attach(lockstep=True)
        outcomes = Outcomes()
        peer.channel.submit(CHECK, body=bytes(20_000), on_outcome=outcomes)
        for attempt in (
            lambda: peer.channel.submit(CHECK, on_outcome=outcomes),
            lambda: peer.channel.oneway(NOTIFY),
        ):
            with pytest.raises(TooManyRequestsError):
                attempt()
        # Our own request is no fault of the peer's.
        await wait_all_tasks_blocked()
        assert peer.channel.is_open
        assert len((await peer.read()).body) == 20_000
        await wait_all_tasks_blocked()
        peer.channel.oneway(NOTIFY)
        assert (await peer.read()).code == NOTIFY


# ---- the end of the connection -------------------------------------------------------------------


@pytest.mark.parametrize("over", ["memory", "socket"])
async def test_every_waiter_is_woken_when_the_connection_dies(over: str) -> None:
    async with serving() as served:
        peer = served.attach("gone") if over == "memory" else served.attach_recorded("gone")[0]
        errors: list[ConnectionLostError] = []
        outcomes = Outcomes()

        async def call() -> None:
            with pytest.raises(ConnectionLostError) as caught:
                await peer.channel.request(CHECK, timeout_s=1_000)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call)
            peer.channel.submit(CHECK, on_outcome=outcomes)
            await peer.read_many(11)
            await peer.aclose()
        assert {str(error) for error in (*errors, *outcomes.failed)} == {
            "connection to gone lost: closed by the peer"
        }
        assert (len(errors), len(outcomes.failed)) == (10, 1)
        assert peer.channel.calls_under_way == 0
        with pytest.raises(ConnectionLostError, match="closed by the peer"):
            await peer.channel.request(CHECK)
        with pytest.raises(ConnectionLostError):
            peer.channel.submit(CHECK, on_outcome=outcomes)


async def test_waiters_are_woken_when_the_server_ends() -> None:
    outcomes = Outcomes()
    async with serving() as served:
        peer = served.attach()
        peer.channel.submit(CHECK, on_outcome=outcomes)
        await peer.read()
    (error,) = outcomes.failed
    assert isinstance(error, ConnectionLostError)


async def test_a_peer_that_breaks_the_protocol_wakes_its_waiters_with_the_reason() -> None:
    async with serving() as served:
        peer = served.attach()
        outcomes = Outcomes()
        peer.channel.submit(CHECK, on_outcome=outcomes)
        await peer.read()
        await peer.send(b"\xff\xff\xff\xff")
        assert await peer.read_to_end() == []
        (error,) = outcomes.failed
        assert isinstance(error, ConnectionLostError)
        assert "protocol error: frame length -1" in error.reason
