"""Calls the listener: a bounded number of tasks that share the messages of all queues.

A task is not started, and nothing is waited for, per message: a task takes the next batch of
whichever queue has its turn, calls the listener, and takes the next. Tasks that find nothing
rest until a queue is offered.

A listener that takes longer than it may is cancelled, and its messages are treated as failed. So
each task runs inside a cancel scope of its own, which is renewed only when that has happened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, final

import anyio

from rmq.client.core.consuming.results import FAILED, SUCCESS, Outcome, understood
from rmq.client.core.consuming.send_back import FIRST_LEVEL
from rmq.client.core.consuming.turns import FairTurns
from rmq.client.core.trace import ConsumeCode
from rmq.model.clock import system_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from rmq.client.core.consuming.results import ListenerResult
    from rmq.client.core.consuming.turns import QueueTurn
    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Tracer
    from rmq.client.tasks.assignment import AssignedQueue
    from rmq.client.tasks.loop import Loop
    from rmq.client.tasks.status import ConsumeStatistics

Listener: TypeAlias = "Callable[[Sequence[ReceivedMessage]], Awaitable[ListenerResult]]"
"""Is called with messages; see `rmq.client.core.consuming.results` for what it returns."""

logger = logging.getLogger(__name__)

TURN_S: Final = 0.002
"""A task that ran this long without a pause yields to other tasks."""
TIMEOUT_CHECKS: Final = 20
"""Timeouts are checked this many times per `timeout_s`."""

TIMED_OUT: Final = Outcome(is_success=False, delay_level=FIRST_LEVEL)


class ConsumeService(Protocol):
    """What happens to messages before and after the listener has them."""

    def take(self, assigned: AssignedQueue, now: float) -> list[ReceivedMessage]:
        """Return what the listener is given next of a queue; nothing if it may not have more."""

    def succeeded(self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """The listener has finished these messages."""

    async def failed(
        self, assigned: AssignedQueue, messages: Sequence[ReceivedMessage], outcome: Outcome
    ) -> None:
        """The listener is to get them again later."""


class CallLimits(NamedTuple):
    """What calls of the listener may take."""

    calls_max: int
    """How many may run at once."""
    timeout_s: float | None
    """How long one may take; None: for ever."""


@final
class ListenerPool:
    """The tasks of one consumer."""

    def __init__(
        self,
        listener: Listener,
        service: ConsumeService,
        *,
        group: str,
        limits: CallLimits,
        statistics: ConsumeStatistics,
        loop: Loop,
        tracer: Tracer | None = None,
    ) -> None:
        self._listener = listener
        self._service = service
        self._group = group
        self._timeout_s = limits.timeout_s
        self._statistics = statistics
        self._tracer = tracer
        self._turns: FairTurns[AssignedQueue] = FairTurns(limits.calls_max)
        self._workers: set[_Worker] = set()
        self._loop = loop
        self._resting = loop.parking_lot()
        self._is_waking = False
        """Whether a task was woken, or started, and has not checked for work yet."""
        self._is_stopping = False
        self._idle: anyio.Event | None = None
        self._nursery: TaskGroup | None = None

    # --- what others say ----------------------------------------------------------------------

    def add(self, turn: QueueTurn[AssignedQueue]) -> None:
        self._turns.add(turn)

    def remove(self, turn: QueueTurn[AssignedQueue]) -> None:
        """Begin no further call of a queue; those under way go on."""
        self._turns.remove(turn)
        # What was kept for it may be for others now.
        self._wake()

    def offer(self, turn: QueueTurn[AssignedQueue]) -> None:
        """Give a queue with messages its turn."""
        self._turns.offer(turn)
        if not self._is_waking:
            self._wake()

    def stop(self) -> None:
        """Begin no further call."""
        self._is_stopping = True

    @property
    def calls(self) -> int:
        """How many calls are under way."""
        return self._turns.calls

    async def wait_idle(self) -> None:
        """Wait until no call is under way."""
        while self._turns.calls:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def wait_queue_idle(self, turn: QueueTurn[AssignedQueue]) -> None:
        """Wait until no call of one queue is under way."""
        while turn.calls:
            idle = anyio.Event()
            turn.on_idle.append(idle.set)
            await idle.wait()

    # --- tasks -------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Call the listener as long as this runs."""
        async with anyio.create_task_group() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                timeout_s = self._timeout_s
                while timeout_s is not None:
                    await anyio.sleep(timeout_s / TIMEOUT_CHECKS)
                    self._cancel_overdue(anyio.current_time() - timeout_s)
                await anyio.sleep_forever()
            finally:
                self._nursery = None

    def _wake(self) -> None:
        if self._nursery is None or self._is_stopping or not self._turns.may_begin():
            return
        if len(self._resting):
            self._resting.unpark()
        elif len(self._workers) < self._turns.calls_max:
            worker = _Worker()
            self._workers.add(worker)
            self._nursery.start_soon(self._work, worker)
        else:
            return
        self._is_waking = True

    def _cancel_overdue(self, begun_before: float) -> None:
        for worker in self._workers:
            if worker.is_calling and worker.began_at < begun_before:
                worker.is_overdue = True
                worker.scope.cancel()

    async def _work(self, worker: _Worker) -> None:
        self._is_waking = False
        while True:
            with anyio.CancelScope() as worker.scope:
                await self._serve(worker)
            # Here only if the scope was cancelled: the call took too long.
            turn, messages = worker.turn, worker.messages
            assert turn is not None, "a task was cancelled that had no call in progress"
            outcome = worker.outcome
            if outcome is None:
                worker.is_calling = False
                logger.warning(
                    "group %s: the listener had %s for more than %g s; it is cancelled, which"
                    " counts as failed",
                    self._group,
                    _shown(messages),
                    self._timeout_s,
                )
                outcome = TIMED_OUT
                self._note(worker, outcome, ConsumeCode.TIMED_OUT, anyio.current_time())
            worker.is_overdue = False
            await self._apply(worker, turn, messages, outcome)

    async def _serve(self, worker: _Worker) -> None:
        """Call the listener for one batch after the other. Returns only if the scope is cancelled
        and the call is over nevertheless.
        """
        turns, service, listener = self._turns, self._service, self._listener
        # The clock itself, asked directly: this is done twice for every batch.
        clock = self._loop.clock()
        turn_began = clock()
        while True:
            turn = None if self._is_stopping else turns.begin()
            if turn is None:
                await self._resting.park()
                self._is_waking = False
                turn_began = clock()
                continue
            assigned = turn.owner
            now = clock()
            messages = service.take(assigned, now)
            if assigned.process.waiting and messages:
                turns.offer(turn)
            if not self._is_waking:
                self._wake()
            if not messages:
                self._end(turn)
                continue
            worker.turn, worker.messages, worker.began_at = turn, messages, now
            worker.outcome = None
            if self._tracer is not None:
                worker.request_id = self._tracer.consuming(
                    self._group, messages, started_at_ms=system_ms()
                )
            worker.is_calling = True
            code = ConsumeCode.SUCCESS
            try:
                outcome = understood(await listener(messages))
            except Exception:
                code, outcome = ConsumeCode.RAISED, FAILED
                logger.warning(
                    "group %s: the listener raised for %s",
                    self._group,
                    _shown(messages),
                    exc_info=True,
                )
            worker.is_calling = False
            now = clock()
            if outcome is not SUCCESS:
                code = self._look_at(outcome, code, messages)
            self._note(worker, outcome, code, now)
            if worker.is_overdue:
                worker.outcome = outcome
                return
            if outcome is SUCCESS:
                service.succeeded(assigned, messages)
                worker.turn, worker.messages = None, ()
                self._end(turn)
            else:
                await self._apply(worker, turn, messages, outcome)
            if now - turn_began > TURN_S:
                await self._loop.checkpoint()
                turn_began = clock()

    async def _apply(
        self,
        worker: _Worker,
        turn: QueueTurn[AssignedQueue],
        messages: Sequence[ReceivedMessage],
        outcome: Outcome,
    ) -> None:
        try:
            if outcome.is_success:
                self._service.succeeded(turn.owner, messages)
            else:
                await self._service.failed(turn.owner, messages, outcome)
        finally:
            worker.turn, worker.messages = None, ()
            self._end(turn)

    def _end(self, turn: QueueTurn[AssignedQueue]) -> None:
        self._turns.end(turn)
        if not self._turns.calls and self._idle is not None:
            self._idle.set()
            self._idle = None

    def _look_at(
        self, outcome: Outcome, code: ConsumeCode, messages: Sequence[ReceivedMessage]
    ) -> ConsumeCode:
        """Log a result that no listener may return; return the code for traces."""
        if outcome.nonsense is not None:
            logger.warning(
                "group %s: the listener returned %s for %s, which means nothing and counts as"
                " failed",
                self._group,
                outcome.nonsense,
                _shown(messages),
            )
            return ConsumeCode.NONSENSE
        return ConsumeCode.LATER if code is ConsumeCode.SUCCESS else code

    def _note(self, worker: _Worker, outcome: Outcome, code: ConsumeCode, now: float) -> None:
        """Take the end of a call into the statistics and the trace."""
        assert worker.turn is not None
        messages = worker.messages
        took_s = now - worker.began_at
        count = len(messages)
        self._statistics.consumed(
            worker.turn.owner.queue.topic,
            count if outcome.is_success else 0,
            0 if outcome.is_success else count,
            took_s,
        )
        if self._tracer is not None:
            self._tracer.consumed(
                self._group,
                messages,
                request_id=worker.request_id,
                ended_at_ms=system_ms(),
                took_ms=round(took_s * 1000),
                code=code,
            )


class _Worker:
    """One task, and the call it is in."""

    __slots__ = (
        "began_at",
        "is_calling",
        "is_overdue",
        "messages",
        "outcome",
        "request_id",
        "scope",
        "turn",
    )

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.turn: QueueTurn[AssignedQueue] | None = None
        self.messages: Sequence[ReceivedMessage] = ()
        self.began_at = 0.0
        self.is_calling = False
        """Whether the listener has not returned yet."""
        self.is_overdue = False
        """Whether its scope was cancelled because the call takes too long."""
        self.outcome: Outcome | None = None
        """Outcome of a call that ended while it was being cancelled."""
        self.request_id = ""


def _shown(messages: Sequence[ReceivedMessage]) -> str:
    """Return messages as text for logs."""
    if len(messages) == 1:
        return f"message {messages[0]!r}"
    return f"{len(messages)} messages, the first of them {messages[0]!r}"
