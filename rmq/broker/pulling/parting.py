"""Positions of consumers in a log that is not the one of this broker.

Before a failover consumers may have read what the new master never got. They go on with a position
in the other log. Where that lies behind the end of the queue here it can be told, and the consumer
is sent to where the two logs may have parted: the beginning of the present epoch. It reads some
messages again and misses none. RocketMQ 4.9.8 sends it to the end, behind all that came in since.
A position within the queue cannot be told from one that was read here.

In the first epoch nothing can have parted, and everything is as in 4.9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.store import MessageStore


@final
class Parting:
    """Tells what may be of another log."""

    def __init__(self, store: MessageStore, parted_at: Callable[[], int | None]) -> None:
        """`parted_at` tells from which physical offset on the log may be another one than that of
        the master before; None if there was no other.
        """
        self._queues = store.core.queues
        self._parted_at = parted_at

    def is_other(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether an offset cannot have been read here, but at the master before.

        It can if it is hidden here (hideUnreplicated): a slave may have shown it. Of a slave it may
        be said too often, if that is behind its master: then the group reads some messages again.
        """
        if self._parted_at() is None:
            return False
        queue = self._queues.get(topic, queue_id)
        return offset > (0 if queue is None else max(queue.next_offset, queue.assigned))

    def resume_at(self, topic: str, queue_id: int, offset: int, stored: int) -> int | None:
        """Return where a consumer goes on that asks for an offset behind the end of a queue; None
        if no change of masters explains that.

        `stored` is the offset that its group has, negative if none. It does not go on behind it:
        the logs may have parted in an earlier epoch, of which the group has seen nothing.
        """
        parted_at = self._parted_at()
        queue = self._queues.get(topic, queue_id)
        if parted_at is None or queue is None or not self.is_other(topic, queue_id, offset):
            return None
        begin = min(queue.end_below(parted_at), queue.next_offset)
        if stored >= 0:
            begin = min(begin, stored)
        return max(begin, queue.min_offset)
