"""Raw pulls: the application says which queue is read and from where, and keeps its own place.

    async with open_pull_consumer("10.0.0.5:9876", "billing") as consumer:
        for queue in await consumer.fetch_queues("Orders"):
            offset = await consumer.min_offset(queue)
            result = await consumer.pull(queue, offset)
            ...
            await consumer.update_offset(queue, result.next_offset)

Nothing happens behind the application's back but heartbeats and fresh routes. What goes wrong is
raised, and nothing is tried twice. `rmq.client.tasks.lite_pull` reads ahead, shares queues with
other members of the group and keeps places itself.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar, final

from rmq.client.core.consuming import offsets
from rmq.client.core.consuming.config import RECONSUME_TIMES_MAX
from rmq.client.core.consuming.pull_subscriptions import presence, running_info, subscription
from rmq.client.core.consuming.pulls import PullResult, pull
from rmq.client.core.consuming.results import BROKER_DECIDES_LEVEL
from rmq.client.core.consuming.send_back import send_back
from rmq.client.core.messages import check_group
from rmq.client.tasks.client import open_client
from rmq.errors import (
    ClientClosedError,
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    RefusedError,
)
from rmq.model.clock import system_ms
from rmq.remoting.bodies import SUBSCRIBE_ALL, MessageModel
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.consuming.subscription_set import Expression
    from rmq.client.core.flows import Flow
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.loop import Loop
    from rmq.model.queues import MessageQueue
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import (
        ConsumeMessageDirectlyResult,
        ConsumerData,
        ConsumerRunningInfo,
    )

T = TypeVar("T")

PULL_TIMEOUT_S: Final = 10.0
"""How long a pull that may not wait is waited for."""
SUSPEND_S: Final = 20.0
"""How long brokers may wait for messages."""
SUSPENDED_TIMEOUT_S: Final = 30.0
"""How long a pull that may wait is waited for."""


@final
class PullConsumer:
    """Use `open_pull_consumer`, or `pulling` with a client of your own, to get one."""

    def __init__(self, client: Client, group: str) -> None:
        check_group(group)
        self.group = group
        self._client = client
        self._topics: set[str] = set()
        self._started_at_ms = system_ms()
        self._is_closed = False

    # --- pulling -----------------------------------------------------------------------------

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read, as nameservers have it now."""
        self._check_open()
        queues = (await self._client.refresh_route(topic)).readable
        self._topics.add(topic)
        return queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression = SUBSCRIBE_ALL,
        *,
        max_messages: int = 32,
        timeout_s: float = PULL_TIMEOUT_S,
        suspend_s: float = 0.0,
        broker_id: int = 0,
    ) -> PullResult:
        """Pull messages of one queue from an offset on.

        The broker answers at once, or waits up to `suspend_s` for messages if there are none.
        `broker_id` names a slave to be asked instead of the master, as `suggested_broker_id` of an
        earlier result does. Raises `ClientError` for whatever goes wrong.
        """
        if offset < 0:
            raise ConfigError("offset", f"{offset} is below 0")
        if max_messages < 1:
            raise ConfigError("max_messages", f"{max_messages} is below 1")
        if not timeout_s > suspend_s >= 0:
            raise ConfigError(
                "suspend_s", f"{suspend_s:g} is not 0 or more, and below timeout_s {timeout_s:g}"
            )
        wanted = subscription(queue.topic, expression)
        return await self._read(
            queue,
            lambda: pull(
                self._client.routes,
                queue,
                group=self.group,
                subscription=wanted,
                offset=offset,
                max_messages=max_messages,
                suspend_s=suspend_s,
                sends_expression=True,
                broker_id=broker_id,
                timeout_s=timeout_s,
            ),
        )

    async def pull_waiting(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression = SUBSCRIBE_ALL,
        *,
        max_messages: int = 32,
    ) -> PullResult:
        """Pull as `pull` does, but let the broker wait up to 20 s for messages."""
        return await self.pull(
            queue,
            offset,
            expression,
            max_messages=max_messages,
            timeout_s=SUSPENDED_TIMEOUT_S,
            suspend_s=SUSPEND_S,
        )

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = BROKER_DECIDES_LEVEL,
        *,
        reconsume_max: int = RECONSUME_TIMES_MAX,
    ) -> None:
        """Have a message delivered again later, from the retry topic of the group.

        Delay levels are those of `Later`: 0 lets the broker decide, -1 makes it a dead letter.
        """
        await self._run(
            message.queue,
            send_back(
                self._client.routes,
                message,
                group=self.group,
                delay_level=delay_level,
                reconsume_max=reconsume_max,
                now_ms=system_ms(),
            ),
        )

    # --- offsets -----------------------------------------------------------------------------

    async def fetch_offset(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue; None: it was never there."""
        return await self._read(
            queue, lambda: offsets.fetch_offset(self._client.routes, self.group, queue)
        )

    async def update_offset(
        self, queue: MessageQueue, offset: int, *, is_oneway: bool = False
    ) -> None:
        """Store where the group goes on in a queue; return when the broker has it."""
        if offset < 0:
            raise ConfigError("offset", f"{offset} is below 0")
        await self._run(
            queue,
            offsets.commit_offset(
                self._client.routes, self.group, queue, offset, is_oneway=is_oneway
            ),
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that can still be read."""
        return await self._read(queue, lambda: offsets.min_offset(self._client.routes, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return await self._read(queue, lambda: offsets.max_offset(self._client.routes, queue))

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the offset of the message that was stored nearest to a time."""
        return await self._read(
            queue, lambda: offsets.offset_at(self._client.routes, queue, time_ms)
        )

    async def first_stored_at_ms(self, queue: MessageQueue) -> int | None:
        """Return when the first message that can still be read was stored; None: there is none."""
        return await self._read(
            queue, lambda: offsets.first_stored_at_ms(self._client.routes, queue)
        )

    # --- inside ------------------------------------------------------------------------------

    async def _read(self, queue: MessageQueue, flow: Callable[[], Flow[T]]) -> T:
        """Run a flow that only reads; if its broker is gone, once more with a new route."""
        try:
            return await self._run(queue, flow())
        except (ConnectFailedError, ConnectionLostError) as exc:
            try:
                await self._client.refresh_route(queue.topic)
            except ClientError:
                raise exc from None
            return await self._run(queue, flow())

    async def _run(self, queue: MessageQueue, flow: Flow[T]) -> T:
        """Run a flow about a queue, with the route of its topic known."""
        try:
            self._check_open()
            await self._client.route(queue.topic)
            self._topics.add(queue.topic)
            return await self._client.run(flow)
        finally:
            flow.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError(f"pull consumer of group {self.group}")

    def close(self) -> None:
        """Refuse all further calls."""
        self._is_closed = True

    # --- as a member of the client -----------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._topics

    def presence(self) -> ConsumerData:
        return presence(self.group, MessageModel.CLUSTERING, ())

    def route_changed(self, route: TopicRoute) -> None:
        """Nothing to do: each call uses the route that is known then."""

    def members_changed(self) -> None:
        """Nothing to do: queues are not shared within the group."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Nothing to do: the application keeps its own offsets."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        return running_info(self._client.config.addresses, self._started_at_ms, ())

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"group {self.group} pulls: it has no listener to consume it"
        )


@asynccontextmanager
async def pulling(client: Client, group: str) -> AsyncIterator[PullConsumer]:
    """Pull with a shared client for the length of a block."""
    consumer = PullConsumer(client, group)
    client.join(consumer)
    try:
        yield consumer
    finally:
        consumer.close()
        await client.leave(consumer)


@asynccontextmanager
async def open_pull_consumer(
    loop: Loop, nameservers: str | ClientConfig, group: str
) -> AsyncIterator[PullConsumer]:
    """Run a pull consumer with a client of its own for the length of a block."""
    check_group(group)
    async with (
        open_client(loop, nameservers, is_stream=True) as client,
        pulling(client, group) as it,
    ):
        yield it
