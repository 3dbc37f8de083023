"""Looking for an answer instead of sleeping: when, for how long, and at nobody's expense."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import ConfigError
from rmq.remoting import endpoint
from rmq.remoting.busy_wait import BUSY_WAIT_S, BusyWait
from rmq.remoting.channel import FRAMES_PER_TURN
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import GetMaxOffsetRequest, NotifyConsumerIdsChangedRequest
from rmq.remoting.poller import Poller
from tests.client.blocking.scripted_peer import answer_frame, scripted_peer
from tests.remoting.server_kit import SEND, Ask, ask, echo, serving, table_with_ping

if TYPE_CHECKING:
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.request import Request
    from tests.client.blocking.scripted_peer import Link

needs_poller = pytest.mark.skipif(not Poller.available, reason="needs epoll and eventfd")

PATIENT: ClientConfig = ClientConfig(busy_wait_s=30)
"""Whoever looks so long finds what comes, however slow the machine is."""
NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def outcomes(wait: BusyWait, count: int, *, is_found: bool) -> list[bool]:
    """Say so many times that an answer was found or missed; return when it was looked for."""
    looked = []
    for _ in range(count):
        looked.append(wait.is_worth_it())
        if looked[-1]:
            wait.found() if is_found else wait.missed()
    return looked


def test_it_goes_on_as_long_as_answers_are_found() -> None:
    wait = BusyWait()
    assert wait.limit_s == BUSY_WAIT_S
    assert outcomes(wait, 50, is_found=True) == [True] * 50


def test_it_is_left_out_twice_as_often_after_each_time_in_vain() -> None:
    wait = BusyWait()
    looked = outcomes(wait, 15, is_found=False)
    assert [number for number, each in enumerate(looked) if each] == [0, 2, 6, 14]
    assert sum(outcomes(wait, 100_000, is_found=False)) < 110
    while not wait.is_worth_it():
        pass
    wait.found()
    assert all(outcomes(wait, 10, is_found=True))


def test_with_no_time_for_it_nothing_is_looked_for() -> None:
    assert outcomes(BusyWait(0), 3, is_found=True) == [False] * 3


def test_a_time_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="busy_wait_s"):
        ClientConfig(busy_wait_s=-1)


def answer(link: Link, request: Command) -> None:
    link.answer(request)


async def ask_for(client: RemotingClient, address: str) -> None:
    header = GetMaxOffsetRequest(topic="T", queue_id=0)
    await client.request(address, RequestCode.GET_MAX_OFFSET, header, timeout_s=60)


class Steps(trio.abc.Instrument):
    """Counts how often the scheduler went round."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@needs_poller
@pytest.mark.parametrize("turn_s", [0.0, 1e9])
async def test_answers_are_found_without_sleeping_and_others_get_their_turn(
    turn_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_TURN_S", turn_s)
    steps = Steps()
    with scripted_peer(answer) as peer:
        async with open_client(PATIENT) as client:
            await ask_for(client, peer.address)
            trio.lowlevel.add_instrument(steps)
            for _ in range(20):
                await ask_for(client, peer.address)
            count = steps.count
            trio.lowlevel.remove_instrument(steps)
    # A turn without length is over with the answer after which time has passed.
    assert count == 0 if turn_s else 10 <= count <= 20


@needs_poller
async def test_with_others_to_run_or_several_answers_to_come_nothing_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_run = threading.Event()

    def answer_then(link: Link, request: Command) -> None:
        assert has_run.wait(20)
        link.answer(request)

    async def run() -> None:
        assert looks == 0
        has_run.set()

    looks = 0
    poll = Poller.poll

    def counted(poller: Poller) -> bool:
        nonlocal looks
        looks += 1
        return poll(poller)

    with scripted_peer(answer_then) as peer:
        async with open_client(PATIENT) as client, trio.open_nursery() as nursery:
            has_run.set()
            await ask_for(client, peer.address)
            has_run.clear()
            monkeypatch.setattr(Poller, "poll", counted)
            nursery.start_soon(run)
            await ask_for(client, peer.address)
            assert looks == 0
            for _ in range(2):
                nursery.start_soon(ask_for, client, peer.address)
                await trio.testing.wait_all_tasks_blocked()


@needs_poller
async def test_what_came_for_somebody_else_ends_the_looking() -> None:
    noticed = trio.Event()
    may_answer = threading.Event()
    table = HandlerTable()

    def notice(request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        noticed.set()

    table.add(NOTICE, notice, header=NotifyConsumerIdsChangedRequest)

    def ask_first(link: Link, request: Command) -> None:
        if may_answer.is_set():
            link.answer(request)
            return
        link.ask(NOTICE, NotifyConsumerIdsChangedRequest(consumer_group="g"), is_oneway=True)
        assert may_answer.wait(20)
        link.answer(request)

    async def let_it_answer() -> None:
        await noticed.wait()
        may_answer.set()

    with scripted_peer(ask_first) as peer:
        async with (
            open_client(PATIENT, table=table) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(let_it_answer)
            await trio.testing.wait_all_tasks_blocked()
            await ask_for(client, peer.address)
    assert noticed.is_set()


@needs_poller
async def test_whoever_is_cancelled_gets_an_answer_that_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_TURN_S", 0.0)
    scope = trio.CancelScope()
    table = HandlerTable()

    def cancel(request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        scope.cancel()

    table.add(NOTICE, cancel, header=NotifyConsumerIdsChangedRequest)

    def cancel_and_answer(link: Link, request: Command) -> None:
        frame = answer_frame(request)
        if request.header(GetMaxOffsetRequest).queue_id:
            header = NotifyConsumerIdsChangedRequest(consumer_group="g")
            frame = encode_frame(code=NOTICE, flag=FLAG_ONEWAY, header=header) + frame
        link.send(frame)

    done = 0
    with scripted_peer(cancel_and_answer) as peer:
        async with open_client(PATIENT, table=table) as client:
            await ask_for(client, peer.address)
            with scope:
                for number in range(100):
                    header = GetMaxOffsetRequest(topic="T", queue_id=number)
                    await client.request(
                        peer.address, RequestCode.GET_MAX_OFFSET, header, timeout_s=60
                    )
                    done += 1
    assert scope.cancelled_caught
    assert done == 2


@needs_poller
async def test_frames_that_a_look_left_are_handled_by_the_task() -> None:
    table = table_with_ping()
    table.add(SEND, echo, header=Ask)
    count = 3 * FRAMES_PER_TURN
    async with serving(table) as served:
        peer = await served.dial()
        await peer.ping()
        await peer.send(*(ask(SEND, number) for number in range(count)))
        poller = served.server._endpoint._poller
        assert poller is not None
        assert poller.poll()
        assert await peer.read_numbers(count) == list(range(count))
        assert not poller.poll()
