"""Which client may consume a queue in order: the locks of orderly consumers.

A lock belongs to one client of a group and lapses unless the client asks for it again. Rules of
RocketMQ 4.9.8 RebalanceLockManager: a client gets a queue if it is free, already its own, or its
lock has lapsed; only the owner can give it back. Locks live in memory: after a restart clients ask
again, within the 20 s of their timer.

Times are seconds of the monotonic clock, given by the caller: a step of the wall clock must not
hand a queue to two clients.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.model.queues import MessageQueue

logger = logging.getLogger(__name__)

LOCK_LIVE_MS: Final = 60_000


@final
class _Lock:
    __slots__ = ("client_id", "renewed_at")

    def __init__(self, client_id: str, renewed_at: float) -> None:
        self.client_id = client_id
        self.renewed_at = renewed_at


@final
class QueueLocks:
    """The locks of all groups."""

    def __init__(self, live_ms: int = LOCK_LIVE_MS) -> None:
        self._live_s = live_ms / 1000
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock_batch(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float
    ) -> set[MessageQueue]:
        """Lock what can be locked, renew what the client has; return the queues it holds now."""
        locks = self._groups.setdefault(group, {})
        held: set[MessageQueue] = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                locks[queue] = _Lock(client_id, now)
                logger.info("group %s: %s locked by %s", group, queue, client_id)
            elif lock.client_id == client_id:
                lock.renewed_at = now
            elif self._lapsed(lock, now):
                logger.warning(
                    "group %s: lock of %s by %s lapsed, now locked by %s",
                    group,
                    queue,
                    lock.client_id,
                    client_id,
                )
                lock.client_id = client_id
                lock.renewed_at = now
            else:
                # Ordinary while a group rebalances: the owner has not unlocked it yet.
                logger.info(
                    "group %s: %s cannot lock %s, it is locked by %s",
                    group,
                    client_id,
                    queue,
                    lock.client_id,
                )
                continue
            held.add(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock_batch(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back the queues that the client holds; others are left alone."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id == client_id:
                del locks[queue]
                logger.info("group %s: %s unlocked by %s", group, queue, client_id)
            else:
                logger.warning(
                    "group %s: %s cannot unlock %s, it is locked by %s",
                    group,
                    client_id,
                    queue,
                    lock.client_id,
                )
        if not locks:
            del self._groups[group]

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """Return the id of the client that holds a queue; None if it is free."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._lapsed(lock, now) else lock.client_id

    def expire(self, now: float) -> int:
        """Remove lapsed locks and return how many; a lapsed lock means the same as none."""
        forgotten = 0
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if self._lapsed(lock, now)]:
                del locks[queue]
                forgotten += 1
            if not locks:
                del self._groups[group]
        return forgotten

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def _lapsed(self, lock: _Lock, now: float) -> bool:
        return now - lock.renewed_at > self._live_s
