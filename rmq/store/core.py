"""The whole store without tasks: files, logs, dispatch, recovery, retention, composed.

Every call of `StoreCore` does its work at once, in the caller's thread. What has to happen by
itself (flushing, recovery points, expiry, segments made ahead) is offered as steps: `plan_*` says
what to do, the blocking part of a plan may run in a thread, and `finish_*` takes the result.
`store.py` drives them with trio; tests drive them by hand.
"""

from __future__ import annotations

import contextlib
import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.errors import (
    ConfigError,
    CorruptStoreError,
    StorageError,
    StoreLockedError,
    StoreUnavailableError,
    to_keep,
)
from rmq.model.clock import system_ms
from rmq.model.limits import QUEUE_ID_MAX
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import pack_host
from rmq.process_limits import physical_memory_bytes
from rmq.store.append import Appender, AppendResult, AppendStatus, BatchResult
from rmq.store.checkpoint import Checkpoint, CheckpointTimes, Point, RecoveryPoints
from rmq.store.commit_log import CommitLog
from rmq.store.dispatcher import BadLogError, Dispatcher, StoreFiles
from rmq.store.index_file import NO_INDEX_STATE, Index, IndexFile
from rmq.store.log_scan import boundary_before
from rmq.store.plans import (
    DeletionPlan,
    ExpiryPlan,
    FlushPlan,
    PointPlan,
    QueuesPlan,
    delete_folder,
)
from rmq.store.queue_table import QueueTable, is_legal_topic
from rmq.store.reads import MessageReads
from rmq.store.recovery import LastStop, Progress, Recovery, RecoveryReport
from rmq.store.retention import DeletionCause, Retention, SegmentAge, files_behind
from rmq.store.storage import DiskStorage
from rmq.store.transient_pool import TransientPool
from rmq.store.truncation import LogCut, drop_log, forget_request, read_request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from rmq.model.record import NewMessage
    from rmq.store.config import StoreConfig
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.listener import StoreListener
    from rmq.store.segments import Segment
    from rmq.store.storage import Storage

FIXED_SETTINGS: Final = {
    "root": "storePathRootDir",
    "commit_log_paths": "storePathCommitLog",
    "segment_bytes": "mappedFileSizeCommitLog",
    "queue_segment_bytes": "mappedFileSizeConsumeQueue",
    "index_enabled": "messageIndexEnable",
    "index_slots": "maxHashSlotNum",
    "index_entries": "maxIndexNum",
    "transient_pool_enabled": "transientStorePoolEnable",
    "transient_pool_size": "transientStorePoolSize",
    "delay_levels": "messageDelayLevel",
}
"""Settings of an open store that must stay, with their keys."""

_QUEUES_FOLLOWED_AT_ONCE: Final = 16
"""Queues that are looked through for files that have expired, in one step."""
_QUEUES_AT_ONCE: Final = 32
"""Queues that are looked at in one step: their files may have to be opened."""
DEFAULT_STORE_HOST: Final = pack_host("127.0.0.1", 10911)

logger = logging.getLogger(__name__)


