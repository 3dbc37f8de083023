"""Sends that are refused: every check of RocketMQ 4.9.8 SendMessageProcessor, its code and remark,
and which of two reasons a producer is told.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest

from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import (
    START_MS,
    TOPIC,
    WallClock,
    batch_frame,
    ext,
    send_broker,
    send_frame,
    send_frame_v1,
    send_header,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEE: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
ERROR: Final = ResponseCode.SYSTEM_ERROR
NO_PERMISSION: Final = ResponseCode.NO_PERMISSION

ILLEGAL_NAME: Final = (
    "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
)
TOO_LARGE_ID: Final = (
    "request queueId[4] is illegal, TopicConfig [topicName=TopicA, readQueueNums=4,"
    " writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    " Producer: 10.0.0.9:40000"
)
NO_TOPIC: Final = f"topic[New] not exist, apply first please!{SEE}"


def forbidden(topic: str) -> str:
    return f"Sending message to topic [{topic}] is forbidden."


REFUSALS: Final = [
    pytest.param(send_frame(" "), ERROR, "The specified topic is blank.", id="blank topic"),
    pytest.param(send_frame("a b"), ERROR, ILLEGAL_NAME, id="illegal characters"),
    pytest.param(send_frame("../a"), ERROR, ILLEGAL_NAME, id="a path"),
    pytest.param(
        send_frame("T" * 128),
        ERROR,
        "The specified topic is longer than topic max length.",
        id="long topic",
    ),
    pytest.param(send_frame(queue_id=4), ERROR, TOO_LARGE_ID, id="queue id too large"),
    pytest.param(
        send_frame("New", default_topic="Unknown"),
        ResponseCode.TOPIC_NOT_EXIST,
        NO_TOPIC,
        id="no model for the topic",
    ),
    pytest.param(
        send_frame("New", default_topic=TOPIC),
        ResponseCode.TOPIC_NOT_EXIST,
        NO_TOPIC,
        id="a model that is not inherited",
    ),
    *(
        pytest.param(send_frame(topic), NO_PERMISSION, forbidden(topic), id=topic)
        for topic in (
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
        )
    ),
]


@pytest.mark.parametrize(("sent", "code", "remark"), REFUSALS)
async def test_a_refusal_has_the_code_and_the_remark_of_4_9_8(
    tmp_path: Path, sent: bytes, code: ResponseCode, remark: str
) -> None:
    async with send_broker(tmp_path) as broker:
        broker.change_topic(write_queue_nums=2)
        answer = await broker.send(sent)
        assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
        assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert broker.core.log.written == 0


async def test_old_and_batch_sends_are_checked_alike(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        for sent in (
            send_frame_v1(send_header("a b")),
            batch_frame(b"", "a b"),
            send_frame_v1(send_header(queue_id=4)),
            batch_frame(b"", queue_id=4),
        ):
            assert (await broker.send(sent)).code == ERROR
        assert broker.core.log.written == 0


async def test_a_topic_of_127_characters_is_taken(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame("T" * 127))).code == 0
        assert broker.bodies("T" * 127) == [b"body"]


async def test_topics_of_the_broker_that_clients_may_use_take_sends(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        for topic in ("TBW102", "BenchmarkTest", "DefaultCluster", "broker-a"):
            assert (await broker.send(send_frame(topic))).code == 0
            assert broker.bodies(topic) == [b"body"]


async def test_any_queue_of_a_topic_without_queues_is_refused(tmp_path: Path) -> None:
    # Stored in a queue that nobody reads, the message would be lost.
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame("New", queue_id=-1, queues=0))
        assert answer.code == ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(
            "request queueId[-1] is illegal, TopicConfig [topicName=New"
        )
        assert broker.core.log.written == 0


# --- settings --------------------------------------------------------------------------------


async def test_sends_are_refused_until_the_time_that_is_set(tmp_path: Path) -> None:
    clock = WallClock()
    opening_ms = START_MS + 60_007
    parts = time.localtime(opening_ms // 1000)
    until = f"{time.strftime('%Y-%m-%d %H:%M:%S', parts)},007"
    settings = {"startAcceptSendRequestTimeStamp": str(opening_ms)}
    async with send_broker(tmp_path, settings, clock=clock) as broker:
        peer = broker.attach()
        for sent in (send_frame(), send_frame("a b"), send_frame("New"), batch_frame(b"")):
            answer = await peer.request(sent)
            assert (answer.code, answer.remark) == (
                ERROR,
                f"broker unable to service, until {until}",
            )
            assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        clock.ms = opening_ms - 1
        assert (await peer.request(send_frame())).code == ERROR
        clock.ms = opening_ms
        assert (await peer.request(send_frame())).code == 0
        # Taken once, the short way: a clock that goes back must not close the broker again.
        assert (await peer.request(send_frame())).code == 0
        assert broker.bodies() == [b"body"] * 2


async def test_a_time_that_is_set_while_the_broker_runs_counts(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame())).code == 0
        broker.update(startAcceptSendRequestTimeStamp=str(START_MS + 1000))
        assert (await broker.send(send_frame())).code == ERROR
        broker.update(startAcceptSendRequestTimeStamp="0")
        assert (await broker.send(send_frame())).code == 0


async def test_a_broker_that_is_not_written_refuses_ordered_topics_only(tmp_path: Path) -> None:
    # Others are sent elsewhere by their route, and what is under way is taken.
    async with send_broker(tmp_path) as broker:
        await broker.create_topic("Ordered")
        broker.change_topic("Ordered", order=True)
        assert (await broker.send(send_frame("Ordered"))).code == 0
        broker.update(brokerPermission="4")
        answer = await broker.send(send_frame("Ordered"))
        assert (answer.code, answer.remark) == (
            NO_PERMISSION,
            "the broker[10.0.0.1] sending message is forbidden",
        )
        assert (await broker.send(send_frame())).code == 0
        broker.update(brokerPermission="6")
        assert (await broker.send(send_frame("Ordered"))).code == 0
        assert (len(broker.records("Ordered")), len(broker.records())) == (2, 1)


async def test_a_topic_that_becomes_ordered_is_refused_from_then_on(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"brokerPermission": "4"}) as broker:
        assert (await broker.send(send_frame())).code == 0
        broker.topics.update_order_topics({TOPIC: "broker-a:4"})
        assert (await broker.send(send_frame())).code == NO_PERMISSION


async def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    settings = {"brokerRole": "SLAVE", "brokerId": "1"}
    async with send_broker(tmp_path, settings) as broker:
        for sent in (send_frame(), send_frame(properties=text(DELAY="1")), send_frame("New")):
            answer = await broker.send(sent)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark is not None
            assert answer.remark.startswith("service not available now. It may be caused by")
            assert "this broker is a slave" in answer.remark
        assert broker.core.log.written == 0


# --- which reason is told --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(send_frame("a b", queue_id=99), ERROR, id="the name before the queue"),
        pytest.param(
            send_frame("SELF_TEST_TOPIC", queue_id=99), NO_PERMISSION, id="the ban before the queue"
        ),
        pytest.param(
            send_frame("%RETRY%nobody", queue_id=99, reconsume_times=99),
            ERROR,
            id="the queue before the group",
        ),
        pytest.param(
            send_frame("%RETRY%nobody", properties=text(TRAN_MSG="true")),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            id="the group before the transaction",
        ),
        pytest.param(
            send_frame(properties=text(TRAN_MSG="true", DELAY="x")),
            NO_PERMISSION,
            id="the transaction before the delay",
        ),
        pytest.param(
            send_frame(body=b"x" * 2000, properties=text(DELAY="x")),
            ERROR,
            id="the delay before the size",
        ),
    ],
)
async def test_the_first_reason_counts(tmp_path: Path, sent: bytes, code: ResponseCode) -> None:
    settings = {
        "autoCreateSubscriptionGroup": "false",
        "rejectTransactionMessage": "true",
        "maxMessageSize": "1000",
    }
    async with send_broker(tmp_path, settings) as broker:
        answer = await broker.send(sent)
        assert answer.code == code, answer
        assert broker.core.log.written == 0


@pytest.mark.parametrize(
    "sent_as",
    [
        pytest.param(lambda topic, opaque: send_frame(topic, opaque=opaque), id="short way"),
        pytest.param(
            lambda topic, opaque: send_frame(topic, opaque=opaque, properties=text(DELAY="0")),
            id="with care",
        ),
    ],
)
async def test_a_refused_send_does_not_touch_its_neighbours(
    tmp_path: Path, sent_as: Callable[[str, int], bytes]
) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(sent_as(TOPIC, 1), sent_as("a b", 2), sent_as(TOPIC, 3))
        codes = {answer.opaque: answer.code for answer in await peer.read_many(3)}
        assert codes == {1: 0, 2: ERROR, 3: 0}
        assert len(broker.records()) == 2
