"""The state machine of a slave: a store that gets the bytes of another one's log, in pieces.

Pieces end anywhere, also inside records. The slave is cut off, killed and stopped like any store,
and asks its master for what comes after the end of its log. What it has must be its master's, byte
for byte, with the same queues and keys.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq.errors import StorageError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.store.append import AppendStatus
from tests.store.model import checks
from tests.store.model.machine import START_CALLS, START_ENDINGS, chooser, start_trap
from tests.store.model.messages import Sketch, sketches
from tests.store.model.plain_list import Listed, PlainList
from tests.store.model.subject import Reopened, Subject
from tests.store.model.world import CODES, Ending, Geometry, Trap, World, geometries

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.testing.faults import Operation

EVERYTHING: Final = 1 << 40


def step(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Make a rule that ends early if the slave's process does."""

    def make_rule(function: Callable[..., None]) -> Any:  # noqa: ANN401 - hypothesis' own type
        @functools.wraps(function)
        def interruptible(self: SlaveMachine, **drawn: object) -> None:
            Subject.tally["steps"] += 1
            try:
                function(self, **drawn)
            except Reopened:
                return

        options: Any = strategies
        decorate: Callable[[Callable[..., None]], Any] = rule(**options)
        return decorate(interruptible)

    return make_rule


class Master:
    """A store that nothing happens to."""

    def __init__(self, geometry: Geometry) -> None:
        self.world = World(geometry)
        self.store = self.world.open()
        self.listed = PlainList()
        self.numbers = 0

    def append(self, drawn: list[Sketch]) -> None:
        for sketch in drawn:
            self.numbers += 1
            message = sketch.message(self.numbers)
            (result,) = self.store.append([message])
            if result.status is AppendStatus.PUT_OK:
                offset = self.listed.next_queue_offset(message)
                now_ms = self.world.now_ms
                self.listed.add(Listed.of(message, result.physical_offset, offset, now_ms))

    def expire(self) -> None:
        """Keep the last segment only."""
        store = self.store
        store.flush()
        point = store.plan_point()
        if point is not None:
            point.run()
            store.finish_point(point)
        self.world.storage.reported_used_ratio = 0.88
        store.plan_expiry(local_hour=12).run()
        store.follow_log()

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes of the log, over as many segments as it takes."""
        data = bytearray()
        while len(data) < size and (
            view := self.store.log.view_from(PhysicalOffset(start + len(data)))
        ):
            data += view[: size - len(data)]
        return bytes(data)


class SlaveMachine(RuleBasedStateMachine):
    """A master and its slave."""

    @initialize(geometry=geometries())
    def begin(self, geometry: Geometry) -> None:
        Subject.tally["histories"] += 1
        self.geometry = replace(geometry, has_pool=False)
        self.master = Master(self.geometry)
        self._begin_slave()

    def _begin_slave(self) -> None:
        self.slave = Subject(self.geometry, is_slave=True)

    @rule(
        drawn=st.lists(sketches(900), min_size=1, max_size=12), tick=st.sampled_from([0, 1, 2000])
    )
    def append(self, drawn: list[Sketch], tick: int) -> None:
        self.master.world.move_clock(tick)
        self.slave.world.move_clock(tick)
        self.master.append(drawn)

    @rule()
    def expire(self) -> None:
        self.master.expire()

    # --- shipping --------------------------------------------------------------------------

    @step(size=st.one_of(st.integers(1, 200), st.integers(1, 9000)), is_dispatched=st.booleans())
    def ship(self, size: int, is_dispatched: bool) -> None:
        self._ship(size)
        if is_dispatched:
            self._catch_up()

    def _ship(self, size: int) -> None:
        master = self.master.store.log
        if self.slave.store.log.written < master.min_offset and len(self.slave.store.log.segments):
            # It was away for too long: an operator empties it, and it begins anew.
            self._begin_slave()
        store = self.slave.store
        start = int(store.log.written)
        if not len(store.log.segments):
            start = int(master.min_offset)
            self._list_what_came_before(start)
        data = self.master.read(start, size)
        if store.refusal is not None:
            with pytest.raises(StoreUnavailableError):
                store.append_raw(PhysicalOffset(start), data)
            return
        if not data:
            return
        self.slave.pending = [
            functools.partial(self._same, record)
            for record in self._unlisted()
            if record.end <= start + len(data)
        ]
        try:
            self.slave.attempt(lambda: store.append_raw(PhysicalOffset(start), data))
        except StorageError:
            Subject.tally["pieces refused"] += 1
        self.slave.pending = []
        Subject.tally["pieces shipped"] += 1
        for record in self._unlisted():
            if record.end <= store.log.written:
                self.slave.listed.add(record)

    def _list_what_came_before(self, start: int) -> None:
        listed = self.slave.listed = PlainList()
        for record in self.master.listed.records:
            if record.physical < start:
                listed.add(record)
        listed.log_min = listed.forgotten = listed.followed = start

    def _unlisted(self) -> list[Listed]:
        """Return the records that the slave does not have yet."""
        return self.master.listed.records[len(self.slave.listed.records) :]

    @staticmethod
    def _same(record: Listed, physical: int) -> Listed:
        assert record.physical == physical
        return record

    def _catch_up(self) -> None:
        dispatcher = self.slave.store.dispatcher

        def dispatch() -> None:
            while dispatcher.catch_up(bytes_max=300):
                pass

        try:
            self.slave.attempt(dispatch)
        except StorageError:
            return
        end = self.slave.listed.end_below(int(self.slave.store.log.readable))
        assert dispatcher.dispatched >= end, "a whole record was not dispatched"

    # --- the slave -------------------------------------------------------------------------

    @step(is_point=st.booleans())
    def flush(self, is_point: bool) -> None:
        store = self.slave.store
        if self.slave.is_failed:
            return
        try:
            self.slave.attempt(store.flush)
        except StorageError:
            return
        plan = store.plan_point() if is_point else None
        if plan is None:
            return
        try:
            self.slave.attempt(plan.run)
        except StorageError as exc:
            store.fail(exc)
            return
        store.finish_point(plan)
        self.slave.point = plan.point.physical_offset

    @step(data=st.data())
    def write_back(self, data: st.DataObject) -> None:
        self.slave.world.storage.write_back(chooser(data))

    @step(
        calls=st.one_of(st.integers(1, 4), st.integers(1, 60)),
        operation=st.sampled_from([None, "sync", "create", "reserve"]),
        ending=st.sampled_from([Ending.CUT, Ending.KILL, None]),
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
        self.slave.world.trap = Trap(calls, operation, ending, code, chooser(data))

    @step(
        data=st.data(),
        ending=st.sampled_from(list(Ending)),
        is_stopped=st.sampled_from([False, False, True]),
        start_calls=START_CALLS,
        start_ending=START_ENDINGS,
    )
    def end(
        self,
        data: st.DataObject,
        ending: Ending,
        is_stopped: bool,
        start_calls: int | None,
        start_ending: Ending | None,
    ) -> None:
        choose = chooser(data)
        end = self.slave.stop if is_stopped else self.slave.end
        end(ending, choose, start_trap(start_calls, start_ending, choose))

    # --- checks ----------------------------------------------------------------------------

    @invariant()
    def slave_has_what_its_master_has(self) -> None:
        slave, master = self.slave.store.log, self.master.store.log
        assert slave.min_offset <= slave.flushed <= slave.readable == slave.written
        assert self.slave.store.dispatcher.dispatched <= slave.readable
        start = max(slave.min_offset, master.min_offset)
        if any(record.is_torn for record in self.slave.listed.records) or start >= slave.written:
            return
        ours = b"".join(
            bytes(segment.buffer[: max(min(slave.written, segment.end) - segment.first, 0)])
            for segment in slave.segments
            if segment.end > start
        )
        assert ours[-(slave.written - start) :] == self.master.read(start, slave.written - start)

    def teardown(self) -> None:
        if not hasattr(self, "slave") or sys.exc_info()[0] is not None:
            return
        with self.slave.world.quiet():
            if not self.slave.is_failed:
                self._catch_up()
                self._ship(EVERYTHING)
                self._catch_up()
                assert self.slave.store.log.written == self.master.store.log.written
            end = int(self.slave.store.dispatcher.dispatched)
            checks.check_store(self.slave.store, self.slave.world.storage, self.slave.listed, end)
