"""A whole store whose disk fails: full, refusing, losing what it was to sync, or not its own.

Whatever fails, what was taken is there at the next start, what was flushed survives a power cut
too, and the error says where and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import (
    DiskFullError,
    StorageError,
    StoreUnavailableError,
)
from rmq.store.append import AppendStatus
from rmq.store.core import Refusal, StoreCore
from rmq.store.storage import DiskStorage
from rmq.testing.disk_model import BLOCK_BYTES
from rmq.testing.faults import PHRASES
from rmq.testing.storage import MemoryStorage
from tests.store.storage_child import output_of, refusal_of_child
from tests.store.store_kit import (
    ROOT,
    content,
    log_path,
    message,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    queue_path,
    read_bodies,
    save_point,
    small_config,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.testing.faults import Operation

SMALL_DISK_CONFIG: Final = small_config(segment_bytes=4096, index_entries=300)


# --- one fault anywhere ---------------------------------------------------------------------


class Session:
    """A life of a store, and what it was told."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.taken: list[bytes] = []
        self.flushed: list[bytes] = []

    def run(self) -> None:
        """Open, append, flush, save a point, roll, look for what may expire, and close."""
        core = open_core(self.storage)
        self.put(core, range(40))
        core.flush()
        self.flushed = list(self.taken)
        save_point(core)
        core.log.create_spare()
        self.put(core, range(40, 110))
        core.plan_expiry(4).run()
        core.follow_log()
        core.flush()
        self.flushed = list(self.taken)
        core.close()

    def put(self, core: StoreCore, numbers: range) -> None:
        for number in numbers:
            (result,) = core.append([message(number, unique_key=f"key{number}")])
            if result.status is AppendStatus.PUT_OK:
                self.taken.append(b"body %d" % number)
            else:
                assert result.reason
                if core.refusal is Refusal.DISPATCH:
                    core.dispatcher.catch_up()


def calls_of_a_life() -> list[tuple[Operation, int]]:
    """Return every call that can fail in the life of a store: an operation and its number."""
    storage = MemoryStorage()
    Session(storage).run()
    counts = Counter({name: count for name, count in storage.calls.items() if name in PHRASES})
    return [(name, call) for name in sorted(counts) for call in range(1, counts[name] + 1)]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_no_single_fault_loses_what_was_taken(code: int) -> None:
    for operation, call in calls_of_a_life():
        storage = MemoryStorage()
        session = Session(storage)
        fault = storage.faults.fail(operation, code, call=call)
        with contextlib.suppress(StorageError):
            session.run()
        where = f"call {call} of {operation}"
        assert fault.fired == 1, where
        assert storage.writes_without_room() == [], where
        killed = open_core(storage.kill())
        assert read_bodies(killed) == session.taken, where
        for body in session.taken:
            key = body.decode().replace("body ", "key")
            assert query_bodies(killed, key) == [body], where
        cut = open_core(storage.crash(lambda _: 0))
        found = read_bodies(cut)
        assert found[: len(session.flushed)] == session.flushed, where
        assert found == session.taken[: len(found)], where


def test_a_start_that_fails_can_be_tried_again() -> None:
    """Whatever fails while a store is opened: the error is ours, and the next start works."""
    sound = MemoryStorage()
    Session(sound).run()
    sound.write(ROOT / "abort", b"")
    sound.delete(queue_path(200))
    counting = sound.kill()
    open_core(counting)
    for operation in PHRASES:
        for call in range(1, counting.calls[operation] + 1):
            storage = sound.kill()
            storage.faults.fail(operation, errno.EACCES, call=call)
            with contextlib.suppress(StorageError):
                open_core(storage).release()
            core = open_core(storage)
            assert read_bodies(core) == numbered_bodies(range(110)), (operation, call)
            core.close()


# --- a full disk ----------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", range(40))
def test_a_disk_may_fill_up_at_any_block(blocks: int) -> None:
    storage = MemoryStorage(capacity_bytes=blocks * BLOCK_BYTES)
    taken: list[bytes] = []
    with contextlib.suppress(DiskFullError):
        core = open_core(storage, SMALL_DISK_CONFIG)
        for number in range(150):
            (result,) = core.append([message(number, unique_key=f"key{number}")])
            if result.status is AppendStatus.PUT_OK:
                taken.append(b"body %d" % number)
            else:
                assert "No space left on device" in result.reason
                assert str(ROOT) in result.reason
        found = read_bodies(core)
        assert found == taken[: len(found)]
        core.close()
    assert storage.writes_without_room() == []
    storage.capacity_bytes = None
    again = open_core(storage.kill(), SMALL_DISK_CONFIG)
    assert read_bodies(again) == taken
    put_numbered(again, [999])
    assert read_bodies(again)[-1] == b"body 999"


