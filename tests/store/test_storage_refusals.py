"""What the real storage says when the system refuses: full and read-only disks, rights, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import DiskFullError, StorageError
from tests.store.storage_child import output_of, refusal_of_child
from tests.store.storage_contract import Refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_reserve_on_a_full_disk_says_so(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        """
        mount_tmpfs(b"size=64k")
        file = storage.create(root / "file", 1 << 20)
        file.reserve(0, 4096)
        file.buffer[:3] = b"abc"
        file.sync()
        file.reserve(0, 1 << 20)
        """,
        tmp_path,
    )
    assert refusal == Refusal(
        DiskFullError,
        "reserve room for",
        str(tmp_path / "file"),
        "No space left on device",
        "free room on the device, or lower fileReservedTime or diskMaxUsedSpaceRatio",
    )


def test_a_small_file_that_does_not_fit_says_so(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        'mount_tmpfs(b"size=64k"); storage.write(root / "small", bytes(1 << 20))', tmp_path
    )
    assert (refusal.kind, refusal.operation) == (DiskFullError, "write")


def test_a_full_disk_is_used_wholly(tmp_path: Path) -> None:
    printed = output_of(
        """
        mount_tmpfs(b"size=64k")
        ratios = [storage.used_ratio(root)]
        storage.write(root / "half", bytes(32 << 10))
        ratios.append(storage.used_ratio(root))
        storage.write(root / "rest", bytes(32 << 10))
        print(*ratios, storage.used_ratio(root))
        """,
        tmp_path,
    )
    assert printed == "0.0 0.5 1.0\n"


def test_a_read_only_disk_says_so(tmp_path: Path) -> None:
    refusal = refusal_of_child('mount_tmpfs(b"", 1); storage.create(root / "x", 1)', tmp_path)
    assert refusal == Refusal(
        StorageError,
        "create",
        str(tmp_path / "x"),
        "Read-only file system",
        "the file system is mounted read-only: mount it for writing",
    )


@pytest.mark.parametrize(
    ("call", "operation", "name"),
    [
        pytest.param("storage.create(root / 'f', 1)", "create", "f", id="create"),
        pytest.param("storage.write(root / 'f', b'')", "write", "f", id="write"),
        pytest.param("storage.names(root)", "list", "", id="list"),
        pytest.param("storage.exists(root / 'f')", "read the attributes of", "f", id="look"),
        pytest.param("storage.lock(root / 'lock')", "lock", "lock", id="lock"),
        pytest.param(
            "storage.make_directory(root / 'd')",
            "read the attributes of",
            "d",
            id="make a directory",
        ),
    ],
)
def test_a_missing_permission_says_so(tmp_path: Path, call: str, operation: str, name: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    # The superuser may do anything: the child becomes someone else.
    refusal = refusal_of_child(f"os.geteuid() or os.seteuid(65534); {call}", closed)
    assert refusal == Refusal(
        StorageError,
        operation,
        str(closed / name),
        "Permission denied",
        "let the user that runs rmq own the store directory",
    )


def test_a_limit_of_file_sizes_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        storage.create(root / "file", 8192)
        """,
        tmp_path,
    )
    assert (refusal.operation, refusal.reason) == ("create", "File too large")
    assert refusal.hint is not None
    assert "ulimit -f" in refusal.hint
    assert list(tmp_path.iterdir()) == []


def test_a_mapping_that_finds_no_memory_leaves_nothing_behind(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        """
        resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
        storage.create(root / "file", 1 << 40)
        """,
        tmp_path,
    )
    assert (refusal.operation, refusal.reason) == ("create", "Cannot allocate memory")
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_locked_memory_says_so(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        """
        # Without the right to lock without limit, which the superuser has.
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8192, 8192))
        file = storage.create(root / "file", 1 << 20)
        os.geteuid() or os.seteuid(65534)
        file.buffer[:3] = b"abc"
        file.lock_memory()
        """,
        tmp_path,
    )
    assert refusal == Refusal(
        StorageError,
        "lock in memory",
        str(tmp_path / "file"),
        "Cannot allocate memory",
        "raise the limit of locked memory (ulimit -l, LimitMEMLOCK) or turn off"
        " warmMapedFileEnable",
    )


def test_running_out_of_descriptors_fails_no_sync(tmp_path: Path) -> None:
    refusal = refusal_of_child(
        """
        file = storage.create(root / "file", 4096)
        file.buffer[:3] = b"abc"
        file.sync()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        file.buffer[:3] = b"def"
        file.sync()
        storage.create(root / "another", 4096)
        """,
        tmp_path,
    )
    assert (refusal.operation, refusal.reason) == ("create", "Too many open files")
    assert refusal.hint == "raise the limit of open files (ulimit -n, LimitNOFILE)"
    assert (tmp_path / "file").read_bytes()[:4] == b"def\0"
