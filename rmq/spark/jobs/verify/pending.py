"""Messages that a broker still has to deal with: undecided transactions and delayed messages.

A half message is decided when an op message names its queue offset, when the broker has passed it
(its progress is that of group CID_RMQ_SYS_TRANS), or when a later copy stands for it: brokers make
one each time they ask the producer. A delayed message is delivered when the progress of its level
has passed it. What is undecided or not delivered although its time was over long ago is a finding;
what is merely young or not yet due is counted. Where that is not known, nothing is claimed: the
store has no file of that progress, or more messages than are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import CorruptStoreError
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import REAL_TOPIC, UNIQ_KEY
from rmq.model.words import ms_text
from rmq.spark.jobs.store_offsets import delay_offsets, group_offsets
from rmq.store.reader.queue import is_gone, is_written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.model.record import StoredRecord
    from rmq.store.reader import Reader
    from rmq.store.reader.queue import QueueEntry

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which brokers read half and op messages."""
ENTRIES_MAX: Final = 1_000_000
"""How many messages of a queue are read."""
OVERDUE_MAX: Final = 10_000
"""How many overdue messages are kept; the others are counted."""


class Overdue(NamedTuple):
    """A message that should have been dealt with."""

    kind: str
    path: Path
    physical_offset: int
    queue_offset: int
    text: str


class Half(NamedTuple):
    """A half message, without its body: there may be very many."""

    entry: QueueEntry
    born_ms: int
    topic: str
    """Where it goes if it is committed."""


class TooManyError(Exception):
    """A queue has more messages to read than `ENTRIES_MAX`; the argument is its topic."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a broker still has to deal with."""

    half_messages: int
    delayed_messages: int
    overdue: tuple[Overdue, ...]
    overdue_left_out: int
    """How many more there are than `overdue` has."""
    unknown: tuple[str, ...]
    """What could not be told, and why."""

    @property
    def overdue_total(self) -> int:
        return len(self.overdue) + self.overdue_left_out


def find_pending(reader: Reader, log_end: int, now_ms: int, overdue_ms: int) -> Pending:
    """Return what is pending at a time; overdue is what should have been done `overdue_ms` ago."""
    check = _Check(reader, log_end, now_ms, overdue_ms)
    half, delayed = check.half(), check.delayed()
    return Pending(
        half, delayed, tuple(check.overdue), check.overdue_left_out, tuple(check.unknown)
    )


