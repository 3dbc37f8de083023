"""Reading a range of a queue, as fast as one process can.

The next pulls are on their way before the messages of the last one are decoded, so the broker works
while the reader does. Brokers give out no more messages than this per pull; where everything is
wanted this tells where the pulls after the next one begin. If that was wrong they are thrown away.
A connection that is lost is made again, and reading goes on behind the last
message that was handed out. A place that the queue has not, or no longer has, is an error: nothing
is passed over in silence.

`batches` decodes what pulls bring. `bodies` hands it out as it came, for those who decode the
records of many pulls at once.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, final

from rmq.client.core.busy import is_busy
from rmq.client.core.consuming.pull_policy import (
    BUSY_PAUSE_S,
    LOST_BROKER,
    check_range_place,
    slave_lags,
)
from rmq.client.core.consuming.pulls import (
    pull_request,
    read_pull_answer,
    read_pull_parts,
)
from rmq.client.core.flows import Answer, Ask
from rmq.client.core.routes import broker_of
from rmq.errors import (
    ClientError,
    ResponseError,
)
from rmq.model.names import MASTER_ID
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.expressions import is_tag_type

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from rmq.client.blocking.calls import Call
    from rmq.client.blocking.client import BlockingClient
    from rmq.client.core.consuming.config import BlockingConsumerConfig
    from rmq.client.core.consuming.pulls import PullParts
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

PULLS_AHEAD: Final = 16
AHEAD_BYTES_MAX: Final = 4 * 1024**2
"""How much may be on its way: pulls are as large as brokers make them."""


class _Read(Protocol[T_co]):
    """Reads a response; returns the next offset and the messages or bytes found."""

    def __call__(self, answer: Answer, parts: PullParts, /) -> tuple[int, T_co]: ...


class RawPull(NamedTuple):
    """What one pull brought, as the broker sent it."""

    offset: int
    """Where it began."""
    next_offset: int
    """Where the next one begins. Offsets in between that are not in `body` have been filtered out,
    or are gone."""
    body: bytes
    """Records as they are stored, one behind the other. A filter makes pulls go further than they
    were asked to, so the last ones may lie behind the end of the range."""
    remark: str
    """Why there is nothing, if there is nothing."""


@final
class RangeReader:
    """Reads one range. Iterate over `batches` or `bodies` once."""

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
        """Consecutive failed pulls."""
        self._busy_pause_s = BUSY_PAUSE_S
        self._ahead: deque[_Pull] = deque()
        """Pulls under way, in the order of their offsets."""
        # With a filter it is not known how far a pull goes before it is answered.
        self._ahead_max = PULLS_AHEAD if is_everything(subscription) else 1
        self._stride = self._steady = 0
        """How many messages the last pull brought, and for how many pulls that was the same."""

    def batches(self) -> Generator[list[ReceivedMessage], None, None]:
        """Yield messages in the order of their offsets, as pulls bring them."""
        for _, messages in self._results(self._decode):
            wanted = messages
            if messages and messages[-1].queue_offset >= self._end:
                # A filter makes pulls go further than they were asked to.
                wanted = [each for each in messages if each.queue_offset < self._end]
            if wanted:
                yield wanted

    def bodies(self) -> Generator[RawPull, None, None]:
        """Yield what pulls bring, in the order of their offsets, without looking at the records."""
        for offset, found in self._results(_take_raw):
            yield RawPull(offset, self._next, *found)

    def _results(self, read: _Read[T]) -> Iterator[tuple[int, T]]:
        """Yield where each pull began and what `read` makes of its answer."""
        self._client.route(self._queue.topic)
        try:
            while self._next < self._end:
                try:
                    next_offset, found = self._pull(read)
                except ClientError as exc:
                    self._failed(exc)
                    continue
                self._failures = 0
                self._busy_pause_s = BUSY_PAUSE_S
                offset, self._next = self._next, next_offset
                yield offset, found
        finally:
            self._ahead.clear()

    # --- pulls -------------------------------------------------------------------------------

    def _pull(self, read: _Read[T]) -> tuple[int, T]:
        """Pull from where to go on, and begin the next pulls before this one is decoded.

        Return where to go on next, and what was found.
        """
        ahead = self._ahead
        pull = ahead.popleft() if ahead else self._submit(self._next, self._broker())
        self._client.connections.wait(pull.call)
        command = pull.call.outcome
        if isinstance(command, ClientError):
            raise command
        assert command is not None
        answer = Answer(pull.ask, command)
        parts = self._read_parts(pull, answer)
        self._check(pull, parts)
        self._pull_ahead(pull.offset, parts)
        next_offset, found = read(answer, parts)
        if ahead and ahead[0].offset != next_offset:
            # A part of the answer cannot be read: what comes next is not what was expected.
            ahead.clear()
        return next_offset, found

    def _read_parts(self, pull: _Pull, answer: Answer) -> PullParts:
        try:
            return read_pull_parts(answer)
        except ResponseError as exc:
            if exc.code == ResponseCode.TOPIC_NOT_EXIST and pull.broker.broker_id != MASTER_ID:
                why = f"does not have topic {self._queue.topic}"
                raise slave_lags(pull.ask.address, pull.broker.broker_id, why) from exc
            raise

    def _decode(self, answer: Answer, parts: PullParts) -> tuple[int, list[ReceivedMessage]]:
        result = read_pull_answer(
            answer,
            self._queue,
            group=self._config.group,
            subscription=self._subscription,
            parts=parts,
        )
        return result.next_offset, result.messages

    def _pull_ahead(self, pulled: int, parts: PullParts) -> None:
        """Begin pulls behind one, if the broker goes on to bring as many messages each."""
        ahead = self._ahead
        offset = parts.header.next_begin_offset
        stride = offset - pulled
        if ahead and ahead[0].offset != offset:
            ahead.clear()
        # Large messages of different sizes come in ever other numbers: only the next pull is
        # certain then, and others would be wasted.
        self._steady = self._steady + 1 if stride == self._stride else 0
        self._stride = stride
        ahead_max = min(
            self._ahead_max, 1 + self._steady, AHEAD_BYTES_MAX // (len(parts.body) + 1) + 1
        )
        if len(ahead) > ahead_max // 2:
            # Several at a time: each write costs as much as making a request.
            return
        if ahead:
            offset = ahead[-1].offset + stride
        broker = self._broker()
        while len(ahead) < ahead_max and offset < self._end:
            ahead.append(self._submit(offset, broker))
            offset += stride
        self._client.connections.flush()

    def _broker(self) -> Address:
        """Return the broker to pull from."""
        # Before `tick`, which forgets routes that were not used for a while.
        self._client.keeping.keep(self._queue.topic)
        self._client.tick()
        return broker_of(self._client.routes, self._queue, self._broker_id)

    def _submit(self, offset: int, broker: Address) -> _Pull:
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
        )
        return _Pull(offset, broker, ask, call)

    def _check(self, pull: _Pull, parts: PullParts) -> None:
        """Raise if a response does not advance the range."""
        broker_id = pull.broker.broker_id
        check_range_place(
            pull.ask.address,
            self._queue,
            pull.offset,
            parts,
            slave_id=None if broker_id == MASTER_ID else broker_id,
        )
        self._broker_id = parts.header.suggest_which_broker_id

    def _failed(self, error: ClientError) -> None:
        """Pause before the next attempt, or raise an error that a retry would not change."""
        self._ahead.clear()
        if is_busy(error):
            self._wait_for_busy(error)
            return
        self._failures += 1
        if not isinstance(error, LOST_BROKER) or self._failures > self._config.pull_retries:
            raise error
        logger.warning("%s is read on from offset %d: %s", self._queue, self._next, error)
        self._broker_id = MASTER_ID
        if self._failures > 1:
            self._client.connections.sleep(self._config.pull_pause_s)
        try:
            self._client.refresh_route(self._queue.topic)
        except ClientError as exc:
            logger.warning("the route of %s could not be refreshed: %s", self._queue.topic, exc)

    def _wait_for_busy(self, error: ClientError) -> None:
        """Pause for a busy broker, longer each time. Only full-length pauses count as retries."""
        pause_s = min(self._busy_pause_s, self._config.pull_pause_s)
        self._busy_pause_s *= 2
        if pause_s == self._config.pull_pause_s:
            self._busy_pause_s = pause_s
            self._failures += 1
            if self._failures > self._config.pull_retries:
                raise error
            logger.warning("%s is pulled again from offset %d: %s", self._queue, self._next, error)
        self._client.connections.sleep(pause_s)


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


def _take_raw(answer: Answer, parts: PullParts) -> tuple[int, tuple[bytes, str]]:
    return parts.header.next_begin_offset, (parts.body, answer.command.remark or "")
