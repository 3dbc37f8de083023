"""What the driver asks a cluster: which queues there are, where they begin and end, where groups
are, what was stored when. All queues are asked at once.

A broker that does not answer or is busy is asked again for a while, its slaves as well: a failover
takes seconds, and a query should survive it. What is wrong for good is an error at once. A query
under way goes on without nameservers, by the routes that it knows.

A queue that is missing is gone only if the master of its broker is there and does not have it. To a
nameserver, a topic whose brokers are all down looks like one that was deleted.
"""

from __future__ import annotations

import difflib
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

from rmq.client.blocking import BlockingConsumer
from rmq.client.blocking.commits import Commits
from rmq.client.core.admin.topics import list_system_topics, list_topics
from rmq.client.core.busy import is_busy
from rmq.client.core.consuming import offsets
from rmq.errors import (
    BrokersFailedError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
)
from rmq.model.names import DLQ_PREFIX, MASTER_ID, RETRY_PREFIX, retry_topic
from rmq.spark.wire.clients import PAUSE_S
from rmq.spark.wire.places import Known, PlaceKind
from rmq.spark.wire.planning import Span
from rmq.spark.wire.positions import names_of
from rmq.spark.wire.time_search import offset_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address, RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.choice import Choice
    from rmq.spark.wire.places import Place

logger = logging.getLogger(__name__)

T = TypeVar("T")

_monotonic = time.monotonic

START_PATIENCE_S: Final = 10.0
PATIENCE_S: Final = 60.0
"""How long brokers that do not answer are asked again and missing queues are waited for, when a
query starts and from then on."""
LOOKUPS_MAX: Final = 256
"""How many routes are asked for at the same time."""
_NEAR_MAX: Final = 3
_LOST: Final = (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    NoRouteError,
    NoNameserverError,
)


class Present(NamedTuple):
    """Which queues there are at the moment."""

    queues: tuple[MessageQueue, ...]
    away: frozenset[MessageQueue]
    """Queues that are not there, and are not known to be gone: their brokers are down, or do
    not let them be read."""


