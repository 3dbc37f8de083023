"""The contract of the storage seam, held against the disk and against the memory that stands in.

Whatever the store relies on is asked of both here. What only a disk can do (other processes, limits
of the system) is in `test_storage_disk`; what only memory can do (crashes) is in `tests/testing`.
"""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rmq.errors import StorageError
from tests.store.storage_contract import STORAGES, Place, place_on, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096


@pytest.fixture(params=STORAGES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_on(request.param, tmp_path)


def pattern(size: int) -> bytes:
    return bytes(index % 251 + 1 for index in range(size))


# --- directories ----------------------------------------------------------------------------


def test_names_are_sorted(place: Place) -> None:
    for name in ("b", "a", "10", "9"):
        place.storage.write(place.root / name, b"")
    place.storage.make_directory(place.root / "aa")
    assert place.storage.names(place.root) == ["10", "9", "a", "aa", "b"]


def test_a_missing_directory_has_no_names(place: Place) -> None:
    assert place.storage.names(place.root / "missing") == []
    assert place.storage.names(place.root / "missing" / "below") == []


def test_a_directory_is_made_with_its_parents_and_may_exist(place: Place) -> None:
    deep = place.root / "a" / "b" / "c"
    place.storage.make_directory(deep)
    place.storage.make_directory(deep)
    assert place.storage.is_directory(deep)
    assert place.storage.is_directory(deep.parent)
    assert place.storage.names(place.root / "a") == ["b"]


def test_files_and_directories_are_told_apart(place: Place) -> None:
    place.storage.write(place.root / "file", b"x")
    seen = {
        name: (place.storage.exists(path), place.storage.is_directory(path))
        for name, path in {
            "root": place.root,
            "file": place.root / "file",
            "missing": place.root / "missing",
            "below a file": place.root / "file" / "below",
        }.items()
    }
    assert seen == {
        "root": (True, True),
        "file": (True, False),
        "missing": (False, False),
        "below a file": (False, False),
    }


def test_deleting_what_is_gone_is_fine(place: Place) -> None:
    place.storage.delete(place.root / "missing")
    place.storage.delete(place.root / "missing" / "below")


def test_a_file_and_an_empty_directory_can_be_deleted(place: Place) -> None:
    place.storage.write(place.root / "file", b"x")
    place.storage.make_directory(place.root / "folder")
    place.storage.delete(place.root / "file")
    place.storage.delete(place.root / "folder")
    place.storage.sync_directory(place.root)
    assert place.storage.names(place.root) == []


def test_a_directory_with_something_in_it_is_not_deleted(place: Place) -> None:
    place.storage.make_directory(place.root / "folder")
    place.storage.write(place.root / "folder" / "file", b"x")
    with pytest.raises(StorageError):
        place.storage.delete(place.root / "folder")
    assert place.storage.read(place.root / "folder" / "file") == b"x"


# --- small files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(b"shorter", id="shorter"),
        pytest.param(b"longer than before was", id="longer"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_small_file_holds_what_was_written_last(place: Place, second: bytes) -> None:
    path = place.root / "small"
    place.storage.write(path, b"the first one")
    assert place.storage.read(path) == b"the first one"
    place.storage.write(path, second)
    assert place.storage.read(path) == second
    assert place.storage.size_of(path) == len(second)


def test_views_of_a_small_file_see_it_written_in_place(place: Place) -> None:
    path = place.root / "small"
    place.storage.write(path, b"before")
    file = place.storage.open(path)
    place.storage.write(path, b"after!")
    assert bytes(file.buffer) == b"after!"
    file.close()


@pytest.mark.parametrize("second", [b"", b"short", b"longer than before was"])
def test_a_file_that_is_replaced_is_another_one(place: Place, second: bytes) -> None:
    path = place.root / "small"
    place.storage.replace(path, b"the first one")
    assert place.storage.read(path) == b"the first one"
    file = place.storage.open(path)
    place.storage.replace(path, second)
    assert place.storage.read(path) == second
    assert bytes(file.buffer) == b"the first one"
    file.close()
    assert place.storage.names(place.root) == ["small"]


def test_what_cannot_be_replaced_is_refused_by_its_name(place: Place) -> None:
    place.storage.make_directory(place.root / "folder")
    replace = place.storage.replace
    for path, reason in (
        (place.root / "missing" / "file", "No such file or directory"),
        (place.root / "folder", "Is a directory"),
    ):
        refusal = refusal_of(partial(replace, path, b"x"))
        assert (refusal.operation, refusal.path, refusal.reason) == ("write", str(path), reason)
    assert place.storage.names(place.root) == ["folder"]


def test_a_file_is_dated_when_it_is_written(place: Place) -> None:
    path = place.root / "small"
    before_ms = time.time_ns() // 1_000_000
    place.storage.write(path, b"x")
    after_ms = time.time_ns() // 1_000_000
    # Kernels take the time of files from a clock that lags by some milliseconds.
    assert before_ms - 100 <= place.storage.modified_ms(path) <= after_ms


@pytest.mark.parametrize(
    ("size", "left"),
    [
        pytest.param(3, b"abc", id="cut"),
        pytest.param(6, b"abcdef", id="kept"),
        pytest.param(9, b"abcdef\0\0\0", id="extended"),
        pytest.param(0, b"", id="emptied"),
        pytest.param(PAGE + 1, b"abcdef".ljust(PAGE + 1, b"\0"), id="extended by a page"),
    ],
)
def test_resize_cuts_and_extends_with_zeros(place: Place, size: int, left: bytes) -> None:
    path = place.root / "file"
    place.storage.write(path, b"abcdef")
    place.storage.resize(path, size)
    assert place.storage.read(path) == left


def test_what_was_cut_off_does_not_come_back_by_extending(place: Place) -> None:
    path = place.root / "file"
    place.storage.write(path, b"abcdef")
    place.storage.resize(path, 2)
    place.storage.resize(path, 6)
    assert place.storage.read(path) == b"ab\0\0\0\0"


# --- mapped files ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, 3 * PAGE + 5])
def test_a_created_file_is_zeros_of_the_given_size(place: Place, size: int) -> None:
    path = place.root / "file"
    file = place.storage.create(path, size)
    assert (file.path, file.size, bytes(file.buffer)) == (path, size, bytes(size))
    assert place.storage.size_of(path) == size
    assert file.is_clear_from(0)
    file.close()


def test_a_file_of_no_bytes_can_be_used_like_any_other(place: Place) -> None:
    place.storage.create(place.root / "empty", 0).close()
    file = place.storage.open(place.root / "empty")
    file.reserve(0, 100)
    file.touch(0, 100)
    file.lock_memory()
    file.unlock_memory()
    file.clear_from(0)
    file.sync()
    assert (file.size, len(file.buffer), file.is_clear_from(0)) == (0, 0, True)
    file.close()


def test_create_leaves_a_file_alone_that_exists(place: Place) -> None:
    path = place.root / "file"
    place.storage.write(path, b"precious")
    with pytest.raises(StorageError) as caught:
        place.storage.create(path, 4)
    assert (caught.value.operation, caught.value.path) == ("create", str(path))
    assert place.storage.read(path) == b"precious"


@pytest.mark.parametrize("size", [-1, 2**62, 2**63, 2**70])
def test_create_with_a_size_no_file_can_have_leaves_nothing_behind(place: Place, size: int) -> None:
    with pytest.raises(StorageError):
        place.storage.create(place.root / "file", size)
    assert place.storage.names(place.root) == []


def test_what_is_written_is_seen_by_everyone_at_once(place: Place) -> None:
    path = place.root / "file"
    writer = place.storage.create(path, PAGE)
    reader = place.storage.open(path, writable=False)
    writer.buffer[10:13] = b"abc"
    later = place.storage.open(path)
    assert bytes(reader.buffer[9:14]) == b"\0abc\0"
    assert bytes(later.buffer[9:14]) == b"\0abc\0"
    assert place.storage.read(path)[9:14] == b"\0abc\0"
    for file in (writer, reader, later):
        file.close()


def test_what_is_written_is_there_after_close_without_a_sync(place: Place) -> None:
    path = place.root / "file"
    file = place.storage.create(path, PAGE)
    file.buffer[:3] = b"abc"
    file.close()
    assert place.storage.read(path)[:4] == b"abc\0"


def test_sync_changes_no_bytes(place: Place) -> None:
    file = place.storage.create(place.root / "file", 3 * PAGE)
    file.buffer[:] = pattern(3 * PAGE)
    file.sync()
    assert bytes(file.buffer) == pattern(3 * PAGE)
    file.close()


def test_a_file_opened_for_reading_refuses_to_be_changed(place: Place) -> None:
    path = place.root / "file"
    place.storage.write(path, pattern(PAGE))
    file = place.storage.open(path, writable=False)
    with pytest.raises(TypeError):
        file.buffer[0] = 0
    for change in (partial(file.clear_from, 0), partial(file.reserve, 0, 1), file.lock_memory):
        assert refusal_of(change).reason == "the file is open for reading only"
    file.sync()
    file.touch(0, PAGE)
    file.close()
    assert place.storage.read(path) == pattern(PAGE)


def test_views_outlive_close_and_delete(place: Place) -> None:
    path = place.root / "file"
    file = place.storage.create(path, 2 * PAGE)
    file.buffer[:] = pattern(2 * PAGE)
    view = file.buffer[PAGE - 2 : PAGE + 2]
    file.close()
    place.storage.delete(path)
    place.storage.create(path, 2 * PAGE).close()
    assert bytes(view) == pattern(2 * PAGE)[PAGE - 2 : PAGE + 2]
    view[0] = 0
    view.release()
    assert place.storage.read(path) == bytes(2 * PAGE)


def test_a_closed_file_can_be_closed_again_but_not_used(place: Place) -> None:
    file = place.storage.create(place.root / "file", PAGE)
    file.close()
    file.close()
    with pytest.raises(ValueError, match="released"):
        file.buffer[0] = 1
    assert refusal_of(file.sync).reason == "the file is closed"
    assert refusal_of(file.lock_memory).reason == "the file is closed"
    # These two come from helpers that need not know that the file was closed meanwhile.
    file.touch(0, PAGE)
    file.unlock_memory()


def test_a_deleted_file_can_be_synced_and_does_not_mistake_another_for_itself(
    place: Place,
) -> None:
    path = place.root / "file"
    file = place.storage.create(path, PAGE)
    place.storage.delete(path)
    file.buffer[0] = 1
    file.sync()
    by_name: list[Callable[[], object]] = [
        partial(file.reserve, 0, PAGE),
        partial(file.clear_from, 0),
        partial(file.is_clear_from, 0),
    ]
    gone = [refusal_of(use) for use in by_name]
    place.storage.write(path, pattern(PAGE))
    another = [refusal_of(use) for use in by_name]
    assert [refusal.reason for refusal in gone] == ["No such file or directory"] * 3
    assert another == gone
    assert place.storage.read(path) == pattern(PAGE)
    file.close()


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(0, id="all of it"),
        pytest.param(1, id="all but a byte"),
        pytest.param(PAGE, id="from a page on"),
        pytest.param(PAGE + 7, id="within a page"),
        pytest.param(3 * PAGE - 1, id="the last byte"),
        pytest.param(3 * PAGE, id="nothing"),
        pytest.param(4 * PAGE, id="behind the end"),
    ],
)
def test_clear_from_zeroes_the_end_for_every_view(place: Place, position: int) -> None:
    path = place.root / "file"
    size = 3 * PAGE
    file = place.storage.create(path, size)
    file.buffer[:] = pattern(size)
    view = file.buffer[:]
    other = place.storage.open(path, writable=False)
    assert file.is_clear_from(position) == (position >= size)
    file.clear_from(position)
    expected = pattern(size)[:position].ljust(size, b"\0")
    assert bytes(view) == bytes(other.buffer) == place.storage.read(path) == expected
    assert place.storage.size_of(path) == size
    assert file.is_clear_from(position)
    view.release()
    other.close()
    file.close()


