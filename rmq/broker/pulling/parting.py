"""Positions of consumers in a log that is not the one of this broker.

Before a failover consumers may have read what the new master never got. They go on with a position
in the other log, and other messages have taken those places here. Such a consumer is sent to where
the two logs may have parted: the beginning of the present epoch. It reads some messages again and
misses none. RocketMQ 4.9.8 lets it go on, or sends it to the end of the queue: behind all that came
in since.

A position behind the end of its queue cannot have been read here. One within the queue can be told
by a master that began the epoch itself, since it knows what it has given to whom (`served`): the
position lies behind the beginning of the epoch, behind what the group has got here and behind the
offset that is stored for it, and comes over a connection that was not served before. After a
restart of that master, and from consumers whose pulls carry no offset to store (broadcasting, lite
pull), positions within the queue are believed.

In the first epoch nothing can have parted, and everything is as in 4.9.8.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.store import MessageStore

UNHEARD_S: Final = 90.0
"""Within this time after a promotion consumers have been heard of: they look at the route and send
heartbeats every 30 s. Whoever stores offsets later without being a consumer is an operator."""


class _Served(NamedTuple):
    """How far a group has been served from a queue, and over which connection last."""

    next_offset: float
    peer: str


@final
class Parting:
    """Tells what may be of another log."""

    def __init__(
        self,
        store: MessageStore,
        parted_at: Callable[[], int | None],
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`parted_at` tells from which physical offset on the log may be another one than that of
        the master before; None if there was no other.
        """
        self._queues = store.queues
        self._parted_at = parted_at
        self._clock = clock
        self._began_at: float | None = None
        """When this broker began the present epoch; None if it did not."""
        self._served: dict[tuple[str, str, int], _Served] = {}

    # --- a master that began the epoch itself ---

    def begin(self) -> None:
        """The broker begins an epoch: from now on it knows what it gives to consumers."""
        self._began_at = self._clock()
        self._served.clear()

    def end(self) -> None:
        """The broker is master no longer."""
        self._began_at = None
        self._served.clear()

    @property
    def has_begun(self) -> bool:
        """Whether this broker has begun the present epoch: `served` wants to be told."""
        return self._began_at is not None

    @property
    def is_recent(self) -> bool:
        """Whether there may be consumers that this broker has not heard of yet."""
        return self._began_at is not None and self._clock() < self._began_at + UNHEARD_S

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
        if self._began_at is None or offset <= stored:
            return False
        served = self._served.get((group, topic, queue_id))
        if served is not None and (served.peer == peer or offset <= served.next_offset):
            return False
        begin = self._begin_of(topic, queue_id)
        return begin is not None and offset > begin

    def _begin_of(self, topic: str, queue_id: int) -> int | None:
        """Return the first offset of a queue in the present epoch; None if that is the first one,
        or there is no such queue.
        """
        parted_at, queue = self._parted_at(), self._queues.get(topic, queue_id)
        if parted_at is None or queue is None:
            return None
        return min(queue.end_below(parted_at), queue.next_offset)

    # --- any broker ---

    def is_other(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether an offset cannot have been read here, but at the master before.

        It can if it is hidden here (hideUnreplicated): a slave may have shown it. Of a slave it may
        be said too often, if that is behind its master: then the group reads some messages again.
        """
        if self._parted_at() is None:
            return False
        queue = self._queues.get(topic, queue_id)
        return offset > (0 if queue is None else max(queue.next_offset, queue.assigned))

    def resume_at(self, topic: str, queue_id: int, stored: int) -> int | None:
        """Return where a consumer goes on whose position is of another log; None if no change of
        masters explains that.

        `stored` is the offset that its group has, negative if none. It does not go on behind it:
        the logs may have parted in an earlier epoch, of which the group has seen nothing.
        """
        begin, queue = self._begin_of(topic, queue_id), self._queues.get(topic, queue_id)
        if begin is None or queue is None:
            return None
        if stored >= 0:
            begin = min(begin, stored)
        return max(begin, queue.min_offset)