def test_room_that_comes_back_lets_the_store_go_on_by_itself() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    storage.capacity_bytes = storage.used_bytes
    number = 5
    while core.append([message(number)])[0].status is AppendStatus.PUT_OK:
        number += 1
    if core.refusal is Refusal.DISPATCH:
        with pytest.raises(DiskFullError):
            core.dispatcher.catch_up()
    storage.capacity_bytes = None
    core.dispatcher.catch_up()
    put(core, [message(n) for n in range(number + 1, number + 10)])
    assert core.refusal is None
    assert len(read_bodies(core)) >= number


@pytest.mark.parametrize("ratio", [0.91, 1.0])
def test_a_disk_above_its_limit_is_told_to_the_producer_until_there_is_room(ratio: float) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(3))
    storage.reported_used_ratio = ratio
    core.plan_expiry(12)
    assert core.refusal is Refusal.DISK_FULL
    (result,) = core.append([message(b"refused")])
    assert (result.status, result.reason) == (
        AppendStatus.SERVICE_NOT_AVAILABLE,
        "the disk is full",
    )
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        core.append_raw(core.log.written, b"refused")
    assert read_bodies(core) == numbered_bodies(range(3))
    storage.reported_used_ratio = 0.5
    core.plan_expiry(12)
    put_numbered(core, [3])


FULL_DISK: Final = """
from rmq.errors import DiskFullError
from rmq.store.core import StoreCore
from tests.store.store_kit import Clock, message, read_bodies, small_config

mount_tmpfs(b"size=256k")
config = small_config(root, segment_bytes=65536, index_slots=500, index_entries=2000)
core = StoreCore(config, now_ms=Clock())
taken, statuses = [], set()
for number in range(5000):
    (result,) = core.append([message(number, unique_key=f"key{number}")])
    if result.status.value == "PUT_OK":
        taken.append(b"body %d" % number)
    statuses.add(result.status.value)
core.release()
try:
    StoreCore(config, now_ms=Clock()).release()
except DiskFullError as error:
    print(error.hint)
remount = 0x20
assert ctypes.CDLL(None).mount(b"none", os.fsencode(root), b"tmpfs", remount, b"size=1m") == 0
core = StoreCore(config, now_ms=Clock())
print(sorted(statuses), len(taken) > 300, read_bodies(core) == taken)
"""


def test_a_full_disk_does_not_kill_the_process(tmp_path: Path) -> None:
    """On a real one: a write to a page without room would be the end (SIGBUS)."""
    *hints, last = output_of(FULL_DISK, tmp_path).splitlines()
    assert all("free room on the device" in hint for hint in hints)
    assert last == "['PUT_OK', 'SERVICE_NOT_AVAILABLE'] True True"


# --- syncs that fail ------------------------------------------------------------------------


def is_log(path: Path) -> bool:
    return path.parent.name == "commitlog"


def test_a_failed_sync_stops_the_store_for_good_and_reads_go_on() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    core.flush()
    put_numbered(core, range(5, 8))
    storage.faults.fail("sync", errno.EIO, on=is_log)
    with pytest.raises(StorageError) as caught:
        core.flush()
    assert (caught.value.operation, caught.value.path) == ("sync", str(log_path()))
    assert "the device reports errors" in (caught.value.hint or "")
    assert str(core.failure) == str(caught.value)
    assert core.refusal is Refusal.FAILED
    assert core.log.flushed < core.log.written
    # The next sync would succeed, but what was lost is not known: it is not even tried.
    for results in (core.append([message()]), core.append_batch([message(), message()])):
        for result in results:
            assert result.status is AppendStatus.SERVICE_NOT_AVAILABLE
            assert "must be restarted" in result.reason
            assert f"cannot sync {log_path()}" in result.reason
    with pytest.raises(StoreUnavailableError):
        core.append_raw(core.log.written, b"x")
    assert read_bodies(core) == numbered_bodies(range(8))
    statistics = core.statistics()
    assert statistics.refusal is Refusal.FAILED
    assert statistics.flush_lag_bytes == core.log.written - core.log.flushed > 0
    core.close()
    # It was not a clean stop, and the next start finds what is there.
    assert storage.exists(ROOT / "abort")
    again = open_core(storage.crash(lambda _: 0))
    assert not again.recovery.was_clean
    assert read_bodies(again) == numbered_bodies(range(5))


