"""The state machine: what a store may be told in any order, and what must hold after each step.

A history is a row of steps drawn by hypothesis. Every step is done to the store and to the plain
list, and the two are compared. Steps that take a while in a running store (flushing, recovery
points, expiry) are planned, carried out and finished one by one, with other steps in between and
appends while they are carried out.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq.errors import StorageError
from rmq.model.record_layout import BLANK_BYTES
from rmq.store.append import AppendResult, AppendStatus
from tests.store.model import checks
from tests.store.model.messages import QUEUES, SHARED_KEYS, Sketch, sketches
from tests.store.model.plain_list import Listed
from tests.store.model.subject import Reopened, Subject
from tests.store.model.world import (
    CODES,
    DELETE_HOUR,
    RESERVED_HOURS,
    Ending,
    Geometry,
    Trap,
    geometries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmq.model.record import NewMessage
    from rmq.store.plans import ExpiryPlan, FlushPlan, PointPlan
    from rmq.testing.disk_model import Choose
    from rmq.testing.faults import Operation
    from tests.store.model.plain_list import QueueKey

HOUR_MS: Final = 3_600_000
TICKS_MS: Final = (0, 1, 1000, 5000, HOUR_MS, -1, -10_000)
"""By how much the clock moves before an append; sometimes it is put back."""
_FATES: Final = {3**sectors: sectors for sectors in range(2, 33)}
"""How many sectors' fates are decided by a choice of so many, see `rmq.testing.disk_model`."""
BLOCK_BYTES: Final = 4096
EXPIRE_BATCH: Final = 10
START_CALLS: Final = st.one_of(st.none(), st.none(), st.integers(1, 90))
"""At which call of the storage the start after an ending is interrupted, if it is."""
START_ENDINGS: Final = st.sampled_from([Ending.CUT, Ending.CUT, Ending.KILL, None])
PHASES: Final = st.sampled_from([3, 3, 1, 2])
"""How many of planning, carrying out and finishing are done in one step."""
Meanwhile: TypeAlias = tuple[int, list[Sketch]]
MEANWHILES: Final = st.one_of(
    st.none(), st.tuples(st.integers(1, 8), st.lists(sketches(300), min_size=1, max_size=8))
)
"""What is appended while something is synced, and before which call."""


def chooser(data: st.DataObject) -> Choose:
    """Let hypothesis decide what a power cut leaves, so that it can shrink that, too."""

    def choose(n: int) -> int:
        sectors = _FATES.get(n)
        if sectors is None:
            return data.draw(st.integers(0, n - 1))
        # All mixes of sectors are equally likely by themselves, and most leave no record whole.
        # Those in which a few sectors differ from all the others are the treacherous ones.
        fates = [data.draw(st.integers(0, 1))] * sectors
        for _ in range(data.draw(st.integers(1, 3))):
            fates[data.draw(st.integers(0, sectors - 1))] = data.draw(st.integers(0, 2))
        return sum(fate * 3**place for place, fate in enumerate(fates))

    return choose


def start_trap(calls: int | None, ending: Ending | None, choose: Choose) -> Trap | None:
    """Return the trap for a start, if there is to be one."""
    return None if calls is None else Trap(calls, None, ending, CODES[0], choose)


