"""How messages get to queues: the topics a producer sends to, their queues and the connections that
lead there. Pure.

A table of paths follows the routes: when a route changes, the paths of its topic are replaced, and
connections that no path needs any longer are forgotten (the client keeps them).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeAlias, final

from rmq.client.core.producing.selection import BrokerFaults, QueueRing
from rmq.client.core.producing.targets import TOPICS_MAX, TopicTargets

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.loop import Channel
    from rmq.client.tasks.pending import Line
    from rmq.model.queues import MessageQueue
    from rmq.remoting.command import FrameTemplate


@final
class Link:
    """The connection to one master."""

    __slots__ = ("address", "channel", "line")

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel: Channel | None = None
        self.line: Line | None = None
        """The sends that wait for the connection while it is being made."""

    @property
    def is_open(self) -> bool:
        return self.channel is not None and self.channel.close_reason is None


@final
class Path:
    """One queue, and the connection that leads there."""

    __slots__ = ("address", "broker_name", "link", "queue", "template")

    def __init__(self, queue: MessageQueue, link: Link | None) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.link = link
        """None: the broker has no master now."""
        self.address = "" if link is None else link.address
        """That of the master, empty if there is none."""
        self.template: FrameTemplate | None = None
        """Encodes the requests to this queue; made by the first send."""


TopicPaths: TypeAlias = TopicTargets[Path]
"""The paths of a topic."""


def links_of(topic: TopicPaths) -> set[Link]:
    """Return the connections to all masters of a topic."""
    return {path.link for path in topic.targets if path.link is not None}


@final
class PathTable:
    """The paths of all topics of a producer."""

    def __init__(self, on_new_broker: Callable[[], None]) -> None:
        self.faults = BrokerFaults()
        self._on_new_broker = on_new_broker
        self._topics: dict[str, TopicPaths] = {}
        self.get = self._topics.get
        """Return the paths of a topic by its name, None if it has none yet."""
        self._links: dict[str, Link] = {}

    def topics(self) -> tuple[str, ...]:
        return tuple(self._topics)

    def take(self, route: TopicRoute) -> TopicPaths:
        """Send by this route from now on. It has queues that can be written to."""
        assert route.writable, f"{route} leads nowhere"
        known = self._topics.pop(route.topic, None)
        if known is None and len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        ring = QueueRing(secrets.randbelow(1 << 16)) if known is None else known.ring
        links_before = len(self._links)
        topic = self._topics[route.topic] = TopicTargets(route, ring, self._path_to)
        if len(self._links) > links_before:
            self._on_new_broker()
        if known is not None:
            self._forget_unused()
        return topic

    def change(self, route: TopicRoute) -> None:
        """Follow a change of a route, if the topic was sent to."""
        if route.topic not in self._topics:
            return
        if route.writable:
            self.take(route)
        else:
            # The next send says so, or finds that it has changed again.
            del self._topics[route.topic]

    def _path_to(self, queue: MessageQueue, address: str | None) -> Path:
        return Path(queue, None if address is None else self._link_to(address))

    def _link_to(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address)
        return link

    def _forget_unused(self) -> None:
        paths = [path for topic in self._topics.values() for path in topic.targets]
        used = {path.link for path in paths}
        for address, link in list(self._links.items()):
            if link not in used and link.line is None:
                del self._links[address]
        self.faults.keep_only({path.broker_name for path in paths})