def test_a_cleared_range_can_be_written_again(place: Place) -> None:
    path = place.root / "file"
    file = place.storage.create(path, 2 * PAGE)
    file.buffer[:] = pattern(2 * PAGE)
    file.clear_from(10)
    file.reserve(0, 2 * PAGE)
    file.buffer[PAGE : PAGE + 3] = b"abc"
    assert not file.is_clear_from(PAGE)
    assert not file.is_clear_from(PAGE + 2)
    assert file.is_clear_from(PAGE + 3)
    assert place.storage.read(path)[PAGE - 1 : PAGE + 4] == b"\0abc\0"
    file.close()


def test_a_bit_set_behind_is_found_without_a_sync(place: Place) -> None:
    file = place.storage.create(place.root / "file", 64 * PAGE)
    file.reserve(0, 64 * PAGE)
    file.buffer[64 * PAGE - 1] = 1
    assert not file.is_clear_from(0)
    assert not file.is_clear_from(64 * PAGE - 1)
    file.close()


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        pytest.param(0, 3 * PAGE, id="all"),
        pytest.param(5, PAGE + 5, id="across a page"),
        pytest.param(PAGE, 100 * PAGE, id="clipped at the end"),
        pytest.param(50 * PAGE, 100 * PAGE, id="behind the end"),
        pytest.param(PAGE, PAGE, id="nothing"),
        pytest.param(PAGE, 0, id="less than nothing"),
    ],
)
@pytest.mark.parametrize("operation", ["reserve", "touch"])
def test_making_room_ahead_changes_neither_bytes_nor_size(
    place: Place, operation: str, start: int, stop: int
) -> None:
    path = place.root / "file"
    file = place.storage.create(path, 3 * PAGE)
    file.buffer[:] = pattern(3 * PAGE)
    getattr(file, operation)(start, stop)
    assert bytes(file.buffer) == pattern(3 * PAGE)
    assert place.storage.size_of(path) == 3 * PAGE
    file.close()


