"""Pulling ahead: one task for each queue keeps the buffer of a lite pull consumer filled.

All queues are pulled at once. A queue that has nothing new costs one request in 20 s, which the
broker holds until something comes. A queue whose broker fails is asked again after a second, from
the same place; the others go on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import anyio
import msgspec

from rmq.client.core.consuming.pull_policy import (
    BUSY_PAUSE_S,
    LOST_BROKER,
    asks_for_pause,
    check_found,
    check_place,
    failure_level,
    idle_pause_s,
    moved_text,
)
from rmq.client.core.consuming.pulls import PullResult, PullStatus, pull_request, read_pull_answer
from rmq.client.core.flows import Answer, Ask
from rmq.client.core.routes import broker_of
from rmq.client.tasks.runner import REQUEST_TYPE, STREAM
from rmq.errors import (
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
)
from rmq.model.names import MASTER_ID
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import PullMessageRequest, PullMessageResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from anyio.abc import TaskGroup

    from rmq.client.core.consuming.buffer import PullBuffer, Ticket
    from rmq.client.core.consuming.config import LitePullConfig
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import Address
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Call, Channel
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)

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
            raise ConnectFailedError(broker.address, exc.text) from exc
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
        ask = Ask(broker.address, RequestCode.PULL_MESSAGE, header)
        call = PullCall(ticket, subscription, broker, ask, self._config)
        call.sent = channel.submit(
            ask.code,
            header,
            timeout_s=self._config.pull_timeout_s,
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
            if self._client.runner.is_stream:
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
        self._event = anyio.Event()

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
        ticket = self.ticket
        check_found(self.broker.address, ticket.queue, ticket.offset, header.next_begin_offset)
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
        ticket, broker = self.ticket, self.broker
        is_slave = broker.broker_id != MASTER_ID
        check_place(broker.address, ticket.queue, ticket.offset, result, is_slave=is_slave)
        return result


class Reading(Protocol):
    """What the tasks ask their consumer."""

    def subscription_of(self, topic: str) -> SubscriptionData:
        """Return which messages of a topic are wanted."""

    def start_of(self, queue: MessageQueue) -> Awaitable[int]:
        """Find out where a queue is read from first; raise `ClientError`."""

    def arrived(self) -> None:
        """There are messages to take."""


@final
class PullTasks:
    """The tasks of one consumer."""

    def __init__(
        self,
        client: Client,
        config: LitePullConfig,
        buffer: PullBuffer[ReceivedMessage],
        reading: Reading,
    ) -> None:
        self._client = client
        self._config = config
        self._buffer = buffer
        self._reading = reading
        self._calls = PullCalls(client, config)
        self._tasks: dict[MessageQueue, _Task] = {}
        self._waiting: dict[MessageQueue, anyio.Event] = {}
        """Tasks that may not pull now."""
        self.failures: dict[MessageQueue, ClientError] = {}
        """What the last pull of a queue failed with."""

    def update(self, nursery: TaskGroup) -> None:
        """Have a task for each queue of the buffer, and none for others."""
        for queue in [queue for queue in self._tasks if queue not in self._buffer]:
            task = self._tasks.pop(queue)
            self.failures.pop(queue, None)
            self._calls.forget(queue)
            task.interrupt()
        for queue in self._buffer.queues:
            if queue not in self._tasks:
                task = self._tasks[queue] = _Task(queue)
                nursery.start_soon(self._pull_queue, task)

    def moved(self, queue: MessageQueue) -> None:
        """A queue goes on somewhere else, or with other messages: what is under way is dropped."""
        self._tasks[queue].interrupt()

    def room(self) -> None:
        """There is room in the buffer again, or a queue is no longer paused."""
        if self._waiting and not self._buffer.is_full:
            for queue, event in self._waiting.items():
                if self._buffer.may_pull(queue):
                    event.set()

    # --- one queue ---------------------------------------------------------------------------

    async def _pull_queue(self, task: _Task) -> None:
        while self._tasks.get(task.queue) is task:
            with anyio.CancelScope() as task.scope:
                await self._pull_on(task.queue, self._buffer.turn(task.queue))

    async def _pull_on(self, queue: MessageQueue, turn: int) -> None:
        """Pull until the queue is lost or moved."""
        buffer = self._buffer
        await self._start(queue, turn)
        following = Following(None, MASTER_ID)
        try:
            while buffer.is_current(queue, turn):
                if following.call is None and not buffer.may_pull(queue):
                    await self._wait_for_room(queue)
                else:
                    following = await self._pull(queue, following)
        finally:
            following.drop()

    async def _start(self, queue: MessageQueue, turn: int) -> None:
        """Find out where to begin, however often that fails."""
        while self._buffer.is_current(queue, turn) and self._buffer.position(queue) is None:
            try:
                self._buffer.start(queue, await self._reading.start_of(queue), turn)
            except ClientError as exc:
                await self._failed(queue, exc, "has no known place to begin")

    async def _wait_for_room(self, queue: MessageQueue) -> None:
        event = self._waiting[queue] = anyio.Event()
        try:
            await event.wait()
        finally:
            # A task that took over this queue in the meantime has an event of its own.
            if self._waiting.get(queue) is event:
                del self._waiting[queue]

    async def _pull(self, queue: MessageQueue, following: Following) -> Following:
        """Pull once, or end the pull that was begun ahead; return what follows."""
        call, broker_id = following
        ticket = self._buffer.begin(queue) if call is None else call.ticket
        started = anyio.current_time()
        is_over = False
        following = Following(None, MASTER_ID)
        try:
            if call is None:
                subscription = self._reading.subscription_of(queue.topic)
                call = await self._calls.begin(ticket, subscription, broker_id)
            answer = await call.answer()
            if (place := call.found(answer)) is not None:
                following = self._begin_next(ticket, place)
                if following.call is not None:
                    # It leaves now, and the broker works on it while this one is decoded.
                    await self._client.loop.checkpoint()
            result = call.result(answer)
            is_over = True
        except ClientError as exc:
            await self._failed(queue, exc, f"could not be pulled from offset {ticket.offset} on")
            return Following(None, MASTER_ID)
        finally:
            if not is_over:
                self._buffer.fail(ticket)
                following.drop()
        if not self._buffer.finish(ticket, result.messages, result.next_offset):
            return following
        if self.failures:
            self.failures.pop(queue, None)
        if result.messages:
            self._reading.arrived()
        else:
            if result.status is PullStatus.OFFSET_ILLEGAL:
                text = moved_text(self._config.group, queue, ticket.offset, result)
                logger.warning("%s", text)
            if pause_s := idle_pause_s(ticket.offset, result, anyio.current_time() - started):
                await anyio.sleep(pause_s)
        return following._replace(broker_id=result.suggested_broker_id)

    def _begin_next(self, ticket: Ticket, place: PullMessageResponse) -> Following:
        """Send the pull after one that is answered and not yet decoded, if that may be."""
        queue, broker_id = ticket.queue, place.suggest_which_broker_id
        if not self._buffer.answered(ticket, place.next_begin_offset):
            return Following(None, broker_id)
        if not self._buffer.may_pull(queue):
            return Following(None, broker_id)
        ahead = self._buffer.begin(queue)
        subscription = self._reading.subscription_of(queue.topic)
        try:
            return Following(self._calls.begin_nowait(ahead, subscription, broker_id), broker_id)
        except ClientError:
            # It is tried again in its turn, and then it is said what is wrong.
            self._buffer.not_begun(ahead)
            return Following(None, broker_id)

    async def _failed(self, queue: MessageQueue, error: ClientError, what: str) -> None:
        """Say what failed, once for as long as it stays the same, and leave the queue alone."""
        if asks_for_pause(error):
            await anyio.sleep(BUSY_PAUSE_S)
            return
        before = self.failures.get(queue)
        self.failures[queue] = error
        pause_s = self._config.pull_pause_s
        logger.log(
            failure_level(before, error),
            "group %s: %s %s; again in %g s: %s",
            self._config.group,
            queue,
            what,
            pause_s,
            error,
        )
        await anyio.sleep(pause_s)
        if isinstance(error, LOST_BROKER):
            try:
                await self._client.refresh_route(queue.topic)
            except ClientError as exc:
                logger.debug("the route of %s could not be refreshed: %s", queue.topic, exc)


class Following(NamedTuple):
    """What comes after a pull."""

    call: PullCall | None
    """The next one, if it is under way already."""
    broker_id: int
    """Which broker to ask next."""

    def drop(self) -> None:
        if self.call is not None:
            self.call.drop()


class _Task:
    """The task of one queue."""

    __slots__ = ("queue", "scope")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.scope: anyio.CancelScope | None = None

    def interrupt(self) -> None:
        if self.scope is not None:
            self.scope.cancel()