class _Check:
    """One check of a store."""

    def __init__(self, reader: Reader, log_end: int, now_ms: int, overdue_ms: int) -> None:
        self.overdue: list[Overdue] = []
        self.overdue_left_out = 0
        self.unknown: list[str] = []
        self._reader = reader
        self._log_end = log_end
        self._now_ms = now_ms
        self._overdue_ms = overdue_ms

    # --- transactions ------------------------------------------------------------------------

    def half(self) -> int:
        """Return how many half messages are undecided."""
        queue_ids = self._reader.queue_ids(HALF_TOPIC)
        offsets = group_offsets(self._reader.root)
        if queue_ids and offsets is None:
            self.unknown.append(
                "whether transactions were decided: there is no config/consumerOffset.json"
            )
            return 0
        passed = (offsets or {}).get((HALF_TOPIC, TRANSACTION_GROUP), {})
        op_passed = (offsets or {}).get((OP_HALF_TOPIC, TRANSACTION_GROUP), {})
        count = 0
        for queue_id in queue_ids:
            try:
                undecided = self._undecided(
                    queue_id, passed.get(queue_id, 0), op_passed.get(queue_id, 0)
                )
            except TooManyError as exc:
                self.unknown.append(
                    f"whether transactions of queue {queue_id} were decided: there are more than"
                    f" {ENTRIES_MAX:,} messages to read in {exc}"
                )
                continue
            count += len(undecided)
            for each in undecided:
                age_ms = self._now_ms - each.born_ms
                if age_ms > self._overdue_ms:
                    self._add(
                        "transaction",
                        HALF_TOPIC,
                        queue_id,
                        each.entry,
                        f"a half message of {each.topic} is undecided after {ms_text(age_ms)}",
                    )
        return count

    def _undecided(self, queue_id: int, start: int, op_start: int) -> list[Half]:
        """Return what is not decided; raise `TooManyError` if there are more than are read."""
        decided = {
            int(record.body)
            for _, record in self._records(OP_HALF_TOPIC, queue_id, QueueOffset(op_start))
            if record.body.isdigit() and len(record.body) < 20
        }
        last: dict[str, Half] = {}
        topics: dict[str, str] = {}
        for entry, record in self._records(HALF_TOPIC, queue_id, QueueOffset(start)):
            properties = record.properties
            # Without a name of its own a message has no copies that could be told.
            name = properties.get(UNIQ_KEY) or str(entry.queue_offset)
            if entry.queue_offset in decided:
                last.pop(name, None)
                continue
            topic = properties.get(REAL_TOPIC, "an unknown topic")
            last[name] = Half(entry, record.born_ms, topics.setdefault(topic, topic))
        return list(last.values())

    # --- delays ------------------------------------------------------------------------------

    def delayed(self) -> int:
        """Return how many delayed messages are not delivered."""
        queue_ids = self._reader.queue_ids(SCHEDULE_TOPIC)
        offsets = delay_offsets(self._reader.root)
        if queue_ids and offsets is None:
            self.unknown.append(
                "whether delayed messages were delivered: there is no config/delayOffset.json"
            )
            return 0
        count = 0
        for queue_id in queue_ids:
            level = queue_id + 1
            try:
                for entry in self._entries(
                    SCHEDULE_TOPIC, queue_id, QueueOffset((offsets or {}).get(level, 0))
                ):
                    count += 1
                    self._judge_delayed(queue_id, entry)
            except TooManyError:
                self.unknown.append(
                    f"all delayed messages of level {level} that are not delivered: there are more"
                    f" than {ENTRIES_MAX:,}"
                )
        return count

    def _judge_delayed(self, queue_id: int, entry: QueueEntry) -> None:
        late_ms = self._now_ms - entry.tags_code
        if late_ms > self._overdue_ms:
            self._add(
                "schedule",
                SCHEDULE_TOPIC,
                queue_id,
                entry,
                f"a delayed message of level {queue_id + 1} was due {ms_text(late_ms)} ago"
                " and is not delivered",
            )

    # --- both --------------------------------------------------------------------------------

    def _add(self, kind: str, topic: str, queue_id: int, entry: QueueEntry, text: str) -> None:
        if len(self.overdue) >= OVERDUE_MAX:
            self.overdue_left_out += 1
            return
        path = self._reader.queue_files(topic, queue_id).path_of(entry.queue_offset)
        self.overdue.append(Overdue(kind, path, entry.physical_offset, entry.queue_offset, text))

    def _entries(self, topic: str, queue_id: int, start: QueueOffset) -> Iterator[QueueEntry]:
        """Yield the entries from a queue offset on whose records the log has.

        Raises `TooManyError` where there are more than are read.
        """
        files = self._reader.queue_files(topic, queue_id)
        for count, entry in enumerate(files.entries(start, files.file_end)):
            if not is_written(entry):
                return
            if count == ENTRIES_MAX:
                raise TooManyError(topic)
            if entry.physical_offset + entry.size <= self._log_end and not is_gone(
                entry, self._reader.min_offset
            ):
                yield entry

    def _records(
        self, topic: str, queue_id: int, start: QueueOffset
    ) -> Iterator[tuple[QueueEntry, StoredRecord]]:
        for entry in self._entries(topic, queue_id, start):
            try:
                record = self._reader.log.record_at(
                    entry.physical_offset, PhysicalOffset(self._log_end), entry.size
                )
            except CorruptStoreError:
                continue  # the check of the log or of the queue names it
            if record is not None and record.queue_offset == entry.queue_offset:
                yield entry, record
