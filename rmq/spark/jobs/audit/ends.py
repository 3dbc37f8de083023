"""Where the two logs of an audit begin and end, on disks that brokers may be writing to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError, CorruptStoreError
from rmq.spark.jobs.audit.plan import Log, received
from rmq.store.reader import Reader
from rmq.store.reader.end import sound_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.model.offsets import PhysicalOffset

FLUSH_WAIT_S: Final = 5.0
"""How long a running master may take to flush what its slave has already."""
_LOOK_S: Final = 0.2


def open_pair(
    master: Path, slave: Path, master_log: Path | None, slave_log: Path | None
) -> tuple[Reader, Reader]:
    """Open both stores; raise `StorageError` or `ConfigError`.

    One file that is shorter than a segment, as a copy that was cut short leaves it, must not be
    taken for the size of segments: then the size of the other store counts.
    """
    readers = [
        Reader(root, commit_log_paths=None if log is None else [log])
        for root, log in ((master, master_log), (slave, slave_log))
    ]
    sizes = [reader.segment_bytes for reader in readers]
    larger = max(sizes)
    for index, (root, log) in enumerate(((master, master_log), (slave, slave_log))):
        segments = readers[index].segments
        is_cut = 0 < sizes[index] < larger and len(segments) == 1
        if is_cut and segments[0].first % larger == 0:
            readers[index].close()
            readers[index] = Reader(
                root, commit_log_paths=None if log is None else [log], segment_bytes=larger
            )
    for reader in readers:
        if any(segment.first % reader.segment_bytes for segment in reader.segments):
            raise ConfigError(
                "--master-store" if reader is readers[0] else "--slave-store",
                f"{reader.root}: the names of segments are not multiples of their size,"
                f" {reader.segment_bytes}",
            )
    return readers[0], readers[1]


def look_at(
    master: Reader,
    slave: Reader,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Log, Log]:
    """Return what there is of both logs.

    The slave is read first, so that what it receives meanwhile is not taken for more than the
    master has. A running master says how far it is flushed, and sends to its slave before that: it
    is given time to flush.
    """
    slave_end = slave.end_offset
    master_end = master.end_offset
    deadline = clock() + FLUSH_WAIT_S
    while master.state.is_live and master_end < slave_end and clock() < deadline:
        sleep(_LOOK_S)
        master.refresh()
        master_end = master.end_offset
    for _ in range(2):
        # What one of them has shows what is damaged at the end of the other.
        slave_end = end_behind_damage(slave, slave_end, master, master_end)
        master_end = end_behind_damage(master, master_end, slave, slave_end)
    return _log(master, master_end), _log(slave, slave_end)


def end_behind_damage(
    reader: Reader, end: PhysicalOffset, other: Reader, other_end: PhysicalOffset
) -> PhysicalOffset:
    """Return the end of a log that no broker writes, whether or not its last records are damaged.

    The end of a closed log is found by reading records, so damage may be taken for the end. If what
    follows is the other's, it is damage; see `received` for the last record of all.
    """
    if reader.state.is_live:
        return end
    while end < other_end:
        following = reader.log.next_sound(end, min(other_end, reader.log.file_end))
        if following is not None and _is_shared(reader, other, following, other_end):
            end = sound_end(reader.log, following)[0]
            continue
        try:
            record = other.log.record_at(end, other_end)
        except CorruptStoreError:
            return end
        if record is None:
            return end
        mine, theirs = (each.log.read(end, record.size) for each in (reader, other))
        if not received(mine, theirs, is_torn_possible=reader.state.is_abort_present):
            return end
        end += record.size
    return end


def _is_shared(
    reader: Reader, other: Reader, offset: PhysicalOffset, other_end: PhysicalOffset
) -> bool:
    record = reader.log.record_at(offset, reader.log.file_end)
    if record is None or offset + record.size > other_end:
        return False
    return reader.log.read(offset, record.size) == other.log.read(offset, record.size)


def _log(reader: Reader, end: int) -> Log:
    return Log(
        root=str(reader.root),
        begin=int(reader.min_offset),
        end=max(end, int(reader.min_offset)),
        segment_bytes=reader.segment_bytes,
        segments=tuple(segment.first for segment in reader.segments),
        is_live=reader.state.is_live,
    )
