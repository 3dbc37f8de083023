"""Brings the files of a store into agreement when it is opened.

There are two ways. With a valid recovery point (`checkpoint.RecoveryPoints`) only what came after
the point is read: everything before it is on disk. Without one, on a store that a stock broker
wrote last, it is done as RocketMQ 4.9.8 does: after a clean stop the last three segments are read,
after a crash everything from the segment that the checkpoint names.

Either way the log ends behind the last sound record of an unbroken row, queues and index have
nothing beyond it, and what they lack is added. Bytes behind the end are set to zero: a stock broker
leaves them, and a later crash can bring them back to life.

Not repaired, because that would lose messages: a damaged record with sound ones behind it that were
on disk. Then `CorruptStoreError` says where.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.errors import CorruptStoreError
from rmq.model import flags
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import decode_text
from rmq.model.record import NOTHING_WRITTEN, RecordHead
from rmq.store.dispatcher import BadLogError, QueueGapError
from rmq.store.log_scan import LogScan, first_store_ms, next_sound_record, sound_head
from rmq.store.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.checkpoint import Checkpoint, Point
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.dispatcher import Dispatcher, StoreFiles
    from rmq.store.index_file import Index
    from rmq.store.segments import Segment

_NORMAL_SEGMENTS: Final = 3
_PROGRESS_INTERVAL_S: Final = 1.0
_PROGRESS_EVERY_RECORDS: Final = 4096

logger = logging.getLogger(__name__)


class RecoveryReport(msgspec.Struct):
    """What a recovery found and did."""

    was_clean: bool
    used_point: bool
    started_at: PhysicalOffset = PhysicalOffset(0)
    """The physical offset from which the log was read."""
    ended_at: PhysicalOffset = PhysicalOffset(0)
    records_read: int = 0
    records_dispatched: int = 0
    reason_of_end: str = ""
    """What was behind the last sound record, if it was not simply nothing."""
    cut_bytes: int = 0
    """Bytes behind the end that were not zero, up to the last sound record among them."""
    rebuilt_queues: bool = False
    truncated_bytes: int = 0
    """What was cut off because it was asked for; see `truncation`."""
    elapsed_s: float = 0.0


class Progress(msgspec.Struct, frozen=True):
    """How far a long recovery is."""

    done_bytes: int
    total_bytes: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStop:
    """How the store was left when it was open last."""

    was_clean: bool
    """It was closed, and did not crash."""
    point: Point | None
    """The recovery point that holds; None: there is none, or a stock broker wrote since."""
    was_raw: bool = False
    """It was a slave's: bytes were written as they came, and may end within a record."""


