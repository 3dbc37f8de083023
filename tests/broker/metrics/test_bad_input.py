"""What a broker shows when something is wrong: it stays bounded and true, and tells no secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.config.schema import SCHEMA
from rmq.broker.metrics.names import PAIRS_MAX, TOPICS_MAX
from rmq.broker.metrics.serving import BrokerMetrics, broker_collectors
from rmq.metrics.process import LogEvents
from rmq.model.offsets import ConsumerOffset
from tests.broker.broker_frames import TOPIC, pull, send
from tests.broker.broker_kit import free_port, live_broker, live_config, part_broker
from tests.broker.metrics.metrics_kit import pages_of, scraped, shown, value
from tests.metrics.test_server import get

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "sesame, open the door"
TOPICS: Final = 10_000
GROUPS: Final = 1_000


def counts_by_family(text: str) -> dict[str, int]:
    """How many samples each family has; only those that are left out have another value than 1."""
    counts: dict[str, int] = {}
    for name in re.findall(r"^(\w+)", text, re.MULTILINE):
        counts[name] = counts.get(name, 0) + 1
    return counts


async def test_ten_thousand_topics_and_a_thousand_groups_are_bounded_and_take_many_steps(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path) as part:
        stats = part.broker.stats
        for number in range(TOPICS):
            topic, group = f"topic-{number}", f"group-{number % GROUPS}"
            part.create_topic(topic, queues=1)
            part.groups.find(group)
            stats.put(topic, 0, 1, 10)
            stats.get(group, topic, 0, 1, 10)
            stats.send_back(group, topic)
            part.offsets.commit("here", group, topic, 0, ConsumerOffset(1))
        scrape = pages_of(*broker_collectors(part.broker, part.clock)).registry.begin()
        steps = sum(1 for _ in scrape.preparing())
        scrape.refresh()
        steps += sum(1 for _ in scrape.writing(""))
        text = b"".join(scrape.pieces).decode()
    counts = counts_by_family(text)
    left_out = {
        "rocketmq_messages_in_total": TOPICS - TOPICS_MAX,
        "rocketmq_messages_out_total": TOPICS - PAIRS_MAX,
        "rocketmq_send_back_messages_total": TOPICS - PAIRS_MAX,
        "rocketmq_consumer_lag_messages": TOPICS - PAIRS_MAX,
    }
    for family, count in left_out.items():
        assert counts[family] == TOPICS - count
        assert re.search(rf'^rocketmq_unlisted_series{{.*family="{family}"}} {count}$', text, re.M)
    assert sum(counts.values()) < 15 * PAIRS_MAX
    assert steps > 200


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000], ids=["back", "on"])
async def test_a_wall_clock_that_steps_makes_no_number_negative(
    tmp_path: Path, step_ms: int
) -> None:
    async with part_broker(tmp_path) as part:
        pages = pages_of(*broker_collectors(part.broker, part.clock))
        await part.ask(send())
        await part.ask(pull(commit=0))
        part.clock.ms += step_ms
        await part.ask(send())
        part.broker.stats.transactions.committed(TOPIC, step_ms)
        found = shown(pages)
        # Elapsed times are taken from a clock that does not step.
        assert value(found, "rocketmq_put_latency_seconds_bucket", le="10.0") == 2
        assert value(found, "rocketmq_storage_message_reserve_seconds") == max(0, step_ms) / 1000
        assert min(found.values()) >= 0


async def test_a_nameserver_that_does_not_answer_is_seen_and_holds_up_no_scrape(
    tmp_path: Path,
) -> None:
    silent = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{silent[0].socket.getsockname()[1]}"
    port = free_port()
    settings = {
        "namesrvAddr": address,
        "registerBrokerTimeoutMills": "50",
        "metricsPort": str(port),
        "shutdownDrainTime": "0",
        # A master would wait at its start for what nameservers remember of it.
        "brokerRole": "SLAVE",
        "brokerId": "1",
    }
    async with live_broker(live_config(tmp_path, settings)):
        answer = await get(port, "/metrics")
        found = scraped(answer.headers["content-type"], answer.body)
        by_name = {
            (name, dict(labels).get("result")): (dict(labels).get("namesrv"), number)
            for (name, labels), number in found.items()
        }
        assert by_name["rocketmq_namesrv_registered", None] == (address, 0)
        assert by_name["rocketmq_broker_registrations_total", "success"] == (address, 0)
        assert by_name["rocketmq_broker_registrations_total", "failure"][1] >= 1
        ready = await get(port, "/readyz")
        assert ready.status == 503
        assert b"not_registered: the nameserver does not list this broker" in ready.body
        # Else the broker would wait for it when it leaves.
        await silent[0].aclose()


async def test_no_page_shows_a_secret_and_the_hash_of_the_settings_does_not_depend_on_one(
    tmp_path: Path,
) -> None:
    secrets = {setting.key: SECRET for setting in SCHEMA if setting.secret}
    assert "haSecret" in secrets

    def hashed(settings: dict[str, str]) -> str:
        metrics = BrokerMetrics(live_config(tmp_path, settings, port=10911), LogEvents())
        text = metrics.registry.scrape()[1].decode()
        assert SECRET not in text + str(metrics.pages.describe()) + str(metrics.pages.unready())
        [found] = re.findall(r'config_hash="(\w+)"', text)
        return str(found)

    usual = hashed({})
    assert hashed(secrets) == usual
    assert hashed({"sendThreadPoolQueueCapacity": "99"}) != usual
