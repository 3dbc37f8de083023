"""Families of metrics: declared once in a catalogue, filled for every scrape.

    CATALOGUE = Catalogue()
    EPOCH = CATALOGUE.gauge("rocketmq_broker_epoch", "Epoch of the log.")

    sheet = Sheet({"cluster": "DefaultCluster"})
    sheet.put(EPOCH, 3)
    sheet.metrics()

Samples are made at scrape time, from numbers that are there anyway: what is counted on a hot path
costs an integer there, nothing more. A family without samples is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric


AnyFamily: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_MAKERS: Final[dict[str, type[AnyFamily]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric by its name in a scrape, and the labels that tell its samples apart."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]

    def metric(self, constant_labels: Iterable[str] = ()) -> AnyFamily:
        """Return it without samples."""
        return _MAKERS[self.kind](self.name, self.help, labels=(*constant_labels, *self.labels))


@final
class Catalogue:
    """The families one collector has, in the order they are shown."""

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

    def __init__(self, constant_labels: Mapping[str, str]) -> None:
        self._names = tuple(constant_labels)
        self._values = tuple(constant_labels.values())
        self._metrics: dict[Family, AnyFamily] = {}

    def put(self, family: Family, value: float, *labels: str) -> None:
        """Add a sample."""
        metric = self._metric(family)
        assert not isinstance(metric, HistogramMetricFamily), family.name
        metric.add_metric((*self._values, *labels), value)

    def put_histogram(
        self, family: Family, buckets: Sequence[tuple[str, float]], total: float, *labels: str
    ) -> None:
        """Add a histogram: its cumulative buckets by upper bound, and the sum of all values."""
        metric = self._metric(family)
        assert isinstance(metric, HistogramMetricFamily), family.name
        metric.add_metric((*self._values, *labels), buckets, total)

    def _metric(self, family: Family) -> AnyFamily:
        metric = self._metrics.get(family)
        if metric is None:
            metric = self._metrics[family] = family.metric(self._names)
        return metric

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
            self.put(family, state == present, state)

    def metrics(self) -> list[Metric]:
        return list(self._metrics.values())
