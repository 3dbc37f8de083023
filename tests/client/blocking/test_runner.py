"""Flows on plain sockets: to their end, side by side, and when things fail on the way."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.client.blocking.connections import Connections
from rmq.client.blocking.frames import Settings
from rmq.client.blocking.runner import FlowRunner
from rmq.client.core.flows import Ask, Pause, Tell, ask
from rmq.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    RequestTimeoutError,
    ResponseError,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetMaxOffsetRequest, GetMaxOffsetResponse
from rmq.remoting.signing import Credentials
from tests.client.blocking.scripted_peer import Link, scripted_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.client.core.flows import Flow
    from rmq.remoting.command import Command

CODE = RequestCode.GET_MAX_OFFSET
NOWHERE = "127.0.0.1:1"


@contextmanager
def open_runner(
    *, timeout_s: float = 10.0, credentials: Credentials | None = None
) -> Iterator[FlowRunner]:
    connections = Connections(Settings(credentials=credentials), on_request=lambda *_: None)
    try:
        yield FlowRunner(connections, timeout_s=timeout_s)
    finally:
        connections.close(linger_s=0)


def echo(link: Link, request: Command) -> None:
    if request.is_oneway:
        return
    number = request.header(GetMaxOffsetRequest).queue_id
    if number < 0:
        link.answer(request, code=ResponseCode.SYSTEM_ERROR, remark="below 0")
    else:
        link.answer(request, header=GetMaxOffsetResponse(offset=number))


def offset(address: str, number: int) -> Flow[int]:
    answer = yield from ask(address, CODE, GetMaxOffsetRequest(topic="T", queue_id=number))
    return answer.header(GetMaxOffsetResponse).offset


def test_a_flow_asks_tells_pauses_and_returns() -> None:
    def flow() -> Flow[int]:
        first = yield from offset(peer.address, 20)
        yield Tell(peer.address, CODE, None, b"told", "note")
        yield Pause(0.02)
        return first + (yield from offset(peer.address, 3))

    with scripted_peer(echo) as peer, open_runner() as runner:
        started = time.monotonic()
        assert runner.run(flow()) == 23
        assert time.monotonic() - started >= 0.02
        assert [request.body for request in peer.requests] == [None, b"told", None]


def test_what_fails_is_thrown_into_the_flow_which_may_go_on() -> None:
    def flow() -> Flow[list[str]]:
        seen = []
        for address in (NOWHERE, peer.address):
            try:
                yield from offset(address, -1)
            except ClientError as exc:
                seen.append(type(exc).__name__)
        try:
            yield Tell(NOWHERE, CODE)
        except ClientError as exc:
            seen.append(type(exc).__name__)
        return seen

    with scripted_peer(echo) as peer, open_runner() as runner:
        expected = ["ConnectFailedError", "ResponseError", "ConnectFailedError"]
        assert runner.run(flow()) == expected
        with pytest.raises(ResponseError, match="below 0"):
            runner.run(offset(peer.address, -1))
        with pytest.raises(ConnectFailedError):
            runner.run(offset(NOWHERE, 1))


def test_flows_run_side_by_side() -> None:
    held: list[Command] = []

    def backwards(link: Link, request: Command) -> None:
        held.append(request)
        if len(held) == 10:
            for each in reversed(held):
                echo(link, each)

    with scripted_peer(backwards) as peer, open_runner() as runner:
        tasks = [runner.start(offset(peer.address, number)) for number in range(10)]
        assert [runner.wait(task) for task in tasks] == list(range(10))


def test_a_flow_beside_others_may_tell_pause_and_fail() -> None:
    def told() -> Flow[str]:
        yield Tell(peer.address, CODE, None, b"told")
        yield Pause(0.01)
        try:
            yield from offset(NOWHERE, 1)
        except ConnectFailedError:
            return "refused"
        return "connected"

    def fault() -> Flow[None]:
        yield from offset(peer.address, 1)
        raise RuntimeError("a fault")

    def huge() -> Flow[None]:
        yield Ask(peer.address, CODE, None, b"x" * (16 * 1024**2))

    with scripted_peer(echo) as peer, open_runner() as runner:
        telling, failing, large = runner.start(told()), runner.start(fault()), runner.start(huge())
        assert runner.wait(telling) == "refused"
        with pytest.raises(RuntimeError, match="a fault"):
            runner.wait(failing)
        with pytest.raises(LocalProtocolError):
            runner.wait(large)
        # It says so whenever it is asked.
        with pytest.raises(RuntimeError, match="a fault"):
            failing.result()


def test_a_flow_that_is_cancelled_is_closed_and_its_answer_ignored() -> None:
    closed: list[bool] = []

    def flow() -> Flow[int]:
        try:
            return (yield from offset(peer.address, 1))
        finally:
            closed.append(True)

    with scripted_peer(echo) as peer, open_runner() as runner:
        task = runner.start(flow())
        task.cancel()
        assert closed == [True]
        assert task.is_done
        with pytest.raises(ConnectionLostError, match="given up"):
            task.result()
        task.cancel()
        assert runner.run(offset(peer.address, 2)) == 2


def test_an_interrupt_closes_the_flow() -> None:
    closed: list[bool] = []

    def flow() -> Flow[int]:
        try:
            yield from offset(peer.address, 1)
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    with scripted_peer(echo) as peer, open_runner() as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.run(flow())
        task = runner.start(flow())
        with pytest.raises(KeyboardInterrupt):
            runner.wait(task)
        assert closed == [True, True]
        assert task.is_done


def test_the_timeout_is_the_clients_unless_a_flow_has_its_own() -> None:
    def flow() -> Flow[None]:
        yield Ask(peer.address, CODE, None, timeout_s=0.02)

    def wait(link: Link, request: Command) -> None:
        pass

    with scripted_peer(wait) as peer, open_runner(timeout_s=0.03) as runner:
        with pytest.raises(RequestTimeoutError) as caught:
            runner.run(flow())
        assert caught.value.timeout_s == 0.02
        with pytest.raises(RequestTimeoutError) as caught:
            runner.run(offset(peer.address, 1))
        assert caught.value.timeout_s == 0.03


def test_requests_are_signed() -> None:
    def told() -> Flow[None]:
        yield Tell(peer.address, CODE, None, b"told")

    credentials = Credentials(access_key="me", secret_key="secret")
    with scripted_peer(echo) as peer, open_runner(credentials=credentials) as runner:
        runner.run(offset(peer.address, 1))
        runner.wait(runner.start(offset(peer.address, 2)))
        runner.run(told())
        # Asked last, so the one-way request has arrived.
        runner.run(offset(peer.address, 3))
        assert len(peer.requests) == 4
        for request in peer.requests:
            assert request.ext_fields["AccessKey"] == "me"
            assert request.ext_fields["Signature"]
