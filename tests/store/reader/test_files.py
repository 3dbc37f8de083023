"""Reading files that somebody else owns: few descriptors, clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.errors import StorageError
from rmq.store.reader.files import FileGoneError, FilePool, list_files, list_segments
from rmq.store.reader.state import lock_holder, read_state


def open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_no_more_files_stay_open_than_the_limit(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%02d" % number)
    before = open_files()
    pool = FilePool(limit=3)
    for _ in range(2):
        for number, path in enumerate(paths):
            assert pool.read(path, 0, 10) == b"%02d" % number
            assert open_files() <= before + 3
    pool.close()
    assert open_files() == before
    assert pool.read(paths[0], 1, 10) == b"0"
    pool.close()


def test_a_file_is_read_to_its_end_and_not_beyond(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    pool = FilePool()
    assert [pool.read(path, 4, 10), pool.read(path, 6, 10), pool.read(path, 0, 2)] == [
        b"ef",
        b"",
        b"ab",
    ]
    pool.close()


def test_an_open_file_is_read_after_it_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    pool = FilePool()
    assert pool.read(path, 0, 1) == b"a"
    path.unlink()
    assert pool.read(path, 5, 1) == b"f"
    pool.close()
    with pytest.raises(FileGoneError, match="No such file"):
        pool.read(path, 0, 1)
    with pytest.raises(FileGoneError, match="No such file"):
        pool.next_data(path, 0)


def test_what_cannot_be_read_is_an_error_with_its_path(tmp_path: Path) -> None:
    pool = FilePool()
    with pytest.raises(StorageError, match=f"cannot read {tmp_path}: Is a directory"):
        pool.read(tmp_path, 0, 1)
    pool.close()


def test_holes_are_passed_over_where_the_file_system_knows_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 24)
        file.seek(1 << 23)
        file.write(b"data")
    pool = FilePool()
    found = pool.next_data(path, 0)
    assert found is not None
    assert found <= 1 << 23
    behind = pool.next_data(path, (1 << 23) + 3)
    assert behind == (1 << 23) + 3
    assert pool.next_data(path, 1 << 24) is None
    pool.close()


def test_names_decide_what_a_segment_is(tmp_path: Path) -> None:
    for name in (f"{20:020d}", f"{0:020d}", "20", f"{10:021d}", "0000000000000000004x"):
        (tmp_path / name).write_bytes(b"x" * len(name))
    (tmp_path / f"{40:020d}").mkdir()
    segments, foreign = list_segments([tmp_path, tmp_path / "nothing"])
    assert [(each.first, each.size, each.end) for each in segments] == [(0, 20, 20), (20, 20, 40)]
    assert [path.name for path in foreign] == sorted(
        ["20", f"{10:021d}", "0000000000000000004x", f"{40:020d}"]
    )


def test_a_path_that_is_no_directory_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert list_files(tmp_path / "nothing") == []
    with pytest.raises(StorageError, match=r"cannot list .*file: Not a directory"):
        list_files(tmp_path / "file")


@pytest.mark.parametrize("name", ["lock", "checkpoint", "recovery-point"])
def test_a_small_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(StorageError, match=f"{name}: Too many levels"):
        read_state(tmp_path)


def test_a_lock_that_nobody_holds_is_free(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    assert lock_holder(tmp_path / "lock") is None
