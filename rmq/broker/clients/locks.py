"""Which client may consume a queue in order: the locks of orderly consumers.

A lock belongs to one client of a group and lapses unless the client asks for it again. Rules of
RocketMQ 4.9.8 RebalanceLockManager: a client gets a queue if it is free, already its own, or its
lock has lapsed; only the owner can give it back. Locks live in memory: after a restart clients ask
again, within the 20 s of their timer. There are at most `LOCKS_MAX`; at that bound a free queue is
locked for no client, and clients ask again.

A request may name thousands of queues. Its caller hands them over some at a time, with other work
in between, and each queue still has one owner at any time: a batch is not all or nothing in 4.9.8
either. What was done for the whole request is counted in a `LockTally`, for one line in the log.

Times are seconds of the monotonic clock, given by the caller: a step of the wall clock must not
hand a queue to two clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from rmq.model.queues import MessageQueue

LOCK_LIVE_MS: Final = 60_000
LOCKS_MAX: Final = 200_000
"""Of all groups together; some 70 MB. A broker has one for each queue of each orderly group."""
_CHECKED_PER_STEP: Final = 500


@final
class LockTally:
    """What happened to the queues of one request."""

    def __init__(self) -> None:
        self.changed = 0
        """Queues that were locked, or given back."""
        self.lapsed = 0
        """Of those that were locked: they had been another client's."""
        self.refused = 0
        """Queues that are another client's, or that no lock is left for."""
        self.first_refused: tuple[MessageQueue, str] | None = None
        """One of them, and why."""

    def refuse(self, queue: MessageQueue, why: str) -> None:
        self.refused += 1
        if self.first_refused is None:
            self.first_refused = queue, why

    @property
    def text(self) -> str:
        """What happened, for the log; empty if nothing changed and nothing was refused."""
        parts: list[str] = []
        if self.changed:
            parts.append(f"{self.changed} queues")
        if self.lapsed:
            parts.append(f"{self.lapsed} of them after the lock of another client had lapsed")
        if self.first_refused is not None:
            queue, why = self.first_refused
            name = f"queue {queue.queue_id} of {queue.topic}"
            parts.append(f"not {self.refused} others, {name} for one: {why}")
        return ", ".join(parts)


@final
class _Lock:
    __slots__ = ("client_id", "renewed_at")

    def __init__(self, client_id: str, renewed_at: float) -> None:
        self.client_id = client_id
        self.renewed_at = renewed_at


@final
class QueueLocks:
    """The locks of all groups."""

    def __init__(self, live_ms: int = LOCK_LIVE_MS, *, locks_max: int = LOCKS_MAX) -> None:
        self._live_s = live_ms / 1000
        self._locks_max = locks_max
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock_batch(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        now: float,
        tally: LockTally | None = None,
    ) -> set[MessageQueue]:
        """Lock what can be locked, renew what the client has; return the queues it holds now."""
        tally = tally or LockTally()
        locks = self._groups.setdefault(group, {})
        held: set[MessageQueue] = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= self._locks_max:
                    tally.refuse(queue, f"there are {self._locks_max} locks already")
                    continue
                self._count += 1
                locks[queue] = _Lock(client_id, now)
                tally.changed += 1
            elif lock.client_id == client_id:
                lock.renewed_at = now
            elif self._lapsed(lock, now):
                lock.client_id = client_id
                lock.renewed_at = now
                tally.changed += 1
                tally.lapsed += 1
            else:
                # Ordinary while a group rebalances: the owner has not unlocked it yet.
                tally.refuse(queue, f"it is locked by {lock.client_id}")
                continue
            held.add(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock_batch(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        tally: LockTally | None = None,
    ) -> None:
        """Give back the queues that the client holds; others are left alone."""
        tally = tally or LockTally()
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id == client_id:
                self._remove(locks, queue)
                tally.changed += 1
            else:
                tally.refuse(queue, f"it is locked by {lock.client_id}")
        self._forget_if_empty(group, locks)

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """Return the id of the client that holds a queue; None if it is free."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._lapsed(lock, now) else lock.client_id

    def expiring(self, now: float) -> Generator[None, None, int]:
        """Remove lapsed locks, in steps of about a millisecond; return how many.

        A lapsed lock means the same as none.
        """
        forgotten = checked = 0
        for group, locks in list(self._groups.items()):
            for queue in list(locks):
                lock = locks.get(queue)
                if lock is not None and self._lapsed(lock, now):
                    self._remove(locks, queue)
                    forgotten += 1
                checked += 1
                if checked % _CHECKED_PER_STEP == 0:
                    yield
            self._forget_if_empty(group, locks)
        return forgotten

    def __len__(self) -> int:
        return self._count

    def _remove(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        del locks[queue]
        self._count -= 1

    def _forget_if_empty(self, group: str, locks: dict[MessageQueue, _Lock]) -> None:
        # Between two steps a group may have been forgotten, and begun again with other locks.
        if not locks and self._groups.get(group) is locks:
            del self._groups[group]

    def _lapsed(self, lock: _Lock, now: float) -> bool:
        return now - lock.renewed_at > self._live_s
