"""Encoded responses of the route table, cached until the table changes.

Thousands of clients ask for the same few routes every 30 seconds, and encoding one takes fifty
times as long as finding it. A route is encoded once per form and then again after its topic's
queues, or any broker, have changed; lists are encoded again after every change.

Answers are made in steps, one after the other (`slices`). A request is answered with what was begun
after it came, even if the table has changed meanwhile: while brokers come and go all the time, many
requests for one answer still share it.

What is kept is bounded, and nothing is kept for a topic or cluster that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.model import fastjson
from rmq.model.java import hash_map_order_in_steps
from rmq.model.topic_flags import UNIT_FLAG, UNIT_SUB_FLAG
from rmq.nameserver.route_views import RouteViews
from rmq.remoting.bodies.topics import TopicList

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rmq.nameserver.registration import C
    from rmq.nameserver.routes import RouteTable

ROUTE_BYTES_MAX: Final = 128 * 1024 * 1024
"""How many bytes of routes are kept."""
CLUSTERS_KEPT: Final = 16
"""Of how many clusters the list of topics is kept."""

_CHANGED: Final = -1
"""The version of a route whose topic has changed."""


class _Answer(NamedTuple):
    version: int
    """Of the table, when it was begun."""
    number: int
    """Answers are counted in the order in which they are begun."""
    body: bytes
    order_topic_conf: str | None = None
    """The value it was encoded with: it comes from the KV config and changes without notice."""


@final
class RouteAnswers:
    """Encoded responses of one table. Sets the table's `on_topic`."""

    def __init__(self, table: RouteTable[C]) -> None:
        self._table: Final = table
        self._views: Final = RouteViews(table.tables)
        self._routes: dict[str, dict[bool, _Answer]] = {}
        self._lists: dict[str, _Answer] = {}
        self._clusters: dict[str, _Answer] = {}
        self._route_bytes = 0
        self._begun = 0
        table.on_topic = self._topic_changed

    # ---- routes ----------------------------------------------------------------------------------

    def known_route(
        self, topic: str, *, standard: bool, order_topic_conf: str | None
    ) -> bytes | None:
        """Return a topic's route if it need not be encoded."""
        forms = self._routes.get(topic)
        if forms is not None:
            known = forms.get(standard)
            if (
                known is not None
                and known.version == self._table.brokers_version
                and known.order_topic_conf == order_topic_conf
            ):
                return known.body
        return None

    def route(
        self, topic: str, *, standard: bool, order_topic_conf: str | None
    ) -> Generator[None, None, bytes | None]:
        """Return a topic's route, in standard JSON or in the form of clients before 4.9.4."""
        asked_at = self._begun

        def steps() -> Generator[None, None, bytes | None]:
            known = self._routes.get(topic, {}).get(standard)
            if (
                known is not None
                and (known.version == self._table.brokers_version or known.number > asked_at)
                and known.order_topic_conf == order_topic_conf
            ):
                return known.body
            self._begun += 1
            number, version = self._begun, self._table.version
            route = yield from self._views.route(topic, order_topic_conf)
            if route is None:
                return None
            body = yield from fastjson.dumps_in_steps(route, standard=standard)
            if topic in self._table.tables.topics:
                is_present = version == self._table.version
                self._keep_route(
                    topic,
                    standard,
                    _Answer(
                        self._table.brokers_version if is_present else _CHANGED,
                        number,
                        body,
                        order_topic_conf,
                    ),
                )
            return body

        return steps()

    def _keep_route(self, topic: str, standard: bool, answer: _Answer) -> None:
        forms = self._routes.setdefault(topic, {})
        before = forms.get(standard)
        self._route_bytes += len(answer.body) - (0 if before is None else len(before.body))
        forms[standard] = answer
        while self._route_bytes > ROUTE_BYTES_MAX:
            self._forget_route(next(iter(self._routes)))

    def _forget_route(self, topic: str) -> None:
        for answer in self._routes.pop(topic, {}).values():
            self._route_bytes -= len(answer.body)

    def _topic_changed(self, topic: str) -> None:
        if topic not in self._table.tables.topics:
            self._forget_route(topic)
            return
        forms = self._routes.get(topic)
        if forms is not None:
            for standard, answer in forms.items():
                forms[standard] = answer._replace(version=_CHANGED)

    # ---- lists -----------------------------------------------------------------------------------

    def cluster_info(self) -> Generator[None, None, bytes]:
        def make() -> Generator[None, None, bytes]:
            info = yield from self._views.cluster_info()
            return (yield from fastjson.dumps_in_steps(info))

        return self._list("cluster info", make)

    def topics(self) -> Generator[None, None, bytes]:
        return self._names("topics", self._views.topics)

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, bytes]:
        def make() -> Generator[None, None, bytes]:
            names = yield from self._views.topics_of_cluster(cluster)
            return (yield from _encode_names(names))

        if cluster not in self._table.tables.clusters:
            return make()
        if len(self._clusters) >= CLUSTERS_KEPT and cluster not in self._clusters:
            del self._clusters[next(iter(self._clusters))]
        return self._keep(self._clusters, cluster, make)

    def system_topics(self) -> Generator[None, None, bytes]:
        def make() -> Generator[None, None, bytes]:
            names, address = yield from self._views.system_topics()
            return (yield from _encode_names(names, address))

        return self._list("system topics", make)

    def unit_topics(self) -> Generator[None, None, bytes]:
        return self._names("unit", lambda: self._views.topics_flagged(set_bits=UNIT_FLAG))

    def unit_sub_topics(self) -> Generator[None, None, bytes]:
        return self._names("unit sub", lambda: self._views.topics_flagged(set_bits=UNIT_SUB_FLAG))

    def unit_sub_topics_not_unit(self) -> Generator[None, None, bytes]:
        return self._names(
            "unit sub, not unit",
            lambda: self._views.topics_flagged(set_bits=UNIT_SUB_FLAG, clear_bits=UNIT_FLAG),
        )

    def _names(
        self, key: str, read: Callable[[], Generator[None, None, list[str]]]
    ) -> Generator[None, None, bytes]:
        def make() -> Generator[None, None, bytes]:
            names = yield from read()
            return (yield from _encode_names(names))

        return self._list(key, make)

    def _list(
        self, key: str, make: Callable[[], Generator[None, None, bytes]]
    ) -> Generator[None, None, bytes]:
        return self._keep(self._lists, key, make)

    def _keep(
        self,
        answers: dict[str, _Answer],
        key: str,
        make: Callable[[], Generator[None, None, bytes]],
    ) -> Generator[None, None, bytes]:
        asked_at = self._begun

        def steps() -> Generator[None, None, bytes]:
            known = answers.get(key)
            if known is not None and (
                known.version == self._table.version or known.number > asked_at
            ):
                return known.body
            self._begun += 1
            number, version = self._begun, self._table.version
            body = yield from make()
            answers[key] = _Answer(version, number, body)
            return body

        return steps()


def _encode_names(names: list[str], broker_addr: str | None = None) -> Generator[None, None, bytes]:
    """Encode what a `TopicList` is, without making a set of all names in one step."""
    empty = TopicList(broker_addr=broker_addr).encode()
    ordered = yield from hash_map_order_in_steps(names, is_set=True)
    items = yield from fastjson.dumps_in_steps(ordered)
    assert empty.endswith(b"[]}"), "the names are the last member"
    return b"".join((empty[:-3], items, b"}"))
