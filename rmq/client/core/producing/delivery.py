"""Sending one message: attempts, retries and what is said when all fail. Sans-IO.

A send has one timeout for all of its attempts. An attempt that fails is repeated on another broker
where there is one, unless the broker said no in a way that no other would undo. A message that was
sent to a queue of the caller's choice stays there: one attempt, as stock clients do.

A broker that is no master at the moment has stored nothing: that is no attempt that failed. If no
other broker takes the message, a master is waited for as long as the send has time, also by
messages for a queue of the caller's choice (`rmq.client.core.producing.master_waits`).

`Delivery` keeps the account of one send, and its `after_failure` decides what follows a failed
attempt: another one, a wait for a new route or for a master, or the end. Three drivers carry that
out: `Sends.send` for one message as a flow, `rmq.client.trio.pipeline` and
`rmq.client.blocking.sending` for thousands at a time.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.client.core.flows import Ask, Flow, Pause, Tell
from rmq.client.core.producing.master_waits import (
    NamedMasters,
    NoMasterError,
    Pauses,
    may_get_master,
)
from rmq.client.core.producing.outbound import read_send_answer, send_request
from rmq.client.core.producing.selection import BrokerFaults, QueueRing
from rmq.errors import (
    BadAnswerError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    IllegalMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    RmqError,
    SendFailedError,
)
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.routes import RouteTable, TopicRoute
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

_MOVED_CODES: Final = frozenset(
    (
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.NO_PERMISSION),
    )
)
"""A no of a broker whose place in the route may be another's by now."""

TOPICS_MAX: Final = 4096
"""Topics a producer keeps the turn of."""
REFRESH_INTERVAL_S: Final = 1.0
"""However many sends fail, a topic's route is not asked for more often."""


def is_retried(error: ClientError) -> bool:
    """Tell whether another broker may succeed where one has failed."""
    if isinstance(error, ResponseError):
        return error.code in RETRIED_CODES
    return not isinstance(error, ClientClosedError)


def says_broker_is_gone(error: ClientError) -> bool:
    """Tell whether a failure is a reason to ask nameservers where brokers are."""
    if isinstance(error, ResponseError):
        return error.code in _MOVED_CODES
    return isinstance(error, ConnectFailedError | ConnectionLostError | NoRouteError)


class Then(enum.Enum):
    """What follows a failed attempt."""

    GIVE_UP = enum.auto()
    RETRY = enum.auto()
    """Try again at once, on another broker where there is one."""
    WAIT = enum.auto()
    """Wait for a master, and try again."""
    WAIT_ROUTE = enum.auto()
    """Wait until the route was asked for, and try again: there is no other broker to go to. If it
    was asked for within the last `REFRESH_INTERVAL_S`, try again at once."""


class Next(NamedTuple):
    """What a driver has to do after a failed attempt."""

    then: Then
    asks_route: bool
    """Whether to have the route asked for. Nothing but WAIT_ROUTE waits for it."""


