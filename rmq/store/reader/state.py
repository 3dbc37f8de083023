"""The small files in the root of a store directory, for reading only.

They tell which process has the store open, how it was left, and up to which offset it is on disk.
The lock is queried, not taken.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from construct import ConstructError

from rmq.store.checkpoint import CheckpointTimes, Point, decode_point
from rmq.store.layout import (
    CHECKPOINT_TIMES,
    LIVE_MARK_AT,
    RECOVERY_POINT_SLOT_BYTES,
    LiveMark,
)
from rmq.store.reader.files import translated
from rmq.store.storage import held_locks_guard, holds_lock

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset

# struct flock: Linux has type, whence, start, length, pid; macOS and the BSDs begin with start.
_IS_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = struct.Struct("@hhqqi4x" if _IS_LINUX else "@qqihh")


class LockHolder(NamedTuple):
    """The process that has a store open."""

    pid: int | None
    """None if it cannot be seen from here: on another machine or in another container."""


class StoreState(NamedTuple):
    """What the files in the root of a store say."""

    lock_holder: LockHolder | None
    is_abort_present: bool
    """The store is open, or was not closed cleanly."""
    checkpoint: CheckpointTimes | None
    recovery_points: tuple[Point, ...]
    """Those that were wholly written, the newest first."""
    live_mark: PhysicalOffset | None
    """Up to which offset the log is on disk, as one of our brokers wrote last."""

    @property
    def is_live(self) -> bool:
        return self.lock_holder is not None

    @property
    def recovery_point(self) -> Point | None:
        """The newest recovery point that counts.

        Others were made for another checkpoint: a stock broker wrote to the store since, or the
        broker was killed between making the point and writing the checkpoint.
        """
        return next((each for each in self.recovery_points if each.times == self.checkpoint), None)

    @property
    def live_flushed(self) -> PhysicalOffset | None:
        """Up to which offset the log is on disk, if one of our brokers has the store open."""
        return self.live_mark if self.is_live and self.recovery_point is not None else None


def read_state(root: Path) -> StoreState:
    """Read the state of the store in `root`."""
    # The lock is queried first: a store that is opened meanwhile then counts as closed, and its
    # end is found in the log itself.
    holder = lock_holder(root / "lock")
    points = _read(root / "recovery-point")
    return StoreState(
        lock_holder=holder,
        is_abort_present=(root / "abort").exists(),
        checkpoint=_checkpoint(_read(root / "checkpoint")),
        recovery_points=_points(points),
        live_mark=_live_mark(points),
    )


def lock_holder(path: Path) -> LockHolder | None:
    """Return the process that holds the lock of a store, None if there is none."""
    # A lock of this process the system would not show, and worse: closing any descriptor of the
    # file ends it. So the file is not opened while a store in this process has it, or takes it.
    with held_locks_guard:
        return LockHolder(os.getpid()) if holds_lock(path) else _other_holder(path)


def _other_holder(path: Path) -> LockHolder | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise translated("query the lock", path, exc) from exc
    try:
        # Asks what would keep us from locking the byte that a stock broker locks.
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _pack_lock(fcntl.F_WRLCK))
    except OSError as exc:
        raise translated("query the lock", path, exc) from exc
    finally:
        os.close(fd)
    kind, pid = _unpack_lock(answer)
    if kind == fcntl.F_UNLCK:
        return None
    return LockHolder(pid if pid > 0 else None)


def _pack_lock(kind: int) -> bytes:
    if _IS_LINUX:
        return _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)
    return _FLOCK.pack(0, 1, 0, kind, os.SEEK_SET)


def _unpack_lock(answer: bytes) -> tuple[int, int]:
    fields = _FLOCK.unpack(answer)
    return (fields[0], fields[4]) if _IS_LINUX else (fields[3], fields[2])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise translated("read", path, exc) from exc


def _checkpoint(data: bytes) -> CheckpointTimes | None:
    if len(data) < CHECKPOINT_TIMES.size:
        return None
    return CheckpointTimes._make(CHECKPOINT_TIMES.unpack_from(data))


def _points(data: bytes) -> tuple[Point, ...]:
    slots = (data[:RECOVERY_POINT_SLOT_BYTES], data[RECOVERY_POINT_SLOT_BYTES:LIVE_MARK_AT])
    points = [point for point in map(decode_point, slots) if point is not None]
    return tuple(point for _, point in sorted(points, reverse=True))


def _live_mark(data: bytes) -> PhysicalOffset | None:
    try:
        flushed: PhysicalOffset = LiveMark.parse(data[LIVE_MARK_AT:]).flushed
    except ConstructError:
        return None
    return flushed
