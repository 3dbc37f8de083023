"""When a message that is in the log may be acknowledged.

With ASYNC_FLUSH at once, with SYNC_FLUSH when it is on disk; on a SYNC_MASTER when enough slaves
hold it, too. One callback serves all messages that were appended together.

If both the disk and the slaves fail, the slaves' failure is what the producer is told, as RocketMQ
4.9.8 CommitLog does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, final

from rmq.broker.stats.sends import SendStats
from rmq.ha.protocol.pending_acks import AckOutcome
from rmq.store.append import AppendStatus
from rmq.store.config import FlushMode
from rmq.store.flusher import FlushOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.store import MessageStore

_OF_SLAVES: Final = {
    AckOutcome.REPLICATED: AppendStatus.PUT_OK,
    AckOutcome.TIMED_OUT: AppendStatus.FLUSH_SLAVE_TIMEOUT,
    AckOutcome.NOT_AVAILABLE: AppendStatus.SLAVE_NOT_AVAILABLE,
}


class Replicator(Protocol):
    """Knows what slaves hold."""

    def when_replicated(
        self, end_offset: PhysicalOffset, callback: Callable[[AckOutcome], None], sends: int = 1
    ) -> None:
        """Call back once enough slaves hold the log up to `end_offset`, or with why they do not.

        `sends` is how many are answered by that.
        """


@final
class Acknowledger:
    """Knows what acknowledgements wait for."""

    def __init__(
        self,
        store: MessageStore,
        stats: SendStats | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._stats = stats or SendStats()
        self._clock = clock
        self.replicator: Replicator | None = None
        """Knows what slaves hold; None: acknowledgements do not wait for slaves."""

    def wait_for_slaves(self, replicator: Replicator | None) -> None:
        """Make acknowledgements wait for slaves from now on; None: for the disk at most."""
        self.replicator = replicator

    @property
    def is_immediate(self) -> bool:
        """Whether what is appended may be acknowledged without waiting."""
        return self.replicator is None and self._store.config.flush_mode is FlushMode.ASYNC

    def when_safe(
        self, end_offset: PhysicalOffset, callback: Callable[[AppendStatus], None], sends: int = 1
    ) -> None:
        """Call back with PUT_OK once the log is safe up to `end_offset`, or with why it is not.

        `sends` is how many are answered by that.
        """
        clock, stats, began = self._clock, self._stats, self._clock()

        def flushed(outcome: FlushOutcome) -> AppendStatus:
            stats.flush.note(clock() - began, sends)
            return _of_disk(outcome)

        def replicated(outcome: AckOutcome) -> AppendStatus:
            stats.replicate.note(clock() - began, sends)
            return _OF_SLAVES[outcome]

        replicator = self.replicator
        if replicator is None:
            self._store.when_flushed(end_offset, lambda outcome: callback(flushed(outcome)))
        elif self._store.config.flush_mode is FlushMode.ASYNC:
            replicator.when_replicated(
                end_offset, lambda outcome: callback(replicated(outcome)), sends
            )
        else:
            both = _Both(callback)
            self._store.when_flushed(end_offset, lambda outcome: both.flushed(flushed(outcome)))
            replicator.when_replicated(
                end_offset, lambda outcome: both.replicated(replicated(outcome)), sends
            )


def _of_disk(outcome: FlushOutcome) -> AppendStatus:
    if outcome is FlushOutcome.FLUSHED:
        return AppendStatus.PUT_OK
    return AppendStatus.FLUSH_DISK_TIMEOUT


@final
class _Both:
    """Waits for the disk and for slaves at the same time."""

    __slots__ = ("_callback", "_disk", "_slaves")

    def __init__(self, callback: Callable[[AppendStatus], None]) -> None:
        self._callback = callback
        self._disk: AppendStatus | None = None
        self._slaves: AppendStatus | None = None

    def flushed(self, status: AppendStatus) -> None:
        self._disk = status
        self._answer()

    def replicated(self, status: AppendStatus) -> None:
        self._slaves = status
        self._answer()

    def _answer(self) -> None:
        if self._disk is None or self._slaves is None:
            return
        self._callback(self._disk if self._slaves is AppendStatus.PUT_OK else self._slaves)
