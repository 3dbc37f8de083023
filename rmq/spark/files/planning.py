"""Which task reads which part of a CommitLog. Pure: where records begin is asked for.

A part lies within one segment. Segments begin with a record; where one is split, a sound record is
searched behind the place where the split would be best. That it is one is proved by the tasks: a
task that begins at a true boundary and walks from record to record must end exactly where the next
one begins, or it fails. So a record that was copied into a body, with an offset that fits its place
there, can make a query fail, but never add a row to it.

The same holds for the blank that ends a segment: what lies behind its first bytes may be records
that a recovery cut off. So no segment is split near its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.offsets import PhysicalOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rmq.spark.files.settings import StoreOptions
    from rmq.store.reader.files import SegmentFile

    NextSound = Callable[[PhysicalOffset, PhysicalOffset], PhysicalOffset | None]
    """Returns where the first sound record at or behind an offset begins, below another one."""


class LogPart(NamedTuple):
    """What one task reads: the records from `start` to `stop`. It is pickled into the task."""

    path: Path
    first: int
    """The physical offset at which the segment begins."""
    segment_bytes: int
    start: int
    stop: int
    is_stop_boundary: bool
    """Whether another part of the segment begins at `stop`, so that a record must end there.

    Otherwise it is where reading ends, and a record that goes beyond it is left out.
    """

    @property
    def segment_end(self) -> int:
        return self.first + self.segment_bytes


class Bounds(NamedTuple):
    """What of a log is read."""

    start: int
    stop: int
    lost_bytes: int
    """How much is missing before `start` that was asked for."""


def bounds(options: StoreOptions, log_min: int, log_end: int) -> Bounds:
    """Return what is read of a log that goes from `log_min` to `log_end`."""
    wanted = log_min if options.from_offset is None else options.from_offset
    if wanted > log_end:
        raise ConfigError(
            "fromOffset",
            f"{wanted} is behind the end of the log, {log_end}: this is another store than the one"
            " read before, or it lost its end",
        )
    stop = log_end if options.to_offset is None else min(options.to_offset, log_end)
    return Bounds(max(wanted, log_min), stop, max(log_min - wanted, 0))


def parts(
    segments: Sequence[SegmentFile],
    segment_bytes: int,
    start: PhysicalOffset,
    stop: PhysicalOffset,
    split_bytes: int,
    next_sound: NextSound,
) -> Iterator[LogPart]:
    """Yield what the tasks read, in the order of the log.

    Parts have `split_bytes` and up to half as much again; 0 splits no segment.
    """
    for segment in segments:
        first = PhysicalOffset(segment.first)
        low, high = max(start, first), min(stop, first + segment_bytes)
        if low >= high:
            continue
        while split_bytes and high - low > split_bytes + split_bytes // 2:
            boundary = next_sound(low + split_bytes, high)
            if boundary is None:
                break
            yield LogPart(segment.path, segment.first, segment_bytes, low, boundary, True)
            low = boundary
        yield LogPart(segment.path, segment.first, segment_bytes, low, high, False)


def gaps(
    segments: Sequence[SegmentFile], segment_bytes: int, start: int, stop: int
) -> Iterator[CorruptStoreError]:
    """Yield an error for every place between `start` and `stop` where segments are missing."""
    expected = start
    for segment in segments:
        end = segment.first + segment_bytes
        if end <= start or segment.first >= stop:
            continue
        if segment.first > expected:
            yield CorruptStoreError(
                str(segment.path),
                f"the segments before this one, from {expected} on, are missing",
                offset=expected,
                hint="copy all segments of the store; skipCorrupt=true reads what is there",
            )
        expected = end
