"""Statistics of groups as admin tools ask for them, over the wire."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rmq.broker.handlers import statistics
from rmq.broker.handlers.statistics import QUEUES_AT_ONCE
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    SubscriptionGroupConfig,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    GetTopicStatsInfoRequest,
    QueryConsumeTimeSpanRequest,
)
from tests.broker.clients.registry_kit import open_channel, subscription
from tests.broker.handlers.statistics_kit import (
    GROUP,
    SECOND,
    StatisticsBroker,
    queue,
    statistics_broker,
)
from tests.store.store_kit import START_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.remoting.header import Header


# --- one group ----------------------------------------------------------------------------------


async def consume_stats(
    broker: StatisticsBroker, topic: str | None = None, group: str = GROUP
) -> ConsumeStats:
    return await broker.body(
        ConsumeStats,
        RequestCode.GET_CONSUME_STATS,
        GetConsumeStatsRequest(consumer_group=group, topic=topic),
    )


async def test_the_progress_of_a_group_is_shown_by_all_queues_that_can_be_read(
    tmp_path: Path,
) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", read=3, write=1)
        broker.store("orders", 0, 5)
        broker.store("orders", 1, 2)
        broker.offsets.commit("", GROUP, "orders", 0, ConsumerOffset(3))
        stats = await consume_stats(broker)
    assert stats.offset_table == {
        queue(0): OffsetWrapper(
            broker_offset=5, consumer_offset=3, last_timestamp=START_MS + 2 * SECOND
        ),
        queue(1): OffsetWrapper(broker_offset=2),
        queue(2): OffsetWrapper(),
    }


async def test_an_offset_behind_the_end_of_a_queue_has_no_time(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", read=1)
        broker.store("orders", 0, 5)
        broker.offsets.commit("", GROUP, "orders", 0, ConsumerOffset(99))
        stats = await consume_stats(broker)
    assert stats.offset_table == {queue(0): OffsetWrapper(broker_offset=5, consumer_offset=99)}


@pytest.mark.parametrize(
    ("asked", "topics"),
    [
        pytest.param(None, {"orders", "payments"}, id="all"),
        pytest.param("", {"orders", "payments"}, id="empty"),
        pytest.param(" \t", {"orders", "payments"}, id="blank"),
        pytest.param("orders", {"orders"}, id="one"),
        pytest.param("parcels", {"parcels"}, id="one-without-offsets"),
        pytest.param("gone", set(), id="one-that-is-gone"),
    ],
)
async def test_the_topics_of_a_group_are_the_one_asked_for_or_all_it_has_offsets_of(
    tmp_path: Path, asked: str | None, topics: set[str]
) -> None:
    async with statistics_broker(tmp_path) as broker:
        for topic in ("orders", "payments", "parcels"):
            broker.topic(topic)
        for topic in ("orders", "payments", "gone"):
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
        broker.offsets.commit("", "others", "parcels", 0, ConsumerOffset(1))
        stats = await consume_stats(broker, asked)
    assert {queue.topic for queue in stats.offset_table} == topics


async def test_a_group_with_members_is_shown_by_what_they_subscribe_to(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        for topic in ("orders", "payments"):
            broker.topic(topic)
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
        channel = open_channel()
        broker.clients.consume(channel, GROUP)
        before = await consume_stats(broker)
        broker.clients.consume(channel, GROUP, None, subscription("orders"))
        after = await consume_stats(broker)
    assert {queue.topic for queue in before.offset_table} == {"orders", "payments"}
    assert {queue.topic for queue in after.offset_table} == {"orders"}


async def test_the_rate_of_a_group_is_that_of_the_topics_shown(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        for topic in ("orders", "payments"):
            broker.topic(topic)
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
            broker.stats.get(GROUP, topic, 0, 15, 1)
        broker.stats.get("others", "orders", 0, 99, 1)
        broker.stats.sample(0)
        rates = [(await consume_stats(broker, topic)).consume_tps for topic in (None, "orders")]
    assert rates == [3.0, 1.5]


# --- all groups ---------------------------------------------------------------------------------


async def all_consume_stats(broker: StatisticsBroker, *, order: bool = False) -> ConsumeStatsList:
    return await broker.body(
        ConsumeStatsList,
        RequestCode.GET_BROKER_CONSUME_STATS,
        GetBrokerConsumeStatsRequest(is_order=order),
    )


def by_group(body: ConsumeStatsList) -> dict[str, list[ConsumeStats]]:
    found = {group: list(stats) for row in body.consume_stats_list for group, stats in row.items()}
    assert len(found) == len(body.consume_stats_list), "a group has two rows"
    return found


async def test_all_groups_are_shown_each_with_its_topics(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        built_in = set(broker.groups.names())
        for group in (GROUP, "idle"):
            broker.groups.put(SubscriptionGroupConfig(group_name=group))
        broker.topic("orders", read=1, write=2)
        broker.topic("payments", read=1, write=1)
        broker.store("orders", 1, 5)
        broker.store("payments", 0, 3)
        for topic in ("orders", "payments", "gone"):
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
        broker.offsets.commit("", "unknown-group", "orders", 0, ConsumerOffset(1))
        broker.stats.get(GROUP, "payments", 0, 20, 1)
        broker.stats.sample(0)
        body = await all_consume_stats(broker)
    assert body.broker_addr == "192.0.2.7:10911"
    # What is behind in some queue may be made up for by an offset that is ahead in another.
    assert body.total_diff == (0 - 1) + 5 + (3 - 1)
    groups = by_group(body)
    assert groups.keys() == {GROUP, "idle"} | built_in
    assert groups.pop(GROUP) == [
        ConsumeStats(
            offset_table={
                queue(0): OffsetWrapper(consumer_offset=1),
                queue(1): OffsetWrapper(broker_offset=5),
            }
        ),
        ConsumeStats(
            offset_table={
                queue(0, "payments"): OffsetWrapper(
                    broker_offset=3, consumer_offset=1, last_timestamp=START_MS + 5 * SECOND
                )
            },
            consume_tps=2.0,
        ),
    ]
    assert set(map(tuple, groups.values())) == {()}


async def test_only_ordered_topics_are_shown_if_asked_for(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
        broker.topic("orders", order=True)
        broker.topic("payments")
        for topic in ("orders", "payments"):
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
        ordered = by_group(await all_consume_stats(broker, order=True))
    topics = {queue.topic for stats in ordered[GROUP] for queue in stats.offset_table}
    assert topics == {"orders"}


async def test_topics_that_members_do_not_subscribe_to_are_left_out(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
        for topic in ("orders", "payments"):
            broker.topic(topic)
            broker.offsets.commit("", GROUP, topic, 0, ConsumerOffset(1))
        broker.clients.consume(open_channel(), GROUP, None, subscription("payments"))
        found = by_group(await all_consume_stats(broker))
    topics = {queue.topic for stats in found[GROUP] for queue in stats.offset_table}
    assert topics == {"payments"}


# --- times --------------------------------------------------------------------------------------


@pytest.fixture
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def spans(broker: StatisticsBroker) -> list[QueueTimeSpan]:
    body = await broker.body(
        QueryConsumeTimeSpanBody,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        QueryConsumeTimeSpanRequest(topic="orders", group=GROUP),
    )
    return list(body.consume_time_span_set)


@pytest.mark.usefixtures("_greenwich")
async def test_a_group_is_behind_by_the_age_of_the_next_message(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", write=1)
        broker.store("orders", 0, 10)
        broker.offsets.commit("", GROUP, "orders", 0, ConsumerOffset(4))
        broker.clock.ms += 123
        found = await spans(broker)
    assert found == [
        QueueTimeSpan(
            message_queue=queue(0),
            min_time_stamp=START_MS,
            max_time_stamp=START_MS + 9 * SECOND,
            consume_time_stamp=START_MS + 3 * SECOND,
            delay_time=6 * SECOND + 123,
            min_time_stamp_str="2023-11-14#22:13:20:000",
            max_time_stamp_str="2023-11-14#22:13:29:000",
            consume_time_stamp_str="2023-11-14#22:13:23:000",
        )
    ]


@pytest.mark.usefixtures("_greenwich")
@pytest.mark.parametrize(
    ("stored", "consumer_offset", "expected"),
    [
        pytest.param(10, 10, (9, 0), id="at-the-end"),
        pytest.param(10, None, (0, 10), id="not-begun"),
        pytest.param(10, 0, (0, 10), id="at-the-start"),
        pytest.param(10, 50, (None, 0), id="beyond-the-end"),
        pytest.param(0, None, (None, 0), id="no-messages"),
        pytest.param(0, 5, (None, 0), id="no-messages-any-longer"),
    ],
)
async def test_how_far_behind_a_group_is_depends_on_the_next_message_it_can_get(
    tmp_path: Path,
    stored: int,
    consumer_offset: int | None,
    expected: tuple[int | None, int],
) -> None:
    """`expected` is the number of the message that stands for the progress, and seconds behind."""
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", write=1)
        broker.store("orders", 0, stored)
        if consumer_offset is not None:
            broker.offsets.commit("", GROUP, "orders", 0, ConsumerOffset(consumer_offset))
        (found,) = await spans(broker)
    last, behind = expected
    assert found.consume_time_stamp == (-1 if last is None else START_MS + last * SECOND)
    assert found.delay_time == behind * SECOND
    if not stored:
        assert (found.min_time_stamp, found.max_time_stamp) == (-1, -1)
        assert found.min_time_stamp_str == "1969-12-31#23:59:59:999"


async def test_a_time_beyond_all_calendars_is_no_trouble(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", write=1)
        broker.store("orders", 0, 1)
        broker.clock.ms = 2**62
        broker.store("orders", 0, 1)
        (found,) = await spans(broker)
    assert found.max_time_stamp == 2**62
    assert found.max_time_stamp_str is not None
    assert found.max_time_stamp_str.startswith("9999-12-3")


# --- many queues --------------------------------------------------------------------------------


WIDE = 3 * QUEUES_AT_ONCE


@pytest.mark.parametrize(
    ("code", "header"),
    [
        pytest.param(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic="wide"), id="202"
        ),
        pytest.param(
            RequestCode.GET_CONSUME_STATS,
            GetConsumeStatsRequest(consumer_group=GROUP, topic="wide"),
            id="208",
        ),
        pytest.param(
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            QueryConsumeTimeSpanRequest(topic="wide", group=GROUP),
            id="303",
        ),
        pytest.param(
            RequestCode.GET_BROKER_CONSUME_STATS,
            GetBrokerConsumeStatsRequest(is_order=False),
            id="317",
        ),
    ],
)
async def test_others_are_answered_while_many_queues_are_gone_through(
    tmp_path: Path, code: RequestCode, header: Header
) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("wide", read=WIDE, write=WIDE)
        broker.offsets.commit("", GROUP, "wide", WIDE - 1, ConsumerOffset(7))
        broker.groups.find(GROUP)
        wide = encode_frame(code=code, opaque=1, header=header)
        other = encode_frame(code=RequestCode.GET_BROKER_RUNTIME_INFO, opaque=2)
        await broker.peer.send(wide)
        await broker.peer.send(other)
        answers = [await broker.peer.read() for _ in range(2)]
    assert [(answer.opaque, answer.code) for answer in answers] == [(2, 0), (1, 0)]
    assert answers[1].body.count(b'"queueId":') == WIDE


async def test_offsets_beyond_all_bounds_do_not_spoil_the_sum(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", write=2)
        broker.groups.find(GROUP)
        for queue_id in range(2):
            broker.offsets.commit("", GROUP, "orders", queue_id, ConsumerOffset(2**63 - 1))
        stats = await broker.body(
            ConsumeStatsList,
            RequestCode.GET_BROKER_CONSUME_STATS,
            GetBrokerConsumeStatsRequest(is_order=False),
        )
    assert stats.total_diff == -(2**63 - 1)


async def test_more_queues_than_an_answer_can_hold_are_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert statistics.ANSWERED_QUEUES_MAX > 100_000
    monkeypatch.setattr(statistics, "ANSWERED_QUEUES_MAX", 10_000)
    async with statistics_broker(tmp_path) as broker:
        wide = statistics.ANSWERED_QUEUES_MAX // 2
        for number in range(3):
            broker.topic(f"wide-{number}", write=wide)
            broker.offsets.commit("", GROUP, f"wide-{number}", 0, ConsumerOffset(1))
        broker.groups.find(GROUP)
        answer = await broker.ask(
            RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequest(is_order=False)
        )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "ask for one group at a time" in answer.remark