@final
class Delivery:
    """The account of one send: what was tried, what came of it, and whether to go on."""

    __slots__ = (
        "_nobody",
        "_refused_by",
        "_stays",
        "_tries_left",
        "attempts",
        "kept",
        "may_be_stored",
        "topic",
    )

    def __init__(self, topic: str, *, retries: int, stays: bool = False) -> None:
        """`stays`: to one queue only, however often that fails."""
        self.topic = topic
        self.attempts: list[tuple[str, ClientError]] = []
        """What failed. Of brokers that were no masters, the last time counts."""
        self.kept: SendResult | None = None
        """A message that is stored, but not as well as it should be: better than none."""
        self.may_be_stored = False
        """Whether a broker may have got it and said nothing."""
        self._stays = stays
        self._tries_left = 1 + (0 if stays else retries)
        self._refused_by: set[str] = set()
        """Brokers that were found to be no masters since a master was waited for last."""
        self._nobody: NoMasterError | None = None

    @property
    def last_broker(self) -> str | None:
        """The broker that failed last."""
        return self.attempts[-1][0] if self.attempts else None

    @classmethod
    def begun(cls, config: ProducerConfig, topic: str, queue: MessageQueue | None) -> Delivery:
        """Return the account of a send to a queue in turn, or to one of the caller's choice."""
        return cls(topic, retries=config.retries, stays=queue is not None)

    def after_failure(
        self,
        broker_name: str,
        error: ClientError,
        route: TopicRoute | None,
        *,
        has_time: bool,
        has_other: bool,
    ) -> Next:
        """Take in a failed attempt by a route, if it is still known; tell what follows.

        `has_other`: whether the topic has another broker to try.
        """
        then = self.failed(broker_name, error, route)
        if not has_time:
            then = Then.GIVE_UP
        if then is Then.WAIT:
            # Routes are asked for in pauses then.
            return Next(then, asks_route=False)
        # Also at the end: the next message finds the broker where it is then.
        asks_route = says_broker_is_gone(error)
        if then is Then.RETRY and asks_route and not has_other:
            then = Then.WAIT_ROUTE
        return Next(then, asks_route)

    def failed(self, broker_name: str, error: ClientError, route: TopicRoute | None) -> Then:
        """Take in a failed attempt by a route, if it is still known; tell what follows."""
        if may_get_master(error, broker_name, route):
            return self._refused(broker_name, error, route)
        if isinstance(error, RequestTimeoutError | ConnectionLostError | BadAnswerError):
            self.may_be_stored = True
        self.attempts.append((broker_name, error))
        self._tries_left -= 1
        return Then.RETRY if self._tries_left > 0 and is_retried(error) else Then.GIVE_UP

    def _refused(self, broker_name: str, error: ClientError, route: TopicRoute | None) -> Then:
        """Take in that a broker is no master now, which does not count as one of the tries."""
        for known in self.attempts:
            if known[0] == broker_name and may_get_master(known[1], broker_name, route):
                self.attempts.remove(known)
                break
        self.attempts.append((broker_name, error))
        has_been_asked = broker_name in self._refused_by
        self._refused_by.add(broker_name)
        others = frozenset() if self._stays or route is None else route.writable_names
        if has_been_asked or others <= self._refused_by:
            self._refused_by.clear()
            return Then.WAIT
        return Then.RETRY

    def found_nobody(self, error: NoMasterError) -> None:
        """Take in that no broker of the topic is a master now."""
        self._nobody = error

    def stored_badly(self, result: SendResult, error: ClientError) -> bool:
        """Take in an answer that is not good enough; tell whether to try again."""
        self.kept = result
        self.attempts.append((result.queue.broker_name, error))
        self._tries_left -= 1
        return self._tries_left > 0

    def outcome(self) -> SendResult | SendFailedError | NoMasterError:
        """Return what there is at the end."""
        if self.kept is not None:
            return self.kept
        if self._nobody is not None and not self.attempts:
            return self._nobody
        return SendFailedError(self.topic, self.attempts, may_be_stored=self.may_be_stored)


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


def batch_results(
    runs: Sequence[Sequence[Message]], outcomes: Sequence[SendResult | RmqError | None]
) -> list[SendResult]:
    """Return the results of the parts of a batch; None stands for one that was not sent.

    Raises `BatchFailedError` if some parts were not acknowledged, and the error itself if there is
    one part only.
    """
    results = [each for each in outcomes if not isinstance(each, RmqError) and each is not None]
    if len(results) == len(outcomes):
        return results
    if len(outcomes) == 1:
        assert isinstance(outcomes[0], RmqError)
        raise outcomes[0]
    raise BatchFailedError(runs, outcomes)


def check_queue(topic: str, queue: MessageQueue | None) -> None:
    """Raise `IllegalMessageError` if a queue that was chosen is none of the message's topic."""
    if queue is not None and queue.topic != topic:
        raise IllegalMessageError(f"a message for topic {topic} and a queue of topic {queue.topic}")


def not_ok(result: SendResult, address: str) -> ClientError:
    """Return as an error that a message is stored, but not as well as it should be."""
    return ClientError(address, f"{address} answered {result.status.value}")


def note_failure(
    faults: BrokerFaults, broker_name: str, error: ClientError, *, took_s: float, now: float
) -> None:
    """Have a broker left alone for a while because an attempt has failed."""
    if may_get_master(error, broker_name, None):
        faults.note_refused(broker_name, now)
    else:
        faults.note(broker_name, took_s, now, failed=True)


def lookup_timed_out(asked: str, topic: str, timeout_s: float) -> RequestTimeoutError:
    """Return what to say of a send whose time was over before any broker was found."""
    return RequestTimeoutError(asked, f"asking where topic {topic} is", timeout_s)


def no_master(address: str, queue: MessageQueue) -> NoRouteError:
    """Return what to say of a queue whose broker has no master now."""
    return NoRouteError(address, queue.topic, f"broker {queue.broker_name} has no master now")


