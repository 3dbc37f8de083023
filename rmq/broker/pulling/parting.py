"""Positions of consumers in a log that is not the one of this broker.

Before a failover consumers may have read what the new master never got. They go on with a position
in the other log, and other messages have taken those places here. Such a consumer is sent to the
offset that its group has stored, or to where the two logs may have parted, which is the beginning
of the epoch. It reads some messages again and misses none. RocketMQ 4.9.8 lets it go on, or sends
it to the end of the queue: behind all that came in since.

A position behind the end of its queue cannot have been read here. One within the queue can be told
by a master that began the epoch itself, since it knows what it has given to which group (`served`):
the position lies behind the beginning of the epoch, behind what the group has got here and behind
the offset that is stored for it, and comes over a connection that was not served before. A slave
cannot tell: while an epoch is young it leaves consumers behind its beginning to the master
(`is_unsure`). A consumer may have missed more than one change of masters, so the first epoch that
is young counts.

From consumers whose pulls carry no offset to store (broadcasting, lite pull), and after a restart
of the master in an epoch that is not young, positions within the queue are believed. A stock push
consumer is one of them until it has consumed something: what such pulls are given counts as served,
unless their own position may be of another log. In the first epoch nothing can have parted, and
everything is as in 4.9.8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.model.offsets import PhysicalOffset, QueueOffset
    from rmq.store.store import MessageStore

YOUNG_S: Final = 90.0
"""For this long after its first message an epoch is young. Within that time the master has heard
of all consumers: they ask for the route and send heartbeats every 30 s. Offsets that come later
from others than consumers are an operator's."""


class _Served(NamedTuple):
    """How far a group has been served from a queue, and over which connection last."""

    next_offset: float
    peer: str


@final
class Parting:
    """Tells which positions of consumers may be of another log."""

    def __init__(
        self,
        store: MessageStore,
        partings: Callable[[], Sequence[PhysicalOffset]],
        *,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`partings` are the physical offsets where epochs began, but for the first one, in order:
        from each on the log may be another one than that of the master before.
        """
        self._queues = store.queues
        self._reads = store.reads
        self._partings = partings
        self._now_ms = now_ms
        self._first_ms: dict[int, int] = {}
        """When the first message behind a parting was stored."""
        self._began_ms: int | None = None
        """When this broker began to record what it serves; None if it does not."""
        self._served: dict[tuple[str, str, int], _Served] = {}

    # --- a master that began the epoch itself ---

    def begin(self) -> None:
        """The broker begins an epoch: from now on it knows what it gives to consumers."""
        self._began_ms = self._now_ms()
        self._served.clear()

    def go_on(self) -> None:
        """The broker is master: it may have been restarted right after it began its epoch."""
        partings = self._partings()
        if self._began_ms is None and partings and self._has_young_begin(partings[-1]):
            self.begin()

    def end(self) -> None:
        """The broker is master no longer."""
        self._began_ms = None
        self._served.clear()

    @property
    def has_begun(self) -> bool:
        """Whether this broker knows what it gives to consumers: `served` is to be called."""
        return self._began_ms is not None

    @property
    def is_recent(self) -> bool:
        """Whether there may be consumers that this broker has not heard of yet."""
        return self._began_ms is not None and self._is_young(self._began_ms)

    def _is_young(self, began_ms: int) -> bool:
        return self._now_ms() < began_ms + YOUNG_S * 1000

    def _has_young_begin(self, parting: PhysicalOffset) -> bool:
        """Tell whether an epoch is young, or has no message yet."""
        first_ms = self._first_ms.get(parting)
        if first_ms is None:
            first = self._reads.record_at(parting)
            if first is None:
                return True
            first_ms = self._first_ms[parting] = first.store_ms
        return self._is_young(first_ms)

    def served(
        self, peer: str, group: str, topic: str, queue_id: int, next_offset: int, *, is_sent: bool
    ) -> None:
        """A pull was answered, after which a consumer goes on at `next_offset`; if it `is_sent` to
        a slave, it may come back from anywhere in this log.
        """
        key = (group, topic, queue_id)
        before = self._served.get(key)
        end = math.inf if is_sent else float(next_offset)
        if before is not None:
            end = max(end, before.next_offset)
        self._served[key] = _Served(end, peer)

    def is_foreign(
        self, peer: str, group: str, topic: str, queue_id: int, offset: int, stored: int
    ) -> bool:
        """Tell whether a consumer with this position has not read the messages before it here.

        `stored` is the offset that its group has, negative if none.
        """
        if self._began_ms is None or offset <= stored:
            return False
        served = self._served.get((group, topic, queue_id))
        if served is not None and (served.peer == peer or offset <= served.next_offset):
            return False
        begin = self._begin_of(topic, queue_id, self._parted_at())
        return begin is not None and offset > begin

    def _parted_at(self) -> PhysicalOffset | None:
        """Return where the first young epoch began, or the last one; None in the very first."""
        parted_at: PhysicalOffset | None = None
        for parting in reversed(self._partings()):
            if parted_at is not None and not self._has_young_begin(parting):
                break
            parted_at = parting
        return parted_at

    def _begin_of(
        self, topic: str, queue_id: int, parted_at: PhysicalOffset | None
    ) -> QueueOffset | None:
        """Return the first offset of a queue behind a parting; None if there is no such queue."""
        queue = self._queues.get(topic, queue_id)
        if parted_at is None or queue is None:
            return None
        return min(queue.end_below(parted_at), queue.next_offset)

    # --- a slave ---

    def is_unsure(self, topic: str, queue_id: int, offset: int, stored: int) -> bool:
        """Tell whether a slave should leave a consumer with this position to the master.

        Later it need not: consumers have been to the master by then. `stored` is the offset that
        its group has, negative if none.
        """
        partings = self._partings()
        if offset <= stored or not partings or not self._has_young_begin(partings[-1]):
            return False
        begin = self._begin_of(topic, queue_id, self._parted_at())
        return begin is not None and offset > begin

    # --- any broker ---

    def is_other(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether an offset cannot have been read here, but at the master before.

        It can if it is hidden here (hideUnreplicated): a slave may have shown it. Of a slave it may
        be said too often, if that is behind its master: then the group reads some messages again.
        """
        if not self._partings():
            return False
        queue = self._queues.get(topic, queue_id)
        return offset > (0 if queue is None else max(queue.next_offset, queue.assigned))

    def resume_at(self, topic: str, queue_id: int, stored: int) -> int | None:
        """Return where a consumer goes on whose position is of another log; None if no change of
        masters explains that.

        `stored` is the offset that its group has, negative if none. That is of this log: others are
        not stored.
        """
        begin = self._begin_of(topic, queue_id, self._parted_at())
        queue = self._queues.get(topic, queue_id)
        if begin is None or queue is None:
            return None
        wanted = min(stored, queue.next_offset) if stored >= 0 else begin
        return max(wanted, queue.min_offset)
