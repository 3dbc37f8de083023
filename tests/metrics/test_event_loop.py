"""The lag of the event loop as a histogram of Prometheus, and of a broker that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import wait_all_tasks_blocked

from rmq.metrics.event_loop import LoopMetrics
from rmq.remoting.event_loop.lag import LoopLag
from tests.broker.broker_kit import live_broker, live_config
from tests.broker.metrics.metrics_kit import collected, value

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

NAME = "rocketmq_event_loop_lag_seconds"


def test_the_histogram_is_shown_with_all_its_buckets() -> None:
    lag = LoopLag()
    for lag_s in (0.0005, 0.03, 0.03, 20.0):
        lag.note(lag_s, 0.0)
    found = collected(LoopMetrics(lag))

    def bucket(bound: str) -> float | None:
        return value(found, f"{NAME}_bucket", le=bound)

    assert (bucket("0.001"), bucket("0.02"), bucket("0.05"), bucket("10.0")) == (1, 1, 3, 3)
    assert bucket("+Inf") == value(found, f"{NAME}_count") == 4
    assert value(found, f"{NAME}_sum") == 20.0605
    assert value(found, "rocketmq_event_loop_lag_max_seconds") == 20


async def test_a_broker_measures_always(tmp_path: Path, mock_clock: MockClock) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        lag = broker.broker.loop_lag
        assert lag.histogram.count == 0
        for _ in range(3):
            mock_clock.jump(0.1)
            await wait_all_tasks_blocked(0.001)
        assert lag.histogram.count == 3
