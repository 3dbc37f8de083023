"""What clients ask of the route table, read in steps. Pure.

Tables may change between two steps. Each broker, and each topic of a list, is told as it was at one
moment between the first step and the last; what was gone before the first step is not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, final

from rmq.model.java import hash_map_order, hash_map_order_in_steps
from rmq.nameserver.registration import C
from rmq.nameserver.table_entries import ENTRIES_PER_STEP
from rmq.remoting.bodies.routes import BrokerData, ClusterInfo, QueueData, TopicRouteData

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from rmq.nameserver.table_entries import Broker, Live, Tables


@final
class RouteViews(Generic[C]):
    """Reads the tables of a nameserver."""

    def __init__(self, tables: Tables[C]) -> None:
        self._tables = tables

    def route(
        self, topic: str, order_topic_conf: str | None = None
    ) -> Generator[None, None, TopicRouteData | None]:
        """Return the route of a topic; None when no broker has it."""
        by_broker = self._tables.topics.get(topic)
        if by_broker is None:
            return None
        brokers = dict(by_broker)
        names: Iterable[str]
        # The order of Java's maps, so that an answer has the bytes that a stock nameserver sends.
        if len(brokers) <= ENTRIES_PER_STEP // 4:
            names = hash_map_order([name for name, broker in brokers.items() if broker.is_alive])
        else:
            alive: list[str] = []
            for number, (name, broker) in enumerate(brokers.items(), start=1):
                if broker.is_alive:
                    alive.append(name)
                if number % ENTRIES_PER_STEP == 0:
                    yield
            names = yield from hash_map_order_in_steps(alive)
        queue_datas: list[QueueData] = []
        broker_datas: list[BrokerData] = []
        filter_servers: dict[str, tuple[str, ...]] = {}
        entries = 0
        for name in names:
            broker = brokers[name]
            lives = broker.alive()
            queues = broker.queues.get(topic)
            if lives and queues is not None:
                queue_datas.append(queues)
                broker_datas.append(_broker_data(broker, lives))
                for live in lives.values():
                    if live.filter_servers:
                        filter_servers[live.address] = live.filter_servers
                        entries += len(live.filter_servers)
            entries += 4 + len(lives)
            if entries >= ENTRIES_PER_STEP:
                entries = 0
                yield
        if not queue_datas:
            return None
        return TopicRouteData(
            order_topic_conf=order_topic_conf,
            queue_datas=tuple(queue_datas),
            broker_datas=tuple(broker_datas),
            filter_server_table=filter_servers,
        )

    def cluster_info(self) -> Generator[None, None, ClusterInfo]:
        """All brokers and clusters."""
        clusters: dict[str, list[str]] = {cluster: [] for cluster in self._tables.clusters}
        brokers: dict[str, BrokerData] = {}
        entries = 0
        # Who is a member is told by the brokers: each cluster names only brokers that are listed.
        for broker in list(self._tables.brokers.values()):
            lives = broker.alive()
            if lives:
                brokers[broker.name] = _broker_data(broker, lives)
                for cluster in broker.clusters:
                    clusters.setdefault(cluster, []).append(broker.name)
            entries += 4 + len(broker.lives) + len(broker.clusters)
            if entries >= ENTRIES_PER_STEP:
                entries = 0
                yield
        return ClusterInfo(
            broker_addr_table=brokers,
            cluster_addr_table={
                cluster: frozenset(names) for cluster, names in clusters.items() if names
            },
        )

    def topics(self) -> Generator[None, None, list[str]]:
        """The names of all topics."""
        return self._topics_where()

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """The names of the topics that a broker of the cluster has; none for an unknown one."""
        return self._topics_where(cluster)

    def topics_flagged(
        self, *, set_bits: int, clear_bits: int = 0
    ) -> Generator[None, None, list[str]]:
        """The names of topics by the bits of their flag, of which one broker's decides."""
        return self._topics_where(bits=set_bits, among=set_bits | clear_bits)

    def system_topics(self) -> Generator[None, None, tuple[list[str], str | None]]:
        """The names of clusters and brokers, which are topics too, and some broker's address."""
        names: dict[str, None] = {}
        address: str | None = None
        for number, broker in enumerate(list(self._tables.brokers.values()), start=1):
            lives = broker.alive()
            if lives:
                names.update(broker.clusters)
                names[broker.name] = None
                if address is None:
                    address = lives[min(lives)].address
            if number % ENTRIES_PER_STEP == 0:
                yield
        return list(names), address

    def _topics_where(
        self, cluster: str | None = None, bits: int = 0, among: int = 0
    ) -> Generator[None, None, list[str]]:
        """The topics of which a broker that is alive, and in the cluster, has these bits."""
        found: list[str] = []
        if cluster is not None and cluster not in self._tables.clusters:
            return found
        entries = 0
        for topic in list(self._tables.topics):
            entries += 1
            for broker in self._tables.topics.get(topic, {}).values():
                entries += 1
                if broker.is_alive and (cluster is None or cluster in broker.clusters):
                    if not among or broker.queues[topic].topic_sys_flag & among == bits:
                        found.append(topic)
                    break
            if entries >= ENTRIES_PER_STEP:
                entries = 0
                yield
        return found


def _broker_data(broker: Broker[C], lives: dict[int, Live[C]]) -> BrokerData:
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.name,
        broker_addrs={broker_id: lives[broker_id].address for broker_id in sorted(lives)},
    )
