"""Metrics of a process besides those that all Prometheus clients have: its log and its threads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.metrics.families import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmq.metrics.families import Sheet

CATALOGUE: Final = Catalogue()

LOG_EVENTS: Final = CATALOGUE.counter(
    "rocketmq_log_events_total", "Lines of the log, by their level.", "level"
)
THREADS_BUSY: Final = CATALOGUE.gauge(
    "rocketmq_worker_threads_busy", "Threads that do something that blocks.", "pool"
)
THREADS_LIMIT: Final = CATALOGUE.gauge(
    "rocketmq_worker_threads_limit", "How many of them there may be; more has to wait.", "pool"
)

LEVELS: Final = ("debug", "info", "warning", "error", "critical")


@final
class LogEvents(logging.Handler):
    """Counts the lines of the log, while it is attached to the logger of this package."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(LEVELS, 0)

    def __enter__(self) -> LogEvents:
        logging.getLogger("rmq").addHandler(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger("rmq").removeHandler(self)

    def handle(self, record: logging.LogRecord) -> bool:
        """Count a line. Without the lock of handlers: lines of two threads may count once."""
        number = min(max(record.levelno // 10, 1), len(LEVELS))
        self.counts[LEVELS[number - 1]] += 1
        return True


@final
class LogMetrics:
    """Shows how many lines were logged, and how many threads work."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        events: LogEvents,
        threads: Callable[[], Mapping[str, tuple[float, float]]],
    ) -> None:
        """`threads` returns, by the name of the pool, how many are busy and how many may be."""
        self._events = events
        self._threads = threads

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        for level, count in self._events.counts.items():
            sheet.put(LOG_EVENTS, count, level)
        for pool, (busy, limit) in self._threads().items():
            sheet.put(THREADS_BUSY, busy, pool)
            sheet.put(THREADS_LIMIT, limit, pool)
        yield
