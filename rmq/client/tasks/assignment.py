"""The queues that a push consumer has now: how they are begun, moved and given up.

A queue is begun with the offset that the group stored, is pulled by a task of its own, and is given
up when another member gets it: then nothing more is given to the listener, and the offset is
stored. Queues that need a lock are given up only when the call under way is over, see
`rmq.client.tasks.services`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from rmq.client.core.consuming.group import lock_queues, unlock_queues
from rmq.client.core.consuming.offsets import first_start
from rmq.client.core.consuming.process_queue import ProcessQueue
from rmq.client.core.consuming.turns import QueueTurn
from rmq.client.tasks.services import FIRST_RENEWAL_S, RELOCK_S
from rmq.errors import ClientError
from rmq.model.names import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping

    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.listener_pool import ListenerPool
    from rmq.client.tasks.offset_keeping import OffsetKeeper
    from rmq.client.tasks.pull_loop import Pulling
    from rmq.model.queues import MessageQueue

ROOM_CHECK_S: Final = 10.0
"""A task that waits for room checks again after this time: limits may have changed."""


@final
class AssignedQueue:
    """A queue from the time it is taken over to the time it is given up or started again."""

    __slots__ = (
        "_room",
        "broker_id",
        "bytes_max",
        "is_leaving",
        "is_moving",
        "is_relocking",
        "is_suspended",
        "locked_at",
        "messages_max",
        "process",
        "pulling",
        "queue",
        "span_max",
        "turn",
    )

    def __init__(
        self,
        queue: MessageQueue,
        start_offset: int,
        now: float,
        *,
        messages_max: int,
        bytes_max: int,
        span_max: int | None,
        calls_max: int | None,
    ) -> None:
        self.queue = queue
        self.process = ProcessQueue(queue, start_offset, now)
        self.turn: QueueTurn[AssignedQueue] = QueueTurn(self, calls_max=calls_max)
        self.pulling = anyio.CancelScope()
        """Around the task that pulls it."""
        self.broker_id = MASTER_ID
        """Which broker of the name to pull from."""
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.span_max = span_max
        self.is_leaving = False
        """It is being given up: no further call is begun."""
        self.is_moving = False
        """It has a gap. What was pulled before is finished first; then it is started again."""
        self.is_suspended = False
        """The listener failed, and is not called for a while. Only when consumed in order."""
        self.is_relocking = False
        """Its lock is lost, and a task renews it. Only when consumed in order."""
        self.locked_at: float | None = None
        """When its lock was asked for that counts. Only when consumed in order."""
        self._room: anyio.Event | None = None

    def __repr__(self) -> str:
        state = "dropped" if self.process.is_dropped else "leaving" if self.is_leaving else "held"
        return f"<AssignedQueue {self.queue} {state}, {self.process.count} messages>"

    def lock(self, now: float) -> None:
        """Note that the broker has confirmed the lock of the queue."""
        self.locked_at = now
        self.process.lock(now)

    def unlock(self) -> None:
        self.locked_at = None
        self.process.unlock()

    def blocked_by(self) -> str | None:
        """Return why no more should be pulled until messages are finished; None: go on."""
        return self.process.blocked_by(messages_max=self.messages_max, bytes_max=self.bytes_max)

    @property
    def is_spread_out(self) -> bool:
        """Whether unfinished messages are so far apart that pulling should slow down.

        A crash now would repeat all that lies between them.
        """
        return self.span_max is not None and self.process.span > self.span_max

    async def wait_room(self) -> None:
        """Wait until messages were finished, or for a while."""
        self._room = anyio.Event()
        with anyio.move_on_after(ROOM_CHECK_S):
            await self._room.wait()
        self._room = None

    def made_room(self) -> None:
        """Messages were finished; tasks that wait for that go on if there are few enough now."""
        if self._room is not None and self.blocked_by() is None:
            self._room.set()


logger = logging.getLogger(__name__)

RESET_WAIT_S: Final = 10.0
"""How long calls of a queue that an operator moves may take before it goes on without them."""
MOVED_CHECK_S: Final = 0.2
"""How often to check whether all messages before a gap are finished."""
PERSIST_S_MAX: Final = 5.0
"""How long storing the offsets of queues that are given up may take."""


@final
class Assignment:
    """The queues of one consumer."""

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        keeper: OffsetKeeper,
        *,
        started_at_ms: int,
        start_soon: Callable[[Callable[[], Coroutine[Any, Any, object]]], None],
    ) -> None:
        """`start_soon` starts a task that ends with the consumer."""
        self._client = client
        self._config = config
        self._keeper = keeper
        self._needs_lock = config.needs_lock
        self._start_ms = config.start_ms(started_at_ms)
        self._start_soon = start_soon
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._locking: set[MessageQueue] = set()
        """Queues that may be locked and are not begun yet."""
        self._is_stopping = False
        self.pool: ListenerPool
        self.pulling: Pulling

    def __iter__(self) -> Iterator[AssignedQueue]:
        return iter(tuple(self._queues.values()))

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(sorted(self._queues))

    def may_store(self, assigned: AssignedQueue) -> bool:
        """Tell whether a queue's offset is this consumer's to store.

        The member that has the lock of a queue may have come further.
        """
        return not self._needs_lock or assigned.process.is_locked(anyio.current_time())

    async def persist(self, *, is_waited_for: bool = False) -> None:
        """Store how far all queues were consumed."""
        queues = [
            assigned.queue
            for assigned in self
            if not assigned.process.is_dropped and self.may_store(assigned)
        ]
        await self._keeper.persist(queues, is_waited_for=is_waited_for)

    def of_topic(self, topic: str) -> list[AssignedQueue]:
        return [assigned for assigned in self if assigned.queue.topic == topic]

    # --- taking queues over ------------------------------------------------------------------

    async def start_offset(self, queue: MessageQueue) -> int:
        """Return where to go on in a queue, or to start; raise `ClientError`."""
        stored = await self._keeper.load(queue)
        if stored is not None:
            return stored
        config = self._config
        return await self._client.run(
            first_start(self._client.routes, queue, config.consume_from, self._start_ms)
        )

    async def lock(self, queue: MessageQueue) -> float | None:
        """Lock a queue; return when, or None if it is another member's or cannot be."""
        now = anyio.current_time()
        if queue not in self._queues:
            self._locking.add(queue)
        locked = await self._client.run(
            lock_queues(self._client.routes, self._config.group, self._client.client_id, (queue,))
        )
        if locked.get(queue):
            return now
        if queue in locked:
            self._locking.discard(queue)
        return None

    def begin(self, queue: MessageQueue, offset: int, locked_at: float | None = None) -> None:
        """Consume a queue from an offset on."""
        if self._is_stopping:
            return
        config = self._config
        assigned = AssignedQueue(
            queue,
            offset,
            anyio.current_time(),
            messages_max=config.queue_messages_max,
            bytes_max=config.queue_bytes_max,
            span_max=None if config.is_orderly else config.queue_span_max,
            calls_max=1 if config.is_orderly else None,
        )
        if locked_at is not None:
            assigned.lock(locked_at)
        self._queues[queue] = assigned
        self._locking.discard(queue)
        self._share_limits(queue.topic)
        self.pool.add(assigned.turn)
        self._start_soon(partial(self.pulling.run, assigned))

    def _share_limits(self, topic: str) -> None:
        queues = self.of_topic(topic)
        for assigned in queues:
            limits = self._config.queue_limits(len(queues))
            assigned.messages_max, assigned.bytes_max = limits

    # --- giving queues up --------------------------------------------------------------------

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Consume these no longer, and store how far they were consumed."""
        done: list[AssignedQueue] = []
        for queue in queues:
            assigned = self._queues.get(queue)
            if assigned is None or assigned.is_leaving:
                continue
            if self._needs_lock and assigned.turn.calls:
                assigned.is_leaving = True
                assigned.pulling.cancel()
                assigned.process.failed_unlocks += 1
                self._start_soon(partial(self._leave, assigned))
            else:
                self._drop(assigned)
                done.append(assigned)
        await self._release(done)

    async def _leave(self, assigned: AssignedQueue) -> None:
        """Give a queue up once the call under way is over."""
        await self.pool.wait_queue_idle(assigned.turn)
        self._drop(assigned)
        await self._release([assigned])

    def _drop(self, assigned: AssignedQueue) -> None:
        assigned.is_leaving = True
        assigned.process.drop()
        assigned.pulling.cancel()
        self.pool.remove(assigned.turn)

    async def _release(self, dropped: list[AssignedQueue]) -> None:
        if not dropped:
            return
        queues = [assigned.queue for assigned in dropped]
        storable = [assigned.queue for assigned in dropped if self.may_store(assigned)]
        with anyio.move_on_after(PERSIST_S_MAX):
            # Who locks a queue next asks for its offset at once.
            await self._keeper.persist(storable, is_waited_for=self._needs_lock)
        for queue in queues:
            self._keeper.table.forget(queue)
        await self._unlock(queues, waits=False)
        for assigned in dropped:
            if self._queues.get(assigned.queue) is assigned:
                del self._queues[assigned.queue]
            assigned.process.clear()
            self._share_limits(assigned.queue.topic)

    async def _unlock(self, queues: Collection[MessageQueue], *, waits: bool) -> None:
        if self._needs_lock and queues:
            client, group = self._client, self._config.group
            await client.run(
                unlock_queues(client.routes, group, client.client_id, queues, waits=waits)
            )

    def stop(self) -> None:
        """Pull no more, and begin no further queue."""
        self._is_stopping = True
        for assigned in self:
            assigned.pulling.cancel()

    async def close(self) -> None:
        """Give up everything, for the end of the consumer: store offsets, then unlock."""
        for assigned in self:
            self._drop(assigned)
        storable = [assigned.queue for assigned in self if self.may_store(assigned)]
        await self._keeper.persist(storable, is_waited_for=True)
        await self._unlock(self._locking.union(self._queues), waits=True)
        self._queues.clear()

    # --- moving in a queue -------------------------------------------------------------------

    def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moves the group: go on at these offsets, whatever was pulled."""
        for assigned in self.of_topic(topic):
            offset = offsets.get(assigned.queue, -1)
            if offset < 0 or assigned.is_leaving:
                continue
            logger.info("%s is moved to offset %d by an operator", assigned.queue, offset)
            assigned.process.drop()
            assigned.process.clear()
            assigned.pulling.cancel()
            self._keeper.table.reset(assigned.queue, offset)
            self._start_soon(partial(self._reset, assigned, offset))

    async def _reset(self, assigned: AssignedQueue, offset: int) -> None:
        with anyio.move_on_after(PERSIST_S_MAX):
            await self._keeper.persist((assigned.queue,), is_waited_for=True)
        with anyio.move_on_after(RESET_WAIT_S):
            await self.pool.wait_queue_idle(assigned.turn)
        if self._config.is_orderly:
            await self.pool.wait_queue_idle(assigned.turn)
        self._restart(assigned, offset)

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """The queue has no message where the next one was expected: go on at `offset`.

        Messages before the gap are finished first, so that none is lost.
        """

        assigned.is_moving = True

        async def move() -> None:
            process = assigned.process
            while process.count and not process.is_dropped:
                process.last_pull_at = anyio.current_time()
                await anyio.sleep(MOVED_CHECK_S)
            if not process.is_dropped and not assigned.is_leaving:
                self._keeper.table.reset(assigned.queue, offset)
                await self._keeper.persist((assigned.queue,))
                self._restart(assigned, offset)

        self._start_soon(move)

    def _restart(
        self, assigned: AssignedQueue, offset: int, locked_at: float | None = None
    ) -> None:
        """Forget what was pulled of a queue and go on at `offset`, if it is still held."""
        queue = assigned.queue
        if self._queues.get(queue) is not assigned or assigned.is_leaving:
            return
        if locked_at is None:
            locked_at = assigned.locked_at
        self._drop(assigned)
        assigned.process.clear()
        self.begin(queue, offset, locked_at)

    # --- locks -------------------------------------------------------------------------------

    def relock(self, assigned: AssignedQueue) -> None:
        """The lock of a queue is lost: start it again when it is locked again."""
        if not assigned.is_relocking:
            assigned.is_relocking = True
            logger.warning("%s is not locked any longer, and consumed no further", assigned.queue)
            self._start_soon(partial(self._relock, assigned))

    async def _relock(self, assigned: AssignedQueue) -> None:
        queue = assigned.queue
        while self._queues.get(queue) is assigned and not assigned.process.is_dropped:
            locked_at = await self.lock(queue)
            if locked_at is not None and not assigned.turn.calls:
                try:
                    offset = await self._offset_after_lock(queue)
                except ClientError as exc:
                    logger.warning("cannot get the offset of %s: %s", queue, exc)
                else:
                    self._restart(assigned, offset, locked_at)
                    return
            await anyio.sleep(RELOCK_S)

    async def _offset_after_lock(self, queue: MessageQueue) -> int:
        """Return where to go on in a queue that another member may have had for a while."""
        own = self._keeper.table.get(queue)
        offset = await self.start_offset(queue)
        if own is not None and own > offset:
            # This consumer came further, and could not say so.
            offset = own
            self._keeper.table.reset(queue, own)
        return offset

    async def keep_locks(self) -> None:
        """Renew the locks of all queues, again and again."""
        await anyio.sleep(FIRST_RENEWAL_S)
        while True:
            await self._renew_locks()
            await anyio.sleep(self._config.lock_renewal_s)

    async def _renew_locks(self) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self.queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        # A broker that does not answer holds up no locks but its own.
        async with anyio.create_task_group() as nursery:
            for queues in by_broker.values():
                nursery.start_soon(self._renew, queues)

    async def _renew(self, queues: list[MessageQueue]) -> None:
        client, now = self._client, anyio.current_time()
        decided = await client.run(
            lock_queues(client.routes, self._config.group, client.client_id, queues)
        )
        for queue, is_ours in decided.items():
            assigned = self._queues.get(queue)
            if assigned is None or assigned.process.is_dropped:
                continue
            if not is_ours:
                assigned.unlock()
            elif assigned.process.is_locked(now):
                assigned.lock(now)
            elif not assigned.turn.calls:
                self.relock(assigned)
