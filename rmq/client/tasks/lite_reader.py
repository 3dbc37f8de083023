"""What a lite pull consumer reads: its queues, what is buffered of them, and how far it has come.

The consumer's face is `rmq.client.tasks.lite_pull`; who says which queues it reads, itself or its
group, is `rmq.client.tasks.lite_member`. Both use this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

import anyio

from rmq.client.core.consuming.buffer import BufferLimits, PullBuffer
from rmq.client.core.consuming.config import default_offset_folder
from rmq.client.core.consuming.offset_file import local_offset_path
from rmq.client.core.consuming.offsets import commit_offset, fetch_offset, first_start
from rmq.client.tasks.offset_keeping import LocalOffsetKeeper, RemoteOffsetKeeper
from rmq.client.tasks.pull_tasks import PullTasks
from rmq.errors import BrokersFailedError, ClientError
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anyio.abc import TaskGroup

    from rmq.client.core.consuming.config import LitePullConfig
    from rmq.client.core.consuming.pull_subscriptions import PullSubscriptions
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.offset_keeping import OffsetKeeper
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData


class Change(NamedTuple):
    """What has changed about the queues of a consumer, or of a topic."""

    topic: str
    queues: tuple[MessageQueue, ...]
    """All of them, as they are now."""
    added: tuple[MessageQueue, ...]
    removed: tuple[MessageQueue, ...]


class LitePullStatistics(NamedTuple):
    """State of a lite pull consumer."""

    queues: int
    buffered_messages: int
    buffered_bytes: int
    failures: dict[MessageQueue, ClientError]
    """Queues that cannot be read now, and why."""


@final
class LiteReader:
    """The queues of one consumer."""

    def __init__(
        self, client: Client, config: LitePullConfig, subscriptions: PullSubscriptions
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._start_ms = config.start_ms(system_ms())
        self.buffer: PullBuffer[ReceivedMessage] = PullBuffer(
            BufferLimits(
                config.messages_max,
                config.queue_messages_max,
                config.queue_bytes_max,
                config.queue_span_max,
            )
        )
        self.offsets: OffsetKeeper = RemoteOffsetKeeper(client, config.group)
        self._tasks = PullTasks(client, config, self.buffer, self)
        self._nursery: TaskGroup | None = None
        self._arrival: anyio.Event | None = None

    async def open(self) -> None:
        """Read what is needed before anything else; raise `StoreError`."""
        if self._config.is_broadcast:
            folder = self._config.offset_folder or default_offset_folder()
            self.offsets = await LocalOffsetKeeper.open(
                local_offset_path(folder, self._client.lasting_id, self._config.group)
            )

    def start(self, nursery: TaskGroup) -> None:
        """Pull, and commit from time to time, until the nursery is cancelled."""
        self._nursery = nursery
        if self._config.commits_itself:
            nursery.start_soon(self._keep_committing)

    def close(self) -> None:
        """Take no more queues, and wake the task that waits for messages."""
        self._nursery = None
        self.arrived()

    async def _keep_committing(self) -> None:
        while True:
            await anyio.sleep(self._config.commit_interval_s)
            await self.commit_consumed()

    # --- queues ------------------------------------------------------------------------------

    async def set_queues(self, topic: str | None, wanted: Iterable[MessageQueue]) -> list[Change]:
        """Read these queues of a topic (of all topics, if it is None) and no others of it.

        What was consumed of queues that are given up is committed. A closed consumer takes none.
        """
        if self._nursery is None:
            return []
        wanted = set(wanted)
        known = {q for q in self.buffer.queues if topic is None or q.topic == topic}
        removed, added = known - wanted, wanted - known
        consumed = {
            queue: offset
            for queue in removed
            if (offset := self.buffer.consumed(queue)) is not None
        }
        for queue in removed:
            self.buffer.drop(queue)
        for queue in sorted(added):
            self.buffer.add(queue)
        self._tasks.update(self._nursery)
        self._tasks.room()
        if consumed and self._config.commits_itself:
            await self._tell(consumed)
        for queue in removed:
            if queue not in self.buffer:
                self.offsets.table.forget(queue)
        topics = sorted({queue.topic for queue in added | removed})
        return [_change(name, wanted, added, removed) for name in topics]

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Go on somewhere else; raise `NotAssignedError`."""
        self.buffer.seek(queue, offset)
        self._tasks.moved(queue)

    def pull_again(self, topic: str) -> None:
        """Something else is wanted of a topic than before."""
        for queue in self.buffer.queues:
            if queue.topic == topic:
                self.buffer.pull_again(queue)
                self._tasks.moved(queue)

    def pause(self, queue: MessageQueue) -> None:
        self.buffer.pause(queue)

    def resume(self, queue: MessageQueue) -> None:
        self.buffer.resume(queue)
        self._tasks.room()
        self.arrived()

    def statistics(self) -> LitePullStatistics:
        return LitePullStatistics(*self.buffer.statistics(), dict(self._tasks.failures))

    # --- messages ----------------------------------------------------------------------------

    def take(self, count: int) -> list[ReceivedMessage]:
        """Take what is there, and make room for more."""
        messages = self.buffer.take(count)
        if messages:
            self._tasks.room()
        return messages

    def take_one(self) -> ReceivedMessage | None:
        """Take one message if there is one, and make room for more."""
        message = self.buffer.take_one()
        if message is not None:
            self._tasks.room()
        return message

    async def wait_arrived(self) -> None:
        """Wait until there may be something to take, or the consumer was closed."""
        if self._arrival is None:
            self._arrival = anyio.Event()
        await self._arrival.wait()

    def arrived(self) -> None:
        """Wake the task that waits for messages."""
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None

    # --- offsets -----------------------------------------------------------------------------

    def subscription_of(self, topic: str) -> SubscriptionData:
        return self._subscriptions.of(topic)

    async def start_of(self, queue: MessageQueue) -> int:
        """Return where the group goes on in a queue, or starts; raise `ClientError`."""
        kept = await self.offsets.load(queue)
        if kept is not None:
            return kept
        return await self._client.run(
            first_start(self._client.routes, queue, self._config.consume_from, self._start_ms)
        )

    async def position(self, queue: MessageQueue) -> int:
        """Return which offset is handed out next, found out if it is not known yet."""
        while (position := self.buffer.position(queue)) is None:
            turn = self.buffer.turn(queue)
            self.buffer.start(queue, await self.start_of(queue), turn)
        return position

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue, wherever that is kept."""
        if not self._config.is_broadcast:
            return await self._client.run(
                fetch_offset(self._client.routes, self._config.group, queue)
            )
        known = self.offsets.table.get(queue)
        return await self.offsets.load(queue) if known is None else known

    async def commit_consumed(self) -> None:
        """Commit the consumed offsets of all queues; failures are logged."""
        await self._tell(dict(self.buffer.all_consumed()))

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Have brokers store offsets, and wait until they have; raise `BrokersFailedError`."""
        if self._config.is_broadcast:
            await self._tell(offsets)
            return
        failures: list[tuple[str, ClientError]] = []
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue, offset in offsets.items():
            self.offsets.table.reset(queue, offset)
            by_broker.setdefault(queue.broker_name, []).append(queue)

        async def commit_some(name: str, queues: list[MessageQueue]) -> None:
            try:
                for queue in queues:
                    await self._client.run(
                        commit_offset(
                            self._client.routes,
                            self._config.group,
                            queue,
                            offsets[queue],
                            is_oneway=False,
                        )
                    )
            except ClientError as exc:
                failures.append((name, exc))

        async with anyio.create_task_group() as nursery:
            for name, queues in by_broker.items():
                nursery.start_soon(commit_some, name, queues)
        if failures:
            failed = {name for name, _ in failures}
            raise BrokersFailedError(
                f"commit of group {self._config.group}",
                sorted(failures, key=lambda failure: failure[0]),
                [name for name in by_broker if name not in failed],
            )

    async def _tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets (also lower ones) without waiting for acknowledgement."""
        if offsets:
            for queue, offset in offsets.items():
                self.offsets.table.reset(queue, offset)
            await self.offsets.persist(offsets)


def _change(
    topic: str,
    queues: Iterable[MessageQueue],
    added: Iterable[MessageQueue],
    removed: Iterable[MessageQueue],
) -> Change:
    def of_topic(some: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        return tuple(sorted(queue for queue in some if queue.topic == topic))

    return Change(topic, of_topic(queues), of_topic(added), of_topic(removed))
