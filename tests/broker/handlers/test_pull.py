"""PULL_MESSAGE: what is checked before anything is read, in which order, and what is answered.

Order, codes and remarks are those of RocketMQ 4.9.8 PullMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from rmq.remoting.bodies import MessageModel
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from tests.broker.broker_frames import (
    GROUP,
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    pull,
    subscription,
)
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker

FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
PEER: Final = "10.0.0.9:40000"


class Check(NamedTuple):
    """Something a pull is checked for: how to fail it, and what is answered then."""

    name: str
    fail: Callable[[PartBroker], object]
    code: int
    remark: str


def _no_group(broker: PartBroker) -> None:
    broker.update(autoCreateSubscriptionGroup="false")
    broker.groups.delete(GROUP)


def _as_it_is(broker: PartBroker) -> None:
    """What fails is in the request."""


CHECKS: Final = [
    Check(
        "the broker may not be read from",
        lambda broker: broker.update(brokerPermission="2"),
        ResponseCode.NO_PERMISSION,
        "the broker[192.0.2.1] pulling message is forbidden",
    ),
    Check(
        "there is no such group",
        _no_group,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group [readers] does not exist, {FAQ}",
    ),
    Check(
        "the group may not consume",
        lambda broker: broker.change_group(consume_enable=False),
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, readers",
    ),
    Check(
        "there is no such topic",
        lambda broker: broker.topics.delete(TOPIC),
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[TopicA] not exist, apply first please! {FAQ}",
    ),
    Check(
        "the topic may not be read from",
        lambda broker: broker.change_topic(perm=2),
        ResponseCode.NO_PERMISSION,
        "the topic[TopicA] pulling message is forbidden",
    ),
    NO_SUCH_QUEUE := Check(
        "the topic has no such queue",
        _as_it_is,
        ResponseCode.SYSTEM_ERROR,
        f"queueId[4] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4] consumer:[{PEER}]",
    ),
    Check(
        "the expression makes no sense",
        _as_it_is,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
    ),
]


@pytest.mark.parametrize("place", range(len(CHECKS)), ids=[c.name for c in CHECKS])
async def test_the_first_check_that_fails_is_answered(place: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for check in reversed(CHECKS[place:]):
            check.fail(broker)
        expected = CHECKS[place]
        queue_id = 4 if place <= CHECKS.index(NO_SUCH_QUEUE) else 0
        answer = await broker.ask(pull(queue_id, expression="||"))
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        assert answer.fields == {}
        assert answer.body == b""


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1, -(2**31)])
async def test_a_queue_outside_the_topic_is_illegal(queue_id: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(pull(queue_id))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(f"queueId[{queue_id}] is illegal")


async def test_the_last_queue_that_can_be_read_is_legal(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.change_topic(read_queue_nums=2, write_queue_nums=8)
        assert (await broker.ask(pull(1))).code == ResponseCode.PULL_NOT_FOUND
        assert (await broker.ask(pull(2))).code == ResponseCode.SYSTEM_ERROR


# --- what heartbeats say -------------------------------------------------------------------------


async def test_without_an_expression_the_group_must_be_connected(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(pull(expression=None))
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answer.remark == f"the consumer's group info not exist{FAQ}"


async def test_a_group_that_may_not_broadcast_is_refused_when_it_does(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.change_group(consume_broadcast_enable=False)
        # Broadcasting comes before the topic that is not subscribed to.
        peer = await broker.join("a", consumer(model=MessageModel.BROADCASTING))
        answer = await peer.request(pull(expression=None))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the consumer group[readers] can not consume by broadcast way"


async def test_a_group_that_broadcasts_may_say_what_it_wants_itself(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.change_group(consume_broadcast_enable=False)
        broker.put(b"one")
        peer = await broker.join("a", consumer(model=MessageModel.BROADCASTING))
        assert bodies_of(await peer.request(pull())) == [b"one"]


async def test_a_topic_that_the_group_does_not_subscribe_to_is_refused(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription(topic="other")))
        answer = await peer.request(pull(expression=None, version=9))
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answer.remark == f"the consumer's subscription not exist{FAQ}"


@pytest.mark.parametrize(
    ("version", "code"),
    [
        pytest.param(6, ResponseCode.PULL_NOT_FOUND, id="older"),
        pytest.param(7, ResponseCode.PULL_NOT_FOUND, id="same"),
        pytest.param(8, ResponseCode.SUBSCRIPTION_NOT_LATEST, id="newer"),
    ],
)
async def test_a_subscription_newer_than_the_heartbeat_is_refused(
    version: int, code: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription(version=7)))
        answer = await peer.request(pull(expression=None, version=version))
        assert answer.code == code
        if code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
            assert answer.remark == "the consumer's subscription not latest"
            assert answer.fields == {}


async def test_tags_of_the_heartbeat_choose_the_messages(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for tag in "ABA":
            broker.put(tag.encode(), tags=f"Tag{tag}")
        peer = await broker.join("a", consumer(subscription("TagA")))
        answer = await peer.request(pull(expression=None, version=1))
        assert bodies_of(answer) == [b"A", b"A"]
        assert ext(answer)["nextBeginOffset"] == "3"


async def test_tags_of_the_request_choose_the_messages(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for tag in "ABA":
            broker.put(tag.encode(), tags=f"Tag{tag}")
        await broker.join("a", consumer(subscription("TagA")))
        assert bodies_of(await broker.ask(pull(expression="TagB || TagC"))) == [b"B"]


# --- groups --------------------------------------------------------------------------------------


async def test_a_group_comes_into_being_with_its_first_pull(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert broker.groups.get("new") is None
        assert (await broker.ask(pull(group="new"))).code == ResponseCode.PULL_NOT_FOUND
        assert broker.groups.get("new") is not None


@pytest.mark.parametrize("group", [" ", "g" * 256], ids=["blank", "too long"])
async def test_a_group_that_no_client_can_have_is_not_made(group: str, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(pull(group=group))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert broker.groups.get(group) is None


# --- requests that are no proper pulls -----------------------------------------------------------


@pytest.mark.parametrize(
    "left_out",
    ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"],
)
async def test_a_pull_without_a_field_it_needs_is_refused(left_out: str, tmp_path: Path) -> None:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }
    del fields[left_out]
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(frame(RequestCode.PULL_MESSAGE, extra=fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert left_out in answer.remark


async def test_a_binary_pull_is_answered_in_binary(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"one")
        answer = await broker.ask(pull(serialization=Serialization.ROCKETMQ))
        assert answer.serialization == Serialization.ROCKETMQ
        assert answer.remark == "FOUND"
        assert ext(answer) == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "1",
            "minOffset": "0",
            "maxOffset": "1",
        }
        assert bodies_of(answer) == [b"one"]


async def test_a_one_way_pull_is_not_answered_and_not_counted(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(pull(oneway=True), pull(7, oneway=True))
        assert await peer.ping() == []
        assert broker.unanswered == 0


async def test_a_pull_that_fails_for_a_fault_of_ours_is_answered_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with part_broker(tmp_path) as broker:

        def fail(*_: object) -> None:
            raise KeyError("a fault")

        monkeypatch.setattr(broker.store.reads, "get", fail)
        answer = await broker.ask(pull(wait_ms=15_000))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "KeyError: 'a fault'",
        )
        assert "pull of 10.0.0.9:40000 failed" in caplog.text
        assert broker.unanswered == 0


async def test_many_pulls_of_one_read_are_each_answered(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        peer = broker.attach()
        await peer.send(*(pull(opaque % 5, opaque=opaque) for opaque in range(20)))
        answers = await peer.read_many(20)
        assert {answer.opaque: answer.code for answer in answers} == {
            opaque: {0: ResponseCode.SUCCESS, 4: ResponseCode.SYSTEM_ERROR}.get(
                opaque % 5, ResponseCode.PULL_NOT_FOUND
            )
            for opaque in range(20)
        }
