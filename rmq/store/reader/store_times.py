"""When a message was stored, read from the files of queue and log, without mapping them.

For threads that must not hold up the others: reading a mapped page that is not in memory does, for
the interpreter's lock is held meanwhile. What is not on disk in full, or not there any longer, is
not found.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.model.record_layout import HOST_FLAGS, RECORD_BYTES_MIN, RECORD_HEADS
from rmq.store.layout import QUEUE_ENTRY, QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from rmq.model.offsets import QueueOffset
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.segments import Segments

_PHYSICAL_FIELD: Final = 6
_SYS_FLAG_FIELD: Final = 7
_STORE_MS_FIELD: Final = 10
_HEAD_BYTES_MAX: Final = max(head.size for head in RECORD_HEADS.values())


class FilePart(NamedTuple):
    """A file of the store, and where it begins in the log, or a place in the file."""

    path: str
    position: int


def entry_place(queue: ConsumeQueue, offset: QueueOffset) -> FilePart | None:
    """Return where the entry of a message is; None if the queue does not have it."""
    start = offset * QUEUE_ENTRY_BYTES
    segment = queue.segments.find(start)
    if segment is None or not queue.min_offset <= offset < queue.next_offset:
        return None
    return FilePart(str(segment.path), start - segment.first)


def file_parts(segments: Segments) -> list[FilePart]:
    """Return the files of the log and where they begin, in order."""
    return [FilePart(str(segment.path), segment.first) for segment in segments]


def read_entry(descriptor: int, position: int) -> int | None:
    """Return the physical offset in an entry of a queue. Blocks."""
    data = _read(descriptor, QUEUE_ENTRY_BYTES, position)
    if len(data) < QUEUE_ENTRY_BYTES:
        return None
    physical, size, _ = QUEUE_ENTRY.unpack(data)
    return int(physical) if size >= RECORD_BYTES_MIN else None


def read_store_ms(descriptor: int, segment_first: int, physical: int) -> int | None:
    """Return when the record at a physical offset was stored. Blocks."""
    data = _read(descriptor, _HEAD_BYTES_MAX, physical - segment_first)
    if len(data) < RECORD_BYTES_MIN:
        return None
    head = RECORD_HEADS[RECORD_HEADS[0].unpack_from(data)[_SYS_FLAG_FIELD] & HOST_FLAGS]
    if len(data) < head.size:
        return None
    fields = head.unpack_from(data)
    # Elsewhere there is another record, or the one that is to come there is not on disk yet.
    return int(fields[_STORE_MS_FIELD]) if fields[_PHYSICAL_FIELD] == physical else None


def _read(descriptor: int, size: int, position: int) -> bytes:
    try:
        return os.pread(descriptor, size, position)
    except OSError:
        return b""
