"""Replies to request messages: pushed to who asked, stored, and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.handlers.replies import PUSH_TIMEOUT_S
from rmq.errors import StorageError
from rmq.files import ConfigFile
from rmq.model.properties import decode_properties
from rmq.model.record import decode_record, unpack_host
from rmq.remoting.bodies import HeartbeatData, ProducerData
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from tests.broker.send_kit import (
    BORN_MS,
    BROKER_IP,
    BROKER_PORT,
    CLUSTER,
    START_MS,
    ext,
    frame,
    pairs,
    send_broker,
    send_header,
    text,
)
from tests.remoting.server_kit import answer
from tests.store.golden import stores as golden
from tests.store.running import Gate

if TYPE_CHECKING:
    from pathlib import Path

    import trio.testing

    from tests.broker.send_kit import SendBroker
    from tests.remoting.server_kit import Frame, Peer

REPLY_TOPIC: Final = f"{CLUSTER}_REPLY_TOPIC"
ASKER: Final = "10.0.0.5@4711#1"
PUSH: Final = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
ANSWERED: Final = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def properties(client_id: str | None = ASKER, **more: str) -> str:
    known = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000"}
    if client_id is not None:
        known["REPLY_TO_CLIENT"] = client_id
    return text(**known, **more)


def reply(
    topic: str = REPLY_TOPIC,
    body: bytes = b"the reply",
    *,
    sent: str | None = None,
    queue_id: int = 0,
    sys_flag: int = 0,
    flag: int = 0,
    unit_mode: bool = False,
    default_topic: str = "TBW102",
    opaque: int = 1,
    oneway: bool = False,
    is_old: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """Return a reply as a stock client sends it."""
    header = send_header(
        topic,
        queue_id=queue_id,
        properties=properties() if sent is None else sent,
        sys_flag=sys_flag,
        flag=flag,
        unit_mode=unit_mode,
        default_topic=default_topic,
    )
    code = RequestCode.SEND_REPLY_MESSAGE if is_old else RequestCode.SEND_REPLY_MESSAGE_V2
    return frame(
        code,
        header.to_v1() if is_old else header,
        body,
        opaque=opaque,
        oneway=oneway,
        serialization=serialization,
    )


async def join(broker: SendBroker, client_id: str = ASKER) -> Peer:
    """Connect the client that asked."""
    peer = broker.attach(client_id)
    body = HeartbeatData(
        client_id=client_id, producer_data_set=(ProducerData(group_name="askers"),)
    ).encode()
    beat = encode_frame(code=RequestCode.HEART_BEAT, opaque=1, body_length=len(body))
    assert (await peer.request(beat + body)).code == 0
    return peer


async def read_push(peer: Peer, *, code: int = ResponseCode.SUCCESS) -> Frame:
    """Take what is pushed to a client, and confirm it."""
    pushed = await peer.read()
    assert pushed.code == PUSH
    await peer.send(answer(pushed.opaque, code=code))
    return pushed


# --- pushing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_old", [False, True], ids=["325", "324"])
async def test_a_reply_reaches_who_asked(tmp_path: Path, is_old: bool) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach("10.0.0.6:41000")
        await sender.send(reply(sys_flag=0x301, flag=7, is_old=is_old))
        pushed = await read_push(asker)
        assert pushed.flag == 0
        assert pushed.body == b"the reply"
        fields = ext(pushed)
        assert decode_properties(fields.pop("properties").encode()) == {
            "MSG_TYPE": "reply",
            "CORRELATION_ID": "c-1",
            "TTL": "3000",
            "REPLY_TO_CLIENT": ASKER,
            "PUSH_REPLY_TIME": str(START_MS),
        }
        assert fields == {
            "producerGroup": "group",
            "topic": REPLY_TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": str(0x301),
            "bornTimestamp": str(BORN_MS),
            "flag": "7",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "bornHost": "10.0.0.6:41000",
            "storeHost": f"{BROKER_IP}:{BROKER_PORT}",
            "storeTimestamp": str(START_MS),
        }
        assert (await sender.read()).code == 0


async def test_the_sender_is_answered_when_the_reply_has_arrived(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(opaque=8))
        pushed = await asker.read()
        assert await sender.ping() == []
        assert broker.records(REPLY_TOPIC) == []
        await asker.send(answer(pushed.opaque))
        told = await sender.read()
        assert (told.code, told.remark, told.opaque) == (0, None, 8)
        record = broker.record(REPLY_TOPIC)
        assert ext(told) == ANSWERED | {
            "msgId": record.message_id,
            "queueId": "0",
            "queueOffset": "0",
        }


async def test_a_reply_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    sent = properties(KEYS="k", WAIT="true", own="ü") + "\x02"
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach("10.0.0.6:41000")
        await sender.send(reply(sent=sent, sys_flag=0x301, flag=7))
        await read_push(asker)
        await sender.read()
        record = broker.record(REPLY_TOPIC)
        assert record.properties_bytes == sent.encode()
        assert (record.body, record.flag, record.sys_flag) == (b"the reply", 7, 0x301)
        assert (record.born_ms, unpack_host(record.born_host)) == (BORN_MS, ("10.0.0.6", 41000))


async def test_a_stored_reply_is_like_the_golden_one(tmp_path: Path) -> None:
    records = [decode_record(each.data) for each in golden.records(golden.CLEAN_MASTER)]
    expected = next(each for each in records if each.topic == "GoldenCluster_REPLY_TOPIC")
    settings = {"brokerClusterName": "GoldenCluster"}
    async with send_broker(tmp_path, settings) as broker:
        asker = await join(broker, expected.properties["REPLY_TO_CLIENT"])
        sender = broker.attach()
        await sender.send(reply(expected.topic, sent=expected.properties_bytes.decode()))
        await read_push(asker)
        await sender.read()
        record = broker.record(expected.topic)
        assert record.properties_bytes == expected.properties_bytes
        assert (record.size, record.body_crc) == (expected.size, expected.body_crc)
        assert (record.sys_flag, record.flag) == (expected.sys_flag, expected.flag)


async def test_replies_need_not_be_stored(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"storeReplyMessageEnable": "false"}) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(asker)
        told = await sender.read()
        assert told.code == 0
        assert ext(told) == ANSWERED | {"msgId": "0", "queueId": "0", "queueOffset": "0"}
        assert broker.records(REPLY_TOPIC) == []
        broker.update(storeReplyMessageEnable="true")
        await sender.send(reply(opaque=2))
        await read_push(asker)
        assert len(ext(await sender.read())["msgId"]) == 32


async def test_a_slave_pushes_replies_and_stores_none(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1"}) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(asker)
        assert ext(await sender.read())["msgId"] == "0"
        assert broker.records(REPLY_TOPIC) == []


async def test_a_reply_that_cannot_be_stored_has_arrived_all_the_same(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        broker.core.set_disk_full(True)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(asker)
        told = await sender.read()
        assert (told.code, ext(told)["msgId"]) == (0, "0")


async def test_the_broker_may_choose_the_queue(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(queue_id=-1))
        assert ext(await read_push(asker))["queueId"] == "-1"
        assert ext(await sender.read())["queueId"] == "0"


async def test_a_reply_in_the_binary_serialization_is_answered_in_it(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(serialization=Serialization.ROCKETMQ))
        await read_push(asker)
        told = await sender.read()
        assert (told.serialization, told.code) == (Serialization.ROCKETMQ, 0)
        assert len(ext(told)["msgId"]) == 32


async def test_a_one_way_reply_is_pushed_and_not_answered(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(oneway=True))
        await read_push(asker)
        await broker.settle()
        assert await sender.ping() == []
        assert broker.bodies(REPLY_TOPIC) == [b"the reply"]


async def test_an_empty_reply_is_one_too(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(body=b""))
        assert (await read_push(asker)).body == b""
        assert (await sender.read()).code == 0


async def test_the_newest_connection_of_who_asked_gets_the_reply(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        old = await join(broker)
        new = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(new)
        assert await old.ping() == []


async def test_stored_replies_are_counted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(asker)
        await sender.read()
        assert broker.broker.stats.view("TOPIC_PUT_NUMS", REPLY_TOPIC) is not None
        assert broker.broker.stats.store.put_count == 1


# --- what goes wrong on the way --------------------------------------------------------------


async def failed(broker: SendBroker, sent: str | None = None) -> Frame:
    told = await broker.send(reply(sent=sent))
    assert told.code == ResponseCode.SYSTEM_ERROR
    # It is stored all the same, and the sender is told where.
    assert ext(told)["msgId"] == broker.record(REPLY_TOPIC).message_id
    return told


async def test_who_asked_must_be_named(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        told = await failed(broker, properties(None))
        assert told.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_who_asked_must_be_connected(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await join(broker, "somebody else")
        told = await failed(broker)
        assert told.remark == f"push reply message fail, channel of <{ASKER}> not found."


async def test_a_failure_without_storing_names_no_message(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"storeReplyMessageEnable": "false"}) as broker:
        told = await broker.send(reply())
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert ext(told) == ANSWERED


async def test_who_asked_may_refuse(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await read_push(asker, code=ResponseCode.SYSTEM_ERROR)
        told = await sender.read()
        assert (told.code, told.remark) == (1, f"push reply message to {ASKER}fail.")


async def test_who_asked_may_go_away(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await asker.read()
        await asker.aclose()
        told = await sender.read()
        assert (told.code, told.remark) == (1, f"push reply message to {ASKER}fail.")
        assert broker.bodies(REPLY_TOPIC) == [b"the reply"]


async def test_who_asked_may_say_nothing(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        await asker.read()
        mock_clock.jump(PUSH_TIMEOUT_S - 1)
        await broker.settle()
        assert await sender.ping() == []
        mock_clock.jump(2)
        told = await sender.read()
        assert (told.code, told.remark) == (1, f"push reply message to {ASKER}fail.")


async def test_who_asked_may_have_too_much_to_read_already(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        asker.channel.config = type(asker.channel.config)(calls_max=1)
        first, second = broker.attach(), broker.attach()
        await first.send(reply())
        pushed = await asker.read()
        told = await second.request(reply())
        assert (told.code, told.remark) == (1, f"push reply message to {ASKER}fail.")
        await asker.send(answer(pushed.opaque))
        assert (await first.read()).code == 0


async def test_the_sender_may_go_away(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply())
        pushed = await asker.read()
        await sender.aclose()
        await broker.settle()
        await asker.send(answer(pushed.opaque))
        assert await asker.ping() == []
        assert broker.bodies(REPLY_TOPIC) == [b"the reply"]


# --- the disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["true", "false"])
async def test_the_sender_waits_for_the_disk_where_sends_do(tmp_path: Path, wait: str) -> None:
    async with send_broker(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as broker:
        asker = await join(broker)
        gate = Gate(broker.storage)
        gate.shut()
        sender = broker.attach()
        await sender.send(reply(sent=properties(WAIT=wait)))
        await read_push(asker)
        if wait == "true":
            await gate.wait_arrival()
            assert await sender.ping() == []
            gate.open()
        assert (await sender.read()).code == 0
        gate.open()


# --- checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        pytest.param(
            "bad topic",
            ResponseCode.SYSTEM_ERROR,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
            id="illegal name",
        ),
        pytest.param(
            "SCHEDULE_TOPIC_XXXX",
            ResponseCode.NO_PERMISSION,
            "Sending message to topic [SCHEDULE_TOPIC_XXXX] is forbidden.",
            id="a topic of the broker",
        ),
    ],
)
async def test_a_reply_goes_to_a_topic_that_may_be_sent_to(
    tmp_path: Path, topic: str, code: int, remark: str
) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        told = await broker.send(reply(topic))
        assert (told.code, told.remark) == (code, remark)
        assert ext(told) == ANSWERED
        assert await asker.ping() == []


async def test_a_reply_goes_to_a_queue_that_is_there(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        told = await broker.send(reply(queue_id=1))
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert told.remark == (
            f"request queueId[1] is illegal, TopicConfig [topicName={REPLY_TOPIC},"
            " readQueueNums=1, writeQueueNums=1, perm=RW-, topicFilterType=SINGLE_TAG,"
            " topicSysFlag=0, order=false] Producer: 10.0.0.9:40000"
        )
        assert broker.records(REPLY_TOPIC) == []


async def test_replies_are_refused_until_the_broker_takes_messages(tmp_path: Path) -> None:
    settings = {"startAcceptSendRequestTimeStamp": str(START_MS + 1)}
    async with send_broker(tmp_path, settings) as broker:
        told = await broker.send(reply())
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert (told.remark or "").startswith("broker unable to service, until 2023-11-1")
        broker.clock.ms += 1
        told = await broker.send(reply())
        assert "not found" in (told.remark or "")


async def test_a_broker_that_may_not_be_written_to_refuses_replies_to_ordered_topics(
    tmp_path: Path,
) -> None:
    async with send_broker(tmp_path, {"brokerPermission": "4"}) as broker:
        broker.change_topic(REPLY_TOPIC, order=True)
        told = await broker.send(reply())
        assert (told.code, told.remark) == (
            ResponseCode.NO_PERMISSION,
            f"the broker[{BROKER_IP}] sending message is forbidden",
        )


@pytest.mark.parametrize(
    ("topic", "unit_mode", "sys_flag"),
    [("NewReplies", False, 0), ("NewReplies", True, 1), ("%RETRY%group", True, 2)],
)
async def test_a_topic_that_is_missing_is_created_first(
    tmp_path: Path, topic: str, unit_mode: bool, sys_flag: int
) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply(topic, unit_mode=unit_mode))
        assert await asker.ping() == []
        broker.start_creation()
        await broker.settle_topics()
        assert ext(await read_push(asker))["topic"] == topic
        assert (await sender.read()).code == 0
        assert broker.topic(topic).topic_sys_flag == sys_flag
        assert pairs(broker.record(topic))["MSG_TYPE"] == "reply"


async def test_a_retry_topic_is_created_also_without_a_model(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach()
        await sender.send(reply("%RETRY%group", default_topic="NoSuchTopic"))
        await broker.settle_topics()
        await read_push(asker)
        assert (await sender.read()).code == 0
        assert broker.topic("%RETRY%group").write_queue_nums == 1


async def test_a_topic_that_cannot_be_created_is_told_of(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        told = await broker.send(reply("NewReplies", default_topic="NoSuchTopic"))
        assert told.code == ResponseCode.TOPIC_NOT_EXIST
        assert (told.remark or "").startswith("topic[NewReplies] not exist, apply first please!")
        assert ext(told) == ANSWERED
        assert await asker.ping() == []


async def test_a_topic_that_cannot_be_saved_takes_no_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: ConfigFile, _text: str) -> None:
        raise StorageError("write", file.path.name, "No space left on device")

    async with send_broker(tmp_path) as broker:
        monkeypatch.setattr(ConfigFile, "write", refuse)
        told = await broker.send(reply("NewReplies"))
        assert (told.code, told.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "cannot write topics.json: No space left on device",
        )
        assert broker.records("NewReplies") == []


async def test_a_sender_without_an_address_has_that_of_the_machine(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach("in memory")
        await sender.send(reply())
        assert ext(await read_push(asker))["bornHost"] == "127.0.0.1:0"
        await sender.read()


@pytest.mark.parametrize(
    ("peer", "text_pushed"),
    [("[2001:db8::7]:41000", "2001:db8::7:41000"), ("[::ffff:10.0.0.6]:41000", "10.0.0.6:41000")],
)
async def test_a_sender_may_have_an_address_of_the_new_kind(
    tmp_path: Path, peer: str, text_pushed: str
) -> None:
    async with send_broker(tmp_path) as broker:
        asker = await join(broker)
        sender = broker.attach(peer)
        await sender.send(reply())
        assert ext(await read_push(asker))["bornHost"] == text_pushed
        assert (await sender.read()).code == 0
