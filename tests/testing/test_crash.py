"""What a power cut and a kill leave of a storage in memory.

With sectors of two bytes and files of a few, all ends can be gone through: these tests say exactly
what may happen, not only that nothing else did.
"""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import StorageError
from rmq.testing.storage import MemoryStorage
from tests.testing.crashes import every_content, every_crash

ROOT = Path("/store")
FILE = ROOT / "file"


def small_storage() -> MemoryStorage:
    storage = MemoryStorage(sector_bytes=2)
    storage.make_directory(ROOT)
    return storage


def with_synced_file(content: bytes) -> MemoryStorage:
    storage = small_storage()
    storage.write(FILE, content)
    return storage


# --- contents -------------------------------------------------------------------------------


def test_each_differing_sector_is_old_or_new_or_torn_for_itself() -> None:
    storage = with_synced_file(b"aabbcc")
    storage.open(FILE).buffer[:] = b"AABBcc"
    one = {b"aa", b"AA", b"Aa", b"aA"}
    two = {b"bb", b"BB", b"Bb", b"bB"}
    assert every_content(storage, FILE) == {x + y + b"cc" for x in one for y in two}


def test_what_was_synced_survives_every_crash() -> None:
    storage = with_synced_file(bytes(6))
    file = storage.open(FILE)
    file.buffer[:] = b"AABBCC"
    file.sync()
    assert every_content(storage, FILE) == {b"AABBCC"}
    file.buffer[4:] = b"XX"
    assert {content[:4] for content in every_content(storage, FILE) if content} == {b"AABB"}


def test_a_last_sector_that_is_short_tears_like_the_others() -> None:
    storage = with_synced_file(b"aab")
    storage.open(FILE).buffer[2] = ord("B")
    assert every_content(storage, FILE) == {b"aab", b"aaB"}


@settings(max_examples=60)
@given(st.data())
def test_after_a_crash_each_byte_is_the_synced_or_the_written_one(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5000))
    storage = MemoryStorage()
    storage.make_directory(ROOT)
    file = storage.create(FILE, size)
    storage.sync_directory(ROOT)
    writes = st.lists(st.tuples(st.integers(0, size - 1), st.integers(1, 255)), max_size=8)

    def write() -> bytes:
        for position, value in data.draw(writes):
            stop = min(position + 700, size)
            file.buffer[position:stop] = bytes([value]) * (stop - position)
        return bytes(file.buffer)

    synced = write()
    file.sync()
    written = write()
    left = storage.crash(lambda limit: data.draw(st.integers(0, limit - 1))).read(FILE)
    assert len(left) == size
    assert all(left[i] in (synced[i], written[i]) for i in range(size))


def dirty_storage() -> MemoryStorage:
    """Return a storage with much that a power cut can take."""
    storage = MemoryStorage()
    storage.make_directory(ROOT)
    storage.write(ROOT / "never opened", b"safe")
    for number in range(5):
        file = storage.create(ROOT / str(number), 20_000)
        file.buffer[:] = bytes([number + 1]) * 20_000
    storage.sync_directory(ROOT)
    storage.delete(ROOT / "0")
    storage.create(ROOT / "new", 3000).buffer[:] = b"n" * 3000
    return storage


def everything_in(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: storage.read(ROOT / name) for name in storage.names(ROOT)}


def test_the_same_seed_gives_the_same_crash() -> None:
    first = [everything_in(dirty_storage().crash(random.Random(seed))) for seed in range(20)]
    again = [everything_in(dirty_storage().crash(random.Random(seed))) for seed in range(20)]
    assert first == again
    assert len({str(end) for end in first}) > 10


def test_seeds_find_losing_all_losing_nothing_and_torn_sectors() -> None:
    storage = MemoryStorage()
    storage.make_directory(ROOT)
    storage.write(FILE, bytes(4096))
    storage.open(FILE).buffer[:] = b"x" * 4096
    ends = [storage.crash(random.Random(seed)).read(FILE) for seed in range(100)]
    sectors = [end[start : start + 512] for end in ends for start in range(0, 4096, 512)]
    assert bytes(4096) in ends
    assert b"x" * 4096 in ends
    assert any(set(sector) == {0, ord("x")} for sector in sectors)


def test_a_crash_changes_neither_the_storage_nor_an_earlier_crash() -> None:
    storage = dirty_storage()
    before = everything_in(storage)
    crashed = storage.crash(random.Random(1))
    after = everything_in(crashed)
    for number in range(1, 5):
        file = crashed.open(ROOT / str(number))
        file.buffer[:] = b"!" * 20_000
        file.sync()
    crashed.delete(ROOT / "1")
    assert everything_in(storage) == before
    assert everything_in(storage.crash(random.Random(1))) == after


