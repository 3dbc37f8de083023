"""Sends of single messages, each as a flow: for clients without a loop. Pure.

Drives `rmq.client.core.producing.delivery`: a flow carries out the steps of one send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.client.core.flows import Ask, Flow, Pause, Tell
from rmq.client.core.producing.delivery import (
    AwaitMaster,
    Delivery,
    Done,
    FindRoute,
    SendPolicy,
    Transmit,
    no_master,
    nothing_writable,
)
from rmq.client.core.producing.master_waits import NoMasterError
from rmq.client.core.producing.outbound import read_send_answer, send_request
from rmq.client.core.producing.route_search import RouteSearch
from rmq.client.core.producing.targets import TOPICS_MAX, QueueTarget, TargetTable
from rmq.errors import ClientError, RequestTimeoutError, RmqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.messages import SendResult
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.headers import SendMessageRequestV2


@final
class Sends:
    """Sends messages one by one, each as a flow."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        routes: RouteTable,
        nameservers: Nameservers,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        first: int = 0,
        on_stale: Callable[[str], object] | None = None,
    ) -> None:
        """`now` is a clock for durations, `now_ms` the time of day.

        `first` spreads producers over queues. `on_stale` is called with a topic whose route is to
        be asked for in the background.
        """
        self.config = config
        self._routes = routes
        self._nameservers = nameservers
        self._now = now
        self._now_ms = now_ms
        self._table = TargetTable(routes, lambda: first)
        self._policy: SendPolicy[QueueTarget] = SendPolicy(
            config,
            routes=routes,
            nameservers=nameservers.addresses,
            targets_of=self._table.get,
            on_stale=_ignore if on_stale is None else on_stale,
        )
        self._silent: set[str] = set()
        """Topics whose last send got no answer: a broker that hangs may have been replaced."""

    # --- sends -------------------------------------------------------------------------------

    def send(
        self,
        outbound: OutboundMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Flow[SendResult]:
        """Send a message to a queue in turn, or to that of the caller's choice.

        Raises `SendFailedError`, or `NoRouteError` and `NoNameserverError` if there was no attempt.
        """
        topic = outbound.topic
        timeout_s = self.config.send_timeout_s if timeout_s is None else timeout_s
        now = self._now()
        deadline = now + timeout_s
        if topic in self._silent:
            yield from self._refresh_silent(topic)
            now = self._now()
        delivery = Delivery(self._policy, topic, queue, timeout_s)
        while True:
            step = delivery.next(now, deadline - now)
            if isinstance(step, Transmit):
                result = yield from self._attempt(delivery, step, outbound, now, deadline)
                if result is not None:
                    return result
            elif isinstance(step, Done):
                if isinstance(step.outcome, RmqError):
                    raise step.outcome
                return step.outcome
            elif isinstance(step, FindRoute):
                try:
                    yield from self._look_up(topic)
                except RmqError as exc:
                    delivery.no_route(exc)
            elif isinstance(step, AwaitMaster):
                yield from self._await_master(topic, step.pause_s)
            else:
                yield from self._refresh(topic)
            now = self._now()

    def _attempt(
        self,
        delivery: Delivery[QueueTarget],
        step: Transmit[QueueTarget],
        outbound: OutboundMessage,
        started: float,
        deadline: float,
    ) -> Flow[SendResult | None]:
        """Make one attempt; return the result, None if the send goes on."""
        policy = self._policy
        target = step.target
        header = self._header(outbound, target.queue)
        try:
            answer = yield Ask(target.address, outbound.code, header, outbound.body, step.timeout_s)
            assert answer is not None
            result = read_send_answer(
                answer.command, address=target.address, queue=target.queue, outbound=outbound
            )
        except ClientError as exc:
            if isinstance(exc, RequestTimeoutError) and len(self._silent) < TOPICS_MAX:
                self._silent.add(outbound.topic)
            now = self._now()
            delivery.failed(target, exc, took_s=now - started, now=now, left_s=deadline - now)
            return None
        if policy.accepts_every_answer:
            return result
        now = self._now()
        if policy.accepts(target.broker_name, result, took_s=now - started, now=now):
            return result
        delivery.not_ok(target, result)
        return None

    def send_oneway(
        self, outbound: OutboundMessage, *, queue: MessageQueue | None = None
    ) -> Flow[None]:
        """Send a message without an answer: whether it is stored is not known."""
        route = yield from self.route(outbound.topic)
        targets = self._table.get(route.topic)
        assert targets is not None, "the route that was found has writable queues"
        target = self._policy.choose(targets, queue, None, self._now())
        if not target.address:
            raise no_master(self._policy.asked, target.queue)
        header = self._header(outbound, target.queue)
        yield Tell(target.address, outbound.code, header, outbound.body)

    def _header(self, outbound: OutboundMessage, queue: MessageQueue) -> SendMessageRequestV2:
        return send_request(
            outbound,
            group=self.config.group,
            queue=queue,
            now_ms=self._now_ms(),
            default_queues=self.config.default_queues,
        )

    # --- routes ------------------------------------------------------------------------------

    def route(self, topic: str, timeout_s: float | None = None) -> Flow[TopicRoute]:
        """Return the route of a topic to send to.

        Waits for a master if its brokers have none now. Raises `NoRouteError` or
        `NoNameserverError`.
        """
        timeout_s = self.config.send_timeout_s if timeout_s is None else timeout_s
        search = RouteSearch(topic, asked=self._policy.asked, timeout_s=timeout_s, now=self._now())
        if topic in self._silent:
            yield from self._refresh_silent(topic)
        known = self._routes.get(topic)
        if known is not None and known.writable:
            return known
        while True:
            try:
                return (yield from self._look_up(topic))
            except NoMasterError as exc:
                yield from _pause(search.no_master(exc, self._now()))

    def _look_up(self, topic: str) -> Flow[TopicRoute]:
        """Ask for the route of a topic that may be created by the first send."""
        route = yield from self._nameservers.route_to_send(topic, self.config.default_queues)
        self._routes.put(route)
        if not route.writable:
            raise nothing_writable(self._policy.asked, topic, route)
        return route

    def _refresh(self, topic: str) -> Flow[None]:
        """Ask for a route again; if that fails, the old one stays."""
        try:
            route = yield from self._nameservers.route(topic)
        except ClientError:
            return
        self._routes.put(route)

    def _refresh_silent(self, topic: str) -> Flow[None]:
        """Ask where a topic is whose last send got no answer."""
        self._silent.discard(topic)
        yield from self._refresh(topic)

    def _await_master(self, topic: str, pause_s: float) -> Flow[None]:
        yield from _pause(pause_s)
        yield from self._refresh(topic)
        route = self._policy.waits.end(topic, self._routes.get(topic))
        if route is not None:
            self._table.use(route)


def _pause(seconds: float) -> Flow[None]:
    if seconds > 0:
        yield Pause(seconds)


def _ignore(topic: str) -> None:
    """Ask for nothing in the background."""
