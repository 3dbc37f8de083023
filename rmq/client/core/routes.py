"""Where the queues of topics are, and which broker of a name is asked. Pure.

Routes are what a nameserver says, as a client uses it. Requests that change something go to the
master. Reads may go to a slave, and do if there is no master, or none that can be reached. (In
RocketMQ 4.9.8 only the master tells where queues begin and end.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

import msgspec

from rmq.client.core.slave_reads import SlaveReads
from rmq.errors import ClientError, ConnectFailedError, ConnectionLostError, NoRouteError
from rmq.model.limits import QUEUES_MAX
from rmq.model.names import MASTER_ID
from rmq.model.queues import MessageQueue
from rmq.model.topic_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rmq.client.core.flows import Flow
    from rmq.remoting.bodies import TopicRouteData

T = TypeVar("T")


class Address(NamedTuple):
    """A broker of a name: the master has id 0."""

    broker_name: str
    broker_id: int
    address: str


@final
class TopicRoute:
    """The queues of one topic, and who has them."""

    __slots__ = ("_brokers", "_raw", "readable", "topic", "writable", "writable_names")

    def __init__(self, topic: str, route: TopicRouteData) -> None:
        self.topic = topic
        self._raw = route
        self._brokers = {
            broker.broker_name: dict(broker.broker_addrs) for broker in route.broker_datas
        }
        self.writable: tuple[MessageQueue, ...] = tuple(self._writable(topic, route))
        """Queues that take messages now, in the order in which they are dealt with."""
        self.writable_names = frozenset(queue.broker_name for queue in self.writable)
        """The brokers that have them."""
        self.readable: tuple[MessageQueue, ...] = tuple(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=number)
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if data.perm & PERM_READ
            for number in range(min(data.read_queue_nums, QUEUES_MAX))
        )
        """Queues that can be read, their masters there or not."""

    def __eq__(self, other: object) -> bool:
        """The same queues at the same addresses, in whatever order they were told."""
        return isinstance(other, TopicRoute) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<TopicRoute {self.topic}: {len(self.writable)} writable, {self._brokers}>"

    def _key(self) -> tuple[object, ...]:
        return (
            self.topic,
            self._brokers,
            frozenset(self._raw.queue_datas),
            self._raw.order_topic_conf,
        )

    def _writable(self, topic: str, route: TopicRouteData) -> Iterator[MessageQueue]:
        if route.order_topic_conf:
            # `broker-a:4;broker-b:4`: an ordered topic keeps its queues while a broker is away.
            for part in route.order_topic_conf.split(";"):
                name, _, count = part.partition(":")
                queues = int(count) if count.isascii() and count.isdigit() else 0
                for number in range(min(queues, QUEUES_MAX)):
                    yield MessageQueue(topic=topic, broker_name=name, queue_id=number)
            return
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
            if data.perm & PERM_WRITE and MASTER_ID in self._brokers.get(data.broker_name, {}):
                for number in range(min(data.write_queue_nums, QUEUES_MAX)):
                    yield MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=number)

    @property
    def broker_names(self) -> Collection[str]:
        return self._brokers.keys()

    @property
    def brokers(self) -> tuple[Address, ...]:
        """Every broker, by name and id."""
        return tuple(
            Address(name, number, address)
            for name, addresses in sorted(self._brokers.items())
            for number, address in sorted(addresses.items())
        )

    def brokers_of(self, broker_name: str) -> tuple[Address, ...]:
        """Return the brokers of a name by their ids, the master first."""
        addresses = self._brokers.get(broker_name, {})
        return tuple(Address(broker_name, number, at) for number, at in sorted(addresses.items()))

    @property
    def is_ordered(self) -> bool:
        return bool(self._raw.order_topic_conf)

    @property
    def awaits_master(self) -> bool:
        """Whether it has queues to write to whose broker has slaves only at the moment."""
        return any(
            data.perm & PERM_WRITE
            and self._brokers.get(data.broker_name)
            and MASTER_ID not in self._brokers[data.broker_name]
            for data in self._raw.queue_datas
        )

    def has_slave(self, broker_name: str) -> bool:
        """Tell whether a name has a slave now, which may become its master."""
        return any(number != MASTER_ID for number in self._brokers.get(broker_name, ()))

    def master_of(self, broker_name: str) -> str | None:
        """Return the address of the master of a name, if it has one now."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def with_master(self, broker_name: str, address: str) -> TopicRoute:
        """Return this route with another master of a name, one of its brokers."""
        brokers = [
            broker
            if broker.broker_name != broker_name
            else msgspec.structs.replace(
                broker,
                broker_addrs={
                    **{k: at for k, at in broker.broker_addrs.items() if at != address},
                    MASTER_ID: address,
                },
            )
            for broker in self._raw.broker_datas
        ]
        raw = msgspec.structs.replace(self._raw, broker_datas=tuple(brokers))
        return TopicRoute(self.topic, raw)

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID) -> Address | None:
        """Return that broker, or if it is gone any other of its name, the master first."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        number = broker_id if broker_id in addresses else min(addresses)
        return Address(broker_name, number, addresses[number])


@final
class RouteTable:
    """The routes that a client knows."""

    def __init__(self, slave_reads: SlaveReads | None = None) -> None:
        """`slave_reads` is told which masters there are."""
        self.slave_reads = SlaveReads() if slave_reads is None else slave_reads
        self._routes: dict[str, TopicRoute] = {}
        self._told: dict[str, TopicRoute] = {}
        """The route that told last where the brokers of a name are. Those of other topics may be
        older: they still name a master that is gone."""

    def get(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    def put(self, route: TopicRoute) -> bool:
        """Store a route; return whether it has changed."""
        before = self._routes.get(route.topic)
        has_changed = before != route
        if has_changed:
            self._routes[route.topic] = route
            self._forget_told(before)
        else:
            assert before is not None
            route = before
        for name in route.broker_names:
            self._told[name] = route
            self.slave_reads.master_is(name, route.master_of(name))
        return has_changed

    def forget(self, topic: str) -> None:
        self._forget_told(self._routes.pop(topic, None))

    def _forget_told(self, route: TopicRoute | None) -> None:
        """Fall back on other routes for the brokers that a route told of last."""
        if route is None:
            return
        for name in route.broker_names:
            if self._told.get(name) is route:
                del self._told[name]
                for other in self._routes.values():
                    if name in other.broker_names:
                        self._told[name] = other

    def __iter__(self) -> Iterator[TopicRoute]:
        return iter(self._routes.values())

    def brokers(self) -> tuple[Address, ...]:
        """Every broker of any route, each address once."""
        found: dict[str, Address] = {}
        for route in self._routes.values():
            for broker in route.brokers:
                found.setdefault(broker.address, broker)
        return tuple(sorted(found.values()))

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID) -> Address | None:
        """Return a broker of a name, whichever topic told of it; see `TopicRoute.address_of`."""
        route = self._told.get(broker_name)
        return None if route is None else route.address_of(broker_name, broker_id)

    def brokers_of(self, broker_name: str) -> tuple[Address, ...]:
        """Return the brokers of a name by their ids, the master first; none if it is not known."""
        route = self._told.get(broker_name)
        return () if route is None else route.brokers_of(broker_name)


@final
class MissingTopics:
    """When to look again for topics that no broker has yet. (Stock clients look every 30 s.)"""

    def __init__(self, pause_s_max: float) -> None:
        self._pause_s_max = pause_s_max
        self._next: dict[str, tuple[float, float]] = {}
        """By topic: time of the next lookup, and the pause after it."""

    def due(self, missing: Collection[str], now: float) -> list[str]:
        """Return those of the missing topics that it is time to ask for."""
        self._next = {topic: self._next.get(topic, (now, 1.0)) for topic in missing}
        due = sorted(topic for topic, (at, _) in self._next.items() if at <= now)
        for topic in due:
            pause_s = self._next[topic][1]
            self._next[topic] = (now + pause_s, min(2 * pause_s, self._pause_s_max))
        return due


# --- choosing a broker --------------------------------------------------------------------------


def master_of(routes: RouteTable, queue: MessageQueue) -> Address:
    """Return the master that has a queue; raise `NoRouteError` if there is none now."""
    broker = routes.address_of(queue.broker_name)
    if broker is None or broker.broker_id != MASTER_ID:
        raise _no_broker(queue, f"no master of broker {queue.broker_name} is known")
    return broker


def readers_of(routes: RouteTable, queue: MessageQueue) -> Sequence[Address]:
    """Return the brokers that have a queue, the master first; raise `NoRouteError`."""
    brokers = routes.brokers_of(queue.broker_name)
    if not brokers:
        raise _no_broker(queue, f"no broker {queue.broker_name} is known")
    return brokers


def read_first(
    brokers: Sequence[Address], call: Callable[[Address], Flow[T]], reads: SlaveReads
) -> Flow[T]:
    """Call the first of the brokers of a name that can be reached: the master, if it can.

    Raises what the first one failed with if none can.
    """
    failure: ClientError | None = None
    for broker in brokers:
        try:
            result = yield from call(broker)
        except (ConnectFailedError, ConnectionLostError) as exc:
            failure = failure or exc
            continue
        note_reader(brokers, broker, reads)
        return result
    assert failure is not None, "no broker to ask"
    raise failure


def note_reader(brokers: Sequence[Address], reader: Address, reads: SlaveReads) -> None:
    """Take in which of the brokers of a name has answered what the master is asked first.

    A broker without a name was asked by its address: no other would have been.
    """
    if not reader.broker_name:
        return
    if reader.broker_id == MASTER_ID:
        reads.answered(reader.broker_name)
    else:
        first = brokers[0]
        reads.used(reader, first.address if first.broker_id == MASTER_ID else None)


def broker_of(routes: RouteTable, queue: MessageQueue, broker_id: int = MASTER_ID) -> Address:
    """Return the broker with this id that has a queue, or another of its name.

    That is the slave numbered one higher, then any, the master first. Raises `NoRouteError` if the
    name is not known at all.
    """
    broker = routes.address_of(queue.broker_name, broker_id)
    if broker is None:
        raise _no_broker(queue, f"no broker {queue.broker_name} is known")
    if broker.broker_id == broker_id:
        return broker
    if broker_id == MASTER_ID:
        routes.slave_reads.used(broker)
    else:
        neighbour = routes.address_of(queue.broker_name, broker_id + 1)
        if neighbour is not None and neighbour.broker_id == broker_id + 1:
            return neighbour
    return broker


def _no_broker(queue: MessageQueue, reason: str) -> NoRouteError:
    return NoRouteError(
        "the routes known here",
        queue.topic,
        reason,
        hint="ask for the topic's route again: the broker may be back, or gone for good",
    )