class Refusal(enum.Enum):
    """Why a store takes no messages at the moment."""

    CLOSED = "the store is closed"
    FAILED = "the store failed and must be restarted"
    FENCED = "another broker has become master"
    DISK_FULL = "the disk is full"
    DISPATCH = "ConsumeQueue or index cannot be written"
    STARTING = "the broker is starting"
    HANDING_OVER = "the broker hands over to another one"
    NOT_BEGUN = "the first in-sync record of this master does not count yet"
    TOO_FEW_SLAVES = "too few slaves are in sync (minInSyncReplicas)"
    NO_LEASE = "no nameserver and no slave was heard of for too long (haMasterLease)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """The watermarks and other state of a store at one moment."""

    min_offset: PhysicalOffset
    written: PhysicalOffset
    readable: PhysicalOffset
    flushed: PhysicalOffset
    dispatched: PhysicalOffset
    recovery_point: PhysicalOffset
    queues: int
    segments: int
    index_files: int
    refusal: Refusal | None

    @property
    def flush_lag_bytes(self) -> int:
        return self.written - self.flushed

    @property
    def dispatch_lag_bytes(self) -> int:
        return self.written - self.dispatched


class _Deletion:
    """Queues that are deleted together, and where their folders are now."""

    def __init__(self) -> None:
        self.queues: list[ConsumeQueue] = []
        self.moved: list[Path] = []


class StoreCore:
    """One store, open from construction to `close`."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        storage: Storage | None = None,
        store_host: bytes = DEFAULT_STORE_HOST,
        now_ms: Callable[[], int] | None = None,
        memory_bytes: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_cut: Callable[[StoreCore], None] | None = None,
    ) -> None:
        """`on_cut` is called when the log was cut or dropped, with what is left of it: it must set
        everything that refers to later offsets back, durably. It may be called again after a crash.
        """
        self.config = config
        self.storage: Storage = storage if storage is not None else DiskStorage()
        self.now_ms = now_ms if now_ms is not None else system_ms
        self.retention = Retention(config)
        self._followed = PhysicalOffset(-1)
        self._refusals: set[Refusal] = set()
        self._failure: StorageError | None = None
        self._sync_errors: list[StorageError] = []
        self.queue_deletions = 0
        """How many times queues were deleted."""
        self.deleted_segments = dict.fromkeys(DeletionCause, 0)
        """Segments of the log that were deleted since the start, by the cause."""
        self._expired: list[Segment] = []
        self._deleted_path = config.root / "deleted"
        self._deleted_folders = 0
        self._is_raw = False
        self.keeps_from: Callable[[], PhysicalOffset] | None = None
        """See `StoreListener.needed_from`; None needs nothing."""
        root = config.root
        self._abort_path = root / "abort"
        self.storage.make_directory(root)
        lock = self.storage.lock(root / "lock")
        if lock is None:
            raise StoreLockedError(
                str(root), hint="stop the other broker, or give this one its own storePathRootDir"
            )
        self._lock = lock
        try:
            pool = None
            if config.transient_pool_enabled:
                pool = TransientPool(config.transient_pool_size, config.segment_bytes)
            self.log = CommitLog(config, self.storage, pool)
            self.queues = QueueTable(self.storage, config.queues_path, config.queue_segment_bytes)
            self.index = (
                Index(
                    self.storage,
                    config.index_path,
                    slots=config.index_slots,
                    capacity=config.index_entries,
                    now_ms=self.now_ms,
                )
                if config.index_enabled
                else None
            )
            self._files = files = StoreFiles(config, self.log, self.queues, self.index)
            self.dispatcher = Dispatcher(files)
            self.reads = MessageReads(
                files,
                memory_bytes=memory_bytes if memory_bytes is not None else physical_memory_bytes(),
            )
            self.appender = Appender(files, self.dispatcher, store_host)
            self.recovery = self._open(on_progress, on_cut)
        except BaseException:
            lock.release()
            raise

    def listen(self, listener: StoreListener) -> None:
        """Call a broker's listener from now on (`MessageStore.listen`)."""
        self.dispatcher.on_dispatched = listener.dispatched
        self.dispatcher.on_read_back = listener.copied
        self.keeps_from = listener.needed_from

    # --- opening and closing ---------------------------------------------------------------

    def _open(
        self,
        on_progress: Callable[[Progress], None] | None,
        on_cut: Callable[[StoreCore], None] | None,
    ) -> RecoveryReport:
        storage, config = self.storage, self.config
        truncation = request = read_request(config.root, storage)
        if truncation is not None and truncation.end is None:
            logger.warning("the log is dropped: %s", truncation.reason)
            for folder in drop_log(config, storage, truncation.at_ms):
                logger.warning("the segments of the log were moved to %s", folder)
            truncation = None
        was_clean = not storage.exists(self._abort_path)
        self.log.load()
        self._checkpoint = Checkpoint(storage, config.root / "checkpoint")
        self._points = RecoveryPoints(storage, config.root / "recovery-point")
        point = self._points.matching(self._checkpoint.times)
        if point is not None and point.times != self._checkpoint.times:
            # A crash left bytes of two checkpoints there. Before one of their points is overwritten
            # that must come to an end: with one of them nothing would match any more.
            self._checkpoint.take(point.times)
            self._checkpoint.save(point.times)
        if truncation is not None:
            # Truncation is the only thing that lets points go back. One that a killed process saved
            # last may be in the page cache only, and what is undone for it now, a power cut must
            # not ask for again by bringing back the one before.
            self._points.sync()
            self._checkpoint.save(self._checkpoint.times)
        recovery = Recovery(
            self._files,
            self.dispatcher,
            self._checkpoint,
            LastStop(was_clean=was_clean, point=point, was_raw=self._points.was_raw),
            now_ms=self.now_ms(),
            on_progress=on_progress,
        )
        recovery.check_log()
        # From here on files change: a crash now must not look like a clean stop.
        storage.write(self._abort_path, b"")
        # Queues that were deleted and whose files a crash left; a stock broker ignores them.
        delete_folder(storage, self._deleted_path)
        try:
            recovery.load_derived()
            report = recovery.run()
        except CorruptStoreError:
            # What it says must hold at the next attempt, too.
            if was_clean:
                storage.delete(self._abort_path)
            raise
        self._recovery_point = PhysicalOffset(-1)
        self._unfinished_point: PointPlan | None = None
        self._index_name_at_point = ""
        self._points.mark_live(self.log.flushed, is_raw=self._is_raw)
        self._save_point_now()
        if truncation is not None and truncation.end is not None:
            try:
                report.truncated_bytes = self._cut_log(
                    PhysicalOffset(truncation.end), truncation.reason
                )
            except CorruptStoreError:
                # Refused, with nothing changed since the recovery.
                if was_clean:
                    storage.delete(self._abort_path)
                raise
            report.ended_at = self.log.written
        self._check_marks()
        if request is not None:
            if on_cut is not None:
                on_cut(self)
            forget_request(config.root, storage)
        return report

    def _cut_log(self, end: PhysicalOffset, reason: str) -> int:
        cut = LogCut(self._files, self.dispatcher, self._checkpoint, self._points).run(
            end, self.now_ms()
        )
        logger.warning("%d bytes of the log from %d on are cut off: %s", cut, end, reason)
        self._recovery_point = PhysicalOffset(-1)
        self._save_point_now()
        return cut

    def trim_tail(self) -> int:
        """Make the log of a slave one that messages can be appended to; return what is cut off.

        Everything in it is dispatched, the beginning of a record of which no more came is set to
        zero, and queue offsets go on where the queues end. From then on, also after a crash, the
        log is a master's. Nothing may write raw bytes meanwhile. Blocks. What hinders it is raised,
        and then nothing is different, unless the store has failed.
        """
        if Refusal.CLOSED in self._refusals or self._failure is not None:
            raise StoreUnavailableError(self._refusal_result().reason)
        self.log.commit()
        while self.dispatch_all_step():
            pass
        # First: what a flush that is under way finds must not be cut beneath it.
        self.flush()
        end = self.dispatcher.dispatched
        cut = self.log.written - end
        if cut:
            try:
                self.log.set_end(end, flushed=end)
            except StorageError as exc:
                self.fail(exc)
                raise
        for queue in self.queues:
            queue.assigned = queue.next_offset
        self._check_marks()
        # Last: until the end is cut, a recovery must doubt it.
        self._mark_raw(is_raw=False)
        return cut

    def dispatch_all_step(self) -> bool:
        """Dispatch some of what is left, whatever the bound, which ends; True if there is more."""
        self.dispatcher.bound = None
        try:
            return self.dispatcher.catch_up()
        except BadLogError as exc:
            segment = self.log.segments.find(exc.offset)
            raise CorruptStoreError(
                str(segment.path if segment is not None else self.config.root),
                f"bytes that are no record ({exc.reason})",
                offset=exc.offset,
                hint="compare the store with its master; `rmq store verify` shows all damage",
            ) from exc

    def record_boundary(self, offset: PhysicalOffset) -> PhysicalOffset:
        """Return the last end of a record at or before `offset`, in the log. Blocks."""
        return boundary_before(self.log, self.queues, offset).offset

    def close(self) -> None:
        """Flush everything and leave the store as after a clean stop, if it is sound.

        A store that failed, or that could not dispatch all it has, keeps its `abort` file, and the
        next start recovers it.
        """
        if Refusal.CLOSED in self._refusals:
            return
        self._refusals.add(Refusal.CLOSED)
        try:
            if self._failure is None:
                self.log.commit()
                # First of all: what follows may fail, and the log is what counts.
                self.flush()
                self.log.discard_spare()
                # A clean stop leaves nothing for the next start to dispatch.
                self.dispatcher.bound = None
                while self.dispatcher.catch_up():
                    pass
                if self.log.written > self.dispatcher.dispatched:
                    # The beginning of a record, of which a slave got no more. Its master sends it
                    # again; zeros in the place of its end might pass for the rest.
                    dispatched = self.dispatcher.dispatched
                    self.log.set_end(dispatched, flushed=min(self.log.flushed, dispatched))
                self._save_point_now()
                self.storage.delete(self._abort_path)
                self.storage.sync_directory(self.config.root)
        except BadLogError as exc:
            logger.critical("the log has bytes that are no record, the next start cuts it: %s", exc)
        finally:
            self.release()

    def release(self) -> None:
        """Close all files and release the lock without flushing, as if the process was killed."""
        self._refusals.add(Refusal.CLOSED)
        self.log.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self._checkpoint.close()
        self._points.close()
        self._lock.release()

    # --- state -----------------------------------------------------------------------------

    @property
    def refusal(self) -> Refusal | None:
        """Why messages are refused, None if they are taken."""
        if not self._refusals:
            return None if self.dispatcher.error is None else Refusal.DISPATCH
        return min(self._refusals, key=list(Refusal).index, default=None)

    @property
    def failure(self) -> StorageError | None:
        """What made the store fail."""
        return self._failure

    def refusal_error(self) -> StoreUnavailableError | None:
        """Return an error that tells why messages are refused, None if they are taken."""
        refusal = self.refusal
        if refusal is None:
            return None
        cause = self._failure or self.dispatcher.error
        if cause is None:
            return StoreUnavailableError(refusal.value)
        return StoreUnavailableError(f"{refusal.value}: {cause}", hint=cause.hint)

    def fail(self, error: StorageError) -> None:
        """Take no more messages: what is on disk is not known any longer.

        After a failed sync the kernel may forget which pages were lost, so that a second attempt
        would report success wrongly.
        """
        if self._failure is None:
            self._failure = to_keep(error)
            self._refusals.add(Refusal.FAILED)
            logger.critical("the store takes no more messages: %s; %s", error, error.hint or "")

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings; raise `ConfigError` if one of them describes the files."""
        for name, key in FIXED_SETTINGS.items():
            if getattr(config, name) != getattr(self.config, name):
                raise ConfigError(key, "cannot change while the store is open")
        self.config = config
        self.log.reconfigure(config)
        self.retention.reconfigure(config)
        self.reads.reconfigure(config)
        self.appender.reconfigure(config)

    def set_refused(self, refusal: Refusal, is_refused: bool) -> None:
        """Refuse or take messages for a reason that lies outside of the store."""
        if is_refused:
            self._refusals.add(refusal)
        else:
            self._refusals.discard(refusal)

    def set_disk_full(self, is_full: bool) -> None:
        """Refuse or take messages because of the room on the disk."""
        if is_full and Refusal.DISK_FULL not in self._refusals:
            logger.error("the disk is full: the store refuses messages")
            self._refusals.add(Refusal.DISK_FULL)
        elif not is_full and Refusal.DISK_FULL in self._refusals:
            logger.warning("there is room on the disk again: the store takes messages")
            self._refusals.discard(Refusal.DISK_FULL)

    def _check_marks(self) -> None:
        """Assert the order of the watermarks, after several of them have moved."""
        log, dispatcher, point = self.log, self.dispatcher, self._recovery_point
        assert log.flushed <= log.readable, f"flushed {log.flushed} <= readable {log.readable}"
        assert log.readable <= log.written, f"readable {log.readable} <= written {log.written}"
        assert dispatcher.dispatched <= log.readable, dispatcher.marks()
        assert point <= dispatcher.dispatched, (
            f"recovery point {point} <= dispatched {dispatcher.dispatched}"
        )
        assert point <= log.flushed, f"recovery point {point} <= flushed {log.flushed}"

    def statistics(self) -> StoreStatistics:
        log = self.log
        return StoreStatistics(
            min_offset=log.min_offset,
            written=log.written,
            readable=log.readable,
            flushed=log.flushed,
            dispatched=self.dispatcher.dispatched,
            recovery_point=self._recovery_point,
            queues=len(self.queues),
            segments=len(log.segments),
            index_files=len(self.index.files) if self.index is not None else 0,
            refusal=self.refusal,
        )

    # --- appending -------------------------------------------------------------------------

    def append(self, messages: Sequence[NewMessage]) -> list[AppendResult]:
        """Append messages, each with its own result; nothing is flushed yet."""
        if self._refusals or self.dispatcher.error is not None:
            return [self._refusal_result()] * len(messages)
        return self.appender.append(messages, self.now_ms())

    def append_batch(self, messages: Sequence[NewMessage]) -> list[AppendResult]:
        """Append messages of one queue as a whole, all of them or none."""
        if self._refusals or self.dispatcher.error is not None:
            return [self._refusal_result()] * len(messages)
        return self.appender.append_batch(messages, self.now_ms())

    def append_entries(
        self, shared: NewMessage, entries: Sequence[tuple[int, bytes, bytes]]
    ) -> BatchResult:
        """Append a batch as clients send it, all of it or nothing; see `Appender`."""
        if self._refusals or self.dispatcher.error is not None:
            refusal = self._refusal_result()
            return BatchResult(refusal.status, reason=refusal.reason)
        return self.appender.append_entries(shared, entries, self.now_ms())

    def append_raw(self, offset: PhysicalOffset, data: bytes | memoryview) -> None:
        """Add bytes of the master's log; `dispatcher.catch_up` dispatches them."""
        if self._is_raw and len(self.log.segments) and self.refusal is None:
            # The usual case, without detours: this runs for every frame.
            self.log.append_raw(offset, data)
            return
        with self._writing_raw():
            self.log.append_raw(offset, data)

    def raw_room(self, size_max: int) -> memoryview:
        """Return where the next bytes of the master's log go, for a socket to write there.

        1 to `size_max` bytes at the end of the log; a full segment is followed by the next one.
        Nothing is part of the log until `raw_written`, which comes before the next await.
        """
        with self._writing_raw():
            return self.log.raw_room(size_max)

    def raw_written(self, size: int) -> None:
        """Make the first `size` bytes of what `raw_room` returned part of the log."""
        if Refusal.CLOSED in self._refusals:
            raise StoreUnavailableError(Refusal.CLOSED.value)
        self.log.raw_written(size)

    def begin_raw(self, offset: PhysicalOffset) -> None:
        """Let an empty log begin at `offset`, where the master's begins: a segment's beginning.

        Raises `LogGapError` if it is not empty, or if that is not where a segment begins.
        """
        if offset != self.log.written:
            with self._writing_raw():
                self.log.begin_at(offset)

    @contextlib.contextmanager
    def _writing_raw(self) -> Iterator[None]:
        refusal = self.refusal
        if refusal is not None:
            raise StoreUnavailableError(refusal.value)
        if not self._is_raw:
            # On disk before the first byte is: the next start has to know it, also after a crash.
            self._mark_raw(is_raw=True)
        was_empty = not len(self.log.segments)
        try:
            yield
        finally:
            if was_empty and len(self.log.segments):
                # It begins where the master's begins: there is nothing to dispatch before.
                self.dispatcher.dispatched = self.log.min_offset
                self._check_marks()

    def _mark_raw(self, *, is_raw: bool) -> None:
        """Let the next start know, durably, whether the log is written as raw bytes."""
        self._points.mark_live(self.log.flushed, is_raw=is_raw)
        try:
            self._points.sync()
        except StorageError as exc:
            self.fail(exc)
            raise
        self._is_raw = is_raw

    def digest(self, start: PhysicalOffset, stop: PhysicalOffset) -> bytes:
        """Return the SHA-256 of a range of the log. Blocks; a thread may do it for a long one."""
        return self.log.digest(start, stop)

    def _refusal_result(self) -> AppendResult:
        refusal = self.refusal
        assert refusal is not None
        reason = refusal.value
        if self._failure is not None:
            reason = f"{reason}: {self._failure}"
        elif refusal is Refusal.DISPATCH:
            reason = f"{reason}: {self.dispatcher.error}"
        return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=reason)

    # --- new queues ------------------------------------------------------------------------

    def plan_queues(self, places: Iterable[tuple[str, int]]) -> QueuesPlan:
        """Plan the first files of queues, given by topic and queue id, that have none yet.

        There is nothing to finish: a queue takes its file when it gets its first entry. Without
        the plan the file is made then, which blocks.
        """
        return QueuesPlan(
            tuple(
                self.queues.open(topic, queue_id)
                for topic, queue_id in places
                if not self.queues.has_file(topic, queue_id)
                and is_legal_topic(topic)
                and 0 <= queue_id <= QUEUE_ID_MAX
            )
        )

    # --- flushing --------------------------------------------------------------------------

    def plan_flush(self) -> FlushPlan | None:
        """Return what to sync so that all that is readable now is on disk; None if it is."""
        until = self.log.readable
        if until <= self.log.flushed:
            return None
        dirty = tuple(self.log.dirty_segments(until))
        return FlushPlan(until, self._last_store_ms(), dirty, self._sync_errors, self.log.cuts)

    def finish_flush(self, plan: FlushPlan) -> None:
        """Note that a plan was carried out."""
        if plan.log_cuts == self.log.cuts:
            self.log.mark_flushed(plan.until)
        if self.index is not None:
            self.index.publish()
        self._checkpoint.physical_ms = max(self._checkpoint.physical_ms, plan.store_ms)
        self._points.mark_live(self.log.flushed, is_raw=self._is_raw)

    def flush(self) -> PhysicalOffset:
        """Flush everything now. Blocks. Raises `StorageError`, and then the store has failed."""
        plan = self.plan_flush()
        if plan is not None:
            try:
                plan.run()
            except StorageError as exc:
                self.fail(exc)
                raise
            self.finish_flush(plan)
        return self.log.flushed

    def _last_store_ms(self) -> int:
        return max(self.dispatcher.store_ms, self._checkpoint.physical_ms)

    # --- retention -------------------------------------------------------------------------

    def plan_expiry(self, local_hour: int) -> ExpiryPlan:
        """Choose segments to delete and check the room on disk; the log drops them at once."""
        storage, log = self.storage, self.log
        ages = [
            SegmentAge(PhysicalOffset(segment.first), storage.modified_ms(segment.path))
            for segment in log.segments
        ]
        decision = self.retention.decide(
            now_ms=self.now_ms(),
            local_hour=local_hour,
            log_used_ratios=[storage.used_ratio(path) for path in log.segments.directories],
            queues_used_ratio=storage.used_ratio(self.config.queues_path),
            segments=ages,
        )
        log.segments.full_directories = frozenset(
            log.segments.directories[place] for place in decision.full_log_paths
        )
        self.set_disk_full(decision.disk_full)
        # Files that could not be deleted before come first: a gap behind them would be a damaged
        # store. Until they are gone nothing else is deleted.
        gone = [segment for segment in self._expired if not segment.is_gone]
        # What a recovery would read stays, however full the disk is.
        kept_from = min(log.flushed, self.dispatcher.dispatched, self._recovery_point)
        if self.keeps_from is not None and not decision.clean_immediately:
            kept_from = min(kept_from, self.keeps_from())
        for first in () if gone else decision.delete:
            segment = log.segments[0]
            if segment.first != first or segment.end > kept_from:
                break
            gone.append(log.segments.detach_first())
            self.deleted_segments[decision.cause] += 1
        if gone:
            logger.info(
                "%d segments up to %s expire: %s", len(gone), gone[-1].path, decision.reason
            )
        self._expired = gone
        return ExpiryPlan(tuple(gone), storage)

    def follow_log(self) -> None:
        """Do all steps of `following_log` at once."""
        for _ in self.following_log():
            pass

    def following_log(self) -> Generator[None, None, None]:
        """Drop what queues and index have of records that are gone from the log.

        Yields after every few queues, between which everything may change. Files that were the
        last ones at the recovery point stay until the next one: a recovery tells by them where
        queues and index ended then.
        """
        log_min = self.log.min_offset
        if log_min == self._followed:
            return
        is_done = True
        for number, queue in enumerate(list(self.queues), 1):
            if number % _QUEUES_FOLLOWED_AT_ONCE == 0:
                yield
            if queue.is_deleted:
                continue
            ends = dict(queue.last_entries())
            for _ in files_behind(log_min, list(ends), ends.__getitem__):
                if queue.segments[0].end >= queue.synced_bytes:
                    is_done = False
                    break
                queue.segments.drop_first()
            queue.correct_min_offset(log_min)
        if self.index is not None:
            for file in files_behind(log_min, list(self.index.files), _end_offset_of):
                if file.path.name == self._index_name_at_point:
                    is_done = False
                    break
                self.index.drop(file)
        if is_done:
            self._followed = log_min

    def plan_deletion(self, topics: Collection[str]) -> DeletionPlan:
        """Remove the queues of topics; their messages stay in the log until they expire.

        They are gone when this returns, and new ones of the same names may come; the plan makes
        that durable and deletes the files. A topic whose folder cannot be moved keeps its queues.
        """
        by_topic: dict[str, list[ConsumeQueue]] = {}
        for queue in self.queues.of_topics(topics):
            by_topic.setdefault(queue.topic, []).append(queue)
        deletion = _Deletion()
        for topic, queues in by_topic.items():
            if not self._delete(queues, self.queues.folder_of(topic), deletion):
                break
        return self._deletion_plan(deletion, (self.config.queues_path,))

    def plan_expired_queues(self, keep: frozenset[str]) -> Generator[None, None, DeletionPlan]:
        """Remove queues, of topics not to be kept, all of whose messages are gone from the log.

        Yields after every few queues, between which everything may change.
        """
        deletion = _Deletion()
        for number, queue in enumerate(list(self.queues), 1):
            if number % _QUEUES_AT_ONCE == 0:
                yield
            topic, queue_id = queue.topic, queue.queue_id
            if topic in keep or queue.next_offset == 0 or queue.is_deleted:
                continue
            last = queue.entry(QueueOffset(queue.next_offset - 1))
            if last is not None and last[0] < self.log.min_offset:
                folder = self.queues.folder_of(topic, queue_id)
                if not self._delete([queue], folder, deletion):
                    break
        topics = dict.fromkeys(queue.topic for queue in deletion.queues)
        return self._deletion_plan(deletion, [self.queues.folder_of(topic) for topic in topics])

    def _delete(self, queues: list[ConsumeQueue], folder: Path, deletion: _Deletion) -> bool:
        """Move a folder of queues out of the way and forget them; tell whether that went well.

        An error is raised only if nothing was deleted before.
        """
        try:
            if self.storage.exists(folder):
                deletion.moved.append(self._moved_away(folder))
        except StorageError as exc:
            if not deletion.queues:
                raise
            logger.error("not all queues are deleted: %s; %s", exc, exc.hint or "")
            return False
        self.queues.forget(queues)
        self._note_deletion()
        deletion.queues += queues
        return True

    def _moved_away(self, folder: Path) -> Path:
        self.storage.add_directory(self._deleted_path)
        while True:
            self._deleted_folders += 1
            target = self._deleted_path / str(self._deleted_folders)
            if not self.storage.exists(target):
                self.storage.move(folder, target)
                return target

    def _deletion_plan(self, deletion: _Deletion, emptied: Sequence[Path]) -> DeletionPlan:
        directories: tuple[Path, ...] = ()
        if deletion.moved:
            directories = (self.config.root, self._deleted_path, *emptied)
            # A recovery point that does not count these queues must not find them again.
            self.queues.unsynced_directories.update(dict.fromkeys(directories))
        return DeletionPlan(
            tuple(deletion.queues), tuple(deletion.moved), directories, self.storage
        )

    def _note_deletion(self) -> None:
        # A recovery point counts the entries of all queues: a new one is due, and one that is
        # being saved does not count.
        self._recovery_point = PhysicalOffset(-1)
        self.queue_deletions += 1

    # --- recovery points -------------------------------------------------------------------

    def is_point_due(self) -> bool:
        """Tell whether enough was written since the last point for another one."""
        return self.dispatcher.dispatched - self._recovery_point >= self.config.recovery_point_bytes

    def plan_point(self) -> PointPlan | None:
        """Plan a recovery point at `dispatched`; None if the last point is already there."""
        dispatched = self.dispatcher.dispatched
        if dispatched == self._recovery_point or self.dispatcher.error is not None:
            return None
        directories: list[Path] = []
        if self._unfinished_point is not None:
            # The last plan was given up, as a stop does: what it would have synced is still to do.
            directories += self._unfinished_point.directories
            self.queues.dirty += [
                queue
                for queue, _, _ in self._unfinished_point.queues
                if not queue.is_dirty and self.queues.get(queue.topic, queue.queue_id) is queue
            ]
        index_files: list[IndexFile] = []
        index_name, index_state = "", NO_INDEX_STATE
        index_ms = self._checkpoint.index_ms
        if self.index is not None:
            index_files = list(self.index.filled)
            if index_files:
                index_ms = index_files[-1].end_ms
            self.index.publish()
            current = self.index.current
            if current is not None:
                index_files.append(current)
                index_name, index_state = current.path.name, current.state
            if self.index.has_new_names:
                self.index.has_new_names = False
                directories.append(self.config.index_path)
        dirty_queues = self.queues.take_dirty()
        directories += self.queues.unsynced_directories
        self.queues.unsynced_directories.clear()
        flush = FlushPlan(
            min(self.log.readable, dispatched),
            self.dispatcher.store_ms,
            tuple(self.log.dirty_segments(dispatched)),
            self._sync_errors,
            self.log.cuts,
        )
        times = CheckpointTimes(
            max(self._checkpoint.physical_ms, self.dispatcher.store_ms),
            self.dispatcher.store_ms or self._checkpoint.queues_ms,
            index_ms,
        )
        self._unfinished_point = PointPlan(
            Point(dispatched, self.queues.entry_total, times, index_name, index_state),
            flush,
            tuple(
                (queue, queue.next_offset, tuple(queue.dirty_segments())) for queue in dirty_queues
            ),
            tuple(index_files),
            tuple(directories),
            self.storage,
            self._points,
            self._checkpoint,
            self.queue_deletions,
        )
        return self._unfinished_point

    def finish_point(self, plan: PointPlan) -> None:
        """Note that a plan was carried out."""
        self._unfinished_point = None
        if plan.flush.until > self.log.flushed:
            self.finish_flush(plan.flush)
        for queue, next_offset, _ in plan.queues:
            queue.mark_synced(next_offset)
        if self.index is not None:
            # The last one of the plan may have been filled after it was synced.
            synced = plan.index_files[:-1]
            self.index.filled = [file for file in self.index.filled if file not in synced]
        checkpoint, times = self._checkpoint, plan.point.times
        checkpoint.physical_ms = max(checkpoint.physical_ms, times.physical_ms)
        checkpoint.queues_ms, checkpoint.index_ms = times.queues_ms, times.index_ms
        if plan.queue_deletions == self.queue_deletions:
            self._recovery_point = plan.point.physical_offset
            self._index_name_at_point = plan.point.index_name
        self._check_marks()

    def _save_point_now(self) -> None:
        self.flush()
        plan = self.plan_point()
        if plan is None:
            return
        try:
            plan.run()
            self.finish_point(plan)
        except StorageError as exc:
            self.fail(exc)
            raise


def _end_offset_of(file: IndexFile) -> PhysicalOffset:
    return file.end_offset
