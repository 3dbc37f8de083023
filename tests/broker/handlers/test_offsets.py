"""Offsets of groups and of queues: requests 14, 15, 29, 30, 31 and 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.handlers.offsets import OffsetHandlers
from rmq.broker.tables.offsets_body import SharedOffsets
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    CloneGroupOffsetRequest,
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
    TOPIC,
    consumer,
    ext,
    frame,
    subscription,
)
from tests.broker.broker_kit import part_broker
from tests.remoting.server_kit import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
KIB = 1024


async def query(broker: PartBroker, queue_id: int = 0, topic: str = TOPIC) -> Frame:
    header = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=topic, queue_id=queue_id)
    return await broker.call(RequestCode.QUERY_CONSUMER_OFFSET, header)


def update_header(
    offset: int, queue_id: int = 0, topic: str = TOPIC, group: str = GROUP
) -> UpdateConsumerOffsetRequest:
    return UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
    )


async def update(broker: PartBroker, offset: int, queue_id: int = 0) -> Frame:
    return await broker.call(RequestCode.UPDATE_CONSUMER_OFFSET, update_header(offset, queue_id))


# --- where groups stand --------------------------------------------------------------------------


async def test_an_offset_that_was_stored_is_found(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        stored = await update(broker, 7, queue_id=2)
        assert (stored.code, stored.remark, stored.fields) == (ResponseCode.SUCCESS, None, {})
        found = await query(broker, 2)
        assert (found.code, found.remark, found.fields) == (
            ResponseCode.SUCCESS,
            None,
            {"offset": "7"},
        )


async def test_offset_0_is_an_offset(tmp_path: Path) -> None:
    async with part_broker(tmp_path, memory_bytes=10 * KIB) as broker:
        for _ in range(100):
            broker.put(bytes(KIB))
        assert (await query(broker)).code == ResponseCode.QUERY_NOT_FOUND
        await update(broker, 0)
        assert ext(await query(broker)) == {"offset": "0"}


@pytest.mark.parametrize("messages", [0, 1, 50])
async def test_a_new_group_begins_at_the_start_of_a_young_queue(
    messages: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        if messages:
            broker.put_many(messages)
        assert ext(await query(broker)) == {"offset": "0"}


async def test_a_queue_is_young_while_its_first_message_is_in_memory(tmp_path: Path) -> None:
    # 40 percent of 100 KiB are taken to be in memory.
    async with part_broker(tmp_path, memory_bytes=100 * KIB) as broker:
        while broker.core.log.readable <= 39 * KIB:
            broker.put(bytes(KIB))
        assert ext(await query(broker)) == {"offset": "0"}
        while broker.core.log.readable <= 40 * KIB:
            broker.put(bytes(KIB))
        answer = await query(broker)
        assert (answer.code, answer.remark, answer.fields) == (
            ResponseCode.QUERY_NOT_FOUND,
            NOT_FOUND,
            {},
        )


async def test_other_queues_make_a_queue_old(tmp_path: Path) -> None:
    async with part_broker(tmp_path, memory_bytes=100 * KIB) as broker:
        broker.put(b"first")
        for _ in range(100):
            broker.put(bytes(KIB), queue_id=1)
        assert (await query(broker)).code == ResponseCode.QUERY_NOT_FOUND
        # One that has no message has no first message either.
        assert ext(await query(broker, 2)) == {"offset": "0"}


async def test_a_queue_whose_first_messages_expired_is_not_young(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(600):
            broker.put(bytes(KIB))
        broker.expire_log()
        assert (await query(broker)).code == ResponseCode.QUERY_NOT_FOUND


async def test_an_unknown_topic_looks_young(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert ext(await query(broker, topic="unknown")) == {"offset": "0"}
        assert broker.topics.get("unknown") is None
        assert broker.core.queues.get("unknown", 0) is None


async def test_a_smaller_offset_is_stored(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await update(broker, 7)
        await update(broker, 3)
        assert ext(await query(broker)) == {"offset": "3"}


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
async def test_a_negative_offset_is_refused_and_the_stored_one_stays(
    offset: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        await update(broker, 7)
        answer = await update(broker, offset)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"offset {offset} of group readers is negative"
        assert ext(await query(broker)) == {"offset": "7"}


async def test_the_largest_offset_is_stored(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await update(broker, 2**63 - 1)
        assert ext(await query(broker)) == {"offset": str(2**63 - 1)}


async def test_one_way_updates_are_stored_and_not_answered(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(
            *(
                frame(
                    RequestCode.UPDATE_CONSUMER_OFFSET, update_header(queue + 5, queue), oneway=True
                )
                for queue in range(4)
            ),
            frame(RequestCode.UPDATE_CONSUMER_OFFSET, update_header(-1), oneway=True),
        )
        assert await peer.ping() == []
        assert broker.offsets.offsets(GROUP, TOPIC) == {0: 5, 1: 6, 2: 7, 3: 8}


async def test_offsets_of_groups_and_topics_do_not_mix(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.create_topic("A")
        broker.create_topic("B")
        for number, (topic, group) in enumerate([("A", "g"), ("B", "g"), ("A", "h")]):
            await broker.call(
                RequestCode.UPDATE_CONSUMER_OFFSET, update_header(number, 0, topic, group)
            )
        assert [
            broker.offsets.query(*pair, 0) for pair in (("g", "A"), ("g", "B"), ("h", "A"))
        ] == [
            0,
            1,
            2,
        ]


# --- where queues stand --------------------------------------------------------------------------


async def bounds(broker: PartBroker, queue_id: int = 0, topic: str = TOPIC) -> tuple[int, int, int]:
    """Return the first and the last offset of a queue, and when its first message was stored."""
    low = await broker.call(
        RequestCode.GET_MIN_OFFSET, GetMinOffsetRequest(topic=topic, queue_id=queue_id)
    )
    high = await broker.call(
        RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic=topic, queue_id=queue_id)
    )
    earliest = await broker.call(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretimeRequest(topic=topic, queue_id=queue_id),
    )
    assert low.code == high.code == earliest.code == ResponseCode.SUCCESS
    assert low.remark is high.remark is earliest.remark is None
    return (
        int(ext(low)["offset"]),
        int(ext(high)["offset"]),
        int(ext(earliest)["timestamp"]),
    )


@pytest.mark.parametrize(
    ("topic", "queue_id"), [(TOPIC, 0), (TOPIC, 99), (TOPIC, -1), ("unknown", 0)]
)
async def test_a_queue_without_messages_has_no_first_one(
    topic: str, queue_id: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        assert await bounds(broker, queue_id, topic) == (0, 0, -1)


async def test_a_queue_with_messages(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(2)
        broker.clock.ms += 1000
        broker.put_many(3)
        assert await bounds(broker) == (0, 5, START_MS)


async def test_a_queue_whose_first_messages_expired(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(600):
            broker.put(bytes(KIB))
            broker.clock.ms += 1
        broker.expire_log()
        low, high, earliest = await bounds(broker)
        assert 0 < low < high == 600
        assert earliest == START_MS + low


# --- by time -------------------------------------------------------------------------------------


async def search(broker: PartBroker, ms: int, queue_id: int = 0, topic: str = TOPIC) -> int:
    answer = await broker.call(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        SearchOffsetRequest(topic=topic, queue_id=queue_id, timestamp=ms),
    )
    assert answer.code == ResponseCode.SUCCESS
    return int(ext(answer)["offset"])


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [
        pytest.param(-(10**6), 0, id="long before the first"),
        pytest.param(0, 0, id="the first"),
        pytest.param(2, 2, id="one in the middle"),
        pytest.param(2.4, 2, id="nearer to the one before"),
        pytest.param(2.6, 3, id="nearer to the one behind"),
        pytest.param(2.5, 2, id="between two: the one before"),
        pytest.param(4, 4, id="the last"),
        pytest.param(10**6, 4, id="long after the last"),
    ],
)
async def test_the_message_stored_nearest_to_a_time(
    seconds: float, offset: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(5):
            broker.put(b"%d" % number)
            broker.clock.ms += 1000
        assert await search(broker, START_MS + int(seconds * 1000)) == offset


@pytest.mark.parametrize("ms", [-(2**63), -1, 0, 2**63 - 1])
async def test_times_that_cannot_be(ms: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        assert await search(broker, ms) == (2 if ms > START_MS else 0)


@pytest.mark.parametrize(
    ("topic", "queue_id"), [(TOPIC, 0), (TOPIC, 99), (TOPIC, -1), ("unknown", 0)]
)
async def test_a_queue_without_messages_has_none_at_any_time(
    topic: str, queue_id: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        assert await search(broker, START_MS, queue_id, topic) == 0


async def test_a_clock_that_went_back_does_not_break_the_search(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for change_ms in (0, 1000, -5000, 1000, 1000, 10_000):
            broker.clock.ms += change_ms
            broker.put(b"message")
        for ms in range(START_MS - 6000, START_MS + 12_000, 500):
            assert 0 <= await search(broker, ms) < 6


# --- who chose it --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [2, 9], ids=["back", "on"])
async def test_an_offset_of_somebody_who_does_not_consume_is_a_reset(
    offset: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.offsets.commit("client", GROUP, TOPIC, 0, ConsumerOffset(5))
        table = HandlerTable()
        OffsetHandlers(broker.store, broker.offsets, broker.clients).add_to(table)
        async with serving(table) as served:
            answer = await served.attach("mqadmin:1").request(
                frame(RequestCode.UPDATE_CONSUMER_OFFSET, update_header(offset))
            )
        assert answer.code == ResponseCode.SUCCESS
        assert broker.offsets.query(GROUP, TOPIC, 0) == offset
        told = SharedOffsets.decode(broker.offsets.encode())
        assert told.resets.keys() == ({f"{TOPIC}@{GROUP}"} if offset < 5 else set())


async def test_an_offset_of_a_consumer_is_no_reset(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription()))
        for offset in (5, 2):
            await peer.request(frame(RequestCode.UPDATE_CONSUMER_OFFSET, update_header(offset)))
        assert broker.offsets.query(GROUP, TOPIC, 0) == 2
        assert SharedOffsets.decode(broker.offsets.encode()).resets == {}


# --- what is not stored --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "code"),
    [
        ("a b", TOPIC, 0, ResponseCode.SYSTEM_ERROR),
        ("../../x", TOPIC, 0, ResponseCode.SYSTEM_ERROR),
        ("g\x00", TOPIC, 0, ResponseCode.SYSTEM_ERROR),
        ("g" * 10_000, TOPIC, 0, ResponseCode.SYSTEM_ERROR),
        (GROUP, "no-such-topic", 0, ResponseCode.TOPIC_NOT_EXIST),
        (GROUP, "../../x", 0, ResponseCode.TOPIC_NOT_EXIST),
        (GROUP, TOPIC, 1_000_000, ResponseCode.SYSTEM_ERROR),
        (GROUP, TOPIC, -1, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_an_offset_of_what_cannot_be_is_not_stored(
    group: str, topic: str, queue_id: int, code: ResponseCode, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        header = update_header(5, queue_id, topic, group)
        refused = await broker.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert refused.code == code
        assert len(broker.offsets) == 0


async def test_an_offset_goes_on_when_its_topic_is_gone(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert (await update(broker, 5)).code == 0
        broker.topics.delete(TOPIC)
        assert (await update(broker, 6)).code == 0
        assert broker.offsets.query(GROUP, TOPIC, 0) == 6


async def test_offsets_are_not_cloned_to_a_group_whose_name_cannot_be(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await update(broker, 5)
        header = CloneGroupOffsetRequest(src_group=GROUP, dest_group="a b", topic=TOPIC)
        refused = await broker.call(RequestCode.CLONE_GROUP_OFFSET, header)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert broker.offsets.groups_of(TOPIC) == {GROUP}
