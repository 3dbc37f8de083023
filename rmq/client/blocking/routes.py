"""Routes that stay fresh without a timer.

An old route that is still used is refreshed in the background; the old one is used meanwhile. Only
a route that is unknown, or so old that all brokers may have changed, is waited for.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, final

from rmq.client.core.flows import Pause
from rmq.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmq.client.blocking.runner import FlowRunner, Task
    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import RouteTable, TopicRoute

logger = logging.getLogger(__name__)

_monotonic = time.monotonic


@final
class RouteKeeping:
    """Caches the routes of one client and refreshes those in use."""

    def __init__(
        self,
        nameservers: Nameservers,
        routes: RouteTable,
        *,
        refresh_s: float,
        runner: Callable[[], FlowRunner],
        on_change: Callable[[TopicRoute], None],
    ) -> None:
        self._nameservers = nameservers
        self._routes = routes
        self._refresh_s = refresh_s
        self._runner = runner
        self._on_change = on_change
        self._asked_at: dict[str, float] = {}
        """When nameservers were last asked for a route, whether they answered or not."""
        self._used_at: dict[str, float] = {}
        self._refreshing: dict[str, Task[TopicRoute]] = {}

    # --- for those who can wait --------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, asked for if it is not known; raise `NoRouteError`."""
        return self._get(topic, lambda: self._nameservers.route(topic), is_writable=False)

    def route_to_send(self, topic: str, queues: int) -> TopicRoute:
        """Return the route of a topic that the first send may create."""
        return self._get(
            topic, lambda: self._nameservers.route_to_send(topic, queues), is_writable=True
        )

    def refresh(self, topic: str) -> TopicRoute:
        """Ask for the route of a topic now."""
        return self._ask(topic, self._nameservers.route(topic))

    def _get(
        self, topic: str, flow: Callable[[], Flow[TopicRoute]], *, is_writable: bool
    ) -> TopicRoute:
        known = self._routes.get(topic)
        if known is None or (is_writable and not known.writable):
            return self._ask(topic, flow())
        if self._keep(topic, flow) < 2 * self._refresh_s:
            return known
        task = self._refreshing.get(topic)
        if task is None:
            return known
        try:
            route = self._runner().wait(task)
        except ClientError:
            # `take_in` says so.
            return known
        self.take_in()
        return route

    def _ask(self, topic: str, flow: Flow[TopicRoute]) -> TopicRoute:
        self._asked_at[topic] = self._used_at[topic] = _monotonic()
        route = self._runner().run(flow)
        self._take(route)
        return route

    # --- for those who cannot ----------------------------------------------------------------

    def known_to_send(self, topic: str, queues: int) -> TopicRoute | None:
        """Return a route that is known already; it is refreshed when old."""
        known = self._routes.get(topic)
        if known is not None:
            # On the path of every message, so the rest is left out while the route is young.
            now = self._used_at[topic] = _monotonic()
            if now - self._asked_at.setdefault(topic, now) >= self._refresh_s:
                self._keep(topic, lambda: self._nameservers.route_to_send(topic, queues))
        return known

    def keep(self, topic: str) -> None:
        """Have the route of a topic refreshed if it is known and old."""
        if self._routes.get(topic) is not None:
            self._keep(topic, lambda: self._nameservers.route(topic))

    def refresh_soon(self, topic: str, after_s: float = 0.0) -> Task[TopicRoute]:
        """Begin to ask for the route of a topic, or to wait until it is asked for."""
        task = self._refreshing.get(topic)
        if task is None:
            task = self._begin(topic, _after(after_s, self._nameservers.route(topic)))
        return task

    def _keep(self, topic: str, flow: Callable[[], Flow[TopicRoute]]) -> float:
        """Have a known route refreshed if it is old; return how old it is, in seconds."""
        now = self._used_at[topic] = _monotonic()
        age_s = now - self._asked_at.setdefault(topic, now)
        if age_s >= self._refresh_s and topic not in self._refreshing:
            self._begin(topic, flow())
        return age_s

    def _begin(self, topic: str, flow: Flow[TopicRoute]) -> Task[TopicRoute]:
        self._asked_at[topic] = _monotonic()
        task = self._refreshing[topic] = self._runner().start(flow)
        return task

    # --- from time to time -------------------------------------------------------------------

    def take_in(self) -> None:
        """Store the routes of refreshes that have finished."""
        if not self._refreshing:
            return
        for topic, task in list(self._refreshing.items()):
            if not task.is_done:
                continue
            del self._refreshing[topic]
            try:
                self._take(task.result())
            except ClientError as exc:
                logger.warning("the route of %s could not be refreshed: %s", topic, exc)

    def forget_unused(self, wanted: Collection[str]) -> None:
        """Forget routes that were not used for a while and that no member needs."""
        now = _monotonic()
        for topic, used_at in list(self._used_at.items()):
            if topic not in wanted and now - used_at > 2 * self._refresh_s:
                self._routes.forget(topic)
                del self._used_at[topic]
                self._asked_at.pop(topic, None)

    def forget_refreshes(self) -> None:
        """Drop refreshes in flight: they belong to the parent process, or the client closes."""
        self._refreshing.clear()

    def _take(self, route: TopicRoute) -> None:
        if self._routes.put(route):
            self._on_change(route)


def _after(seconds: float, flow: Flow[TopicRoute]) -> Flow[TopicRoute]:
    """Run a flow after a pause."""
    if seconds > 0:
        try:
            yield Pause(seconds)
        except BaseException:
            flow.close()
            raise
    return (yield from flow)
