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

    def register(self, said: Registration, connection: str, now: float) -> tuple[str, str] | None:
        name, broker_id, address = said.broker_name, said.broker_id, said.address
        was_there = any(place[:2] == (name, broker_id) for place in self.places)
        same_version = address in self.alive and self.alive[address].version == said.data_version
        self.members.add((said.cluster, name))
        self.first_cluster.setdefault(name, said.cluster)
        self.places = {
            place
            for place in self.places
            if place[0] != name or (place[1] != broker_id and place[2] != address)
        } | {(name, broker_id, address)}
        if broker_id == 0 and not (was_there and same_version):
            for each in said.topics:
                self.queues[each.topic_name, name] = Queues(
                    each.read_queue_nums, each.write_queue_nums, each.perm, each.topic_sys_flag
                )
        self.alive[address] = Alive(now, said.data_version, connection, said.ha_address)
        if said.filter_servers is not None:
            self.filter_servers[address] = said.filter_servers
        masters = [place[2] for place in self.places if place[:2] == (name, 0)]
        if broker_id == 0 or not masters:
            return None
        return masters[0], self.alive[masters[0]].ha_address

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
        return sorted(addresses)
