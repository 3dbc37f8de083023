"""What members of a group ask brokers: who else there is, locks, filters."""

from __future__ import annotations

from typing import Final

import pytest

from rmq.client.core.consuming.group import check_filter, group_members, lock_queues, unlock_queues
from rmq.client.core.routes import RouteTable, TopicRoute
from rmq.errors import ConnectFailedError, NoRouteError, ResponseError
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    TopicRouteData,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.expressions import build_subscription
from tests.client.flow_kit import Script, reply, routes_of

TOPIC: Final = "Orders"
BROKERS: Final = {"broker-a": {0: "a:1", 1: "a:2"}, "broker-b": {0: "b:1"}}
GONE: Final = ConnectFailedError("a:1", "refused")


def route() -> TopicRoute:
    found = routes_of(TOPIC, BROKERS).get(TOPIC)
    assert found is not None
    return found


def queue(number: int, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=TOPIC, broker_name=broker, queue_id=number)


def members(*names: str) -> bytes:
    return GetConsumerListByGroupResponseBody(consumer_id_list=names).encode()


# --- who is in the group ---------------------------------------------------------------------


def test_the_first_broker_is_asked_who_is_in_the_group() -> None:
    script = Script(reply(body=members("one", "two")))
    assert script.run(group_members(route(), "g")) == ("one", "two")
    assert [ask.address for ask in script.asks] == ["a:1"]


@pytest.mark.parametrize(
    "failure",
    [GONE, reply(code=ResponseCode.SYSTEM_BUSY), reply(body=b"{")],
    ids=["away", "busy", "garbage"],
)
def test_the_next_one_is_asked_if_it_does_not_say(failure: object) -> None:
    script = Script(failure, reply(body=members("one")))  # type: ignore[arg-type]
    assert script.run(group_members(route(), "g")) == ("one",)
    assert [ask.address for ask in script.asks] == ["a:1", "b:1"]


@pytest.mark.parametrize(
    "answer",
    [reply(code=ResponseCode.SYSTEM_ERROR), reply(body=members())],
    ids=["unknown", "empty"],
)
def test_a_group_that_a_broker_does_not_know_has_no_members(answer: object) -> None:
    assert Script(answer).run(group_members(route(), "g")) is None  # type: ignore[arg-type]


def test_what_the_last_broker_failed_with_is_raised() -> None:
    with pytest.raises(ResponseError):
        Script(GONE, reply(code=ResponseCode.SYSTEM_BUSY)).run(group_members(route(), "g"))
    with pytest.raises(NoRouteError):
        Script().run(group_members(TopicRoute(TOPIC, TopicRouteData()), "g"))


# --- locks -----------------------------------------------------------------------------------


def test_queues_are_locked_at_their_masters() -> None:
    wanted = [queue(0), queue(1), queue(0, "broker-b")]
    script = Script(
        reply(body=LockBatchResponseBody(lock_ok_mq_set=(queue(1),)).encode()),
        reply(body=LockBatchResponseBody(lock_ok_mq_set=(queue(0, "broker-b"),)).encode()),
    )
    decided = script.run(lock_queues(routes_of(TOPIC, BROKERS), "g", "me", wanted))
    assert decided == {queue(0): False, queue(1): True, queue(0, "broker-b"): True}
    first, second = script.asks
    assert (first.address, first.code, first.timeout_s) == ("a:1", RequestCode.LOCK_BATCH_MQ, 1.0)
    assert LockBatchRequestBody.decode(first.body) == LockBatchRequestBody(
        consumer_group="g", client_id="me", mq_set=(queue(0), queue(1))
    )
    assert second.address == "b:1"


def test_a_lock_that_nobody_decides_is_what_it_was() -> None:
    script = Script(GONE, reply(body=LockBatchResponseBody().encode()))
    wanted = [queue(0), queue(0, "broker-b"), queue(0, "broker-c")]
    decided = script.run(lock_queues(routes_of(TOPIC, BROKERS), "g", "me", wanted))
    assert decided == {queue(0, "broker-b"): False}


def test_only_a_master_locks() -> None:
    routes = routes_of(TOPIC, {"broker-a": {1: "a:2"}})
    assert Script().run(lock_queues(routes, "g", "me", [queue(0)])) == {}
    assert Script().run(lock_queues(RouteTable(), "g", "me", [queue(0)])) == {}


def test_queues_are_given_back_with_and_without_an_answer() -> None:
    routes = routes_of(TOPIC, BROKERS)
    script = Script(GONE, reply())
    given = [queue(0), queue(0, "broker-b")]
    script.run(unlock_queues(routes, "g", "me", given, waits=True))
    assert [ask.address for ask in script.asks] == ["a:1", "b:1"]
    script = Script()
    script.run(unlock_queues(routes, "g", "me", [queue(0)], waits=False))
    (tell,) = script.tells
    assert tell.code is RequestCode.UNLOCK_BATCH_MQ
    assert UnlockBatchRequestBody.decode(tell.body).mq_set == (queue(0),)


# --- filters ---------------------------------------------------------------------------------


def test_a_broker_is_asked_whether_it_can_filter() -> None:
    data = build_subscription(TOPIC, "a > 5", "SQL92", 17)
    script = Script(reply())
    script.run(check_filter(route(), "g", "me", data))
    (ask,) = script.asks
    assert ask.code is RequestCode.CHECK_CLIENT_CONFIG
    assert CheckClientRequestBody.decode(ask.body) == CheckClientRequestBody(
        client_id="me", group="g", subscription_data=data
    )
    with pytest.raises(ResponseError, match="not supported"):
        Script(reply(code=ResponseCode.SYSTEM_ERROR, remark="not supported")).run(
            check_filter(route(), "g", "me", data)
        )
    Script().run(check_filter(TopicRoute(TOPIC, TopicRouteData()), "g", "me", data))