def nothing_writable(address: str, topic: str, route: TopicRoute | None = None) -> NoRouteError:
    """Return what to say of a topic that takes no messages now: that it waits for a master, say."""
    error = NoMasterError if route is not None and route.awaits_master else NoRouteError
    return error(
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
        on_stale: Callable[[str], object] | None = None,
    ) -> None:
        """`now` is a clock for durations, `now_ms` the time of day.

        `first` spreads producers over queues. `on_stale` is told of a topic whose route may be
        another by now, when a send need not wait for it.
        """
        self.config = config
        self.faults = BrokerFaults()
        self._routes = routes
        self._nameservers = nameservers
        self._now = now
        self._now_ms = now_ms
        self._first = first
        self._on_stale = on_stale
        self._rings: dict[str, QueueRing] = {}
        self._silent: set[str] = set()
        """Topics whose last send got no answer: a broker that hangs may have been replaced."""
        self._asked = ";".join(nameservers.addresses)

    def route(self, topic: str, timeout_s: float | None = None) -> Flow[TopicRoute]:
        """Return the route of a topic to send to.

        If its brokers have no master now, one is waited for. Raises `NoRouteError` or
        `NoNameserverError`.
        """
        deadline = self._now() + (self.config.send_timeout_s if timeout_s is None else timeout_s)
        pauses = Pauses()
        while True:
            try:
                return (yield from self._find_route(topic))
            except NoMasterError:
                if (left_s := deadline - self._now()) <= 0:
                    raise
                yield from _rest(pauses.next_s(self._now()), left_s)

    def _find_route(self, topic: str) -> Flow[TopicRoute]:
        known = self._routes.get(topic)
        if known is not None and known.writable:
            if topic not in self._silent:
                return known
            self._silent.discard(topic)
            route = yield from self._fresh_route(known)
        else:
            route = yield from self._nameservers.route_to_send(topic, self.config.default_queues)
            self._routes.put(route)
        if not route.writable:
            raise nothing_writable(self._asked, topic, route)
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
        delivery = Delivery.begun(config, outbound.topic, queue)
        route = yield from self.route(outbound.topic, whole_s)
        if self._now() >= deadline:
            raise lookup_timed_out(self._asked, outbound.topic, whole_s)
        pauses, named = Pauses(), NamedMasters()
        then = Then.RETRY
        while then is not Then.GIVE_UP and (left_s := deadline - self._now()) > 0:
            if then is Then.WAIT:
                yield from _rest(pauses.next_s(self._now()), left_s)
                route = named.applied_to((yield from self._fresh_route(route)))
                then = Then.RETRY if route.writable or queue is not None else Then.WAIT
                continue
            chosen = queue or self._choose(route, delivery.last_broker)
            broker_name = chosen.broker_name
            address = route.master_of(broker_name)
            try:
                if address is None:
                    raise no_master(self._asked, chosen)
                result = yield from self._attempt(outbound, chosen, address, left_s)
            except ClientError as exc:
                then, asks_route = delivery.after_failure(
                    broker_name,
                    exc,
                    route,
                    has_time=self._now() < deadline,
                    has_other=_has_other(route, broker_name),
                )
                named.note(broker_name, exc)
                if isinstance(exc, RequestTimeoutError) and len(self._silent) < TOPICS_MAX:
                    self._silent.add(route.topic)
                if then is Then.WAIT_ROUTE:
                    route = yield from self._fresh_route(route)
                    then = Then.RETRY if route.writable else Then.WAIT
                elif asks_route:
                    self._stale(route.topic)
            else:
                if result.is_ok or not config.retries_when_not_ok or queue is not None:
                    return result
                goes_on = delivery.stored_badly(result, not_ok(result, address or ""))
                then = Then.RETRY if goes_on else Then.GIVE_UP
        outcome = delivery.outcome()
        if isinstance(outcome, RmqError):
            raise outcome
        return outcome

    def send_oneway(
        self, outbound: OutboundMessage, *, queue: MessageQueue | None = None
    ) -> Flow[None]:
        """Send a message without an answer: whether it is stored is not known."""
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
        except ClientError as exc:
            if self.config.avoids_slow_brokers:
                now = self._now()
                note_failure(self.faults, queue.broker_name, exc, took_s=now - started, now=now)
            raise
        if self.config.avoids_slow_brokers:
            now = self._now()
            self.faults.note(queue.broker_name, now - started, now)
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

    def _stale(self, topic: str) -> None:
        if self._on_stale is not None:
            self._on_stale(topic)

    def _fresh_route(self, old: TopicRoute) -> Flow[TopicRoute]:
        """Return a new route, or the old one if there is none: a broker may be back by now.

        One without a master is returned if there are slaves, one of which may become the master.
        """
        try:
            route = yield from self._nameservers.route(old.topic)
        except ClientError:
            return old
        self._routes.put(route)
        return route if route.writable or route.awaits_master else old


def _rest(pause_s: float, left_s: float) -> Flow[None]:
    """Pause, and no longer than there is time."""
    if pause_s > 0:
        yield Pause(min(pause_s, left_s))


def _has_other(route: TopicRoute, broker_name: str) -> bool:
    """Tell whether a route has another broker to try."""
    return any(queue.broker_name != broker_name for queue in route.writable)
