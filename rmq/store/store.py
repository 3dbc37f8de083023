"""The message store as a running thing: `StoreCore` with its tasks, on trio.

    async with open_store(config) as store:
        results = await store.put([NewMessage(...)])

`put` waits as `flushDiskType` says. `append` does not wait, for callers that answer many requests
at once and come back with `when_flushed`. Reads are plain calls on `store.reads`.

Every task has its own job, given by its name; what blocks runs in threads of a limiter of the
store's own. A failed disk ends taking messages, not the store: it still serves reads.
"""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from rmq.errors import StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.steps import in_steps
from rmq.store.append import DISPATCHED_AT_ONCE, AppendResult, AppendStatus
from rmq.store.config import MIB, FlushMode
from rmq.store.core import DEFAULT_STORE_HOST, StoreCore
from rmq.store.dispatcher import BadLogError
from rmq.store.flusher import Flusher, FlushOutcome, FlushWait
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from rmq.counting.histogram import Histogram
    from rmq.errors import StoreUnavailableError
    from rmq.model.record import NewMessage
    from rmq.store.append import BatchResult
    from rmq.store.commit_log import LogReads
    from rmq.store.config import StoreConfig
    from rmq.store.core import Refusal, StoreStatistics
    from rmq.store.listener import StoreListener
    from rmq.store.plans import DeletionPlan
    from rmq.store.recovery import Progress
    from rmq.store.retention import DeletionCause
    from rmq.store.storage import Storage

