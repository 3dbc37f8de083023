"""A store and others: a second process, foreign files, and threads of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import (
    RmqError,
    StoreLockedError,
    StoreUnavailableError,
)
from rmq.model.offsets import PhysicalOffset
from rmq.store.append import AppendStatus
from rmq.store.core import Refusal
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage
from tests.store.storage_child import output_of
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    TOPIC,
    Clock,
    content,
    fill_segments,
    index_paths,
    log_path,
    message,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    read_bodies,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

# --- two of them ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_second_store_on_one_directory_is_refused(kind: str, tmp_path: Path) -> None:
    storage = DiskStorage() if kind == "disk" else MemoryStorage()
    config = small_config(tmp_path / "store")
    core = open_core(storage, config)
    put_numbered(core, range(3))
    before = content(storage, config.root)
    for _ in range(2):
        with pytest.raises(StoreLockedError) as caught:
            open_core(storage, config)
        assert str(caught.value) == f"{config.root}: another process has this store open"
        assert "storePathRootDir" in (caught.value.hint or "")
    assert content(storage, config.root) == before
    put_numbered(core, [3])
    core.close()
    core = open_core(storage, config)
    assert read_bodies(core) == numbered_bodies(range(4))
    core.close()


OPEN_STORE: Final = """
from rmq.errors import StoreLockedError
from rmq.store.core import StoreCore
from tests.store.store_kit import Clock, put_numbered, read_bodies, small_config

try:
    core = StoreCore(small_config(root), now_ms=Clock())
except StoreLockedError as error:
    print("locked:", error.hint)
else:
    put_numbered(core, [len(read_bodies(core))])
    core.close()
    print("opened")
"""


def test_a_second_process_is_kept_out_until_the_first_is_done(tmp_path: Path) -> None:
    core = open_core(DiskStorage(), small_config(tmp_path))
    put_numbered(core, range(3))
    assert output_of(OPEN_STORE, tmp_path).startswith("locked: stop the other broker")
    put_numbered(core, [3])
    core.close()
    assert output_of(OPEN_STORE, tmp_path) == "opened\n"
    core = open_core(DiskStorage(), small_config(tmp_path))
    assert core.recovery.was_clean
    assert read_bodies(core) == numbered_bodies(range(5))
    core.close()


def test_a_start_that_is_refused_lets_go_of_the_lock() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill_segments(core, 3)
    core.close()
    data = storage.read(log_path(SEGMENT_BYTES))
    storage.delete(log_path(SEGMENT_BYTES))
    with pytest.raises(RmqError):
        open_core(storage)
    storage.write(log_path(SEGMENT_BYTES), data)
    assert len(read_bodies(open_core(storage))) > 0


# --- what is not ours -----------------------------------------------------------------------


def test_foreign_files_are_no_reason_to_fail_and_stay(tmp_path: Path) -> None:
    for storage, root in ((MemoryStorage(), ROOT), (DiskStorage(), tmp_path / "store")):
        config = small_config(root)
        core = open_core(storage, config)
        put_numbered(core, range(25))
        core.close()
        foreign = [
            root / "notes.txt",
            root / "commitlog" / "00000000000000000000.swp",
            root / "commitlog" / ".nfs0001",
            root / "consumequeue" / "README",
            root / "consumequeue" / TOPIC / "x",
            root / "consumequeue" / TOPIC / "0" / "copy of 0",
            root / "index" / "backup.tar",
        ]
        for path in foreign:
            storage.write(path, b"not ours")
        storage.make_directory(root / "commitlog" / "lost+found")
        for _ in range(2):
            core = open_core(storage, config)
            assert core.recovery.was_clean
            assert read_bodies(core) == numbered_bodies(range(25))
            core.close()
        assert [storage.read(path) for path in foreign] == [b"not ours"] * len(foreign)


# --- at the same time -----------------------------------------------------------------------


def test_a_point_may_be_saved_while_its_files_are_deleted() -> None:
    """The blocking part runs in a thread: topics and old segments may go meanwhile."""
    storage = MemoryStorage()
    core = open_core(storage)
    fill_segments(core, 4)
    put(core, [message(topic="Gone", queue_id=n) for n in range(3)])
    core.flush()
    plan = core.plan_point()
    assert plan is not None
    assert len(plan.queues) == 4
    deletion = core.plan_deletion(["Gone"])
    deletion.run()
    assert len(deletion.queues) == 3
    core.log.segments.drop_first()
    core.log.segments.drop_first()
    core.follow_log()
    assert len(index_paths(storage)) < len(plan.index_files)
    plan.run()
    core.finish_point(plan)
    assert core.refusal is None
    again = open_core(storage.kill())
    assert read_bodies(again) == read_bodies(core)


def test_a_flush_may_run_while_messages_come_in() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    plan = core.plan_flush()
    assert plan is not None
    end = core.log.written
    put_numbered(core, range(5, 200))
    plan.run()
    core.finish_flush(plan)
    assert core.log.flushed == end
    assert core.flush() == core.log.written
    assert core.plan_flush() is None
    assert read_bodies(open_core(storage.crash(lambda _: 0))) == numbered_bodies(range(200))


# --- closed ---------------------------------------------------------------------------------


def test_a_closed_store_takes_nothing_and_closes_once() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(3))
    core.close()
    core.close()
    (result,) = core.append([message()])
    assert (result.status, result.reason) == (
        AppendStatus.SERVICE_NOT_AVAILABLE,
        "the store is closed",
    )
    with pytest.raises(StoreUnavailableError, match="the store is closed"):
        core.append_raw(PhysicalOffset(0), b"x")
    assert core.statistics().refusal is Refusal.CLOSED
    assert not storage.exists(ROOT / "abort")


def test_statistics_tell_where_a_store_stands() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    count = fill_segments(core, 3)
    statistics = core.statistics()
    assert statistics.min_offset == statistics.flushed == statistics.recovery_point == 0
    assert statistics.written == statistics.readable == statistics.dispatched == core.log.written
    assert (statistics.queues, statistics.segments) == (1, 3)
    assert statistics.index_files == -(-count // 19)
    assert statistics.flush_lag_bytes == core.log.written
    assert statistics.dispatch_lag_bytes == 0
    assert statistics.refusal is None