def step(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Make a rule that ends early if the process does."""

    def make_rule(function: Callable[..., None]) -> Any:  # noqa: ANN401 - hypothesis' own type
        @functools.wraps(function)
        def interruptible(self: StoreMachine, **drawn: object) -> None:
            Subject.tally["steps"] += 1
            try:
                function(self, **drawn)
            except Reopened:
                self.forget_plans()

        options: Any = strategies
        decorate: Callable[[Callable[..., None]], Any] = rule(**options)
        return decorate(interruptible)

    return make_rule


class StoreMachine(RuleBasedStateMachine):
    """One store through its life."""

    @initialize(geometry=geometries())
    def begin(self, geometry: Geometry) -> None:
        Subject.tally["histories"] += 1
        self.subject = Subject(geometry)
        self.numbers = 0
        self.forget_plans()

    def forget_plans(self) -> None:
        """Forget what the process that ended was about to do."""
        self.flush_plan: FlushPlan | None = None
        self.is_flush_run = False
        self.point_plan: PointPlan | None = None
        self.is_point_run = False
        self.expiry_plan: ExpiryPlan | None = None
        self.is_disk_full = False
        """The disk was said to be so full that nothing more should be written."""
        self.has_left_files = False
        """Expired segments could not be deleted, and that is tried again first."""

    # --- appending -------------------------------------------------------------------------

    @step(drawn=st.lists(sketches(1200), min_size=1, max_size=6), tick=st.sampled_from(TICKS_MS))
    def append(self, drawn: list[Sketch], tick: int) -> None:
        self.subject.world.move_clock(tick)
        self._append(drawn)

    @step(drawn=st.lists(sketches(60), min_size=8, max_size=24), repeats=st.sampled_from([1, 4]))
    def append_many(self, drawn: list[Sketch], repeats: int) -> None:
        for _ in range(repeats):
            self._append(drawn)

    @step(body=st.sampled_from([2500, 3700, 6000, 17_000, 33_000]), sketch=sketches(0))
    def append_long(self, body: int, sketch: Sketch) -> None:
        self._append([Sketch(sketch.queue, body, sketch.look, sketch.keys)])

    @step(
        drawn=st.lists(sketches(400), min_size=1, max_size=8),
        queue=st.integers(0, len(QUEUES) - 1),
        tick=st.sampled_from(TICKS_MS),
    )
    def append_batch(self, drawn: list[Sketch], queue: int, tick: int) -> None:
        self.subject.world.move_clock(tick)
        batch = [Sketch(queue, one.body, one.look, one.keys) for one in drawn]
        results = self._append(batch, is_batch=True)
        assert len({result.status for result in results}) == 1, "all or none of a batch"
        segment_bytes = self.subject.world.config.segment_bytes
        segments = {result.physical_offset // segment_bytes for result in results}
        assert len(segments) == 1, "a batch lies in one segment"

    def _append(self, drawn: Iterable[Sketch], *, is_batch: bool = False) -> list[AppendResult]:
        messages: list[NewMessage] = []
        for sketch in drawn:
            self.numbers += 1
            messages.append(sketch.message(self.numbers))
        subject = self.subject
        store = subject.store
        refusal = store.refusal
        must_refuse = subject.is_failed or self.is_disk_full or store.dispatcher.error is not None
        assert (refusal is not None) == must_refuse, refusal
        append = store.append_batch if is_batch else store.append
        subject.pending = [functools.partial(self._record_at, message) for message in messages]
        results = subject.attempt(lambda: append(messages))
        subject.pending = []
        for message, result in zip(messages, results, strict=True):
            Subject.tally[f"appends: {result.status.value}"] += 1
            if refusal is not None:
                assert result.status is AppendStatus.SERVICE_NOT_AVAILABLE, result
            elif result.status is AppendStatus.PUT_OK:
                self._take_result(message, result)
            elif result.status is AppendStatus.CREATE_MAPPED_FILE_FAILED:
                assert subject.may_fail, result
            else:
                self._check_refused(messages if is_batch else [message], result)
        return results

    def _record_at(self, message: NewMessage, physical: int) -> Listed:
        queue_offset = self.subject.listed.next_queue_offset(message)
        return Listed.of(message, physical, queue_offset, self.subject.world.now_ms)

    def _take_result(self, message: NewMessage, result: AppendResult) -> None:
        record = self._record_at(message, result.physical_offset)
        expected = (record.queue_offset, len(record.content), record.store_ms)
        assert (result.queue_offset, result.size, result.store_ms) == expected
        self.subject.listed.add(record)

    def _check_refused(self, messages: Sequence[NewMessage], result: AppendResult) -> None:
        assert result.status is AppendStatus.MESSAGE_ILLEGAL, result
        size = sum(len(Listed.of(message, 0, 0, 0).content) for message in messages)
        assert size > self.subject.world.config.segment_bytes - BLANK_BYTES, result

    # --- flushing --------------------------------------------------------------------------

    @step(phases=PHASES, meanwhile=MEANWHILES)
    def flush(self, phases: int, meanwhile: Meanwhile | None) -> None:
        for _ in range(phases):
            if self.flush_plan is None:
                self._plan_flush()
            elif not self.is_flush_run:
                self._run_flush(meanwhile)
            else:
                self._finish_flush()

    def _plan_flush(self) -> None:
        if not self.subject.is_failed:
            self.flush_plan, self.is_flush_run = self.subject.store.plan_flush(), False

    def _run_flush(self, meanwhile: Meanwhile | None) -> None:
        assert self.flush_plan is not None
        self.is_flush_run = self._run(self.flush_plan.run, meanwhile)
        if not self.is_flush_run:
            self.flush_plan = None

    def _finish_flush(self) -> None:
        plan, self.flush_plan = self.flush_plan, None
        assert plan is not None
        self.subject.store.finish_flush(plan)
        assert self.subject.store.log.flushed >= plan.until

    @step(phases=PHASES, meanwhile=MEANWHILES)
    def save_point(self, phases: int, meanwhile: Meanwhile | None) -> None:
        for _ in range(phases):
            if self.point_plan is None:
                self._plan_point()
            elif not self.is_point_run:
                self._run_point(meanwhile)
            else:
                self._finish_point()

    def _plan_point(self) -> None:
        if not self.subject.is_failed:
            self.point_plan, self.is_point_run = self.subject.store.plan_point(), False

    def _run_point(self, meanwhile: Meanwhile | None) -> None:
        assert self.point_plan is not None
        self.is_point_run = self._run(self.point_plan.run, meanwhile)
        if not self.is_point_run:
            self.point_plan = None

    def _finish_point(self) -> None:
        plan, self.point_plan = self.point_plan, None
        assert plan is not None
        self.subject.store.finish_point(plan)
        self.subject.point = plan.point.physical_offset
        Subject.tally["recovery points"] += 1

    def _run(self, run: Callable[[], None], meanwhile: Meanwhile | None) -> bool:
        """Do what a running store does in a thread; if that fails, so does the store."""
        calls, drawn = meanwhile or (0, [])
        try:
            with self.subject.world.meanwhile(calls, lambda: self._append_quietly(drawn)):
                self.subject.attempt(run)
        except StorageError as exc:
            self.subject.store.fail(exc)
            Subject.tally["stores failed"] += 1
            return False
        return True

    def _append_quietly(self, drawn: list[Sketch]) -> None:
        with self.subject.world.quiet():
            self._append(drawn)
        Subject.tally["appends while syncing"] += 1

    # --- retention -------------------------------------------------------------------------

    @step(
        used_ratio=st.sampled_from([0.88, 0.1, 0.8, 0.95]),
        hour=st.sampled_from([DELETE_HOUR, 12]),
        hours_passed=st.sampled_from([0, RESERVED_HOURS]),
        is_saved=st.booleans(),
        is_followed=st.booleans(),
    )
    def expire(
        self,
        used_ratio: float,
        hour: int,
        hours_passed: int,
        is_saved: bool,
        is_followed: bool,
    ) -> None:
        self._finish_expiry()
        (self.save_point if is_saved else self.flush)(phases=4, meanwhile=None)
        subject = self.subject
        subject.world.move_clock(hours_passed * HOUR_MS)
        subject.world.storage.reported_used_ratio = used_ratio
        store = subject.store
        before = [(segment.first, segment.end) for segment in store.log.segments]
        safe_below = min(store.log.flushed, store.dispatcher.dispatched)
        has_left = self.has_left_files
        try:
            self.expiry_plan = subject.attempt(lambda: store.plan_expiry(hour))
        except StorageError:
            return
        kept = [(segment.first, segment.end) for segment in store.log.segments]
        gone = before[: len(before) - len(kept)]
        Subject.tally["segments expired"] += len(gone)
        assert gone + kept == before, "the oldest go first"
        assert kept or not before, "the last one stays"
        assert all(end <= safe_below for _, end in gone), "what is not safe stays"
        if used_ratio <= 0.75 and hour != DELETE_HOUR:
            assert not gone, "nothing called for it"
        is_all_safe = store.statistics().recovery_point == store.log.written
        if used_ratio > 0.85 and is_all_safe and not has_left:
            assert len(gone) == min(max(len(before) - 1, 0), EXPIRE_BATCH), "room was wanted"
        self.is_disk_full = used_ratio > 0.9
        subject.listed.log_min = int(store.log.min_offset)
        if is_followed:
            self._finish_expiry()

    def _finish_expiry(self) -> None:
        plan, self.expiry_plan = self.expiry_plan, None
        subject = self.subject
        try:
            if plan is not None:
                self.has_left_files = True
                subject.attempt(plan.run)
                self.has_left_files = False
            subject.attempt(subject.store.follow_log)
        except StorageError:
            return
        subject.listed.followed = subject.listed.log_min

    # --- what else goes on -----------------------------------------------------------------

    @step(what=st.sampled_from(["create a spare", "commit", "dispatch", "follow the log"]))
    def work_in_the_background(self, what: str) -> None:
        log = self.subject.store.log
        if what == "follow the log":
            self._finish_expiry()
        elif what == "commit":
            log.commit()
        elif what == "dispatch":
            self._catch_up()
        elif not self.subject.is_failed:
            self._try_to(log.create_spare)

    def _catch_up(self) -> None:
        dispatcher, log = self.subject.store.dispatcher, self.subject.store.log

        def dispatch() -> None:
            while dispatcher.catch_up(bytes_max=500):
                pass

        if self._try_to(dispatch):
            assert dispatcher.dispatched == log.readable

    def _try_to(self, action: Callable[[], None]) -> bool:
        try:
            self.subject.attempt(action)
        except StorageError:
            return False
        return True

    @step(data=st.data())
    def write_back(self, data: st.DataObject) -> None:
        self.subject.world.storage.write_back(chooser(data))

    @step(blocks=st.one_of(st.none(), st.integers(0, 8)))
    def set_room(self, blocks: int | None) -> None:
        storage = self.subject.world.storage
        if blocks is not None:
            storage.capacity_bytes = storage.used_bytes + blocks * BLOCK_BYTES
            return
        storage.capacity_bytes = None
        self._catch_up()

    @step(
        calls=st.one_of(st.integers(1, 4), st.integers(1, 100)),
        operation=st.sampled_from([None, None, "sync", "sync", "create", "reserve", "delete"]),
        ending=st.sampled_from([Ending.CUT, Ending.KILL, None, None]),
        code=st.sampled_from(CODES),
        data=st.data(),
    )
    def set_trap(
        self,
        calls: int,
        operation: Operation | None,
        ending: Ending | None,
        code: int,
        data: st.DataObject,
    ) -> None:
        self.subject.world.trap = Trap(calls, operation, ending, code, chooser(data))

    # --- endings ---------------------------------------------------------------------------

    @step(
        data=st.data(),
        ending=st.sampled_from([Ending.CUT, Ending.CUT, Ending.KILL]),
        last=st.lists(sketches(1200), max_size=12),
        start_calls=START_CALLS,
        start_ending=START_ENDINGS,
    )
    def end(
        self,
        data: st.DataObject,
        ending: Ending,
        last: list[Sketch],
        start_calls: int | None,
        start_ending: Ending | None,
    ) -> None:
        """End the process, soon after some messages that there was no time to flush."""
        if last:
            self._append(last)
        self.forget_plans()
        choose = chooser(data)
        self.subject.end(ending, choose, start_trap(start_calls, start_ending, choose))

    @step(
        data=st.data(),
        ending=st.sampled_from(list(Ending)),
        start_calls=START_CALLS,
        start_ending=START_ENDINGS,
    )
    def stop(
        self,
        data: st.DataObject,
        ending: Ending,
        start_calls: int | None,
        start_ending: Ending | None,
    ) -> None:
        """Stop cleanly, and start again after a reboot or without one."""
        self.forget_plans()
        choose = chooser(data)
        self.subject.stop(ending, choose, start_trap(start_calls, start_ending, choose))

    # --- reading ---------------------------------------------------------------------------

    @step(
        queue=st.sampled_from(QUEUES),
        offset=st.integers(0, 60),
        count=st.sampled_from([1, 2, 5, 32]),
        codes=st.one_of(st.none(), st.sets(st.sampled_from([0, 112785, 2112]))),
        lengths=st.sampled_from([1, 2]),
    )
    def read_queue(
        self, queue: QueueKey, offset: int, count: int, codes: set[int] | None, lengths: int
    ) -> None:
        subject = self.subject
        wants = None if codes is None else checks.Wants(frozenset(codes), lengths)
        offset %= len(subject.listed.queues[queue]) + 3
        with subject.world.quiet():
            result = checks.check_get(subject.store, subject.listed, queue, offset, count, wants)
        Subject.tally[f"reads: {result.status.value}"] += 1

    @step(
        place=st.integers(0, 60),
        beside=st.integers(0, 3),
        topic=st.sampled_from(["a", "b"]),
        key=st.sampled_from([*SHARED_KEYS, "none"]),
    )
    def read_record(self, place: int, beside: int, topic: str, key: str) -> None:
        subject = self.subject
        present = subject.listed.present()
        if not present:
            return
        record = present[place % len(present)]
        with subject.world.quiet():
            checks.check_record(subject.store, record, beside)
            checks.check_key(subject.store, subject.listed, topic, key)
            if subject.world.is_steady and not any(one.is_torn for one in present):
                begin_ms = record.store_ms - 1000
                checks.check_key(subject.store, subject.listed, topic, key, begin_ms)

    @invariant()
    def watermarks_are_in_order(self) -> None:
        subject = self.subject
        log, dispatcher = subject.store.log, subject.store.dispatcher
        assert log.min_offset <= log.flushed <= log.readable <= log.written
        assert dispatcher.dispatched <= log.readable
        if not subject.world.config.transient_pool_enabled:
            assert log.readable == log.written
            assert dispatcher.dispatched == log.written or dispatcher.error is not None
        assert log.min_offset == subject.listed.log_min
        checks.check_room(subject.world.storage)

    def teardown(self) -> None:
        if hasattr(self, "subject") and sys.exc_info()[0] is None:
            subject = self.subject
            with subject.world.quiet():
                checks.check_store(subject.store, subject.world.storage, subject.listed)