THREADS: Final = 6
"""The flusher, recovery points, segments made ahead, expiry, new queues, deleted queues."""
FLUSH_BYTES: Final = 16 * MIB
"""Unflushed bytes after which a flush begins at once: the disk works while more comes in."""
_DISPATCH_RETRY_S: Final = 1.0
_ROOM_RETRY_S: Final = 0.1
"""Seconds after which a segment that could not be created is tried again."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_store(
    config: StoreConfig,
    *,
    storage: Storage | None = None,
    store_host: bytes = DEFAULT_STORE_HOST,
    now_ms: Callable[[], int] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_cut: Callable[[StoreCore], None] | None = None,
) -> AsyncIterator[MessageStore]:
    """Open a store, recovering it if need be, and run it; it is flushed and closed at the end.

    `on_cut` is called, in a thread, when its log was cut by a written order (`StoreCore`).
    """
    limiter = trio.CapacityLimiter(THREADS)
    core = await run_in_thread(
        partial(
            StoreCore,
            config,
            storage=storage,
            store_host=store_host,
            now_ms=now_ms,
            on_progress=on_progress,
            on_cut=on_cut,
        ),
        limiter=limiter,
    )
    store = MessageStore(core, limiter)
    has_failed = True
    try:
        async with trio.open_nursery() as nursery:
            for job in store.jobs():
                nursery.start_soon(job)
            yield store
            nursery.cancel_scope.cancel()
        has_failed = False
    finally:
        # Closing syncs and must be whole; it takes as long as the disk takes.
        with trio.CancelScope(shield=True):
            try:
                await run_in_thread(core.close, limiter=limiter)
            except StorageError as exc:
                if not has_failed:
                    raise
                # What is on its way out already is what the caller must see.
                logger.error("the store was not closed cleanly: %s; %s", exc, exc.hint or "")
            finally:
                store.end_waits()


class MessageStore:
    """A running store; made by `open_store`."""

    def __init__(self, core: StoreCore, limiter: trio.CapacityLimiter) -> None:
        self.config = core.config
        self.log: LogReads = core.log
        """The CommitLog, to be read; only the store writes to it."""
        self.queues = core.queues
        self.reads = core.reads
        self.recovery = core.recovery
        """What opening the store found and did."""
        self._core = core
        self._limiter = limiter
        self._flusher = Flusher(core, limiter)
        self._attention = trio.Event()
        self._attention_at: float = 0
        self._flush_at = core.log.written + FLUSH_BYTES
        self._dispatch_wanted = trio.Event()
        self._room_wanted = trio.Event()
        core.appender.keeps_room_error = True
        self._tell_appended: Callable[[], None] | None = None

    def listen(self, listener: StoreListener) -> None:
        """Call a broker's listener from now on; the store has only one."""
        self._tell_appended = listener.appended
        self._core.listen(listener)

    # --- state -----------------------------------------------------------------------------

    def statistics(self) -> StoreStatistics:
        return self._core.statistics()

    def reconfigure(self, config: StoreConfig) -> None:
        """Use other settings from now on; those that describe the files must stay as they are."""
        self._core.reconfigure(config)
        self.config = config

    @property
    def dispatched(self) -> PhysicalOffset:
        """The offset below which all records of the log are in queues and index."""
        return self._core.dispatcher.dispatched

    @property
    def refusal(self) -> Refusal | None:
        """Why messages are refused, None if they are taken."""
        return self._core.refusal

    @property
    def failure(self) -> StorageError | None:
        """The error of the disk after which the store takes nothing until it is restarted."""
        return self._core.failure

    def refusal_error(self) -> StoreUnavailableError | None:
        """Return an error that tells why messages are refused, None if they are taken."""
        return self._core.refusal_error()

    def set_refused(self, refusal: Refusal, is_refused: bool) -> None:
        """Refuse or take messages for a reason that lies outside of the store."""
        self._core.set_refused(refusal, is_refused)

    def used_ratio(self, path: Path) -> float:
        """Return how full the disk is that a folder of the store is on."""
        return self._core.storage.used_ratio(path)

    def last_indexed(self) -> tuple[int, PhysicalOffset]:
        """Return store time and offset of the record indexed last; zeros if there is none."""
        index = self._core.index
        last = None if index is None else index.current
        return (
            (0, PhysicalOffset(0))
            if last is None
            else (last.end_ms, PhysicalOffset(last.end_offset))
        )

    def record_boundary(self, offset: PhysicalOffset) -> PhysicalOffset:
        """Return the last end of a record at or before `offset`, in the log. Blocks."""
        return self._core.record_boundary(offset)

    @property
    def flush_waits(self) -> int:
        """How many calls wait for the disk."""
        return self._flusher.waiting

    @property
    def syncs(self) -> int:
        """How many times the log was synced by the flusher."""
        return self._flusher.syncs

    @property
    def sync_durations(self) -> Histogram:
        """How long syncs of the log took."""
        return self._flusher.durations

    @property
    def deleted_segments(self) -> Mapping[DeletionCause, int]:
        """Segments of the log that were deleted since the start, by the cause."""
        return self._core.deleted_segments

    @property
    def threads(self) -> trio.CapacityLimiter:
        """How many threads work for the store."""
        return self._limiter

    # --- appending -------------------------------------------------------------------------

    def append(self, messages: Sequence[NewMessage]) -> list[AppendResult]:
        """Append messages, each with its own result; nothing waits for the disk."""
        try:
            results = self._core.append(messages)
        except MemoryError:
            # Some of them may be in the log by now.
            self._dispatch_wanted.set()
            raise
        if self._tell_appended is not None:
            self._tell_appended()
        self._look_after_append()
        return results

    def append_batch(self, messages: Sequence[NewMessage]) -> list[AppendResult]:
        """Append messages of one queue as a whole, all or none; nothing waits for the disk."""
        results = self._core.append_batch(messages)
        if self._tell_appended is not None:
            self._tell_appended()
        self._look_after_append()
        return results

    def append_entries(
        self, shared: NewMessage, entries: Sequence[tuple[int, bytes, bytes]]
    ) -> BatchResult:
        """Append a batch as clients send it, all or none; nothing waits for the disk."""
        result = self._core.append_entries(shared, entries)
        if len(entries) > DISPATCHED_AT_ONCE:
            self._dispatch_wanted.set()
        if self._tell_appended is not None:
            self._tell_appended()
        self._look_after_append()
        return result

    async def put(
        self, messages: Sequence[NewMessage], *, batch: bool = False
    ) -> list[AppendResult]:
        """Append messages and wait for the disk if `flushDiskType` says so.

        Messages that are in the log but not known to be on disk have FLUSH_DISK_TIMEOUT.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        results = self.append_batch(messages) if batch else self.append(messages)
        config = self._core.config
        end = max((result.end_offset for result in results if _is_put(result)), default=None)
        if config.flush_mode is FlushMode.ASYNC or end is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return results
        outcome = await self._flusher.wait_flushed(end, config.sync_flush_timeout_ms / 1000)
        if outcome is FlushOutcome.FLUSHED:
            return results
        return [
            msgspec.structs.replace(result, status=AppendStatus.FLUSH_DISK_TIMEOUT)
            if _is_put(result)
            else result
            for result in results
        ]

    def append_raw(self, offset: PhysicalOffset, data: bytes | memoryview) -> None:
        """Add bytes of the master's log; they are dispatched soon."""
        self._core.append_raw(offset, data)
        self._dispatch_wanted.set()
        self._look_after_append()

    def raw_room(self, size_max: int) -> memoryview:
        """Return where the next bytes of the master's log go; see `StoreCore.raw_room`."""
        return self._core.raw_room(size_max)

    def raw_written(self, size: int) -> None:
        """Make the bytes written into `raw_room` part of the log; they are dispatched soon."""
        self._core.raw_written(size)
        self._dispatch_wanted.set()
        self._look_after_append()

    def begin_raw(self, offset: PhysicalOffset) -> None:
        """Make an empty log begin where the master's does."""
        self._core.begin_raw(offset)

    async def trim_tail(self) -> int:
        """Make the log of a slave one to append to; see `StoreCore.trim_tail`.

        It takes as long as dispatching what is left takes; the rest is over at once.
        """
        self._commit()
        while self._core.dispatch_all_step():
            await trio.lowlevel.checkpoint()
        await self.flush()
        return self._core.trim_tail()

    def set_visible_bound(self, bound: Callable[[], PhysicalOffset] | None) -> None:
        """Let consumers read the log only up to the offset that `bound` returns; None: all of it.

        What lies behind it is in the log and in no queue. Becoming a master (`trim_tail`) and
        closing the store end the bound.
        """
        self._core.dispatcher.bound = bound
        self._dispatch_wanted.set()

    @property
    def has_visible_bound(self) -> bool:
        return self._core.dispatcher.bound is not None

    def visible_bound_moved(self) -> None:
        """Dispatch what the visible bound lets through by now."""
        self._dispatch_wanted.set()

    def when_flushed(
        self, offset: PhysicalOffset, callback: Callable[[FlushOutcome], None]
    ) -> FlushWait | None:
        """Call back when the log is on disk up to `offset`, or after `syncFlushTimeout`."""
        timeout_s = self._core.config.sync_flush_timeout_ms / 1000
        return self._flusher.when_flushed(offset, timeout_s, callback)

    def forget(self, wait: FlushWait) -> None:
        """Take back what `when_flushed` returned."""
        self._flusher.forget(wait)

    async def wait_flushed(
        self, offset: PhysicalOffset, timeout_s: float = math.inf
    ) -> FlushOutcome:
        """Wait until the log is on disk up to `offset`."""
        return await self._flusher.wait_flushed(offset, timeout_s)

    def end_waits(self) -> None:
        """Answer the calls that still wait for the disk; for a store that is closed."""
        self._flusher.end()

    async def flush(self) -> PhysicalOffset:
        """Flush what is appended by now and return the offset below which the log is on disk."""
        self._commit()
        await self._flusher.flush()
        if self._core.failure is not None:
            raise self._core.failure
        return self._core.log.flushed

    @property
    def queue_deletions(self) -> int:
        """Counts how often queues were deleted: what is known of queues is good until it moves."""
        return self._core.queue_deletions

    # --- new queues ------------------------------------------------------------------------

    def has_queue_file(self, topic: str, queue_id: int) -> bool:
        """Tell whether an append to a queue has no directories and no first file to make."""
        return self._core.queues.has_file(topic, queue_id)

    async def make_queues(self, places: Iterable[tuple[str, int]]) -> StorageError | None:
        """Make the first files of queues, given by topic and queue id, in a thread.

        Return why some could not be made, None if all were. An append to a queue without a file
        makes it itself: everything waits for that, and for as long as it cannot be made.
        """
        plan = self._core.plan_queues(places)
        return await run_in_thread(plan.run, limiter=self._limiter)

    # --- deleting --------------------------------------------------------------------------

    async def delete_topics(self, *topics: str) -> None:
        """Remove the queues of topics; their messages stay in the log until they expire.

        They are gone from the first moment on, and for good when this returns.
        """
        await self._delete_files(self._core.plan_deletion(topics))

    async def delete_expired_queues(self, keep: frozenset[str]) -> list[tuple[str, int]]:
        """Remove queues, of topics not to be kept, all of whose messages are gone from the log."""
        # All of it: the queues that are found are forgotten at once.
        with trio.CancelScope(shield=True):
            plan = await in_steps(self._core.plan_expired_queues(keep))
            await self._delete_files(plan)
        return [(queue.topic, queue.queue_id) for queue in plan.queues]

    async def _delete_files(self, plan: DeletionPlan) -> None:
        if plan.queues:
            # The queues are forgotten: their files go also when the store is just being closed.
            with trio.CancelScope(shield=True):
                await run_in_thread(plan.run, limiter=self._limiter)
        else:
            await trio.lowlevel.checkpoint()

    def request_cleaning(self) -> None:
        """Delete old segments in the next rounds of cleaning, whatever the hour."""
        self._core.retention.arm_manual_deletion()

    # --- tasks -----------------------------------------------------------------------------

    def jobs(self) -> list[Callable[[], Awaitable[None]]]:
        """Return what must run while the store is in use."""
        jobs: list[Callable[[], Awaitable[None]]] = [
            self._flusher.run,
            self._work_ahead,
            self._save_points,
            self._dispatch_log,
            self._expire_segments,
        ]
        if self._core.config.transient_pool_enabled:
            jobs.append(self._commit_pool)
        return jobs

    def _look_after_append(self) -> None:
        # A few comparisons per append; the work itself is done by tasks.
        if self._core.log.written >= self._attention_at:
            self._attention_at = math.inf
            self._attention.set()
        if self._core.dispatcher.error is not None:
            self._dispatch_wanted.set()
        if self._core.appender.room_error is not None:
            self._room_wanted.set()

    async def _work_ahead(self) -> None:
        """Flush what has piled up; make the next segment and bring in pages before their time."""
        core = self._core
        while core.failure is None:
            await self._attention.wait()
            self._attention = trio.Event()
            if core.log.written >= self._flush_at:
                self._flush_at = core.log.written + FLUSH_BYTES
                self._flusher.request()
            if core.log.wants_spare():
                try:
                    await run_in_thread(core.log.create_spare, limiter=self._limiter)
                except StorageError as exc:
                    # The segment is made when it is needed, and that append gets the error.
                    logger.warning(
                        "the next segment cannot be made yet: %s; %s", exc, exc.hint or ""
                    )
            wanted = core.log.touch_wanted()
            if wanted is not None:
                file, start, stop = wanted
                await run_in_thread(file.touch, start, stop, limiter=self._limiter)
            self._attention_at = min(core.log.attention_at(), self._flush_at)

    async def _save_points(self) -> None:
        """Save recovery points by time and by how much was written."""
        core = self._core
        last = trio.current_time()
        while True:
            interval_s = core.config.recovery_point_interval_ms / 1000
            await trio.sleep(min(1.0, interval_s))
            if core.failure is not None:
                # A point says that everything before it is on disk, which is not known any longer.
                return
            now = trio.current_time()
            if now - last < interval_s and not core.is_point_due():
                continue
            last = now
            plan = core.plan_point()
            if plan is None:
                continue
            try:
                # The plan has taken the list of what is to be synced: dropped, it would leave the
                # next one without. So it is carried out also when the store is just being closed.
                with trio.CancelScope(shield=True):
                    await run_in_thread(plan.run, limiter=self._limiter)
            except StorageError as exc:
                core.fail(exc)
                self._flusher.fail_waits()
                return
            if core.failure is not None:
                return
            core.finish_point(plan)
            self._flusher.answer_waits()

    async def _dispatch_log(self) -> None:
        """Dispatch what did not come in by `append`: a slave's bytes, or what failed before."""
        dispatcher = self._core.dispatcher
        while True:
            await self._dispatch_wanted.wait()
            self._dispatch_wanted = trio.Event()
            try:
                while dispatcher.catch_up():
                    await trio.lowlevel.checkpoint()
            except StorageError as exc:
                logger.error("dispatch failed and is tried again: %s; %s", exc, exc.hint or "")
                await trio.sleep(_DISPATCH_RETRY_S)
                self._dispatch_wanted.set()
            except BadLogError as exc:
                # They came from a master. Skipping them would hide messages from all consumers.
                self._core.fail(
                    StorageError(
                        "dispatch",
                        str(self._core.config.commit_log_paths[0]),
                        f"bytes that are no record at {exc}",
                        hint="compare this log with its master's: `rmq ha verify`, then"
                        " `rmq ha resync`",
                    )
                )
                self._flusher.fail_waits()
                return

    async def _commit_pool(self) -> None:
        """Copy what the transient pool holds into the files."""
        while True:
            await trio.sleep(self._core.config.commit_interval_ms / 1000)
            self._commit()
            if self._flusher.waiting:
                self._flusher.request()

    def _commit(self) -> None:
        if self._core.log.uncommitted:
            self._core.log.commit()
            self._dispatch_wanted.set()

    async def _expire_segments(self) -> None:
        """Delete what is old or in the way, and refuse messages when the disk is full."""
        core = self._core
        while True:
            try:
                plan = core.plan_expiry(datetime.now().hour)  # noqa: DTZ005 - hours are local
                if plan.segments:
                    # The log has forgotten them: they go also when the store is just being closed.
                    with trio.CancelScope(shield=True):
                        await run_in_thread(plan.run, limiter=self._limiter)
                await in_steps(core.following_log())
            except StorageError as exc:
                logger.error("expired files cannot be removed: %s; %s", exc, exc.hint or "")
            pause_s = core.config.clean_interval_ms / 1000
            with trio.move_on_after(pause_s):
                await self._room_wanted.wait()
            if core.appender.room_error is not None:
                # An attempt to begin a segment costs as much as many appends, and there will be no
                # room for a while: those that need one are refused meanwhile.
                await trio.sleep(min(pause_s, _ROOM_RETRY_S))
                core.appender.room_error = None
            self._room_wanted = trio.Event()


def _is_put(result: AppendResult) -> bool:
    return result.status is AppendStatus.PUT_OK
