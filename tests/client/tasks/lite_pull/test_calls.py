"""Pulls under way: what is sent, and which answers are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.buffer import Ticket
from rmq.client.core.consuming.config import LitePullConfig
from rmq.client.core.consuming.pull_subscriptions import subscription
from rmq.client.core.consuming.pulls import PullStatus, pull_request
from rmq.client.core.flows import Answer, Ask
from rmq.client.core.routes import Address
from rmq.client.tasks.lite_pull import lite_pulling
from rmq.client.tasks.pull_tasks import PullCall, PullCalls, StreamPullRequest
from rmq.client.trio.opening import open_client, open_lite_pull_consumer
from rmq.errors import BadAnswerError, ConnectFailedError, ConnectionLostError
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.signing import Credentials, signed
from tests.client.flow_kit import command_of, reply, routes_of
from tests.client.pull_kit import (
    TOPIC,
    bodies,
    no_new,
    place,
    poll_all,
    queue,
    record,
    scripted_broker,
    until,
)

if TYPE_CHECKING:
    from rmq.remoting.header import Header
    from rmq.remoting.headers import PullMessageRequest
    from rmq.remoting.request import Request

EVERYTHING = subscription(TOPIC, "*")
CONFIG = LitePullConfig(group="g")


def header(offset: int = 7) -> PullMessageRequest:
    return pull_request(
        queue(),
        group="g",
        subscription=EVERYTHING,
        offset=offset,
        max_messages=10,
        suspend_s=20,
        commit_offset=None,
        sends_expression=True,
        is_lite=True,
    )


def call(broker_id: int = 0) -> PullCall:
    broker = Address("broker-a", broker_id, "127.0.0.1:1")
    ask = Ask(broker.address, RequestCode.PULL_MESSAGE, header())
    return PullCall(Ticket(queue(), 7, 1), EVERYTHING, broker, ask, CONFIG)


def answer(
    place_told: Header | None, *, code: int = ResponseCode.SUCCESS, body: bytes | None = None
) -> Answer:
    ask = Ask("127.0.0.1:1", RequestCode.PULL_MESSAGE, header())
    return Answer(ask, command_of(reply(place_told, code=code, body=body)))


@pytest.mark.parametrize("serialization", Serialization)
def test_a_stream_pull_is_a_pull_with_one_more_field(serialization: Serialization) -> None:
    plain = header()
    faster = StreamPullRequest(**msgspec.structs.asdict(plain))
    assert encode_frame(code=11, header=faster, serialization=serialization) == encode_frame(
        code=11, header=plain, extra={"ReqT": "0"}, serialization=serialization
    )


def test_where_an_answer_goes_on_is_known_before_it_is_decoded() -> None:
    found = call().found(answer(place(9), body=b"not looked at"))
    assert found is not None
    assert found.next_begin_offset == 9
    assert call().found(answer(place(9), code=ResponseCode.PULL_NOT_FOUND)) is None
    for wrong in (6, 7):
        with pytest.raises(BadAnswerError, match=f"goes on at offset {wrong}"):
            call().found(answer(place(wrong), body=record(7, "m7")))


@pytest.mark.parametrize("next_offset", [3, 12])
def test_a_master_may_move_a_consumer_either_way(next_offset: int) -> None:
    result = call().result(answer(place(next_offset), code=ResponseCode.PULL_OFFSET_MOVED))
    assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, next_offset)


def test_a_slave_that_lags_behind_moves_nobody_back() -> None:
    moved = call(broker_id=1).result(answer(place(12), code=ResponseCode.PULL_OFFSET_MOVED))
    assert moved.next_offset == 12
    with pytest.raises(BadAnswerError, match="ends at offset 3 at a slave"):
        call(broker_id=1).result(answer(place(3), code=ResponseCode.PULL_OFFSET_MOVED))


async def test_what_comes_after_a_pull_was_dropped_is_not_looked_at() -> None:
    lost = call()
    lost.ended(ConnectionLostError("127.0.0.1:1", "gone"))
    with pytest.raises(ConnectionLostError, match="gone"):
        await lost.answer()
    lost.drop()


async def test_no_connection_is_made_where_nothing_may_be_waited_for() -> None:
    async with open_client("127.0.0.1:1") as client:
        for route in routes_of(TOPIC, {"broker-a": {0: "127.0.0.1:1"}}):
            client.routes.put(route)
        calls = PullCalls(client, CONFIG)
        with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
            calls.begin_nowait(Ticket(queue(), 7, 1), EVERYTHING, 0)


async def test_an_address_that_is_none_is_said_to_be_out_of_reach() -> None:
    async with scripted_broker() as it:
        it.told_address = "nonsense"
        async with open_lite_pull_consumer(it.address, "g", pull_pause_s=0.02) as consumer:
            await consumer.assign([queue()])
            await until(lambda: consumer.statistics().failures)
            assert isinstance(consumer.statistics().failures[queue()], ConnectFailedError)
            it.told_address = None
            await until(lambda: it.asked_for(RequestCode.PULL_MESSAGE))


async def test_pulls_are_signed_like_everything_else() -> None:
    credentials = Credentials(access_key="me", secret_key="secret")
    async with scripted_broker() as it:
        it.offsets[0] = 7

        def found(request: Request[PullMessageRequest]) -> None:
            it.on_pull = no_new
            request.reply(place(8), body=record(7, "m7"))

        it.on_pull = found
        config = ClientConfig(nameservers=it.address, credentials=credentials)
        async with (
            open_client(config, is_stream=True) as client,
            lite_pulling(client, CONFIG) as consumer,
        ):
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 1)) == ["m7"]
        fields = it.asked_for(RequestCode.PULL_MESSAGE)[0].fields
        expected = signed(credentials, header(), {"ReqT": "0"}, None)
        assert {name: fields[name] for name in expected} == expected


async def test_a_client_that_is_no_stream_client_pulls_without_saying_so() -> None:
    async with scripted_broker() as it:
        async with open_client(it.address) as client, lite_pulling(client, CONFIG) as consumer:
            await consumer.subscribe(TOPIC)
            assert await consumer.poll(0.05) == []
        (pull,) = it.asked_for(RequestCode.PULL_MESSAGE)
        assert "ReqT" not in pull.fields
        assert not client.client_id.endswith("@STREAM")
