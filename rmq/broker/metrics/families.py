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
from typing import TYPE_CHECKING, final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric


@dataclass(frozen=True, slots=True)
class Family:
    """A metric by its name in a scrape, and the labels that tell its samples apart."""

    name: str
    help: str
    is_counter: bool
    labels: tuple[str, ...]

    def metric(
        self, constant_labels: Iterable[str] = ()
    ) -> CounterMetricFamily | GaugeMetricFamily:
        """Return it without samples."""
        make = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return make(self.name, self.help, labels=(*constant_labels, *self.labels))


@final
class Catalogue:
    """The families one collector has, in the order they are shown."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def gauge(self, name: str, help: str, *labels: str) -> Family:
        """Declare a value that goes up and down."""
        return self._declare(Family(name, help, False, labels))

    def counter(self, name: str, help: str, *labels: str) -> Family:
        """Declare a number that only grows, but for restarts."""
        assert name.endswith("_total"), name
        return self._declare(Family(name, help, True, labels))

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
        self._metrics: dict[Family, CounterMetricFamily | GaugeMetricFamily] = {}

    def put(self, family: Family, value: float, *labels: str) -> None:
        """Add a sample."""
        metric = self._metrics.get(family)
        if metric is None:
            metric = self._metrics[family] = family.metric(self._names)
        metric.add_metric((*self._values, *labels), value)

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
