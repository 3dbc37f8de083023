"""Opening and closing a store: whatever happens in between, it is closed, and nothing is left."""

from __future__ import annotations

import contextlib
import errno
import gc
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.errors import CorruptStoreError, DiskFullError, StorageError, StoreLockedError
from rmq.store import recovery
from rmq.store.append import AppendResult, AppendStatus
from rmq.store.config import FlushMode
from rmq.store.core import StoreCore
from rmq.store.store import open_store
from rmq.testing.storage import MemoryStorage
from tests.store.running import ROOT, Gate, bodies_of, message, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rmq.store.recovery import Progress
    from rmq.store.store import MessageStore

OPEN_FILES = Path("/proc/self/fd")


def assert_closed_cleanly(storage: MemoryStorage, bodies: list[bytes]) -> None:
    """Look at what a store left behind, as a power cut would leave it a moment later."""
    survivor = storage.crash(lambda _: 0)
    assert not survivor.exists(ROOT / "abort")
    core = StoreCore(small_config(), storage=storage)
    assert core.recovery.was_clean
    core.close()
    core = StoreCore(small_config(), storage=survivor)
    assert (core.recovery.was_clean, core.recovery.used_point) == (True, bool(bodies))
    assert core.recovery.records_read == 0
    assert bodies_of(core) == bodies
    core.release()


async def test_a_store_that_was_closed_opens_with_all_its_messages() -> None:
    storage = MemoryStorage()
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message(b"a"), message(b"b")])
    assert_closed_cleanly(storage, [b"a", b"b"])
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message(b"c")])
        assert bodies_of(store) == [b"a", b"b", b"c"]


async def test_a_store_without_messages_opens_and_closes() -> None:
    storage = MemoryStorage()
    for _ in range(3):
        async with open_store(small_config(), storage=storage) as store:
            assert store.statistics().written == 0
    assert_closed_cleanly(storage, [])


async def test_what_was_appended_without_waiting_is_on_disk_after_closing() -> None:
    storage = MemoryStorage()
    async with open_store(small_config(flush_mode=FlushMode.ASYNC), storage=storage) as store:
        store.append([message(b"%d" % number) for number in range(100)])
    assert_closed_cleanly(storage, [b"%d" % number for number in range(100)])


# --- ends that are not planned --------------------------------------------------------------


async def test_an_error_in_the_body_comes_out_and_the_store_is_closed() -> None:
    storage = MemoryStorage()
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="of the body")):
        async with open_store(small_config(), storage=storage) as store:
            store.append([message(b"a")])
            raise ValueError("of the body")
    assert_closed_cleanly(storage, [b"a"])


async def test_an_error_in_the_body_is_not_hidden_by_one_of_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="of the body")):
        async with open_store(small_config(), storage=storage) as store:
            store.append([message(b"a")])
            storage.faults.fail("delete", errno.EROFS, on=lambda path: path.name == "abort")
            raise ValueError("of the body")
    assert "the store was not closed cleanly" in caplog.text
    assert "mount it for writing" in caplog.text


async def test_an_error_of_closing_comes_out_if_there_is_no_other() -> None:
    storage = MemoryStorage()
    storage.faults.fail("delete", errno.EROFS, on=lambda path: path.name == "abort")
    with pytest.raises(StorageError, match="Read-only file system"):
        async with open_store(small_config(), storage=storage) as store:
            store.append([message(b"a")])
    # The lock is free all the same.
    async with open_store(small_config(), storage=storage) as store:
        assert bodies_of(store) == [b"a"]


async def test_a_cancelled_body_closes_the_store() -> None:
    storage = MemoryStorage()
    with trio.CancelScope() as scope:
        async with open_store(small_config(), storage=storage) as store:
            store.append([message(b"a")])
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert_closed_cleanly(storage, [b"a"])


async def test_a_cancellation_while_the_store_opens_waits_and_closes_it() -> None:
    storage = MemoryStorage()
    gate = Gate(storage, "write", lambda path: path.name == "abort")
    gate.shut()
    async with trio.open_nursery() as nursery:

        async def use() -> None:
            async with open_store(small_config(), storage=storage):
                await trio.sleep_forever()

        nursery.start_soon(use)
        await gate.wait_arrival()
        nursery.cancel_scope.cancel()
        await wait_for_cancelled_tasks()
        gate.open()
    assert_closed_cleanly(storage, [])


async def test_a_cancellation_while_the_store_closes_does_not_stop_it() -> None:
    storage = MemoryStorage()
    gate = Gate(storage)
    async with trio.open_nursery() as nursery:

        async def use() -> None:
            async with open_store(small_config(), storage=storage) as store:
                store.append([message(b"a")])
                gate.shut()

        nursery.start_soon(use)
        await gate.wait_arrival()
        nursery.cancel_scope.cancel()
        await wait_for_cancelled_tasks()
        gate.open()
    assert_closed_cleanly(storage, [b"a"])


async def wait_for_cancelled_tasks() -> None:
    """Let the others feel that they are cancelled, although the caller is one of them."""
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()


