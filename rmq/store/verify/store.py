"""A full check of a store directory.

Every record is read: its CRC, its lengths, its place, and that the next one begins where it ends.
On the way `queues` and `index` compare the ConsumeQueues and the index with the log.
Memory does not grow with the number of records. Nothing is changed; `Reader` is what is read with.

A store that was not closed, or that a stock broker recovered, is not as tidy as one that was: what
a broker leaves like that is a note, everything else is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rmq.model.offsets import PhysicalOffset
from rmq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmq.store.reader.log import offset_of
from rmq.store.verify.finding import DamagedRanges, Finding, Findings, Kind
from rmq.store.verify.index import IndexCheck
from rmq.store.verify.queues import QueuesCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rmq.errors import CorruptStoreError
    from rmq.model.record import RecordHead
    from rmq.store.reader import Reader

    OnProgress = Callable[["Progress"], None]

_PROGRESS_EVERY: Final = 1024
_NOTHING_WRITTEN_BYTES: Final = 8


class Progress(msgspec.Struct, frozen=True):
    """How far a check is."""

    done_bytes: int
    total_bytes: int
    records: int


class Verifier:
    """One check of one store."""

    def __init__(
        self,
        reader: Reader,
        *,
        delay_levels_ms: Sequence[int] = parse_delay_levels(DEFAULT_DELAY_LEVELS),
        check_queues: bool = True,
        check_index: bool = True,
        on_progress: OnProgress | None = None,
    ) -> None:
        """`delay_levels_ms` are the delays of level 1, 2 and so on (messageDelayLevel)."""
        self.records = 0
        self.log_end = reader.min_offset
        """Where the log was found to end, when the check is over."""
        self._reader = reader
        self._on_progress = on_progress
        self._segments = Findings(Kind.SEGMENT)
        self._log = Findings(Kind.RECORD)
        self._end = Findings(Kind.END)
        self.damaged = DamagedRanges()
        """Where the log has damage, as far as it was read."""
        self._bad: CorruptStoreError | None = None
        self._last: RecordHead | None = None
        self._queues = (
            QueuesCheck(reader, self.damaged, delay_levels_ms, known_topics(reader.root))
            if check_queues
            else None
        )
        self._index = IndexCheck(reader, self.damaged) if check_index else None

    @property
    def queue_count(self) -> int:
        return self._queues.queue_count if self._queues is not None else 0

    @property
    def queue_entries(self) -> int:
        return self._queues.entries_checked if self._queues is not None else 0

    @property
    def index_entries(self) -> int:
        return self._index.entries_checked if self._index is not None else 0

    def run(self) -> Iterator[Finding]:
        """Yield what is found, in the order of the log, then what concerns its end."""
        self._check_segments()
        yield from self._segments.take()
        yield from self._check_log()
        if self._queues is not None:
            self._queues.finish(self.log_end)
            yield from self._queues.findings.take()
        if self._index is not None:
            self._index.finish(self.log_end)
            yield from self._index.findings.take()
        self._check_end()
        yield from self._end.take()

    # --- files -----------------------------------------------------------------------------

    def _check_segments(self) -> None:
        log = self._reader.log
        for path in log.foreign:
            self._segments.note(path, "no segment of the log; a stock broker does not start")
        for segment in log.segments:
            if segment.size != log.segment_bytes:
                self._segments.error(
                    segment.path,
                    f"the file has {segment.size} bytes, the others have {log.segment_bytes}",
                    physical_offset=PhysicalOffset(segment.first),
                )
            if segment.first % log.segment_bytes:
                self._segments.error(
                    segment.path,
                    f"the name is not a multiple of the segment size {log.segment_bytes}",
                    physical_offset=PhysicalOffset(segment.first),
                )

    # --- records ---------------------------------------------------------------------------

    def _check_log(self) -> Iterator[Finding]:
        log = self._reader.log
        start = log.min_offset
        stop = self._reader.end_offset if self._reader.state.is_live else log.file_end
        queues, index = self._queues, self._index
        for head in log.heads(start, stop, verify_crc=True, on_bad=self._note_bad):
            if self._bad is not None:
                if self._is_end(self._bad, head):
                    break
                self._report_damage(self._bad, head)
                self._bad = None
            self.records += 1
            if queues is not None:
                queues.take(head)
            if index is not None:
                index.take(head)
            self._last = head
            self.log_end = head.physical_offset + head.size
            if self.records % _PROGRESS_EVERY == 0 and self._on_progress is not None:
                done = head.physical_offset - start
                self._on_progress(Progress(done, stop - start, self.records))
            if (
                self._log
                or (queues is not None and queues.findings)
                or (index is not None and index.findings)
            ):
                yield from self._take_findings()
        yield from self._take_findings()

    def _take_findings(self) -> Iterator[Finding]:
        yield from self._log.take()
        for part in (self._queues, self._index):
            if part is not None:
                yield from part.findings.take()

    def _note_bad(self, bad: CorruptStoreError) -> None:
        # Whether this is damage or the end of the log depends on what comes behind it.
        if self._bad is None:
            self._bad = bad

    def _is_end(self, bad: CorruptStoreError, following: RecordHead) -> bool:
        """Tell whether the log ends at bytes that are no record, although one follows them.

        After a crash later bytes may be on disk without earlier ones, if neither was flushed. And
        what a stock recovery cut off lies behind the end until it is written over: it is older.
        """
        state = self._reader.state
        if self._last is not None and following.store_ms < self._last.store_ms:
            return True
        if state.is_live or not state.is_abort_present:
            return False
        point, checkpoint = state.recovery_point, state.checkpoint
        was_flushed = (point is not None and following.physical_offset < point.physical_offset) or (
            checkpoint is not None and following.store_ms < checkpoint.physical_ms
        )
        return not was_flushed

    def _report_damage(self, bad: CorruptStoreError, following: RecordHead) -> None:
        start = offset_of(bad)
        self.damaged.add(start, following.physical_offset)
        self._log.error(
            bad.path,
            f"{bad.reason}; the log goes on at {following.physical_offset}",
            physical_offset=start,
        )

    # --- the end ---------------------------------------------------------------------------

    def _check_end(self) -> None:
        state, end = self._reader.state, self.log_end
        if state.is_live:
            return
        bad = self._bad
        if bad is not None and self._is_something(offset_of(bad)):
            self._end.note(
                bad.path,
                f"the log ends here, and what follows is no record: {bad.reason}",
                physical_offset=offset_of(bad),
            )
        point = state.recovery_point
        if point is not None and point.physical_offset > self._end_of_segment(end):
            self._end.error(
                self._reader.root / "recovery-point",
                f"everything below {point.physical_offset} was on disk, but the log ends at {end}",
                physical_offset=end,
            )
        last_ms = self._last.store_ms if self._last is not None else 0
        checkpoint = state.checkpoint
        if not state.is_abort_present and checkpoint and checkpoint.queues_ms > last_ms:
            self._end.error(
                self._reader.root / "checkpoint",
                f"the store was closed with a message stored at {checkpoint.queues_ms}, but the"
                f" last one in the log was stored at {last_ms}",
                physical_offset=end,
            )

    def _is_something(self, offset: PhysicalOffset) -> bool:
        return bool(self._reader.log.read(offset, _NOTHING_WRITTEN_BYTES).strip(b"\0"))

    def _end_of_segment(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return how far the log reaches if a blank follows its last record."""
        segment = self._reader.log.find(end)
        is_blank = self._bad is None or offset_of(self._bad) != end
        if segment is None or not is_blank:
            return end
        return PhysicalOffset(segment.first + self._reader.segment_bytes)


def verify(
    reader: Reader,
    *,
    delay_levels_ms: Sequence[int] = parse_delay_levels(DEFAULT_DELAY_LEVELS),
    check_index: bool = True,
    on_progress: OnProgress | None = None,
) -> Iterator[Finding]:
    """Check a store and yield what is found; see `Verifier`."""
    return Verifier(
        reader,
        delay_levels_ms=delay_levels_ms,
        check_index=check_index,
        on_progress=on_progress,
    ).run()


def known_topics(root: Path) -> frozenset[str] | None:
    """Return the topics that the broker of a store knows; None if that cannot be told.

    A topic that was deleted has no ConsumeQueue any longer, but its records stay in the log.
    """
    try:
        content = (root / "config" / "topics.json").read_bytes()
        table = msgspec.json.decode(content, type=_TopicsFile)
    except (OSError, msgspec.MsgspecError):
        return None
    return frozenset(table.topics)


class _TopicsFile(msgspec.Struct):
    topics: dict[str, msgspec.Raw] = msgspec.field(name="topicConfigTable")
