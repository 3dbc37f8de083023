"""A lite pull consumer among the members of its group: which queues are its own.

It subscribes to topics, and every 20 s, or when brokers say that members came or went, works out
its share of their queues. Or its application assigns queues, which are not shared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias, final

import anyio

from rmq.client.core.consuming.group import check_filter, group_members
from rmq.client.core.consuming.pull_subscriptions import presence, running_info, subscription
from rmq.client.tasks.lite_reader import Change
from rmq.client.tasks.rebalance import share_of
from rmq.errors import ClientError, ConfigError, RefusedError
from rmq.model.clock import system_ms
from rmq.remoting.bodies import ProcessQueueInfo
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import is_tag_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rmq.client.core.consuming.config import LitePullConfig
    from rmq.client.core.consuming.pull_subscriptions import PullSubscriptions
    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.lite_reader import LiteReader
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import (
        ConsumeMessageDirectlyResult,
        ConsumerData,
        ConsumerRunningInfo,
    )

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""When to work out the share again if that failed, or brokers do not know us yet."""

QueueListener: TypeAlias = "Callable[[Change], None]"
"""Is told when queues have changed. It is called in the event loop and must not block."""


@final
class LiteMember:
    """What the shared client and the brokers see of a consumer."""

    def __init__(
        self,
        client: Client,
        config: LitePullConfig,
        reader: LiteReader,
        subscriptions: PullSubscriptions,
    ) -> None:
        self.group = config.group
        self._client = client
        self._config = config
        self._reader = reader
        self._subscriptions = subscriptions
        self._listeners: dict[str, QueueListener] = {}
        self._watched: dict[str, tuple[tuple[MessageQueue, ...], QueueListener]] = {}
        self._started_at_ms = system_ms()
        self._balancing = anyio.Lock()
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Keep the share up to date until cancelled."""
        pause_s = self._config.rebalance_s
        while True:
            with anyio.move_on_after(pause_s):
                await self._wanted.wait()
            self._wanted = anyio.Event()
            pause_s = self._config.rebalance_s if await self._balance_all() else RETRY_S

    # --- what the application wants ----------------------------------------------------------

    async def subscribe(
        self, topic: str, expression: Expression, listener: QueueListener | None
    ) -> None:
        wanted = subscription(topic, expression)
        self._subscriptions.check_subscribe()
        route = await self._client.route(topic)
        if not is_tag_type(wanted.expression_type):
            await self._client.run(check_filter(route, self.group, self._client.client_id, wanted))
        async with self._balancing:
            if not self._subscriptions.wants_same(topic, expression):
                self._subscriptions.subscribe(topic, expression, system_ms())
                self._reader.pull_again(topic)
            if listener is not None:
                self._listeners[topic] = listener
            # Brokers have to know of us before they say who shares the queues.
            await self._client.beat()
            if not await self._balance(topic):
                self._wanted.set()

    async def unsubscribe(self, topic: str) -> None:
        async with self._balancing:
            if self._subscriptions.unsubscribe(topic):
                self._listeners.pop(topic, None)
                self._client.beat_soon()
                await self._reader.set_queues(topic, ())

    async def assign(
        self, queues: Sequence[MessageQueue], expressions: Mapping[str, Expression]
    ) -> None:
        topics = {queue.topic for queue in queues}
        for topic in sorted(topics):
            readable = (await self._client.route(topic)).readable
            for queue in queues:
                if queue.topic == topic and queue not in readable:
                    raise ConfigError("queues", f"{topic} has no {queue}")
        async with self._balancing:
            before = {topic: self._subscriptions.of(topic) for topic in topics}
            self._subscriptions.assign(expressions)
            for topic in topics:
                if self._subscriptions.of(topic) != before[topic]:
                    self._reader.pull_again(topic)
            await self._reader.set_queues(None, queues)

    async def watch(self, topic: str, listener: QueueListener) -> tuple[MessageQueue, ...]:
        route = await self._client.route(topic)
        self._watched[topic] = (route.readable, listener)
        return route.readable

    # --- shares ------------------------------------------------------------------------------

    async def _balance_all(self) -> bool:
        """Work out all shares; tell whether that went well."""
        async with self._balancing:
            results = [await self._balance(topic) for topic in self._subscriptions.topics]
        return all(results)

    async def _balance(self, topic: str) -> bool:
        try:
            share, is_known = await self._share(topic)
        except ClientError as exc:
            logger.warning(
                "group %s: cannot share out the queues of %s, keeping the current ones: %s",
                self.group,
                topic,
                exc,
            )
            return False
        if share is not None:
            for change in await self._reader.set_queues(topic, share):
                self._tell(self._listeners.get(topic), change)
        return is_known

    async def _share(self, topic: str) -> tuple[Collection[MessageQueue] | None, bool]:
        """Return this member's queues of a topic (None if unknown), and whether brokers know it."""
        route = await self._client.route(topic)
        if self._config.is_broadcast:
            return route.readable, True
        members = await self._client.run(group_members(route, self.group))
        is_known = members is not None and self._client.client_id in members
        if not is_known:
            self._client.beat_soon()
        if members is None:
            return None, False
        share = share_of(
            self._config.strategy, self.group, self._client.client_id, route.readable, members
        )
        return share, is_known

    def _tell(self, listener: QueueListener | None, change: Change) -> None:
        if listener is None:
            return
        try:
            listener(change)
        except Exception:
            logger.exception("group %s: the queue listener raised", self.group)

    # --- as a member of the client -----------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return {
            *self._subscriptions.topics,
            *self._watched,
            *(queue.topic for queue in self._reader.buffer.queues),
        }

    def presence(self) -> ConsumerData:
        return presence(self.group, self._config.message_model, self._subscriptions.told)

    def route_changed(self, route: TopicRoute) -> None:
        if route.topic in self._subscriptions.topics:
            self._wanted.set()
        watched = self._watched.get(route.topic)
        if watched is None or set(watched[0]) == set(route.readable):
            return
        before, listener = watched
        self._watched[route.topic] = (route.readable, listener)
        change = Change(
            route.topic,
            route.readable,
            tuple(queue for queue in route.readable if queue not in before),
            tuple(queue for queue in before if queue not in route.readable),
        )
        self._tell(listener, change)

    def members_changed(self) -> None:
        self._wanted.set()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue.topic == topic and queue in self._reader.buffer and offset >= 0:
                logger.info("group %s: an operator moved %s to %d", self.group, queue, offset)
                self._reader.move(queue, offset)

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {q: offset for q, offset in self._reader.buffer.all_consumed() if q.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        buffer = self._reader.buffer
        queues = {
            queue: ProcessQueueInfo(
                commit_offset=buffer.consumed(queue) or 0,
                cached_msg_min_offset=buffer.position(queue) or 0,
                cached_msg_count=buffer.buffered(queue),
            )
            for queue in buffer.queues
        }
        return running_info(
            self._client.config.addresses,
            self._started_at_ms,
            self._subscriptions.told,
            queues,
        )

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"group {self.group} pulls: it has no listener to consume it"
        )