@pytest.mark.parametrize("how", ["crash", "kill"])
def test_old_files_and_views_do_not_reach_the_new_storage(how: str) -> None:
    storage = with_synced_file(b"aabb")
    file = storage.open(FILE)
    view = file.buffer[:]
    after = storage.kill() if how == "kill" else storage.crash(lambda limit: 0)
    view[:] = b"XXXX"
    file.sync()
    file.clear_from(2)
    storage.delete(FILE)
    assert after.read(FILE) == b"aabb"
    assert every_content(after, FILE) == {b"aabb"}


# --- names ----------------------------------------------------------------------------------


def test_a_new_file_survives_only_with_its_directory_synced() -> None:
    storage = small_storage()
    file = storage.create(FILE, 2)
    file.buffer[:] = b"AA"
    # Gone, or without its size, or with any of its bytes.
    assert every_content(storage, FILE) == {None, b"", b"\0\0", b"A\0", b"\0A", b"AA"}
    file.sync()
    assert every_content(storage, FILE) == {None, b"AA"}
    storage.sync_directory(ROOT)
    assert every_content(storage, FILE) == {b"AA"}


def test_a_directory_sync_keeps_the_file_and_not_its_bytes() -> None:
    storage = small_storage()
    storage.create(FILE, 2).buffer[:] = b"AA"
    storage.sync_directory(ROOT)
    assert every_content(storage, FILE) == {b"\0\0", b"A\0", b"\0A", b"AA"}


def test_a_deleted_file_may_be_back_until_its_directory_is_synced() -> None:
    storage = with_synced_file(b"aa")
    storage.delete(FILE)
    assert every_content(storage, FILE) == {None, b"aa"}
    storage.sync_directory(ROOT)
    assert every_content(storage, FILE) == {None}


def test_a_file_made_anew_may_be_the_old_one_again() -> None:
    storage = with_synced_file(b"aa")
    storage.delete(FILE)
    file = storage.create(FILE, 3)
    file.buffer[:] = b"bbb"
    file.sync()
    assert every_content(storage, FILE) == {b"aa", None, b"bbb"}
    storage.sync_directory(ROOT)
    assert every_content(storage, FILE) == {b"bbb"}


def test_names_are_lost_each_for_itself() -> None:
    storage = small_storage()
    for name in ("a", "b"):
        storage.create(ROOT / name, 0)
    ends = {tuple(crashed.names(ROOT)) for crashed in every_crash(storage)}
    assert ends == {(), ("a",), ("b",), ("a", "b")}


def test_a_directory_that_is_gone_for_good_takes_its_files_along() -> None:
    storage = small_storage()
    storage.make_directory(ROOT / "queue")
    storage.write(ROOT / "queue" / "file", b"aa")
    storage.delete(ROOT / "queue" / "file")
    storage.delete(ROOT / "queue")
    assert every_content(storage, ROOT / "queue" / "file") == {None, b"aa"}
    storage.sync_directory(ROOT)
    assert [crashed.names(ROOT) for crashed in every_crash(storage)] == [[]]
    storage.make_directory(ROOT / "queue")
    assert every_content(storage, ROOT / "queue" / "file") == {None}


# --- what is durable by itself --------------------------------------------------------------


def test_directories_are_durable_once_made() -> None:
    storage = MemoryStorage()
    storage.make_directory(ROOT / "a" / "b")
    assert all(crashed.is_directory(ROOT / "a" / "b") for crashed in every_crash(storage))


def test_a_small_file_is_durable_once_written_and_so_are_its_neighbours_names() -> None:
    storage = small_storage()
    storage.create(ROOT / "neighbour", 0)
    storage.write(FILE, b"aa")
    storage.write(FILE, b"bbbb")
    ends = {(crashed.read(FILE), *crashed.names(ROOT)) for crashed in every_crash(storage)}
    assert ends == {(b"bbbb", "file", "neighbour")}


@pytest.mark.parametrize(("size", "left"), [(2, b"AA"), (6, b"AAbb\0\0")])
def test_a_new_size_is_durable_and_so_is_what_was_written_before(size: int, left: bytes) -> None:
    storage = with_synced_file(b"aabb")
    file = storage.open(FILE)
    file.buffer[:2] = b"AA"
    file.close()
    storage.resize(FILE, size)
    assert every_content(storage, FILE) == {left}


def test_clearing_is_durable_and_so_is_what_was_written_before() -> None:
    storage = with_synced_file(b"aabbcc")
    file = storage.open(FILE)
    file.buffer[:2] = b"AA"
    file.clear_from(3)
    assert every_content(storage, FILE) == {b"AAb\0\0\0"}


def test_the_lock_file_may_lose_its_name() -> None:
    storage = small_storage()
    assert storage.lock(ROOT / "lock") is not None
    assert every_content(storage, ROOT / "lock") == {None, b"lock"}


