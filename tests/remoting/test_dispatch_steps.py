"""Handlers that work in steps: short requests at once, long ones with others in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import RefusedError
from rmq.remoting.codes import ResponseCode
from rmq.remoting.protocol import RequestType
from tests.remoting.server_kit import SEND, Ask, Told, ask, echo, serving, table_with_ping

if TYPE_CHECKING:
    from collections.abc import Generator

    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request


class Steps:
    """A handler that takes as many steps as its requests say, and notes each."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def __call__(self, request: Request[Ask]) -> Generator[None, None, None]:
        left = request.header.number
        self.done.append(left)
        while left > 1:
            yield
            left -= 1
            self.done.append(left)
        request.reply(Told(number=request.header.number))

    def table(self) -> HandlerTable:
        table = table_with_ping()
        table.add_steps(RequestType(Ask, code=SEND), self)
        return table


async def test_short_requests_are_served_in_the_step_that_read_them() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        peer, transport = served.attach_recorded()
        await peer.send(*(ask(SEND, number, number=1) for number in range(10)))
        assert [frame.opaque for frame in await peer.read_many(10)] == list(range(10))
        assert len(transport.writes) == 1


async def test_other_connections_are_served_between_the_steps_of_a_long_request() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        heavy, other = served.attach("heavy"), served.attach("other")
        await heavy.send(ask(SEND, 1, number=1_000))
        await other.send(ask(SEND, 2, number=1))
        assert (await other.read()).opaque == 2
        assert 1 <= len(steps.done) < 1_000
        assert (await heavy.read()).number == 1_000
        assert len(steps.done) == 1_001


async def test_however_many_are_long_a_pass_of_the_loop_does_one_step() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        peers = [served.attach(f"peer {number}") for number in range(5)]
        for peer in peers:
            await peer.send(ask(SEND, 1, number=40))
        while len(steps.done) < 10:
            await trio.lowlevel.checkpoint()
        began = len(steps.done)
        passes = 0
        while len(steps.done) < 5 * 40:
            await trio.lowlevel.checkpoint()
            passes += 1
            # Tasks of a pass run in any order, so one of the next may have been seen by now.
            assert len(steps.done) - began <= passes + 1
        for peer in peers:
            assert (await peer.read()).number == 40


async def test_the_next_request_of_a_connection_comes_after_its_long_one() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        peer = served.attach()
        await peer.send(ask(SEND, 1, number=50))
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(ask(SEND, 2, number=1))
        assert [frame.opaque for frame in await peer.read_many(2)] == [1, 2]
        await peer.send(ask(SEND, 3, number=50))
        while len(steps.done) < 60:
            await trio.lowlevel.checkpoint()
        await peer.send(ask(SEND, 4, number=1))
        assert [frame.opaque for frame in await peer.read_many(2)] == [3, 4]


@pytest.mark.parametrize("step", [1, 3])
async def test_a_step_that_fails_answers_the_request(step: int) -> None:
    def refuse_at_step(request: Request[Ask]) -> Generator[None, None, None]:
        for _ in range(step - 1):
            yield
        if request.header.number == 1:
            raise RefusedError(ResponseCode.NO_PERMISSION, "not this one")
        raise ValueError("a fault")

    table = table_with_ping()
    table.add_steps(RequestType(Ask, code=SEND), refuse_at_step)
    async with serving(table) as served:
        peer = served.attach()
        refused = await peer.request(ask(SEND, 1, number=1))
        assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "not this one")
        failed = await peer.request(ask(SEND, 2, number=2))
        assert (failed.code, failed.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: a fault")
        assert await peer.ping() == []


async def test_a_connection_that_ends_within_a_long_request_harms_nobody() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        peer, other = served.attach("gone"), served.attach("other")
        await peer.send(ask(SEND, 1, number=500))
        while len(steps.done) < 10:
            await trio.lowlevel.checkpoint()
        await peer.aclose()
        assert (await other.request(ask(SEND, 2, number=3))).number == 3
        await trio.testing.wait_all_tasks_blocked()
        assert served.group("admin").unanswered == 0


async def test_a_long_body_is_refused_before_it_is_handed_on() -> None:
    seen: list[int] = []

    def note(request: Request[Ask]) -> None:
        seen.append(len(request.body or b""))
        echo(request)

    table = table_with_ping()
    table.add(RequestType(Ask, code=SEND), note, body_bytes_max=100)
    async with serving(table) as served:
        peer = served.attach()
        await peer.send(
            ask(SEND, 1, body=bytes(100)),
            ask(SEND, 2, body=bytes(101)),
            ask(SEND, 3, body=bytes(1_000_000), oneway=True),
            ask(SEND, 4),
        )
        answers = {frame.opaque: frame for frame in await peer.read_many(3)}
        assert {opaque: frame.code for opaque, frame in answers.items()} == {1: 0, 2: 1, 4: 0}
        assert (
            answers[2].remark == "the body of SEND_MESSAGE_V2 (310) has 101 bytes, the limit is 100"
        )
        assert seen == [100, 0]


async def test_the_codes_served_last_are_known() -> None:
    steps = Steps()
    async with serving(steps.table()) as served:
        peer = served.attach()
        await peer.ping()
        await peer.send(ask(SEND, 1, number=3), ask(SEND, 2, number=1))
        await peer.read_many(2)
        await peer.ping()
        assert served.server.recent_codes == (28, 310, 28)
