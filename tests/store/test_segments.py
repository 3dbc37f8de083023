"""The run of segments: names, what is accepted as one, what is refused and left as it was."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import CorruptStoreError, DiskFullError, StorageError
from rmq.store.segments import Segments, is_segment_name, segment_name
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import content

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE: Final = 4096
FOLDER: Final = Path("run")
KEY: Final = "mappedFileSizeCommitLog"


def storage_with(files: dict[str, int], folder: Path = FOLDER) -> MemoryStorage:
    """Return a storage with files of these sizes, filled with something."""
    storage = MemoryStorage()
    storage.make_directory(folder)
    for name, size in files.items():
        storage.write(folder / name, b"\x07" * size)
    return storage


def run_of(storage: MemoryStorage, folders: Sequence[Path] = (FOLDER,)) -> Segments:
    return Segments(storage, folders, SIZE)


def loaded(storage: MemoryStorage) -> Segments:
    run = run_of(storage)
    run.load(size_key=KEY)
    return run


def refusal_of(storage: MemoryStorage) -> CorruptStoreError:
    """Return why a run is refused, and see that nothing was changed by that."""
    before = content(storage, FOLDER)
    with pytest.raises(CorruptStoreError) as caught:
        loaded(storage)
    assert content(storage, FOLDER) == before
    return caught.value


# --- names ----------------------------------------------------------------------------------


def test_a_segment_is_named_by_its_first_offset_in_twenty_digits() -> None:
    assert segment_name(0) == "00000000000000000000"
    assert segment_name(1073741824) == "00000000001073741824"


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        pytest.param("00000000001073741824", True, id="twenty digits"),
        pytest.param("0000000000107374182", False, id="nineteen"),
        pytest.param("000000000010737418240", False, id="twenty-one"),
        pytest.param("0000000000107374182x", False, id="a letter"),
        pytest.param("-0000000001073741824", False, id="a sign"),
        pytest.param("\u0660" * 20, False, id="digits of another script"),
        pytest.param("lost+found", False, id="foreign"),
    ],
)
def test_only_twenty_digits_are_the_name_of_a_segment(name: str, is_name: bool) -> None:
    assert is_segment_name(name) is is_name


# --- loading --------------------------------------------------------------------------------


def test_a_run_that_does_not_exist_is_empty() -> None:
    run = loaded(MemoryStorage())
    assert len(run) == 0
    assert (run.first, run.end, run.last, run.end_on_disk) == (0, 0, None, 0)
    assert run.find(0) is None
    assert run.from_offset(0) == []


def test_a_run_may_begin_anywhere_but_has_no_gap() -> None:
    run = loaded(storage_with({segment_name(n * SIZE): SIZE for n in (3, 4, 5)}))
    assert [segment.first for segment in run] == [3 * SIZE, 4 * SIZE, 5 * SIZE]
    assert (run.first, run.end) == (3 * SIZE, 6 * SIZE)


def test_a_missing_segment_is_named() -> None:
    error = refusal_of(storage_with({segment_name(n * SIZE): SIZE for n in (0, 1, 3)}))
    assert error.path == str(FOLDER / segment_name(3 * SIZE))
    assert f"segment {segment_name(2 * SIZE)} is missing before it" in str(error)
    assert "put the missing file back" in (error.hint or "")


def test_foreign_files_are_left_alone_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    files = {segment_name(0): SIZE, "core.1234": 10, "00000000000000000000.bak": SIZE}
    storage = storage_with(files)
    storage.make_directory(FOLDER / "lost+found")
    with caplog.at_level(logging.WARNING):
        run = loaded(storage)
    assert [segment.first for segment in run] == [0]
    assert {record.getMessage() for record in caplog.records} == {
        f"{FOLDER / name} is no segment; it is left alone"
        for name in ("core.1234", "00000000000000000000.bak", "lost+found")
    }
    assert storage.size_of(FOLDER / "core.1234") == 10


@pytest.mark.parametrize(
    ("sizes", "right", "damaged"),
    [
        pytest.param([8192, 8192], 8192, 0, id="all larger"),
        pytest.param([1024, 1024, 1024], 1024, 0, id="all smaller"),
        pytest.param([8192, 8192, 100], 8192, 0, id="all larger, the last cut"),
        pytest.param([8192], 8192, 0, id="one larger"),
    ],
)
def test_a_wrong_setting_is_named_with_the_value_it_should_have(
    sizes: list[int], right: int, damaged: int
) -> None:
    names = [segment_name(n * right) for n in range(len(sizes))]
    error = refusal_of(storage_with(dict(zip(names, sizes, strict=True))))
    assert error.path == str(FOLDER / names[damaged])
    assert f"the file has {sizes[damaged]} bytes, a segment has {SIZE}" in str(error)
    assert error.hint == f"set {KEY}={right}, the size the store was written with"


@pytest.mark.parametrize(
    ("sizes", "damaged"),
    [
        pytest.param([SIZE, 100, SIZE], 1, id="one in the middle is short"),
        pytest.param([100, SIZE], 0, id="the first is short"),
        pytest.param([0, SIZE], 0, id="the first is empty"),
        pytest.param([SIZE, SIZE + 1], 1, id="the last is too long"),
        pytest.param([SIZE, 2 * SIZE, SIZE], 1, id="one is too long"),
    ],
)
def test_one_file_of_another_size_should_come_back_from_elsewhere(
    sizes: list[int], damaged: int
) -> None:
    names = [segment_name(n * SIZE) for n in range(len(sizes))]
    error = refusal_of(storage_with(dict(zip(names, sizes, strict=True))))
    assert error.path == str(FOLDER / names[damaged])
    assert f"{sizes[damaged]} bytes" in str(error)
    assert (error.hint or "").startswith("put the file back from a slave or a backup")


def test_a_name_between_two_segments_is_refused() -> None:
    error = refusal_of(storage_with({segment_name(100): SIZE}))
    assert f"the name is not a multiple of {KEY}={SIZE}" in str(error)
    assert error.hint == f"set {KEY} to the size the store was written with"


def test_a_short_last_file_with_a_name_that_does_not_fit_is_not_extended() -> None:
    # Written with segments of 1000 bytes: extending it would make the right setting wrong, too.
    error = refusal_of(storage_with({segment_name(3000): 1000}))
    assert f"the name is not a multiple of {KEY}={SIZE}" in str(error)


def test_a_directory_in_the_place_of_a_segment_is_an_error() -> None:
    storage = storage_with({})
    storage.make_directory(FOLDER / segment_name(0))
    run = loaded(storage)
    with pytest.raises(StorageError) as caught:
        run[0].buffer  # noqa: B018 - it is opened when first used
    assert caught.value.path == str(FOLDER / segment_name(0))
    assert "a directory stands where a file belongs" in (caught.value.hint or "")


@pytest.mark.parametrize("size", [0, 1, 100, SIZE - 1])
def test_a_short_last_file_is_extended_with_zeros_when_told(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = storage_with({segment_name(0): SIZE, segment_name(SIZE): size})
    run = loaded(storage)
    assert run.end_on_disk == SIZE + size
    assert storage.size_of(FOLDER / segment_name(SIZE)) == size
    with caplog.at_level(logging.WARNING):
        run.extend_last()
    assert f"has {size} of {SIZE} bytes" in caplog.text
    assert run.end_on_disk == run.end == 2 * SIZE
    assert bytes(run[1].buffer) == b"\x07" * size + bytes(SIZE - size)


def test_extending_a_run_that_is_whole_changes_nothing() -> None:
    storage = storage_with({segment_name(0): SIZE})
    run = loaded(storage)
    run.extend_last()
    assert storage.calls["resize"] == 0
    assert run.end_on_disk == SIZE


def test_files_are_mapped_when_they_are_used() -> None:
    storage = storage_with({segment_name(n * SIZE): SIZE for n in range(5)})
    run = loaded(storage)
    assert storage.calls["open"] == 0
    assert len(run[3].buffer) == SIZE
    assert len(run[3].buffer) == SIZE
    assert storage.calls["open"] == 1


# --- finding --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        pytest.param(-1, None, id="negative"),
        pytest.param(2 * SIZE - 1, None, id="before"),
        pytest.param(2 * SIZE, 2 * SIZE, id="first byte"),
        pytest.param(3 * SIZE - 1, 2 * SIZE, id="last byte of the first"),
        pytest.param(3 * SIZE, 3 * SIZE, id="first byte of the second"),
        pytest.param(4 * SIZE - 1, 3 * SIZE, id="last byte"),
        pytest.param(4 * SIZE, None, id="behind"),
    ],
)
def test_a_byte_is_found_in_its_segment(offset: int, first: int | None) -> None:
    run = loaded(storage_with({segment_name(n * SIZE): SIZE for n in (2, 3)}))
    segment = run.find(offset)
    assert (segment.first if segment is not None else None) == first


@pytest.mark.parametrize(
    ("offset", "count"),
    [(0, 3), (SIZE - 1, 3), (SIZE, 2), (SIZE + 1, 2), (3 * SIZE - 1, 1), (3 * SIZE, 0)],
)
def test_segments_from_an_offset_on_are_those_that_end_behind_it(offset: int, count: int) -> None:
    run = loaded(storage_with({segment_name(n * SIZE): SIZE for n in range(3)}))
    assert len(run.from_offset(offset)) == count


# --- creating and dropping ------------------------------------------------------------------


def test_a_new_segment_joins_the_run_only_by_add() -> None:
    storage = MemoryStorage()
    run = run_of(storage)
    segment = run.create(0)
    assert len(run) == 0
    assert storage.size_of(FOLDER / segment_name(0)) == SIZE
    run.add(segment)
    assert run.last is segment
    with pytest.raises(AssertionError):
        run.add(segment)


def test_segments_take_turns_among_directories_and_leave_out_full_ones() -> None:
    storage = MemoryStorage()
    folders = [Path("b"), Path("a"), Path("c")]
    run = run_of(storage, folders)
    for number in range(4):
        run.add(run.create(number * SIZE))
    assert [segment.path.parent.name for segment in run] == ["a", "b", "c", "a"]
    run.full_directories = frozenset({Path("b")})
    assert run.create(4 * SIZE).path.parent == Path("a")
    run.full_directories = frozenset(folders)
    assert run.create(5 * SIZE).path.parent == Path("c")

    again = run_of(storage, folders)
    again.load(size_key=KEY)
    assert [segment.path.parent.name for segment in again] == ["a", "b", "c", "a", "a", "c"]


def test_the_same_segment_in_two_directories_is_refused() -> None:
    storage = MemoryStorage()
    for folder in (Path("a"), Path("b")):
        storage.make_directory(folder)
        storage.write(folder / segment_name(0), bytes(SIZE))
    with pytest.raises(CorruptStoreError) as caught:
        run_of(storage, [Path("a"), Path("b")]).load(size_key=KEY)
    assert str(Path("a") / segment_name(0)) in str(caught.value)
    assert caught.value.path == str(Path("b") / segment_name(0))
    assert "move one of the two out of the store" in (caught.value.hint or "")


def test_segments_are_dropped_from_an_offset_on_the_last_first() -> None:
    storage = storage_with({segment_name(n * SIZE): SIZE for n in range(4)})
    run = loaded(storage)
    deleted: list[str] = []
    storage.faults.watch(
        lambda operation, path: deleted.append(path.name) if operation == "delete" else None
    )
    run.drop_from(SIZE + 1)
    assert deleted == [segment_name(3 * SIZE), segment_name(2 * SIZE)]
    assert storage.names(FOLDER) == [segment_name(0), segment_name(SIZE)]
    run.drop_from(0)
    assert len(run) == 0


def test_a_segment_that_cannot_be_deleted_is_out_of_the_run_all_the_same() -> None:
    storage = storage_with({segment_name(n * SIZE): SIZE for n in range(2)})
    run = loaded(storage)
    storage.faults.fail("delete", errno.EACCES)
    with pytest.raises(StorageError) as caught:
        run.drop_from(SIZE)
    assert caught.value.path == str(FOLDER / segment_name(SIZE))
    assert [segment.first for segment in run] == [0]


def test_room_is_reserved_in_steps_and_never_beyond_the_end() -> None:
    storage = MemoryStorage()
    run = Segments(storage, [FOLDER], 3 * 4096 + 100)
    segment = run.create(0)
    assert segment.reserve(0, 4096) == 0
    assert segment.reserve(1, 4096) == 4096
    assert segment.reserve(4096, 4096) == 4096
    assert storage.calls["reserve"] == 1
    assert segment.reserve(4097, 4096) == 8192
    assert segment.reserve(3 * 4096 + 50, 4096) == 3 * 4096 + 50
    assert segment.reserve(3 * 4096 + 100, 4096) == 3 * 4096 + 100


def test_a_reservation_that_failed_is_tried_again() -> None:
    storage = MemoryStorage(capacity_bytes=2 * 4096)
    segment = Segments(storage, [FOLDER], 4 * 4096).create(0)
    with pytest.raises(DiskFullError) as caught:
        segment.reserve(3 * 4096, 4096)
    assert caught.value.path == str(segment.path)
    assert "free room on the device" in (caught.value.hint or "")
    assert segment.reserved == 0
    storage.capacity_bytes = None
    assert segment.reserve(3 * 4096, 4096) == 3 * 4096


# --- syncing what may go meanwhile ----------------------------------------------------------


def test_a_segment_deleted_before_its_turn_needs_no_sync(tmp_path: Path) -> None:
    run = Segments(DiskStorage(), [tmp_path], SIZE)
    segment = run.create(0)
    run.add(segment)
    run.drop_first()
    segment.sync()


def test_a_sync_that_fails_is_an_error_as_long_as_the_segment_is_there() -> None:
    storage = MemoryStorage()
    run = run_of(storage)
    segment = run.create(0)
    run.add(segment)
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError) as caught:
        segment.sync()
    assert caught.value.operation == "sync"
    assert "see the kernel log" in (caught.value.hint or "")


def test_views_stay_valid_when_their_segment_is_dropped(tmp_path: Path) -> None:
    run = Segments(DiskStorage(), [tmp_path], SIZE)
    run.add(run.create(0))
    run[0].buffer[:5] = b"hello"
    view = run[0].buffer[:5]
    run.drop_first()
    assert list(tmp_path.iterdir()) == []
    assert bytes(view) == b"hello"