class Recovery:
    """One recovery of one store."""

    def __init__(
        self,
        files: StoreFiles,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        last_stop: LastStop,
        *,
        now_ms: int,
        log_end: PhysicalOffset | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        point = last_stop.point
        self._log_end = log_end
        """An offset at which the log must end; None: at the end of its last sound record."""
        self._was_raw = last_stop.was_raw
        self._config = files.config
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._point = point
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._rebuild_queues = False
        self._rebuild_index = False
        self._known_flushed = PhysicalOffset(0) if point is None else point.physical_offset
        """Below this offset everything was on disk."""
        self._next_progress = 0.0
        self.report = RecoveryReport(was_clean=last_stop.was_clean, used_point=False)

    def run(self) -> RecoveryReport:
        """Recover the store, whose log, queues and index were loaded before."""
        started = time.monotonic()
        self._next_progress = started + _PROGRESS_INTERVAL_S
        if not len(self._log.segments):
            self._start_empty()
        elif not self._recover_from_point():
            self._recover_as_stock()
        self._finish()
        self.report.elapsed_s = time.monotonic() - started
        return self.report

    # --- before anything is changed --------------------------------------------------------

    def check_log(self) -> None:
        """Raise `CorruptStoreError` if files of the log are gone or cut that were on disk."""
        segments = self._log.segments
        end = segments.end_on_disk
        if end >= self._known_flushed:
            return
        last = segments.last
        if last is not None and end < last.end:
            path = last.path
        else:
            path = segments.directories[0] / segment_name(end)
        point_path = self._config.root / "recovery-point"
        raise CorruptStoreError(
            str(path),
            f"the log ends here, but it was on disk up to physical offset {self._known_flushed}",
            offset=end,
            hint="put back what is missing (mount its disk, or copy it from a slave or a backup),"
            f" or remove {point_path} to go on with what is there",
        )

    # --- loading the derived files ---------------------------------------------------------

    def load_derived(self) -> None:
        """Load queues and index; what is broken in them is removed and built again."""
        self._log.segments.extend_last()
        if self._queues.load():
            self._rebuild_queues = True
        if self._index is not None:
            self._index.load()

    def _start_empty(self) -> None:
        """Remove queues and index if there is no log: they could only refer to an earlier one."""
        if len(self._queues) or (self._index is not None and self._index.files):
            logger.warning("there is no CommitLog: queues and index of an earlier one are removed")
        self._queues.delete_all()
        if self._index is not None:
            self._index.delete_all()
        self._log.set_end(PhysicalOffset(0), flushed=PhysicalOffset(0))
        self._dispatcher.dispatched = PhysicalOffset(0)

    # --- from a recovery point -------------------------------------------------------------

    def _recover_from_point(self) -> bool:
        point = self._point
        if point is None:
            return False
        if not point.queue_entries and not point.index_name:
            # The store was empty then; a slave's log may have begun anywhere since.
            point = point._replace(physical_offset=max(point.physical_offset, self._log.min_offset))
        if point.physical_offset < self._log.min_offset:
            logger.error(
                "the recovery point is at physical offset %d, the log begins at %d: it is not used",
                point.physical_offset,
                self._log.min_offset,
            )
            return False
        if not self._roll_queues_back(point):
            self._rebuild_queues = True
            for queue in self._queues:
                queue.clear()
        if self._index is not None and not self._roll_index_back(self._index, point):
            self._rebuild_index = True
            self._index.delete_all()
        start = point.physical_offset
        if self._must_read_all():
            # Neither queues nor index take a record twice: what one of them has is skipped.
            start = self._log.min_offset
        else:
            self.report.used_point = True
        self._dispatcher.dispatched = start
        scan = self._scan(start, dispatch=True)
        self._end_log(scan)
        return True

    def _roll_queues_back(self, point: Point) -> bool:
        """Let the queues end at a point; tell whether they have all they had then."""
        if self._rebuild_queues:
            return False
        for queue in self._queues:
            queue.recover_to(point.physical_offset)
        if self._queues.entry_total > point.queue_entries:
            self._forget_torn_entries(point)
        if self._lacks_first_files():
            return False
        entries, end = self._queues.entry_total, self._queues.max_physical
        if entries == point.queue_entries and end <= point.physical_offset:
            return True
        logger.error(
            "the ConsumeQueues have %d entries of records below physical offset %d, up to %d;"
            " there were %d: they are built again from the log",
            entries,
            point.physical_offset,
            end,
            point.queue_entries,
        )
        return False

    def _lacks_first_files(self) -> bool:
        """Tell whether a queue begins late although nothing has expired."""
        if self._log.min_offset:
            return False
        late = [queue for queue in self._queues if queue.begin]
        for queue in late:
            logger.error(
                "queue %d of %s lacks its first file: the queues are built again from the log",
                queue.queue_id,
                queue.topic,
            )
        return bool(late)

    def _forget_torn_entries(self, point: Point) -> None:
        """Find the ends of the queues again, by what the log says.

        Of an entry that came after the point, a power cut may leave a part that looks as if it had
        come before.
        """
        for queue in self._queues:
            queue.step_back(point.physical_offset, partial(self._is_entry_of, queue))
        if self._queues.entry_total != point.queue_entries:
            # Queues that came after the point, of which a power cut took the first files.
            for queue in self._queues:
                if queue.max_physical < 0:
                    queue.clear()

    def _is_entry_of(
        self, queue: ConsumeQueue, queue_offset: QueueOffset, physical: PhysicalOffset, size: int
    ) -> bool:
        """Tell whether an entry is that of a record in the log, or of one that has expired."""
        if physical < self._log.min_offset:
            return True
        segment = self._log.segments.find(physical)
        head = sound_head(segment, physical - segment.first) if segment is not None else None
        return head is not None and (head.topic, head.queue_id, head.queue_offset, head.size) == (
            queue.topic.encode(),
            queue.queue_id,
            queue_offset,
            size,
        )

    def _roll_index_back(self, index: Index, point: Point) -> bool:
        """Let the index end at a point; tell whether it has all it had then."""
        for file in reversed(list(index.files)):
            # What a power cut left of files that came later need not be sound.
            if file.path.name > point.index_name:
                index.drop(file)
        current = index.current
        name = current.path.name if current is not None else ""
        # After a crash the last file returns to the state of the point, whatever its header says.
        kept = index.files if self.report.was_clean else index.files[:-1]
        if name != point.index_name or not all(file.is_sound for file in kept):
            logger.error("the index does not end with %s: it is built again", point.index_name)
            return False
        if current is None and point.physical_offset > self._log.min_offset:
            logger.warning("there was no index at the recovery point: it is built now")
            return False
        if current is not None and not 0 <= point.index_state.entry_count <= current.capacity:
            logger.error(
                "the recovery point tells of %d entries of %s, which has room for %d: the index is"
                " built again",
                point.index_state.entry_count,
                point.index_name,
                current.capacity,
            )
            return False
        # The header does not tell whether something was added: it is written now and then only.
        if current is not None and not self.report.was_clean:
            current.roll_back(point.index_state)
        index.complete_below = point.physical_offset
        return True

    # --- as a stock broker does ------------------------------------------------------------

    def _recover_as_stock(self) -> None:
        has_hole = any(queue.segments.had_hole for queue in self._queues)
        if not len(self._queues) or has_hole or self._lacks_first_files():
            self._rebuild_queues = True
        index = self._index
        if index is not None:
            if not all(file.is_sound for file in index.files):
                logger.error(
                    "%s: a header is not sound; all is built again", self._config.index_path
                )
                index.delete_all()
            self._rebuild_index = not index.files
            index.has_new_names = True
        for queue in self._queues:
            if self._rebuild_queues:
                queue.clear()
            else:
                queue.recover()
        if self.report.was_clean and not self._rebuild_queues and not self._rebuild_index:
            self._recover_clean()
        else:
            self._recover_crashed()

    def _recover_clean(self) -> None:
        segments = list(self._log.segments)
        start = PhysicalOffset(segments[max(len(segments) - _NORMAL_SEGMENTS, 0)].first)
        scan = self._scan(start, dispatch=False)
        if self._rebuild_queues:
            self._build_all_again()
            return
        self._end_log(scan)
        if self._queues.max_physical > scan.offset:
            logger.error(
                "a ConsumeQueue has an entry of a record up to physical offset %d, the log ends at"
                " %d: the queues are built again from the log",
                self._queues.max_physical,
                scan.offset,
            )
            self._build_all_again()
            return
        for queue in self._queues:
            queue.mark_synced(queue.next_offset)
        # What the queues lack is added from where the last of them ends, as on any start.
        self._dispatcher.dispatched = PhysicalOffset(
            max(self._log.min_offset, self._queues.max_physical)
        )

    def _build_all_again(self) -> None:
        """Build the queues from the whole log."""
        self._rebuild_queues = True
        for queue in self._queues:
            queue.clear()
        self._recover_crashed()

    def _is_missing_from_its_queue(self, head: RecordHead) -> bool:
        """Tell whether a record has no entry although records behind it have theirs."""
        if head.sys_flag & flags.TRANSACTION_PREPARED:
            return False
        if head.physical_offset + head.size > self._queues.max_physical:
            return False
        queue = self._queues.by_field.get((head.topic, head.queue_id))
        if queue is not None and queue.begin <= head.queue_offset < queue.next_offset:
            return False
        logger.error(
            "the record at physical offset %d has no entry in queue %d of %r, but later ones have:"
            " the queues are built again from the log",
            head.physical_offset,
            head.queue_id,
            decode_text(head.topic),
        )
        return True

    def _recover_crashed(self) -> None:
        index = self._index
        start = self._log.min_offset
        if not self._must_read_all():
            start = PhysicalOffset(self._crash_start().first)
        if index is not None and not self.report.was_clean:
            # A file without entries may have some that its header does not count, and behind one
            # that goes none can stay.
            goes = False
            for file in list(index.files):
                goes = goes or file.end_ms > self._checkpoint.index_ms or file.count <= 1
                if goes:
                    index.drop(file)
            if index.current is not None:
                # It may have more entries than its header tells, too.
                index.current.roll_back(index.current.state)
            # A stock broker begins no earlier for the keys it just dropped, and so loses those of
            # all segments before.
            kept_until = index.current.end_offset if index.current is not None else 0
            kept_in = self._log.segments.find(max(kept_until, self._log.min_offset))
            if kept_in is not None:
                start = min(start, PhysicalOffset(kept_in.first))
        self._dispatcher.dispatched = start
        scan = self._scan_closing_gaps(start)
        self._end_log(scan)
        self._queues.mark_all_dirty()

    def _must_read_all(self) -> bool:
        return self._rebuild_queues or self._rebuild_index

    def _crash_start(self) -> Segment:
        """Return the last segment that begins with a record the checkpoint covers."""
        times = self._checkpoint.times
        is_index_safe = self._config.index_enabled and self._config.index_safe
        limit_ms = times.min_index_ms if is_index_safe else times.min_ms
        segments = list(self._log.segments)
        if limit_ms > self._now_ms:
            logger.warning("the checkpoint is from the future: the whole log is read")
            return segments[0]
        for segment in reversed(segments):
            store_ms = first_store_ms(segment)
            if store_ms and store_ms <= limit_ms:
                return segment
        return segments[0]

    def _scan_closing_gaps(self, start: PhysicalOffset) -> LogScan:
        """Read and dispatch; when a queue turns out to have a hole, build all of it again."""
        self._dispatcher.fail_on_gap = not self._rebuild_queues
        try:
            return self._scan(start, dispatch=True)
        except QueueGapError as exc:
            logger.error("%s; the queues are built again from the whole log", exc)
        finally:
            self._dispatcher.fail_on_gap = False
        self._rebuild_queues = True
        for queue in self._queues:
            queue.clear()
        # What is missing in the log itself stays missing, as after messages that have expired.
        self._dispatcher.dispatched = self._log.min_offset
        return self._scan(self._log.min_offset, dispatch=True)

    # --- common ----------------------------------------------------------------------------

    def _scan(self, start: PhysicalOffset, *, dispatch: bool) -> LogScan:
        report = self.report
        report.started_at = start
        report.records_read = report.records_dispatched = 0
        scan = LogScan(
            self._log.segments,
            start,
            self._log_end,
            verify_crc=self._config.check_crc_on_recover,
            doubt_last=self._was_raw and not report.was_clean,
        )

        def note(count: int, _size: int) -> None:
            report.records_read += count
            self._show_progress(start, scan.offset)

        if dispatch:
            self._dispatcher.dispatch_scan(scan, on_batch=note)
            report.records_dispatched = report.records_read
            return scan
        for head in scan:
            report.records_read += 1
            if self._is_missing_from_its_queue(head):
                self._rebuild_queues = True
                break
            if report.records_read % _PROGRESS_EVERY_RECORDS == 0:
                self._show_progress(start, scan.offset)
        return scan

    def _show_progress(self, start: PhysicalOffset, offset: PhysicalOffset) -> None:
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + _PROGRESS_INTERVAL_S
        progress = Progress(
            offset - start, self._log.segments.end - start, self.report.records_read
        )
        if self._on_progress is not None:
            self._on_progress(progress)
        logger.info(
            "recovery: %d of at most %d MiB read, %d records",
            progress.done_bytes >> 20,
            progress.total_bytes >> 20,
            progress.records,
        )

    def _end_log(self, scan: LogScan) -> None:
        """Truncate log, queues and index to the last sound record that the walk found."""
        log, report = self._log, self.report
        end = scan.offset
        report.ended_at = end
        if scan.bad is not None:
            report.reason_of_end = scan.bad
            self._refuse_if_cutting_loses_messages(scan.offset, scan.bad)
        # What came after the place where the walk began may be in the page cache only.
        log.set_end(end, flushed=report.started_at, clear=not self._is_tail_clear)
        if self._queues.max_physical > end:
            for queue in self._queues:
                queue.truncate(end)
        if self._index is not None and self._index.current is not None:
            # A stock broker keeps entries of records that are cut off, and then takes new ones in
            # their place for known.
            current = self._index.current
            current.indexed_until = min(current.indexed_until, end)

    def _refuse_if_cutting_loses_messages(self, end: PhysicalOffset, reason: str) -> None:
        """Raise `CorruptStoreError` if cutting the log here would lose what was on disk.

        After a crash it is natural that later pages reached the disk and earlier ones did not; what
        was flushed is known by the recovery point or by the checkpoint's time.
        """
        segment = self._log.segments.find(end)
        path = str(segment.path if segment is not None else self._config.root)
        if end < self._known_flushed:
            raise _damage(
                path,
                end,
                reason,
                f"the log was on disk up to physical offset {self._known_flushed}",
            )
        is_end_known = self._is_tail_clear or not self.report.was_clean
        if self.report.used_point and reason == NOTHING_WRITTEN and is_end_known:
            # All that was flushed is there. Searching for more would read all the room reserved.
            return
        following = next_sound_record(self._log, end + 1)
        if following is None:
            return
        self.report.cut_bytes = following.physical_offset + following.size - end
        is_known = self.report.used_point or not self._covers(following.store_ms)
        if not self.report.was_clean and is_known:
            logger.warning(
                "%s: the log ends at physical offset %d (%s); later records that had reached the"
                " disk before the crash, the next at %d, were not flushed in order and are dropped",
                path,
                end,
                reason,
                following.physical_offset,
            )
            return
        follows = f"sound records follow from physical offset {following.physical_offset} on"
        raise _damage(path, end, reason, follows)

    @property
    def _is_tail_clear(self) -> bool:
        """Tell whether nothing can follow the end: an rmq broker wrote last and stopped cleanly.

        Then its point is at the end, and there is no segment made ahead. An earlier point matches
        a checkpoint that was put back or damaged; with it the end may be a hole.
        """
        report, last = self.report, self._log.segments.last
        return (
            report.was_clean
            and report.used_point
            and report.started_at == report.ended_at
            and (last is None or last.first <= report.ended_at)
        )

    def _covers(self, store_ms: int) -> bool:
        """Tell whether the checkpoint says that records of this time were on disk."""
        # A time that has not come yet says nothing.
        return store_ms < self._checkpoint.physical_ms <= self._now_ms

    def _finish(self) -> None:
        for queue in self._queues:
            if not self._is_tail_clear:
                queue.clear_tail()
            queue.correct_min_offset(self._log.min_offset)
            queue.assigned = queue.next_offset
        try:
            while self._dispatcher.catch_up():
                self._show_progress(self.report.started_at, self._dispatcher.dispatched)
        except BadLogError as exc:
            # The walk began behind it: what the queues lack lies further back than usual.
            segment = self._log.segments.find(exc.offset)
            path = str(segment.path if segment is not None else self._config.root)
            follows = "the ConsumeQueues lack entries of records behind it"
            raise _damage(path, exc.offset, exc.reason, follows) from exc
        for queue in self._queues:
            queue.assigned = queue.next_offset
            queue.correct_min_offset(self._log.min_offset)
        self.report.rebuilt_queues = self._rebuild_queues
        if self._dispatcher.store_ms:
            self._checkpoint.queues_ms = self._dispatcher.store_ms


def _damage(
    path: str, offset: PhysicalOffset, reason: str, contradiction: str
) -> CorruptStoreError:
    return CorruptStoreError(
        path,
        f"damaged record ({reason}), but {contradiction}",
        offset=offset,
        hint="put the file back from a slave or a backup; `rmq store verify` shows all damage,"
        f" and `rmq store cut DIR --at {offset}` gives up everything from there on",
    )
