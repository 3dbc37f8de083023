"""What a consumer tells operators: figures, how it is, and what a listener makes of a message."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rmq.client.core.consuming.config import ConsumeFrom, MessageModel, PushConsumerConfig
from rmq.client.core.consuming.results import ConsumeResult, Later
from rmq.client.core.consuming.subscription_set import SubscriptionSet
from rmq.client.tasks.assignment import AssignedQueue
from rmq.client.tasks.status import ConsumeStatistics, consume_directly, running_info
from rmq.model.queues import MessageQueue
from rmq.model.record import decode_record
from rmq.remoting.bodies import CMResult, ConsumerRunningInfo, ConsumeStatus
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client.core.received import ReceivedMessage

QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=1)


# --- figures ---------------------------------------------------------------------------------


def test_figures_are_those_of_the_last_minute() -> None:
    statistics = ConsumeStatistics()
    statistics.watch("Orders", 100.0)
    for second in range(0, 200, 10):
        statistics.pulled("Orders", 50, 0.02)
        statistics.consumed("Orders", 30, 20, 0.5)
        statistics.sample(110.0 + second)
    status = statistics.status("Orders", 300.0)
    assert status.pull_rt == pytest.approx(20.0)
    assert status.consume_rt == pytest.approx(500.0)
    assert status.pull_tps == pytest.approx(5.0)
    assert status.consume_ok_tps == pytest.approx(3.0)
    assert status.consume_failed_tps == pytest.approx(2.0)
    assert status.consume_failed_msgs == 400


def test_after_a_quiet_minute_only_what_hours_tell_is_left() -> None:
    statistics = ConsumeStatistics()
    statistics.watch("Orders", 0.0)
    statistics.consumed("Orders", 0, 5, 0.25)
    for second in range(10, 200, 10):
        statistics.sample(second)
    status = statistics.status("Orders", 200.0)
    assert (status.consume_failed_tps, status.consume_rt) == (0.0, 250.0)
    assert status.consume_failed_msgs == 5
    for second in range(200, 7 * 600 + 20, 10):
        statistics.sample(second)
    assert statistics.status("Orders", 4_300.0).consume_failed_msgs == 0


def test_a_topic_that_nobody_watches_has_no_figures() -> None:
    statistics = ConsumeStatistics()
    statistics.pulled("Orders", 1, 1.0)
    statistics.consumed("Orders", 1, 0, 1.0)
    statistics.sample(1.0)
    assert statistics.status("Orders", 2.0) == ConsumeStatus()


# --- how it is -------------------------------------------------------------------------------


async def test_running_info_is_what_stock_tools_read() -> None:
    config = PushConsumerConfig(
        group="readers",
        consume_from=ConsumeFrom.TIMESTAMP,
        consume_from_ms=1_700_000_000_000,
        topic_bytes_max=512 * 1024**2,
    )
    assigned = AssignedQueue(
        QUEUE, 5, 90.0, messages_max=1, bytes_max=1, span_max=None, calls_max=None
    )
    info = running_info(
        config,
        SubscriptionSet("readers", "Orders", is_broadcasting=False, now_ms=17),
        [assigned],
        {QUEUE: 7},
        ConsumeStatistics(),
        nameservers=("10.0.0.5:9876", "10.0.0.6:9876"),
        started_at_ms=1_000,
        now=100.0,
        now_ms=50_000,
    )
    text = info.encode()
    assert ConsumerRunningInfo.decode(text) == info
    properties = info.properties
    assert properties["PROP_NAMESERVER_ADDR"] == "10.0.0.5:9876;10.0.0.6:9876;"
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert properties["PROP_CONSUMEORDERLY"] == "false"
    assert properties["PROP_CONSUMER_START_TIMESTAMP"] == "1000"
    assert properties["PROP_CLIENT_VERSION"] == "V4_9_8"
    assert properties["PROP_THREADPOOL_CORE_SIZE"] == "20"
    assert properties["pullThresholdSizeForTopic"] == "512"
    assert properties["maxReconsumeTimes"] == "-1"
    when = time.strptime(properties["consumeTimestamp"], "%Y%m%d%H%M%S")
    assert time.mktime(when) == 1_700_000_000
    assert info.mq_table[QUEUE].commit_offset == 7
    assert info.mq_table[QUEUE].last_pull_timestamp == 40_000
    assert [data.topic for data in info.subscription_set] == ["%RETRY%readers", "Orders"]
    assert list(info.status_table) == ["%RETRY%readers", "Orders"]
    # Names of members as Java has them.
    assert b'"cachedMsgSizeInMiB":0' in text
    assert b'"droped":false' in text
    assert b'"consumeFailedTPS":0' in text


# --- one message -----------------------------------------------------------------------------

RECORD = decode_record(build_record(topic=b"Orders", properties=b"UNIQ_KEY\x01U1"))


async def directly(returned: object, **settings: Any) -> tuple[CMResult | None, str | None]:  # noqa: ANN401 - any setting
    async def listener(messages: Sequence[ReceivedMessage]) -> Any:  # noqa: ANN401 - nonsense too
        assert [each.message_id for each in messages] == ["U1"]
        assert messages[0].queue.broker_name == "broker-a"
        if isinstance(returned, Exception):
            raise returned
        return returned

    config = PushConsumerConfig(group="readers", **settings)
    result = await consume_directly(listener, RECORD, "broker-a", config=config)
    assert result.order == config.is_orderly
    assert json.loads(result.encode())["autoCommit"] is True
    return result.consume_result, result.remark


async def test_what_the_listener_made_of_a_message_is_told() -> None:
    assert await directly(None) == (CMResult.CR_SUCCESS, None)
    assert await directly(ConsumeResult.SUCCESS, is_orderly=True) == (CMResult.CR_SUCCESS, None)
    assert await directly(ConsumeResult.LATER) == (CMResult.CR_LATER, None)
    assert await directly(Later(3), message_model=MessageModel.BROADCASTING) == (
        CMResult.CR_LATER,
        None,
    )
    assert await directly(17) == (CMResult.CR_RETURN_NULL, "the listener returned int 17")
    assert await directly(ValueError("no")) == (CMResult.CR_THROW_EXCEPTION, "ValueError: no")


async def test_a_message_of_the_retry_topic_has_its_first_topic() -> None:
    seen: list[str] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.extend(each.topic for each in messages)

    record = decode_record(build_record(topic=b"%RETRY%readers", properties=b"RETRY_TOPIC\x01T1"))
    config = PushConsumerConfig(group="readers")
    await consume_directly(listener, record, "broker-a", config=config)
    assert seen == ["T1"]


async def test_a_listener_that_hangs_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        await trio.sleep_forever()

    config = PushConsumerConfig(group="readers", consume_timeout_s=5.0)
    result = await consume_directly(listener, RECORD, "broker-a", config=config)
    assert (result.consume_result, result.remark) == (CMResult.CR_LATER, "no result within 5 s")
    assert result.spent_time_mills == 5_000
