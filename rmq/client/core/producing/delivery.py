"""The policy of sends: which queue, how many attempts, what is retried, when it ends. Pure.

A send has one timeout for all of its attempts. An attempt that fails is repeated on another broker
where there is one, unless the broker refused the message for a reason that holds everywhere. A
message for a queue of the caller's choice stays there: one attempt, as stock clients do.

A broker that is no master at the moment has stored nothing: that does not count as an attempt. If
no other broker takes the message, the send waits for a master as long as it has time, also if it
is for a queue of the caller's choice (`rmq.client.core.producing.master_waits`).

`Delivery` is the state machine of one send. A driver calls `next`, which returns the next step,
carries it out, and reports how it ended:

| step | what the driver does | what it reports |
| --- | --- | --- |
| `Transmit` | sends the message to a target | `failed`, or `not_ok` unless it is accepted |
| `FindRoute` | asks nameservers for the route | `no_route`, if there is none |
| `AwaitRoute` | asks for the route again, or waits while that is done | - |
| `AwaitMaster` | pauses, asks for the route, calls `MasterWaits.end` | - |
| `Done` | hands out the outcome | - |

`SendPolicy` has what all sends of a producer share. The machine is only needed once something is
missing or has failed: the first attempt of a send whose route is known takes its target from
`SendPolicy.choose`, and its answer ends it if `SendPolicy.accepts` says so.

Three drivers carry steps out: `rmq.client.core.producing.single_sends` for one message as a flow,
`rmq.client.tasks.pipeline` and `rmq.client.blocking.sending` for thousands at a time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final

from rmq.client.core.producing.master_waits import MasterWaits, NoMasterError, may_get_master
from rmq.client.core.producing.selection import BrokerFaults
from rmq.client.core.producing.targets import TOPICS_MAX, Target
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
    from rmq.client.core.producing.config import ProducerConfig
    from rmq.client.core.producing.targets import TopicTargets
    from rmq.client.core.routes import RouteTable, TopicRoute
    from rmq.model.queues import MessageQueue

T = TypeVar("T", bound=Target)

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
"""Refusals that another broker may not share; such sends are retried."""

_MOVED_CODES: Final = frozenset(
    (
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.NO_PERMISSION),
    )
)
"""Refusals after which the topic's route is asked for: the broker's role may have changed."""

REFRESH_INTERVAL_S: Final = 1.0
"""However many sends fail, the route of a topic is not asked for more often because of them."""


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


# --- steps ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Transmit(Generic[T]):
    """Send the message to a queue; its broker has a master."""

    target: T
    timeout_s: float


@final
@dataclass(frozen=True, slots=True)
class FindRoute:
    """Find the route of the topic, which may be one that this send creates."""


@final
@dataclass(frozen=True, slots=True)
class AwaitRoute:
    """Go on when nameservers have answered or failed: the only broker seems to be gone."""


@final
@dataclass(frozen=True, slots=True)
class AwaitMaster:
    """Ask nameservers for the route after a pause: the topic has no master now."""

    pause_s: float


@final
@dataclass(frozen=True, slots=True)
class Done:
    """The send is over."""

    outcome: SendResult | RmqError


Step: TypeAlias = Transmit[T] | FindRoute | AwaitRoute | AwaitMaster | Done

_FIND_ROUTE: Final = FindRoute()
_AWAIT_ROUTE: Final = AwaitRoute()


# --- the policy ----------------------------------------------------------------------------------


@final
class SendPolicy(Generic[T]):
    """What all sends of one producer share."""

    __slots__ = (
        "_avoids_slow_brokers",
        "_on_stale",
        "_refreshed_at",
        "accepts_every_answer",
        "asked",
        "config",
        "faults",
        "refreshing",
        "routes",
        "targets_of",
        "waits",
    )

    def __init__(
        self,
        config: ProducerConfig,
        *,
        routes: RouteTable,
        nameservers: Sequence[str],
        targets_of: Callable[[str], TopicTargets[T] | None],
        on_stale: Callable[[str], object],
        faults: BrokerFaults | None = None,
    ) -> None:
        """`targets_of` returns the targets of a topic, None if none of its queues is writable.

        `on_stale` is called with a topic whose route is to be asked for in the background.
        """
        self.config = config
        self.routes = routes
        self.asked = ";".join(nameservers)
        """The addresses of all nameservers, for errors."""
        self.targets_of = targets_of
        self.faults = BrokerFaults() if faults is None else faults
        self.waits = MasterWaits(TOPICS_MAX)
        self.refreshing: set[str] = set()
        """Topics whose routes are asked for again just now. Drivers that have several sends under
        way keep it."""
        self.accepts_every_answer = not (config.avoids_slow_brokers or config.retries_when_not_ok)
        """Whether `accepts` has nothing to decide."""
        self._avoids_slow_brokers = config.avoids_slow_brokers
        self._on_stale = on_stale
        self._refreshed_at: dict[str, float] = {}

    def choose(
        self, topic: TopicTargets[T], queue: MessageQueue | None, avoided: str | None, now: float
    ) -> T:
        """Return where an attempt goes: to `queue` if the caller chose one, or the next in turn.

        `avoided` is the broker that failed last.
        """
        if queue is not None:
            return topic.target_to(queue)
        if self._avoids_slow_brokers:
            return topic.ring.next_available(topic.targets, self.faults, now)
        return topic.ring.next(topic.targets, avoided)

    def accepts(self, broker_name: str, result: SendResult, *, took_s: float, now: float) -> bool:
        """Take in an answer and how long it took; tell whether it ends the send.

        A message that is stored, but not flushed or replicated in time, is sent again if the
        producer is configured so.
        """
        if self._avoids_slow_brokers:
            self.faults.note(broker_name, took_s, now)
        return result.is_ok or not self.config.retries_when_not_ok

    def note_failure(
        self, broker_name: str, error: ClientError, *, took_s: float, now: float
    ) -> None:
        """Have sends avoid a broker for a while because an attempt has failed."""
        if not self._avoids_slow_brokers:
            return
        if may_get_master(error, broker_name, None):
            self.faults.note_refused(broker_name, now)
        else:
            self.faults.note(broker_name, took_s, now, failed=True)

    def begin_refresh(self, topic: str, now: float) -> bool:
        """Tell whether to ask for a route again now, for a send has failed or got no answer.

        That is so at most once in `REFRESH_INTERVAL_S`, and not while it is asked for already.
        """
        if topic in self.refreshing:
            return False
        refreshed_at = self._refreshed_at
        if now - refreshed_at.get(topic, -REFRESH_INTERVAL_S) < REFRESH_INTERVAL_S:
            return False
        refreshed_at.pop(topic, None)
        if len(refreshed_at) >= TOPICS_MAX:
            del refreshed_at[next(iter(refreshed_at))]
        refreshed_at[topic] = now
        return True

    def refresh(self, topic: str, now: float) -> None:
        """Have a route asked for in the background, unless it was just now."""
        if self.begin_refresh(topic, now):
            self._on_stale(topic)


class _State(enum.Enum):
    """What the next step of a send is for."""

    NEW = enum.auto()
    """Nothing is known yet but the message."""
    ATTEMPT = enum.auto()
    """Try again at once, on another broker where there is one."""
    ROUTE = enum.auto()
    """Wait until the route was asked for, then try again: there is no other broker."""
    MASTER = enum.auto()
    """Wait for a master, then try again."""
    OVER = enum.auto()


@final
class Delivery(Generic[T]):
    """The state machine of one send.

    Times are arguments: `now` by a clock that never stops, `left_s` is how long the send may still
    take.
    """

    __slots__ = (
        "_attempts",
        "_kept",
        "_last_target",
        "_may_be_stored",
        "_no_route",
        "_policy",
        "_queue",
        "_refusals",
        "_refused_by",
        "_state",
        "_timeout_s",
        "_tries_left",
        "topic",
    )

    def __init__(
        self, policy: SendPolicy[T], topic: str, queue: MessageQueue | None, timeout_s: float
    ) -> None:
        """`queue` is one of the caller's choice; `timeout_s` is that of the whole send."""
        self.topic = topic
        self._policy = policy
        self._queue = queue
        self._timeout_s = timeout_s
        self._state = _State.NEW
        self._tries_left = 1 + (policy.config.retries if queue is None else 0)
        self._attempts: list[tuple[str, ClientError]] = []
        """What failed. Of brokers that were no masters, only the last failure is kept."""
        self._kept: SendResult | None = None
        """A message that is stored, but not flushed or replicated in time: better than none."""
        self._may_be_stored = False
        """Whether a broker may have stored it without an answer."""
        self._no_route: RmqError | None = None
        """Why the topic could not be found."""
        self._refused_by: set[str] = set()
        """Brokers that were found to be no masters since the last wait for a master."""
        self._refusals: list[tuple[str, ClientError]] = []
        """What they answered."""
        self._last_target: T | None = None
        """Where the last attempt went."""

    # --- steps -----------------------------------------------------------------------------------

    def next(self, now: float, left_s: float) -> Step[T]:
        """Return what to do now; call it again when that is done."""
        while True:
            if self._state is _State.OVER or left_s <= 0:
                self._state = _State.OVER
                return Done(self.outcome())
            if self._state is _State.MASTER:
                return self._await_master(now, left_s)
            if self._state is _State.ROUTE:
                self._state = _State.ATTEMPT
                return _AWAIT_ROUTE
            targets = self._policy.targets_of(self.topic)
            if targets is not None:
                target = self._policy.choose(targets, self._queue, self._last_broker, now)
            elif self._state is _State.NEW:
                return _FIND_ROUTE
            elif self._awaits_master():
                return self._await_master(now, left_s)
            elif self._last_target is not None:
                # The topic takes no messages by its route: the broker has the last word.
                target = self._last_target
            else:
                self._state = _State.OVER
                continue
            self._state = _State.ATTEMPT
            if target.address:
                return Transmit(target, left_s)
            self.has_no_master(target, now, left_s)

    def _await_master(self, now: float, left_s: float) -> AwaitMaster:
        waits = self._policy.waits
        pause_s = waits.join(self.topic, now)
        for broker_name, error in self._refusals:
            waits.note(self.topic, broker_name, error)
        self._refusals.clear()
        self._state = _State.ATTEMPT
        return AwaitMaster(min(pause_s, left_s))

    def _awaits_master(self) -> bool:
        route = self._policy.routes.get(self.topic)
        return route is not None and route.awaits_master

    @property
    def _last_broker(self) -> str | None:
        return self._attempts[-1][0] if self._attempts else None

    # --- events ----------------------------------------------------------------------------------

    def no_route(self, error: RmqError) -> None:
        """Take in that no route was found."""
        self._no_route = error
        self._state = _State.MASTER if isinstance(error, NoMasterError) else _State.OVER

    def has_no_master(self, target: T, now: float, left_s: float) -> None:
        """Take in that the broker of the target that was chosen has no master now."""
        error = no_master(self._policy.asked, target.queue)
        self.failed(target, error, took_s=0.0, now=now, left_s=left_s)

    def not_ok(self, target: T, result: SendResult) -> None:
        """Take in an answer that `SendPolicy.accepts` does not accept."""
        self._kept = result
        self._last_target = target
        self._attempts.append((target.broker_name, _not_ok(result, target.address)))
        self._tries_left -= 1
        self._state = _State.ATTEMPT if self._tries_left > 0 else _State.OVER

    def failed(
        self, target: T, error: ClientError, *, took_s: float, now: float, left_s: float
    ) -> None:
        """Take in that an attempt has failed after `took_s`."""
        policy = self._policy
        broker_name = target.broker_name
        self._last_target = target
        policy.note_failure(broker_name, error, took_s=took_s, now=now)
        state = self._after(broker_name, error)
        if left_s <= 0:
            state = _State.OVER
        # While a send waits for a master, the route is asked for anyway.
        if state is not _State.MASTER and says_broker_is_gone(error):
            targets = policy.targets_of(self.topic)
            has_other = targets is not None and targets.has_other(broker_name)
            if state is _State.ATTEMPT and not has_other:
                if self.topic in policy.refreshing or policy.begin_refresh(self.topic, now):
                    state = _State.ROUTE
            else:
                # Also at the end: the next message finds the broker where it is then.
                policy.refresh(self.topic, now)
        self._state = state

    def _after(self, broker_name: str, error: ClientError) -> _State:
        """Take in a failed attempt; return what follows if there is time."""
        route = self._policy.routes.get(self.topic)
        if may_get_master(error, broker_name, route):
            return self._refused(broker_name, error, route)
        if isinstance(error, RequestTimeoutError | ConnectionLostError | BadAnswerError):
            self._may_be_stored = True
        self._attempts.append((broker_name, error))
        self._tries_left -= 1
        return _State.ATTEMPT if self._tries_left > 0 and is_retried(error) else _State.OVER

    def _refused(self, broker_name: str, error: ClientError, route: TopicRoute | None) -> _State:
        """Take in that a broker is no master now, which does not count as one of the tries."""
        for known in self._attempts:
            if known[0] == broker_name and may_get_master(known[1], broker_name, route):
                self._attempts.remove(known)
                break
        self._attempts.append((broker_name, error))
        self._refusals.append((broker_name, error))
        has_been_asked = broker_name in self._refused_by
        self._refused_by.add(broker_name)
        others = frozenset() if self._queue is not None or route is None else route.writable_names
        if has_been_asked or others <= self._refused_by:
            self._refused_by.clear()
            return _State.MASTER
        return _State.ATTEMPT

    def closed(self, target: T, error: ClientClosedError, *, is_sent: bool) -> None:
        """Take in that the producer closes; `is_sent`: the message is on its way to a target."""
        self._attempts.append((target.broker_name, error))
        self._may_be_stored |= is_sent
        self._state = _State.OVER

    def outcome(self) -> SendResult | RmqError:
        """Return the result, or the error that says what was tried."""
        if self._kept is not None:
            return self._kept
        if self._attempts:
            return SendFailedError(self.topic, self._attempts, may_be_stored=self._may_be_stored)
        if self._no_route is not None:
            return self._no_route
        return lookup_timed_out(self._policy.asked, self.topic, self._timeout_s)


