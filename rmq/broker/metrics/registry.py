"""All that a broker shows: its own collectors, the process, and the scrapes themselves.

The registry belongs to one broker. Nothing is registered with the one that `prometheus_client`
keeps for all of a process: two brokers of a test would share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

from rmq.broker.metrics.families import Catalogue, Sheet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

CATALOGUE: Final = Catalogue()

SCRAPES: Final = CATALOGUE.counter("rocketmq_scrapes_total", "Scrapes that were answered.")
SCRAPE_ERRORS: Final = CATALOGUE.counter(
    "rocketmq_scrape_errors_total", "Scrapes that failed in the broker."
)
SCRAPE_DURATION: Final = CATALOGUE.gauge(
    "rocketmq_scrape_duration_seconds", "How long the last scrape took to be put together."
)


@final
class BrokerRegistry(CollectorRegistry):
    """The collectors of one broker. Names that two of them claim are refused."""

    def __init__(self, *collectors: Collector) -> None:
        super().__init__(auto_describe=False)
        self.scrapes = ScrapeMetrics()
        self._process = ProcessMetrics()
        for collector in (*collectors, self._process, self.scrapes):
            self.register(collector)

    def refresh(self) -> None:
        """Read what takes a while to read. Blocks: call it in a thread before a scrape."""
        self._process.refresh()


@final
class ScrapeMetrics:
    """Counts and durations of the scrapes before this one."""

    def __init__(self) -> None:
        self.answered = 0
        self.failed = 0
        self.duration_s: float | None = None

    def describe(self) -> Iterable[Metric]:
        """Return all families, without samples."""
        return [family.metric() for family in CATALOGUE]

    def collect(self) -> Iterable[Metric]:
        """Return the families that have samples now."""
        sheet = Sheet({})
        sheet.put(SCRAPES, self.answered)
        sheet.put(SCRAPE_ERRORS, self.failed)
        if self.duration_s is not None:
            sheet.put(SCRAPE_DURATION, self.duration_s)
        return sheet.metrics()


@final
class ProcessMetrics:
    """CPU, memory and files of the process, under the names all Prometheus clients use.

    To count open files the kernel lists them, 1.6 ms for 1,000 connections: not in the event loop.
    """

    def __init__(self) -> None:
        self._collector = ProcessCollector(registry=None)
        self._metrics: list[Metric] = []

    def refresh(self) -> None:
        """Read the numbers again; blocks."""
        self._metrics = list(self._collector.collect())

    def describe(self) -> Iterable[Metric]:
        """Return all families; their samples do not matter."""
        return self._collector.collect()

    def collect(self) -> Iterable[Metric]:
        """Return what was read last."""
        return self._metrics
