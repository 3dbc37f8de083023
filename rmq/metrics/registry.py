"""All that a process shows: its collectors, the process itself, and the scrapes.

The registry belongs to one server. Nothing is registered with the one that `prometheus_client`
keeps for all of a process: two brokers of a test would share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from rmq.metrics.exposition import Text
from rmq.metrics.families import Catalogue, Prepares, Refreshes, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from rmq.metrics.families import Collector

CATALOGUE: Final = Catalogue()

SCRAPES: Final = CATALOGUE.counter("rocketmq_scrapes_total", "Scrapes that were answered.")
SCRAPE_ERRORS: Final = CATALOGUE.counter("rocketmq_scrape_errors_total", "Scrapes that failed.")
SCRAPE_DURATION: Final = CATALOGUE.gauge(
    "rocketmq_scrape_duration_seconds", "How long the last scrape took to be put together."
)


@final
class Registry:
    """The collectors of one server.

    `collectors` is asked at every scrape: a broker whose store is opened again has others then.
    """

    def __init__(
        self,
        collectors: Callable[[], Iterable[Collector]] = tuple,
        constant_labels: Mapping[str, str] = {},
    ) -> None:
        self.scrapes = ScrapeMetrics()
        self._collectors = collectors
        self._constant = dict(constant_labels)
        self._process = ProcessMetrics()

    def begin(self, query: Mapping[str, str] = {}) -> Scrape:
        """Begin a scrape; `query` is what it asks for besides."""
        collectors = (*self._collectors(), self._process, self.scrapes)
        return Scrape(collectors, self._process, Sheet(self._constant, query))

    def scrape(self, accept: str = "", query: Mapping[str, str] = {}) -> tuple[str, bytes]:
        """Return content type and text of a scrape that is put together in one step."""
        scrape = self.begin(query)
        for _ in scrape.preparing():
            pass
        scrape.refresh()
        for _ in scrape.writing(accept):
            pass
        return scrape.content_type, b"".join(scrape.pieces)


@final
class Scrape:
    """One scrape: `preparing`, then `refresh`, then `writing`."""

    def __init__(
        self, collectors: Sequence[Collector], process: ProcessMetrics, sheet: Sheet
    ) -> None:
        self._collectors = collectors
        self._process = process
        self.sheet = sheet
        self.content_type = ""
        self.pieces: list[bytes] = []
        """The text."""

    def preparing(self) -> Generator[None, None, None]:
        """Look at what is to be shown, in steps of less than a millisecond."""
        for collector in self._collectors:
            if isinstance(collector, Prepares):
                yield from collector.prepare(self.sheet)

    def refresh(self) -> None:
        """Read what takes a while to read. Blocks: call it in a thread."""
        for collector in self._collectors:
            if isinstance(collector, Refreshes):
                collector.refresh()

    def writing(self, accept: str) -> Generator[None, None, None]:
        """Make the text for a client that accepts these types, in steps of that length."""
        for collector in self._collectors:
            yield from collector.collect(self.sheet)
        text = Text(accept)
        yield from text.add_sheet(self.sheet)
        text.add_metrics(self._process.metrics)
        self.content_type, self.pieces = text.content_type, text.finish()

    def metrics(self) -> list[Metric]:
        """Return all as `prometheus_client` has it, after `writing`."""
        return [*self.sheet.metrics(), *self._process.metrics]


@final
class ScrapeMetrics:
    """Counts and durations of the scrapes before this one."""

    catalogue: Final = CATALOGUE

    def __init__(self) -> None:
        self.answered = 0
        self.failed = 0
        self.duration_s: float | None = None

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        sheet.put(SCRAPES, self.answered)
        sheet.put(SCRAPE_ERRORS, self.failed)
        if self.duration_s is not None:
            sheet.put(SCRAPE_DURATION, self.duration_s)
        yield


@final
class ProcessMetrics:
    """CPU, memory and files of the process, and which Python it is, as all Prometheus clients of
    Python have them.

    To count open files the kernel lists them, 1.6 ms for 1,000 connections: not in the event loop.
    """

    def __init__(self) -> None:
        # A registry of its own, for they would take that of the library for none.
        own = CollectorRegistry(auto_describe=False)
        self._python = PlatformCollector(registry=own)
        self._process = ProcessCollector(registry=own)
        self.metrics: list[Metric] = []
        """What was read last."""

    catalogue: Final = Catalogue()
    """Nothing of ours."""

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put nothing into the sheet: what the library collects, it also writes."""
        return iter(())

    def refresh(self) -> None:
        """Read the numbers again. Blocks."""
        self.metrics = [*self._process.collect(), *self._python.collect()]
