"""One queue that a push consumer has now: its messages, its turn, and who pulls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from rmq.client.core.consuming.process_queue import ProcessQueue
from rmq.client.core.consuming.turns import Lane
from rmq.client.core.routes import MASTER_ID

if TYPE_CHECKING:
    from rmq.model.queues import MessageQueue

ROOM_CHECK_S: Final = 10.0
"""Who waits for room looks again after so long at the latest: limits may have changed."""


@final
class AssignedQueue:
    """A queue from the time it is taken over to the time it is given up or begun anew."""

    __slots__ = (
        "_room",
        "broker_id",
        "bytes_max",
        "is_leaving",
        "is_moving",
        "is_relocking",
        "is_suspended",
        "lane",
        "locked_at",
        "messages_max",
        "process",
        "pulling",
        "queue",
        "span_max",
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
        self.lane: Lane[AssignedQueue] = Lane(self, calls_max=calls_max)
        self.pulling = trio.CancelScope()
        """Around whoever pulls it."""
        self.broker_id = MASTER_ID
        """Which broker of the name to pull from."""
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.span_max = span_max
        self.is_leaving = False
        """It is being given up: no further call is begun."""
        self.is_moving = False
        """It has a gap. What was pulled before is finished first; then it is begun anew."""
        self.is_suspended = False
        """The listener failed, and is not called for a while. Only when consumed in order."""
        self.is_relocking = False
        """Its lock is lost, and somebody sees to that. Only when consumed in order."""
        self.locked_at: float | None = None
        """When its lock was asked for that counts. Only when consumed in order."""
        self._room: trio.Event | None = None

    def __repr__(self) -> str:
        state = "dropped" if self.process.is_dropped else "leaving" if self.is_leaving else "held"
        return f"<AssignedQueue {self.queue} {state}, {self.process.count} messages>"

    def lock(self, now: float) -> None:
        """The broker has confirmed that the queue is this consumer's alone."""
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
        self._room = trio.Event()
        with trio.move_on_after(ROOM_CHECK_S):
            await self._room.wait()
        self._room = None

    def made_room(self) -> None:
        """Messages were finished; whoever waits for that goes on if there are few enough now."""
        if self._room is not None and self.blocked_by() is None:
            self._room.set()
