"""Which offsets of its master a slave takes for possible. Pure.

A consumer may commit any number, and a broker that is no master may tell any. An offset only ever
grows, so one that is far too large would stay for ever, and the group would skip its backlog when
the slave becomes master. Where a queue ends at the master is not known here, but there is a bound:
this slave's own queue, and what the master's log has beyond it, with the shortest records there
are, all of them in that queue.

Nothing a group has really read lies beyond that. `SPARE` is added nevertheless: a little too far
does no harm, because offsets are clamped to the ends of the queues in a promotion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.model.offsets import ConsumerOffset, PhysicalOffset, QueueOffset
from rmq.model.record_layout import RECORD_BYTES_MIN

if TYPE_CHECKING:
    from rmq.store.store import MessageStore

SPARE: Final = 100_000


@final
class OffsetBounds:
    """The bounds as they are while something is taken over."""

    def __init__(self, store: MessageStore, log_end: PhysicalOffset | None) -> None:
        """`log_end` is where the log of the master ends; None: not known yet."""
        self._store = store
        self._log_end = log_end

    def bound(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the largest offset that is possible."""
        queue = self._store.queues.get(topic, queue_id)
        log_end = PhysicalOffset(0) if self._log_end is None else self._log_end
        if queue is None:
            # This log may begin behind the messages of the queue: it counts from the first byte.
            return QueueOffset(log_end // RECORD_BYTES_MIN + SPARE)
        missing = max(0, log_end - self._store.dispatched)
        return queue.next_offset + missing // RECORD_BYTES_MIN + SPARE

    def allows(self, key: str, queue_id: int, offset: ConsumerOffset) -> bool:
        """Tell whether an offset of `topic@group` is possible."""
        return offset <= SPARE or offset <= self.bound(key.partition("@")[0], queue_id)
