"""Pulls under way on connections, of which the next one can be sent before the last one is decoded.

`rmq.client.core.consuming.pulls` has the same as a flow, one after the other. A consumer that reads
ahead as fast as it can would let the broker idle while it decodes, and itself while the broker
reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec
import trio

from rmq.client.core.broker_choice import broker_of
from rmq.client.core.consuming.pulls import PullResult, PullStatus, pull_request, read_pull_answer
from rmq.client.core.flows import Answer, Ask
from rmq.client.core.routes import MASTER_ID
from rmq.client.trio.runner import REQUEST_TYPE, STREAM
from rmq.errors import (
    BadAnswerError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
)
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import PullMessageRequest, PullMessageResponse

if TYPE_CHECKING:
    from rmq.client.core.consuming.buffer import Ticket
    from rmq.client.core.consuming.config import LitePullConfig
    from rmq.client.core.routes import Address
    from rmq.client.trio.client import Client
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData
    from rmq.remoting.channel import Call, Channel
    from rmq.remoting.command import Command

_FOUND: Final = int(PullStatus.FOUND.value)


class StreamPullRequest(PullMessageRequest, frozen=True, kw_only=True):
    """A pull with the field that a stream client adds to every request: the same, only faster."""

    request_type: str = msgspec.field(default=STREAM, name=REQUEST_TYPE)


@final
class PullCalls:
    """Sends the pulls of one consumer."""

    def __init__(self, client: Client, config: LitePullConfig) -> None:
        self._client = client
        self._config = config
        self._is_plain_stream = client.runner.extra(None, None, None) == {REQUEST_TYPE: STREAM}
        self._headers: dict[MessageQueue, tuple[SubscriptionData, PullMessageRequest]] = {}
        """The header of the last pull of a queue: of the next one only the offset is another."""

    def forget(self, queue: MessageQueue) -> None:
        self._headers.pop(queue, None)

    async def begin(
        self, ticket: Ticket, subscription: SubscriptionData, broker_id: int
    ) -> PullCall:
        """Send a pull, connecting first if need be; raise `ClientError`."""
        broker = broker_of(self._client.routes, ticket.queue, broker_id)
        try:
            channel = await self._client.channel_to(broker.address)
        except ConfigError as exc:
            # A nameserver told an address that is none.
            raise ConnectFailedError(broker.address, str(exc)) from exc
        return self._send(channel, broker, ticket, subscription)

    def begin_nowait(
        self, ticket: Ticket, subscription: SubscriptionData, broker_id: int
    ) -> PullCall:
        """Send a pull if there is a connection; raise `ClientError`."""
        broker = broker_of(self._client.routes, ticket.queue, broker_id)
        channel = self._client.remoting.open_channel_to(broker.address)
        if channel is None:
            raise ConnectionLostError(broker.address, "it ended after the last pull")
        return self._send(channel, broker, ticket, subscription)

    def _send(
        self, channel: Channel, broker: Address, ticket: Ticket, subscription: SubscriptionData
    ) -> PullCall:
        header = self._header(ticket, subscription)
        extra = None if self._is_plain_stream else self._client.runner.extra(header, None, None)
        ask = Ask(broker.address, RequestCode.PULL_MESSAGE, header)
        call = PullCall(ticket, subscription, broker, ask, self._config)
        call.sent = channel.submit(
            ask.code,
            header,
            timeout_s=self._config.pull_timeout_s,
            extra=extra,
            serialization=self._client.config.serialization,
            on_outcome=call.ended,
        )
        return call

    def _header(self, ticket: Ticket, subscription: SubscriptionData) -> PullMessageRequest:
        known = self._headers.get(ticket.queue)
        if known is not None and known[0] is subscription:
            header = msgspec.structs.replace(known[1], queue_offset=ticket.offset)
        else:
            header = pull_request(
                ticket.queue,
                group=self._config.group,
                subscription=subscription,
                offset=ticket.offset,
                max_messages=self._config.pull_messages_max,
                suspend_s=self._config.pull_suspend_s,
                commit_offset=None,
                sends_expression=True,
                is_lite=True,
            )
            if self._is_plain_stream:
                header = StreamPullRequest(**msgspec.structs.asdict(header))
        self._headers[ticket.queue] = (subscription, header)
        return header


@final
class PullCall:
    """One pull under way."""

    __slots__ = (
        "_ask",
        "_config",
        "_event",
        "_outcome",
        "_subscription",
        "broker",
        "sent",
        "ticket",
    )

    def __init__(
        self,
        ticket: Ticket,
        subscription: SubscriptionData,
        broker: Address,
        ask: Ask,
        config: LitePullConfig,
    ) -> None:
        self.ticket = ticket
        self.broker = broker
        self.sent: Call | None = None
        self._subscription = subscription
        self._ask = ask
        self._config = config
        self._outcome: Command | ClientError | None = None
        self._event = trio.Event()

    def ended(self, outcome: Command | ClientError) -> None:
        """The answer came, or will not come."""
        self._outcome = outcome
        self._event.set()

    def drop(self) -> None:
        """Whatever the answer is, it is not wanted any longer."""
        if self.sent is not None:
            self.sent.is_complete = True

    async def answer(self) -> Answer:
        """Wait for the answer; raise `ClientError` if there will be none."""
        try:
            await self._event.wait()
        finally:
            if self._outcome is None:
                self.drop()
        assert self._outcome is not None, "woken without an outcome"
        if isinstance(self._outcome, ClientError):
            raise self._outcome
        return Answer(self._ask, self._outcome)

    def found(self, answer: Answer) -> PullMessageResponse | None:
        """Return where an answer with messages goes on, before they are decoded; else None."""
        if answer.code != _FOUND:
            return None
        header = answer.header(PullMessageResponse)
        if header.next_begin_offset <= self.ticket.offset:
            # Taken at its word, it would give out the same messages for ever.
            raise self.nonsense(f"goes on at offset {header.next_begin_offset}")
        return header

    def result(self, answer: Answer) -> PullResult:
        """Return what an answer says; raise `ResponseError` or `BadAnswerError`."""
        result = read_pull_answer(
            answer,
            self.ticket.queue,
            group=self._config.group,
            subscription=self._subscription,
            checks_crc=self._config.checks_crc,
        )
        if result.next_offset < 0:
            raise self.nonsense(f"goes on at offset {result.next_offset}")
        if (
            result.status is PullStatus.OFFSET_ILLEGAL
            and self.broker.broker_id != MASTER_ID
            and result.next_offset < self.ticket.offset
        ):
            # A slave that lags behind is no reason to read again what was read already.
            raise self.nonsense(f"ends at offset {result.next_offset} at a slave")
        return result

    def nonsense(self, what: str) -> BadAnswerError:
        ticket = self.ticket
        return BadAnswerError(
            self.broker.address,
            self._ask.code.name,
            f"{ticket.queue}, pulled from offset {ticket.offset}, {what}",
        )
