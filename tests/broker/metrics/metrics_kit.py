"""States of replication for tests of metrics, and a reader of scrapes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_plain

from rmq.broker.metrics.replication import HaMetrics
from rmq.ha.protocol.master import LinkCounters
from rmq.metrics.families import Prepares, Refreshes, Sheet
from rmq.metrics.registry import Registry
from rmq.metrics.server import Pages
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import HaMaster, HaSlave, HaStatusBody
from rmq.store.core import Refusal, StoreStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from rmq.metrics.families import Collector

CONSTANT: Final = {"cluster": "shop", "node_type": "broker", "node_id": "orders"}

Series = tuple[str, frozenset[tuple[str, str]]]
"""A name and its labels."""


def slave(number: int = 1, **changes: Any) -> HaSlave:  # noqa: ANN401 - those of a HaSlave
    """A slave in sync."""
    fields: dict[str, Any] = {
        "name": f"orders:{number}",
        "address": f"192.0.2.{number}:10911",
        "identity": f"{number:032x}",
        "native": True,
        "connected": True,
        "in_sync": True,
        "appended": 9_000,
        "flushed": 8_000,
        "lag_bytes": 1_000,
        "lag_ms": 250,
        "heard_ms_ago": 40,
    }
    return HaSlave(**{**fields, **changes})


def master_status(**changes: Any) -> HaStatusBody:  # noqa: ANN401 - those of a HaStatusBody
    """A master in sync mode with one slave."""
    fields: dict[str, Any] = {
        "role": "MASTER",
        "mode": "SYNC_MASTER",
        "mode_offset": 512,
        "epoch": 7,
        "cluster_name": "shop",
        "broker_name": "orders",
        "broker_id": 0,
        "address": "192.0.2.9:10911",
        "state": "writable",
        "begin": 100,
        "end": 10_000,
        "flushed": 9_500,
        "replicated": 9_000,
        "visible": 10_000,
        "needed": 1,
        "minimum": 1,
        "expected": 2,
        "in_sync": ("orders:1",),
        "waiting": 3,
        "counters": dataclasses.asdict(LinkCounters()),
        "slaves": (slave(),),
    }
    return HaStatusBody(**{**fields, **changes})


def slave_status(state: str = "streaming", **of_master: Any) -> HaStatusBody:  # noqa: ANN401
    """A slave; the changes are those of what it knows of its master."""
    fields: dict[str, Any] = {
        "address": "192.0.2.9:10911",
        "ha_address": "192.0.2.9:10912",
        "native": True,
        "epoch": 7,
        "end": 10_000,
        "lag_bytes": 1_500,
        "lag_ms": 300,
        "heard_ms_ago": 20,
        "sync": True,
        "in_sync": True,
        "needed": 1,
        "in_sync_count": 1,
    }
    return HaStatusBody(
        role="SLAVE",
        mode="SLAVE",
        epoch=7,
        cluster_name="shop",
        broker_name="orders",
        broker_id=1,
        address="192.0.2.1:10911",
        state=state,
        begin=100,
        end=8_500,
        flushed=8_000,
        counters={"connects": 2, "received_bytes": 8_400},
        master=HaMaster(**{**fields, **of_master}),
    )


def statistics(refusal: Refusal | None = None) -> StoreStatistics:
    return StoreStatistics(
        min_offset=PhysicalOffset(100),
        written=PhysicalOffset(10_000),
        readable=PhysicalOffset(10_000),
        flushed=PhysicalOffset(9_500),
        dispatched=PhysicalOffset(9_900),
        recovery_point=PhysicalOffset(9_000),
        queues=4,
        segments=1,
        index_files=1,
        refusal=refusal,
    )


def metrics_of(
    status: HaStatusBody,
    store: StoreStatistics | None = None,
    *,
    now: Callable[[], float] = lambda: 0.0,
) -> HaMetrics:
    return HaMetrics(lambda: status, lambda: store or statistics(), now=now)


def collected(collector: Collector, query: Mapping[str, str] | None = None) -> dict[Series, float]:
    """What a collector shows; a series that is there twice is an error."""
    sheet = Sheet(CONSTANT, query or {})
    if isinstance(collector, Prepares):
        for _ in collector.prepare(sheet):
            pass
    if isinstance(collector, Refreshes):
        collector.refresh()
    for _ in collector.collect(sheet):
        pass
    return _by_series(sheet.metrics())


def pages_of(*collectors: Collector, unready: Sequence[str] = ()) -> Pages:
    """Pages that show what these collectors have, and nothing of a broker."""
    registry = Registry(lambda: collectors, CONSTANT)
    return Pages(registry=registry, unready=lambda: unready, title="a broker")


def shown(pages: Pages, accept: str = "") -> dict[Series, float]:
    """What a scrape of these pages shows, put together in one step."""
    return scraped(*pages.registry.scrape(accept))


def scraped(content_type: str, text: bytes) -> dict[Series, float]:
    """What a scrape shows, read as its content type says."""
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    read = read_openmetrics if is_openmetrics else read_plain
    return _by_series(read(text.decode()))


def _by_series(families: Any) -> dict[Series, float]:  # noqa: ANN401 - the parsers are not typed
    found: dict[Series, float] = {}
    metric: Metric
    for metric in families:
        for sample in metric.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in found, f"twice: {series}"
            found[series] = float(sample.value)
    return found


def value(found: dict[Series, float], name: str, **labels: str) -> float | None:
    """The value of a series of the broker, None if there is none."""
    return found.get((name, frozenset({**CONSTANT, **labels}.items())))


def ones(found: dict[Series, float], name: str, label: str) -> list[str]:
    """Which of the states of a family are 1; all others must be 0."""
    states = {
        dict(labels)[label]: number
        for (found_name, labels), number in found.items()
        if found_name == name
    }
    assert states
    assert set(states.values()) <= {0.0, 1.0}
    return [state for state, number in states.items() if number]
