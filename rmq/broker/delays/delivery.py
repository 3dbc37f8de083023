"""Delayed messages: from the schedule topic to where they belong, when their time has come.

Each level has a queue of SCHEDULE_TOPIC_XXXX, whose entries hold in place of a tags code when the
message is due. All messages of a level have the same delay, so a queue is in the order of delivery
and only its head has to be checked. What is due is appended as a new message of its real topic,
with the stored properties as they are (RocketMQ 4.9.8 ScheduleMessageService).

`DelayDelivery` decides and appends; `run` beside it only waits. Unlike 4.9.8, which checks every
100 ms, it waits for the exact time. And progress is saved only as far as the delivered messages are
on disk: otherwise a power cut could leave the saved progress ahead of the log, and messages lost.

The file also says on how much of the log progress rests, for the case that the log is cut
(`rmq.broker.delays.file`).

Only a master delivers. A slave keeps the progress of its master (`adopt`), as far as its own log
has what was delivered, so that it goes on right there when it becomes the master: `start`, then
`run` as a task. When a master becomes a slave, that task is cancelled, the store is flushed, and
then `stop` is called. All of that may happen any number of times.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.delays.file import SavedDelays
from rmq.broker.tables.progress_trail import ProgressTrail
from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.model.properties import REAL_QUEUE_ID, REAL_TOPIC
from rmq.model.record import NewMessage
from rmq.remoting.bodies import DelayOffsetSerializeWrapper
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmq.broker.stats.broker import BrokerStats
    from rmq.model.record import StoredRecord
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

GROUP: Final = "SCHEDULE_CONSUMER"
"""The group under which deliveries are counted."""
RETRY_MS: Final = 100
"""After a delivery that the store refused."""
LOOK_INTERVAL_S: Final = 1.0
"""The wall clock is read at least this often: it may have been set."""
_STEP_MESSAGES: Final = 256
"""Messages per step: a few milliseconds, in which no other task runs."""
_STEP_BYTES: Final = 4 * 1024 * 1024


@final
class DelayDelivery:
    """Delivers the delayed messages of one broker."""

    def __init__(
        self,
        store: MessageStore,
        levels_ms: tuple[int, ...],
        stats: BrokerStats,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._levels_ms = levels_ms
        self._stats = stats
        self._store_stats = stats.store
        self._now_ms = now_ms
        self._offsets: dict[int, ConsumerOffset] = {}
        """By level, the queue offset of the first message not yet delivered."""
        self._undurable: dict[int, deque[tuple[PhysicalOffset, ConsumerOffset]]] = {}
        """By level, where in the log deliveries end and the queue offset behind them."""
        self._durable: dict[int, ConsumerOffset] = {}
        self._rests_on = PhysicalOffset(0)
        """Where in the log the deliveries end that `_durable` counts."""
        self._trail = ProgressTrail()
        self._refused: dict[int, str] = {}
        """By level, why the store does not take its messages."""
        self._next_due_ms: int | None = None
        self._earlier = trio.Event()
        self._changes = 0
        self.is_started = False

    # --- progress ----------------------------------------------------------------------------

    def load(self, text: str) -> None:
        """Apply saved progress; raise `BodyError` or `MalformedJsonError`."""
        saved = SavedDelays.decode(text.encode())
        # Levels that the settings do not have any longer are kept: they may come back.
        self._go_on_at(saved.offset_table)
        self._trail.load(saved.trail)
        self._rests_on = self._trail.last_end

    def begin_trail(self, log_end: PhysicalOffset) -> None:
        """Take loaded progress of a file that does not say on what it rests, that of a stock broker
        for instance, for that of a log which ends at `log_end`.
        """
        if not self._trail and self._durable:
            self._rests_on = log_end
            self._trail.note(log_end, self._durable)
            self._changes += 1

    def adopt(self, offsets: Mapping[int, int], log_end: PhysicalOffset) -> None:
        """Apply the progress of a master; it never goes back.

        What the master has delivered by then lies before `log_end`, which the log here must have
        come to. A progress beyond the end of its queue is kept: the queue may still be behind the
        log.
        """
        assert not self.is_started, "a broker that delivers has the latest progress itself"
        for level, offset in offsets.items():
            if offset > self._offsets.get(level, -1):
                self._advance(level, ConsumerOffset(offset), log_end)

    def _go_on_at(self, offsets: Mapping[int, int]) -> None:
        """Replace the progress by this one, as far as the queues go."""
        self._offsets = {level: self._within(level, offset) for level, offset in offsets.items()}
        self._durable = dict(self._offsets)
        self._undurable.clear()

    def _within(self, level: int, offset: int) -> ConsumerOffset:
        """Return saved progress as far as its queue goes: what a power cut took was not delivered.

        Saved by this broker it never goes further, by a stock one it may; and that of a master may
        before its log is here.
        """
        queue = self._queue(level)
        end = 0 if queue is None else queue.next_offset
        if offset > end:
            logger.warning("delay level %d was at %d, but its queue ends at %d", level, offset, end)
        return ConsumerOffset(max(0, min(offset, end)))

    def render(self) -> str:
        """Return the progress to be saved: as far as its outcome is on disk."""
        body = self.to_body()
        return SavedDelays(offset_table=body.offset_table, trail=self._trail.table()).text()

    def to_body(self) -> DelayOffsetSerializeWrapper:
        self._update_durable()
        return DelayOffsetSerializeWrapper(offset_table=dict(sorted(self._durable.items())))

    @property
    def changes(self) -> int:
        """A number that moves with the progress to be saved."""
        self._update_durable()
        return self._changes

    def _update_durable(self) -> None:
        """Note what has become durable."""
        flushed = self._store.log.flushed
        changes = self._changes
        for level, done in self._undurable.items():
            while done and done[0][0] <= flushed:
                log_end, self._durable[level] = done.popleft()
                self._rests_on = max(self._rests_on, log_end)
                self._changes += 1
        if self._changes != changes:
            self._trail.note(self._rests_on, self._durable)

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return, for each level that was used, the delivered and the last offset."""
        found: dict[int, tuple[int, int]] = {}
        for level, offset in sorted(self._offsets.items()):
            queue = self._queue(level)
            found[level] = (offset, 0 if queue is None else queue.next_offset)
        return found

    # --- delivery ----------------------------------------------------------------------------

    def start(self) -> None:
        """Get ready to deliver: `run` may begin.

        The queues must have all that is in the log, because progress is cut to their ends here.
        Beyond an end nothing was delivered: what comes next would be skipped.
        """
        for level, offset in self._offsets.items():
            end = self._within(level, offset)
            if end < offset:
                self._offsets[level] = end
                if level in self._durable:
                    self._durable[level] = min(end, self._durable[level])
                done = self._undurable.get(level, ())
                self._undurable[level] = deque((log_end, min(end, to)) for log_end, to in done)
                self._changes += 1
        self._refused.clear()
        self._next_due_ms = None
        self.is_started = True
        for level in range(1, len(self._levels_ms) + 1):
            self._store.queues.open(SCHEDULE_TOPIC, level - 1).is_watched = True

    def stop(self) -> None:
        """Stop delivering, after `run` was cancelled; only progress that is on disk is kept.

        So the store is to be flushed first. Held pulls of the schedule topic are woken by the
        sweep of held pulls, as always in 4.9.8 on a slave.
        """
        self.is_started = False
        for level in range(1, len(self._levels_ms) + 1):
            queue = self._queue(level)
            if queue is not None:
                queue.is_watched = False
        self._update_durable()
        self._go_on_at(self._durable)
        self._changes += 1
        self._next_due_ms = None

    def message_arrived(self, due_ms: int) -> None:
        """A message was put into the schedule topic."""
        if self._next_due_ms is None or due_ms < self._next_due_ms:
            self._next_due_ms = due_ms
            self._earlier.set()

    def deliver(self) -> int | None:
        """Deliver what is due by now; return when the next is due, None if there is none."""
        for _ in self._delivering():
            pass
        return self._next_due_ms

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._earlier = trio.Event()
            for _ in self._delivering():
                await trio.lowlevel.checkpoint()
            wait_s = LOOK_INTERVAL_S
            if self._next_due_ms is not None:
                wait_s = min(wait_s, (self._next_due_ms - self._now_ms()) / 1000)
            if wait_s <= 0:
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(wait_s):
                    await self._earlier.wait()

    def _delivering(self) -> Iterator[None]:
        """Deliver some of what is due by now of each level, in steps that do not take long."""
        self._next_due_ms = None
        for level in range(1, len(self._levels_ms) + 1):
            before = self._offsets.get(level)
            due_ms = self._deliver_level(level, self._now_ms())
            if due_ms is not None and (self._next_due_ms is None or due_ms < self._next_due_ms):
                self._next_due_ms = due_ms
            if self._offsets.get(level) != before:
                yield

    def _deliver_level(self, level: int, now_ms: int) -> int | None:
        """Deliver a step's worth of one level; return when the next of its messages is due."""
        queue = self._queue(level)
        if queue is None:
            return None
        first = offset = self._offset_in(queue, level)
        delay_ms = self._levels_ms[level - 1]
        taken = size = 0
        log_end: PhysicalOffset | None = None
        next_due_ms: int | None = None
        while offset < queue.next_offset:
            if offset - first >= _STEP_MESSAGES or size >= _STEP_BYTES:
                next_due_ms = now_ms
                break
            entry = queue.entry(offset)
            if entry is None:
                logger.error(
                    "delay level %d has no entry at offset %d; it is skipped", level, offset
                )
                offset = ConsumerOffset(min(queue.start_of_next_segment(offset), queue.next_offset))
                continue
            physical, _, due_ms = entry
            # What lies further ahead than the delay itself was written by another clock.
            if now_ms < due_ms <= now_ms + delay_ms:
                next_due_ms = due_ms
                break
            record = self._store.reads.record_at(physical)
            message = None if record is None else self._restored(record)
            if message is not None:
                # One by one: of several, one might be taken although one before it is not.
                (result,) = self._store.append([message])
                if result.status is AppendStatus.PUT_OK:
                    log_end = result.end_offset
                    taken += 1
                    size += result.size
                    self._stats.put(message.topic, message.queue_id, 1, result.size)
                elif _is_hopeless(result.status):
                    logger.error(
                        "the delayed message at physical offset %d cannot be delivered to topic"
                        " %s, it is left where it is: %s",
                        physical,
                        message.topic,
                        result.reason,
                    )
                else:
                    self._note_refusal(level, result.reason)
                    next_due_ms = now_ms + RETRY_MS
                    break
            offset += 1
        if offset > first:
            self._advance(level, offset, log_end)
        if taken:
            self._refused.pop(level, None)
            self._stats.get_delayed(GROUP, level - 1, taken, size)
            self._stats.broker_put(taken)
            self._store_stats.put(taken, size)
        return next_due_ms

    def _note_refusal(self, level: int, reason: str) -> None:
        """Log once why deliveries have to wait, not at every attempt."""
        self._store_stats.put_failed()
        if self._refused.get(level) != reason:
            self._refused[level] = reason
            logger.warning("delivery of delay level %d is tried again: %s", level, reason)

    def _offset_in(self, queue: ConsumeQueue, level: int) -> ConsumerOffset:
        """Return where to go on in a level, within what the queue has."""
        offset = self._offsets.get(level, ConsumerOffset(0))
        if queue.min_offset <= offset <= queue.next_offset:
            return offset
        if level in self._offsets:
            # Its messages expired, or the queue was deleted and has begun again.
            logger.warning(
                "delay level %d was at %d, but its queue has %d to %d; going on at %d",
                level,
                offset,
                queue.min_offset,
                queue.next_offset,
                queue.min_offset,
            )
        offset = ConsumerOffset(queue.min_offset)
        self._advance(level, offset, None)
        return offset

    def _advance(self, level: int, offset: ConsumerOffset, log_end: PhysicalOffset | None) -> None:
        """Note that a level has come to `offset`; what it delivered ends at `log_end`."""
        self._offsets[level] = offset
        done = self._undurable.setdefault(level, deque())
        if log_end is None:
            log_end = done[-1][0] if done else PhysicalOffset(0)
        done.append((log_end, offset))

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._store.queues.get(SCHEDULE_TOPIC, level - 1)

    def _restored(self, record: StoredRecord) -> NewMessage | None:
        """Return a parked message as the one it was meant to be, None if that cannot be."""
        properties = record.properties
        topic = properties.get(REAL_TOPIC)
        queue_id = properties.get(REAL_QUEUE_ID, "")
        if topic is None or not queue_id.isascii() or not queue_id.isdecimal():
            logger.error(
                "the delayed message at physical offset %d does not say where it belongs;"
                " it is left where it is",
                record.physical_offset,
            )
            return None
        if topic == HALF_TOPIC:
            logger.error(
                "the delayed message at physical offset %d is half a transaction; it is dropped",
                record.physical_offset,
            )
            return None
        return NewMessage(
            topic,
            int(queue_id),
            record.body,
            record.properties_bytes,
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            record.reconsume_times,
        )


def _is_hopeless(status: AppendStatus) -> bool:
    """Tell whether a message will be refused however often it is tried."""
    return status in (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)
