"""The metrics of a nameserver: what it lists, and who registers and asks. Pure.

How requests were answered is counted for every code; registrations and routes are read from that.
Names and labels are in docs/metrics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import rmq
from rmq.metrics.event_loop import LoopMetrics
from rmq.metrics.families import Catalogue
from rmq.metrics.process import LogMetrics
from rmq.metrics.registry import Registry
from rmq.metrics.requests import RequestMetrics
from rmq.metrics.server import Pages
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from rmq.metrics.families import Sheet
    from rmq.metrics.process import LogEvents
    from rmq.nameserver.routes import RouteTable
    from rmq.remoting.event_loop.lag import LoopLag
    from rmq.remoting.server import ServerStatistics

CATALOGUE: Final = Catalogue()
_gauge: Final = CATALOGUE.gauge
_counter: Final = CATALOGUE.counter

INFO: Final = _gauge(
    "rocketmq_namesrv_info", "1, with what this nameserver is.", "version", "address"
)
READY: Final = _gauge("rocketmq_namesrv_ready", "Whether the nameserver answers, as /readyz says.")
BROKERS: Final = _gauge("rocketmq_namesrv_brokers", "Brokers that are registered, with slaves.")
BROKER_NAMES: Final = _gauge("rocketmq_namesrv_broker_names", "Broker names that are listed.")
CLUSTERS: Final = _gauge("rocketmq_namesrv_clusters", "Clusters that are listed.")
TOPICS: Final = _gauge("rocketmq_namesrv_topics", "Topics that are listed.")
KV_ENTRIES: Final = _gauge("rocketmq_namesrv_kv_entries", "Entries of the KV config.")
REGISTERED: Final = _gauge(
    "rocketmq_namesrv_broker_registered",
    "1 for each broker that is registered, up to a bound.",
    "cluster",
    "broker",
    "broker_id",
)
REGISTRATIONS: Final = _counter(
    "rocketmq_namesrv_registrations_total", "Registrations by brokers.", "result"
)
REMOVALS: Final = _counter(
    "rocketmq_namesrv_broker_removals_total", "Brokers that were removed.", "reason"
)
ROUTES: Final = _counter(
    "rocketmq_namesrv_route_requests_total", "Requests for the route of a topic.", "result"
)

REGISTERED_MAX: Final = 200
"""How many brokers have series: any host that may register can give any name."""
RESULTS: Final = ("accepted", "refused")
FOUND: Final = ("found", "not_found")
REASONS: Final = ("unregistered", "expired", "connection_lost")


@final
class NameserverMetrics:
    """Shows what a nameserver lists and was asked."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        routes: RouteTable[Any],
        kv_entries: Callable[[], int],
        server: Callable[[], ServerStatistics],
        address: Callable[[], str],
        *,
        is_ready: Callable[[], bool],
    ) -> None:
        self._routes = routes
        self._kv_entries = kv_entries
        self._server = server
        self._address = address
        self._is_ready = is_ready

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        tables = self._routes.tables
        sheet.put(INFO, 1, rmq.__version__, self._address())
        sheet.put(READY, self._is_ready())
        sheet.put(BROKERS, self._routes.address_count)
        sheet.put(BROKER_NAMES, len(tables.brokers))
        sheet.put(CLUSTERS, len(tables.clusters))
        sheet.put(TOPICS, self._routes.topic_count)
        sheet.put(KV_ENTRIES, self._kv_entries())
        self._put_brokers(sheet)
        yield
        counts = self._server().counts
        for family, code, results in (
            (REGISTRATIONS, RequestCode.REGISTER_BROKER, RESULTS),
            (ROUTES, RequestCode.GET_ROUTEINFO_BY_TOPIC, FOUND),
        ):
            answers = counts[code].by_code()
            well = answers.get(ResponseCode.SUCCESS, 0)
            sheet.put(family, well, results[0])
            sheet.put(family, sum(answers.values()) - well, results[1])
        for reason in REASONS:
            sheet.put(REMOVALS, self._routes.removals.get(reason, 0), reason)
        yield

    def _put_brokers(self, sheet: Sheet) -> None:
        shown = 0
        for broker in list(self._routes.tables.brokers.values()):
            for broker_id in sorted(broker.alive()):
                if shown >= REGISTERED_MAX:
                    return
                shown += 1
                sheet.put(REGISTERED, 1, broker.cluster, broker.name, str(broker_id))


def nameserver_pages(
    metrics: NameserverMetrics,
    server: Callable[[], ServerStatistics],
    lag: LoopLag,
    events: LogEvents,
    threads: Callable[[], Mapping[str, tuple[float, float]]],
    describe: Callable[[], Mapping[str, str]],
    unready: Callable[[], list[str]],
) -> Pages:
    """Return what a nameserver shows."""
    collectors = (
        metrics,
        RequestMetrics(lambda: {"main": server()}),
        LoopMetrics(lag),
        LogMetrics(events, threads),
    )
    registry = Registry(lambda: collectors, {"node_type": "namesrv"})
    return Pages(registry=registry, unready=unready, title="rmq nameserver", describe=describe)
