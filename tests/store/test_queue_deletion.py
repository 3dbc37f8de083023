"""Queues are deleted: at once for everyone, for good before the caller is told, in a thread."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from rmq.errors import StorageError
from rmq.store.core import StoreCore
from rmq.testing.storage import MemoryStorage
from tests.store.running import bodies_of, is_of_queues, message, small_config
from tests.store.steps import counted

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.testing.faults import Operation

DELETED = "deleted"


def open_core(storage: MemoryStorage) -> StoreCore:
    return StoreCore(small_config(), storage=storage)


def fill(core: StoreCore, topic: str, queues: int) -> None:
    core.append([message(topic=topic, queue_id=queue_id) for queue_id in range(queues)])


def test_deleting_a_topic_is_one_move_whatever_its_size() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Wide", 200)
    fill(core, "Kept", 1)
    seen: list[tuple[Operation, Path]] = []
    storage.faults.watch(lambda operation, path: seen.append((operation, path)))
    plan = core.plan_deletion(["Wide"])
    assert len(plan.queues) == 200
    assert core.queues.get("Wide", 7) is None
    assert [operation for operation, _ in seen if operation not in ("exists", "add_directory")] == [
        "move"
    ]
    plan.run()
    assert storage.names(core.config.queues_path) == ["Kept"]
    assert storage.names(core.config.root / DELETED) == []


def test_a_topic_may_come_again_before_the_files_of_the_old_one_are_gone() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "T", 3)
    plan = core.plan_deletion(["T"])
    core.append([message(b"new", topic="T")])
    plan.run()
    assert bodies_of(core, "T") == [b"new"]
    assert core.queues.end_of("T", 1) == 0
    core.flush()
    assert bodies_of(open_core(storage.kill()), "T") == [b"new"]


@pytest.mark.parametrize("seed", range(20))
def test_a_deleted_topic_does_not_come_back_once_it_is_answered(seed: int) -> None:
    choice = random.Random(seed)
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Gone", 3)
    fill(core, "Kept", 2)
    core.flush()
    core.plan_deletion(["Gone"]).run()
    point = core.plan_point()
    assert point is not None
    point.run()
    core.finish_point(point)
    again = open_core(storage.crash(choice))
    assert again.recovery.used_point
    assert again.queues.of_topics({"Gone"}) == []
    assert bodies_of(again, "Kept", 1) == [b"hello"]
    assert again.storage.names(again.config.root / DELETED) == []


def test_files_that_a_crash_left_are_deleted_when_the_store_is_opened() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Gone", 3)
    core.plan_deletion(["Gone"])
    storage = storage.kill()
    assert storage.names(core.config.root / DELETED) == ["1"]
    again = open_core(storage)
    assert storage.names(again.config.root / DELETED) == []


def test_other_files_in_the_folder_of_a_topic_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "T", 2)
    storage.write(core.config.queues_path / "T" / "notes.txt", b"mine")
    core.plan_deletion(["T"]).run()
    folder = core.config.root / DELETED / "1"
    assert storage.names(folder) == ["notes.txt"]
    assert "has other files than those of queues" in caplog.text
    core.close()
    core = open_core(storage)
    fill(core, "T", 1)
    core.plan_deletion(["T"]).run()
    assert storage.names(core.config.root / DELETED) == ["1"]


def test_a_folder_that_cannot_be_moved_keeps_its_queues() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "T", 2)
    storage.faults.fail("move", errno.EACCES)
    with pytest.raises(StorageError):
        core.plan_deletion(["T"])
    assert bodies_of(core, "T", 1) == [b"hello"]


def test_a_point_that_is_being_saved_bears_a_deletion_at_any_moment() -> None:
    for moment in range(3):
        storage = MemoryStorage()
        core = open_core(storage)
        fill(core, "T", 3)
        fill(core, "Kept", 1)
        point = core.plan_point()
        assert point is not None
        deletion = core.plan_deletion(["T"])
        if moment == 0:
            deletion.run()
        point.run()
        if moment == 1:
            deletion.run()
        core.finish_point(point)
        if moment == 2:
            deletion.run()
        assert core.failure is None
        again = open_core(storage.kill())
        assert bodies_of(again, "Kept") == [b"hello"]


# --- queues all of whose messages are gone ---------------------------------------------------


def test_expired_queues_are_looked_for_in_steps() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Old", 100)
    fill(core, "System", 1)
    while len(core.log.segments) < 3:
        core.append([message(bytes(1000), topic="New")])
    core.flush()
    while len(core.log.segments) > 1:
        core.log.segments.drop_first()
    plan, turns = counted(core.plan_expired_queues(frozenset({"System"})))
    assert turns == 3
    assert len(plan.queues) == 100
    assert core.queues.of_topics({"Old"}) == []
    assert core.queues.get("System", 0) is not None
    plan.run()
    assert storage.names(core.config.queues_path / "Old") == []
    assert not any(is_of_queues(path) for path in plan.folders)


def test_a_queue_may_be_deleted_while_expired_ones_are_looked_for() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Old", 100)
    while len(core.log.segments) < 3:
        core.append([message(bytes(1000), topic="New")])
    core.flush()
    while len(core.log.segments) > 1:
        core.log.segments.drop_first()
    steps = core.plan_expired_queues(frozenset())
    next(steps)
    core.plan_deletion(["Old"]).run()
    plan, _ = counted(steps)
    assert len(plan.queues) == 31


# --- files of queues that expired with the log ------------------------------------------------


def test_queues_follow_the_log_in_steps() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill(core, "Old", 100)
    while len(core.log.segments) < 3:
        core.append([message(bytes(1000), topic="New")])
    core.flush()
    while len(core.log.segments) > 1:
        core.log.segments.drop_first()
    steps = core.following_log()
    next(steps)
    core.plan_deletion(["Old"]).run()
    _, turns = counted(steps)
    assert turns == 5
    # Nothing is left to do, but what was dropped is not looked for again.
    assert counted(core.following_log())[1] == 0
    assert core.queues.of_topics({"Old"}) == []
