"""The tables of live brokers and topic routes, from which a nameserver answers. Pure.

Brokers register periodically, each over its own connection; registrations are kept in memory only.
A broker address is listed until it unregisters, its connection ends, or it has been silent for too
long. With the last address of a broker name, everything about the name is removed.

Rules are those of RocketMQ 4.9.8 RouteInfoManager:

- Only a master (id 0) brings topics, and only when its data version differs from the last one or
  the master is new. Topics that it no longer mentions stay.
- An address has one id under a broker name: registering with another one gives up the first.
- When a master goes and its slaves stay, so do the topics; there is just no address with id 0.
- A write permission that was wiped returns with the next change of the broker's data version.

Where the original forgets to clean up, this table does not: an address that goes is removed from
every name and id it has, a name that goes from every cluster, and a connection that ends removes
all brokers that registered over it. Unregistering removes only the given address, also when another
broker has taken over its id.

Beyond 4.9.8, our brokers register with an epoch, which counts the masters of a broker name. A
master of an earlier epoch is refused, so a replaced master does not come back; one of a later epoch
replaces the listed one, which is forgotten. Stock brokers are of epoch 0: among themselves the last
one to register wins, as in 4.9.8, also where an in-sync record of other brokers is left.

Every host can claim any epoch, so it has to be confirmed. The in-sync record that masters store in
the KV config (`record_guard`, here `recorded`) confirms it: a master of an earlier epoch than the
record's is refused even if it is the listed one, and a later one may be at most one ahead, because
its record may still be in flight. That one is believed as long as its connection lives, and not
remembered. Without a record, the latest epoch of a master is remembered with the name, the next one
may be at most one ahead, and the listed address stays whatever its epoch. A leap is refused without
fencing any broker; a master whose promotions this nameserver has missed stores its record first.

No tasks, no clock (`now` is passed in), no bytes. A connection is any hashable object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, final

import msgspec

from rmq.model.java import hash_map_order
from rmq.model.names import MASTER_ID
from rmq.model.topic_flags import (
    PERM_READ,
    PERM_WRITE,
)
from rmq.nameserver.registration import (
    C,
    Expired,
    LeapError,
    Master,
    Registered,
    RouteLimits,
    StaleEpochError,
    refuse,
)
from rmq.remoting.bodies.routes import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rmq.remoting.bodies.topics import TopicList

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.nameserver.registration import Registration
    from rmq.remoting.bodies.topics import DataVersion, TopicConfig


@dataclass(slots=True)
class _Broker:
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    epoch: int = 0
    """The latest epoch of a master that is remembered."""
    said_epoch: int = 0
    """The epoch with which the last master registered."""

    @property
    def listed_epoch(self) -> int:
        """The epoch of the listed master; 0 if there is none."""
        return self.said_epoch if MASTER_ID in self.addresses else 0


@dataclass(slots=True)
class _Live(Generic[C]):
    heard_at: float
    data_version: DataVersion
    connection: C
    ha_address: str


@final
class RouteTable(Generic[C]):
    """The tables of one nameserver."""

    def __init__(
        self,
        limits: RouteLimits | None = None,
        *,
        recorded: Callable[[str], int] = lambda _name: 0,
    ) -> None:
        """`recorded` returns the epoch of a name's in-sync record, 0 if there is none."""
        self._limits = limits or RouteLimits()
        self._recorded = recorded
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, _Live[C]] = {}
        self._addresses_of: dict[C, set[str]] = {}
        self._filter_servers: dict[str, tuple[str, ...]] = {}
        self._queue_entries = 0
        self.on_change: Callable[[str | None], None] = lambda _topic: None
        """Called with a topic whose queues have changed, or with None when brokers have."""

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @property
    def address_count(self) -> int:
        """How many brokers are alive, masters and slaves."""
        return len(self._live)

    # ---- brokers come and go ---------------------------------------------------------------------

    def register(self, said: Registration, connection: C, now: float) -> Registered:
        """Apply a registration; raise `RefusedError`, with nothing changed, for an invalid one.
        That is a `StaleEpochError` for a master that was replaced, and a `LeapError` for one whose
        epoch cannot be believed.
        """
        self._limits.check(said)
        is_master = said.broker_id == MASTER_ID
        deposed = self._deposed_by(said) if is_master else None
        brings_topics = is_master and (deposed is not None or self._is_news(said))
        self._check_room(said, brings_topics=brings_topics)
        brokers_changed = self._place(said)
        if deposed is not None:
            self._forget_if_nowhere(deposed)
        topics_changed = 0
        if brings_topics:
            topics_changed = sum(self._put_topic(said.broker_name, topic) for topic in said.topics)
        is_new = self._keep_alive(said, connection, now)
        brokers_changed |= self._put_filter_servers(said)
        if brokers_changed:
            self.on_change(None)
        epoch = self._backed_epoch(said.broker_name)
        return Registered(is_new, topics_changed, self._master_for(said), epoch, deposed)

    def unregister(self, address: str) -> bool:
        """Remove a broker that unregisters; return whether it was known."""
        return self._remove_address(address)

    def data_version(self, address: str) -> DataVersion | None:
        """The data version with which a broker last registered; None when it is not alive."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def epoch_of(self, name: str) -> int:
        """Return the latest known epoch of a name; 0 if there is none."""
        broker = self._brokers.get(name)
        return max(self._backed_epoch(name), 0 if broker is None else broker.listed_epoch)

    def heard_of(self, address: str, connection: C, now: float) -> None:
        """Note a sign of life of a broker without a registration."""
        live = self._live.get(address)
        if live is not None:
            live.heard_at = now
            self._attribute(address, live, connection)

    def connection_lost(self, connection: C) -> list[str]:
        """Remove the brokers that registered over a connection; return their addresses."""
        addresses = sorted(self._addresses_of.get(connection, ()))
        for address in addresses:
            self._remove_address(address)
        return addresses

    def expire(self, now: float, silence_s: float) -> list[Expired[C]]:
        """Remove the brokers that were silent for longer than `silence_s`."""
        silent = [
            (address, live)
            for address, live in self._live.items()
            if now - live.heard_at > silence_s
        ]
        for address, _ in silent:
            self._remove_address(address)
        return [
            Expired(
                address,
                now - live.heard_at,
                None if live.connection in self._addresses_of else live.connection,
            )
            for address, live in silent
        ]

    def _deposed_by(self, said: Registration) -> str | None:
        """Return the address of the master that a registering one replaces; None if there is none.

        Raise `StaleEpochError` if the listed one is later, `LeapError` if the epoch cannot be
        believed.
        """
        name, epoch = said.broker_name, said.epoch
        backed = self._backed_epoch(name)
        if backed and epoch > backed + 1:
            raise LeapError(said, backed)
        broker = self._brokers.get(name)
        listed = None if broker is None else broker.addresses.get(MASTER_ID)
        recorded = self._recorded(name)
        if broker is not None and listed != said.address:
            latest = max(broker.listed_epoch, 0 if recorded else broker.epoch)
            if epoch < latest:
                present = "it is gone" if listed is None else f"it is at {listed}"
                raise StaleEpochError(said, latest, f"there is one of epoch {latest}: {present}")
        if 0 < epoch < recorded:
            raise StaleEpochError(said, recorded, f"the in-sync record is of epoch {recorded}")
        if broker is None or listed == said.address or epoch <= broker.listed_epoch:
            return None
        return listed

    def _backed_epoch(self, name: str) -> int:
        """Return the latest confirmed epoch of a name; 0 if there is none."""
        recorded = self._recorded(name)
        broker = self._brokers.get(name)
        return recorded or (0 if broker is None else broker.epoch)

    def _is_news(self, said: Registration) -> bool:
        """Whether the topics of a registration are to be read at all."""
        broker = self._brokers.get(said.broker_name)
        if broker is None or said.broker_id not in broker.addresses:
            return True
        return self.data_version(said.address) != said.data_version

    def _check_room(self, said: Registration, *, brings_topics: bool) -> None:
        limits = self._limits
        if said.address not in self._live and len(self._live) >= limits.addresses_max:
            refuse(f"{limits.addresses_max} brokers are registered, the limit")
        if brings_topics:
            name = said.broker_name
            new = sum(name not in self._topics.get(topic.topic_name, ()) for topic in said.topics)
            if self._queue_entries + new > limits.queue_entries_max:
                refuse(
                    f"{new} more topics of {name}: with {self._queue_entries} known,"
                    f" the limit of {limits.queue_entries_max} would be passed"
                )

    def _place(self, said: Registration) -> bool:
        """Put an address under its broker name and id; return whether that changed anything."""
        changed = False
        members = self._clusters.setdefault(said.cluster, set())
        if said.broker_name not in members:
            members.add(said.broker_name)
            changed = True
        broker = self._brokers.get(said.broker_name)
        if broker is None:
            broker = self._brokers[said.broker_name] = _Broker(said.cluster)
        addresses = broker.addresses
        for other_id in [i for i, a in addresses.items() if a == said.address]:
            if other_id != said.broker_id:
                del addresses[other_id]
                changed = True
        if addresses.get(said.broker_id) != said.address:
            addresses[said.broker_id] = said.address
            changed = True
        if said.broker_id == MASTER_ID:
            broker.said_epoch = said.epoch
            broker.epoch = self._recorded(said.broker_name) or max(broker.epoch, said.epoch)
        return changed

    def _put_topic(self, broker_name: str, config: TopicConfig) -> bool:
        queues = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )
        by_broker = self._topics.setdefault(config.topic_name, {})
        before = by_broker.get(broker_name)
        if before == queues:
            return False
        if before is None:
            self._queue_entries += 1
        by_broker[broker_name] = queues
        self.on_change(config.topic_name)
        return True

    def _keep_alive(self, said: Registration, connection: C, now: float) -> bool:
        live = self._live.get(said.address)
        is_new = live is None
        if live is None:
            live = _Live(now, said.data_version, connection, said.ha_address)
            self._live[said.address] = live
            self._addresses_of.setdefault(connection, set()).add(said.address)
        else:
            live.heard_at = now
            live.data_version = said.data_version
            live.ha_address = said.ha_address
            self._attribute(said.address, live, connection)
        return is_new

    def _attribute(self, address: str, live: _Live[C], connection: C) -> None:
        """Attach a broker to the connection it used last: the end of an older one, perhaps minutes
        after the broker left it, does not remove the broker.
        """
        if live.connection != connection:
            self._detach(address, live)
            live.connection = connection
            self._addresses_of.setdefault(connection, set()).add(address)

    def _detach(self, address: str, live: _Live[C]) -> None:
        addresses = self._addresses_of[live.connection]
        addresses.remove(address)
        if not addresses:
            del self._addresses_of[live.connection]

    def _put_filter_servers(self, said: Registration) -> bool:
        servers = said.filter_servers
        if servers is None or self._filter_servers.get(said.address, ()) == servers:
            return False
        if servers:
            self._filter_servers[said.address] = servers
        else:
            del self._filter_servers[said.address]
        return True

    def _master_for(self, said: Registration) -> Master | None:
        address = self._brokers[said.broker_name].addresses.get(MASTER_ID)
        if said.broker_id == MASTER_ID or address is None:
            return None
        return Master(address, self._live[address].ha_address)

    def _forget_if_nowhere(self, address: str) -> None:
        """Forget a replaced master, unless it is listed under another id.

        Otherwise its data version would count as known, and it would not learn that it was
        replaced.
        """
        if not any(address in broker.addresses.values() for broker in self._brokers.values()):
            self._forget(address)

    def _forget(self, address: str) -> bool:
        live = self._live.pop(address, None)
        if live is None:
            return False
        self._detach(address, live)
        self._filter_servers.pop(address, None)
        return True

    def _remove_address(self, address: str) -> bool:
        if not self._forget(address):
            return False
        orphaned: list[str] = []
        for name, broker in self._brokers.items():
            for broker_id in [i for i, a in broker.addresses.items() if a == address]:
                del broker.addresses[broker_id]
            if not broker.addresses:
                orphaned.append(name)
        for name in orphaned:
            self._remove_broker(name)
        self.on_change(None)
        return True

    def _remove_broker(self, name: str) -> None:
        del self._brokers[name]
        for cluster in [c for c, members in self._clusters.items() if name in members]:
            self._clusters[cluster].remove(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        for topic in [t for t, by_broker in self._topics.items() if name in by_broker]:
            self._remove_queues(topic, name)

    # ---- what operators change -------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker's queues; return how many topics it has."""
        return self._set_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Give a broker's queues read and write permission; return how many topics it has."""
        return self._set_perms(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Forget a topic, everywhere or in one cluster; return whether it was known there."""
        by_broker = self._topics.get(topic, {})
        names = by_broker.keys() & self._clusters.get(cluster, ()) if cluster else set(by_broker)
        for name in names:
            self._remove_queues(topic, name)
        return bool(names)

    def _set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> int:
        count = 0
        for topic, by_broker in self._topics.items():
            queues = by_broker.get(broker_name)
            if queues is not None:
                count += 1
                perm = new_perm(queues.perm)
                if perm != queues.perm:
                    by_broker[broker_name] = msgspec.structs.replace(queues, perm=perm)
                    self.on_change(topic)
        return count

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        by_broker = self._topics[topic]
        del by_broker[broker_name]
        self._queue_entries -= 1
        if not by_broker:
            del self._topics[topic]
        self.on_change(topic)

    # ---- what clients ask ------------------------------------------------------------------------

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRouteData | None:
        """Return the route of a topic; None when no broker has it."""
        by_broker = self._topics.get(topic)
        if by_broker is None:
            return None
        # The order of Java's maps, so that an answer has the bytes that a stock nameserver sends.
        names = hash_map_order(tuple(by_broker))
        return TopicRouteData(
            order_topic_conf=order_topic_conf,
            queue_datas=tuple(by_broker[name] for name in names),
            broker_datas=tuple(self._broker_data(name) for name in names),
            filter_server_table={
                address: self._filter_servers[address]
                for name in names
                for address in self._brokers[name].addresses.values()
                if address in self._filter_servers
            },
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in self._brokers},
            cluster_addr_table={
                cluster: frozenset(members) for cluster, members in self._clusters.items()
            },
        )

    def topics(self) -> TopicList:
        """The names of all topics."""
        return TopicList(topic_list=frozenset(self._topics))

    def has_cluster(self, cluster: str) -> bool:
        return cluster in self._clusters

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The names of the topics that a broker of the cluster has; none for an unknown one."""
        members = self._clusters.get(cluster, set())
        return TopicList(
            topic_list=frozenset(
                topic
                for topic, by_broker in self._topics.items()
                if not members.isdisjoint(by_broker)
            )
        )

    def system_topics(self) -> TopicList:
        """The names of clusters and brokers, which are topics too, and some broker's address."""
        names: set[str] = set(self._clusters).union(*self._clusters.values())
        address: str | None = None
        for broker in self._brokers.values():
            address = broker.addresses[min(broker.addresses)]
            break
        return TopicList(topic_list=frozenset(names), broker_addr=address)

    def topics_flagged(self, *, set_bits: int, clear_bits: int = 0) -> TopicList:
        """The names of topics by the bits of their flag, of which one broker's decides."""
        return TopicList(
            topic_list=frozenset(
                topic
                for topic, by_broker in self._topics.items()
                if _flag_of(by_broker) & (set_bits | clear_bits) == set_bits
            )
        )

    def _broker_data(self, name: str) -> BrokerData:
        broker = self._brokers[name]
        return BrokerData(
            cluster=broker.cluster,
            broker_name=name,
            broker_addrs=dict(sorted(broker.addresses.items())),
        )


def _flag_of(by_broker: Mapping[str, QueueData]) -> int:
    return next(iter(by_broker.values())).topic_sys_flag
