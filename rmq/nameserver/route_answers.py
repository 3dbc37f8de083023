"""Encoded responses of the route table, cached until the table changes.

Thousands of clients ask for the same few routes every 30 seconds, and encoding one takes fifty
times as long as finding it. A route is encoded once per form and then again after its topic's
queues, or any broker, have changed; lists are encoded again after every change.

What is kept is bounded by the table: nothing is kept for a topic or cluster that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.model.topic_flags import UNIT_FLAG, UNIT_SUB_FLAG

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.nameserver.registration import C
    from rmq.nameserver.routes import RouteTable
    from rmq.remoting.bodies.base import Body


class _Route(NamedTuple):
    order_topic_conf: str | None
    """The value it was encoded with: it comes from the KV config and changes without notice."""
    body: bytes


@final
class RouteAnswers:
    """Encoded responses of one table. Sets the table's `on_change`."""

    def __init__(self, table: RouteTable[C]) -> None:
        self._table: Final = table
        self._routes: dict[str, dict[bool, _Route]] = {}
        self._lists: dict[str, bytes] = {}
        self._topics_of_cluster: dict[str, bytes] = {}
        table.on_change = self._forget

    def route(self, topic: str, *, standard: bool, order_topic_conf: str | None) -> bytes | None:
        """Return a topic's route, in standard JSON or in the form of clients before 4.9.4."""
        forms = self._routes.get(topic)
        if forms is not None:
            known = forms.get(standard)
            if known is not None and known.order_topic_conf == order_topic_conf:
                return known.body
        route = self._table.route(topic, order_topic_conf)
        if route is None:
            return None
        body = route.encode(standard=standard)
        self._routes.setdefault(topic, {})[standard] = _Route(order_topic_conf, body)
        return body

    def cluster_info(self) -> bytes:
        return self._list("cluster info", self._table.cluster_info)

    def topics(self) -> bytes:
        return self._list("topics", self._table.topics)

    def topics_of_cluster(self, cluster: str) -> bytes:
        body = self._topics_of_cluster.get(cluster)
        if body is None:
            body = self._table.topics_of_cluster(cluster).encode()
            if self._table.has_cluster(cluster):
                self._topics_of_cluster[cluster] = body
        return body

    def system_topics(self) -> bytes:
        return self._list("system topics", self._table.system_topics)

    def unit_topics(self) -> bytes:
        return self._list("unit", lambda: self._table.topics_flagged(set_bits=UNIT_FLAG))

    def unit_sub_topics(self) -> bytes:
        return self._list("unit sub", lambda: self._table.topics_flagged(set_bits=UNIT_SUB_FLAG))

    def unit_sub_topics_not_unit(self) -> bytes:
        return self._list(
            "unit sub, not unit",
            lambda: self._table.topics_flagged(set_bits=UNIT_SUB_FLAG, clear_bits=UNIT_FLAG),
        )

    def _list(self, name: str, make: Callable[[], Body]) -> bytes:
        body = self._lists.get(name)
        if body is None:
            body = self._lists[name] = make().encode()
        return body

    def _forget(self, topic: str | None) -> None:
        if topic is None:
            self._routes.clear()
        else:
            self._routes.pop(topic, None)
        self._lists.clear()
        self._topics_of_cluster.clear()
