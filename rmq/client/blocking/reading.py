"""Reading ahead for `poll`: one pull under way for each queue, all of them at once.

Nothing runs by itself. `advance` takes in what has come and begins what is to be begun; `poll`
calls it before and after waiting. A queue that has nothing new costs one request in 20 s,
which the broker holds until something comes. A queue whose broker fails is asked again after a
second, from the same place; the others go on.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, final

from rmq.client.core.consuming.buffer import BufferLimits, PullBuffer
from rmq.client.core.consuming.offsets import start_offset
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
from rmq.client.core.consuming.pulls import PullStatus, pull
from rmq.client.core.routes import broker_of
from rmq.errors import (
    ClientError,
    ConnectionLostError,
)
from rmq.model.names import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.blocking.client import BlockingClient
    from rmq.client.blocking.runner import Task
    from rmq.client.core.consuming.buffer import Ticket
    from rmq.client.core.consuming.config import BlockingConsumerConfig
    from rmq.client.core.consuming.pulls import PullResult
    from rmq.client.core.flows import Flow
    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData

logger = logging.getLogger(__name__)

_monotonic = time.monotonic


@final
class Reading:
    """The queues of one consumer, and what was pulled of them."""

    def __init__(self, client: BlockingClient, config: BlockingConsumerConfig) -> None:
        self.buffer: PullBuffer[ReceivedMessage] = PullBuffer(
            BufferLimits(
                messages_max=config.messages_max,
                queue_messages_max=config.messages_max,
                queue_span_max=max(config.messages_max, 1_000_000),
            )
        )
        self._client = client
        self._config = config
        self._states: dict[MessageQueue, _QueueState] = {}

    @property
    def failure(self) -> ClientError | None:
        """Why nothing can be read now: what one queue failed with, if all do."""
        failure = None
        for queue, state in self._states.items():
            if not self.buffer.is_paused(queue):
                if state.failure is None:
                    return None
                failure = state.failure
        return failure

    def assign(self, wanted: Mapping[MessageQueue, SubscriptionData]) -> None:
        """Read these queues and no others; those that stay go on where they are."""
        for queue in [queue for queue in self._states if queue not in wanted]:
            self.buffer.drop(queue)
            self._states.pop(queue).cancel()
        for queue, subscription in wanted.items():
            state = self._states.get(queue)
            if state is None:
                self.buffer.add(queue)
                self._states[queue] = _QueueState(queue, subscription)
            elif state.subscription != subscription:
                state.subscription = subscription
                state.cancel()
                if self.buffer.position(queue) is not None:
                    self.buffer.pull_again(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from another offset."""
        self.buffer.seek(queue, offset)
        self._states[queue].cancel()

    def cancel(self) -> None:
        """Forget what is under way; what is buffered stays."""
        for state in self._states.values():
            if state.ticket is not None:
                self.buffer.fail(state.ticket)
            state.cancel()

    # --- carrying on -------------------------------------------------------------------------

    def advance(self) -> float | None:
        """Take in what has come, and begin what is due; return when to look again, if ever."""
        now = _monotonic()
        look_at: float | None = None
        for state in self._states.values():
            if state.task is not None and state.task.is_done:
                self._take_in(state, now)
            if state.task is None and not self.buffer.is_paused(state.queue):
                if now < state.left_alone_until:
                    if look_at is None or state.left_alone_until < look_at:
                        look_at = state.left_alone_until
                else:
                    self._begin(state)
        self._client.connections.flush()
        return look_at

    def _begin(self, state: _QueueState) -> None:
        buffer, queue, config = self.buffer, state.queue, self._config
        if buffer.position(queue) is None:
            state.turn = buffer.turn(queue)
            state.task = self._client.start(self._start_offset(state))
        elif buffer.may_pull(queue):
            ticket = state.ticket = buffer.begin(queue)
            state.began_at = _monotonic()
            state.task = self._client.start(self._pull(state, ticket, config))

    def _routed(self, state: _QueueState) -> Flow[None]:
        """Have the route of a queue, and a fresh one if its broker was lost."""
        client, topic = self._client, state.queue.topic
        if state.is_lost or client.routes.get(topic) is None:
            state.is_lost = False
            route = yield from client.nameservers.route(topic)
            client.routes.put(route)

    def _start_offset(self, state: _QueueState) -> Flow[int]:
        config = self._config
        yield from self._routed(state)
        return (
            yield from start_offset(
                self._client.routes,
                config.group,
                state.queue,
                config.consume_from,
                config.consume_from_ms,
            )
        )

    def _pull(
        self, state: _QueueState, ticket: Ticket, config: BlockingConsumerConfig
    ) -> Flow[PullResult]:
        yield from self._routed(state)
        result = yield from pull(
            self._client.routes,
            state.queue,
            group=config.group,
            subscription=state.subscription,
            offset=ticket.offset,
            max_messages=config.pull_messages_max,
            suspend_s=config.pull_suspend_s,
            sends_expression=True,
            is_lite=True,
            broker_id=state.broker_id,
            timeout_s=config.pull_timeout_s,
        )
        self._check(state, ticket, result)
        return result

    def _check(self, state: _QueueState, ticket: Ticket, result: PullResult) -> None:
        """Raise `BadAnswerError` for a response with impossible offsets."""
        queue, offset = state.queue, ticket.offset
        peer = queue.broker_name
        if result.status is PullStatus.FOUND:
            check_found(peer, queue, offset, result.next_offset)
            return
        is_moved = result.status is PullStatus.OFFSET_ILLEGAL
        is_slave = is_moved and (
            broker_of(self._client.routes, queue, state.broker_id).broker_id != MASTER_ID
        )
        check_place(peer, queue, offset, result, is_slave=is_slave)
        if is_moved:
            logger.warning("%s", moved_text(self._config.group, queue, offset, result))

    # --- outcomes ----------------------------------------------------------------------------

    def _take_in(self, state: _QueueState, now: float) -> None:
        task, ticket = state.task, state.ticket
        assert task is not None
        state.task = state.ticket = None
        try:
            result = task.result()
        except ClientError as exc:
            if ticket is not None:
                self.buffer.fail(ticket)
            self._failed(state, exc, now)
            return
        state.failure = None
        if ticket is None:
            assert isinstance(result, int)
            self.buffer.start(state.queue, result, state.turn)
            return
        assert not isinstance(result, int)
        state.broker_id = result.suggested_broker_id
        self.buffer.finish(ticket, result.messages, result.next_offset)
        if pause_s := idle_pause_s(ticket.offset, result, now - state.began_at):
            state.left_alone_until = now + pause_s

    def _failed(self, state: _QueueState, error: ClientError, now: float) -> None:
        """Pause a queue after a failure, and log the failure if it is a new one."""
        state.broker_id = MASTER_ID
        if asks_for_pause(error):
            state.left_alone_until = now + BUSY_PAUSE_S
            return
        pause_s = self._config.pull_pause_s
        logger.log(
            failure_level(state.failure, error),
            "group %s: %s cannot be read, again in %g s: %s",
            self._config.group,
            state.queue,
            pause_s,
            error,
        )
        if state.failure is not None or not isinstance(error, ConnectionLostError):
            state.left_alone_until = now + pause_s
        # Else a broker that went away, or did not like our silence: it may be back at once.
        state.failure = error
        state.is_lost = isinstance(error, LOST_BROKER)


class _QueueState:
    """One queue, and what is under way for it."""

    __slots__ = (
        "began_at",
        "broker_id",
        "failure",
        "is_lost",
        "left_alone_until",
        "queue",
        "subscription",
        "task",
        "ticket",
        "turn",
    )

    def __init__(self, queue: MessageQueue, subscription: SubscriptionData) -> None:
        self.queue = queue
        self.subscription = subscription
        self.task: Task[int] | Task[PullResult] | None = None
        """Looks up the start offset, or pulls."""
        self.ticket: Ticket | None = None
        """Of the pull."""
        self.turn = 0
        self.began_at = 0.0
        self.broker_id = MASTER_ID
        self.failure: ClientError | None = None
        self.left_alone_until = 0.0
        self.is_lost = False
        """Whether to ask for the route again because the broker was lost."""

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.task = self.ticket = None