# --- batches -------------------------------------------------------------------------------------


class BatchFailedError(SendFailedError):
    """Some parts of a large batch were not acknowledged; others may be."""

    def __init__(
        self,
        runs: Sequence[Sequence[Message]],
        outcomes: Sequence[SendResult | RmqError | None],
    ) -> None:
        """`outcomes` has the result or error of each run of messages."""
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
        """Results of the acknowledged parts."""
        self.unacknowledged = [
            message
            for run, outcome in zip(runs, outcomes, strict=True)
            if outcome is None or isinstance(outcome, RmqError)
            for message in run
        ]
        """The messages of all other parts."""


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


# --- errors --------------------------------------------------------------------------------------


def check_queue(topic: str, queue: MessageQueue | None) -> None:
    """Raise `IllegalMessageError` if a chosen queue belongs to another topic."""
    if queue is not None and queue.topic != topic:
        raise IllegalMessageError(f"a message for topic {topic} and a queue of topic {queue.topic}")


def _not_ok(result: SendResult, address: str) -> ClientError:
    """Return as an error that a message is stored, but not flushed or replicated in time."""
    return ClientError(address, f"{address} answered {result.status.value}")


def lookup_timed_out(asked: str, topic: str, timeout_s: float) -> RequestTimeoutError:
    """Return the error of a send that timed out before the route was found."""
    return RequestTimeoutError(asked, f"asking where topic {topic} is", timeout_s)


def no_master(address: str, queue: MessageQueue) -> NoRouteError:
    """Return the error of a queue whose broker has no master now."""
    return NoRouteError(address, queue.topic, f"broker {queue.broker_name} has no master now")


def nothing_writable(address: str, topic: str, route: TopicRoute | None = None) -> NoRouteError:
    """Return the error of a topic without a writable queue; it tells whether a master may come."""
    error = NoMasterError if route is not None and route.awaits_master else NoRouteError
    return error(
        address,
        topic,
        "none of its queues takes messages now",
        hint="do its masters run, and may the topic be written to?",
    )
