"""Delivery of delayed messages over changes of the role: adopted, started, stopped, begun again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.model.offsets import PhysicalOffset
from tests.broker.delays.delay_kit import TOPIC, Delays
from tests.broker.send_kit import START_MS, WallClock

if TYPE_CHECKING:
    from collections.abc import Mapping


def slave_of(master: Delays, *, end: int | None = None) -> Delays:
    """Return a slave whose log is like that of a master, or like its beginning."""
    slave = Delays(clock=WallClock(master.clock.ms))
    slave.delivery.stop()
    copy_log(master, slave, end=end)
    return slave


def copy_log(master: Delays, slave: Delays, *, end: int | None = None) -> None:
    log = master.core.log
    stop = log.readable if end is None else end
    while (start := slave.core.log.written) < stop:
        view = log.view_from(start)
        assert view is not None
        slave.core.append_raw(start, view[: stop - start])
    slave.core.dispatcher.catch_up()


def promote(slave: Delays) -> None:
    slave.core.trim_tail()
    slave.delivery.start()


def durable(delays: Delays) -> Mapping[int, int]:
    return delays.delivery.to_body().offset_table


def at(delays: Delays, level: int = 1) -> int:
    return delays.delivery.progress()[level][0]


def watched(delays: Delays) -> set[int]:
    return {queue.queue_id for queue in delays.core.queues if queue.is_watched}


# --- what a slave keeps --------------------------------------------------------------------------


def test_progress_is_adopted_and_never_goes_back() -> None:
    slave = slave_of(Delays())
    slave.delivery.adopt({1: 5, 2: 3}, PhysicalOffset(0))
    slave.delivery.adopt({1: 4, 2: 7, 3: 1}, PhysicalOffset(0))
    assert durable(slave) == {1: 5, 2: 7, 3: 1}
    assert [at(slave, level) for level in (1, 2, 3)] == [5, 7, 1]


def test_adopted_progress_is_saved_when_the_log_is_on_disk_up_to_there() -> None:
    master = Delays()
    master.park(b"a")
    master.at(1_000)
    slave = slave_of(master)
    changes = slave.delivery.changes
    slave.delivery.adopt({1: 1}, slave.core.log.written)
    assert durable(slave) == {}
    assert slave.delivery.changes == changes
    slave.core.flush()
    assert durable(slave) == {1: 1}
    assert slave.delivery.changes != changes
    changes = slave.delivery.changes
    slave.delivery.adopt({1: 1}, slave.core.log.written)
    assert slave.delivery.changes == changes


# --- from slave to master ------------------------------------------------------------------------


def test_a_promoted_slave_delivers_what_its_master_has_not_and_nothing_twice() -> None:
    master = Delays()
    for number in range(6):
        master.clock.ms = START_MS + 1_000 * number
        master.park(b"%d" % number, 2)
    master.at(7_000)
    assert master.delivered() == [b"0", b"1", b"2"]
    slave = slave_of(master)
    slave.delivery.adopt({2: 3}, master.core.log.readable)
    promote(slave)
    assert slave.at(7_000) == 8_000
    slave.at(20_000)
    assert slave.delivered() == [b"%d" % number for number in range(6)]
    assert slave.delivery.progress()[2] == (6, 6)
    slave.core.flush()
    assert durable(slave) == {2: 6}


def test_progress_beyond_what_the_slave_has_goes_on_at_the_end_of_its_queue() -> None:
    master = Delays()
    master.park(b"0")
    end = master.core.log.readable
    master.park(b"lost-1")
    master.park(b"lost-2")
    master.at(1_000)
    slave = slave_of(master, end=end)
    # As a stock master, or one before it was cut, may have told it.
    slave.delivery.adopt({1: 3}, PhysicalOffset(0))
    promote(slave)
    assert at(slave) == 1
    assert durable(slave) == {1: 1}
    slave.park(b"new")
    slave.at(3_000)
    assert slave.delivered() == [b"new"]


def test_what_is_cut_at_a_promotion_is_not_saved_later() -> None:
    master = Delays()
    master.park(b"0")
    slave = slave_of(master)
    slave.delivery.adopt({1: 9}, slave.core.log.written)
    slave.delivery.start()
    assert durable(slave) == {}
    slave.core.flush()
    assert durable(slave) == {1: 1}


def test_all_queues_are_waited_for_as_a_master_and_none_as_a_slave() -> None:
    delays = Delays(levels="1s 5s")
    assert watched(delays) == {0, 1}
    assert delays.delivery.is_started
    delays.delivery.stop()
    assert watched(delays) == set()
    assert not delays.delivery.is_started
    delays.delivery.start()
    assert watched(delays) == {0, 1}


# --- from master to slave ------------------------------------------------------------------------


def test_a_demoted_master_keeps_what_is_on_disk() -> None:
    master = Delays()
    master.park(b"a")
    master.at(1_000)
    master.core.flush()
    master.park(b"b")
    master.at(2_000)
    assert at(master) == 2
    master.delivery.stop()
    assert at(master) == 1
    assert durable(master) == {1: 1}
    # What is flushed later is not what it delivered: the log may have been cut meanwhile.
    master.core.flush()
    assert durable(master) == {1: 1}


def test_a_demoted_master_that_was_flushed_delivers_nothing_twice() -> None:
    master = Delays()
    master.park(b"a")
    master.at(1_000)
    master.core.flush()
    master.delivery.stop()
    assert durable(master) == {1: 1}
    master.delivery.start()
    master.park(b"b")
    master.at(5_000)
    assert master.delivered() == [b"a", b"b"]


def test_a_broker_that_delivers_adopts_nothing() -> None:
    with pytest.raises(AssertionError):
        Delays().delivery.adopt({1: 1}, PhysicalOffset(0))


def test_two_brokers_take_turns_and_each_message_comes_once() -> None:
    first = Delays()
    for number in range(20):
        first.clock.ms = START_MS + 1_000 * number
        first.park(b"%d" % number, 1 + number % 2)
    second = slave_of(first)
    now_ms = START_MS + 1_000
    master, slave = first, second
    for _ in range(12):
        now_ms += 2_000
        master.clock.ms = slave.clock.ms = now_ms
        master.deliver_all()
        # Handed over: the master stops and is flushed, the slave gets all of it.
        master.core.flush()
        master.delivery.stop()
        copy_log(master, slave)
        slave.delivery.adopt(durable(master), master.core.log.readable)
        promote(slave)
        master, slave = slave, master
    expected = [b"%d" % number for number in range(20)]
    assert sorted(master.delivered(), key=int) == expected
    assert [record.queue_offset for record in master.records(TOPIC)] == list(range(20))


# --- the task ------------------------------------------------------------------------------------


class TrioClock(WallClock):
    def __call__(self) -> int:
        return START_MS + int(trio.current_time() * 1000 + 1e-6)


async def test_delivery_may_be_stopped_and_begun_again(autojump_clock: MockClock) -> None:
    delays = Delays(clock=TrioClock())
    delays.delivery.stop()
    for number in range(5):
        delays.delivery.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delays.delivery.run)
            await wait_all_tasks_blocked()
            delays.park(b"early-%d" % number)
            await trio.sleep(1.5)
            delays.park(b"late-%d" % number)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        assert delays.delivered()[-1] == b"early-%d" % number
        delays.core.flush()
        delays.delivery.stop()
        # Nobody is told of it as long as nobody delivers.
        await trio.sleep(5)
        assert delays.delivered()[-1] == b"early-%d" % number
    delays.delivery.start()
    delays.delivery.deliver()
    assert delays.delivered() == [
        name % number for number in range(5) for name in (b"early-%d", b"late-%d")
    ]
