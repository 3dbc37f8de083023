"""Sends that are taken: what is stored of them, and what the producer is told."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from rmq.model import flags
from rmq.model.record import pack_host, parse_message_id, unpack_host
from rmq.remoting.bodies import TopicFilterType
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from tests.broker.send_kit import (
    BORN_MS,
    START_MS,
    STORE_HOST,
    TOPIC,
    ext,
    frame,
    pairs,
    send_broker,
    send_frame,
    send_frame_v1,
    send_header,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_send_is_answered_with_where_the_message_is(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(body=b"first", queue_id=2))
        answer = await broker.send(send_frame(body=b"second", queue_id=2, opaque=7))
        assert (answer.code, answer.opaque, answer.remark, answer.body) == (0, 7, None, b"")
        first, second = broker.records(queue_id=2)
        assert ext(answer) == {
            "msgId": second.message_id,
            "queueId": "2",
            "queueOffset": "1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        host, physical_offset = parse_message_id(ext(answer)["msgId"])
        assert (host, physical_offset) == (STORE_HOST, first.size)


async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(
            send_frame(
                body=b"\x00\xff body",
                queue_id=3,
                flag=-5,
                sys_flag=0x301,
                reconsume_times=2,
                properties=text(KEYS="k1 k2", TAGS="TagA", WAIT="true", own="ü"),
            )
        )
        record = broker.record(queue_id=3)
        assert (record.topic, record.queue_id, record.queue_offset) == (TOPIC, 3, 0)
        assert record.body == b"\x00\xff body"
        assert (record.flag, record.sys_flag, record.reconsume_times) == (-5, 0x301, 2)
        assert (record.born_ms, unpack_host(record.born_host)) == (BORN_MS, ("10.0.0.9", 40000))
        assert (record.store_ms, record.store_host) == (START_MS, STORE_HOST)
        assert pairs(record) == {
            "KEYS": "k1 k2",
            "TAGS": "TagA",
            "own": "ü",
            "CLUSTER": "DefaultCluster",
        }


async def test_a_send_under_the_old_names_is_stored_alike(tmp_path: Path) -> None:
    header = send_header(
        queue_id=1, flag=3, sys_flag=1, reconsume_times=4, properties=text(TAGS="t", WAIT="true")
    )
    async with send_broker(tmp_path) as broker:
        old = await broker.send(send_frame_v1(header))
        new = await broker.send(frame(RequestCode.SEND_MESSAGE_V2, header, b"body"))
        first, second = broker.records(queue_id=1)
        assert (ext(old)["queueOffset"], ext(new)["queueOffset"]) == ("0", "1")
        assert ext(old).keys() == ext(new).keys()
        assert (first.body, first.flag, first.sys_flag, first.reconsume_times) == (b"body", 3, 1, 4)
        assert first.properties_bytes == second.properties_bytes
        assert (first.born_ms, first.born_host) == (second.born_ms, second.born_host)


async def test_a_send_in_the_binary_serialization_is_answered_in_it(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        answer = await peer.request(
            send_frame(properties=text(KEYS="k", WAIT="true"), serialization=Serialization.ROCKETMQ)
        )
        record = broker.record()
        assert (answer.serialization, answer.code) == (Serialization.ROCKETMQ, 0)
        assert ext(answer) == {
            "msgId": record.message_id,
            "queueId": "0",
            "queueOffset": "0",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert pairs(record) == {"KEYS": "k", "CLUSTER": "DefaultCluster"}
        refused = await peer.request(
            send_frame("bad topic", serialization=Serialization.ROCKETMQ, opaque=2)
        )
        assert (refused.serialization, refused.code) == (
            Serialization.ROCKETMQ,
            ResponseCode.SYSTEM_ERROR,
        )


async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(
            send_frame(body=b"plain", oneway=True),
            send_frame(body=b"any queue", queue_id=-1, oneway=True),
            send_frame("bad topic", oneway=True),
            send_frame("New", body=b"new", oneway=True),
        )
        assert await peer.ping() == []
        await broker.settle_topics()
        assert await peer.ping() == []
        assert broker.bodies("New") == [b"new"]
        stored = [body for queue_id in range(4) for body in broker.bodies(queue_id=queue_id)]
        assert sorted(stored) == [b"any queue", b"plain"]
        assert broker.served.group("send").unanswered == 0


async def test_sends_of_one_read_are_answered_each(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.make_queues()
        peer = broker.attach()
        frames = [
            send_frame(body=b"%d" % number, queue_id=number % 4, opaque=number)
            for number in range(100)
        ]
        await peer.send(*frames)
        answers = await peer.read_many(100)
        assert [answer.opaque for answer in answers] == list(range(100))
        assert [ext(answer)["queueOffset"] for answer in answers] == [
            str(number // 4) for number in range(100)
        ]
        for queue_id in range(4):
            expected = [b"%d" % number for number in range(queue_id, 100, 4)]
            assert broker.bodies(queue_id=queue_id) == expected


async def test_order_is_kept_when_some_sends_of_a_read_need_more_care(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(
            *(
                # Every third is looked at closely, because its properties might ask for a delay.
                send_frame(
                    body=b"%d" % number,
                    opaque=number,
                    properties=text(DELAY="0") if number % 3 == 0 else None,
                )
                for number in range(30)
            )
        )
        answers = await peer.read_many(30)
        assert sorted(answer.opaque for answer in answers) == list(range(30))
        assert broker.bodies() == [b"%d" % number for number in range(30)]
        places = {answer.opaque: int(ext(answer)["queueOffset"]) for answer in answers}
        assert places == {number: number for number in range(30)}


async def test_a_queue_below_zero_means_any_queue_that_is_written(tmp_path: Path) -> None:
    random.seed(1)
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        chosen = set()
        for number in range(60):
            answer = await peer.request(send_frame(queue_id=-1 - number, opaque=number))
            chosen.add(ext(answer)["queueId"])
        assert chosen == {"0", "1", "2", "3"}
        assert sum(len(broker.records(queue_id=queue_id)) for queue_id in range(4)) == 60


async def test_queues_that_are_only_read_can_be_sent_to_by_name(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.change_topic(write_queue_nums=1)
        answer = await broker.send(send_frame(queue_id=3))
        assert (answer.code, ext(answer)["queueId"]) == (0, "3")
        peer = broker.attach()
        for number in range(10):
            answer = await peer.request(send_frame(queue_id=-1, opaque=number))
            assert ext(answer)["queueId"] == "0"


async def test_a_body_may_be_missing(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame(body=b""))
        assert answer.code == 0
        assert broker.bodies() == [b""]


async def test_messages_of_a_topic_with_several_tags_say_so(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.change_topic(topic_filter_type=TopicFilterType.MULTI_TAG)
        await broker.send(send_frame(body=b"short way"))
        await broker.send(send_frame(body=b"with care", properties=text(DELAY="0")))
        assert [record.sys_flag for record in broker.records()] == [flags.MULTI_TAGS] * 2


async def test_a_topic_without_write_permission_takes_sends_all_the_same(tmp_path: Path) -> None:
    # Producers go by the route; RocketMQ 4.9.8 looks at the broker's permission only.
    async with send_broker(tmp_path) as broker:
        broker.change_topic(perm=4)
        assert (await broker.send(send_frame())).code == 0


@pytest.mark.parametrize(
    ("peer", "born_host"),
    [
        pytest.param("10.0.0.9:40000", pack_host("10.0.0.9", 40000), id="IPv4"),
        pytest.param("[fd00::9]:40000", pack_host("fd00::9", 40000), id="IPv6"),
        pytest.param("[fe80::9%eth0]:40000", pack_host("fe80::9", 40000), id="of an interface"),
        pytest.param("[::ffff:10.0.0.9]:40000", pack_host("10.0.0.9", 40000), id="IPv4 as IPv6"),
        pytest.param("peer", pack_host("127.0.0.1", 0), id="no address"),
    ],
)
async def test_where_a_message_comes_from_is_stored(
    tmp_path: Path, peer: str, born_host: bytes
) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.attach(peer).request(send_frame())
        record = broker.record()
        assert record.born_host == born_host
        assert bool(record.sys_flag & flags.BORN_HOST_V6) is (len(born_host) == 20)


async def test_a_sender_that_claims_to_be_of_ipv6_is_stored_as_it_is(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(sys_flag=flags.BORN_HOST_V6 | flags.STORE_HOST_V6 | 1))
        assert broker.record().sys_flag == 1


async def test_settings_take_effect_in_the_next_answer(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.update(regionId="Elsewhere", traceOn="false")
        answer = await broker.send(send_frame())
        assert (ext(answer)["MSG_REGION"], ext(answer)["TRACE_ON"]) == ("Elsewhere", "false")
        refused = await broker.send(send_frame("bad topic"))
        assert ext(refused) == {"MSG_REGION": "Elsewhere", "TRACE_ON": "false"}


async def test_what_is_stored_is_counted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(*(send_frame(queue_id=number % 2, opaque=number) for number in range(6)))
        await peer.read_many(6)
        await broker.send(send_frame(queue_id=99))
        assert broker.broker.stats.store.put_count == 6
        assert broker.broker.stats.store.put_size == broker.core.log.written
        stats = broker.broker.stats
        stats.sample(START_MS)
        view = stats.view("TOPIC_PUT_NUMS", TOPIC)
        assert view is not None
        assert view.stats_minute is not None
        assert (view.stats_minute.sum, stats.view("TOPIC_PUT_NUMS", "Other")) == (6, None)
