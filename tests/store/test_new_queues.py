"""New queues: no append waits for the disk when they are made, and a recovery point keeps them."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.append import AppendStatus
from rmq.store.core import StoreCore
from rmq.testing.storage import MemoryStorage
from tests.store.running import bodies_of, is_of_queues, message, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.testing.faults import Operation

TOPICS = [f"T{number}" for number in range(10)]
PLACES = [(topic, queue_id) for topic in TOPICS for queue_id in range(4)]


def open_core(storage: MemoryStorage) -> StoreCore:
    return StoreCore(small_config(), storage=storage)


def synced_directories(storage: MemoryStorage) -> list[Path]:
    """Return a list to which the directories that are synced from now on are added."""
    synced: list[Path] = []

    def see(operation: Operation, path: Path) -> None:
        if operation in ("sync_directory", "make_directory"):
            synced.append(path)

    storage.faults.watch(see)
    return synced


def append_one_each(core: StoreCore) -> None:
    results = core.append([message(topic=topic, queue_id=queue_id) for topic, queue_id in PLACES])
    assert {result.status for result in results} == {AppendStatus.PUT_OK}


def test_first_messages_wait_for_no_directory() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.append([message()])
    synced = synced_directories(storage)
    append_one_each(core)
    assert synced == []


def test_a_recovery_point_syncs_each_directory_once() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.append([message()])
    append_one_each(core)
    synced = synced_directories(storage)
    plan = core.plan_point()
    assert plan is not None
    plan.run()
    core.finish_point(plan)
    folder = core.config.queues_path
    of_queues = [path for path in synced if is_of_queues(path)]
    assert sorted(of_queues) == sorted(
        [folder, folder / "T", folder / "T" / "0"]
        + [folder / topic for topic in TOPICS]
        + [folder / topic / str(queue_id) for topic, queue_id in PLACES]
    )
    assert folder.parent in synced
    # The next one has nothing of it left to do.
    synced.clear()
    core.append([message()])
    plan = core.plan_point()
    assert plan is not None
    plan.run()
    assert not any(map(is_of_queues, synced))


@pytest.mark.parametrize("seed", range(30))
def test_new_queues_are_whole_after_a_power_cut(seed: int) -> None:
    choice = random.Random(seed)
    storage = MemoryStorage()
    core = open_core(storage)
    for number, (topic, queue_id) in enumerate(PLACES):
        if choice.random() < 0.5:
            core.plan_queues([(topic, queue_id)]).run()
        core.append([message(b"%d" % number, topic=topic, queue_id=queue_id)])
        if choice.random() < 0.1 and (plan := core.plan_point()) is not None:
            plan.run()
            core.finish_point(plan)
    core.flush()
    recovered = open_core(storage.crash(choice))
    for number, (topic, queue_id) in enumerate(PLACES):
        assert bodies_of(recovered, topic, queue_id) == [b"%d" % number]


# --- files made ahead ------------------------------------------------------------------------


def test_a_file_made_ahead_is_what_the_first_message_uses() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.plan_queues(PLACES).run()
    made = storage.faults.calls["create"]
    assert storage.faults.calls["advise_random"] == len(PLACES)
    synced = synced_directories(storage)
    append_one_each(core)
    assert storage.faults.calls["create"] == made + 2  # the log and the index
    assert not any(map(is_of_queues, synced))
    assert bodies_of(core, "T3", 2) == [b"hello"]
    assert storage.writes_without_room() == []


def test_what_is_there_or_cannot_be_is_not_planned() -> None:
    core = open_core(MemoryStorage())
    core.append([message()])
    places = [("T", 0), ("../x", 0), ("T", -1), ("T", 2**31), ("T", 1)]
    plan = core.plan_queues(places)
    assert [(queue.topic, queue.queue_id) for queue in plan.queues] == [("T", 1)]
    plan.run()
    assert core.plan_queues(places).queues == ()


def test_a_queue_that_begins_later_does_not_use_the_file_made_ahead() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.plan_queues([("T", 0)]).run()
    queue = core.queues.open("T", 0)
    queue.put(PhysicalOffset(700), 100, 1, QueueOffset(150))
    folder = core.config.queues_path / "T" / "0"
    assert storage.names(folder) == [f"{2000:020d}"]
    assert queue.entry(QueueOffset(150)) == (700, 100, 1)


def test_a_queue_deleted_while_its_file_is_made_leaves_nothing() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    plan = core.plan_queues([("T", 0), ("T", 1)])
    plan.queues[0].make_first_file()
    for queue in plan.queues:
        queue.delete()
    plan.run()
    folder = core.config.queues_path / "T"
    assert storage.names(folder) == []


def test_threads_and_appends_make_a_file_once() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.append([message(topic="Other")])
    core.plan_point()
    plans = [core.plan_queues(PLACES) for _ in range(3)]
    threads = [threading.Thread(target=plan.run) for plan in plans]
    for thread in threads:
        thread.start()
    append_one_each(core)
    for thread in threads:
        thread.join()
    folder = core.config.queues_path
    for topic, queue_id in PLACES:
        assert storage.names(folder / topic / str(queue_id)) == [f"{0:020d}"]
        assert bodies_of(core, topic, queue_id) == [b"hello"]


def test_a_file_that_was_made_ahead_and_never_used_is_gone_after_a_restart() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    core.append([message()])
    core.plan_queues([("T", 1)]).run()
    core.close()
    core = open_core(storage)
    assert not core.queues.has_file("T", 1)
    core.append([message(b"first", queue_id=1)])
    assert bodies_of(core, "T", 1) == [b"first"]
