"""Checks the ConsumeQueues of a store against its log.

Every record that consumers may get must have its entry: at its queue offset, with its place, its
size and the code of its tag. Records come in the order of the log, each queue is read along with
them, so that nothing but a few entries per queue is kept in memory. When all records were seen,
what the queues have besides is checked.

What a stock broker leaves behind is no error: entries of records beyond the end of the log, and
after a recovery also old entries behind the last one in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model import flags
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import PropertyFinder, decode_text, find_delay, find_tags
from rmq.store.key_hash import TagCodes
from rmq.store.layout import QUEUE_ENTRY_BYTES
from rmq.store.reader.queue import QueueEntry, QueueFiles, is_gone, is_written
from rmq.store.verify.finding import DamagedRanges, Findings, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmq.model.record import RecordHead
    from rmq.store.reader import Reader

_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
_EXT_ADDRESS_MAX: Final = -(2**31) - 1
"""Codes up to this one are addresses in `consumequeue_ext`, where the code itself is."""
_CHUNK_ENTRIES: Final = 64

EXTRA_QUEUES: Final = b"INNER_MULTI_DISPATCH"
"""The property that names further queues of a message."""
_find_extra_queues = PropertyFinder(EXTRA_QUEUES.decode())
_find_extra_offsets = PropertyFinder("INNER_MULTI_QUEUE_OFFSET")


class QueuesCheck:
    """Checks all queues."""

    def __init__(
        self,
        reader: Reader,
        damaged: DamagedRanges,
        delay_levels_ms: Sequence[int],
        known_topics: frozenset[str] | None,
    ) -> None:
        self.findings = Findings(Kind.QUEUE)
        self.entries_checked = 0
        self._reader = reader
        self._damaged = damaged
        self._delay_levels_ms = delay_levels_ms
        self._known_topics = known_topics
        self._queues: dict[tuple[bytes, int], _QueueCheck] = {}
        self._tag_codes = TagCodes({b"": 0})

    @property
    def queue_count(self) -> int:
        return len(self._queues)

    def take(self, head: RecordHead) -> None:
        """Check the entry of the next record of the log."""
        kind = head.sys_flag & flags.TRANSACTION_MASK
        if kind not in (flags.TRANSACTION_NONE, flags.TRANSACTION_COMMIT):
            return
        tags_code = self._tags_code(head)
        self._queue(head.topic, head.queue_id).take(head, head.queue_offset, tags_code)
        self.entries_checked += 1
        if EXTRA_QUEUES in head.properties:
            self._take_extra(head, tags_code)

    def _take_extra(self, head: RecordHead, tags_code: int) -> None:
        """Check the entries in further queues of a message; the feature may be turned off."""
        names = decode_text(_find_extra_queues(head.properties)).split(",")
        offsets = decode_text(_find_extra_offsets(head.properties)).split(",")
        for name, offset in zip(names, offsets, strict=False):
            queue_id = 0 if name.startswith(_LIGHT_QUEUE_PREFIX) else head.queue_id
            queue = self._queue(name.encode(), queue_id)
            if queue.files.segments and offset.isascii() and offset.isdecimal():
                queue.take(head, QueueOffset(int(offset)), tags_code)

    def _queue(self, topic: bytes, queue_id: int) -> _QueueCheck:
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            files = self._reader.queue_files(decode_text(topic), queue_id)
            queue = _QueueCheck(files, self.findings, self._damaged, self._reader)
            self._queues[key] = queue
        return queue

    def _tags_code(self, head: RecordHead) -> int:
        if head.topic == _SCHEDULE_TOPIC:
            level = delay_level(find_delay(head.properties))
            if level > 0:
                level = min(level, len(self._delay_levels_ms))
                return head.store_ms + self._delay_levels_ms[level - 1]
        return self._tag_codes[find_tags(head.properties)]

    def finish(self, log_end: PhysicalOffset) -> None:
        """Check what the queues have besides the entries of records."""
        for topic in self._reader.topics():
            for queue_id in self._reader.queue_ids(topic):
                self._queue(topic.encode(), queue_id)
        for _, queue in sorted(self._queues.items()):
            queue.finish(log_end, self._known_topics)


class _QueueCheck:
    """Checks one queue."""

    def __init__(
        self, files: QueueFiles, findings: Findings, damaged: DamagedRanges, reader: Reader
    ) -> None:
        self.files = files
        self._findings = findings
        self._damaged = damaged
        self._reader = reader
        self._first: QueueOffset | None = None
        """The queue offset of the first record."""
        self._expected = QueueOffset(0)
        """The queue offset of the next record."""
        self._chunk: list[QueueEntry] = []
        self._missing: _MissingRun | None = None
        self._is_extended: bool | None = None

    # --- record by record ------------------------------------------------------------------

    def take(self, head: RecordHead, queue_offset: QueueOffset, tags_code: int) -> None:
        if self._first is None:
            self._first = queue_offset
        elif queue_offset != self._expected:
            self._report_jump(head, queue_offset)
        self._expected = queue_offset + 1
        entry = self._entry(queue_offset)
        if entry is None or not is_written(entry):
            self._note_missing(head, queue_offset)
            return
        if self._missing is not None:
            self._report_missing(Severity.ERROR)
        if entry.physical_offset != head.physical_offset or entry.size != head.size:
            self._wrong(
                head,
                queue_offset,
                f"the entry is for {entry.size} bytes at physical offset {entry.physical_offset},"
                f" the record has {head.size} at {head.physical_offset}",
            )
        elif entry.tags_code != tags_code:
            self._check_code(head, entry, tags_code)

    def _check_code(self, head: RecordHead, entry: QueueEntry, tags_code: int) -> None:
        if entry.tags_code <= _EXT_ADDRESS_MAX and self._has_extension():
            return
        text = f"the tags code is {entry.tags_code}, that of the record is {tags_code}"
        if head.topic == _SCHEDULE_TOPIC:
            text += " (a time: it depends on the messageDelayLevel of the broker)"
        self._wrong(head, entry.queue_offset, text)

    def _has_extension(self) -> bool:
        """Tell whether the codes of this queue are elsewhere, and note that the first time."""
        if self._is_extended is None:
            topic, queue_id = self.files.directory.parts[-2:]
            extension = self._reader.root / "consumequeue_ext" / topic / queue_id
            self._is_extended = extension.is_dir()
            if self._is_extended:
                self._findings.note(
                    self.files.directory, "tag codes are in consumequeue_ext and were not checked"
                )
        return self._is_extended

    def _wrong(self, head: RecordHead, queue_offset: QueueOffset, text: str) -> None:
        self._findings.error(
            self.files.path_of(queue_offset),
            text,
            physical_offset=head.physical_offset,
            queue_offset=queue_offset,
        )

    def _entry(self, queue_offset: QueueOffset) -> QueueEntry | None:
        chunk = self._chunk
        if not chunk or not chunk[0].queue_offset <= queue_offset <= chunk[-1].queue_offset:
            chunk = self._chunk = self.files.read(queue_offset, _CHUNK_ENTRIES)
            if not chunk:
                return None
        entry = chunk[queue_offset - chunk[0].queue_offset]
        if not is_written(entry) and self._reader.state.is_live:
            # It may have been written since the chunk was read.
            return next(iter(self.files.read(queue_offset, 1)), None)
        return entry

    def _report_jump(self, head: RecordHead, queue_offset: QueueOffset) -> None:
        expected = self._expected
        if queue_offset > expected and self._damaged:
            skipped = self.files.entries(expected, queue_offset)
            if all(entry.physical_offset in self._damaged for entry in skipped):
                return  # the records between were reported as damaged
        self._wrong(
            head,
            queue_offset,
            f"the record has queue offset {queue_offset}, the one before it in the queue has"
            f" {expected - 1}",
        )

    def _note_missing(self, head: RecordHead, queue_offset: QueueOffset) -> None:
        if self._missing is None:
            self._missing = _MissingRun(queue_offset, head.physical_offset)
        self._missing.count += 1

    def _report_missing(self, severity: Severity, why: str = "") -> None:
        run, self._missing = self._missing, None
        if run is not None:
            records = "record has no entry" if run.count == 1 else "records have no entry"
            self._findings.add(
                severity,
                self.files.path_of(run.queue_offset),
                f"{run.count} {records}{why}",
                run.physical_offset,
                run.queue_offset,
            )

    # --- what else is there ----------------------------------------------------------------

    def finish(self, log_end: PhysicalOffset, known_topics: frozenset[str] | None) -> None:
        state = self._reader.state
        if not self.files.segments and known_topics is not None:
            if self.files.topic not in known_topics:
                self._report_missing(Severity.NOTE, ": the topic was deleted")
        elif state.is_abort_present:
            self._report_missing(Severity.NOTE, " yet: it is added when a broker starts")
        self._report_missing(Severity.ERROR)
        self._check_files()
        if not state.is_live:
            self._check_before()
            self._check_behind(log_end)

    def _check_files(self) -> None:
        for path in self.files.foreign:
            self._findings.note(path, "no file of a ConsumeQueue; a stock broker stops here")
        previous = None
        for segment in self.files.segments:
            if segment.size % QUEUE_ENTRY_BYTES or segment.size == 0:
                self._findings.error(
                    segment.path, f"{segment.size} bytes are not a whole number of entries"
                )
            elif previous is not None and segment.size != previous.size:
                self._findings.error(
                    segment.path, f"{segment.size} bytes, the file before has {previous.size}"
                )
            if previous is not None and segment.first != previous.end:
                self._findings.error(
                    segment.path,
                    f"the files between this one and {previous.path.name} are missing",
                    queue_offset=QueueOffset(previous.end // QUEUE_ENTRY_BYTES),
                )
            previous = segment

    def _each(self, start: QueueOffset, stop: QueueOffset) -> Iterator[QueueEntry]:
        """Yield the entries there are, whatever is missing between them."""
        for segment in self.files.segments:
            first = QueueOffset(segment.first // QUEUE_ENTRY_BYTES)
            end = QueueOffset(segment.end // QUEUE_ENTRY_BYTES)
            yield from self.files.entries(max(start, first), min(stop, end))

    def _check_before(self) -> None:
        """What comes before the first record must be of messages that are gone."""
        if self._first is None:
            return
        for entry in self._each(self.files.first_offset, self._first):
            if not is_gone(entry, self._reader.min_offset) and not self._is_damaged(entry):
                self._stray(Severity.ERROR, entry)

    def _check_behind(self, log_end: PhysicalOffset) -> None:
        """What follows the last record must be nothing, or left over."""
        start = self.files.first_offset if self._first is None else self._expected
        follows_used = self._first is not None
        for entry in self._each(start, self.files.file_end):
            if not is_written(entry):
                return
            if is_gone(entry, self._reader.min_offset):
                follows_used = True
            elif entry.physical_offset < log_end and not self._is_damaged(entry):
                self._stray(Severity.NOTE if follows_used else Severity.ERROR, entry)

    def _is_damaged(self, entry: QueueEntry) -> bool:
        return entry.physical_offset in self._damaged

    def _stray(self, severity: Severity, entry: QueueEntry) -> None:
        why = "; it was left behind by a recovery" if severity is Severity.NOTE else ""
        self._findings.add(
            severity,
            self.files.path_of(entry.queue_offset),
            f"the log has no record of this queue for the entry{why}",
            entry.physical_offset,
            entry.queue_offset,
        )


class _MissingRun:
    """Records in a row that have no entry."""

    __slots__ = ("count", "physical_offset", "queue_offset")

    def __init__(self, queue_offset: QueueOffset, physical_offset: PhysicalOffset) -> None:
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.count = 0


def delay_level(text: bytes) -> int:
    """Return the delay level that a property names, 0 if it is none."""
    try:
        return int(text)
    except ValueError:
        return 0
