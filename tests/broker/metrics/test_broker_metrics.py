"""What a broker shows of its topics, groups, clients and store, from requests that it served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.metrics import consumers, names, traffic
from rmq.broker.metrics.serving import broker_collectors
from rmq.metrics.requests import RequestMetrics
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    SendMessageRequestV2,
)
from tests.broker.broker_frames import GROUP, TOPIC, consumer, pull, send, subscription
from tests.broker.broker_kit import part_broker
from tests.broker.metrics.metrics_kit import collected, pages_of, scraped, shown, value

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.broker.broker_kit import PartBroker
    from tests.broker.metrics.metrics_kit import Series

OWN = {"topic": TOPIC, "consumer_group": GROUP, "is_system": "false"}
PAIR = {**OWN, "is_retry": "false"}


def scrape(part: PartBroker, **query: str) -> dict[Series, float]:
    """What the broker shows, but for its ports, which a part broker does not have."""
    pages = pages_of(*broker_collectors(part.broker, part.clock))
    return scraped(*pages.registry.scrape("", query))


async def test_messages_are_counted_by_topic_and_group(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        part.create_topic()
        pages = pages_of(*broker_collectors(part.broker, part.clock))
        for number in range(3):
            answer = await part.ask(send(b"x" * 300 * number))
            assert answer.code == ResponseCode.SUCCESS
        await part.ask(pull())
        found = shown(pages)
        size = int(part.store.log.written)
        assert value(found, "rocketmq_messages_in_total", topic=TOPIC, is_system="false") == 3
        assert value(found, "rocketmq_throughput_in_total", topic=TOPIC, is_system="false") == size
        assert value(found, "rocketmq_messages_out_total", **OWN) == 3
        assert value(found, "rocketmq_throughput_out_total", **OWN) == size
        assert value(found, "rocketmq_put_results_total", status="PUT_OK") == 3
        assert value(found, "rocketmq_put_results_total", status="FLUSH_SLAVE_TIMEOUT") == 0
        assert value(found, "rocketmq_put_latency_seconds_count") == 3
        assert value(found, "rocketmq_put_stage_seconds_count", stage="append") == 3
        assert value(found, "rocketmq_put_stage_seconds_count", stage="replicate") == 0
        assert value(found, "rocketmq_message_size_bytes_sum") == size
        assert value(found, "rocketmq_message_size_bytes_bucket", le="256") == 1
        assert value(found, "rocketmq_message_size_bytes_bucket", le="1024") == 3
        assert value(found, "rocketmq_commitlog_appended_bytes_total") == size
        assert value(found, "rocketmq_storage_read_messages_total", source="memory") == 3
        assert value(found, "rocketmq_storage_segments", store="commitlog") == 1


async def test_a_group_that_is_behind_shows_what_it_has_and_what_waits(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        part.create_topic()
        part.put_many(5)
        part.put_many(2, queue_id=1)
        await part.ask(pull(count=3, commit=0))
        part.offsets.commit("here", GROUP, TOPIC, 0, ConsumerOffset(1))
        found = scrape(part)
        assert value(found, "rocketmq_consumer_lag_messages", **PAIR) == 6
        assert value(found, "rocketmq_consumer_committed_messages", **PAIR) == 1
        assert value(found, "rocketmq_consumer_inflight_messages", **PAIR) == 2
        assert value(found, "rocketmq_consumer_ready_messages", **PAIR) == 4
        # These files exist in memory only, so nothing can be looked up.
        assert value(found, "rocketmq_consumer_lag_seconds", **PAIR) is None
        part.offsets.commit("here", GROUP, TOPIC, 0, ConsumerOffset(5))
        part.offsets.commit("here", GROUP, TOPIC, 1, ConsumerOffset(2))
        found = scrape(part)
        for name in ("lag_messages", "lag_seconds", "ready_messages", "inflight_messages"):
            assert value(found, f"rocketmq_consumer_{name}", **PAIR) == 0
        assert value(found, "rocketmq_consumer_committed_messages", **PAIR) == 7


async def test_delayed_messages_wait_from_the_first_one_on(tmp_path: Path) -> None:
    """A level has no progress before its first delivery, but messages."""
    async with part_broker(tmp_path) as part:
        part.create_topic()
        for _ in range(2):
            answer = await part.ask(send(properties={"DELAY": "3"}))
            assert answer.code == ResponseCode.SUCCESS
        found = scrape(part)
        pending = [
            value(found, "rocketmq_schedule_pending_messages", level=level) for level in "234"
        ]
        assert pending == [0, 2, 0]


async def test_queues_are_shown_for_groups_that_are_asked_for(tmp_path: Path) -> None:
    def queues(found: dict[Series, float]) -> dict[str, float]:
        return {
            dict(labels)["queue_id"]: number
            for (name, labels), number in found.items()
            if name == "rocketmq_consumer_queue_lag_messages"
        }

    async with part_broker(tmp_path) as part:
        part.create_topic()
        part.put_many(5)
        part.put_many(2, queue_id=1)
        part.groups.find(GROUP)
        part.offsets.commit("here", GROUP, TOPIC, 0, ConsumerOffset(1))
        assert queues(scrape(part)) == {}
        assert queues(scrape(part, queues="another")) == {}
        assert queues(scrape(part, queues=f"another,{GROUP}")) == {"0": 4, "1": 2}
        part.update(metricsQueueGroups=f"another;{GROUP}")
        assert queues(scrape(part)) == {"0": 4, "1": 2}


async def test_series_of_deleted_topics_and_groups_end(tmp_path: Path) -> None:
    def series(found: dict[Series, float]) -> set[str]:
        return {name for name, labels in found if {TOPIC, GROUP} & set(dict(labels).values())}

    async with part_broker(tmp_path) as part:
        part.create_topic()
        await part.ask(send())
        await part.ask(pull(commit=0))
        part.broker.stats.send_back(GROUP, TOPIC)
        part.broker.stats.dead_letter(GROUP, TOPIC)
        part.broker.stats.transactions.committed(TOPIC, 1_000)
        part.offsets.commit("here", GROUP, TOPIC, 0, ConsumerOffset(1))
        assert len(series(scrape(part))) == 13
        header = DeleteSubscriptionGroupRequest(group_name=GROUP)
        await part.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert series(scrape(part)) == {
            "rocketmq_messages_in_total",
            "rocketmq_throughput_in_total",
            "rocketmq_commit_messages_total",
        }
        await part.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC))
        assert series(scrape(part)) == set()


async def test_dead_letters_and_retries_are_told_apart(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        for prefix, count in ((RETRY_PREFIX, 2), (DLQ_PREFIX, 3)):
            part.create_topic(f"{prefix}{GROUP}", queues=1)
            part.put_many(count, topic=f"{prefix}{GROUP}")
            part.broker.stats.put(f"{prefix}{GROUP}", 0, count, 100)
        part.groups.find(GROUP)
        part.offsets.commit("here", GROUP, f"{RETRY_PREFIX}{GROUP}", 0, ConsumerOffset(1))
        part.broker.stats.dead_letter(GROUP, TOPIC, 3)
        found = scrape(part)
        retry = {**PAIR, "topic": f"{RETRY_PREFIX}{GROUP}", "is_retry": "true"}
        assert value(found, "rocketmq_consumer_lag_messages", **retry) == 1
        assert value(found, "rocketmq_dlq_messages", consumer_group=GROUP) == 3
        assert (
            value(found, "rocketmq_send_to_dlq_messages_total", topic=TOPIC, consumer_group=GROUP)
            == 3
        )
        assert not any(name == "rocketmq_messages_in_total" for name, _ in found)


async def test_a_slave_shows_no_consumers(tmp_path: Path) -> None:
    slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    async with part_broker(tmp_path, slave) as part:
        part.create_topic()
        part.groups.find(GROUP)
        part.offsets.commit("here", GROUP, TOPIC, 0, ConsumerOffset(1))
        found = {name for name, _ in scrape(part)}
        assert "rocketmq_topic_number" in found
        assert not any(
            name.startswith(("rocketmq_consumer_lag", "rocketmq_schedule", "rocketmq_half"))
            for name in found
        )


async def test_clients_are_shown_by_what_they_are(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        await part.join("one", consumer(subscription()))
        await part.join("two", consumer(subscription()))
        found = scrape(part)
        [(labels, count)] = [
            (dict(labels), count)
            for (name, labels), count in found.items()
            if name == "rocketmq_consumer_connections"
        ]
        assert count == 2
        assert labels["consumer_group"] == GROUP
        assert labels["version"] == "V4_9_8"
        assert labels["is_system"] == "false"


async def test_names_with_any_characters_can_be_read(tmp_path: Path) -> None:
    odd = 'a"b\\c\nd{e="f"}é \U0001f600'
    async with part_broker(tmp_path) as part:
        part.create_topic(odd)
        part.groups.find(GROUP)
        part.broker.stats.put(odd, 0, 1, 10)
        part.broker.stats.get(GROUP, odd, 0, 1, 10)
        part.offsets.commit("here", GROUP, odd, 0, ConsumerOffset(1))
        found = scrape(part)
        assert value(found, "rocketmq_messages_in_total", topic=odd, is_system="false") == 1
        assert value(found, "rocketmq_messages_out_total", **{**OWN, "topic": odd}) == 1
        assert value(found, "rocketmq_consumer_lag_messages", **{**PAIR, "topic": odd}) == 0


async def test_what_is_above_the_bounds_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "TOPICS_MAX", 3)
    monkeypatch.setattr(traffic, "PAIRS_MAX", 3)
    monkeypatch.setattr(consumers, "PAIRS_MAX", 3)
    async with part_broker(tmp_path) as part:
        part.groups.find(GROUP)
        for number in range(5):
            topic = f"topic-{number}"
            part.create_topic(topic)
            part.broker.stats.put(topic, 0, 1, 10)
            part.broker.stats.get(GROUP, topic, 0, 1, 10)
            part.offsets.commit("here", GROUP, topic, 0, ConsumerOffset(1))
        found = scrape(part)
        for family in (
            "rocketmq_messages_in_total",
            "rocketmq_messages_out_total",
            "rocketmq_consumer_lag_messages",
        ):
            assert sum(1 for name, _ in found if name == family) == 3
            assert value(found, "rocketmq_unlisted_series", family=family) == 2
    assert names.PAIRS_MAX == 5000


async def test_requests_are_counted_by_code_and_answer(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        part.create_topic()
        await part.ask(send())
        await part.ask(send(topic="none", queues=0))
        await part.ask(pull())
        held = part.attach("10.0.0.8:1")
        await part.hold(held, pull(offset=1, wait_ms=60_000))
        part.put_many(1)
        await held.read()
        server = part.served.server
        found = collected(RequestMetrics(lambda: {"main": server.statistics()}))

        def answers(code: str, answer: str) -> float | None:
            labels = {"request_code": code, "response_code": answer}
            return value(found, "rocketmq_requests_total", **labels)

        assert answers("send_message_v2", "success") == 1
        assert answers("pull_message", "success") == 2
        for is_held in ("false", "true"):
            labels = {"request_code": "pull_message", "is_long_polling": is_held}
            assert value(found, "rocketmq_rpc_latency_seconds_count", **labels) == 1
        assert value(found, "rocketmq_remoting_connections", listener="main") is not None
        assert value(found, "rocketmq_processor_watermark", processor="pull") == 0


async def test_a_crowd_of_topics_and_groups_is_looked_at_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_QUEUES_PER_STEP", 20)
    async with part_broker(tmp_path) as part:
        part.groups.find(GROUP)
        for number in range(100):
            part.create_topic(f"topic-{number}", queues=4)
            part.offsets.commit("here", GROUP, f"topic-{number}", 0, ConsumerOffset(1))
        pages = pages_of(*broker_collectors(part.broker, part.clock))
        steps = sum(1 for _ in pages.registry.begin().preparing())
        assert steps >= 100 * 4 / 20


async def test_a_message_that_is_sent_for_too_many_retries_is_a_dead_letter(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as part:
        part.groups.find(GROUP)
        part.create_topic(f"{RETRY_PREFIX}{GROUP}", queues=1)
        part.create_topic(f"{DLQ_PREFIX}{GROUP}", queues=1)
        header = send_header(topic=f"{RETRY_PREFIX}{GROUP}", retries=17)
        answer = await part.call(RequestCode.SEND_MESSAGE_V2, header, b"body")
        assert answer.code == ResponseCode.SUCCESS
        labels = {"topic": TOPIC, "consumer_group": GROUP}
        assert value(scrape(part), "rocketmq_send_to_dlq_messages_total", **labels) == 1


def send_header(topic: str, retries: int) -> SendMessageRequestV2:
    """A message of TOPIC that a consumer sends again."""
    return SendMessageRequestV2(
        producer_group=GROUP,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=f"RETRY_TOPIC\x01{TOPIC}\x02",
        reconsume_times=retries,
        max_reconsume_times=16,
    )
