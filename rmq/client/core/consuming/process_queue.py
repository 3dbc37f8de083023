"""The messages of one queue that a consumer has pulled and not finished yet. Pure.

A message is waiting, then taken for processing, then removed when it is finished. The group has
finished everything below `commit_offset`, the smallest unfinished offset, which never passes a
message that is waiting or taken, whatever the order in which messages are finished.

    pulled = ProcessQueue(queue, start_offset, now)
    pulled.put(result.messages, result.next_offset)
    batch = pulled.take(32, now)
    ...                                 # concurrently: finish them in any order
    offset = pulled.remove(batch)       # or pulled.give_back(batch), to take them again

All of it is O(1) per message, on average. Times are seconds of any clock that never jumps.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from rmq.remoting.bodies import ProcessQueueInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue

LOCK_LIFE_S: Final = 30.0
"""A lock of a queue that was not renewed for so long counts as lost. (Brokers keep it for 60 s.)"""
PULL_LIFE_S: Final = 120.0
"""A queue that was not pulled for so long is dropped, and restarted by a rebalance."""
_MIB: Final = 1024**2


@final
class ProcessQueue:
    """Messages of one queue that were pulled and are not finished. Empty for good after `drop`."""

    def __init__(self, queue: MessageQueue, start_offset: int, now: float) -> None:
        self.queue = queue
        self.is_dropped = False
        self.count = 0
        """Messages that are waiting or taken."""
        self.stored_bytes = 0
        """Their size, as brokers store them."""
        self.last_pull_at = now
        self.last_consume_at = now
        self.failed_unlocks = 0
        """How often giving up the lock was put off because messages were being processed."""
        self._next_offset = start_offset
        # Everything unfinished, by offset.
        self._pending: dict[int, ReceivedMessage] = {}
        # Their offsets, ascending. Finished ones at both ends are removed on access.
        self._offsets: deque[int] = deque()
        self._waiting: deque[ReceivedMessage] = deque()
        # Offsets of what is being processed.
        self._taken: set[int] = set()
        self._locked_at: float | None = None

    # --- filling -----------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The offset up to which messages were pulled: where the next pull begins."""
        return self._next_offset

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> int:
        """Take in what a pull brought; return how many messages that are.

        What lies below `next_offset` and was not among them, in this pull or before, is not for
        this consumer and counts as finished. Messages that were here before are left out.
        """
        if self.is_dropped:
            return 0
        fresh = messages
        if messages and messages[0].queue_offset < self._next_offset:
            fresh = [it for it in messages if it.queue_offset >= self._next_offset]
        offsets = [it.queue_offset for it in fresh]
        if not _ascend(offsets):
            fresh = list({it.queue_offset: it for it in fresh}.values())
            fresh.sort(key=_offset_of)
            offsets = [it.queue_offset for it in fresh]
        if offsets:
            self._pending.update(zip(offsets, fresh, strict=True))
            self._offsets.extend(offsets)
            self._waiting.extend(fresh)
            self.count += len(offsets)
            self.stored_bytes += sum([it.stored_bytes for it in fresh])
            self._next_offset = offsets[-1] + 1
        if next_offset > self._next_offset:
            self._next_offset = next_offset
        return len(offsets)

    def blocked_by(
        self, *, messages_max: int, bytes_max: int, span_max: int | None = None
    ) -> str | None:
        """Return why no more should be pulled now; None: go on."""
        if self.count > messages_max:
            return f"{self.count} messages are not finished, above {messages_max}"
        if self.stored_bytes > bytes_max:
            return f"{self.stored_bytes} bytes are not finished, above {bytes_max}"
        if span_max is not None and self.count and self.span > span_max:
            return f"unfinished offsets span {self.span}, above {span_max}"
        return None

    @property
    def span(self) -> int:
        """How far the first and the last unfinished message are apart."""
        first = self._first()
        return 0 if first is None else self._last() - first

    # --- processing --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many messages could be taken now."""
        return self.count - len(self._taken)

    def take(self, count: int, now: float) -> list[ReceivedMessage]:
        """Give out up to `count` waiting messages, the first ones first."""
        batch: list[ReceivedMessage] = []
        if self.is_dropped:
            return batch
        waiting, pending, taken = self._waiting, self._pending, self._taken
        while waiting and len(batch) < count:
            message = waiting.popleft()
            offset = message.queue_offset
            # Others were removed without being taken.
            if offset in pending:
                taken.add(offset)
                batch.append(message)
        self.last_consume_at = now
        return batch

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Messages are finished: return where the group goes on in the queue.

        Those that are not here, or not any longer, are left out.
        """
        pending, taken = self._pending, self._taken
        for message in messages:
            offset = message.queue_offset
            found = pending.pop(offset, None)
            if found is not None:
                taken.discard(offset)
                self.count -= 1
                self.stored_bytes -= found.stored_bytes
        if not pending:
            # Who removes without taking leaves these behind.
            self._waiting.clear()
        return self.commit_offset

    def give_back(self, messages: Iterable[ReceivedMessage]) -> None:
        """Taken messages are to be taken again, before all that are waiting."""
        back: list[ReceivedMessage] = []
        for message in messages:
            if message.queue_offset in self._taken:
                self._taken.remove(message.queue_offset)
                back.append(message)
        back.sort(key=_offset_of, reverse=True)
        self._waiting.extendleft(back)

    @property
    def commit_offset(self) -> int:
        """The smallest offset that is not finished."""
        first = self._first()
        return self._next_offset if first is None else first

    # --- coming and going --------------------------------------------------------------------

    def drop(self) -> None:
        """The queue is not this consumer's any longer: nothing comes in or goes out any more.

        What is being processed may still be finished. But the group's offset is another member's
        to store from now on, who may have come further already.
        """
        self.is_dropped = True

    def clear(self) -> None:
        """Forget all messages, finished or not. Only a dropped queue may: its offset is void."""
        assert self.is_dropped, f"{self.queue} is cleared and not dropped"
        self._pending.clear()
        self._offsets.clear()
        self._waiting.clear()
        self._taken.clear()
        self.count = self.stored_bytes = 0

    def is_pull_overdue(self, now: float) -> bool:
        """Whether the last pull is so long ago that the pull loop must have failed."""
        return now - self.last_pull_at > PULL_LIFE_S

    # --- the lock of a queue that is consumed in order ---------------------------------------

    def lock(self, now: float) -> None:
        """Note that the broker has confirmed the lock of the queue."""
        self._locked_at = now

    def unlock(self) -> None:
        self._locked_at = None

    def is_locked(self, now: float) -> bool:
        """Whether the lock was confirmed lately enough to be counted on."""
        return self._locked_at is not None and now - self._locked_at <= LOCK_LIFE_S

    # --- telling -----------------------------------------------------------------------------

    def info(self, *, now: float, now_ms: int, stored_offset: int) -> ProcessQueueInfo:
        """Return the running info of the queue (307); `stored_offset` is the consumer offset."""

        def at_ms(time: float) -> int:
            return now_ms - round((now - time) * 1000)

        taken = sorted(self._taken)
        first = self._first()
        return ProcessQueueInfo(
            commit_offset=stored_offset,
            cached_msg_min_offset=first or 0,
            cached_msg_max_offset=0 if first is None else self._last(),
            cached_msg_count=self.count,
            cached_msg_size_in_mib=self.stored_bytes // _MIB,
            transaction_msg_min_offset=taken[0] if taken else 0,
            transaction_msg_max_offset=taken[-1] if taken else 0,
            transaction_msg_count=len(taken),
            locked=self._locked_at is not None,
            try_unlock_times=self.failed_unlocks,
            last_lock_timestamp=0 if self._locked_at is None else at_ms(self._locked_at),
            droped=self.is_dropped,
            last_pull_timestamp=at_ms(self.last_pull_at),
            last_consume_timestamp=at_ms(self.last_consume_at),
        )

    def _first(self) -> int | None:
        offsets, pending = self._offsets, self._pending
        while offsets:
            if offsets[0] in pending:
                return offsets[0]
            offsets.popleft()
        return None

    def _last(self) -> int:
        """Return the last unfinished offset; there must be one."""
        offsets, pending = self._offsets, self._pending
        while offsets[-1] not in pending:
            offsets.pop()
        return offsets[-1]


def _offset_of(message: ReceivedMessage) -> int:
    return message.queue_offset


def _ascend(offsets: Sequence[int]) -> bool:
    """Return whether offsets are strictly increasing."""
    return all(map(int.__lt__, offsets, offsets[1:]))
