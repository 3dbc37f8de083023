"""The lock of a store between processes, a stock broker's included."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmq.store.storage import DiskStorage
from tests.store.storage_child import PROJECT, command, output_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What Java's FileChannel.tryLock(0, 1, false) does, as a stock broker calls it.
TRY_LOCK = """
fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("locked", flush=True)
except OSError:
    print("kept out")
"""


@contextmanager
def other_process_with_the_lock(root: Path) -> Iterator[None]:
    with subprocess.Popen(
        command(f"{TRY_LOCK}\ninput()", root),
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        yield
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(60) == 0


def test_a_stock_broker_is_kept_out_while_we_hold_the_lock(tmp_path: Path) -> None:
    lock = DiskStorage().lock(tmp_path / "lock")
    assert lock is not None
    assert output_of(TRY_LOCK, tmp_path) == "kept out\n"
    lock.release()
    assert output_of(TRY_LOCK, tmp_path) == "locked\n"


def test_a_refused_second_lock_does_not_end_the_first(tmp_path: Path) -> None:
    lock = DiskStorage().lock(tmp_path / "lock")
    assert lock is not None
    # POSIX drops all locks of a process on a file when it closes any descriptor of it.
    assert DiskStorage().lock(tmp_path / "lock") is None
    assert output_of(TRY_LOCK, tmp_path) == "kept out\n"
    lock.release()


def test_we_are_kept_out_while_a_stock_broker_holds_the_lock(tmp_path: Path) -> None:
    with other_process_with_the_lock(tmp_path):
        assert DiskStorage().lock(tmp_path / "lock") is None
        assert DiskStorage().read(tmp_path / "lock") == b""
    lock = DiskStorage().lock(tmp_path / "lock")
    assert lock is not None
    lock.release()


def test_threads_that_race_for_the_lock_have_one_winner(tmp_path: Path) -> None:
    start = threading.Barrier(4)
    locks = []

    def race() -> None:
        start.wait(10)
        locks.append(DiskStorage().lock(tmp_path / "lock"))

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(10)
    won = [lock for lock in locks if lock is not None]
    assert (len(locks), len(won)) == (4, 1)
    assert output_of(TRY_LOCK, tmp_path) == "kept out\n"
    won[0].release()