@final
class Cluster:
    """Asks the brokers of one query. Made for one call of Spark: nothing is kept in it."""

    def __init__(self, consumer: BlockingConsumer, *, patience_s: float) -> None:
        """`patience_s`: how long brokers that do not answer are asked again."""
        self._client = consumer.client
        self._group = consumer.group
        self._patience_s = patience_s

    # --- queues ------------------------------------------------------------------------------

    def queues(self, choice: Choice, *, with_system: bool) -> tuple[MessageQueue, ...]:
        """Return the queues of a query that begins; raise `ConfigError` for what is not there."""
        found: list[MessageQueue] = []
        topics = self._topics(choice, with_system=with_system)
        routes = self._routes(topics, or_known=False)
        for topic in topics:
            route = routes.get(topic)
            if route is None:
                if choice.pattern:
                    # Deleted since it was listed.
                    continue
                raise self._no_topic(choice, topic)
            if not route.readable and not choice.pattern:
                raise ConfigError(choice.key, f"topic {topic} has no queue that may be read")
            found += route.readable
        if not choice.queues:
            if not found:
                logger.warning("no topic matches %s", choice.pattern)
            return tuple(sorted(found))
        missing = set(choice.queues) - set(found)
        if missing:
            raise ConfigError("assign", f"there is no {names_of(missing)}")
        return choice.queues

    def queues_now(
        self,
        choice: Choice,
        known: Iterable[MessageQueue],
        *,
        with_new: bool,
        with_system: bool,
        waits: bool,
    ) -> Present:
        """Return the queues of a query under way, without those that are not there.

        `with_new`: not only those of `known`. `waits`: those of `known` that are missing are waited
        for, because brokers restart.
        """
        expected = frozenset(known)
        until = _monotonic() + self._patience_s
        while True:
            is_last = _monotonic() >= until
            try:
                topics = self._topics_now(
                    choice, expected, with_new=with_new, with_system=with_system
                )
                routes = self._routes(topics, or_known=True)
                found = {
                    queue
                    for route in routes.values()
                    for queue in route.readable
                    if queue in expected or (with_new and choice.has(queue))
                }
                missing = expected - found
                away = missing - self._gone(missing, routes)
            except ClientError as exc:
                if is_last or not _may_pass(exc):
                    raise
                logger.warning("queues are asked for again: %s", exc)
            else:
                if not missing or is_last or not waits:
                    return Present(tuple(sorted(found)), away)
                logger.warning("waiting for %s", names_of(missing))
            self._client.connections.sleep(PAUSE_S)

    def _topics_now(
        self,
        choice: Choice,
        expected: Iterable[MessageQueue],
        *,
        with_new: bool,
        with_system: bool,
    ) -> set[str]:
        topics = {queue.topic for queue in expected}
        if with_new:
            try:
                topics.update(self._topics(choice, with_system=with_system))
            except NoNameserverError as exc:
                if not topics:
                    raise
                logger.warning("new topics cannot be found now: %s", exc)
        return topics

    def _gone(
        self, missing: frozenset[MessageQueue], routes: Mapping[str, TopicRoute]
    ) -> frozenset[MessageQueue]:
        """Return those of the missing queues that are gone for certain."""
        if not missing:
            return missing
        brokers = self._client.run(self._client.nameservers.cluster()).broker_addr_table
        masters = {name for name, data in brokers.items() if MASTER_ID in data.broker_addrs}
        return frozenset(
            queue
            for queue in missing
            if queue.broker_name in masters and not _may_come_back(queue, routes.get(queue.topic))
        )

    def _routes(self, topics: Iterable[str], *, or_known: bool) -> dict[str, TopicRoute]:
        """Ask for the routes of topics, many at a time; topics that no broker has are left out.

        `or_known`: what nameservers said before will do while they do not answer. Raises
        `NoNameserverError`.
        """
        client, keeping = self._client, self._client.keeping
        wanted = sorted(topics)
        for topic in wanted:
            # Before `tick`, which forgets routes that were not used for a while.
            keeping.keep(topic)
        found = {}
        for first in range(0, len(wanted), LOOKUPS_MAX):
            client.tick()
            some = wanted[first : first + LOOKUPS_MAX]
            for topic, task in [(topic, keeping.refresh_soon(topic)) for topic in some]:
                try:
                    found[topic] = client.wait(task)
                except NoRouteError:
                    # `tick` says so.
                    continue
                except ClientError as exc:
                    known = client.routes.get(topic)
                    if known is None or not or_known or not _may_pass(exc):
                        raise
                    found[topic] = known
        client.tick()
        return found

    def _topics(self, choice: Choice, *, with_system: bool) -> tuple[str, ...]:
        if not choice.pattern:
            return choice.named_topics
        listed = self._client.run(list_topics(self._client.nameservers))
        names = [topic for topic in listed if choice.matches(topic)]
        if with_system or not names:
            return tuple(names)
        system = set(self._client.run(list_system_topics(self._client.nameservers)))
        return tuple(
            topic
            for topic in names
            if topic not in system and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        )

    def _no_topic(self, choice: Choice, topic: str) -> ConfigError:
        try:
            listed = self._client.run(list_topics(self._client.nameservers))
        except NoNameserverError:
            listed = ()
        near = difflib.get_close_matches(topic, listed, n=_NEAR_MAX)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        return ConfigError(
            choice.key, f"topic {topic} does not exist, or no broker that has it runs{advice}"
        )

    # --- places ------------------------------------------------------------------------------

    def spans(
        self, queues: Iterable[MessageQueue], *, prefers_masters: bool = False
    ) -> dict[MessageQueue, Span]:
        """Return where queues begin and end.

        What a slave says may not be all. `prefers_masters`: it counts only if the master has not
        answered within the patience.
        """

        def ask(routes: RouteTable, queue: MessageQueue, broker: Address) -> Flow[Span]:
            first = yield from offsets.min_offset(routes, queue, broker=broker)
            end = yield from offsets.max_offset(routes, queue, broker=broker)
            # 4.9 answers -1 for the begin of a queue that was never written to.
            return Span(max(0, first), max(0, end), broker.broker_id == MASTER_ID)

        return self._ask_all(
            queues, ask, is_final=lambda span: span.is_master or not prefers_masters
        )

    def known(
        self, spans: Mapping[MessageQueue, Span], places: Iterable[Place], group: str
    ) -> Known:
        """Return what it takes to resolve places in queues."""
        committed: Mapping[MessageQueue, int | None] = {}
        by_time: dict[int, Mapping[MessageQueue, int]] = {}
        for place in places:
            if place.kind is PlaceKind.GROUP and not committed:
                committed = self._ask_all(
                    spans, lambda routes, queue, _: offsets.fetch_offset(routes, group, queue)
                )
            if place.kind is PlaceKind.TIME and place.time_ms not in by_time:
                by_time[place.time_ms] = self._offsets_from(spans, place.time_ms)
        return Known(spans, committed, by_time)

    def _offsets_from(
        self, spans: Mapping[MessageQueue, Span], time_ms: int
    ) -> dict[MessageQueue, int]:
        def ask(routes: RouteTable, queue: MessageQueue, broker: Address) -> Flow[int]:
            return offset_from(
                routes, queue, broker, span=spans[queue], time_ms=time_ms, group=self._group
            )

        return self._ask_all(spans, ask)

    def commit(self, group: str, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Tell brokers how far a group is; raise `ClientError`.

        Topics that no broker has are logged and left out. Return what brokers were told.
        """
        topics = set()
        for topic in sorted({queue.topic for queue in places}):
            try:
                self._client.route(topic)
            except NoRouteError as exc:
                logger.warning(
                    "group %s was not told how far the query is in topic %s: %s", group, topic, exc
                )
            else:
                topics.add(topic)
        told = {queue: place for queue, place in places.items() if queue.topic in topics}
        if not told:
            return told
        Commits(self._client, group, interval_s=1.0).commit(told)
        try:
            self._client.refresh_route(retry_topic(group))
        except NoRouteError:
            self._introduce(group)
        return told

    def _introduce(self, group: str) -> None:
        """Have brokers know a group that has never had a consumer.

        Stock tools find a group by its retry topic, which brokers create when they first hear of a
        consumer. This one says that it is there, and leaves.
        """
        with BlockingConsumer(self._client, group, commits_itself=False):
            self._client.beat()

    # --- asking ------------------------------------------------------------------------------

    def _ask_all(
        self,
        queues: Iterable[MessageQueue],
        flow: Callable[[RouteTable, MessageQueue, Address], Flow[T]],
        *,
        is_final: Callable[[T], bool] = lambda _: True,
    ) -> dict[MessageQueue, T]:
        """Ask for all queues. Answers that are not final are taken when patience is at its end."""
        client = self._client
        wanted = sorted(queues)
        found: dict[MessageQueue, T] = {}
        for topic in {queue.topic for queue in wanted}:
            client.route(topic)
        until = _monotonic() + self._patience_s
        while True:
            tasks = {
                queue: client.start(_at_any_broker(client.routes, queue, flow)) for queue in wanted
            }
            failures: dict[MessageQueue, ClientError] = {}
            for queue, task in tasks.items():
                try:
                    found[queue] = client.wait(task)
                except ClientError as exc:
                    if not _may_pass(exc):
                        raise
                    failures[queue] = exc
            wanted = [queue for queue in wanted if queue not in found or not is_final(found[queue])]
            is_last = _monotonic() >= until
            if not wanted or (is_last and all(queue in found for queue in wanted)):
                return dict(sorted(found.items()))
            if is_last:
                told = [
                    (f"{queue.topic} {queue.queue_id}", error)
                    for queue, error in failures.items()
                    if queue not in found
                ]
                done = [f"{queue.topic} {queue.queue_id}" for queue in found]
                raise BrokersFailedError("where queues begin and end", told, done)
            why = failures.get(wanted[0], "only a slave has answered")
            logger.warning("%d queues are asked for again: %s", len(wanted), why)
            client.connections.sleep(PAUSE_S)
            self._refresh({queue.topic for queue in wanted})

    def _refresh(self, topics: Iterable[str]) -> None:
        try:
            self._routes(topics, or_known=True)
        except ClientError as exc:
            if not _may_pass(exc):
                raise
            logger.warning("routes could not be refreshed: %s", exc)


def _may_pass(error: ClientError) -> bool:
    """Tell whether the same question may be answered later."""
    return isinstance(error, _LOST) or is_busy(error)


def _may_come_back(queue: MessageQueue, route: TopicRoute | None) -> bool:
    """Tell whether a queue may be read again that is missing though its broker is there.

    That is so if the topic may not be read there at all. Otherwise it is deleted, or has fewer
    queues.
    """
    name = queue.broker_name
    if route is None or name not in route.broker_names:
        return False
    return all(other.broker_name != name for other in route.readable)


def _at_any_broker(
    routes: RouteTable,
    queue: MessageQueue,
    flow: Callable[[RouteTable, MessageQueue, Address], Flow[T]],
) -> Flow[T]:
    """Ask the master of a queue, and its slaves if it does not answer."""
    route = routes.get(queue.topic)
    brokers = () if route is None else route.brokers
    error: ClientError = NoRouteError(
        "the routes known here", queue.topic, f"no broker {queue.broker_name} is known"
    )
    for broker in brokers:
        if broker.broker_name == queue.broker_name:
            try:
                return (yield from flow(routes, queue, broker))
            except _LOST as exc:
                error = exc
    raise error
