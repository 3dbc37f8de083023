"""Looking for an answer instead of sleeping: when, for how long, and at nobody's expense."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import ConfigError
from rmq.remoting.awaited import Awaited
from rmq.remoting.busy_wait import BUSY_WAIT_S, BusyWait, Wakings
from rmq.remoting.channel import FRAMES_PER_TURN
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import GetMaxOffsetRequest, NotifyConsumerIdsChangedRequest
from rmq.remoting.poller import Poller
from rmq.remoting.protocol import RequestType
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


class Sleeps(trio.abc.Instrument):
    """Counts how often the whole process slept."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0


@needs_poller
async def test_answers_are_found_without_sleeping() -> None:
    sleeps = Sleeps()
    with scripted_peer(answer) as peer:
        async with open_client(PATIENT) as client:
            await ask_for(client, peer.address)
            trio.lowlevel.add_instrument(sleeps)
            for _ in range(20):
                await ask_for(client, peer.address)
            count = sleeps.count
            trio.lowlevel.remove_instrument(sleeps)
    assert count == 0


@needs_poller
async def test_others_run_meanwhile() -> None:
    steps = 0

    async def run() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    with scripted_peer(answer) as peer:
        async with open_client(PATIENT) as client, trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for number in range(20):
                await ask_for(client, peer.address)
                assert steps >= number
            nursery.cancel_scope.cancel()


@needs_poller
async def test_with_several_answers_to_come_all_sleep() -> None:
    may_answer = threading.Event()

    def answer_then(link: Link, request: Command) -> None:
        assert may_answer.wait(20)
        link.answer(request)

    with scripted_peer(answer_then) as peer, trio.fail_after(20):
        async with open_client(PATIENT) as client, trio.open_nursery() as nursery:
            may_answer.set()
            await ask_for(client, peer.address)
            may_answer.clear()
            for _ in range(3):
                nursery.start_soon(ask_for, client, peer.address)
            # Who looks is not blocked.
            await trio.testing.wait_all_tasks_blocked()
            may_answer.set()


async def test_a_task_that_was_woken_counts_until_it_runs() -> None:
    wakings = Wakings()
    given_up = 0
    got: list[int | None] = []

    def give_up() -> None:
        nonlocal given_up
        given_up += 1

    async def wait(awaited: Awaited[int]) -> None:
        await awaited.sleep(give_up)
        awaited.woke()
        got.append(awaited.outcome)

    several: list[Awaited[int]] = [Awaited(wakings) for _ in range(4)]
    several[3](3)
    assert wakings.count == 0, "nobody slept"
    async with trio.open_nursery() as nursery:
        for each in several[:3]:
            nursery.start_soon(wait, each)
        await trio.testing.wait_all_tasks_blocked()
        several[0](10)
        several[1](11)
        assert wakings.count == 2
        await trio.testing.wait_all_tasks_blocked()
        assert wakings.count == 0
        nursery.cancel_scope.cancel()
    assert sorted(each or 0 for each in got) == [10, 11]
    assert given_up == 1
    assert wakings.count == 0


@needs_poller
async def test_what_comes_for_somebody_else_is_taken_at_once() -> None:
    noticed = trio.Event()
    may_answer = threading.Event()
    table = HandlerTable()

    def notice(request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        noticed.set()

    table.add(RequestType(NotifyConsumerIdsChangedRequest, code=NOTICE), notice)

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
async def test_whoever_is_cancelled_gets_an_answer_that_has_come() -> None:
    scope = trio.CancelScope()
    table = HandlerTable()

    def cancel(request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        scope.cancel()

    table.add(RequestType(NotifyConsumerIdsChangedRequest, code=NOTICE), cancel)

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
    table.add(RequestType(Ask, code=SEND), echo)
    count = FRAMES_PER_TURN + 50
    async with serving(table) as served:
        peer = await served.dial()
        await peer.ping()
        # Written without a step of the scheduler, in which the task would read it.
        data = b"".join(ask(SEND, number) for number in range(count))
        assert isinstance(peer.stream, trio.SocketStream)
        assert os.write(peer.stream.socket.fileno(), data) == len(data)
        poller = served.server._endpoint._poller
        assert poller is not None
        assert poller.poll()
        assert await peer.read_numbers(count) == list(range(count))
        assert not poller.poll()
