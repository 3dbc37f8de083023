"""Messages that were pulled ahead of the application, and how far it has come. Pure.

For each queue of a consumer there are four places, in this order:

    consumed <= position <= first buffered message <= end

`consumed` may be committed: the application has come back for more, so it has finished what it was
given before. `position` is what it is given next. `end` is where the next pull begins. What
is only buffered is never committed: if the process dies, it is pulled again.

A pull is begun with `begin`, which returns a ticket, and ended with `finish` or `fail`. In between
`answered` may say where the next pull begins, which can then be under way while the messages of
this one are decoded. A seek, or the loss of a queue, makes the tickets under way worthless: what
they bring is thrown away.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, final

from rmq.errors import NotAssignedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmq.model.queues import MessageQueue


class Pulled(Protocol):
    """What the buffer needs to know of a message."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def stored_bytes(self) -> int: ...


M = TypeVar("M", bound=Pulled)


@final
class Run(Generic[M]):
    """The messages of one pull."""

    __slots__ = ("first", "messages", "next_offset", "stored_bytes")

    def __init__(self, messages: list[M], next_offset: int) -> None:
        self.messages = messages
        self.first = 0
        """Index of the first message that was not taken yet."""
        self.stored_bytes = sum(message.stored_bytes for message in messages)
        """Size of the messages that were not taken yet."""
        self.next_offset = next_offset
        """Where to go on after the last message."""


