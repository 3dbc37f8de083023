"""What clients and the machine may do wrong: the code that 4.9.8 has for it, a remark, and nothing
lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.remoting.bodies import ConsumerData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import QueryConsumerOffsetRequest
from rmq.remoting.layout import REQUEST_HEADER_BYTES_MAX
from rmq.testing.storage import MemoryStorage
from tests.broker.broker_frames import (
    GROUP,
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    heartbeat,
    pull,
    send,
    subscription,
)
from tests.broker.broker_kit import live_broker, live_config, part_broker
from tests.remoting.frames import raw_frame

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.broker_kit import PartBroker

KIB: Final = 1024
MIB: Final = 1024 * KIB


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# --- topics and groups ---------------------------------------------------------------------------


async def test_an_unknown_topic_where_none_may_be_made(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"autoCreateTopicEnable": "false"}) as broker:
        for request in (send(topic="unknown"), pull(topic="unknown")):
            answer = await broker.ask(request)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert answer.remark is not None
            assert answer.remark.startswith("topic[unknown] not exist, apply first please!")


async def test_a_topic_named_after_another_cluster_is_a_topic_like_any(tmp_path: Path) -> None:
    settings = {"brokerClusterName": "ours", "autoCreateTopicEnable": "false"}
    async with part_broker(tmp_path, settings) as broker:
        # Tools measure how fast a cluster is by sending to the topic of its name.
        assert (await broker.ask(send(topic="ours"))).code == ResponseCode.SUCCESS
        assert (await broker.ask(send(topic="theirs"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_an_unknown_group_where_none_may_be_made(tmp_path: Path) -> None:
    async with part_broker(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker:
        answer = await broker.ask(pull(group="unknown"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize(
    "topic", ["a b", "../../outside", "/absolute", "a/b", "ä", "t" * 128, "a\x00b", ""]
)
async def test_an_illegal_topic_is_refused_and_makes_no_file(topic: str, tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path / "store")) as broker:
        answer = await broker.ask(send(topic=topic))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("The specified topic")
        assert (await broker.ask(pull(topic=topic))).code == ResponseCode.TOPIC_NOT_EXIST
        assert names_in(tmp_path) == ["store"]
        assert names_in(tmp_path / "store" / "consumequeue") == []


@pytest.mark.parametrize("group", ["../../outside", "a b", "g" * 255])
async def test_an_illegal_group_harms_nobody(group: str, tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path / "store")) as broker:
        await broker.ask(heartbeat("a", consumer(subscription(), group=group)))
        # Its retry topic cannot be stored; whatever is answered, the broker goes on.
        peer = await broker.dial()
        await peer.send(pull(topic=f"%RETRY%{group}", group=group, wait_ms=15_000, opaque=5))
        refused = await broker.ask(send(b"message", topic=f"%RETRY%{group}"))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        await broker.ask(send(b"message"))
        assert bodies_of(await broker.ask(pull())) == [b"message"]
        assert names_in(tmp_path) == ["store"]
        assert names_in(tmp_path / "store" / "consumequeue") == [TOPIC]


async def test_a_heartbeat_without_a_meaning_is_refused(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for body in (b"", b"[]", b"{", b"\xff"):
            answer = await broker.call(RequestCode.HEART_BEAT, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        data = ConsumerData(group_name="", subscription_data_set=())
        await broker.ask(heartbeat("", data))
        assert (await broker.ask(pull())).code == ResponseCode.PULL_NOT_FOUND


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queueOffset", "x"),
        ("queueOffset", ""),
        ("queueOffset", str(2**63)),
        ("queueId", "0x10"),
        ("queueId", str(2**31)),
        ("maxMsgNums", " 5"),
        ("sysFlag", "five"),
    ],
)
async def test_a_number_that_is_none_is_named(field: str, value: str, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            field: value,
        }
        answer = await broker.ask(frame(RequestCode.PULL_MESSAGE, extra=fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert field in answer.remark


# --- sizes ---------------------------------------------------------------------------------------


async def test_a_body_above_the_limit_is_refused(tmp_path: Path) -> None:
    settings = {"maxMessageSize": str(64 * KIB)}
    async with live_broker(live_config(tmp_path, settings)) as broker:
        at_the_limit = await broker.ask(send(bytes(64 * KIB)))
        assert at_the_limit.code == ResponseCode.SUCCESS
        above = await broker.ask(send(bytes(64 * KIB + 1)))
        assert above.code == ResponseCode.MESSAGE_ILLEGAL
        assert above.remark
        assert [len(body) for body in bodies_of(await broker.ask(pull()))] == [64 * KIB]


async def test_a_body_of_4_mib_and_a_byte_is_refused_by_default(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(16 * MIB)}
    async with live_broker(live_config(tmp_path, settings)) as broker:
        assert (await broker.ask(send(bytes(4 * MIB)))).code == ResponseCode.SUCCESS
        assert (await broker.ask(send(bytes(4 * MIB + 1)))).code == ResponseCode.MESSAGE_ILLEGAL
        (body,) = bodies_of(await broker.ask(pull()))
        assert len(body) == 4 * MIB


async def test_a_frame_above_16_mib_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        good, bad = await broker.dial(), await broker.dial()
        await bad.send((16 * MIB + 1).to_bytes(4, "big") + b"\0" * 64)
        assert await bad.read_to_end() == []
        assert (await good.request(send(b"message"))).code == ResponseCode.SUCCESS


async def test_a_header_above_its_limit_ends_its_connection_before_it_has_come(
    tmp_path: Path,
) -> None:
    # As 310 with 7 MB of properties would have.
    async with live_broker(live_config(tmp_path)) as broker:
        good, bad = await broker.dial(), await broker.dial()
        await bad.send(raw_frame(b"{" * (REQUEST_HEADER_BYTES_MAX + 1))[:64])
        assert await bad.read_to_end() == []
        assert (await good.request(send(b"message"))).code == ResponseCode.SUCCESS


async def test_properties_above_the_limit_are_refused(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.ask(send(properties={"KEYS": "k" * 32_767}))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.records() == []


# --- connections ---------------------------------------------------------------------------------


async def test_a_consumer_that_vanishes_mid_pull_leaves_nothing(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        for _ in range(20):
            await broker.ask(send(bytes(10 * KIB)))
        for _ in range(5):
            peer = await broker.dial()
            # A held pull, one whose answer is not read, and half of one.
            await peer.send(pull(1, 0, wait_ms=60_000), pull(0, 0), pull(0, 0)[:20])
            await broker.wait_held(1)
            await peer.aclose()
            while len(broker.broker.pulls.holds):
                await wait_all_tasks_blocked(0.001)
        statistics = broker.broker.server.statistics()
        while broker.broker.server.channels:
            await wait_all_tasks_blocked(0.001)
        assert [group.unanswered for group in statistics.groups] == [0] * len(statistics.groups)
        assert not any(
            queue.is_watched for queue in broker.broker.store.queues if (queue.topic == TOPIC)
        )
        assert (await broker.ask(pull(0, 0))).code == ResponseCode.SUCCESS


# --- clocks --------------------------------------------------------------------------------------


async def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path, mock_clock: MockClock) -> None:
    async with part_broker(tmp_path) as broker:
        member = await broker.join("a", consumer(subscription()))
        waiting = broker.attach("10.0.0.8:1")
        await broker.hold(waiting, pull(1, wait_ms=15_000))
        stored: list[bytes] = []
        for change_ms in (0, 5_000, -3_600_000, 1_000, -1):
            broker.clock.ms += change_ms
            body = b"%d" % broker.clock.ms
            answer = await broker.ask(send(body))
            assert answer.code == ResponseCode.SUCCESS
            stored.append(body)
        assert bodies_of(await broker.ask(pull())) == stored
        offsets = [record.queue_offset for record in broker.records()]
        assert offsets == [0, 1, 2, 3, 4]
        # Who is connected and who waits is a matter of the other clock.
        await broker.pass_time(10)
        assert broker.clients.consumer_group(GROUP) is not None
        assert await member.ping() == []
        await broker.pass_time(10)
        assert (await waiting.read()).code == ResponseCode.PULL_NOT_FOUND


# --- disks ---------------------------------------------------------------------------------------


async def codes_of_sends(broker: PartBroker, count: int) -> list[int]:
    return [(await broker.ask(send(bytes(8 * KIB)))).code for _ in range(count)]


async def test_a_disk_above_its_limit_takes_no_messages_until_there_is_room(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    storage = MemoryStorage()
    settings = {
        "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.85",
        "rocketmq.broker.diskSpaceWarningLevelRatio": "0.9",
    }
    async with part_broker(tmp_path, settings, storage=storage) as broker:
        assert await codes_of_sends(broker, 3) == [ResponseCode.SUCCESS] * 3
        storage.reported_used_ratio = 0.91
        await broker.pass_time(10)
        answer = await broker.ask(send(b"message"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark is not None
        assert "disk" in answer.remark
        # Consumers go on reading and committing.
        answer = await broker.ask(pull(commit=2))
        assert len(bodies_of(answer)) == 3
        header = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        assert ext(await broker.call(RequestCode.QUERY_CONSUMER_OFFSET, header)) == {"offset": "2"}
        storage.reported_used_ratio = 0.5
        await broker.pass_time(10)
        assert await codes_of_sends(broker, 1) == [ResponseCode.SUCCESS]
        assert len(broker.records()) == 4


async def test_a_disk_that_fills_up_during_sends_loses_nothing_acknowledged(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    storage = MemoryStorage(capacity_bytes=2 * MIB)
    async with part_broker(tmp_path, storage=storage) as broker:
        acknowledged = 0
        refused: set[int] = set()
        for _ in range(300):
            answer = await broker.ask(send(b"%d" % acknowledged + bytes(8 * KIB)))
            if answer.code == ResponseCode.SUCCESS:
                assert int(ext(answer)["queueOffset"]) == acknowledged
                acknowledged += 1
            else:
                assert answer.remark
                refused.add(answer.code)
        assert 100 < acknowledged < 300
        assert refused <= {ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE}
        assert len(broker.records()) == acknowledged
        assert storage.writes_without_room() == []
        storage.capacity_bytes = 16 * MIB
        await broker.pass_time(20)
        assert await codes_of_sends(broker, 1) == [ResponseCode.SUCCESS]
        bodies = [record.body.rstrip(b"\0") for record in broker.records()[:acknowledged]]
        assert bodies == [b"%d" % n for n in range(acknowledged)]


async def test_a_topic_that_cannot_be_saved_is_not_made_by_a_send(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.tables.topics_writer.save_now()
        config = tmp_path / "config"
        config.rename(tmp_path / "elsewhere")
        config.write_text("in the way")
        answer = await broker.ask(send(topic="New"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert broker.records("New") == []
        config.unlink()
        assert (await broker.ask(send(topic="New"))).code == ResponseCode.SUCCESS
        with trio.fail_after(5):
            assert bodies_of(await broker.ask(pull(topic="New"))) == [b"body"]
