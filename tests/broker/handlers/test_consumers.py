"""Offsets of groups and calls to consumers: requests 43, 45, 222, 223, 307, 308, 309 and 314."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.model.queues import MessageQueue
from rmq.model.record import message_id
from rmq.remoting.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    LanguageCode,
    RequestCode,
    ResponseCode,
    Serialization,
)
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    CloneGroupOffsetRequest,
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    QueryCorrectionOffsetRequest,
    ResetOffsetRequest,
)
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    heartbeat,
    subscription,
)
from tests.broker.broker_kit import STORE_HOST, part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame, Peer


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=queue_id)


def reply(opaque: int, code: int = 0, body: bytes = b"", remark: str | None = None) -> bytes:
    """Return what a consumer answers."""
    head = encode_frame(
        code=code,
        flag=FLAG_RESPONSE,
        opaque=opaque,
        body_length=len(body),
        remark=remark,
        extra={"own": "field"} if remark else None,
    )
    return head + body


async def request_of(peer: Peer) -> Frame:
    """Return the next request of the broker that is not about members of the group."""
    while (asked := await peer.read()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        pass
    assert not asked.flag & FLAG_RESPONSE, asked
    return asked


async def joined(broker: PartBroker, client_id: str = "a") -> Peer:
    return await broker.join(client_id, consumer(subscription()))


# --- 43, 45 --------------------------------------------------------------------------------------


async def test_all_offsets_are_listed(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert await broker.get(
            ConsumerOffsetSerializeWrapper, RequestCode.GET_ALL_CONSUMER_OFFSET
        ) == ConsumerOffsetSerializeWrapper(offset_table={})
        broker.offsets.commit("client", GROUP, TOPIC, 0, ConsumerOffset(5))
        broker.offsets.commit("client", GROUP, TOPIC, 2, ConsumerOffset(7))
        broker.offsets.commit("client", "others", TOPIC, 0, ConsumerOffset(1))
        body = await broker.get(ConsumerOffsetSerializeWrapper, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert body.offset_table == {
            "TopicA@readers": {0: 5, 2: 7},
            "TopicA@others": {0: 1},
        }


async def test_the_progress_of_delay_levels_is_listed(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(RequestCode.GET_ALL_DELAY_OFFSET)
        assert answer.body == b'{"offsetTable":{}}'
        for queue_id in (0, 2):
            broker.put_many(9, topic="SCHEDULE_TOPIC_XXXX", queue_id=queue_id)
        broker.broker.delay.load('{"offsetTable":{1:9,3:7}}')
        body = await broker.get(DelayOffsetSerializeWrapper, RequestCode.GET_ALL_DELAY_OFFSET)
        assert body.offset_table == {1: 9, 3: 7}


# --- 222 INVOKE_BROKER_TO_RESET_OFFSET -----------------------------------------------------------


async def reset(broker: PartBroker, timestamp_ms: int = -1, *, is_force: bool = False) -> Frame:
    return await broker.call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=timestamp_ms, is_force=is_force),
    )


async def test_consumers_are_told_to_go_back_and_the_tool_is_told_where(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for queue_id in range(4):
            broker.put_many(5, queue_id=queue_id)
            broker.offsets.commit("client", GROUP, TOPIC, queue_id, ConsumerOffset(4))
        peer = await joined(broker)
        answer = await reset(broker, START_MS - 1)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        table = {queue(queue_id): 0 for queue_id in range(4)}
        assert ResetOffsetBody.decode(answer.body).offset_table == table
        told = await request_of(peer)
        assert (told.code, told.flag) == (
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            FLAG_ONEWAY,
        )
        assert ext(told)["timestamp"] == str(START_MS - 1)
        assert ResetOffsetBody.decode(told.body).offset_table == table
        # Moving is the consumers' business: they know what they have in hand.
        assert broker.offsets.query(GROUP, TOPIC, 0) == 4


async def test_a_tool_in_cpp_has_rows_sent(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for queue_id in range(4):
            broker.offsets.commit("client", GROUP, TOPIC, queue_id, ConsumerOffset(4))
        peer = await joined(broker)
        header = ResetOffsetRequest(topic=TOPIC, group=GROUP, timestamp=-1, is_force=True)
        await broker.ask(
            encode_frame(
                code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                opaque=1,
                header=header,
                language=LanguageCode.CPP,
            )
        )
        told = await request_of(peer)
        assert told.body.startswith(b'{"offsetTable":[{"brokerName":"broker-a","offset":0,')


async def test_a_group_that_is_not_connected_cannot_be_reset(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for queue_id in range(4):
            broker.offsets.commit("client", GROUP, TOPIC, queue_id, ConsumerOffset(4))
        answer = await reset(broker)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert answer.remark == (
            "Consumer not online, so can not reset offset, Group: readers Topic: TopicA"
            " Timestamp: -1"
        )


async def test_a_group_without_offsets_cannot_be_reset(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await joined(broker)
        answer = await reset(broker)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "THe consumer group <readers> not exist",
        )


# --- 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS ----------------------------------------------------


async def test_consumers_are_asked_how_far_they_are(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peers = {name: await joined(broker, name) for name in "ab"}
        tool = broker.attach("tool")
        await tool.send(
            frame(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                GetConsumerStatusRequest(topic=TOPIC, group=GROUP),
            )
        )
        for number, peer in enumerate(peers.values()):
            asked = await request_of(peer)
            assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            status = GetConsumerStatusBody(message_queue_table={queue(number): number})
            await peer.send(reply(asked.opaque, body=status.encode()))
        answer = await tool.read()
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        body = GetConsumerStatusBody.decode(answer.body)
        assert body.consumer_table == {"a": {queue(0): 0}, "b": {queue(1): 1}}


async def test_a_group_that_is_not_connected_has_no_status(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GetConsumerStatusRequest(topic=TOPIC, group=GROUP),
        )
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "No Any Consumer online in the consumer group: [readers]",
        )


# --- 307 GET_CONSUMER_RUNNING_INFO ---------------------------------------------------------------


def running_info(client_id: str = "a") -> GetConsumerRunningInfoRequest:
    return GetConsumerRunningInfoRequest(
        consumer_group=GROUP, client_id=client_id, jstack_enable=True
    )


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_consumer_is_asked_what_it_does_and_its_answer_handed_back(
    serialization: Serialization, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await joined(broker)
        tool = broker.attach("tool")
        await tool.send(
            frame(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                running_info(),
                serialization=serialization,
                extra={"AccessKey": "key"},
                opaque=77,
            )
        )
        asked = await request_of(peer)
        assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert ext(asked) == {
            "consumerGroup": GROUP,
            "clientId": "a",
            "jstackEnable": "true",
            "AccessKey": "key",
        }
        await peer.send(reply(asked.opaque, 1, b"info", "a remark"))
        answer = await tool.read()
        assert (answer.opaque, answer.serialization) == (77, serialization)
        assert (answer.code, answer.remark, answer.body) == (1, "a remark", b"info")
        assert ext(answer) == {"own": "field"}


async def test_a_consumer_that_is_not_connected_does_nothing(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await joined(broker)
        answer = await broker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info("b"))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The Consumer <readers> <b> not online",
        )


async def test_a_consumer_of_an_old_version_is_not_asked(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach("a")
        await peer.request(heartbeat("a", consumer(subscription()), version=61))
        answer = await broker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.endswith("too low to finish, please upgrade it to V3_1_8_SNAPSHOT")


async def test_a_consumer_that_does_not_answer_has_10_s(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await joined(broker)
        tool = broker.attach("tool")
        await tool.send(frame(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info()))
        await request_of(peer)
        await broker.pass_time(12)
        answer = await tool.read()
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert answer.remark is not None
        assert answer.remark.startswith("consumer <readers> <a> Timeout: ")


async def test_a_consumer_may_vanish_while_it_is_asked(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await joined(broker)
        tool = broker.attach("tool")
        await tool.send(frame(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info()))
        await request_of(peer)
        await peer.aclose()
        answer = await tool.read()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("invoke consumer <readers> <a> Exception: ")


# --- 309 CONSUME_MESSAGE_DIRECTLY ----------------------------------------------------------------


def directly(msg_id: str | None, client_id: str = "a") -> ConsumeMessageDirectlyRequest:
    return ConsumeMessageDirectlyRequest(consumer_group=GROUP, client_id=client_id, msg_id=msg_id)


async def test_a_message_is_given_to_a_consumer(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await joined(broker)
        first, second = broker.put(b"one", b"two")
        tool = broker.attach("tool")
        msg_id = message_id(STORE_HOST, first.end_offset)
        await tool.send(frame(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly(msg_id)))
        asked = await request_of(peer)
        assert asked.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
        assert ext(asked) == {
            "consumerGroup": GROUP,
            "clientId": "a",
            "msgId": msg_id,
            "brokerName": "broker-a",
        }
        assert bodies_of(asked) == [b"two"]
        assert len(asked.body) == second.size
        result = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false}'
        await peer.send(reply(asked.opaque, body=result))
        answer = await tool.read()
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, result)


@pytest.mark.parametrize(
    "msg_id",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("xyz", id="no number"),
        pytest.param("0A" * 15, id="too short"),
        pytest.param(message_id(STORE_HOST, PhysicalOffset(1)), id="inside a message"),
        pytest.param(message_id(STORE_HOST, PhysicalOffset(10**9)), id="behind the last one"),
        pytest.param(STORE_HOST.hex() + "F" * 16, id="negative"),
        pytest.param(STORE_HOST.hex() + "7" + "F" * 15, id="the largest"),
    ],
)
async def test_a_message_that_is_not_there_is_given_to_nobody(
    msg_id: str | None, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await joined(broker)
        broker.put(b"one")
        answer = await broker.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly(msg_id))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert await peer.ping() == []


async def test_a_message_is_given_to_nobody_who_is_not_connected(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"one")
        answer = await broker.call(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            directly(message_id(STORE_HOST, PhysicalOffset(0))),
        )
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The Consumer <readers> <a> not online",
        )


# --- 308 QUERY_CORRECTION_OFFSET -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("left_out", "lowest"),
    [(None, {0: 3, 1: 5}), ("", {0: 3, 1: 5}), ("g", {0: 7, 1: 5}), ("g,h,unknown", {})],
)
async def test_the_lowest_offsets_of_all_groups(
    left_out: str | None, lowest: dict[int, int], tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.offsets.commit("client", "g", TOPIC, 0, ConsumerOffset(3))
        broker.offsets.commit("client", "h", TOPIC, 0, ConsumerOffset(7))
        broker.offsets.commit("client", "h", TOPIC, 1, ConsumerOffset(5))
        broker.offsets.commit("client", "h", "other", 0, ConsumerOffset(1))
        body = await broker.get(
            QueryCorrectionOffsetBody,
            RequestCode.QUERY_CORRECTION_OFFSET,
            QueryCorrectionOffsetRequest(filter_groups=left_out, compare_group="g", topic=TOPIC),
        )
        assert body.correction_offsets == lowest
        assert len(broker.offsets) == 3, "asking must change nothing"


async def test_offsets_of_messages_that_expired_do_not_count(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(600):
            broker.put(bytes(1024))
        broker.expire_log()
        broker.offsets.commit("client", "g", TOPIC, 0, ConsumerOffset(1))
        broker.offsets.commit("client", "h", TOPIC, 0, ConsumerOffset(599))
        body = await broker.get(
            QueryCorrectionOffsetBody,
            RequestCode.QUERY_CORRECTION_OFFSET,
            QueryCorrectionOffsetRequest(compare_group="g", topic=TOPIC),
        )
        assert body.correction_offsets == {0: 599}


# --- 314 CLONE_GROUP_OFFSET ----------------------------------------------------------------------


async def clone(broker: PartBroker, topic: str | None = None, *, offline: bool = False) -> None:
    answer = await broker.call(
        RequestCode.CLONE_GROUP_OFFSET,
        CloneGroupOffsetRequest(src_group=GROUP, dest_group="new", topic=topic, offline=offline),
    )
    assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)


def two_topics(broker: PartBroker) -> None:
    broker.create_topic("other")
    for topic, offset in ((TOPIC, 5), ("other", 7), ("deleted", 9)):
        broker.offsets.commit("client", GROUP, topic, 0, ConsumerOffset(offset))


@pytest.mark.parametrize("topic", [None, "", " "], ids=["none", "empty", "blank"])
async def test_a_group_goes_on_where_another_is(topic: str | None, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        two_topics(broker)
        broker.offsets.commit("client", "new", TOPIC, 3, ConsumerOffset(1))
        await clone(broker, topic)
        assert broker.offsets.offsets("new", TOPIC) == {0: 5}
        assert broker.offsets.offsets("new", "other") == {0: 7}
        # A topic that is not there any more is left out.
        assert broker.offsets.offsets("new", "deleted") == {}


async def test_a_group_goes_on_where_another_is_in_one_topic(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        two_topics(broker)
        await clone(broker, "other")
        assert broker.offsets.topics_of("new") == {"other"}


@pytest.mark.parametrize("offline", [False, True])
async def test_topics_that_a_connected_group_does_not_subscribe_to_are_left_out(
    offline: bool, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        two_topics(broker)
        await joined(broker)
        await clone(broker, offline=offline)
        assert broker.offsets.topics_of("new") == ({TOPIC, "other"} if offline else {TOPIC})


async def test_a_group_without_offsets_gives_none(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await clone(broker)
        await clone(broker, TOPIC)
        await clone(broker, "unknown")
        assert broker.offsets.topics_of("new") == set()
