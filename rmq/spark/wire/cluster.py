"""What the driver asks a cluster: which queues there are, where they begin and end, where groups
are, what was stored when. All queues are asked at once.

A broker that does not answer is asked again for a while, its slaves as well: a failover takes
seconds, and a query should outlive it. What is wrong for good is an error at once.
"""

from __future__ import annotations

import difflib
import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar, final

from rmq.client import offsets
from rmq.client.admin_flows import list_system_topics, list_topics
from rmq.client.blocking import BlockingConsumer
from rmq.client.blocking.commits import Commits
from rmq.client.routes import MASTER_ID
from rmq.errors import (
    BrokersFailedError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    NoNameserverError,
    NoRouteError,
    RequestTimeoutError,
)
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX, retry_topic
from rmq.spark.wire.clients import PAUSE_S
from rmq.spark.wire.places import Known, PlaceKind
from rmq.spark.wire.planning import Span
from rmq.spark.wire.positions import names_of
from rmq.spark.wire.time_search import offset_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmq.client.flows import Flow
    from rmq.client.routes import Address, RouteTable
    from rmq.errors import ClientError
    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.choice import Choice
    from rmq.spark.wire.places import Place

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_PATIENCE_S: Final = 10.0
PATIENCE_S: Final = 60.0
"""How long brokers that do not answer are asked again, when a query starts and from then on."""
ABSENCE_S: Final = 15.0
"""How long a topic or queue that a query has read is looked for before it counts as gone."""
_NEAR_MAX: Final = 3
_LOST: Final = (
    ConnectFailedError,
    ConnectionLostError,
    RequestTimeoutError,
    NoRouteError,
    NoNameserverError,
)


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
        for topic in self._topics(choice, with_system=with_system):
            try:
                route = self._client.refresh_route(topic)
            except NoRouteError as exc:
                if choice.pattern:
                    # Deleted since it was listed.
                    continue
                raise self._no_topic(choice, topic) from exc
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
        with_system: bool,
        waits: bool,
    ) -> tuple[MessageQueue, ...]:
        """Return the queues of a query under way: new ones, and without those that are gone.

        `waits`: those of `known` that are missing are looked for a while, because brokers restart.
        """
        expected = set(known)
        until = time.monotonic() + ABSENCE_S
        while True:
            found: set[MessageQueue] | None = None
            try:
                found = self._readable(choice, expected, with_system=with_system)
            except NoNameserverError:
                if time.monotonic() >= until:
                    raise
            is_last = not waits or time.monotonic() >= until
            if found is not None and (is_last or expected <= found):
                return tuple(sorted(queue for queue in found if choice.has(queue)))
            self._client.connections.sleep(PAUSE_S)

    def _readable(
        self, choice: Choice, expected: Iterable[MessageQueue], *, with_system: bool
    ) -> set[MessageQueue]:
        found: set[MessageQueue] = set()
        topics = {queue.topic for queue in expected}
        topics.update(self._topics(choice, with_system=with_system))
        for topic in sorted(topics):
            try:
                found.update(self._client.refresh_route(topic).readable)
            except NoRouteError:
                logger.warning("no broker has topic %s at the moment", topic)
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

    def spans(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Span]:
        """Return where queues begin and end."""

        def ask(routes: RouteTable, queue: MessageQueue, broker: Address) -> Flow[Span]:
            first = yield from offsets.min_offset(routes, queue, broker=broker)
            end = yield from offsets.max_offset(routes, queue, broker=broker)
            # 4.9 answers -1 for the begin of a queue that nobody has written to.
            return Span(max(0, first), max(0, end), broker.broker_id == MASTER_ID)

        return self._ask_all(queues, ask)

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

    def commit(self, group: str, places: Mapping[MessageQueue, int]) -> None:
        """Tell brokers how far a group is; raise `ClientError`."""
        Commits(self._client, group, interval_s=1.0).commit(places)
        try:
            self._client.refresh_route(retry_topic(group))
        except NoRouteError:
            self._introduce(group)

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
    ) -> dict[MessageQueue, T]:
        client = self._client
        missing = sorted(queues)
        found: dict[MessageQueue, T] = {}
        for topic in {queue.topic for queue in missing}:
            client.route(topic)
        until = time.monotonic() + self._patience_s
        while True:
            tasks = {
                queue: client.start(_at_any_broker(client.routes, queue, flow)) for queue in missing
            }
            failures: dict[MessageQueue, ClientError] = {}
            for queue, task in tasks.items():
                try:
                    found[queue] = client.wait(task)
                except _LOST as exc:
                    failures[queue] = exc
            if not failures:
                return dict(sorted(found.items()))
            missing = list(failures)
            if time.monotonic() >= until:
                told = [(f"{queue.topic} {queue.queue_id}", failures[queue]) for queue in missing]
                done = [f"{queue.topic} {queue.queue_id}" for queue in found]
                raise BrokersFailedError("where queues begin and end", told, done)
            logger.warning("%d queues are asked for again: %s", len(missing), failures[missing[0]])
            client.connections.sleep(PAUSE_S)
            self._refresh({queue.topic for queue in missing})

    def _refresh(self, topics: Iterable[str]) -> None:
        for topic in topics:
            try:
                self._client.refresh_route(topic)
            except _LOST as exc:
                logger.warning("the route of %s is not known anew: %s", topic, exc)


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
