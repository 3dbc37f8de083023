"""What happens to messages whose order does not matter, after the listener has had them.

Many calls of a queue run at once and end in any order. What is stored as the group's offset is the
smallest one that is not finished. Failed messages are sent back, one by one; what cannot be sent
back stays here and is given to the listener again after a while. Members of a group that each get
all messages send nothing back: for them a failed message is lost, as in 4.9.8.
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

AGAIN_S: Final = 5.0
"""When messages that could not be sent back are given to the listener again."""


@final
class ConcurrentService:
    """Settles calls of a listener that may run at the same time."""

    def __init__(
        self,
        *,
        group: str,
        batch_max: int,
        offsets: OffsetTable,
        send_back: Callable[[ReceivedMessage, int], Awaitable[None]] | None,
        offer: Callable[[Lane[AssignedQueue]], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`send_back` has a message delivered again after a delay level, and raises `ClientError`;
        None: nothing is sent back. `offer` gives a queue its turn. `after` calls a function after
        some seconds.
        """
        self._group = group
        self._batch_max = batch_max
        self._offsets = offsets
        self._send_back = send_back
        self._offer = offer
        self._after = after

    def take(self, assigned: AssignedQueue, now: float) -> list[ReceivedMessage]:
        return assigned.process.take(self._batch_max, now)

    def succeeded(self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        process = assigned.process
        offset = process.remove(messages)
        if not process.is_dropped:
            self._offsets.update(assigned.queue, offset)
            assigned.made_room()

    async def failed(
        self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> None:
        if assigned.process.is_dropped:
            # Whoever has the queue now gets them again: they are not stored as finished.
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
                self._offer(assigned.lane)

        for message in messages:
            message.reconsume_times += 1
        self._after(AGAIN_S, again)
