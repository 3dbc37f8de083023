"""What a broker shows, put together: its collectors, and the pages of its metrics port.

The port is open before the store is: a recovery can take minutes, and a probe or a scrape must get
its answer meanwhile. So the pages belong to the process, and ask for the broker that is present.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

import rmq
from rmq.broker.config import BrokerRole
from rmq.broker.metrics.ages import StoreTimes
from rmq.broker.metrics.clients import ClientMetrics
from rmq.broker.metrics.consumers import ConsumerMetrics, Progress
from rmq.broker.metrics.names import Names
from rmq.broker.metrics.node import NodeMetrics, ReadyMetrics
from rmq.broker.metrics.pending import PendingMetrics
from rmq.broker.metrics.readiness import OPENING, why_unready
from rmq.broker.metrics.replication import HaMetrics
from rmq.broker.metrics.storage import StorageMetrics
from rmq.broker.metrics.traffic import TrafficMetrics
from rmq.metrics.event_loop import LoopMetrics
from rmq.metrics.process import LogEvents, LogMetrics
from rmq.metrics.registry import Registry
from rmq.metrics.requests import RequestMetrics
from rmq.metrics.server import Pages
from rmq.model.offsets import QueueOffset
from rmq.store.reader.store_times import entry_place, file_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.broker.broker import Broker
    from rmq.broker.config import LiveConfig
    from rmq.broker.metrics.ages import Place
    from rmq.broker.metrics.readiness import Unready
    from rmq.metrics.families import Collector
    from rmq.store.reader.store_times import FilePart
    from rmq.store.store import MessageStore


@final
class BrokerMetrics:
    """The pages of one process, whose broker may be another one after its store was opened again.

    `log_events` counts for as long as the process runs.
    """

    def __init__(self, live: LiveConfig, log_events: LogEvents) -> None:
        self._live = live
        self._present: Broker | None = None
        self._collectors: list[Collector] = []
        self._own: list[Collector] = [
            ReadyMetrics(live, self.why_unready),
            LogMetrics(log_events, self._threads),
        ]
        config = live.current
        constant = {
            "cluster": config.cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
        }
        self.registry = Registry(lambda: [*self._own, *self._collectors], constant)
        self.pages = Pages(
            registry=self.registry,
            unready=lambda: [str(reason) for reason in self.why_unready()],
            title=f"rmq broker {config.broker_name}",
            describe=self._describe,
        )

    def show(self, broker: Broker | None, now_ms: Callable[[], int]) -> None:
        """Show this broker from now on; None: the store is closed."""
        self._present = broker
        self._collectors = [] if broker is None else broker_collectors(broker, now_ms)

    def why_unready(self) -> list[Unready]:
        """Return why the broker does not do what it is there for."""
        broker = self._present
        if broker is None:
            return [OPENING]
        return why_unready(
            broker.role_change.status(),
            broker.store.refusal,
            is_stopping=broker.is_stopping,
            nameservers=len(self._live.current.namesrv_addrs),
            registered_at=len(broker.registration.registered_at),
        )

    def _threads(self) -> Mapping[str, tuple[float, float]]:
        limiters = {"default": trio.to_thread.current_default_thread_limiter()}
        if self._present is not None:
            limiters["store"] = self._present.store.threads
        return {
            pool: (limiter.borrowed_tokens, limiter.total_tokens)
            for pool, limiter in limiters.items()
        }

    def _describe(self) -> dict[str, str]:
        config = self._live.current
        return {
            "cluster": config.cluster_name,
            "broker": f"{config.broker_name}, id {config.broker_id}",
            "role": config.role.value,
            "address": config.address,
            "version": rmq.__version__,
        }


def broker_collectors(broker: Broker, now_ms: Callable[[], int]) -> list[Collector]:
    """Return the collectors of a running broker."""
    live, store, stats = broker.live, broker.store, broker.stats
    names = Names(broker.topics, broker.groups)

    def is_master() -> bool:
        return live.current.role is not BrokerRole.SLAVE

    return [
        HaMetrics(broker.role_change.status, store.statistics),
        NodeMetrics(live, broker.topics, broker.groups, broker.registration, broker.metadata),
        TrafficMetrics(
            stats, names, lambda: [broker.server.statistics(), broker.vip_server.statistics()]
        ),
        ConsumerMetrics(
            Progress(broker.offsets, broker.topics, store.queues, stats),
            names,
            store_times(store),
            is_master=is_master,
            now_ms=now_ms,
            queue_groups=lambda: live.current.metrics_queue_groups,
        ),
        ClientMetrics(broker.clients, lambda: len(broker.pulls.holds), is_master=is_master),
        StorageMetrics(store, stats.store, now_ms=now_ms),
        PendingMetrics(
            store.queues,
            broker.offsets,
            broker.delay.progress,
            lambda: len(store.config.delay_levels_ms),
            stats.transactions,
            names,
            is_master=is_master,
        ),
        RequestMetrics(
            lambda: {"main": broker.server.statistics(), "vip": broker.vip_server.statistics()}
        ),
        LoopMetrics(broker.loop_lag),
    ]


def store_times(store: MessageStore) -> StoreTimes:
    """Return what looks up when messages of a store were stored."""

    def queue_file(place: Place) -> FilePart | None:
        topic, queue_id, offset = place
        queue = store.queues.get(topic, queue_id)
        return None if queue is None else entry_place(queue, QueueOffset(offset))

    return StoreTimes(queue_file, lambda: file_parts(store.log.segments))
