"""Batches in flight: many at a time, each awaited, and their outcomes.

A batch that a broker is too busy for, or that no broker is there to take, is offered again after a
pause, in which nothing else is sent either; how long that goes on is limited. Batches of a sharding
key stay at their queue: one at a time, so that the order of rows holds when one of them has to be
sent again. Any other failure is the end, and tells how far the task has come.

A task that is done has kept the limit of messages per second as if it went on: the next one in its
place begins with nothing to make up for.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from rmq.client.core.busy import is_busy
from rmq.client.core.producing.delivery import nothing_writable
from rmq.errors import ClientError, NoRouteError, RmqError
from rmq.spark.sink.patience import Pause, is_away, last_error, may_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client.blocking.producer import BlockingProducer
    from rmq.client.blocking.sending import Send
    from rmq.client.core.messages import SendResult, SendStatus
    from rmq.model.queues import MessageQueue
    from rmq.spark.sink.encoding import Outgoing
    from rmq.spark.sink.rate import TokenBucket

logger = logging.getLogger(__name__)

SINGLES: Final = 32
"""How many messages that are sent alone count as one batch."""
AT_LEAST_ONCE: Final = (
    "Spark runs the task again if it may, and then sends its rows again with the same message ids"
)

_monotonic = time.monotonic


class SendLimits(NamedTuple):
    """How much may be under way, and how long is waited for what."""

    batches: int
    """Or `SINGLES` times as many messages that are sent alone."""
    batch_bytes: int
    """Of all of them; one may always go."""
    accepted: frozenset[SendStatus]
    retries: int
    """Attempts after the first for a batch that has to stay at its queue, if a broker was there
    and could not store it."""
    busy_timeout_s: float
    """How long a batch is offered again that brokers are too busy for."""
    broker_timeout_s: float
    """How long one is offered again that no broker was there to take."""


class RowsNotSentError(ClientError):
    """Rows were not acknowledged, so the task has failed."""

    def __init__(self, outgoing: Outgoing, reason: str, peer: str, confirmed: int) -> None:
        rows, row = outgoing.rows, outgoing.first_row
        super().__init__(
            peer,
            f"{rows} rows for topic {outgoing.outbound.topic}, from row {row} of the task on, could"
            f" not be sent: {reason}. {stored_text(confirmed)}",
        )
        self.topic = outgoing.outbound.topic
        self.reason = reason
        self.confirmed = confirmed


def stored_text(confirmed: int) -> str:
    """Say how far a task has come that has failed, and what that means."""
    return f"{confirmed} rows of the task were stored before. {AT_LEAST_ONCE}"


class _Flight:
    """A batch from the moment it is handed over until it is stored."""

    __slots__ = ("failures", "outgoing", "refused_at", "send")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.send: Send | None = None
        """None as long as it waits for its queue, or for a pause to end."""
        self.refused_at: float | None = None
        """When it was not taken for the first time."""
        self.failures = 0


@final
class Sender:
    """Sends what one task has."""

    def __init__(
        self, producer: BlockingProducer, limits: SendLimits, bucket: TokenBucket | None = None
    ) -> None:
        self._producer = producer
        self._limits = limits
        self._bucket = bucket
        self.confirmed: Counter[str] = Counter()
        """Rows that are stored, by topic."""
        self._unstored = 0
        """What is not stored yet, counted in messages that are sent alone."""
        self._unstored_bytes = 0
        self._under_way: list[_Flight] = []
        self._by_queue: dict[MessageQueue, deque[_Flight]] = {}
        """Batches that have to go to a queue, the first of which is on its way."""
        self._put_off: list[_Flight] = []
        """Batches that wait for a pause to end."""
        self._pause = Pause()
        self._failure: tuple[_Flight, RmqError | SendResult] | None = None

    def send(self, outgoing: Outgoing) -> None:
        """Send a batch, once there is room for it; raise `RowsNotSentError` if one has failed.

        Returns when it is on its way, or waits for its turn.
        """
        size = len(outgoing.outbound.body)
        weight = _weight(outgoing)
        limits = self._limits
        while (
            self._failure is None
            and self._unstored
            and (
                self._unstored + weight > limits.batches * SINGLES
                or self._unstored_bytes + size > limits.batch_bytes
            )
        ):
            self._step(None)
        while self._failure is None and self._bucket is not None:
            now = _monotonic()
            wait_s = self._bucket.wait_s(now)
            if not wait_s:
                self._bucket.take(outgoing.rows, now)
                break
            self._step(now + wait_s)
        if self._failure is not None:
            self._fail()
        flight = _Flight(outgoing)
        self._unstored += weight
        self._unstored_bytes += size
        if outgoing.queue is None:
            self._begin(flight)
        else:
            waiting = self._by_queue.setdefault(outgoing.queue, deque())
            waiting.append(flight)
            if len(waiting) == 1:
                self._begin(flight)
        # It is sent now: making the next batch may take long.
        self._step(_monotonic())

    def finish(self) -> None:
        """Wait until everything is stored; raise `RowsNotSentError` if something is not."""
        while self._failure is None and self._unstored:
            self._step(None)
        if self._failure is not None:
            self._fail()
        self._wait_for_bucket()

    def drain(self) -> None:
        """Wait until nothing is in flight, whatever the outcomes, and send nothing more."""
        while self._under_way:
            if not self._collect():
                self._producer.step()
        self._wait_for_bucket()

    def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that take messages; wait for a while if there are none.

        Raises `ClientError` if there are still none, or no nameserver knows the topic.
        """
        refused_at: float | None = None
        while True:
            try:
                queues = self._producer.route(topic).writable
                if queues:
                    return queues
                asked = ";".join(self._producer.client.nameservers.addresses)
                error: ClientError = nothing_writable(asked, topic)
            except ClientError as exc:
                error = exc
            now = _monotonic()
            if refused_at is None:
                refused_at = now
            waited_s = now - refused_at
            if waited_s >= self._limits.broker_timeout_s or not self._may_return(topic, error):
                raise error
            self._pause.refused(now)
            while self._failure is None and _monotonic() < self._pause.until:
                self._step(self._pause.until)
            if self._failure is not None:
                self._fail()

    def _wait_for_bucket(self) -> None:
        """Wait until the next message may go, which another task sends."""
        while self._bucket is not None and (wait_s := self._bucket.wait_s(now := _monotonic())):
            self._producer.step(now + wait_s)

    # --- one step ----------------------------------------------------------------------------

    def _begin(self, flight: _Flight) -> None:
        if _monotonic() < self._pause.until:
            self._put_off.append(flight)
            return
        outgoing = flight.outgoing
        flight.send = self._producer.begin(outgoing.outbound, queue=outgoing.queue)
        self._under_way.append(flight)

    def _step(self, until: float | None) -> None:
        """Wait until something happens, `until` at the longest."""
        if self._put_off:
            until = self._pause.until if until is None else min(until, self._pause.until)
        if not self._collect():
            self._producer.step(until)
            self._collect()
        if self._put_off and self._failure is None and _monotonic() >= self._pause.until:
            waiting, self._put_off = self._put_off, []
            for flight in waiting:
                self._begin(flight)

    def _collect(self) -> bool:
        """Take in what brokers have answered; tell whether there was anything."""
        still: list[_Flight] = []
        completed: list[_Flight] = []
        for flight in self._under_way:
            assert flight.send is not None
            (still if flight.send.outcome is None else completed).append(flight)
        self._under_way = still
        for flight in completed:
            self._complete(flight)
        return bool(completed)

    def _complete(self, flight: _Flight) -> None:
        assert flight.send is not None
        outcome = flight.send.outcome
        assert outcome is not None
        if isinstance(outcome, RmqError):
            if not self._tries_again(flight, outcome):
                self._failure = self._failure or (flight, outcome)
            return
        if outcome.status not in self._limits.accepted:
            self._failure = self._failure or (flight, outcome)
            return
        self._pause.taken()
        outgoing = flight.outgoing
        self.confirmed[outgoing.outbound.topic] += outgoing.rows
        self._unstored -= _weight(outgoing)
        self._unstored_bytes -= len(outgoing.outbound.body)
        if outgoing.queue is not None:
            waiting = self._by_queue[outgoing.queue]
            waiting.popleft()
            if waiting and self._failure is None:
                self._begin(waiting[0])

    def _tries_again(self, flight: _Flight, error: RmqError) -> bool:
        """Have a batch that failed offered again, if that may help."""
        if not isinstance(error, ClientError):
            return False
        now = _monotonic()
        outgoing = flight.outgoing
        is_first = flight.refused_at is None
        if flight.refused_at is None:
            flight.refused_at = now
        waited_s = now - flight.refused_at
        if is_busy(error):
            if waited_s >= self._limits.busy_timeout_s:
                return False
        elif self._may_return(outgoing.outbound.topic, error):
            if waited_s >= self._limits.broker_timeout_s:
                return False
            if is_first:
                logger.warning(
                    "%d rows for topic %s are offered again for %g s: %s",
                    outgoing.rows,
                    outgoing.outbound.topic,
                    self._limits.broker_timeout_s,
                    error,
                )
        elif outgoing.queue is not None and may_pass(error):
            flight.failures += 1
            if flight.failures > self._limits.retries:
                return False
        else:
            return False
        self._pause.refused(now)
        self._put_off.append(flight)
        return True

    def _may_return(self, topic: str, error: ClientError) -> bool:
        """Tell whether the brokers of a topic are only away for the moment.

        A topic that no nameserver has ever listed is more likely a wrong name.
        """
        is_unknown = isinstance(error, NoRouteError) and (
            self._producer.client.routes.get(topic) is None
        )
        return is_away(error) and not is_unknown

    def _fail(self) -> None:
        assert self._failure is not None
        flight, outcome = self._failure
        # The error reports all that was sent, and nothing is left on the connections.
        self.drain()
        if isinstance(outcome, RmqError):
            reason, peer = str(outcome), getattr(last_error(outcome), "peer", "")
            if isinstance(outcome, ClientError):
                reason += self._patience_text(flight, outcome)
        else:
            peer = outcome.queue.broker_name
            reason = (
                f"{peer} answered {outcome.status.value}: they are stored there, but not as safely"
                " as the broker is set up to (acceptStatus=stored accepts that)"
            )
        raise RowsNotSentError(flight.outgoing, reason, peer, self.confirmed.total())

    def _patience_text(self, flight: _Flight, error: ClientError) -> str:
        """Say which limit a batch was waited for to, if one was."""
        limits = self._limits
        if is_busy(error):
            return f"; the broker has been busy for {limits.busy_timeout_s:g} s (busyTimeoutMs)"
        if self._may_return(flight.outgoing.outbound.topic, error):
            return f"; no broker has taken them for {limits.broker_timeout_s:g} s (brokerTimeoutMs)"
        return ""


def _weight(outgoing: Outgoing) -> int:
    return SINGLES if outgoing.outbound.is_batch else 1
