"""A topic that was deleted and made again: its new messages count from 0, its old ones are gone."""

from __future__ import annotations

import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import TOPIC, message, open_core, put, read_bodies


@pytest.mark.parametrize("old", [1, 5, 40])
@pytest.mark.parametrize("new", [1, 3])
def test_new_messages_survive_a_kill(old: int, new: int) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message(number) for number in range(old)])
    core.plan_deletion([TOPIC]).run()
    put(core, [message(b"new %d" % number) for number in range(new)])
    expected = [b"new %d" % number for number in range(new)]
    assert read_bodies(core) == expected
    core.release()
    survivor = storage.kill()
    again = open_core(survivor)
    assert read_bodies(again) == expected
    (result,) = put(again, [message(b"later")])
    assert result.queue_offset == new
    again.close()
    assert read_bodies(open_core(survivor)) == [*expected, b"later"]


def test_a_slave_follows_its_master() -> None:
    master, slave = open_core(MemoryStorage()), open_core(MemoryStorage())
    put(master, [message(number) for number in range(7)])
    master.plan_deletion([TOPIC]).run()
    put(master, [message(b"new"), message(b"newer")])
    view = master.log.view_from(PhysicalOffset(0))
    assert view is not None
    slave.append_raw(PhysicalOffset(0), bytes(view))
    while slave.dispatcher.catch_up():
        pass
    assert read_bodies(slave) == read_bodies(master) == [b"new", b"newer"]


def test_a_queue_that_is_dispatched_twice_stays_as_it_is() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(number) for number in range(7)])
    before = read_bodies(core)
    core.dispatcher.dispatched = core.log.min_offset
    core.dispatcher.catch_up()
    assert read_bodies(core) == before
