"""Families of metrics: declared once in a catalogue, filled for every scrape.

    CATALOGUE = Catalogue()
    EPOCH = CATALOGUE.gauge("rocketmq_broker_epoch", "Epoch of the log.")

    sheet = Sheet({"cluster": "DefaultCluster"})
    sheet.put(EPOCH, 3)

Samples are made at scrape time, from numbers that are there anyway: what is counted on a hot path
costs an integer there, nothing more. A family without samples is not shown.
`rmq.metrics.exposition` makes text of a sheet; `Sheet.metrics` returns it as objects of
`prometheus_client`, which are ten times as slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, final, runtime_checkable

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric


_MAKERS: Final[dict[str, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}

Labels: TypeAlias = tuple[str, ...]
"""The values of a family's labels, in their order."""


class Buckets(Protocol):
    """A histogram, such as `rmq.counting.histogram.Histogram`."""

    @property
    def sum(self) -> float: ...

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many values were at most so large: cumulative, by bound."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A metric by its name in a scrape, and the labels that tell its samples apart."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]


@final
class Catalogue:
    """The families one collector has, in the order they are documented."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def gauge(self, name: str, help: str, *labels: str) -> Family:
        """Declare a value that goes up and down."""
        return self._declare(Family(name, help, "gauge", labels))

    def counter(self, name: str, help: str, *labels: str) -> Family:
        """Declare a number that only grows, but for restarts."""
        assert name.endswith("_total"), name
        return self._declare(Family(name, help, "counter", labels))

    def histogram(self, name: str, help: str, *labels: str) -> Family:
        """Declare how often a value was at most so large, for several bounds."""
        return self._declare(Family(name, help, "histogram", labels))

    def _declare(self, family: Family) -> Family:
        assert family.name not in self._families, family.name
        self._families[family.name] = family
        return family


@final
class Sheet:
    """The samples of one scrape."""

    def __init__(self, constant_labels: Mapping[str, str], query: Mapping[str, str] = {}) -> None:
        self.constant = dict(constant_labels)
        """Labels that all samples have."""
        self.query = dict(query)
        """What this scrape asks for besides."""
        self.rows: dict[Family, list[tuple[Labels, float]]] = {}
        self.histograms: dict[Family, list[tuple[Labels, list[tuple[str, int]], float]]] = {}

    def put(self, family: Family, value: float, *labels: str) -> None:
        """Add a sample."""
        assert len(labels) == len(family.labels), (family.name, labels)
        rows = self.rows.get(family)
        if rows is None:
            rows = self.table(family)
        # The plus makes 1 of True.
        rows.append((labels, +value))

    def table(self, family: Family) -> list[tuple[Labels, float]]:
        """Return the samples of a family, to add many: the values of its labels, and the value."""
        assert family.kind != "histogram", family.name
        return self.rows.setdefault(family, [])

    def put_histogram(self, family: Family, histogram: Buckets, *labels: str) -> None:
        """Add a histogram."""
        assert family.kind == "histogram", family.name
        assert len(labels) == len(family.labels), (family.name, labels)
        row = (labels, histogram.buckets(), histogram.sum)
        self.histograms.setdefault(family, []).append(row)

    def put_known(self, family: Family, value: int, *labels: str) -> None:
        """Add a sample unless the value is negative, which stands for one that is not known."""
        if value >= 0:
            self.put(family, value, *labels)

    def put_known_ms(self, family: Family, value_ms: int, *labels: str) -> None:
        """Add a time in milliseconds as seconds, unless it is not known."""
        if value_ms >= 0:
            self.put(family, value_ms / 1000, *labels)

    def put_state(self, family: Family, states: Iterable[str], present: str | None) -> None:
        """Add a sample per state: 1 for the present one, 0 for the others."""
        for state in states:
            self.put(family, int(state == present), state)

    def metrics(self) -> list[Metric]:
        """Return the families that have samples, as `prometheus_client` has them."""
        metrics: list[Metric] = []
        values = tuple(self.constant.values())
        for family in (*self.rows, *self.histograms):
            metric = _MAKERS[family.kind](
                family.name, family.help, labels=(*self.constant, *family.labels)
            )
            if isinstance(metric, HistogramMetricFamily):
                for labels, buckets, total in self.histograms[family]:
                    metric.add_metric((*values, *labels), buckets, total)
            else:
                for labels, value in self.rows[family]:
                    metric.add_metric((*values, *labels), value)
            metrics.append(metric)
        return metrics


class Collector(Protocol):
    """Something that has metrics to show."""

    @property
    def catalogue(self) -> Catalogue:
        """Its families."""

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet, in steps of less than a millisecond."""


@runtime_checkable
class Prepares(Protocol):
    """A collector that has much to look at first."""

    def prepare(self, sheet: Sheet) -> Iterator[None]:
        """Look at it, in steps of less than a millisecond."""


@runtime_checkable
class Refreshes(Protocol):
    """A collector that shows what takes a while to read."""

    def refresh(self) -> None:
        """Read it; in a thread, after `prepare` and before `collect`. Must not raise."""
