"""The two small files that say where a recovery begins.

`Checkpoint` is RocketMQ's: three store times, from which a stock broker (and ours, on a store a
stock broker wrote) finds the segment to begin with. It lives in a mapping: a crash of the process
does not lose the last values.

`RecoveryPoints` is ours: an offset below which log, queues and index are all on disk, so that only
what came after it is read again. It has two slots that are written in turn, so that one is always
whole, and beside them a mark of the flushed offset for readers in other processes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from construct import ConstructError, StreamError

from rmq.store.index_file import IndexState
from rmq.store.layout import (
    CHECKPOINT_BYTES,
    CHECKPOINT_TIMES,
    LIVE_MARK_AT,
    LIVE_MARK_MAGIC,
    LIVE_MARK_VALUES,
    RECOVERY_POINT_FILE_BYTES,
    RECOVERY_POINT_SLOT_BYTES,
    LiveMark,
    RecoveryPoint,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset
    from rmq.store.storage import MappedFile, Storage

_SLOTS: Final = 2
_MIN_TIME_MARGIN_MS: Final = 3000


class CheckpointTimes(NamedTuple):
    """Store times of the newest records that are on disk in the log, the queues and the index."""

    physical_ms: int
    queues_ms: int
    index_ms: int

    @property
    def min_ms(self) -> int:
        """The time up to which log and queues are complete, by a margin."""
        return max(min(self.physical_ms, self.queues_ms) - _MIN_TIME_MARGIN_MS, 0)

    @property
    def min_index_ms(self) -> int:
        """The same with the index."""
        return min(self.min_ms, self.index_ms)


class Checkpoint:
    """The file `checkpoint`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._file = _open_or_create(storage, path, CHECKPOINT_BYTES)
        self.take(CheckpointTimes._make(CHECKPOINT_TIMES.unpack_from(self._file.buffer)))

    @property
    def times(self) -> CheckpointTimes:
        return CheckpointTimes(self.physical_ms, self.queues_ms, self.index_ms)

    def take(self, times: CheckpointTimes) -> None:
        """Go on with these times, without writing them."""
        self.physical_ms, self.queues_ms, self.index_ms = times

    def save(self, times: CheckpointTimes) -> None:
        """Write times to the file and sync it. Blocks; may run in a thread."""
        CHECKPOINT_TIMES.pack_into(self._file.buffer, 0, *times)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Point(NamedTuple):
    """A recovery point, see `layout.RecoveryPoint`."""

    physical_offset: PhysicalOffset
    queue_entries: int
    times: CheckpointTimes
    index_name: str
    """The index file written at that point; empty if there was none."""
    index_state: IndexState


class RecoveryPoints:
    """The file `recovery-point`."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._file = _open_or_create(storage, path, RECOVERY_POINT_FILE_BYTES)
        self._points = self._read()
        self._sequence = self._points[0][0] if self._points else 0

    def _read(self) -> list[tuple[int, Point]]:
        points: list[tuple[int, Point]] = []
        for slot in range(_SLOTS):
            start = slot * RECOVERY_POINT_SLOT_BYTES
            data = bytes(self._file.buffer[start : start + RecoveryPoint.sizeof()])
            decoded = decode_point(data)
            if decoded is not None:
                points.append(decoded)
        return sorted(points, reverse=True)

    def matching(self, times: CheckpointTimes) -> Point | None:
        """Return the newest point that was made with these checkpoint times.

        A point is saved before its times go to the checkpoint. After a crash in between, the one
        before it still matches, and still holds. A crash that left bytes of both in the checkpoint
        came after both were saved. The point that is returned is not overwritten by the next one.
        """
        for sequence, point in self._points:
            if point.times == times:
                self._sequence = sequence
                return point
        return self._points[0][1] if self._is_mixed(times) else None

    def _is_mixed(self, times: CheckpointTimes) -> bool:
        """Tell whether each byte of some times is that of a point's times at the same place."""
        known = [CHECKPOINT_TIMES.pack(*point.times) for _, point in self._points]
        if self._sequence == 1:
            known.append(bytes(CHECKPOINT_TIMES.size))
        found = CHECKPOINT_TIMES.pack(*times)
        return len(known) > 1 and all(
            byte in choice for byte, choice in zip(found, zip(*known, strict=True), strict=True)
        )

    def save(self, point: Point) -> None:
        """Write a point into the slot of the older one and sync it. Blocks."""
        sequence = self._sequence + 1
        start = sequence % _SLOTS * RECOVERY_POINT_SLOT_BYTES
        data = encode_point(sequence, point)
        self._file.buffer[start : start + len(data)] = data
        self._file.sync()
        self._points = [(sequence, point), *self._points][:_SLOTS]
        self._sequence = sequence

    @property
    def was_raw(self) -> bool:
        """Whether the log was written as raw bytes when the store was last open."""
        try:
            return bool(LiveMark.parse(self._file.buffer[LIVE_MARK_AT:]).is_raw)
        except ConstructError:
            return False

    def mark_live(self, flushed: PhysicalOffset, *, is_raw: bool) -> None:
        """Tell readers in other processes up to which offset the log is on disk."""
        # With SYNC_FLUSH this happens for every sync: construct would take as long as ten sends.
        buffer, values_at = self._file.buffer, LIVE_MARK_AT + len(LIVE_MARK_MAGIC)
        LIVE_MARK_VALUES.pack_into(buffer, values_at, flushed, is_raw)
        buffer[LIVE_MARK_AT:values_at] = LIVE_MARK_MAGIC

    def sync(self) -> None:
        """Make the mark durable. Blocks."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def encode_point(sequence: int, point: Point) -> bytes:
    """Return the bytes of one slot."""
    fields = {
        "sequence": sequence,
        "physical_offset": point.physical_offset,
        "queue_entries": point.queue_entries,
        **point.times._asdict(),
        "index_name": point.index_name.encode().ljust(20, b"\0"),
        **{f"index_{name}": value for name, value in point.index_state._asdict().items()},
        "crc": 0,
    }
    data = RecoveryPoint.build(fields)
    return RecoveryPoint.build({**fields, "crc": crc32(data[:-4])})


def decode_point(data: bytes) -> tuple[int, Point] | None:
    """Return sequence and point of one slot; None if it was never or not wholly written."""
    try:
        fields = RecoveryPoint.parse(data)
    except (ConstructError, StreamError):
        return None
    if crc32(data[: RecoveryPoint.sizeof() - 4]) != fields.crc:
        return None
    index_name = bytes(fields.index_name).rstrip(b"\0").decode("ascii", "replace")
    return fields.sequence, Point(
        physical_offset=fields.physical_offset,
        queue_entries=fields.queue_entries,
        times=CheckpointTimes(fields.physical_ms, fields.queues_ms, fields.index_ms),
        index_name=index_name,
        index_state=IndexState(
            *(fields[f"index_{name}"] for name in IndexState._fields),
        ),
    )


def _open_or_create(storage: Storage, path: Path, size: int) -> MappedFile:
    if storage.exists(path):
        if storage.size_of(path) == size:
            return storage.open(path)
        # A crash between creating the file and giving it its size leaves it short.
        storage.resize(path, size)
        return storage.open(path)
    storage.make_directory(path.parent)
    file = storage.create(path, size)
    try:
        file.reserve(0, size)
        file.sync()
        storage.sync_directory(path.parent)
    except BaseException:
        file.close()
        with contextlib.suppress(Exception):
            storage.delete(path)
        raise
    return file
