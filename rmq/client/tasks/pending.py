"""One send under way, and the lines in which sends wait for a route or a connection."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

import anyio

from rmq.client.core.producing.outbound import OutboundMessage, read_send_answer
from rmq.client.core.trace import MessageKind, Sent
from rmq.errors import ClientError
from rmq.model.flags import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.client.core.messages import Message, SendResult
    from rmq.client.core.producing.delivery import Delivery
    from rmq.client.tasks.send_paths import Path
    from rmq.errors import RmqError
    from rmq.model.queues import MessageQueue
    from rmq.remoting.command import Command

    OnOutcome = Callable[[SendResult | RmqError], None]

_EXPIRY_GRAIN_S: Final = 0.01
"""Sends whose deadlines in a line are this close are completed together."""


_NOTHING: Final = OutboundMessage("", "", "", b"")


def _forget(outcome: SendResult | RmqError) -> None:
    """Ignore an outcome: the send was abandoned or is complete."""


class Attempts(Protocol):
    """Takes the outcomes of attempts: the pipeline."""

    def answered(self, pending: Pending, path: Path, result: SendResult) -> None:
        """The message is stored."""

    def failed(self, pending: Pending, path: Path, error: ClientError) -> None:
        """The attempt failed; the message may be stored or not."""


@final
class Pending:
    """One send on its way. The connection calls it with the outcome of an attempt."""

    __slots__ = (
        "_attempts",
        "deadline",
        "delivery",
        "is_complete",
        "is_sent",
        "message",
        "on_outcome",
        "outbound",
        "path",
        "queue",
        "started_at",
        "started_at_ms",
        "tried_at",
    )

    def __init__(
        self,
        attempts: Attempts,
        outbound: OutboundMessage,
        on_outcome: OnOutcome,
        *,
        now: float,
        now_ms: int,
        timeout_s: float,
        queue: MessageQueue | None = None,
        message: Message | None = None,
    ) -> None:
        """`queue` is one of the caller's choice; `message` is for traces."""
        self._attempts = attempts
        self.outbound = outbound
        self.on_outcome = on_outcome
        self.started_at = self.tried_at = now
        self.started_at_ms = now_ms
        self.deadline = now + timeout_s
        self.queue = queue
        self.message = message
        self.path: Path | None = None
        """The path of the last attempt, or of the next one while it waits for a connection."""
        self.delivery: Delivery[Path] | None = None
        """Decides what is next; None as long as the first attempt is under way."""
        self.is_sent = False
        """Whether a request is in flight."""
        self.is_complete = False

    @property
    def timeout_s(self) -> float:
        return self.deadline - self.started_at

    def as_event(self, group: str, now: float, outcome: SendResult | RmqError) -> Sent:
        """Return the send as a tracer is told of it."""
        outbound, message = self.outbound, self.message
        kind = MessageKind.NORMAL
        if outbound.sys_flag & TRANSACTION_PREPARED:
            kind = MessageKind.HALF
        elif message is not None and message.delay_level:
            kind = MessageKind.DELAYED
        return Sent(
            group=group,
            topic=outbound.topic,
            message_id=outbound.message_id,
            tag=None if message is None else message.tag,
            keys=() if message is None else tuple(message.keys),
            address="" if self.path is None else self.path.address,
            body_bytes=len(outbound.body),
            kind=kind,
            started_at_ms=self.started_at_ms,
            took_ms=round((now - self.started_at) * 1000),
            outcome=outcome,
        )

    def release(self) -> None:
        """Drop the message: the connection keeps its calls until their deadlines."""
        self.outbound = _NOTHING
        self.message = None
        self.on_outcome = _forget

    def __call__(self, outcome: Command | ClientError) -> None:
        """Take the outcome of an attempt."""
        if self.is_complete:
            return
        path = self.path
        assert path is not None
        if not isinstance(outcome, ClientError):
            try:
                result = read_send_answer(
                    outcome, address=path.address, queue=path.queue, outbound=self.outbound
                )
            except ClientError as exc:
                outcome = exc
            else:
                self._attempts.answered(self, path, result)
                return
        self._attempts.failed(self, path, outcome)


@final
class Line:
    """Sends that wait for the same route or the same connection, in the order they came."""

    __slots__ = ("_deadline", "_pendings", "_scope")

    def __init__(self) -> None:
        self._pendings: deque[Pending] = deque()
        self._deadline = float("inf")
        self._scope: anyio.CancelScope | None = None

    def add(self, pending: Pending) -> None:
        self._pendings.append(pending)
        if pending.deadline < self._deadline:
            self._deadline = pending.deadline
            if self._scope is not None:
                self._scope.deadline = pending.deadline + _EXPIRY_GRAIN_S

    async def wait_for(
        self, what: Callable[[], Awaitable[object]], expire: Callable[[Pending], None]
    ) -> None:
        """Wait for something; `expire` is called with sends whose deadline has passed.

        Returns early if no send is left.
        """
        while True:
            with anyio.CancelScope(deadline=self._deadline + _EXPIRY_GRAIN_S) as self._scope:
                await what()
                return
            now = anyio.current_time()
            late = [pending for pending in self._pendings if pending.deadline <= now]
            self._pendings = deque(each for each in self._pendings if each.deadline > now)
            self._deadline = min((each.deadline for each in self._pendings), default=float("inf"))
            for pending in late:
                expire(pending)
            if not self._pendings:
                return

    def take_all(self) -> list[Pending]:
        """Return all that wait and were not completed meanwhile; the line is empty then."""
        pendings, self._pendings = self._pendings, deque()
        self._deadline = float("inf")
        return [pending for pending in pendings if not pending.is_complete]