async def test_who_waits_for_the_disk_from_outside_is_answered_when_the_store_closes(
    mock_clock: MockClock,
) -> None:
    results: list[AppendResult] = []

    async def put(store: MessageStore) -> None:
        results.extend(await store.put([message(b"a")]))

    storage = MemoryStorage()
    async with (
        trio.open_nursery() as outer,
        open_store(small_config(), storage=storage) as store,
    ):
        outer.start_soon(put, store)
        # It appends now; there is no time left for the task that syncs.
        await trio.lowlevel.checkpoint()
    assert [result.status for result in results] in (
        [AppendStatus.PUT_OK],
        # It came even later.
        [AppendStatus.SERVICE_NOT_AVAILABLE],
    )


async def test_a_store_that_is_closed_refuses_messages() -> None:
    async with open_store(small_config(), storage=MemoryStorage()) as store:
        pass
    results = await store.put([message()])
    assert [result.status for result in results] == [AppendStatus.SERVICE_NOT_AVAILABLE]
    assert results[0].reason == "the store is closed"


# --- stores that do not open ----------------------------------------------------------------


async def test_a_store_that_is_open_already_is_refused_and_not_disturbed() -> None:
    storage = MemoryStorage()
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message(b"a")])
        with pytest.raises(StoreLockedError, match=str(ROOT)) as caught:
            async with open_store(small_config(), storage=storage):
                raise AssertionError("it opened")
        assert caught.value.hint is not None
        assert storage.exists(ROOT / "abort")
        await store.put([message(b"b")])
        assert bodies_of(store) == [b"a", b"b"]
    assert_closed_cleanly(storage, [b"a", b"b"])


async def test_any_call_that_fails_while_a_store_opens_leaves_it_ready_for_another_try() -> None:
    """Fail the first call of the system, then the second, until the store opens in spite of it."""
    storage = MemoryStorage()
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message(b"%d" % number) for number in range(10)])
        killed = storage.kill()
    tried = 0
    for operation in ("exists", "names", "size_of", "open", "write", "sync", "is_clear_from"):
        for call in count(1):
            attempt = killed.kill()
            fault = attempt.faults.fail(operation, errno.EIO, call=call)
            with contextlib.suppress(StorageError):
                async with open_store(small_config(), storage=attempt):
                    pass
            if not fault.fired:
                break
            tried += 1
            attempt.faults.clear()
            async with open_store(small_config(), storage=attempt) as store:
                assert bodies_of(store) == [b"%d" % number for number in range(10)], operation
    assert tried > 20


async def test_without_room_a_new_store_does_not_open_and_says_what_to_do() -> None:
    storage = MemoryStorage(capacity_bytes=4096)
    with pytest.raises(DiskFullError) as caught:
        async with open_store(small_config(), storage=storage):
            raise AssertionError("it opened")
    assert caught.value.hint is not None
    storage.capacity_bytes = None
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message(b"a")])
    assert_closed_cleanly(storage, [b"a"])


# --- nothing is left ------------------------------------------------------------------------


def open_files() -> int:
    gc.collect()
    return len(list(OPEN_FILES.iterdir()))


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the system does not list open files")
async def test_no_file_and_no_task_is_left_by_a_store_on_disk(tmp_path: Path) -> None:
    config = small_config(tmp_path / "store")
    tasks, files = trio.lowlevel.current_statistics().tasks_living, open_files()
    async with open_store(config) as store:
        for number in range(300):
            await store.put([message(bytes(200), topic=f"T{number % 3}", queue_id=number % 5)])
        inside = open_files()
    assert inside > files
    assert open_files() == files
    # Also not by those that end badly, or do not open.
    with pytest.raises(ExceptionGroup):
        async with open_store(config):
            raise ValueError
    async with open_store(config):
        with pytest.raises(StoreLockedError):
            async with open_store(config):
                raise AssertionError("it opened")
    (config.root / "commitlog" / f"{2 * config.segment_bytes:020d}").unlink()
    with pytest.raises(CorruptStoreError):
        async with open_store(config):
            raise AssertionError("it opened")
    assert open_files() == files
    assert trio.lowlevel.current_statistics().tasks_living == tasks


# --- progress -------------------------------------------------------------------------------


async def test_a_long_recovery_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    config = small_config(segment_bytes=4 * 1024 * 1024, flush_mode=FlushMode.ASYNC)
    async with open_store(config, storage=storage) as store:
        for _ in range(20):
            store.append([message()] * 500)
        killed = storage.kill()
    # Every look at the clock takes a second.
    monkeypatch.setattr(recovery, "time", SimpleNamespace(monotonic=count().__next__))
    steps: list[Progress] = []
    async with open_store(config, storage=killed, on_progress=steps.append) as store:
        assert len(bodies_of(store)) == 10_000
    assert len(steps) >= 2
    assert [step.done_bytes for step in steps] == sorted(step.done_bytes for step in steps)
    assert all(0 < step.done_bytes <= step.total_bytes for step in steps)
    assert steps[-1].records > steps[0].records >= 1


async def test_a_short_recovery_says_nothing() -> None:
    storage = MemoryStorage()
    async with open_store(small_config(), storage=storage) as store:
        await store.put([message()])
        killed = storage.kill()
    steps: list[Progress] = []
    async with open_store(small_config(), storage=killed, on_progress=steps.append):
        assert steps == []
