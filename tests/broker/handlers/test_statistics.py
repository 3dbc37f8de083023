"""Statistics of the broker and its topics as admin tools ask for them, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    GroupList,
    KVTable,
    TopicOffset,
    TopicStatsTable,
)
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.groups import GroupStatistics
from rmq.remoting.headers import (
    GetTopicStatsInfoRequest,
    QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest,
    ViewBrokerStatsDataRequest,
)
from tests.broker.clients.registry_kit import open_channel, subscription
from tests.broker.handlers.statistics_kit import (
    GROUP,
    SECOND,
    queue,
    statistics_broker,
)
from tests.store.store_kit import START_MS

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.header import Header


# --- the broker ---------------------------------------------------------------------------------


async def test_runtime_info_tells_of_all_parts(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders")
        broker.store("orders", 0, 3)
        broker.stats.store.put(3, 300)
        broker.loads = [
            GroupStatistics("send", unanswered=9, waiting=2, running=1, refused=0),
            GroupStatistics("send", unanswered=9, waiting=3, running=1, refused=0),
            GroupStatistics("pull", unanswered=7000, waiting=0, running=0, refused=0),
            GroupStatistics("end_transaction", unanswered=5, waiting=4, running=0, refused=0),
        ]
        broker.delays = {2: (5, 6)}
        table = (await broker.body(KVTable, RequestCode.GET_BROKER_RUNTIME_INFO)).table
    expected = {
        "bootTimestamp": str(START_MS),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 3 seconds ]",
        "msgPutTotalTodayNow": "3",
        "commitLogMaxOffset": str(broker.core.log.written),
        "earliestMessageTimeStamp": str(START_MS),
        "sendThreadPoolQueueSize": "5",
        "sendThreadPoolQueueCapacity": "111",
        # Pulls that are held wait for messages, not for the broker.
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueCapacity": "100000",
        "queryThreadPoolQueueSize": "0",
        "queryThreadPoolQueueCapacity": "20000",
        "EndTransactionQueueSize": "4",
        "startAcceptSendRequestTimeStamp": "222",
        "scheduleMessageOffset_2": "5,6",
    }
    assert {key: table.get(key) for key in expected} == expected


async def test_a_statistic_is_shown_over_minute_hour_and_day(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.stats.put("orders", 0, 360, 36_000, times=180)
        broker.stats.sample(0)
        header = ViewBrokerStatsDataRequest(stats_name="TOPIC_PUT_NUMS", stats_key="orders")
        answer = await broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert answer.body == (
        b'{"statsDay":{"avgpt":2.0,"sum":360,"tps":0.1},'
        b'"statsHour":{"avgpt":2.0,"sum":360,"tps":0.6},'
        b'"statsMinute":{"avgpt":2.0,"sum":360,"tps":36.0}}'
    )
    assert BrokerStatsData.decode(answer.body).stats_minute == BrokerStatsItem(
        sum=360, tps=36.0, avgpt=2.0
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param("TOPIC_PUT_NUMS", "payments", id="unknown-key"),
        pytest.param("TOPIC_PUT_NONSENSE", "orders", id="unknown-name"),
    ],
)
@pytest.mark.parametrize("serialization", Serialization, ids=lambda kind: kind.name)
async def test_a_statistic_that_is_not_there_is_refused(
    tmp_path: Path, name: str, key: str, serialization: Serialization
) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.stats.put("orders", 0, 1, 1)
        header = ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        answer = await broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header, serialization)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"The stats <{name}> <{key}> not exist"
    assert answer.serialization == serialization


# --- topics -------------------------------------------------------------------------------------


async def test_a_topic_is_shown_by_all_queues_that_can_be_written(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", read=1, write=3)
        broker.store("orders", 1, 4)
        stats = await broker.body(
            TopicStatsTable,
            RequestCode.GET_TOPIC_STATS_INFO,
            GetTopicStatsInfoRequest(topic="orders"),
        )
    assert stats.offset_table == {
        queue(0): TopicOffset(),
        queue(1): TopicOffset(max_offset=4, last_update_timestamp=START_MS + 3 * SECOND),
        queue(2): TopicOffset(),
    }


async def test_a_queue_whose_messages_expired_begins_behind_them(tmp_path: Path) -> None:
    async with statistics_broker(tmp_path) as broker:
        broker.topic("orders", write=1)
        broker.store("orders", 0, 9)
        found = broker.core.queues.get("orders", 0)
        entry = None if found is None else found.entry(QueueOffset(6))
        assert found is not None
        assert entry is not None
        found.correct_min_offset(entry[0])
        stats = await broker.body(
            TopicStatsTable,
            RequestCode.GET_TOPIC_STATS_INFO,
            GetTopicStatsInfoRequest(topic="orders"),
        )
    assert stats.offset_table[queue(0)].min_offset == 6
    assert stats.offset_table[queue(0)].max_offset == 9


@pytest.mark.parametrize(
    ("code", "header"),
    [
        pytest.param(
            RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequest(topic="nowhere"), id="202"
        ),
        pytest.param(
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            QueryConsumeTimeSpanRequest(topic="nowhere", group=GROUP),
            id="303",
        ),
    ],
)
async def test_a_topic_that_is_not_there_is_refused(
    tmp_path: Path, code: RequestCode, header: Header
) -> None:
    async with statistics_broker(tmp_path) as broker:
        answer = await broker.ask(code, header)
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[nowhere] not exist",
        b"",
    )


async def test_the_groups_of_a_topic_are_those_that_subscribe_or_once_consumed(
    tmp_path: Path,
) -> None:
    async with statistics_broker(tmp_path) as broker:
        channel = open_channel()
        broker.clients.consume(channel, "online", None, subscription("orders"))
        broker.clients.consume(channel, "elsewhere", None, subscription("payments"))
        broker.offsets.commit("", "offline", "orders", 0, ConsumerOffset(7))
        broker.offsets.commit("", "elsewhere", "payments", 0, ConsumerOffset(7))
        asked = [
            await broker.body(
                GroupList,
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                QueryTopicConsumeByWhoRequest(topic=topic),
            )
            for topic in ("orders", "nowhere")
        ]
    assert [body.group_list for body in asked] == [{"online", "offline"}, frozenset()]
