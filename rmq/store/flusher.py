"""Flushing: one task syncs the log, and all waiting calls are answered together.

The log is synced as soon as a call waits, which with SYNC_FLUSH every append does; all that come
while the disk works share the next sync (group commit). What no call waits for is synced at
intervals, when enough pages have gathered or enough time has passed. Each wait has its own
deadline, which passes also while a sync hangs.

A failed sync ends flushing for good: `StoreCore.fail` says why, and all waits end with FAILED.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import trio

from rmq.counting.histogram import Histogram
from rmq.errors import StorageError
from rmq.store.config import PAGE_BYTES
from rmq.store.waits import WatermarkWaits
from rmq.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.core import StoreCore


FLUSH_BOUNDS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
    10.0,
)


class FlushOutcome(enum.Enum):
    """How a wait for the disk ended."""

    FLUSHED = "flushed"
    TIMED_OUT = "timed out"
    FAILED = "failed"


class FlushWait:
    """One call that waits for the disk."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[FlushOutcome], None]) -> None:
        self._callback = callback

    def end(self, outcome: FlushOutcome) -> None:
        self._callback(outcome)


class Flusher:
    """Flushes the log of one store while `run` runs."""

    def __init__(self, core: StoreCore, limiter: trio.CapacityLimiter) -> None:
        self._core = core
        self._limiter = limiter
        self._waits: WatermarkWaits[FlushWait] = WatermarkWaits()
        self._wanted = trio.Event()
        self._wait_added = trio.Event()
        self._deadline_scope = trio.CancelScope()
        self._syncs = 0
        self._has_ended = False
        self.durations = Histogram(FLUSH_BOUNDS_S)
        """How long syncs of the log took."""

    @property
    def syncs(self) -> int:
        """How many times the log was synced."""
        return self._syncs

    @property
    def waiting(self) -> int:
        """How many calls wait for the disk now."""
        return len(self._waits)

    # --- waiting ---------------------------------------------------------------------------

    def when_flushed(
        self, offset: PhysicalOffset, timeout_s: float, callback: Callable[[FlushOutcome], None]
    ) -> FlushWait | None:
        """Call back once the log is on disk up to `offset`, or when that fails or takes too long.

        It calls at once and returns None if there is nothing to wait for. What is returned can be
        given to `forget`.
        """
        if offset <= self._core.log.flushed:
            callback(FlushOutcome.FLUSHED)
            return None
        if self._core.failure is not None or self._has_ended:
            callback(FlushOutcome.FAILED)
            return None
        wait = FlushWait(callback)
        deadline = trio.current_time() + timeout_s
        self._waits.add(offset, deadline, wait)
        if deadline < self._deadline_scope.deadline:
            self._deadline_scope.deadline = deadline
        self._wait_added.set()
        self._wanted.set()
        return wait

    def forget(self, wait: FlushWait) -> None:
        """Take a wait back; its callback is not called."""
        self._waits.discard(wait)

    async def wait_flushed(self, offset: PhysicalOffset, timeout_s: float) -> FlushOutcome:
        """Wait until the log is on disk up to `offset`."""
        done = trio.Event()
        outcomes: list[FlushOutcome] = []

        def note(outcome: FlushOutcome) -> None:
            outcomes.append(outcome)
            done.set()

        wait = self.when_flushed(offset, timeout_s, note)
        try:
            await done.wait()
        finally:
            if wait is not None and not outcomes:
                self.forget(wait)
        return outcomes[0]

    def request(self) -> None:
        """Ask for a flush without waiting for it."""
        self._wanted.set()

    # --- the task --------------------------------------------------------------------------

    async def run(self) -> None:
        """Flush until cancelled, or until the disk fails."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire_waits)
            nursery.start_soon(self._flush_on_demand)
            # With SYNC_FLUSH too: what no call waits for must not stay in memory for long.
            nursery.start_soon(self._flush_at_intervals)

    async def _flush_on_demand(self) -> None:
        while self._core.failure is None:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self.flush()

    async def _flush_at_intervals(self) -> None:
        log = self._core.log
        last_thorough = trio.current_time()
        while self._core.failure is None:
            # Settings may change while it runs.
            config = self._core.config
            await trio.sleep(config.flush_interval_ms / 1000)
            now = trio.current_time()
            is_thorough = now - last_thorough >= config.flush_thorough_interval_ms / 1000
            pages = log.readable // PAGE_BYTES - log.flushed // PAGE_BYTES
            if is_thorough or pages >= config.flush_least_pages:
                await self.flush()
            if is_thorough:
                last_thorough = now

    async def flush(self) -> None:
        """Sync what is readable now and answer the calls that waited for it."""
        core = self._core
        plan = core.plan_flush() if core.failure is None else None
        if plan is not None:
            began = trio.current_time()
            try:
                await run_in_thread(plan.run, limiter=self._limiter)
                self._syncs += 1
                self.durations.note(trio.current_time() - began)
            except StorageError as exc:
                core.fail(exc)
        if core.failure is not None:
            # Also if it was another sync that failed while this one ended well: the system reports
            # lost pages once, so that a later sync succeeds without them.
            self.fail_waits()
            return
        if plan is not None:
            core.finish_flush(plan)
        self.answer_waits()

    def answer_waits(self) -> None:
        """Answer the waits whose offset is on disk by now."""
        for wait in self._waits.advance(self._core.log.flushed):
            wait.end(FlushOutcome.FLUSHED)

    def fail_waits(self) -> None:
        """End all waits with FAILED."""
        for wait in self._waits.fail_all():
            wait.end(FlushOutcome.FAILED)

    def end(self) -> None:
        """Answer the waits that are left when there will be no more flushes."""
        self._has_ended = True
        self.answer_waits()
        self.fail_waits()

    async def _expire_waits(self) -> None:
        while True:
            deadline = self._waits.next_deadline()
            if deadline is None:
                self._wait_added = trio.Event()
                await self._wait_added.wait()
                continue
            with trio.CancelScope(deadline=deadline) as self._deadline_scope:
                await trio.sleep_forever()
            for wait in self._waits.expire(trio.current_time()):
                wait.end(FlushOutcome.TIMED_OUT)