# --- the kernel writes when it likes --------------------------------------------------------


def test_a_content_in_between_survives_if_the_kernel_wrote_it_then() -> None:
    storage = with_synced_file(b"aabb")
    file = storage.open(FILE)
    file.buffer[:] = b"AABB"
    storage.write_back(lambda limit: 1)
    file.buffer[:] = b"XXYY"
    first = {content[:2] for content in every_content(storage, FILE) if content}
    second = {content[2:] for content in every_content(storage, FILE) if content}
    assert first == {b"AA", b"XX", b"XA", b"AX"}
    assert second == {b"bb", b"YY", b"Yb", b"bY"}


def test_the_kernel_may_make_names_durable_as_well() -> None:
    storage = with_synced_file(b"aa")
    storage.delete(FILE)
    storage.create(ROOT / "new", 0)
    storage.write_back(lambda limit: limit - 1)
    assert [crashed.names(ROOT) for crashed in every_crash(storage)] == [["new"]]


@pytest.mark.parametrize("seed", range(10))
def test_writing_back_changes_nothing_that_programs_see(seed: int) -> None:
    storage = dirty_storage()
    before = everything_in(storage)
    storage.write_back(random.Random(seed))
    assert everything_in(storage) == before


# --- a sync that fails ----------------------------------------------------------------------


def test_what_a_failed_sync_lost_is_not_brought_back_by_the_next() -> None:
    storage = with_synced_file(b"aabbcc")
    file = storage.open(FILE)
    file.buffer[:2] = b"AA"
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError):
        file.sync()
    file.buffer[4:] = b"CC"
    file.sync()
    assert bytes(file.buffer) == b"AAbbCC"
    lost = {b"aa", b"AA", b"Aa", b"aA"}
    assert every_content(storage, FILE) == {start + b"bbCC" for start in lost}
    assert every_content(storage.kill(), FILE) == {start + b"bbCC" for start in lost}
    file.sync()
    storage.write_back(lambda limit: limit - 1)
    assert every_content(storage, FILE) == {start + b"bbCC" for start in lost}


def test_what_is_written_again_after_a_failed_sync_becomes_durable() -> None:
    storage = with_synced_file(b"aabb")
    file = storage.open(FILE)
    file.buffer[:] = b"AABB"
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError):
        file.sync()
    file.buffer[:2] = b"XX"
    file.sync()
    assert every_content(storage, FILE) == {b"XX" + end for end in (b"bb", b"BB", b"Bb", b"bB")}
    file.buffer[2:] = b"YY"
    file.sync()
    assert every_content(storage, FILE) == {b"XXYY"}


def test_clearing_and_writing_whole_files_are_not_fooled_by_a_failed_sync() -> None:
    storage = with_synced_file(b"aabb")
    file = storage.open(FILE)
    file.buffer[2:] = bytes(2)
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError):
        file.sync()
    assert b"aabb" in every_content(storage, FILE)
    file.clear_from(2)
    assert every_content(storage, FILE) == {b"aa\0\0"}
    file.buffer[:] = b"AABB"
    storage.faults.fail("sync", errno.EIO)
    with pytest.raises(StorageError):
        file.sync()
    storage.write(FILE, b"AABB")
    assert every_content(storage, FILE) == {b"AABB"}


# --- a kill ---------------------------------------------------------------------------------


def test_a_kill_loses_nothing_and_a_power_cut_after_it_may() -> None:
    storage = with_synced_file(b"aa")
    storage.open(FILE).buffer[:] = b"AA"
    storage.create(ROOT / "new", 1)
    killed = storage.kill()
    assert killed.names(ROOT) == ["file", "new"]
    assert killed.read(FILE) == b"AA"
    assert every_content(killed, FILE) == {b"aa", b"AA", b"Aa", b"aA"}
    assert every_content(killed, ROOT / "new") == {None, b"", b"\0"}
    killed.open(FILE).sync()
    killed.sync_directory(ROOT)
    assert every_content(killed, FILE) == {b"AA"}
    assert every_content(killed, ROOT / "new") == {b"\0"}


@pytest.mark.parametrize("how", ["crash", "kill"])
def test_locks_are_free_afterwards_and_faults_forgotten(how: str) -> None:
    storage = with_synced_file(b"aa")
    storage.write(ROOT / "lock", b"")
    old = storage.lock(ROOT / "lock")
    assert old is not None
    storage.faults.fail("lock", times=None)
    after = storage.kill() if how == "kill" else storage.crash(random.Random(1))
    new = after.lock(ROOT / "lock")
    assert new is not None
    old.release()
    assert after.lock(ROOT / "lock") is None
    assert after.calls["lock"] == 2
