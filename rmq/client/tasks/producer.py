"""The producer.

    async with open_producer("10.0.0.5:9876", "orders") as producer:
        result = await producer.send(Message("Orders", b"...", tag="new"))

        for line in lines:                                # pipelined: many under way
            await producer.send_soon(Message("Orders", line))

Sends are retried on another broker, and raise `SendFailedError` with all that was tried if that
does not help. Leaving the block waits for pipelined sends under way.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Unpack, final

import anyio

from rmq.client.core.producing.config import ProducerConfig, ProducerOptions
from rmq.client.core.producing.delivery import batch_results, check_queue
from rmq.client.core.producing.outbound import prepare, prepare_batch, prepare_half, split_batch
from rmq.client.core.producing.requests import CORRELATION_ID
from rmq.client.core.producing.selection import by_hash
from rmq.client.core.producing.unique_keys import new_unique_keys
from rmq.client.tasks.client import open_client
from rmq.client.tasks.pending import Pending
from rmq.client.tasks.pipeline import Pipeline
from rmq.client.tasks.request_reply import Requester
from rmq.client.tasks.tracing import TraceRole, traced
from rmq.errors import RmqError, TooManyRequestsError
from rmq.remoting.bodies import ProducerData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.members import Member
    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.outbound import OutboundMessage
    from rmq.client.core.producing.selection import Selector, ShardingKey
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import TopicRoute
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Awaited, Loop, PendingSend
    from rmq.model.queues import MessageQueue

_PARTS_UNDER_WAY: Final = 4
"""Parts of a large batch that are sent at a time."""
_SENDS_PER_STEP: Final = 64
"""A loop of pipelined sends lets other tasks run after this many."""
_CLOSE_GRACE_S: Final = 1.0
"""Closing waits for sends in flight this much longer than their timeout."""


@final
class Producer:
    """Sends messages. Use `open_producer`, or `producing` on a client that is shared."""

    def __init__(
        self, client: Client, config: ProducerConfig, *, tracer: Tracer | None = None
    ) -> None:
        self.client = client
        self.config = config
        self.tracer = tracer
        self._pipeline = Pipeline(client, config, tracer)
        self._unique_keys = new_unique_keys(client.client_id.partition("@")[0])
        self._requester = Requester(client, self._pipeline)
        self._wakings = client.remoting.wakings
        self._loop = loop = client.loop
        self._awaited = loop.awaited
        self._checkpoint_if_cancelled = loop.checkpoint_if_cancelled
        self._pipelined = 0

    def __repr__(self) -> str:
        return f"<Producer {self.config.group}: {self._pipeline.under_way} sends under way>"

    @asynccontextmanager
    async def running(self, member: Member | None = None) -> AsyncIterator[None]:
        """Run for the length of a block, known to brokers as `member` (itself)."""
        error: Exception | None = None
        joined = self if member is None else member
        async with anyio.create_task_group() as nursery:
            self._pipeline.open(nursery)
            self.client.join(joined)
            try:
                try:
                    yield
                except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                    error = exc
                with anyio.move_on_after(self.config.send_timeout_s + _CLOSE_GRACE_S):
                    await self._pipeline.wait_drained()
            finally:
                self._pipeline.close()
                nursery.cancel_scope.cancel()
                await self.client.leave(joined)
        if error is not None:
            raise error

    # --- sending -----------------------------------------------------------------------------

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> SendResult:
        """Send a message and wait until it is stored.

        To a queue in turn, or to `queue` and no other. While brokers have slaves but no master,
        such as during a promotion, it waits for one as long as it has time. Raises
        `SendFailedError` with all attempts; `NoRouteError` and `NoNameserverError` if no
        broker was found; and `IllegalMessageError` for a message that no broker would take.
        """
        now_ms = time.time_ns() // 1_000_000
        outbound = self.prepared(message, now_ms)
        return await self.send_outbound(
            outbound, now_ms, queue=queue, timeout_s=timeout_s, message=message
        )

    async def send_ordered(
        self,
        message: Message,
        sharding_key: ShardingKey,
        selector: Selector = by_hash,
        *,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message to the queue that `selector` has for the key, and no other.

        Messages with the same key are consumed in the order in which they were sent, one after the
        other. If the queue's broker is away, the send fails, or waits for a slave to be promoted if
        there is one: it is not moved elsewhere.
        """
        route = await self._route(message.topic, timeout_s)
        queue = selector(route.writable, message, sharding_key)
        return await self.send(message, queue=queue, timeout_s=timeout_s)

    def submit(
        self,
        message: Message,
        on_outcome: Callable[[SendResult | RmqError], None],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send a message; `on_outcome` is called once, with the result or the error.

        Returns at once, and costs no step of the scheduler. Raises `TooManyRequestsError` if
        `pending_max` or `pending_bytes_max` is reached: use `send_soon` to wait for room.
        `on_outcome` must not block; what it raises is logged.
        """
        pipeline = self._pipeline
        if not pipeline.has_room(len(message.body)):
            raise TooManyRequestsError(
                f"producer {self.config.group}",
                "a message",
                pipeline.under_way,
                what_waits="pipelined sends are under way",
            )
        now_ms = time.time_ns() // 1_000_000
        self._start(self.prepared(message, now_ms), now_ms, on_outcome, queue, timeout_s, message)

    async def send_soon(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_s: float | None = None
    ) -> PendingSend:
        """Wait for room, send a message and return; `await pending.wait()` waits until it is
        stored.

        Messages of one queue arrive in the order in which they were sent, as long as none has to
        be sent again.
        """
        pipeline = self._pipeline
        self._pipelined += 1
        if not pipeline.has_room(len(message.body)):
            await pipeline.wait_room(len(message.body))
        elif self._pipelined % _SENDS_PER_STEP:
            await self._checkpoint_if_cancelled()
        else:
            await self._loop.checkpoint()
        pending = self._loop.pending_send()
        now_ms = time.time_ns() // 1_000_000
        self._start(self.prepared(message, now_ms), now_ms, pending, queue, timeout_s, message)
        return pending

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without a response; return when it is written to the socket."""
        self._pipeline.check_open()
        check_queue(message.topic, queue)
        now_ms = time.time_ns() // 1_000_000
        await self._pipeline.send_oneway(self.prepared(message, now_ms), queue)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, each part to one queue.

        Returns a result for each part: as many as it takes to stay below `message_bytes_max`. The
        messages of a part are stored together or not at all. Raises `BatchFailedError` if some
        parts were not acknowledged, and the error itself if there is one part only.
        """
        self._pipeline.check_open()
        runs = split_batch(messages, self.config.message_bytes_max)
        waiting: deque[Pending] = deque()
        pendings: list[PendingSend] = []
        try:
            for run in runs:
                pending = self._loop.pending_send()
                pendings.append(pending)
                now_ms = time.time_ns() // 1_000_000
                outbound = prepare_batch(run, unique_keys=self._unique_keys, now_ms=now_ms)
                waiting.append(self._start(outbound, now_ms, pending, queue, timeout_s, None))
                if len(pendings) >= _PARTS_UNDER_WAY:
                    await _completed(pendings[-_PARTS_UNDER_WAY])
            for pending in pendings:
                await _completed(pending)
        finally:
            for each in waiting:
                self._pipeline.abandon(each)
        return batch_results(runs, [pending.outcome for pending in pendings])

    # --- requests and replies ----------------------------------------------------------------

    async def request(
        self, message: Message, timeout_s: float = 3.0, *, queue: MessageQueue | None = None
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer.

        Raises `RequestTimeoutError` if none comes in time, and what `send` raises if the message
        could not be sent.
        """
        self._pipeline.check_open()
        extra = self._requester.properties(timeout_s)
        outbound = self.prepared(message, time.time_ns() // 1_000_000, extra)
        return await self._requester.request(
            outbound, extra[CORRELATION_ID], message, timeout_s, queue
        )

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answer a message that was sent with `request`; raise `SendFailedError`.

        The client that asked has the reply then; the error says so if it is gone.
        """
        self._pipeline.check_open()
        outbound = self._requester.prepared_reply(request, body, self._unique_keys)
        queue = await self._requester.reply_queue(request, outbound.topic)
        return await self.send_outbound(outbound, time.time_ns() // 1_000_000, queue=queue)

    # --- topics ------------------------------------------------------------------------------

    async def prepare(self, topic: str, *, timeout_s: float | None = None) -> None:
        """Find out where a topic is and connect to its brokers, so that the first send need not.

        Raises `NoRouteError`, `NoNameserverError` or `RequestTimeoutError` if it is not known where
        the topic is; brokers that cannot be reached are left to the sends.
        """
        timeout_s = self.config.send_timeout_s if timeout_s is None else timeout_s
        await self._route(topic, timeout_s)
        with anyio.move_on_after(timeout_s):
            await self._pipeline.connect(topic)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that take messages now."""
        return (await self._route(topic, None)).writable

    async def _route(self, topic: str, timeout_s: float | None) -> TopicRoute:
        self._pipeline.check_open()
        return await self._pipeline.route(
            topic, self.config.send_timeout_s if timeout_s is None else timeout_s
        )

    # --- what transactions and the client need -----------------------------------------------

    def prepared(
        self, message: Message, now_ms: int, extra: Mapping[str, str] | None = None
    ) -> OutboundMessage:
        """Return what is sent for a message."""
        config = self.config
        return prepare(
            message,
            unique_keys=self._unique_keys,
            now_ms=now_ms,
            compress_above=config.compress_above,
            compress_level=config.compress_level,
            bytes_max=config.message_bytes_max,
            extra_properties=extra,
        )

    def prepared_half(self, message: Message, now_ms: int) -> OutboundMessage:
        """Return what is sent for a message whose transaction is not decided yet."""
        config = self.config
        return prepare_half(
            message,
            group=config.group,
            unique_keys=self._unique_keys,
            now_ms=now_ms,
            compress_above=config.compress_above,
            compress_level=config.compress_level,
            bytes_max=config.message_bytes_max,
        )

    async def send_outbound(
        self,
        outbound: OutboundMessage,
        now_ms: int,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        message: Message | None = None,
    ) -> SendResult:
        """Send what was prepared, and wait until it is stored."""
        await self._checkpoint_if_cancelled()
        pipeline, wakings = self._pipeline, self._wakings
        waiter: Awaited[SendResult | RmqError] = self._awaited(wakings)
        pending = self._start(outbound, now_ms, waiter, queue, timeout_s, message)
        if waiter.outcome is None and pipeline.is_alone() and not wakings.count:
            try:
                await self.client.remoting.busy_wait_for(waiter, pipeline.is_alone)
            except BaseException:
                pipeline.abandon(pending)
                raise
        if waiter.outcome is None:
            await waiter.sleep(lambda: pipeline.abandon(pending))
            waiter.woke()
        outcome = waiter.outcome
        assert outcome is not None, "woken without an outcome"
        if isinstance(outcome, RmqError):
            try:
                raise outcome
            finally:
                # Its traceback holds this frame, which holds it and the message.
                del outcome, waiter
        return outcome

    @property
    def group(self) -> str:
        return self.config.group

    def topics(self) -> Iterable[str]:
        return self._pipeline.topics()

    def presence(self) -> ProducerData:
        return ProducerData(group_name=self.config.group)

    def route_changed(self, route: TopicRoute) -> None:
        self._pipeline.route_changed(route)

    def _start(
        self,
        outbound: OutboundMessage,
        now_ms: int,
        on_outcome: Callable[[SendResult | RmqError], None],
        queue: MessageQueue | None,
        timeout_s: float | None,
        message: Message | None,
    ) -> Pending:
        if queue is not None:
            check_queue(outbound.topic, queue)
        pipeline = self._pipeline
        pending = Pending(
            pipeline,
            outbound,
            on_outcome,
            now=pipeline.now(),
            now_ms=now_ms,
            timeout_s=self.config.send_timeout_s if timeout_s is None else timeout_s,
            queue=queue,
            message=message,
        )
        pipeline.start(pending)
        return pending


async def _completed(pending: PendingSend) -> None:
    try:
        await pending.wait()
    except RmqError:
        # Told together with the other parts.
        return


@asynccontextmanager
async def producing(
    client: Client, config: ProducerConfig, *, tracer: Tracer | None = None
) -> AsyncIterator[Producer]:
    """Run a producer on a client that others may share, for the length of a block."""
    producer = Producer(client, config, tracer=tracer)
    async with producer.running():
        yield producer


@asynccontextmanager
async def open_producer(
    loop: Loop,
    nameservers: ClientConfig | str,
    group: str,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[ProducerOptions],
) -> AsyncIterator[Producer]:
    """Run a producer with a client of its own, for the length of a block.

    `options` are the settings of `ProducerConfig`. Traces are written if `tracer` is given, or the
    client's config names a topic for them.
    """
    config = ProducerConfig(group=group, **options)
    async with (
        traced(loop, nameservers, group, TraceRole.PRODUCE, tracer) as used,
        open_client(loop, nameservers) as client,
        producing(client, config, tracer=used) as producer,
    ):
        yield producer
