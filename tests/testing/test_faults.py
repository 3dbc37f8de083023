"""Faults on order, calls counted, room that runs out, and clocks in the hands of a test."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmq.errors import DiskFullError, StorageError
from rmq.testing.faults import PHRASES
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from rmq.testing.faults import Operation

ROOT = Path("/store")
FILE = ROOT / "file"
PAGE = 4096


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_directory(ROOT)
    return storage


def use(storage: MemoryStorage, operation: Operation) -> None:
    """Call one operation in the plainest way, on a file that is there."""
    arguments: dict[str, tuple[object, ...]] = {
        "create": (ROOT / "new", 1),
        "resize": (FILE, 3),
        "write": (FILE, b"new"),
        "replace": (FILE, b"new"),
        "move": (FILE, ROOT / "moved"),
        "reserve": (0, 1),
        "clear_from": (0,),
        "is_clear_from": (0,),
    }
    of_file = {"sync", "reserve", "clear_from", "is_clear_from", "lock_memory"}
    target = storage.open(FILE) if operation in of_file else storage
    getattr(target, operation)(*arguments.get(operation, () if operation in of_file else (FILE,)))


# --- faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", PHRASES)
def test_every_operation_that_can_fail_fails_on_order(
    storage: MemoryStorage, operation: Operation
) -> None:
    storage.write(FILE, b"content")
    fault = storage.faults.fail(operation, errno.EACCES)
    with pytest.raises(StorageError) as caught:
        use(storage, operation)
    assert fault.fired == 1
    assert caught.value.operation == PHRASES[operation]
    assert caught.value.reason == "Permission denied"
    assert caught.value.hint
    assert storage.read(FILE) == b"content"
    assert storage.names(ROOT) == ["file"]


@pytest.mark.parametrize("operation", ["touch", "close", "unlock_memory", "used_ratio"])
def test_what_never_fails_cannot_be_made_to(storage: MemoryStorage, operation: Operation) -> None:
    with pytest.raises(ValueError, match=f"{operation} never fails"):
        storage.faults.fail(operation)


def test_an_order_for_the_call_before_the_first_is_refused(storage: MemoryStorage) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        storage.faults.fail("sync", call=0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(errno.ENOSPC, DiskFullError, id="full"),
        pytest.param(errno.EDQUOT, DiskFullError, id="quota"),
        pytest.param(errno.EIO, StorageError, id="broken"),
    ],
)
def test_the_code_gives_the_kind_of_error(
    storage: MemoryStorage, code: int, kind: type[StorageError]
) -> None:
    storage.faults.fail("write", code)
    with pytest.raises(StorageError) as caught:
        storage.write(FILE, b"")
    assert type(caught.value) is kind


def failures(storage: MemoryStorage, calls: int) -> str:
    """Write some times; return which calls failed."""
    seen = ""
    for _ in range(calls):
        try:
            storage.write(FILE, b"")
            seen += "."
        except StorageError:
            seen += "F"
    return seen


@pytest.mark.parametrize(
    ("call", "times", "seen"),
    [
        pytest.param(1, 1, "F.....", id="the next"),
        pytest.param(3, 1, "..F...", id="the third"),
        pytest.param(2, 3, ".FFF..", id="three from the second on"),
        pytest.param(4, None, "...FFF", id="all from the fourth on"),
    ],
)
def test_a_fault_strikes_at_the_calls_it_was_ordered_for(
    storage: MemoryStorage, call: int, times: int | None, seen: str
) -> None:
    fault = storage.faults.fail("write", call=call, times=times)
    assert failures(storage, 6) == seen
    assert fault.fired == seen.count("F")


def test_calls_are_counted_from_the_order_on(storage: MemoryStorage) -> None:
    assert failures(storage, 2) == ".."
    storage.faults.fail("write", call=2)
    assert failures(storage, 3) == ".F."


def test_orders_count_apart_from_each_other(storage: MemoryStorage) -> None:
    storage.faults.fail("write", call=2)
    storage.faults.fail("write", call=4)
    storage.faults.fail("read", call=1)
    assert failures(storage, 5) == ".F.F."


def test_only_calls_on_chosen_paths_count(storage: MemoryStorage) -> None:
    storage.faults.fail("write", call=2, on=lambda path: path.name == "chosen")
    storage.write(ROOT / "other", b"")
    storage.write(ROOT / "chosen", b"")
    storage.write(ROOT / "other", b"")
    with pytest.raises(StorageError):
        storage.write(ROOT / "chosen", b"")


def test_faults_last_for_a_block_or_until_cleared(storage: MemoryStorage) -> None:
    with storage.faults.failing("write") as fault:
        assert failures(storage, 2) == "FF"
    assert (failures(storage, 2), fault.fired) == ("..", 2)
    storage.faults.fail("write", times=None)
    storage.faults.clear()
    assert failures(storage, 2) == ".."


def test_calls_are_counted_failed_ones_included(storage: MemoryStorage) -> None:
    storage.faults.fail("sync")
    file = storage.create(FILE, 1)
    with pytest.raises(StorageError):
        file.sync()
    file.sync()
    file.touch(0, 1)
    file.close()
    names: list[Operation] = ["create", "sync", "touch", "close", "read"]
    counted = {name: storage.calls[name] for name in names}
    assert counted == {"create": 1, "sync": 2, "touch": 1, "close": 1, "read": 0}


def test_a_watcher_sees_calls_before_they_happen(storage: MemoryStorage) -> None:
    seen: list[tuple[str, str, bool]] = []

    def watch(operation: Operation, path: Path) -> None:
        if operation in ("create", "sync", "sync_directory"):
            there = "file" in storage.kill().names(ROOT)
            seen.append((operation, path.name, there))

    storage.faults.watch(watch)
    storage.create(FILE, 1).sync()
    storage.sync_directory(ROOT)
    assert seen == [
        ("create", "file", False),
        ("sync", "file", True),
        ("sync_directory", "store", True),
    ]


# --- room -----------------------------------------------------------------------------------


def full_storage() -> MemoryStorage:
    storage = MemoryStorage(capacity_bytes=4 * PAGE)
    storage.make_directory(ROOT)
    storage.create(FILE, 8 * PAGE).reserve(0, 4 * PAGE)
    return storage


def test_room_is_taken_by_reserve_and_not_by_create() -> None:
    storage = MemoryStorage(capacity_bytes=4 * PAGE)
    storage.make_directory(ROOT)
    file = storage.create(FILE, 8 * PAGE)
    assert storage.used_ratio(ROOT) == 0
    file.reserve(100, PAGE + 100)
    assert (storage.used_bytes, storage.used_ratio(ROOT)) == (2 * PAGE, 0.5)
    file.reserve(0, 3 * PAGE)
    assert storage.used_ratio(ROOT) == 0.75
    with pytest.raises(DiskFullError) as caught:
        file.reserve(0, 5 * PAGE)
    assert caught.value.operation == "reserve room for"
    assert caught.value.reason == "No space left on device"
    assert storage.used_bytes == 3 * PAGE


@pytest.mark.parametrize("operation", ["create", "write", "lock"])
def test_a_full_disk_takes_no_new_file(operation: Operation) -> None:
    arguments: dict[str, tuple[object, ...]] = {"create": (1,), "write": (b"x",), "lock": ()}
    storage = full_storage()
    assert storage.used_ratio(ROOT) == 1.0
    with pytest.raises(DiskFullError):
        getattr(storage, operation)(ROOT / "new", *arguments[operation])
    assert storage.names(ROOT) == ["file"]


def test_reserving_again_needs_no_room() -> None:
    storage = full_storage()
    storage.open(FILE).reserve(PAGE, 3 * PAGE)
    assert storage.used_bytes == 4 * PAGE


@pytest.mark.parametrize("how", ["delete", "clear_from", "resize", "more capacity"])
def test_room_comes_back(how: str) -> None:
    storage = full_storage()
    if how == "delete":
        storage.delete(FILE)
    elif how == "clear_from":
        storage.open(FILE).clear_from(PAGE)
    elif how == "resize":
        storage.resize(FILE, PAGE)
    else:
        assert storage.capacity_bytes == 4 * PAGE
        storage.capacity_bytes = 5 * PAGE
    storage.write(ROOT / "new", b"x" * PAGE)


def test_a_small_file_takes_the_room_of_its_bytes_once() -> None:
    storage = MemoryStorage(capacity_bytes=2 * PAGE)
    storage.make_directory(ROOT)
    for _ in range(3):
        storage.write(FILE, b"x" * (PAGE + 1))
    with pytest.raises(DiskFullError):
        storage.write(FILE, b"x" * (2 * PAGE + 1))
    assert storage.read(FILE) == b"x" * (PAGE + 1)


def test_data_takes_room_reserved_or_not(storage: MemoryStorage) -> None:
    file = storage.create(FILE, 3 * PAGE)
    file.buffer[PAGE + 5] = 1
    assert storage.used_bytes == PAGE
    assert storage.writes_without_room() == ["/store/file, position 4096"]
    file.reserve(0, 3 * PAGE)
    assert storage.writes_without_room() == []


def test_a_reservation_survives_a_power_cut_only_with_a_sync(storage: MemoryStorage) -> None:
    file = storage.create(FILE, 3 * PAGE)
    storage.sync_directory(ROOT)
    file.reserve(0, PAGE)
    file.sync()
    file.reserve(PAGE, 2 * PAGE)
    assert storage.kill().used_bytes == 2 * PAGE
    assert storage.crash(random.Random(1)).used_bytes == PAGE


def test_the_used_ratio_can_be_claimed(storage: MemoryStorage) -> None:
    storage.reported_used_ratio = 0.91
    assert storage.used_ratio(ROOT) == 0.91
    assert storage.kill().used_ratio(ROOT) == 0.91


# --- time and size --------------------------------------------------------------------------


def test_files_are_dated_by_the_clock_of_the_test() -> None:
    now_ms = 1000
    storage = MemoryStorage(now_ms=lambda: now_ms)
    storage.make_directory(ROOT)
    file = storage.create(FILE, 10)
    now_ms = 2000
    file.sync()
    assert storage.modified_ms(FILE) == 1000
    file.buffer[0] = 1
    file.sync()
    assert storage.modified_ms(FILE) == 2000
    now_ms = 3000
    file.clear_from(0)
    assert storage.modified_ms(FILE) == 3000
    storage.set_modified_ms(FILE, 1)
    assert storage.modified_ms(FILE) == 1
    assert storage.crash(random.Random(3)).modified_ms(ROOT) == 1000


@pytest.mark.parametrize("how", ["write", "resize"])
def test_a_file_with_views_cannot_change_its_size(storage: MemoryStorage, how: str) -> None:
    storage.write(FILE, b"four")
    file = storage.open(FILE)
    view = file.buffer[:2]
    file.close()
    with pytest.raises(AssertionError, match="while there are views"):
        storage.write(FILE, b"longer") if how == "write" else storage.resize(FILE, 2)
    view.release()
    storage.write(FILE, b"longer") if how == "write" else storage.resize(FILE, 2)
