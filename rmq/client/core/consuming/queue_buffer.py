"""One queue of a `PullBuffer`: what was pulled of it, and where it is. Sans-IO."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """What one pull has brought."""

    __slots__ = ("first", "messages", "next_offset", "stored_bytes")

    def __init__(self, messages: list[M], next_offset: int) -> None:
        self.messages = messages
        self.first = 0
        """Those before it were taken."""
        self.stored_bytes = sum(message.stored_bytes for message in messages)
        """Of those that are left."""
        self.next_offset = next_offset
        """Where to go on after the last message."""


@final
class Lane(Generic[M]):
    """One queue."""

    __slots__ = (
        "end",
        "is_paused",
        "is_pulling",
        "is_started",
        "is_waiting",
        "messages",
        "position",
        "promised",
        "queue",
        "runs",
        "settled",
        "stored_bytes",
        "turn",
    )

    def __init__(self, queue: MessageQueue, turn: int) -> None:
        self.queue = queue
        self.turn = turn
        self.is_started = False
        self.settled = self.position = self.end = 0
        self.runs: deque[Run[M]] = deque()
        self.messages = 0
        self.stored_bytes = 0
        self.is_paused = False
        self.is_pulling = False
        self.is_waiting = False
        self.promised: int | None = None
        """Where the pull that was answered last, and is not ended yet, goes on."""

    def move(self, offset: int) -> None:
        self.is_started = True
        self.is_pulling = False
        self.promised = None
        self.settled = self.position = self.end = offset

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
