"""Messages that were pulled ahead of the application, and how far it has come. Sans-IO.

For each queue of a consumer there are four places, in this order:

    settled <= position <= first buffered message <= end

`settled` is what may be committed: the application has come back for more, so it is done with what
it was given before. `position` is what it is given next. `end` is where the next pull begins. What
is only buffered is never committed: if the process dies, it is pulled again.

A pull is begun with `begin`, which returns a ticket, and ended with `finish` or `fail`. In between
`answered` may say where the next pull begins, which can then be under way while the messages of
this one are decoded. A seek, or the loss of a queue, makes the tickets under way worthless: what
they bring is thrown away.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, final

from rmq.client.core.consuming.queue_buffer import Lane, M
from rmq.errors import NotAssignedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmq.model.queues import MessageQueue


class BufferLimits(NamedTuple):
    """When pulling stops until the application has taken some.

    Pulls that were begun below a limit may go past it by what they bring: two for each queue.
    """

    messages_max: int = 10_000
    """Of all queues together."""
    queue_messages_max: int = 1_000
    queue_bytes_max: int = 100 * 1024**2
    queue_span_max: int = 2_000
    """From the first buffered offset of a queue to the last one."""


class Ticket(NamedTuple):
    """A pull under way."""

    queue: MessageQueue
    offset: int
    turn: int
    """Tells whether the queue was moved or lost since."""


class BufferStatistics(NamedTuple):
    """How full a buffer is."""

    queues: int
    messages: int
    stored_bytes: int


@final
class PullBuffer(Generic[M]):
    """What was pulled for one consumer."""

    def __init__(self, limits: BufferLimits | None = None) -> None:
        self.limits = limits or BufferLimits()
        self._lanes: dict[MessageQueue, Lane[M]] = {}
        self._waiting: deque[Lane[M]] = deque()
        """Lanes that may have something to take, in the order in which they are asked."""
        self._given: set[Lane[M]] = set()
        """Lanes whose position has moved since they were settled."""
        self._messages = 0
        self._turns = 0

    # --- queues ------------------------------------------------------------------------------

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(self._lanes)

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._lanes

    def statistics(self) -> BufferStatistics:
        size = sum(lane.stored_bytes for lane in self._lanes.values())
        return BufferStatistics(len(self._lanes), self._messages, size)

    def add(self, queue: MessageQueue) -> None:
        """Take a queue in. It is not pulled before `start` or `seek` has said from where."""
        if queue not in self._lanes:
            self._lanes[queue] = Lane(queue, self._next_turn())

    def drop(self, queue: MessageQueue) -> None:
        """Forget a queue, with all that is buffered of it."""
        lane = self._lanes.pop(queue, None)
        if lane is not None:
            self._clear(lane)
            self._given.discard(lane)

    def turn(self, queue: MessageQueue) -> int:
        """Return a number that is another one after the queue was moved, or lost and got back."""
        return self._lane(queue).turn

    def is_current(self, queue: MessageQueue, turn: int) -> bool:
        """Tell whether the queue is still here, and was not moved since `turn`."""
        lane = self._lanes.get(queue)
        return lane is not None and lane.turn == turn

    def start(self, queue: MessageQueue, offset: int, turn: int) -> bool:
        """Begin a queue at an offset, unless it has one or was moved since `turn`."""
        lane = self._lanes.get(queue)
        if lane is None or lane.turn != turn or lane.is_started:
            return False
        lane.move(offset)
        return True

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from another offset, and forget what is buffered or being pulled."""
        lane = self._lane(queue)
        self._clear(lane)
        lane.turn = self._next_turn()
        lane.move(offset)

    def pull_again(self, queue: MessageQueue) -> None:
        """Forget what is buffered or being pulled, and pull it again: something else is wanted."""
        lane = self._lane(queue)
        self._clear(lane)
        lane.turn = self._next_turn()
        lane.is_pulling = False
        lane.promised = None
        lane.end = lane.position

    def pause(self, queue: MessageQueue) -> None:
        """Neither pull nor hand out messages of a queue; what is buffered is kept."""
        self._lane(queue).is_paused = True

    def resume(self, queue: MessageQueue) -> None:
        lane = self._lane(queue)
        lane.is_paused = False
        self._offer(lane)

    def is_paused(self, queue: MessageQueue) -> bool:
        return self._lane(queue).is_paused

    def buffered(self, queue: MessageQueue) -> int:
        """Return how many messages of a queue wait to be taken."""
        return self._lane(queue).messages

    # --- pulling -----------------------------------------------------------------------------

    def may_pull(self, queue: MessageQueue) -> bool:
        """Tell whether a pull may begin now: from where is known, none is under way, no limit."""
        lane = self._lanes.get(queue)
        if lane is None or not lane.is_started or lane.is_paused or lane.is_pulling:
            return False
        limits = self.limits
        return (
            self._messages < limits.messages_max
            and lane.messages < limits.queue_messages_max
            and lane.stored_bytes < limits.queue_bytes_max
            and lane.span() < limits.queue_span_max
        )

    @property
    def is_full(self) -> bool:
        """Whether no queue at all may be pulled until something is taken."""
        return self._messages >= self.limits.messages_max

    def begin(self, queue: MessageQueue) -> Ticket:
        """Begin a pull where the last one ended."""
        lane = self._lane(queue)
        assert lane.is_started, f"{queue} has no offset yet"
        assert not lane.is_pulling, f"{queue} is being pulled already"
        lane.is_pulling = True
        return Ticket(queue, lane.end, lane.turn)

    def not_begun(self, ticket: Ticket) -> None:
        """A pull that was to begin did not."""
        lane = self._lanes.get(ticket.queue)
        if lane is not None and lane.turn == ticket.turn:
            lane.is_pulling = False

    def answered(self, ticket: Ticket, next_offset: int) -> bool:
        """The next pull begins here, and may be begun before this one is ended.

        False: the ticket is out of date.
        """
        lane = self._lanes.get(ticket.queue)
        if lane is None or lane.turn != ticket.turn:
            return False
        assert lane.is_pulling, f"{ticket} is not under way"
        assert lane.promised is None, f"{ticket} overtook another pull"
        lane.is_pulling = False
        lane.end = lane.promised = next_offset
        return True

    def finish(self, ticket: Ticket, messages: Sequence[M], next_offset: int) -> bool:
        """Take in what a pull has brought; False: it is out of date, nothing was taken.

        No messages and another offset: those between are of no interest, or are gone. If this goes
        on elsewhere than `answered` has said, a pull that was begun there is out of date.
        """
        lane = self._lanes.get(ticket.queue)
        if lane is None or lane.turn != ticket.turn:
            return False
        self._end_pull(lane, next_offset)
        if messages:
            lane.put(messages, next_offset)
            self._messages += len(messages)
            self._offer(lane)
        elif lane.runs:
            lane.runs[-1].next_offset = next_offset
        elif lane.position != next_offset:
            lane.position = next_offset
            self._given.add(lane)
        return True

    def fail(self, ticket: Ticket) -> None:
        """A pull brought nothing; the next one begins at the same offset."""
        lane = self._lanes.get(ticket.queue)
        if lane is not None and lane.turn == ticket.turn:
            self._end_pull(lane, ticket.offset)

    def _end_pull(self, lane: Lane[M], next_offset: int) -> None:
        if lane.promised is None or lane.promised != next_offset:
            if lane.promised is not None:
                lane.turn = self._next_turn()
            lane.is_pulling = False
            lane.end = next_offset
        lane.promised = None

    # --- the application ---------------------------------------------------------------------

    def take(self, count: int) -> list[M]:
        """Hand out at most so many messages, in order within each queue, queues by turns."""
        taken: list[M] = []
        waiting = self._waiting
        while waiting and count > 0:
            lane = waiting.popleft()
            lane.is_waiting = False
            if lane.is_paused or not lane.runs:
                continue
            got = lane.take(count)
            count -= len(got)
            self._messages -= len(got)
            self._given.add(lane)
            self._offer(lane)
            if taken:
                taken.extend(got)
            else:
                taken = got
        return taken

    def take_one(self) -> M | None:
        """Hand out one message: what `take` does, at less cost."""
        waiting = self._waiting
        while waiting:
            lane = waiting[0]
            if lane.is_paused or not lane.runs:
                waiting.popleft().is_waiting = False
                continue
            message = lane.take_one()
            self._messages -= 1
            self._given.add(lane)
            if not lane.runs or not lane.runs[0].first:
                # The next run is another queue's, as long as there is one.
                waiting.popleft().is_waiting = False
                self._offer(lane)
            return message
        return None

    def settle(self) -> None:
        """The application is done with all that it was given."""
        for lane in self._given:
            lane.settled = lane.position
        self._given.clear()

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset that is handed out next; None: not known yet."""
        lane = self._lane(queue)
        return lane.position if lane.is_started else None

    def settled(self, queue: MessageQueue) -> int | None:
        """Return the offset that may be committed; None: not known yet."""
        lane = self._lane(queue)
        return lane.settled if lane.is_started else None

    def all_settled(self) -> Iterator[tuple[MessageQueue, int]]:
        """Return what may be committed of each queue whose place is known."""
        return (
            (lane.queue, lane.settled) for lane in list(self._lanes.values()) if lane.is_started
        )

    # --- inside ------------------------------------------------------------------------------

    def _lane(self, queue: MessageQueue) -> Lane[M]:
        lane = self._lanes.get(queue)
        if lane is None:
            raise NotAssignedError(queue.topic, queue.broker_name, queue.queue_id)
        return lane

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _offer(self, lane: Lane[M]) -> None:
        if lane.runs and not lane.is_paused and not lane.is_waiting:
            lane.is_waiting = True
            self._waiting.append(lane)

    def _clear(self, lane: Lane[M]) -> None:
        self._messages -= lane.messages
        lane.clear()
