"""What happens to messages whose order matters, before and after the listener has them.

One call of a queue runs at a time. If it fails, the queue pauses and the same messages come again,
before all others; after as many rounds as are allowed they are dead letters. What members of a
group share is consumed only while the queue is locked at its broker:

- A lock is renewed every 20 s and counts for 30 s here, while brokers keep it for 60 s: a consumer
  that is cut off stops before another may begin.
- A queue whose lock was lost, even if only by this clock, is begun anew once it is locked again:
  another member may have consumed what is buffered here.
- A queue that is given up is unlocked when the call under way is over and its offset is stored, so
  the next member goes on exactly there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rmq.client.core.consuming.offset_store import OffsetTable
    from rmq.client.core.consuming.results import Outcome
    from rmq.client.core.consuming.turns import Lane
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.trio.assigned_queue import AssignedQueue

logger = logging.getLogger(__name__)

FIRST_RENEWAL_S: Final = 1.0
RELOCK_S: Final = 3.0
"""How long a lock that another member has is left alone before it is asked for again."""


@final
class OrderlyService:
    """Settles calls of a listener that gets the messages of a queue in their order."""

    def __init__(
        self,
        *,
        group: str,
        batch_max: int,
        retries_max: int | None,
        suspend_s: float,
        offsets: OffsetTable,
        give_up: Callable[[ReceivedMessage], Awaitable[None]],
        relock: Callable[[AssignedQueue], None] | None,
        offer: Callable[[Lane[AssignedQueue]], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`retries_max` None: a message is retried without end. `give_up` makes a message a dead
        letter, and raises `ClientError`. `relock` is told of queues that are not locked; None:
        queues need no lock. `offer` gives a queue its turn. `after` calls a function after some
        seconds.
        """
        self._group = group
        self._batch_max = batch_max
        self._retries_max = retries_max
        self._suspend_s = suspend_s
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
        process = assigned.process
        offset = process.remove(messages)
        if not process.is_dropped:
            self._offsets.update(assigned.queue, offset)
            assigned.made_room()

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
            self._offer(assigned.lane)
