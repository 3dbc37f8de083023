"""Sending one message: attempts, retries and what is said when all fail. Sans-IO.

A send has one timeout for all of its attempts. An attempt that fails is repeated on another broker
where there is one, unless the broker said no in a way that no other would undo. A message that was
sent to a queue of the caller's choice stays there: one attempt, as stock clients do.

`Delivery` keeps the account of one send, `Sends.send` is the whole of it as a flow. The trio
producer pipelines thousands of deliveries by the same rules (`rmq.client.pipeline`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.client.flows import Ask, Flow, Tell
from rmq.client.outbound import read_send_answer, send_request
from rmq.client.selection import BrokerFaults, QueueRing
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
)
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.client.messages import Message, SendResult
    from rmq.client.nameservers import Nameservers
    from rmq.client.outbound import OutboundMessage
    from rmq.client.producer_config import ProducerConfig
    from rmq.client.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue
    from rmq.remoting.headers import SendMessageRequestV2

RETRIED_CODES: Final = frozenset(
    (
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.SYSTEM_ERROR),
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.NO_BUYER_ID),
        int(ResponseCode.NOT_IN_CURRENT_UNIT),
    )
)
"""A no of one broker that may be a yes of another."""

TOPICS_MAX: Final = 4096
"""Topics a producer keeps the turn of."""


def is_retried(error: ClientError) -> bool:
    """Tell whether another broker may succeed where one has failed."""
    if isinstance(error, ResponseError):
        return error.code in RETRIED_CODES
    return not isinstance(error, ClientClosedError)


def says_broker_is_gone(error: ClientError) -> bool:
    """Tell whether a failure is a reason to ask nameservers where brokers are."""
    if isinstance(error, ResponseError):
        return error.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION)
    return isinstance(error, ConnectFailedError | ConnectionLostError | NoRouteError)


@final
class Delivery:
    """The account of one send: what was tried, what came of it, and whether to go on."""

    __slots__ = ("_retries", "attempts", "kept", "may_be_stored", "topic")

    def __init__(self, topic: str, *, retries: int, stays: bool = False) -> None:
        """`stays`: to one queue only, however often that fails."""
        self.topic = topic
        self.attempts: list[tuple[str, ClientError]] = []
        self.kept: SendResult | None = None
        """A message that is stored, but not as well as it should be: better than none."""
        self.may_be_stored = False
        """Whether a broker may have got it and said nothing."""
        self._retries = 0 if stays else retries

    @property
    def last_broker(self) -> str | None:
        """The broker that failed last."""
        return self.attempts[-1][0] if self.attempts else None

    def failed(self, broker_name: str, error: ClientError) -> bool:
        """Take in a failed attempt; tell whether to try again."""
        if isinstance(error, RequestTimeoutError | ConnectionLostError | BadAnswerError):
            self.may_be_stored = True
        self.attempts.append((broker_name, error))
        return self._tries_left > 0 and is_retried(error)

    def stored_badly(self, result: SendResult, error: ClientError) -> bool:
        """Take in an answer that is not good enough; tell whether to try again."""
        self.kept = result
        self.attempts.append((result.queue.broker_name, error))
        return self._tries_left > 0

    @property
    def _tries_left(self) -> int:
        return 1 + self._retries - len(self.attempts)

    def error(self) -> SendFailedError:
        """Return what to say now that all is in vain."""
        return SendFailedError(self.topic, self.attempts, may_be_stored=self.may_be_stored)

    def outcome(self) -> SendResult | SendFailedError:
        """Return what there is at the end."""
        return self.error() if self.kept is None else self.kept


class BatchFailedError(SendFailedError):
    """Some parts of a large batch were not acknowledged; others may be."""

    def __init__(
        self,
        runs: Sequence[Sequence[Message]],
        outcomes: Sequence[SendResult | RmqError | None],
    ) -> None:
        """`outcomes` has what became of each run of messages."""
        errors = [each for each in outcomes if isinstance(each, RmqError)]
        attempts: list[tuple[str, ClientError]] = []
        for error in errors:
            if isinstance(error, SendFailedError):
                attempts += error.attempts
            elif isinstance(error, ClientError):
                attempts.append(("", error))
        super().__init__(
            runs[0][0].topic,
            attempts,
            may_be_stored=any(
                isinstance(error, SendFailedError) and error.may_be_stored for error in errors
            ),
        )
        self.results = [
            each for each in outcomes if each is not None and not isinstance(each, RmqError)
        ]
        """What was acknowledged."""
        self.unacknowledged = [
            message
            for run, outcome in zip(runs, outcomes, strict=True)
            if outcome is None or isinstance(outcome, RmqError)
            for message in run
        ]
        """The messages of the parts that were not."""


def not_ok(result: SendResult, address: str) -> ClientError:
    """Return as an error that a message is stored, but not as well as it should be."""
    return ClientError(address, f"{address} answered {result.status.value}")


def lookup_timed_out(asked: str, topic: str, timeout_s: float) -> RequestTimeoutError:
    """Return what to say of a send whose time was over before any broker was found."""
    return RequestTimeoutError(asked, f"asking where topic {topic} is", timeout_s)


def no_master(address: str, queue: MessageQueue) -> NoRouteError:
    """Return what to say of a queue whose broker has no master now."""
    return NoRouteError(address, queue.topic, f"broker {queue.broker_name} has no master now")


def nothing_writable(address: str, topic: str) -> NoRouteError:
    """Return what to say of a topic that takes no messages now."""
    return NoRouteError(
        address,
        topic,
        "none of its queues takes messages now",
        hint="do its masters run, and may the topic be written to?",
    )


@final
class Sends:
    """Sends messages one by one, each as a flow. For clients without a loop."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        routes: RouteTable,
        nameservers: Nameservers,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        first: int = 0,
    ) -> None:
        """`now` is a clock for durations, `now_ms` the time of day.

        `first` spreads producers over queues.
        """
        self.config = config
        self.faults = BrokerFaults()
        self._routes = routes
        self._nameservers = nameservers
        self._now = now
        self._now_ms = now_ms
        self._first = first
        self._rings: dict[str, QueueRing] = {}
        self._asked = ";".join(nameservers.addresses)

    def route(self, topic: str) -> Flow[TopicRoute]:
        """Return the route of a topic to send to; raise `NoRouteError` or `NoNameserverError`."""
        known = self._routes.get(topic)
        if known is not None and known.writable:
            return known
        route = yield from self._nameservers.route_to_send(topic, self.config.default_queues)
        self._routes.put(route)
        if not route.writable:
            raise nothing_writable(self._asked, topic)
        return route

    def send(
        self,
        outbound: OutboundMessage,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Flow[SendResult]:
        """Send a message to a queue in turn, or to that of the caller's choice.

        Raises `SendFailedError`, or `NoRouteError` and `NoNameserverError` if it never came to an
        attempt.
        """
        config = self.config
        whole_s = config.send_timeout_s if timeout_s is None else timeout_s
        deadline = self._now() + whole_s
        delivery = Delivery(outbound.topic, retries=config.retries, stays=queue is not None)
        route = yield from self.route(outbound.topic)
        if self._now() >= deadline:
            raise lookup_timed_out(self._asked, outbound.topic, whole_s)
        goes_on = True
        while goes_on and (left_s := deadline - self._now()) > 0:
            chosen = queue or self._choose(route, delivery.last_broker)
            broker_name = chosen.broker_name
            address = route.master_of(broker_name)
            try:
                if address is None:
                    raise no_master(self._asked, chosen)
                result = yield from self._attempt(outbound, chosen, address, left_s)
            except ClientError as exc:
                goes_on = delivery.failed(broker_name, exc)
                if goes_on and says_broker_is_gone(exc) and not _has_other(route, broker_name):
                    route = yield from self._fresh_route(route)
            else:
                if result.is_ok or not config.retries_when_not_ok or queue is not None:
                    return result
                goes_on = delivery.stored_badly(result, not_ok(result, address or ""))
        outcome = delivery.outcome()
        if isinstance(outcome, SendFailedError):
            raise outcome
        return outcome

    def send_oneway(
        self, outbound: OutboundMessage, *, queue: MessageQueue | None = None
    ) -> Flow[None]:
        """Send a message without an answer: nobody knows what becomes of it."""
        route = yield from self.route(outbound.topic)
        chosen = queue or self._choose(route, None)
        address = route.master_of(chosen.broker_name)
        if address is None:
            raise no_master(self._asked, chosen)
        yield Tell(address, outbound.code, self._header(outbound, chosen), outbound.body)

    def _attempt(
        self, outbound: OutboundMessage, queue: MessageQueue, address: str, timeout_s: float
    ) -> Flow[SendResult]:
        started = self._now()
        header = self._header(outbound, queue)
        try:
            answer = yield Ask(address, outbound.code, header, outbound.body, timeout_s)
            assert answer is not None
            result = read_send_answer(
                answer.command, address=address, queue=queue, outbound=outbound
            )
        except ClientError:
            self._note(queue, started, failed=True)
            raise
        self._note(queue, started)
        return result

    def _header(self, outbound: OutboundMessage, queue: MessageQueue) -> SendMessageRequestV2:
        return send_request(
            outbound,
            group=self.config.group,
            queue=queue,
            now_ms=self._now_ms(),
            default_queues=self.config.default_queues,
        )

    def _choose(self, route: TopicRoute, failed: str | None) -> MessageQueue:
        ring = self._rings.get(route.topic)
        if ring is None:
            if len(self._rings) >= TOPICS_MAX:
                del self._rings[next(iter(self._rings))]
            ring = self._rings[route.topic] = QueueRing(self._first)
        if self.config.avoids_slow_brokers:
            return ring.next_available(route.writable, self.faults, self._now())
        return ring.next(route.writable, failed)

    def _note(self, queue: MessageQueue, started: float, *, failed: bool = False) -> None:
        if self.config.avoids_slow_brokers:
            now = self._now()
            self.faults.note(queue.broker_name, now - started, now, failed=failed)

    def _fresh_route(self, old: TopicRoute) -> Flow[TopicRoute]:
        """Return a new route, or the old one if there is none: a broker may be back by now."""
        try:
            route = yield from self._nameservers.route(old.topic)
        except ClientError:
            return old
        self._routes.put(route)
        return route if route.writable else old


def _has_other(route: TopicRoute, broker_name: str) -> bool:
    """Tell whether a route has another broker to try."""
    return any(queue.broker_name != broker_name for queue in route.writable)
