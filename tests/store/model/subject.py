"""The store under test together with what is known of it, from one start to the next.

`attempt` is the way to do anything to the store: if the trap ends the process meanwhile, the store
is opened again, held against the list, and `Reopened` is raised. `end` and `stop` do the same at a
moment of the caller's choice. After every start all that must have survived has to be there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, TypeVar

from hypothesis import currently_in_test_context, note

from rmq.errors import StorageError
from tests.store.model import checks
from tests.store.model.plain_list import Listed, PlainList
from tests.store.model.world import Ending, Interrupted, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.core import StoreCore
    from rmq.testing.disk_model import Choose
    from rmq.testing.faults import Operation
    from rmq.testing.storage import MemoryStorage
    from tests.store.model.plain_list import QueueKey
    from tests.store.model.world import Geometry, Trap

T = TypeVar("T")


def tell(what: str) -> None:
    """Add a line to the history, if it is one of hypothesis'."""
    if currently_in_test_context():
        note(what)


class _Survivors:
    """Up to where the log has to be there at the next start."""

    def __init__(self, must: int, flushed: int) -> None:
        self.must = must
        self._flushed = flushed

    def cut(self) -> None:
        """What was not flushed may be lost from now on."""
        self.must = self._flushed


class Reopened(Exception):
    """The process ended in the middle of something; another one has opened the store."""


