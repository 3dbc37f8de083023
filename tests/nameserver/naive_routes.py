"""The rules of the route table once more, as sets of facts and without a thought for speed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmq.nameserver.registration import Registration
    from rmq.remoting.bodies.topics import DataVersion


class Queues(NamedTuple):
    """What a topic has on a broker."""

    read: int
    write: int
    perm: int
    flag: int


class Alive(NamedTuple):
    """A broker that was heard of."""

    at: float
    version: DataVersion
    connection: str
    ha_address: str


@dataclass
class NaiveRoutes:
    """Facts about brokers and topics."""

    alive: dict[str, Alive] = field(default_factory=dict)
    places: set[tuple[str, int, str]] = field(default_factory=set)
    """Broker name, id, address."""
    members: set[tuple[str, str]] = field(default_factory=set)
    """Cluster, broker name."""
    first_cluster: dict[str, str] = field(default_factory=dict)
    queues: dict[tuple[str, str], Queues] = field(default_factory=dict)
    """By topic and broker name."""
    filter_servers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    epochs: dict[str, set[int]] = field(default_factory=dict)
    """Those of the masters of a broker name that last; 0 is a stock one's."""
    said: dict[str, int] = field(default_factory=dict)
    """The epoch of the last master of a broker name."""
    records: dict[str, int] = field(default_factory=dict)
    """Epochs of in-sync records by broker name."""

    def epoch(self, name: str) -> int:
        if name in self.records:
            return self.records[name]
        return max(self.epochs.get(name, ()), default=0)

    def master(self, name: str) -> str | None:
        return next((place[2] for place in self.places if place[:2] == (name, 0)), None)

    def listed_epoch(self, name: str) -> int:
        return 0 if self.master(name) is None else self.said[name]

    def leaps(self, said: Registration) -> bool:
        """Whether a registration is of an epoch that nothing backs."""
        return said.broker_id == 0 and 0 < self.epoch(said.broker_name) < said.epoch - 1

    def stale_by(self, said: Registration) -> int | None:
        """The later epoch, for a registration of a master whose time is over."""
        name = said.broker_name
        if said.broker_id != 0:
            return None
        later = [self.records.get(name, 0)] if said.epoch else []
        if self.master(name) != said.address:
            # What is listed counts first.
            later.insert(0, self.listed_epoch(name))
            if name not in self.records:
                later.insert(0, self.epoch(name))
        return next((epoch for epoch in later if epoch > said.epoch), None)

    def deposes(self, said: Registration) -> str | None:
        """The master whose place is taken because its epoch is over."""
        master = self.master(said.broker_name)
        if said.broker_id != 0 or master == said.address:
            return None
        return master if said.epoch > self.listed_epoch(said.broker_name) else None

    def register(self, said: Registration, connection: str, now: float) -> tuple[str, str] | None:
        name, broker_id, address = said.broker_name, said.broker_id, said.address
        deposed = self.deposes(said)
        was_there = deposed is None and any(place[:2] == (name, broker_id) for place in self.places)
        same_version = address in self.alive and self.alive[address].version == said.data_version
        self.members.add((said.cluster, name))
        self.first_cluster.setdefault(name, said.cluster)
        self.places = {
            place
            for place in self.places
            if place[0] != name or (place[1] != broker_id and place[2] != address)
        } | {(name, broker_id, address)}
        if broker_id == 0:
            self.said[name] = said.epoch
            if name in self.records:
                self.epochs[name] = {self.records[name]}
            else:
                self.epochs.setdefault(name, set()).add(said.epoch)
        if deposed is not None and all(place[2] != deposed for place in self.places):
            del self.alive[deposed]
            self.filter_servers.pop(deposed, None)
        if broker_id == 0 and not (was_there and same_version):
            for each in said.topics:
                self.queues[each.topic_name, name] = Queues(
                    each.read_queue_nums, each.write_queue_nums, each.perm, each.topic_sys_flag
                )
        self.alive[address] = Alive(now, said.data_version, connection, said.ha_address)
        if said.filter_servers is not None:
            self.filter_servers[address] = said.filter_servers
        master = self.master(name)
        if broker_id == 0 or master is None:
            return None
        return master, self.alive[master].ha_address

    def heard_of(self, address: str, connection: str, now: float) -> None:
        if address in self.alive:
            self.alive[address] = self.alive[address]._replace(at=now, connection=connection)

    def unregister(self, address: str) -> bool:
        return bool(self._remove({address} & self.alive.keys()))

    def connection_lost(self, connection: str) -> list[str]:
        return self._remove({a for a, live in self.alive.items() if live.connection == connection})

    def expire(self, now: float, silence_s: float) -> list[tuple[str, str | None]]:
        """The addresses that expire, with their connections if nobody else is on them."""
        silent = {a: live for a, live in self.alive.items() if live.at + silence_s < now}
        self._remove(set(silent))
        used = {live.connection for live in self.alive.values()}
        return [
            (address, None if live.connection in used else live.connection)
            for address, live in sorted(silent.items())
        ]

    def set_perms(self, name: str, *, wipe: bool) -> int:
        mine = [key for key in self.queues if key[1] == name]
        for key in mine:
            perm = self.queues[key].perm & ~2 if wipe else 6
            self.queues[key] = self.queues[key]._replace(perm=perm)
        return len(mine)

    def delete_topic(self, topic: str, cluster: str | None) -> bool:
        gone = [
            key
            for key in self.queues
            if key[0] == topic and (not cluster or (cluster, key[1]) in self.members)
        ]
        for key in gone:
            del self.queues[key]
        return bool(gone)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.queues}

    def _remove(self, addresses: set[str]) -> list[str]:
        for address in addresses:
            del self.alive[address]
            self.filter_servers.pop(address, None)
        names = {place[0] for place in self.places}
        self.places = {place for place in self.places if place[2] not in addresses}
        gone = names - {place[0] for place in self.places}
        self.members = {member for member in self.members if member[1] not in gone}
        self.queues = {key: value for key, value in self.queues.items() if key[1] not in gone}
        for name in gone:
            del self.first_cluster[name]
            self.epochs.pop(name, None)
        return sorted(addresses)
