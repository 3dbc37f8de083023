"""Where records end in the log, found without reading all of a segment.

The ConsumeQueues name places where records begin; from the nearest of them the log is walked. What
they say is checked against the log, and without them the walk begins with the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmq.errors import StoreUnavailableError
from rmq.model.record_layout import HOST_FLAGS, MESSAGE_MAGIC, RECORD_HEADS
from rmq.store.layout import FILLER_SIZE
from rmq.store.log_scan import LogScan

if TYPE_CHECKING:
    from rmq.store.commit_log import CommitLog
    from rmq.store.queue_table import QueueTable


class Boundary(NamedTuple):
    """The end of a record, or the beginning of the log."""

    offset: int
    store_ms: int
    """When that record was stored; 0 if there is none, or if another one goes over the offset."""


def boundary_before(log: CommitLog, queues: QueueTable, offset: int) -> Boundary:
    """Return the last boundary at or before `offset`. Blocks while the log is read."""
    if not log.min_offset <= offset <= log.readable:
        raise StoreUnavailableError(
            f"the log goes from {log.min_offset} to {log.readable}, not over {offset}"
        )
    # Behind a full last segment there is none yet.
    segment = log.segments.find(offset) or log.segments.last
    known = _last_known_record(log, queues, offset)
    start = segment.first if segment is not None else offset
    if known is not None:
        # Also if it lies in a segment before: then nothing but blanks, and records without an
        # entry, follow it.
        start = known
    store_ms = 0
    scan = LogScan(log.segments, start, offset, verify_crc=False)
    for head in scan:
        store_ms = head.store_ms
    return Boundary(scan.offset, store_ms)


def _last_known_record(log: CommitLog, queues: QueueTable, offset: int) -> int | None:
    """Return the last place before `offset` where a queue says a record begins, and one does."""
    known = -1
    # A list of its own, because this may run in a thread while a queue comes into being.
    for queue in list(queues):
        entry = queue.entry(min(queue.end_below(offset), queue.next_offset) - 1)
        if entry is not None and entry[1] != FILLER_SIZE:
            known = max(known, entry[0])
    return known if known >= 0 and stored_ms(log, known) is not None else None


def stored_ms(log: CommitLog, physical: int) -> int | None:
    """Return the store time of the record that begins at an offset; None if none does."""
    view = log.view_from(physical)
    if view is None or len(view) < RECORD_HEADS[0].size:
        return None
    fields = RECORD_HEADS[0].unpack_from(view)
    if fields[1] != MESSAGE_MAGIC or fields[6] != physical:
        return None
    head = RECORD_HEADS[fields[7] & HOST_FLAGS]
    if len(view) < head.size:
        return None
    store_ms: int = head.unpack_from(view)[10]
    return store_ms
