"""Messages in the log but behind the bound: in no queue, and with their offsets all the same."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import DiskFullError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.reads import GetStatus
from rmq.testing.storage import MemoryStorage
from tests.store import running
from tests.store.store_kit import (
    SEGMENT_BYTES,
    TOPIC,
    Clock,
    kill,
    message,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    read_bodies,
    save_point,
    small_config,
)
from tests.store.truncation_kit import left_below, put_varied, record_ends

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rmq.store.core import StoreCore
    from rmq.store.dispatcher import Dispatched


class Bound:
    """A bound that a test moves."""

    def __init__(self, core: StoreCore, offset: int = 0) -> None:
        self.offset = offset
        self._core = core
        core.dispatcher.bound = lambda: PhysicalOffset(self.offset)

    def move_to(self, offset: int) -> None:
        self.offset = offset
        while self._core.dispatcher.catch_up():
            pass


def bounded(offset: int = 0, **changes: Any) -> tuple[MemoryStorage, StoreCore, Bound]:  # noqa: ANN401 - any setting
    storage = MemoryStorage()
    core = open_core(storage, small_config(**changes))
    return storage, core, Bound(core, offset)


def test_nothing_behind_the_bound_is_seen() -> None:
    _, core, _ = bounded()
    results = put_numbered(core, range(5))
    assert [result.queue_offset for result in results] == list(range(5))
    assert core.log.readable == results[-1].end_offset
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 32).max_offset == 0
    assert query_bodies(core, "key3") == []


def test_each_record_is_seen_when_the_bound_has_passed_it() -> None:
    _, core, bound = bounded()
    results = put_numbered(core, range(5))
    for offset in range(results[-1].end_offset + 1):
        bound.move_to(offset)
        seen = sum(result.end_offset <= offset for result in results)
        assert core.reads.get(TOPIC, 0, QueueOffset(0), 1).max_offset == seen
        assert core.dispatcher.dispatched == (results[seen - 1].end_offset if seen else 0)
    assert read_bodies(core) == numbered_bodies(range(5))
    assert query_bodies(core, "key4") == [b"body 4"]


def test_a_bound_that_is_ahead_hides_nothing_and_needs_no_call() -> None:
    _, core, bound = bounded(1 << 40)
    put_numbered(core, range(5))
    assert read_bodies(core) == numbered_bodies(range(5))
    bound.offset = core.log.written
    put_numbered(core, range(5, 6))
    assert read_bodies(core) == numbered_bodies(range(5))


def test_a_bound_that_went_back_takes_nothing_back() -> None:
    _, core, bound = bounded()
    put_numbered(core, range(5))
    bound.move_to(core.log.written)
    bound.move_to(10)
    assert read_bodies(core) == numbered_bodies(range(5))
    assert core.dispatcher.dispatched == core.log.written


@settings(max_examples=60)
@given(data=st.data())
def test_in_the_end_everything_is_as_without_a_bound(data: st.DataObject) -> None:
    free_clock, clock = Clock(), Clock()
    free = open_core(MemoryStorage(now_ms=free_clock), clock=free_clock)
    core = open_core(MemoryStorage(now_ms=clock), clock=clock)
    bound = Bound(core)
    number = 0
    for count in data.draw(st.lists(st.integers(0, 12), max_size=12)):
        for store, its_clock in ((free, free_clock), (core, clock)):
            put_varied(store, its_clock, range(number, number + count))
        number += count
        bound.move_to(data.draw(st.integers(bound.offset, max(core.log.written, bound.offset))))
        assert core.dispatcher.dispatched <= max(bound.offset, core.log.segment_first)
    bound.move_to(core.log.written)
    assert left_below(core, 1 << 60) == left_below(free, 1 << 60)


@pytest.mark.parametrize("is_batch", [False, True], ids=["one by one", "batch"])
def test_segments_are_filled_while_all_is_hidden(*, is_batch: bool) -> None:
    _, core, bound = bounded()
    if is_batch:
        for number in range(0, 200, 10):
            new = [message(n, unique_key=f"key{n}") for n in range(number, number + 10)]
            core.append_batch(new)
    else:
        put_numbered(core, range(200))
    assert len(core.log.segments) >= 3
    assert core.dispatcher.dispatched == 0
    bound.move_to(core.log.written)
    assert read_bodies(core) == numbered_bodies(range(200))


def test_with_a_transient_pool_both_bounds_hold() -> None:
    _, core, bound = bounded(1 << 40, transient_pool_enabled=True, transient_pool_size=3)
    put_numbered(core, range(5))
    bound.move_to(1 << 40)
    assert read_bodies(core) == []
    bound.offset = 0
    core.log.commit()
    bound.move_to(0)
    assert read_bodies(core) == []
    bound.move_to(core.log.written)
    assert read_bodies(core) == numbered_bodies(range(5))


# --- ends --------------------------------------------------------------------------------------


def test_a_clean_stop_hides_nothing_from_the_next_start() -> None:
    storage, core, _ = bounded()
    put_numbered(core, range(80))
    core.close()
    again = open_core(storage)
    assert again.recovery.used_point
    assert again.recovery.records_read == 0
    assert read_bodies(again) == numbered_bodies(range(80))
    assert put_numbered(again, range(80, 81))[0].queue_offset == 80


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["killed", "power cut"])
def test_a_crash_goes_on_from_a_point_before_the_bound(*, is_power_cut: bool) -> None:
    storage, core, bound = bounded()
    results = put_numbered(core, range(150))
    bound.move_to(results[100].end_offset + 5)
    save_point(core)
    assert core.statistics().recovery_point == results[100].end_offset
    core.flush()
    if is_power_cut:
        storage = storage.crash(lambda _: 0)
    else:
        kill(core)
        storage = storage.kill()
    again = open_core(storage)
    assert again.recovery.started_at == results[100].end_offset
    assert again.recovery.records_read == 49
    assert read_bodies(again) == numbered_bodies(range(150))
    assert put_numbered(again, range(150, 151))[0].queue_offset == 150


def test_what_is_hidden_does_not_expire() -> None:
    storage, core, bound = bounded(disk_clean_ratio=0.5)
    put_numbered(core, range(200))
    storage.reported_used_ratio = 0.99
    core.flush()
    bound.move_to(SEGMENT_BYTES + 1000)
    save_point(core)
    plan = core.plan_expiry(4)
    assert [segment.first for segment in plan.segments] == [0]


# --- topics that go and come -------------------------------------------------------------------


@pytest.mark.parametrize("shown", [0, 1, 4])
@pytest.mark.parametrize("is_shown_before", [True, False], ids=["shown before", "hidden"])
def test_a_topic_made_again_counts_from_0_whatever_is_dispatched_of_the_old_one(
    shown: int, *, is_shown_before: bool
) -> None:
    storage, core, bound = bounded()
    old = put_numbered(core, range(7))
    bound.move_to(old[shown].end_offset)
    core.plan_deletion([TOPIC]).run()
    if is_shown_before:
        # The rest of the old topic comes to light before anything is sent to the new one.
        bound.move_to(core.log.written)
    new = put(core, [message(b"new %d" % number) for number in range(3)])
    assert [result.queue_offset for result in new] == [0, 1, 2]
    bound.move_to(new[1].end_offset)
    (later,) = put(core, [message(b"new 3")])
    assert later.queue_offset == 3
    bound.move_to(core.log.written)
    (last,) = put(core, [message(b"new 4")])
    assert last.queue_offset == 4
    bound.move_to(core.log.written)
    expected = [b"new %d" % number for number in range(5)]
    assert read_bodies(core) == expected
    kill(core)
    assert read_bodies(open_core(storage.kill())) == expected


def test_a_disk_that_is_full_when_a_queue_begins_again_costs_no_offset() -> None:
    storage, core, bound = bounded()
    put_numbered(core, range(7))
    core.plan_deletion([TOPIC]).run()
    bound.move_to(core.log.written)
    put(core, [message(b"new 0"), message(b"new 1")])
    with (
        storage.faults.failing("create", errno.ENOSPC, on=running.is_of_queues),
        pytest.raises(DiskFullError),
    ):
        bound.move_to(core.log.written)
    bound.move_to(core.log.written)
    (result,) = put(core, [message(b"new 2")])
    assert result.queue_offset == 2
    bound.move_to(core.log.written)
    assert read_bodies(core) == [b"new 0", b"new 1", b"new 2"]


# --- a running store ---------------------------------------------------------------------------


async def test_a_running_store_shows_messages_when_it_is_told_that_the_bound_moved(
    mock_clock: MockClock,
) -> None:
    async with running.running() as now:
        offset = PhysicalOffset(0)
        now.core.dispatcher.bound = lambda: offset
        woken: list[Dispatched] = []
        now.core.dispatcher.on_dispatched = woken.append
        now.core.queues.open("T", 0).is_watched = True
        results = await now.store.put([running.message(b"%d" % number) for number in range(4)])
        mock_clock.jump(60)
        await now.settle()
        assert running.bodies_of(now.store) == []
        assert woken == []
        offset = results[1].end_offset
        now.store.visible_bound_moved()
        await now.settle()
        assert running.bodies_of(now.store) == [b"0", b"1"]
        assert [one.queue_offset for one in woken] == [0, 1]
        now.core.dispatcher.bound = None
        now.store.visible_bound_moved()
        await now.settle()
        assert running.bodies_of(now.store) == [b"0", b"1", b"2", b"3"]
        (result,) = await now.store.put([running.message(b"4")])
        assert result.queue_offset == 4
        assert len(running.bodies_of(now.store)) == 5


def test_the_boundaries_of_hidden_records_are_known() -> None:
    _, core, _ = bounded()
    put_numbered(core, range(120))
    ends = record_ends(core)
    assert [core.record_boundary(PhysicalOffset(end)) for end in ends] == ends
