"""Reading a range of a queue, as fast as one process can.

The next pulls are on their way before the messages of the last one are decoded, so the broker works
while the reader does. Brokers give out so many messages per pull and no more; where everything is
wanted this tells where the pulls after the next one begin. If that was wrong they are thrown away.
A connection that is lost is made again, and reading goes on behind the last
message that was handed out. A place that the queue has not, or no longer has, is an error: nothing
is passed over in silence.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, final

from rmq.client.broker_choice import broker_of
from rmq.client.flows import Answer, Ask
from rmq.client.pulls import PullStatus, pull_request, read_pull_answer
from rmq.client.routes import MASTER_ID
from rmq.errors import (
    BadAnswerError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    NoRouteError,
    OffsetOutOfRangeError,
    ProtocolError,
    RequestTimeoutError,
    ResponseError,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.expressions import is_tag_type
from rmq.remoting.headers import PullMessageResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.client.blocking.calls import Call
    from rmq.client.blocking.client import BlockingClient
    from rmq.client.blocking.consumer_config import BlockingConsumerConfig
    from rmq.client.pulls import PullResult
    from rmq.client.received import ReceivedMessage
    from rmq.client.routes import Address
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)

BUSY_PAUSE_S: Final = 0.02
"""How long a broker is left alone that says that it has too much to do."""
PULLS_AHEAD: Final = 8
_BUSY_RETRIES: Final = 50
_LOST: Final = (ConnectFailedError, ConnectionLostError, RequestTimeoutError, NoRouteError)
"""Failures after which the same pull may succeed, here or at another broker of the name."""


@final
class RangeReader:
    """Reads one range. Iterate over `batches` once."""

    def __init__(
        self,
        client: BlockingClient,
        config: BlockingConsumerConfig,
        queue: MessageQueue,
        start: int,
        end: int,
        subscription: SubscriptionData,
    ) -> None:
        self._client = client
        self._config = config
        self._queue = queue
        self._next = start
        """Where to go on: what is before it was handed out, or is not wanted."""
        self._end = end
        self._subscription = subscription
        self._broker_id = MASTER_ID
        self._failures = 0
        """In a row."""
        self._ahead: deque[_Pull] = deque()
        """Pulls under way, in the order of their offsets."""
        # With a filter nobody knows how far a pull goes before it is answered.
        self._ahead_max = PULLS_AHEAD if is_everything(subscription) else 1
        self._stride = self._steady = 0
        """How many messages the last pull brought, and for how many pulls that was the same."""

    def batches(self) -> Iterator[list[ReceivedMessage]]:
        """Yield messages in the order of their offsets, as pulls bring them."""
        self._client.route(self._queue.topic)
        try:
            while self._next < self._end:
                try:
                    result = self._pull()
                except ClientError as exc:
                    self._failed(exc)
                    continue
                self._failures = 0
                self._next = result.next_offset
                messages = result.messages
                if messages and messages[-1].queue_offset >= self._end:
                    # A filter makes pulls go further than they were asked to.
                    messages = [each for each in messages if each.queue_offset < self._end]
                if messages:
                    yield messages
        finally:
            self._ahead.clear()

    # --- pulls -------------------------------------------------------------------------------

    def _pull(self) -> PullResult:
        """Pull from where to go on, and begin the next pull before this one is decoded."""
        ahead = self._ahead
        pull = ahead.popleft() if ahead else self._submit(self._next)
        self._client.connections.wait(pull.call)
        command = pull.call.outcome
        if isinstance(command, ClientError):
            raise command
        assert command is not None
        next_offset = _next_offset(command)
        if next_offset is not None and next_offset > pull.offset:
            self._pull_ahead(next_offset, next_offset - pull.offset)
        answer = Answer(pull.ask, command)
        result = read_pull_answer(
            answer,
            self._queue,
            group=self._config.group,
            subscription=self._subscription,
        )
        self._check(pull, result)
        if ahead and ahead[0].offset != result.next_offset:
            # A part of the answer cannot be read: what comes next is not what was expected.
            ahead.clear()
        return result

    def _pull_ahead(self, offset: int, stride: int) -> None:
        """Begin pulls from an offset on, if the broker goes on to bring so many messages each."""
        ahead = self._ahead
        if ahead and ahead[0].offset != offset:
            ahead.clear()
        # Large messages of different sizes come in ever other numbers: only the next pull is
        # certain then, and others would be in vain.
        self._steady = self._steady + 1 if stride == self._stride else 0
        self._stride = stride
        if ahead:
            offset = ahead[-1].offset + stride
        ahead_max = min(self._ahead_max, 1 + self._steady)
        while len(ahead) < ahead_max and offset < self._end:
            ahead.append(self._submit(offset))
            offset += stride
        self._client.connections.flush()

    def _submit(self, offset: int) -> _Pull:
        self._client.tick()
        broker = broker_of(self._client.routes, self._queue, self._broker_id)
        header = pull_request(
            self._queue,
            group=self._config.group,
            subscription=self._subscription,
            offset=offset,
            max_messages=min(self._config.pull_messages_max, self._end - offset),
            suspend_s=0.0,
            commit_offset=None,
            sends_expression=True,
        )
        timeout_s = self._config.pull_now_timeout_s
        ask = Ask(broker.address, RequestCode.PULL_MESSAGE, header, None, timeout_s)
        call = self._client.connections.submit(
            broker.address,
            RequestCode.PULL_MESSAGE,
            header,
            timeout_s=timeout_s,
            extra=self._client.runner.extra(header, None, None),
        )
        return _Pull(offset, broker, ask, call)

    def _check(self, pull: _Pull, result: PullResult) -> None:
        """Raise if the answer does not bring us on."""
        address = pull.ask.address
        if result.status in (PullStatus.NO_NEW, PullStatus.OFFSET_ILLEGAL):
            if pull.broker.broker_id != MASTER_ID:
                # A slave that lags behind; the master may know more.
                raise ConnectionLostError(
                    address, f"slave {pull.broker.broker_id} has no offset {pull.offset}"
                )
            queue = self._queue
            raise OffsetOutOfRangeError(
                address,
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                pull.offset,
                result.min_offset,
                result.max_offset,
            )
        if result.next_offset <= pull.offset:
            raise BadAnswerError(
                address,
                pull.ask.code.name,
                f"{self._queue}, pulled from offset {pull.offset}, goes on at {result.next_offset}",
            )
        self._broker_id = result.suggested_broker_id

    def _failed(self, error: ClientError) -> None:
        """Wait before the next attempt, or raise what cannot be helped."""
        self._ahead.clear()
        self._failures += 1
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            if self._failures > _BUSY_RETRIES:
                raise error
            self._client.connections.sleep(BUSY_PAUSE_S)
            return
        if not isinstance(error, _LOST) or self._failures > self._config.pull_retries:
            raise error
        logger.warning("%s is read on from offset %d: %s", self._queue, self._next, error)
        self._broker_id = MASTER_ID
        if self._failures > 1:
            self._client.connections.sleep(self._config.pull_pause_s)
        try:
            self._client.refresh_route(self._queue.topic)
        except ClientError as exc:
            logger.warning("the route of %s is not known anew: %s", self._queue.topic, exc)


class _Pull:
    """A pull under way."""

    __slots__ = ("ask", "broker", "call", "offset")

    def __init__(self, offset: int, broker: Address, ask: Ask, call: Call) -> None:
        self.offset = offset
        self.broker = broker
        self.ask = ask
        self.call = call


def is_everything(subscription: SubscriptionData) -> bool:
    """Tell whether a subscription wants all messages."""
    return is_tag_type(subscription.expression_type) and not subscription.tags_set


def _next_offset(command: Command) -> int | None:
    """Return where an answer says to go on; None if it brought no messages, or says nothing."""
    if command.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        return None
    try:
        return command.header(PullMessageResponse).next_begin_offset
    except ProtocolError:
        # Whoever reads the answer as a whole says what is wrong with it.
        return None
