"""A consumer that calls a listener with messages as they come.

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            print(message.topic, message.body)

    async with open_push_consumer("10.0.0.5:9876", "billing", {"Orders": "paid || sent"}, listener):
        await anyio.sleep_forever()

A listener that returns is done with its messages. One that raises, or returns `ConsumeResult.LATER`
or `Later(level)`, gets them again later, see `rmq.client.core.consuming.results`. Messages are
given out at least once: after a crash, or when members of the group come and go, some come twice.

Members of a group share the queues of their topics among each other (`rmq.client.tasks.rebalance`).
On leaving the block nothing more is pulled, calls under way may finish within `close_wait_s`,
offsets are stored and the group is told.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import anyio

from rmq.client.core.consuming.config import PushConsumerConfig, default_offset_folder
from rmq.client.core.consuming.group import check_filter
from rmq.client.core.consuming.offset_file import local_offset_path
from rmq.client.core.consuming.send_back import BROKER_DECIDES
from rmq.client.core.consuming.subscription_set import SubscriptionSet
from rmq.client.core.members import LEAVE_S
from rmq.client.tasks import status as consumer_status
from rmq.client.tasks.assignment import Assignment
from rmq.client.tasks.client import open_client
from rmq.client.tasks.listener_pool import CallLimits, ListenerPool
from rmq.client.tasks.offset_keeping import LocalOffsetKeeper, RemoteOffsetKeeper
from rmq.client.tasks.pull_loop import Pulling
from rmq.client.tasks.rebalance import Rebalancer
from rmq.client.tasks.services import Returning, consume_service
from rmq.client.tasks.status import SAMPLE_S, ConsumeStatistics
from rmq.client.tasks.tracing import TraceRole, traced
from rmq.errors import ClientClosedError, ClientError, ConfigError, NoRouteError
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
    from typing import Unpack

    from anyio.abc import TaskGroup

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.config import PushConsumerOptions
    from rmq.client.core.consuming.subscription_set import Expression, Subscriptions
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import TopicRoute
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.listener_pool import Listener
    from rmq.client.tasks.loop import Loop
    from rmq.client.tasks.offset_keeping import OffsetKeeper
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import (
        ConsumeMessageDirectlyResult,
        ConsumerData,
        ConsumerRunningInfo,
    )

logger = logging.getLogger(__name__)


@final
class PushConsumer:
    """A member of a consumer group. `open_push_consumer` and `consuming` give a running one."""

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: Subscriptions,
        listener: Listener,
        keeper: OffsetKeeper,
        *,
        tracer: Tracer | None = None,
    ) -> None:
        if not callable(listener):
            raise ConfigError("listener", f"{listener!r} cannot be called")
        now_ms = system_ms()
        self.config = config
        self.client = client
        self._listener = listener
        self._keeper = keeper
        self._started_at_ms = now_ms
        self._now: Callable[[], float] = client.loop.clock()
        self._subscriptions = SubscriptionSet(
            config.group, subscriptions, is_broadcasting=config.is_broadcast, now_ms=now_ms
        )
        self._statistics = ConsumeStatistics()
        self._returning = Returning(client, config)
        self._assignment = Assignment(
            client,
            config,
            keeper,
            started_at_ms=now_ms,
            start_soon=self._start_soon,
        )
        self._pool = ListenerPool(
            listener,
            consume_service(
                config,
                keeper.table,
                self._returning,
                relock=self._assignment.relock,
                offer=lambda turn: self._pool.offer(turn),
                after=self._after,
            ),
            group=config.group,
            limits=CallLimits(
                config.listeners_max,
                None if config.is_orderly else config.consume_timeout_s,
            ),
            statistics=self._statistics,
            loop=client.loop,
            tracer=tracer,
        )
        self._pulling = Pulling(
            client,
            config,
            self._subscriptions,
            keeper.table,
            self._statistics,
            offer=self._pool.offer,
            offset_is_illegal=self._assignment.move,
        )
        self._assignment.pool, self._assignment.pulling = self._pool, self._pulling
        self._rebalancer = Rebalancer(client, config, self._subscriptions, self._assignment)
        self._balancing = anyio.CancelScope()
        self._nursery: TaskGroup | None = None

    def __repr__(self) -> str:
        return (
            f"<PushConsumer {self.group} {self.client.client_id}: {len(self._assignment)} queues>"
        )

    # --- for the application -----------------------------------------------------------------

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member consumes now."""
        return self._assignment.queues

    @property
    def unfinished(self) -> int:
        """How many messages were pulled that the listener is not done with."""
        return sum(assigned.process.count for assigned in self._assignment)

    @property
    def calls(self) -> int:
        """How many calls of the listener are under way."""
        return self._pool.calls

    @property
    def is_paused(self) -> bool:
        return self._pulling.is_paused

    def pause(self) -> None:
        """Pull no more. What was pulled is still given to the listener; queues stay ours."""
        self._pulling.pause()

    def resume(self) -> None:
        self._pulling.resume()
        self._rebalancer.wake()

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Take in a topic, or other messages of it than before.

        All members of a group must subscribe to the same. Raises `ConfigError`, and `ResponseError`
        if a broker of the topic cannot filter so; then all is as before.
        """
        self._check_open()
        before = self._subscriptions.get(topic)
        data = self._subscriptions.put(topic, expression, system_ms())
        self._statistics.watch(topic, anyio.current_time())
        try:
            await self.client.route(topic)
            if data in self._subscriptions.conditions():
                await self._check_condition(topic)
        except NoRouteError as exc:
            self._rebalancer.is_missing(topic, exc)
        except ClientError:
            self._subscriptions.restore(topic, before)
            raise
        await self.client.beat()
        self._rebalancer.wake()

    async def unsubscribe(self, topic: str) -> None:
        """Give up a topic and its queues."""
        self._check_open()
        if self._subscriptions.remove(topic):
            await self.client.beat()
            self._rebalancer.wake()

    async def commit(self) -> None:
        """Store offsets now, rather than within `offset_commit_s`; wait until that is done."""
        self._check_open()
        await self._assignment.persist(is_waited_for=True)

    async def send_back(self, message: ReceivedMessage, delay_level: int = BROKER_DECIDES) -> None:
        """Have a message delivered to the group again later; raise `ClientError`.

        1 to 18 are delay levels of the broker, 0 is as it decides, -1 among the dead letters.
        """
        await self._returning.later(message, delay_level)

    # --- running -----------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PushConsumer]:
        """Consume for the length of a block.

        Raises `NoNameserverError` if none answers at the start, and `ResponseError` if a broker
        cannot filter as subscribed. A topic that no broker has yet is found once it exists.
        """
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as nursery:
                self._nursery = nursery
                try:
                    await self._start(nursery)
                    yield self
                except Exception as exc:  # noqa: BLE001 - raised again below, outside the nursery
                    error = exc
                await self._wind_down(nursery)
        finally:
            self._nursery = None
            with anyio.CancelScope(shield=True):
                await self._leave()
        if error is not None:
            raise error

    async def _start(self, nursery: TaskGroup) -> None:
        now = anyio.current_time()
        for topic in self._subscriptions.topics:
            self._statistics.watch(topic, now)
            try:
                await self.client.route(topic)
            except NoRouteError as exc:
                self._rebalancer.is_missing(topic, exc)
        for data in self._subscriptions.conditions():
            await self._check_condition(data.topic)
        self.client.join(self)
        await nursery.start(self._pool.run)
        await self.client.beat()
        nursery.start_soon(self._rebalance)
        nursery.start_soon(self._keep_offsets)
        nursery.start_soon(self._keep_statistics)
        if self.config.needs_lock:
            nursery.start_soon(self._assignment.keep_locks)

    async def _rebalance(self) -> None:
        with self._balancing:
            await self._rebalancer.run()

    async def _check_condition(self, topic: str) -> None:
        """Raise `ResponseError` if a broker of the topic cannot filter as subscribed."""
        data = self._subscriptions.get(topic)
        route = self.client.routes.get(topic)
        if data is not None and route is not None:
            await self.client.run(check_filter(route, self.group, self.client.client_id, data))

    async def _wind_down(self, nursery: TaskGroup) -> None:
        """Let calls under way finish, then end all tasks."""
        self._balancing.cancel()
        self._assignment.stop()
        self._pool.stop()
        with anyio.move_on_after(self.config.close_wait_s) as scope:
            await self._pool.wait_idle()
        if scope.cancelled_caught:
            logger.warning(
                "group %s: %d calls of the listener are cancelled, %g s after closing began",
                self.group,
                self._pool.calls,
                self.config.close_wait_s,
            )
        nursery.cancel_scope.cancel()

    async def _leave(self) -> None:
        """Store offsets, unlock queues, and tell brokers that this member is gone."""
        with anyio.move_on_after(LEAVE_S):
            await self._assignment.close()
        await self.client.leave(self)

    def _start_soon(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(function)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await anyio.sleep(seconds)
            act()

        self._start_soon(wait)

    async def _keep_offsets(self) -> None:
        while True:
            await anyio.sleep(self.config.offset_commit_s)
            await self._assignment.persist()

    async def _keep_statistics(self) -> None:
        while True:
            await anyio.sleep(SAMPLE_S)
            self._statistics.sample(anyio.current_time())

    def _check_open(self) -> None:
        if self._nursery is None:
            raise ClientClosedError(f"consumer of group {self.group}")

    # --- what the client asks of its members -------------------------------------------------

    @property
    def group(self) -> str:
        return self.config.group

    def topics(self) -> Iterable[str]:
        return self._subscriptions.topics

    def presence(self) -> ConsumerData | None:
        return self._subscriptions.presence(self.config.consume_from.wire)

    def route_changed(self, route: TopicRoute) -> None:
        self._rebalancer.wake()

    def members_changed(self) -> None:
        self._rebalancer.wake()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._assignment.reset(topic, offsets)

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._keeper.table.offsets(topic)

    def running_info(self) -> ConsumerRunningInfo:
        return consumer_status.running_info(
            self.config,
            self._subscriptions,
            self._assignment,
            self._keeper.table.offsets(),
            self._statistics,
            nameservers=self.client.nameservers.addresses,
            started_at_ms=self._started_at_ms,
            now=self._now(),
            now_ms=system_ms(),
        )

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        return await consumer_status.consume_directly(
            self._listener, record, broker_name, config=self.config
        )


@asynccontextmanager
async def consuming(
    client: Client,
    config: PushConsumerConfig,
    subscriptions: Subscriptions,
    listener: Listener,
    *,
    tracer: Tracer | None = None,
) -> AsyncIterator[PushConsumer]:
    """Run a consumer on a client that is shared, for the length of a block."""
    keeper: OffsetKeeper
    if config.is_broadcast:
        folder = config.offset_folder or default_offset_folder()
        keeper = await LocalOffsetKeeper.open(
            local_offset_path(folder, client.lasting_id, config.group)
        )
    else:
        keeper = RemoteOffsetKeeper(client, config.group)
    consumer = PushConsumer(client, config, subscriptions, listener, keeper, tracer=tracer)
    async with consumer.running():
        yield consumer


@asynccontextmanager
async def open_push_consumer(
    loop: Loop,
    nameservers: ClientConfig | str,
    group: str,
    subscriptions: Subscriptions,
    listener: Listener,
    *,
    tracer: Tracer | None = None,
    **options: Unpack[PushConsumerOptions],
) -> AsyncIterator[PushConsumer]:
    """Run a consumer with a client of its own, for the length of a block.

    `options` are the settings of `PushConsumerConfig`. Traces are written if `tracer` is given, or
    the client's config names a topic for them.
    """
    config = PushConsumerConfig(group=group, **options)
    async with (
        traced(loop, nameservers, group, TraceRole.CONSUME, tracer) as used,
        open_client(loop, nameservers) as client,
        consuming(client, config, subscriptions, listener, tracer=used) as consumer,
    ):
        yield consumer