class Subject:
    """One store through its life."""

    tally: ClassVar[Counter[str]] = Counter()
    """What happened in all histories, to see that they are eventful."""

    def __init__(self, geometry: Geometry, *, is_slave: bool = False) -> None:
        self.world = World(geometry)
        self.listed = PlainList()
        self.is_slave = is_slave
        """The log may end inside a record, the rest of which comes later."""
        self.pending: list[Callable[[int], Listed]] = []
        """What an append that is under way was asked to append, given where it came to lie."""
        self._is_pending_sure = True
        """None of them can have been refused before the process ended."""
        self.has_lost_sync = False
        """A sync failed: the kernel may hold bytes it will not write until the machine restarts."""
        self.point = 0
        """The last recovery point that was finished."""
        self.failed: Operation | None = None
        """Which call of the storage failed by order in the last attempt."""
        self.store: StoreCore = self.world.open()

    @property
    def is_failed(self) -> bool:
        return self.store.failure is not None

    @property
    def may_fail(self) -> bool:
        """Whether there was a reason for the last attempt to fail."""
        is_full = self.world.storage.capacity_bytes is not None
        return self.failed is not None or is_full or self.is_failed

    def attempt(self, step: Callable[[], T]) -> T:
        """Do something to the store. `StorageError` comes out only if there is a reason for it."""
        self.failed = None
        try:
            return step()
        except Interrupted as interruption:
            self.tally[f"steps interrupted: {interruption}"] += 1
            survivors = self._survivors()
            self._be_interrupted(interruption, survivors)
            self._is_pending_sure = not self.may_fail
            self._open(survivors, interruption.choose)
            raise Reopened from None
        except StorageError as exc:
            self._check_reason(exc)
            raise
        finally:
            self._take_failure()

    def _check_reason(self, error: StorageError) -> None:
        self._take_failure()
        assert self.may_fail, f"it fails although nothing is wrong: {error}"

    def _take_failure(self) -> None:
        failed, self.world.failed = self.world.failed, None
        if failed is not None:
            tell(f"failed: {failed}")
            self.tally["calls failed"] += 1
            self.failed = failed
            self.has_lost_sync |= failed == "sync"

    # --- endings ---------------------------------------------------------------------------

    def end(self, ending: Ending, choose: Choose, trap: Trap | None = None) -> None:
        """End the process and begin the next one, which may run into a trap."""
        survivors = self._survivors()
        self._end_process(ending, choose, survivors)
        self.world.trap = trap or self.world.trap
        self._open(survivors, choose)

    def stop(self, ending: Ending, choose: Choose, trap: Trap | None = None) -> None:
        """Close the store, and begin the next process after a reboot or without one."""
        store = self.store
        try:
            self.attempt(store.close)
        except StorageError:
            self.end(ending, choose, trap)
            return
        if store.failure is not None:
            self.end(ending, choose, trap)
            return
        assert store.log.flushed == store.log.written == store.dispatcher.dispatched
        self.tally["clean stops"] += 1
        survivors = _Survivors(int(store.log.written), int(store.log.written))
        self._end_process(ending, choose, survivors)
        self.world.trap = trap or self.world.trap
        is_disturbed = self.world.trap is not None or self.may_fail
        self._open(survivors, choose)
        if not is_disturbed:
            report = self.store.recovery
            assert report.was_clean
            assert report.records_read == 0, "a clean start reads nothing"

    def _survivors(self) -> _Survivors:
        readable, flushed = int(self.store.log.readable), int(self.store.log.flushed)
        if self.is_slave:
            readable, flushed = self.listed.end_below(readable), self.listed.end_below(flushed)
        return _Survivors(readable, flushed)

    def _be_interrupted(self, interruption: Interrupted, survivors: _Survivors) -> None:
        self._take_failure()
        if interruption.ending is Ending.KILL and self.has_lost_sync:
            self._end_process(Ending.CUT, interruption.choose, survivors)
        else:
            self._go_on_with(interruption.left, interruption.ending, survivors)

    def _end_process(self, ending: Ending, choose: Choose, survivors: _Survivors) -> None:
        if self.has_lost_sync:
            # What a process finds after a failed sync is what no one can promise anything about.
            ending = Ending.CUT
        is_cut = ending is Ending.CUT
        storage = self.world.storage
        self._go_on_with(storage.crash(choose) if is_cut else storage.kill(), ending, survivors)

    def _go_on_with(self, storage: MemoryStorage, ending: Ending, survivors: _Survivors) -> None:
        tell(ending.value)
        self.tally[ending.value] += 1
        self.world.go_on_with(storage)
        if ending is Ending.CUT:
            survivors.cut()
            self.has_lost_sync = False

    # --- beginnings ------------------------------------------------------------------------

    def _open(self, survivors: _Survivors, choose: Choose) -> None:
        """Open the store until it is open."""
        world = self.world
        while True:
            self.failed = None
            try:
                store = world.open()
                store.follow_log()
                break
            except Interrupted as interruption:
                tell("while opening:")
                self.tally[f"starts interrupted: {interruption}"] += 1
                self._be_interrupted(interruption, survivors)
            except StorageError as exc:
                self._check_reason(exc)
                tell(f"while opening: {exc}")
                self.tally["starts failed"] += 1
                world.storage.capacity_bytes = None
                self._end_process(Ending.CUT if choose(2) else Ending.KILL, choose, survivors)
        self._take_failure()
        self.store = store
        with world.quiet():
            self._compare(survivors.must)

    def _compare(self, must: int) -> None:
        """Hold a store that was opened against the list: it must have all records below `must`."""
        store, listed = self.store, self.listed
        log, report = store.log, store.recovery
        tell(f"log {log.min_offset} to {log.written}, must have {must}: {report}")
        self.tally[f"log ends: {report.reason_of_end.split(' ', 1)[0]}"] += 1
        if len(log.segments):
            assert report.used_point, "recovery did not begin at a recovery point"
            assert report.started_at >= self.point, (report.started_at, self.point)
        self.point = int(log.written)
        if len(log.segments):
            assert log.min_offset <= listed.log_min, "segments are gone"
            if log.min_offset < listed.log_min:
                listed.forgotten = max(listed.forgotten, listed.log_min)
                self.tally["deleted segments came back"] += 1
            listed.log_min = int(log.min_offset)
        listed.followed = listed.log_min
        assert log.written >= must, f"the log ends at {log.written}, not {must}"
        self._take_over(must)
        assert store.refusal is None
        assert log.flushed == log.written == store.dispatcher.dispatched
        checks.check_tails(store)
        checks.check_files(store, self.world.storage)
        checks.check_store(store, self.world.storage, listed)

    def _next_pending(self, physical: int, content: bytes) -> Listed:
        """Return the next record of the append that was under way."""
        found = Listed.decode(physical, content)
        while self.pending:
            record = self.pending.pop(0)(physical)
            if found.is_torn_from(record):
                return record
            assert not self._is_pending_sure, f"a record before the one at {physical} is missing"
        raise AssertionError(f"a record at {physical} that was never appended")

    def _take_over(self, must: int) -> None:
        """Let the list have what survived, if that may be all."""
        store, listed = self.store, self.listed
        unsure: set[QueueKey] = set()
        place = start = len(listed.records) - len(listed.present())
        for place, (physical, content) in enumerate(
            checks.walk_log(store, int(store.log.written)), start + 1
        ):
            if place > len(listed.records):
                listed.add(self._next_pending(physical, content))
            expected = listed.records[place - 1]
            if content == expected.content:
                continue
            torn = Listed.decode(physical, content)
            assert expected.end > must, f"the record at {physical} changed"
            assert torn.is_torn_from(expected), f"the record at {physical} is another one"
            unsure |= listed.take_torn(place - 1, torn)
            self.tally["records torn"] += 1
        self.pending = []
        self.tally["records lost"] += len(listed.records) - place
        listed.cut(place)
        for key in unsure:
            queue = store.queues.get(*key)
            if queue is None:
                listed.queues[key] = []
            else:
                listed.take_queue(key, checks.entries_of(queue), int(queue.min_offset))
