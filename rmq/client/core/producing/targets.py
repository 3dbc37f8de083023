"""The queues of topics as sends choose among them, and the addresses of their masters. Pure.

`TopicTargets` has the targets of one topic by one route. A client adds to a target what it needs to
get there, such as a connection. `TargetTable` has the topics of a producer and follows a table of
routes; tasks have a table of their own (`rmq.client.tasks.send_paths`), which also knows
connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar, final

from rmq.client.core.producing.selection import QueueRing

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue

TOPICS_MAX: Final = 4096
"""Topics whose targets a producer keeps."""


class Target(Protocol):
    """One queue, and the address of its master."""

    @property
    def queue(self) -> MessageQueue: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def address(self) -> str:
        """Address of the master, empty if the broker has no master now."""


T = TypeVar("T", bound=Target)


class QueueTarget(NamedTuple):
    """A target of clients that find the connection by the address."""

    queue: MessageQueue
    broker_name: str
    address: str


@final
class TopicTargets(Generic[T]):
    """The targets of one topic."""

    __slots__ = ("_by_queue", "_target_of", "ring", "route", "targets")

    def __init__(
        self,
        route: TopicRoute,
        ring: QueueRing,
        target_of: Callable[[MessageQueue, str | None], T],
    ) -> None:
        """`target_of` makes the target of a queue and the address of its master, if it has one."""
        self.route = route
        self.ring = ring
        self._target_of = target_of
        self.targets = tuple(
            target_of(queue, route.master_of(queue.broker_name)) for queue in route.writable
        )
        self._by_queue = {target.queue: target for target in self.targets}

    def target_to(self, queue: MessageQueue) -> T:
        """Return the target of a queue of the caller's choice, whether it is writable or not."""
        known = self._by_queue.get(queue)
        if known is not None:
            return known
        return self._target_of(queue, self.route.master_of(queue.broker_name))

    def has_other(self, broker_name: str) -> bool:
        """Tell whether a broker of another name takes messages of the topic."""
        return not self.route.writable_names <= {broker_name}


@final
class TargetTable:
    """The targets of all topics of a producer, as a table of routes has them."""

    def __init__(self, routes: RouteTable, first: Callable[[], int]) -> None:
        """`first` returns the position in the queues of a new topic from which sends begin."""
        self._routes = routes
        self._first = first
        self._topics: dict[str, tuple[TopicTargets[QueueTarget], TopicRoute]] = {}
        """Targets, and the route of the table that they were made from. Their own route may have
        masters that brokers have named."""

    def get(self, topic: str) -> TopicTargets[QueueTarget] | None:
        """Return the targets by the route that is known now; None if it has no writable queue."""
        return self.by_route(self._routes.get(topic))

    def by_route(self, route: TopicRoute | None) -> TopicTargets[QueueTarget] | None:
        """Return the targets by the route that the table of routes has now."""
        if route is None:
            return None
        known = self._topics.get(route.topic)
        if known is not None and known[1] is route:
            return known[0]
        return self._put(route, route) if route.writable else None

    def use(self, route: TopicRoute) -> None:
        """Use this variant of a route, such as one with a named master, until another is told."""
        told = self._routes.get(route.topic)
        known = self._topics.get(route.topic)
        if told is None or (known is not None and known[0].route is route and known[1] is told):
            return
        if route.writable:
            self._put(route, told)
        else:
            self._topics.pop(route.topic, None)

    def _put(self, route: TopicRoute, told: TopicRoute) -> TopicTargets[QueueTarget]:
        known = self._topics.pop(route.topic, None)
        if known is None and len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        ring = QueueRing(self._first()) if known is None else known[0].ring
        targets = TopicTargets(route, ring, _target_of)
        self._topics[route.topic] = targets, told
        return targets


def _target_of(queue: MessageQueue, address: str | None) -> QueueTarget:
    return QueueTarget(queue, queue.broker_name, address or "")
