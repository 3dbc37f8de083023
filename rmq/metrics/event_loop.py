"""Metrics of the event loop: how long requests wait because another step takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.metrics.families import Catalogue, Sheet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.event_loop.lag import LoopLag

CATALOGUE: Final = Catalogue()

LOOP_LAG: Final = CATALOGUE.histogram(
    "rocketmq_event_loop_lag_seconds",
    "How late the event loop ran what was due, measured ten times a second.",
)
LOOP_LAG_MAX: Final = CATALOGUE.gauge(
    "rocketmq_event_loop_lag_max_seconds", "The latest it was since the start."
)


@final
class LoopMetrics:
    """Shows what a `LoopLag` has counted."""

    catalogue: Final = CATALOGUE

    def __init__(self, lag: LoopLag) -> None:
        self._lag = lag

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        sheet.put_histogram(LOOP_LAG, self._lag.histogram)
        sheet.put(LOOP_LAG_MAX, self._lag.max_s)
        yield
