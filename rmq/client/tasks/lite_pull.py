"""Lite pull: the application asks for messages when it wants some; they are read ahead.

    async with open_lite_pull_consumer("10.0.0.5:9876", "billing") as consumer:
        await consumer.subscribe("Orders", "paid || refunded")
        async for message in consumer:
            ...

The queues of topics that are subscribed to are shared with the other members of the group. With
`assign` the application says itself which queues are read.

Messages that were handed out count as consumed when the application comes back for more, calls
`commit`, or leaves the block without an error. What was consumed is told to the brokers every 5 s
and when the consumer closes. So a message may be seen twice, after a crash or when its queue moves
to another member, but none is lost. An application that works on messages in other tasks while it
polls on has `commits_itself=False`, and names the offsets to `commit`.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack, final

import anyio

from rmq.client.core.consuming import offsets as offset_flows
from rmq.client.core.consuming.config import LitePullConfig
from rmq.client.core.consuming.pull_subscriptions import PullSubscriptions
from rmq.client.core.members import LEAVE_S
from rmq.client.core.trace import ConsumeCode
from rmq.client.tasks.client import open_client
from rmq.client.tasks.lite_member import LiteMember
from rmq.client.tasks.lite_reader import LitePullStatistics, LiteReader
from rmq.client.tasks.tracing import TraceRole, traced
from rmq.errors import ClientClosedError, ConfigError, NotAssignedError
from rmq.model.clock import system_ms
from rmq.remoting.bodies import SUBSCRIBE_ALL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from anyio.abc import TaskStatus

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import LitePullOptions
    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.core.flows import Flow
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.lite_member import QueueListener
    from rmq.client.tasks.loop import Loop
    from rmq.model.queues import MessageQueue

MESSAGES_PER_TURN: Final = 64
"""How many messages are iterated over before other tasks run."""


@final
class LitePullConsumer:
    """Use `open_lite_pull_consumer`, or `lite_pulling` with a client of your own, to get one.

    For one task only: a poll marks all messages that were handed out before as consumed.
    """

    def __init__(
        self, client: Client, config: LitePullConfig, *, tracer: Tracer | None = None
    ) -> None:
        self.config = config
        self._client = client
        subscriptions = PullSubscriptions(config.group)
        self._reader = LiteReader(client, config, subscriptions)
        self._buffer = self._reader.buffer
        self._member = LiteMember(client, config, self._reader, subscriptions)
        self._tracer = tracer
        self._traced: _Traced | None = None
        self._burst = 0
        self._is_open = False

    @property
    def group(self) -> str:
        return self.config.group

    @property
    def client(self) -> Client:
        return self._client

    def __repr__(self) -> str:
        state = f"{len(self._buffer.queues)} queues" if self._is_open else "closed"
        return f"<LitePullConsumer of group {self.group}: {state}>"

    def statistics(self) -> LitePullStatistics:
        """Return buffer sizes, and why queues cannot be read now."""
        return self._reader.statistics()

    # --- which queues ------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        expression: Expression = SUBSCRIBE_ALL,
        *,
        on_change: QueueListener | None = None,
    ) -> None:
        """Read a topic together with the other members of the group.

        The expression names tags (`a || b`), everything (`*`) or a condition (`Sql("a > 5")`);
        another one may be given later. `on_change` is told which queues came and went. Raises
        `NoRouteError` if no broker has the topic, `ResponseError` if brokers cannot filter so.
        """
        self._check_open()
        await self._member.subscribe(topic, expression, on_change)
        self._check_open()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no longer. What was polled counts as consumed."""
        self._mark_consumed()
        await self._member.unsubscribe(topic)

    async def assign(
        self,
        queues: Iterable[MessageQueue],
        expressions: Mapping[str, Expression] | None = None,
    ) -> None:
        """Read these queues and no others; other members may read them, too.

        `expressions` says which messages are wanted, by topic. Queues that were assigned before go
        on where they are. What was polled counts as consumed.
        """
        self._mark_consumed()
        await self._member.assign(tuple(queues), expressions or {})
        self._check_open()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all queues of a topic that can be read, as nameservers have it now."""
        self._check_open()
        return (await self._client.refresh_route(topic)).readable

    async def watch_topic(self, topic: str, on_change: QueueListener) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic, and have `on_change` told when they become others."""
        self._check_open()
        return await self._member.watch(topic, on_change)

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now."""
        return tuple(sorted(self._buffer.queues))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out no messages of these queues until `resume`; raise `NotAssignedError`.

        What was read ahead of them is kept. (A stock consumer hands it out nevertheless.)
        """
        self._check_open()
        queues = tuple(queues)
        self._check_own(*queues)
        for queue in queues:
            self._reader.pause(queue)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Hand out messages of these queues again; raise `NotAssignedError`."""
        self._check_open()
        queues = tuple(queues)
        self._check_own(*queues)
        for queue in queues:
            self._reader.resume(queue)

    # --- messages ----------------------------------------------------------------------------

    async def poll(
        self, timeout_s: float | None = None, max_messages: int | None = None
    ) -> list[ReceivedMessage]:
        """Return the next messages, at least one unless none comes within the time.

        All messages that were handed out before count as consumed from now on. Without arguments
        it waits `poll_timeout_s` (5 s) and returns at most `pull_messages_max` (10). A cancelled
        call has taken no messages.
        """
        timeout_s = self.config.poll_timeout_s if timeout_s is None else timeout_s
        count = self.config.pull_messages_max if max_messages is None else max_messages
        if timeout_s < 0:
            raise ConfigError("timeout_s", f"{timeout_s:g} is below 0")
        if count < 1:
            raise ConfigError("max_messages", f"{count} is below 1")
        # Before messages are taken: once they are, nothing may be cancelled.
        await self._client.loop.checkpoint()
        self._mark_consumed()
        messages = self._reader.take(count) or await self._wait(timeout_s, count)
        if self._tracer is not None and messages:
            self._trace(self._tracer, messages)
        return messages

    async def _wait(self, timeout_s: float, count: int) -> list[ReceivedMessage]:
        with anyio.move_on_after(timeout_s):
            while True:
                await self._reader.wait_arrived()
                self._check_open()
                if messages := self._reader.take(count):
                    return messages
        return []

    def __aiter__(self) -> LitePullConsumer:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, however long it takes; the one before is consumed."""
        if self._burst < MESSAGES_PER_TURN and self._tracer is None:
            self._mark_consumed()
            if (message := self._reader.take_one()) is not None:
                self._burst += 1
                return message
        self._burst = 0
        return (await self.poll(math.inf, 1))[0]

    # --- places ------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset: what was read ahead is forgotten, and `offset` is committed next.

        Raises `NotAssignedError`, and `ConfigError` if the queue has no such offset.
        """
        self._check_open()
        self._check_own(queue)
        routes = self._client.routes
        low = await self._client.run(offset_flows.min_offset(routes, queue))
        high = await self._client.run(offset_flows.max_offset(routes, queue))
        if not low <= offset <= high:
            raise ConfigError("offset", f"{offset} is not {low} to {high}, what {queue} has")
        self._reader.move(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that can still be read."""
        await self._seek(queue, offset_flows.min_offset(self._client.routes, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        await self._seek(queue, offset_flows.max_offset(self._client.routes, queue))

    async def seek_to_time(self, queue: MessageQueue, time_ms: int) -> None:
        """Go on with the message that was stored nearest to a time, in ms since 1970."""
        await self._seek(queue, offset_flows.offset_at(self._client.routes, queue, time_ms))

    async def _seek(self, queue: MessageQueue, where: Flow[int]) -> None:
        try:
            self._check_open()
            self._check_own(queue)
            self._reader.move(queue, max(0, await self._client.run(where)))
        finally:
            where.close()

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset that is handed out next."""
        self._check_open()
        return await self._reader.position(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue as brokers know it; None: it was never there.

        The queue need not be assigned to this consumer.
        """
        self._check_open()
        await self._client.route(queue.topic)
        return await self._reader.committed(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Have all that was polled stored as consumed, or just what is named here.

        Returns when the brokers have it. Raises `BrokersFailedError` if one of them did not store
        it, `NotAssignedError` for a queue that is not this consumer's.
        """
        self._mark_consumed()
        if offsets is None:
            offsets = dict(self._buffer.all_consumed())
        self._check_own(*offsets)
        for queue, offset in offsets.items():
            if offset < 0:
                raise ConfigError("offsets", f"{offset} of {queue} is below 0")
        await self._reader.commit(offsets)

    # --- inside ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosedError(f"lite pull consumer of group {self.group}")

    def _check_own(self, *queues: MessageQueue) -> None:
        for queue in queues:
            if queue not in self._buffer:
                raise NotAssignedError(queue.topic, queue.broker_name, queue.queue_id)

    def _mark_consumed(self) -> None:
        """Mark all messages that were handed out as consumed, and trace it."""
        self._check_open()
        self._buffer.mark_consumed()
        if self._traced is not None:
            self._traced.end(self.group)
            self._traced = None

    def _trace(self, tracer: Tracer, messages: list[ReceivedMessage]) -> None:
        request_id = tracer.consuming(self.group, messages, started_at_ms=system_ms())
        self._traced = _Traced(tracer, request_id, messages, anyio.current_time())

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        async with anyio.create_task_group() as nursery:
            self._reader.start(nursery)
            nursery.start_soon(self._member.run)
            self._is_open = True
            self._client.join(self._member)
            task_status.started()

    def _close(self, *, is_done: bool) -> None:
        """Refuse further calls; `is_done`: polled messages count as consumed."""
        if self._is_open:
            if is_done:
                self._mark_consumed()
            self._is_open = False
            self._reader.close()

    async def _leave(self) -> None:
        with anyio.move_on_after(LEAVE_S, shield=True):
            if self.config.commits_itself:
                await self._reader.commit_consumed()
        await self._client.leave(self._member)


class _Traced(NamedTuple):
    """Messages that were handed out and are not consumed yet, for traces."""

    tracer: Tracer
    request_id: str
    messages: list[ReceivedMessage]
    started_at: float

    def end(self, group: str) -> None:
        self.tracer.consumed(
            group,
            self.messages,
            request_id=self.request_id,
            ended_at_ms=system_ms(),
            took_ms=round((anyio.current_time() - self.started_at) * 1000),
            code=ConsumeCode.SUCCESS,
        )


@asynccontextmanager
async def lite_pulling(
    client: Client, config: LitePullConfig, *, tracer: Tracer | None = None
) -> AsyncIterator[LitePullConsumer]:
    """Pull with a shared client for the length of a block.

    Stock lite pull consumers have clients of their own; `open_client(..., is_stream=True)` makes
    one that looks like them to brokers.
    """
    consumer = LitePullConsumer(client, config, tracer=tracer)
    error: Exception | None = None
    await consumer._reader.open()
    try:
        async with anyio.create_task_group() as nursery:
            await nursery.start(consumer._run)
            is_done = False
            try:
                yield consumer
                is_done = True
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                error = exc
            finally:
                consumer._close(is_done=is_done)
                nursery.cancel_scope.cancel()
    finally:
        await consumer._leave()
    if error is not None:
        raise error


@asynccontextmanager
async def open_lite_pull_consumer(
    loop: Loop,
    nameservers: str | ClientConfig,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[LitePullOptions],
) -> AsyncIterator[LitePullConsumer]:
    """Run a lite pull consumer with a client of its own for the length of a block.

    Options are those of `LitePullConfig`.
    """
    config = LitePullConfig(group=group, **options)
    async with (
        traced(loop, nameservers, group, TraceRole.CONSUME, tracer) as used,
        open_client(loop, nameservers, is_stream=True) as client,
        lite_pulling(client, config, tracer=used) as consumer,
    ):
        yield consumer
