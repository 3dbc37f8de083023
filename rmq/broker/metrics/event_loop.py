"""Metrics of the event loop: how long requests wait because another step takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.broker.metrics.families import Catalogue, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.metrics_core import Metric

    from rmq.remoting.event_loop.lag import LoopLag

CATALOGUE: Final = Catalogue()

LOOP_LAG: Final = CATALOGUE.histogram(
    "rocketmq_event_loop_lag_seconds",
    "How late the event loop ran what was due, measured ten times a second.",
)
LOOP_LAG_MAX: Final = CATALOGUE.gauge(
    "rocketmq_event_loop_lag_max_seconds", "The latest it was since the broker started."
)


@final
class LoopMetrics:
    """Collects what a `LoopLag` has counted; None while there is no broker."""

    def __init__(self, lag: Callable[[], LoopLag | None]) -> None:
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        """Return all families, without samples."""
        return [family.metric() for family in CATALOGUE]

    def collect(self) -> Iterable[Metric]:
        """Return the families that have samples now."""
        sheet = Sheet({})
        lag = self._lag()
        if lag is not None:
            sheet.put_histogram(LOOP_LAG, lag.buckets(), lag.sum_s)
            sheet.put(LOOP_LAG_MAX, lag.max_s)
        return sheet.metrics()
