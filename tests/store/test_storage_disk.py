"""What the real storage does with room, descriptors and mappings."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import platform
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmq.errors import StorageError
from rmq.store import storage as storage_module
from rmq.store.storage import DiskStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 4096


@pytest.fixture
def storage() -> DiskStorage:
    return DiskStorage()


# --- room -----------------------------------------------------------------------------------


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_room_is_taken_by_reserve_and_not_by_create(storage: DiskStorage, tmp_path: Path) -> None:
    file = storage.create(tmp_path / "file", 64 * PAGE)
    at_first = allocated_bytes(file.path)
    file.reserve(0, 10 * PAGE)
    reserved = allocated_bytes(file.path)
    file.reserve(60 * PAGE, 1000 * PAGE)
    clipped = allocated_bytes(file.path)
    assert at_first < PAGE
    assert 10 * PAGE <= reserved < 12 * PAGE
    assert 14 * PAGE <= clipped < 18 * PAGE
    assert file.path.stat().st_size == 64 * PAGE
    file.close()


def test_clearing_gives_room_back(storage: DiskStorage, tmp_path: Path) -> None:
    file = storage.create(tmp_path / "file", 64 * PAGE)
    file.reserve(0, 64 * PAGE)
    file.clear_from(8 * PAGE)
    assert 8 * PAGE <= allocated_bytes(file.path) < 10 * PAGE
    file.close()


def test_clearing_never_makes_the_file_shorter_meanwhile(
    storage: DiskStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A crash between cutting and extending would leave a short segment, and a reader in between
    # would die of SIGBUS.
    def cut(fd: int, size: int) -> None:
        raise AssertionError(f"the file is cut to {size}")

    file = storage.create(tmp_path / "file", 3 * PAGE)
    file.buffer[:] = b"x" * (3 * PAGE)
    monkeypatch.setattr(os, "ftruncate", cut)
    file.clear_from(PAGE + 1)
    monkeypatch.undo()
    assert bytes(file.buffer) == b"x" * (PAGE + 1) + bytes(2 * PAGE - 1)
    file.close()


def test_clearing_works_where_files_cannot_have_holes(
    storage: DiskStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(function: str, *arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    file = storage.create(tmp_path / "file", 3 * PAGE)
    file.buffer[:] = b"x" * (3 * PAGE)
    monkeypatch.setattr(storage_module, "_call", refuse)
    file.clear_from(PAGE + 1)
    monkeypatch.undo()
    assert bytes(file.buffer) == b"x" * (PAGE + 1) + bytes(2 * PAGE - 1)
    assert file.path.stat().st_size == 3 * PAGE
    file.close()


def test_the_used_ratio_counts_like_a_stock_broker(storage: DiskStorage, tmp_path: Path) -> None:
    # RocketMQ 4.9.8 UtilAll: of what is used and usable, in whole percents, rounded up.
    usage = shutil.disk_usage(tmp_path)
    percents = usage.used * 100 / (usage.used + usage.free)
    # Others use the disk meanwhile, so a percent up or down is right as well.
    assert abs(storage.used_ratio(tmp_path) * 100 - percents) < 2


# --- descriptors and mappings ---------------------------------------------------------------


@contextmanager
def nothing_left_open() -> Iterator[None]:
    def open_now() -> tuple[int, int]:
        gc.collect()
        mappings = Path("/proc/self/maps").read_text().count("segment-of-this-test")
        return len(list(Path("/proc/self/fd").iterdir())), mappings

    if not Path("/proc/self/fd").exists():
        pytest.skip("open descriptors cannot be counted here")
    before = open_now()
    yield
    assert open_now() == before


def test_no_call_leaves_anything_open(storage: DiskStorage, tmp_path: Path) -> None:
    path = tmp_path / "segment-of-this-test"
    folder = tmp_path / "folder"
    with nothing_left_open():
        for _ in range(3):
            storage.make_directory(folder)
            storage.sync_directory(folder)
            file = storage.create(path, 2 * PAGE)
            file.reserve(0, PAGE)
            file.touch(0, PAGE)
            file.lock_memory()
            file.sync()
            file.clear_from(1)
            file.is_clear_from(0)
            file.unlock_memory()
            file.close()
            reader = storage.open(path, writable=False)
            view = reader.buffer[3:]
            reader.close()
            view.release()
            storage.write(folder / "small", b"x")
            storage.read(folder / "small")
            storage.names(folder)
            storage.used_ratio(folder)
            lock = storage.lock(folder / "lock")
            assert lock is not None
            assert storage.lock(folder / "lock") is None
            lock.release()
            lock.release()
            storage.resize(path, PAGE)
            storage.delete(path)


def test_no_failing_call_leaves_anything_open(storage: DiskStorage, tmp_path: Path) -> None:
    path = tmp_path / "segment-of-this-test"
    file = storage.create(path, PAGE)
    storage.delete(path)
    storage.write(path, b"another")
    failing: list[Callable[[], object]] = [
        lambda: storage.create(path, 1),
        lambda: storage.create(tmp_path / "new", -1),
        lambda: storage.create(tmp_path / "new", 2**63),
        lambda: storage.open(tmp_path),
        lambda: storage.open(tmp_path, writable=False),
        lambda: storage.resize(path, -1),
        lambda: storage.write(tmp_path, b""),
        lambda: storage.names(path),
        lambda: storage.sync_directory(path),
        lambda: storage.lock(tmp_path),
        lambda: file.reserve(0, PAGE),
        lambda: file.clear_from(0),
        lambda: file.is_clear_from(0),
    ]
    with nothing_left_open():
        for call in failing:
            with pytest.raises(StorageError):
                call()
    file.close()


def test_a_mapping_ends_with_its_last_view(storage: DiskStorage, tmp_path: Path) -> None:
    with nothing_left_open():
        file = storage.create(tmp_path / "segment-of-this-test", 2 * PAGE)
        views = [file.buffer[:PAGE], file.buffer[PAGE:]]
        of_view = views[1][5:10]
        file.close()
        views[0].release()
        views[1].release()
        assert bytes(of_view) == bytes(5)
        of_view.release()
        del file


def test_a_sync_under_way_keeps_the_mapping_when_the_file_is_closed(
    storage: DiskStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = storage.create(tmp_path / "segment-of-this-test", PAGE)
    really_call = storage_module._call
    synced = []

    def close_meanwhile(function: str, *arguments: object) -> None:
        file.close()
        really_call(function, *arguments)
        synced.append(function)

    monkeypatch.setattr(storage_module, "_call", close_meanwhile)
    file.buffer[0] = 1
    # With nothing mapped at the address any longer, msync would fail.
    file.sync()
    assert synced == ["msync"]


def test_pages_come_in_by_touch(storage: DiskStorage, tmp_path: Path) -> None:
    release = [int(number) for number in platform.release().split(".", 2)[:2]]
    if platform.system() != "Linux" or release < [5, 14]:
        pytest.skip("this kernel cannot bring pages in to be written")
    file = storage.create(tmp_path / "file", 64 * PAGE)
    assert resident_pages(file.buffer) == 0
    file.touch(PAGE + 100, 9 * PAGE)
    # Kernels with large pages bring in more at a time.
    assert resident_pages(file.buffer) >= 8
    file.close()


def resident_pages(buffer: memoryview) -> int:
    """Return how many pages of a mapping are in memory."""
    pin = ctypes.c_char.from_buffer(buffer)
    pages = (len(buffer) + PAGE - 1) // PAGE
    seen = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mincore(
        ctypes.c_void_p(ctypes.addressof(pin)), ctypes.c_size_t(len(buffer)), seen
    )
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(value & 1 for value in seen)


def test_a_small_file_is_cut_after_it_is_written_not_before(
    storage: DiskStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cut first, a process that dies in between leaves an empty file in place of the old content.
    path = tmp_path / "small"
    storage.write(path, b"old content")
    really_cut = os.ftruncate
    seen = []

    def look(fd: int, size: int) -> None:
        seen.append(path.read_bytes())
        really_cut(fd, size)

    monkeypatch.setattr(os, "ftruncate", look)
    storage.write(path, b"new")
    assert seen == [b"new content"]
    assert path.read_bytes() == b"new"