@pytest.mark.parametrize(
    "folder", ["commitlog", "consumequeue", "index", "recovery-point", "checkpoint"]
)
def test_a_recovery_point_is_saved_only_if_everything_is_on_disk(folder: str) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(30))
    save_point(core)
    old = core.statistics().recovery_point
    put_numbered(core, range(30, 60))
    plan = core.plan_point()
    assert plan is not None
    fault = storage.faults.fail("sync", errno.EIO, on=lambda path: folder in path.parts)
    with pytest.raises(StorageError):
        plan.run()
    assert fault.fired == 1
    assert core.statistics().recovery_point == old
    for choice in range(3):
        crashed = storage.crash(lambda n, choice=choice: choice % n)  # type: ignore[misc]
        again = open_core(crashed)
        found = read_bodies(again)
        assert found == numbered_bodies(range(len(found)))
        for number in range(30):
            assert query_bodies(again, f"key{number}") == [b"body %d" % number]


def test_a_stop_that_cannot_sync_is_not_a_clean_one() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    with storage.faults.failing("sync", errno.EIO), pytest.raises(StorageError):
        core.close()
    assert storage.exists(ROOT / "abort")
    # Closed it is all the same: the lock is free.
    core.close()
    again = open_core(storage)
    assert read_bodies(again) == numbered_bodies(range(5))


# --- a disk that does not let us ------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        pytest.param(errno.EROFS, "mounted read-only", id="read-only"),
        pytest.param(errno.EACCES, "own the store directory", id="permission"),
        pytest.param(errno.EMFILE, "limit of open files", id="too many open files"),
        pytest.param(errno.ENOMEM, "vm.max_map_count", id="too many mappings"),
    ],
)
@pytest.mark.parametrize("operation", ["lock", "open", "write", "create"])
def test_a_store_that_may_not_be_written_is_not_opened(
    operation: Operation, code: int, hint: str
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(5))
    core.close()
    if operation == "create":
        storage.delete(ROOT / "checkpoint")
    with storage.faults.failing(operation, code), pytest.raises(StorageError) as caught:
        open_core(storage)
    assert caught.value.path.startswith(str(ROOT))
    assert hint in (caught.value.hint or "")
    assert read_bodies(open_core(storage)) == numbered_bodies(range(5))


READ_ONLY_DISK: Final = """
from rmq.store.core import StoreCore
from tests.store.store_kit import Clock, put_numbered, small_config

mount_tmpfs(b"size=1m")
core = StoreCore(small_config(root), now_ms=Clock())
put_numbered(core, range(5))
core.close()
remount_read_only = 0x21
mount = ctypes.CDLL(None).mount
assert mount(b"none", os.fsencode(root), b"tmpfs", remount_read_only, b"") == 0
StoreCore(small_config(root), now_ms=Clock())
"""


def test_a_file_system_mounted_read_only_is_refused(tmp_path: Path) -> None:
    refusal = refusal_of_child(READ_ONLY_DISK, tmp_path)
    assert (refusal.operation, refusal.path) == ("lock", str(tmp_path / "lock"))
    assert refusal.hint == "the file system is mounted read-only: mount it for writing"


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("no other user to be")
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_of_someone_else_is_refused_and_left_as_it_was() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # pytest's own folders cannot be entered by another user.
        Path(folder).chmod(0o755)
        root = Path(folder) / "store"
        core = open_core(DiskStorage(), small_config(root))
        put_numbered(core, range(5))
        core.close()
        before = content(DiskStorage(), root)
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with as_nobody(), pytest.raises(StorageError) as caught:
            open_core(DiskStorage(), small_config(root))
        assert caught.value.path == str(root / "lock")
        assert caught.value.hint == "let the user that runs rmq own the store directory"
        assert content(DiskStorage(), root) == before
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        core = open_core(DiskStorage(), small_config(root))
        assert read_bodies(core) == numbered_bodies(range(5))
        core.close()


def test_a_place_where_no_store_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        open_core(DiskStorage(), small_config(tmp_path / "file" / "store"))
    assert "a file stands where a directory belongs" in (caught.value.hint or "")
