"""Who consumes which queues: the strategies of RocketMQ 4.9.8. Pure.

Members of a group do not talk to each other. Each works out its own share from the same queues and
the same client ids, in the same order, by the same strategy, and the shares fit together. So all of
this must agree with stock clients to the letter.

A strategy is a callable `(group, client_id, queues, client_ids) -> queues`. The instances here are
values: they can be compared, pickled and put into a configuration.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.model.queues import MessageQueue


@runtime_checkable
class Strategy(Protocol):
    """Deals out queues."""

    @property
    def name(self) -> str:
        """What stock clients call it."""

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the share of one client.

        Queues and client ids may come in any order. A client that is not among `client_ids` has no
        share.
        """


def sorted_queues(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order in which all members deal them out, each once."""
    return sorted(set(queues), key=_queue_order)


def sorted_client_ids(client_ids: Sequence[str]) -> list[str]:
    """Return client ids in the order of Java's strings.

    An id that two processes share by mistake stays there twice: stock members count it twice.
    """
    return sorted(client_ids, key=java_order)


def java_order(text: str) -> bytes:
    """Return what sorts like `text` does in Java: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


# --- strategies ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Average:
    """Neighbouring queues to each client, as evenly as it goes. The default."""

    @property
    def name(self) -> str:
        return "AVG"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        ordered, index, clients = _prepared(queues, client_ids, client_id)
        if index is None:
            return []
        each, more = divmod(len(ordered), clients)
        start = index * each + min(index, more)
        return ordered[start : start + each + (index < more)]


@dataclass(frozen=True, slots=True)
class AverageByCircle:
    """Queue after queue, one to each client in turn."""

    @property
    def name(self) -> str:
        return "AVG_BY_CIRCLE"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        ordered, index, clients = _prepared(queues, client_ids, client_id)
        return [] if index is None else ordered[index::clients]


@dataclass(frozen=True, slots=True)
class ByConfig:
    """Exactly these queues, whatever others do."""

    queues: tuple[MessageQueue, ...]

    @property
    def name(self) -> str:
        return "CONFIG"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers named `room@name` with one of these rooms, evenly."""

    rooms: frozenset[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rooms", frozenset(self.rooms))
        if not self.rooms:
            raise ConfigError("rooms", "no machine room is named", hint="all queues would be left")

    @property
    def name(self) -> str:
        return "MACHINE_ROOM"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        ordered, index, clients = _prepared(
            [queue for queue in queues if self._has(queue.broker_name)], client_ids, client_id
        )
        if index is None:
            return []
        each, more = divmod(len(ordered), clients)
        share = ordered[index * each : (index + 1) * each]
        if index < more:
            share.append(ordered[clients * each + index])
        return share

    def _has(self, broker_name: str) -> bool:
        # Java splits at every @ and drops empty parts at the end.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to clients of their own room; those of rooms without clients go to all.

    `room_of_broker` and `room_of_client` return the machine room of a broker by its name, and of a
    client by its id. All members must come to the same answers.
    """

    inner: Strategy
    room_of_broker: Callable[[str], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in sorted_queues(queues):
            room = _known_room(self.room_of_broker, queue.broker_name)
            queues_by_room.setdefault(room, []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for member in sorted_client_ids(client_ids):
            clients_by_room.setdefault(_known_room(self.room_of_client, member), []).append(member)
        own_room = self.room_of_client(client_id)
        share: list[MessageQueue] = []
        if near := queues_by_room.pop(own_room, []):
            share += self.inner(group, client_id, near, clients_by_room[own_room])
        for room in sorted(queues_by_room, key=java_order):
            if room not in clients_by_room:
                share += self.inner(group, client_id, queues_by_room[room], client_ids)
        return share


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Few queues change hands when a client comes or goes; shares may be uneven."""

    virtual_nodes: int = 10
    """How many places each client has on the ring."""

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ConfigError("virtual_nodes", f"{self.virtual_nodes} is below 1")

    @property
    def name(self) -> str:
        return "CONSISTENT_HASH"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        ordered, index, _ = _prepared(queues, client_ids, client_id)
        if index is None:
            return []
        ring: dict[int, str] = {}
        before = ""
        for member in sorted_client_ids(client_ids):
            # An id that is there twice has twice as many places; of two nodes at one place the
            # later counts.
            first = sum(it == member for it in ring.values()) if member == before else 0
            for number in range(first, first + self.virtual_nodes):
                ring[ring_hash(f"{member}-{number}")] = member
            before = member
        places = sorted(ring)
        return [
            queue
            for queue in ordered
            if ring[places[bisect_left(places, ring_hash(queue_text(queue))) % len(places)]]
            == client_id
        ]


def ring_hash(key: str) -> int:
    """Return the place of a key on the ring: the first 4 bytes of its MD5."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


def queue_text(queue: MessageQueue) -> str:
    """Return what Java makes of a queue as text."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


def _known_room(room_of: Callable[[str], str], name: str) -> str:
    room = room_of(name)
    if not room:
        raise ConfigError("room_of_broker, room_of_client", f"{name} is in no machine room")
    return room


def _prepared(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> tuple[list[MessageQueue], int | None, int]:
    """Return the queues in order, the client's place among all, and how many there are."""
    members = sorted_client_ids(client_ids)
    index = members.index(client_id) if client_id in members else None
    return sorted_queues(queues), index, len(members)