def test_locking_memory_changes_no_bytes(place: Place) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < 2 * PAGE:
        pytest.skip(f"only {limit} bytes may be locked here")
    file = place.storage.create(place.root / "file", PAGE)
    file.buffer[:] = pattern(PAGE)
    file.lock_memory()
    file.unlock_memory()
    assert bytes(file.buffer) == pattern(PAGE)
    file.close()


# --- the lock, and the disk -----------------------------------------------------------------


def test_a_store_is_locked_once_at_a_time(place: Place) -> None:
    path = place.root / "lock"
    first = place.storage.lock(path)
    assert first is not None
    assert place.storage.lock(path) is None
    assert place.storage.lock(path) is None
    first.release()
    second = place.storage.lock(path)
    assert second is not None
    first.release()
    assert place.storage.lock(path) is None
    second.release()


def test_two_stores_have_locks_of_their_own(place: Place) -> None:
    locks = [place.storage.lock(place.root / name) for name in ("one", "two")]
    assert None not in locks
    for lock in locks:
        assert lock is not None
        lock.release()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, b"lock", id="none before"),
        pytest.param(b"", b"lock", id="empty before"),
        pytest.param(b"lock", b"lock", id="left by another store"),
        pytest.param(b"something else", b"lockthing else", id="something longer"),
    ],
)
def test_the_lock_file_says_lock(place: Place, before: bytes | None, after: bytes) -> None:
    path = place.root / "lock"
    if before is not None:
        place.storage.write(path, before)
    lock = place.storage.lock(path)
    assert lock is not None
    assert place.storage.size_of(path) == len(after)
    lock.release()
    assert place.storage.read(path) == after


def test_the_used_ratio_is_in_whole_percents(place: Place) -> None:
    ratio = place.storage.used_ratio(place.root)
    assert 0 <= ratio <= 1
    assert ratio * 100 == pytest.approx(round(ratio * 100))


def test_the_used_ratio_of_nothing_cannot_be_told(place: Place) -> None:
    assert place.storage.used_ratio(place.root / "missing") == -1.0