@final
class QueueBuffer(Generic[M]):
    """The buffered messages and offsets of one queue."""

    __slots__ = (
        "answered_end",
        "consumed",
        "end",
        "is_paused",
        "is_pulling",
        "is_started",
        "is_waiting",
        "messages",
        "position",
        "queue",
        "runs",
        "stored_bytes",
        "turn",
    )

    def __init__(self, queue: MessageQueue, turn: int) -> None:
        self.queue = queue
        self.turn = turn
        self.is_started = False
        self.consumed = self.position = self.end = 0
        self.runs: deque[Run[M]] = deque()
        self.messages = 0
        self.stored_bytes = 0
        self.is_paused = False
        self.is_pulling = False
        self.is_waiting = False
        self.answered_end: int | None = None
        """Next offset of a pull that was answered and is not finished yet."""

    def move(self, offset: int) -> None:
        self.is_started = True
        self.is_pulling = False
        self.answered_end = None
        self.consumed = self.position = self.end = offset

    def clear(self) -> None:
        self.runs.clear()
        self.messages = 0
        self.stored_bytes = 0

    def span(self) -> int:
        if not self.runs:
            return 0
        first, last = self.runs[0], self.runs[-1]
        return last.messages[-1].queue_offset - first.messages[first.first].queue_offset + 1

    def put(self, messages: Sequence[M], next_offset: int) -> None:
        run = Run(list(messages), next_offset)
        self.runs.append(run)
        self.messages += len(messages)
        self.stored_bytes += run.stored_bytes

    def take_one(self) -> M:
        run = self.runs[0]
        message = run.messages[run.first]
        size = message.stored_bytes
        self.messages -= 1
        self.stored_bytes -= size
        run.stored_bytes -= size
        run.first += 1
        if run.first == len(run.messages):
            self.runs.popleft()
            self.position = run.next_offset
        else:
            self.position = message.queue_offset + 1
        return message

    def take(self, count: int) -> list[M]:
        """Take messages of the first run."""
        run = self.runs[0]
        if run.first + count < len(run.messages):
            got = run.messages[run.first : run.first + count]
            run.first += count
            size = sum(message.stored_bytes for message in got)
            run.stored_bytes -= size
            self.position = got[-1].queue_offset + 1
        else:
            got = run.messages[run.first :] if run.first else run.messages
            self.runs.popleft()
            size = run.stored_bytes
            self.position = run.next_offset
        self.messages -= len(got)
        self.stored_bytes -= size
        return got


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
    """Number of the queue's generation: another one after a seek or a loss of the queue."""


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
        self._buffers: dict[MessageQueue, QueueBuffer[M]] = {}
        self._waiting: deque[QueueBuffer[M]] = deque()
        """Queues that may have something to take, in the order in which they are asked."""
        self._given: set[QueueBuffer[M]] = set()
        """Queues whose position has moved since messages were marked consumed."""
        self._messages = 0
        self._turns = 0

    # --- queues ------------------------------------------------------------------------------

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(self._buffers)

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._buffers

    def statistics(self) -> BufferStatistics:
        size = sum(buffer.stored_bytes for buffer in self._buffers.values())
        return BufferStatistics(len(self._buffers), self._messages, size)

    def add(self, queue: MessageQueue) -> None:
        """Add a queue. It is not pulled before `start` or `seek` has set its offset."""
        if queue not in self._buffers:
            self._buffers[queue] = QueueBuffer(queue, self._next_turn())

    def drop(self, queue: MessageQueue) -> None:
        """Forget a queue, with all that is buffered of it."""
        buffer = self._buffers.pop(queue, None)
        if buffer is not None:
            self._clear(buffer)
            self._given.discard(buffer)

    def turn(self, queue: MessageQueue) -> int:
        """Return a number that is another one after the queue was moved, or lost and got back."""
        return self._buffer_of(queue).turn

    def is_current(self, queue: MessageQueue, turn: int) -> bool:
        """Tell whether the queue is still here, and was not moved since `turn`."""
        buffer = self._buffers.get(queue)
        return buffer is not None and buffer.turn == turn

    def start(self, queue: MessageQueue, offset: int, turn: int) -> bool:
        """Begin a queue at an offset, unless it has one or was moved since `turn`."""
        buffer = self._buffers.get(queue)
        if buffer is None or buffer.turn != turn or buffer.is_started:
            return False
        buffer.move(offset)
        return True

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from another offset, and forget what is buffered or being pulled."""
        buffer = self._buffer_of(queue)
        self._clear(buffer)
        buffer.turn = self._next_turn()
        buffer.move(offset)

    def pull_again(self, queue: MessageQueue) -> None:
        """Forget what is buffered or being pulled, and pull it again: something else is wanted."""
        buffer = self._buffer_of(queue)
        self._clear(buffer)
        buffer.turn = self._next_turn()
        buffer.is_pulling = False
        buffer.answered_end = None
        buffer.end = buffer.position

    def pause(self, queue: MessageQueue) -> None:
        """Neither pull nor hand out messages of a queue; what is buffered is kept."""
        self._buffer_of(queue).is_paused = True

    def resume(self, queue: MessageQueue) -> None:
        buffer = self._buffer_of(queue)
        buffer.is_paused = False
        self._offer(buffer)

    def is_paused(self, queue: MessageQueue) -> bool:
        return self._buffer_of(queue).is_paused

    def buffered(self, queue: MessageQueue) -> int:
        """Return how many messages of a queue wait to be taken."""
        return self._buffer_of(queue).messages

    # --- pulling -----------------------------------------------------------------------------

    def may_pull(self, queue: MessageQueue) -> bool:
        """Tell whether a pull may begin now: from where is known, none is under way, no limit."""
        buffer = self._buffers.get(queue)
        if buffer is None or not buffer.is_started or buffer.is_paused or buffer.is_pulling:
            return False
        limits = self.limits
        return (
            self._messages < limits.messages_max
            and buffer.messages < limits.queue_messages_max
            and buffer.stored_bytes < limits.queue_bytes_max
            and buffer.span() < limits.queue_span_max
        )

    @property
    def is_full(self) -> bool:
        """Whether no queue at all may be pulled until something is taken."""
        return self._messages >= self.limits.messages_max

    def begin(self, queue: MessageQueue) -> Ticket:
        """Begin a pull where the last one ended."""
        buffer = self._buffer_of(queue)
        assert buffer.is_started, f"{queue} has no offset yet"
        assert not buffer.is_pulling, f"{queue} is being pulled already"
        buffer.is_pulling = True
        return Ticket(queue, buffer.end, buffer.turn)

    def not_begun(self, ticket: Ticket) -> None:
        """Undo `begin`: the pull was not sent."""
        buffer = self._buffers.get(ticket.queue)
        if buffer is not None and buffer.turn == ticket.turn:
            buffer.is_pulling = False

    def answered(self, ticket: Ticket, next_offset: int) -> bool:
        """The next pull begins here, and may be begun before this one is ended.

        False: the ticket is out of date.
        """
        buffer = self._buffers.get(ticket.queue)
        if buffer is None or buffer.turn != ticket.turn:
            return False
        assert buffer.is_pulling, f"{ticket} is not under way"
        assert buffer.answered_end is None, f"{ticket} overtook another pull"
        buffer.is_pulling = False
        buffer.end = buffer.answered_end = next_offset
        return True

    def finish(self, ticket: Ticket, messages: Sequence[M], next_offset: int) -> bool:
        """Take in what a pull has brought; False: it is out of date, nothing was taken.

        No messages and another offset: those between are of no interest, or are gone. If this goes
        on elsewhere than `answered` has said, a pull that was begun there is out of date.
        """
        buffer = self._buffers.get(ticket.queue)
        if buffer is None or buffer.turn != ticket.turn:
            return False
        self._end_pull(buffer, next_offset)
        if messages:
            buffer.put(messages, next_offset)
            self._messages += len(messages)
            self._offer(buffer)
        elif buffer.runs:
            buffer.runs[-1].next_offset = next_offset
        elif buffer.position != next_offset:
            buffer.position = next_offset
            self._given.add(buffer)
        return True

    def fail(self, ticket: Ticket) -> None:
        """A pull brought nothing; the next one begins at the same offset."""
        buffer = self._buffers.get(ticket.queue)
        if buffer is not None and buffer.turn == ticket.turn:
            self._end_pull(buffer, ticket.offset)

    def _end_pull(self, buffer: QueueBuffer[M], next_offset: int) -> None:
        if buffer.answered_end is None or buffer.answered_end != next_offset:
            if buffer.answered_end is not None:
                buffer.turn = self._next_turn()
            buffer.is_pulling = False
            buffer.end = next_offset
        buffer.answered_end = None

    # --- the application ---------------------------------------------------------------------

    def take(self, count: int) -> list[M]:
        """Hand out at most `count` messages, in order within each queue, queues by turns."""
        taken: list[M] = []
        waiting = self._waiting
        while waiting and count > 0:
            buffer = waiting.popleft()
            buffer.is_waiting = False
            if buffer.is_paused or not buffer.runs:
                continue
            got = buffer.take(count)
            count -= len(got)
            self._messages -= len(got)
            self._given.add(buffer)
            self._offer(buffer)
            if taken:
                taken.extend(got)
            else:
                taken = got
        return taken

    def take_one(self) -> M | None:
        """Hand out one message: what `take` does, at less cost."""
        waiting = self._waiting
        while waiting:
            buffer = waiting[0]
            if buffer.is_paused or not buffer.runs:
                waiting.popleft().is_waiting = False
                continue
            message = buffer.take_one()
            self._messages -= 1
            self._given.add(buffer)
            if not buffer.runs or not buffer.runs[0].first:
                # The next run is another queue's, as long as there is one.
                waiting.popleft().is_waiting = False
                self._offer(buffer)
            return message
        return None

    def mark_consumed(self) -> None:
        """Mark all messages that were handed out as consumed."""
        for buffer in self._given:
            buffer.consumed = buffer.position
        self._given.clear()

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset that is handed out next; None: not known yet."""
        buffer = self._buffer_of(queue)
        return buffer.position if buffer.is_started else None

    def consumed(self, queue: MessageQueue) -> int | None:
        """Return the offset that may be committed; None: not known yet."""
        buffer = self._buffer_of(queue)
        return buffer.consumed if buffer.is_started else None

    def all_consumed(self) -> Iterator[tuple[MessageQueue, int]]:
        """Return what may be committed of each queue whose place is known."""
        return (
            (buffer.queue, buffer.consumed)
            for buffer in list(self._buffers.values())
            if buffer.is_started
        )

    # --- inside ------------------------------------------------------------------------------

    def _buffer_of(self, queue: MessageQueue) -> QueueBuffer[M]:
        buffer = self._buffers.get(queue)
        if buffer is None:
            raise NotAssignedError(queue.topic, queue.broker_name, queue.queue_id)
        return buffer

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _offer(self, buffer: QueueBuffer[M]) -> None:
        if buffer.runs and not buffer.is_paused and not buffer.is_waiting:
            buffer.is_waiting = True
            self._waiting.append(buffer)

    def _clear(self, buffer: QueueBuffer[M]) -> None:
        self._messages -= buffer.messages
        buffer.clear()
