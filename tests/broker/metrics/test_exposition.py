"""A registry as text: the same as in one go, but in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rmq.broker.metrics.exposition import SAMPLES_PER_STEP, exposition
from tests.broker.metrics.metrics_kit import master_status, metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
TOPICS = 1_000


class PerTopic:
    """Two families with a sample for each of many topics."""

    def collect(self) -> Iterable[Metric]:
        gauge = GaugeMetricFamily("rocketmq_lag_seconds", "A\ngauge.", labels=("topic",))
        counter = CounterMetricFamily("rocketmq_in_total", "A counter.", labels=("topic",))
        for number in range(TOPICS):
            gauge.add_metric((f"# topic {number}\n",), number / 3)
            counter.add_metric((f"topic-{number}",), number)
        return gauge, counter


def crowded() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PerTopic())
    registry.register(metrics_of(master_status()))
    # These have samples beside their values, when they were made.
    Counter("rocketmq_made_total", "Made.", ["n"], registry=registry).labels("1").inc()
    waits = Histogram("rocketmq_wait_seconds", "Waits.", ["n"], registry=registry)
    for number in range(20):
        waits.labels(str(number)).observe(number)
    return registry


@pytest.mark.parametrize("accept", ["", "*/*", OPENMETRICS, "text/plain;version=1.0.0"])
async def test_the_text_is_the_one_of_prometheus_client(accept: str) -> None:
    registry = crowded()
    encode, content_type = choose_encoder(accept)
    assert await exposition(registry, accept) == (content_type, encode(registry))


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=abc",
        "application/openmetrics-text; version=1.x.0",
        "text/plain;version=",
        "text/plain;version=" + "9" * 5_000,
        ";;;=,=;",
        "\xff" * 50,
    ],
)
async def test_types_nobody_understands_get_some_text(accept: str) -> None:
    content_type, text = await exposition(crowded(), accept)
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"rocketmq_broker_epoch{" in text


async def test_other_tasks_run_while_the_text_is_made() -> None:
    registry = CollectorRegistry()
    registry.register(PerTopic())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await exposition(registry, "")
        nursery.cancel_scope.cancel()
    assert turns >= 2 * TOPICS / SAMPLES_PER_STEP - 1
