"""What happens to messages before and after the listener has them.

`ConcurrentService`, for messages whose order does not matter: many calls of a queue run at once and
end in any order. What is stored as the group's offset is the smallest one that is not finished.
Failed messages are sent back, one by one; what cannot be sent back stays here and is given to the
listener again after a while. Members of a group that each get all messages send nothing back: for
them a failed message is lost, as in 4.9.8.

`OrderlyService`, for messages whose order matters: one call of a queue runs at a time. If it fails,
the queue pauses and the same messages come again, before all others; after as many rounds as are
allowed they are dead letters. What members of a group share is consumed only while the queue is
locked at its broker:

- A lock is renewed every 20 s and counts for 30 s here, while brokers keep it for 60 s: a consumer
  that is cut off stops before another may begin.
- A queue whose lock was lost, even if only by this clock, is started again once it is locked again:
  another member may have consumed what is buffered here.
- A queue that is given up is unlocked when the call under way is over and its offset is stored, so
  the next member goes on exactly there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.client.core.consuming.send_back import BROKER_DECIDES, resend, send_back
from rmq.errors import ClientError
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rmq.client.core.consuming.config import PushConsumerConfig
    from rmq.client.core.consuming.offset_store import OffsetTable
    from rmq.client.core.consuming.results import Outcome
    from rmq.client.core.consuming.turns import QueueTurn
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.tasks.assignment import AssignedQueue
    from rmq.client.tasks.client import Client
    from rmq.client.tasks.listener_pool import ConsumeService


def consume_service(
    config: PushConsumerConfig,
    offsets: OffsetTable,
    returning: Returning,
    *,
    relock: Callable[[AssignedQueue], None],
    offer: Callable[[QueueTurn[AssignedQueue]], None],
    after: Callable[[float, Callable[[], None]], None],
) -> ConsumeService:
    """Return the service of a consumer. See the two classes for what they are given."""
    if config.is_orderly:
        return OrderlyService(
            config,
            offsets,
            give_up=returning.give_up,
            relock=relock if config.needs_lock else None,
            offer=offer,
            after=after,
        )
    return ConcurrentService(
        config,
        offsets,
        send_back=None if config.is_broadcast else returning.later,
        offer=offer,
        after=after,
    )


logger = logging.getLogger(__name__)

AGAIN_S: Final = 5.0
"""When messages that could not be sent back are given to the listener again."""


def _finish(
    assigned: AssignedQueue, messages: Sequence[ReceivedMessage], offsets: OffsetTable
) -> None:
    """Count messages as consumed."""
    process = assigned.process
    offset = process.remove(messages)
    if not process.is_dropped:
        offsets.update(assigned.queue, offset)
        assigned.made_room()


@final
class ConcurrentService:
    """Applies the outcomes of listener calls that may run at the same time."""

    def __init__(
        self,
        config: PushConsumerConfig,
        offsets: OffsetTable,
        *,
        send_back: Callable[[ReceivedMessage, int], Awaitable[None]] | None,
        offer: Callable[[QueueTurn[AssignedQueue]], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`send_back` has a message delivered again after a delay level, and raises `ClientError`;
        None: nothing is sent back. `offer` gives a queue its turn. `after` calls a function after
        some seconds.
        """
        self._group = config.group
        self._batch_max = config.batch_messages_max
        self._offsets = offsets
        self._send_back = send_back
        self._offer = offer
        self._after = after

    def take(self, assigned: AssignedQueue, now: float) -> list[ReceivedMessage]:
        return assigned.process.take(self._batch_max, now)

    def succeeded(self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        _finish(assigned, messages, self._offsets)

    async def failed(
        self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> None:
        if assigned.process.is_dropped:
            # The member that has the queue now gets them again: they are not stored as finished.
            return
        if self._send_back is None:
            logger.warning(
                "group %s: %d messages of %s failed and are given up: broadcasts are not retried",
                self._group,
                len(messages),
                assigned.queue,
            )
            self.succeeded(assigned, messages)
            return
        for number, message in enumerate(messages):
            try:
                await self._send_back(message, outcome.delay_level)
            except ClientError as exc:
                # The others would fail as well, each after its time.
                logger.warning(
                    "group %s: %r could not be sent back, %d messages are tried again in %g s: %s",
                    self._group,
                    message,
                    len(messages) - number,
                    AGAIN_S,
                    exc,
                )
                self._keep(assigned, messages[number:])
                return
            self.succeeded(assigned, (message,))

    def _keep(self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages consumed here once more, after a while."""

        def again() -> None:
            if not assigned.process.is_dropped:
                assigned.process.give_back(messages)
                self._offer(assigned.turn)

        for message in messages:
            message.reconsume_times += 1
        self._after(AGAIN_S, again)


FIRST_RENEWAL_S: Final = 1.0
RELOCK_S: Final = 3.0
"""How long a lock that another member has is left alone before it is asked for again."""


@final
class OrderlyService:
    """Applies the outcomes of calls of a listener that gets each queue's messages in order."""

    def __init__(
        self,
        config: PushConsumerConfig,
        offsets: OffsetTable,
        *,
        give_up: Callable[[ReceivedMessage], Awaitable[None]],
        relock: Callable[[AssignedQueue], None] | None,
        offer: Callable[[QueueTurn[AssignedQueue]], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`give_up` makes a message a dead
        letter, and raises `ClientError`. `relock` is told of queues that are not locked; None:
        queues need no lock. `offer` gives a queue its turn. `after` calls a function after some
        seconds.
        """
        self._group = config.group
        self._batch_max = config.batch_messages_max
        self._retries_max = config.retries_max
        self._suspend_s = config.suspend_queue_s
        self._offsets = offsets
        self._give_up = give_up
        self._relock = relock
        self._offer = offer
        self._after = after

    def take(self, assigned: AssignedQueue, now: float) -> list[ReceivedMessage]:
        process = assigned.process
        if assigned.is_leaving or assigned.is_suspended or process.is_dropped:
            return []
        if self._relock is not None and not process.is_locked(now):
            self._relock(assigned)
            return []
        return process.take(self._batch_max, now)

    def succeeded(self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        _finish(assigned, messages, self._offsets)

    async def failed(
        self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage], _: Outcome
    ) -> None:
        kept: list[ReceivedMessage] = []
        for message in messages:
            if not await self._is_given_up(assigned, message):
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            assigned.process.give_back(kept)
            assigned.is_suspended = True
            self._after(self._suspend_s, lambda: self._resume(assigned))

    async def _is_given_up(self, assigned: AssignedQueue, message: ReceivedMessage) -> bool:
        """Make a message a dead letter if it had all its rounds; tell whether it is one now."""
        if self._retries_max is None or message.reconsume_times < self._retries_max:
            return False
        if assigned.process.is_dropped:
            return False
        try:
            await self._give_up(message)
        except ClientError as exc:
            logger.warning(
                "group %s: %r failed %d times and could not be put among the dead letters: %s",
                self._group,
                message,
                message.reconsume_times + 1,
                exc,
            )
            return False
        self.succeeded(assigned, (message,))
        return True

    def _resume(self, assigned: AssignedQueue) -> None:
        assigned.is_suspended = False
        if assigned.process.waiting:
            self._offer(assigned.turn)


_UNLIMITED: Final = 2**31 - 1


@final
class Returning:
    """Gives messages of a group back. Both methods raise `ClientError` if no broker takes them."""

    def __init__(self, client: Client, config: PushConsumerConfig) -> None:
        self._client = client
        self._group = config.group
        self._rounds_max = _UNLIMITED if config.retries_max is None else config.retries_max

    async def later(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have a message delivered to the group again."""
        await self._client.run(
            send_back(
                self._client.routes,
                message,
                group=self._group,
                delay_level=delay_level,
                reconsume_max=self._rounds_max,
                now_ms=system_ms(),
            )
        )

    async def give_up(self, message: ReceivedMessage) -> None:
        """Make a message a dead letter that had as many rounds as it may have."""
        await self._client.run(
            resend(
                self._client.routes,
                message,
                group=self._group,
                delay_level=BROKER_DECIDES,
                reconsume_times=max(message.reconsume_times, self._rounds_max),
                reconsume_max=self._rounds_max,
                now_ms=system_ms(),
            )
        )
