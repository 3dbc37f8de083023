"""Whole records of a range of the log, for a client that saves them.

A response is bounded in bytes, but holds one record at least. The log is read in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.replication.changes.refusal import refuse
from rmq.model.offsets import PhysicalOffset
from rmq.store.log_scan import LogScan

if TYPE_CHECKING:
    from rmq.store.commit_log import LogReads

ANSWER_BYTES_MAX: Final = 4 * 1024**2
"""How many bytes of records an answer has at most, but always one record."""


async def log_records(log: LogReads, start: int, stop: int) -> tuple[bytes, int]:
    """Return the records from `start` on, and where the next one begins.

    Refuse where the log has no sound record.
    """
    first, last = PhysicalOffset(start), PhysicalOffset(stop)
    if not log.segments.first <= first < last <= log.readable:
        refuse(
            f"the log goes from {log.segments.first} to {log.readable}, and does not hold {start}"
            f" to {stop}"
        )
    data, following, bad = await trio.to_thread.run_sync(_read, log, first, last)
    if bad is not None:
        refuse(f"no sound record at physical offset {following}: {bad}")
    return data, following


def _read(
    log: LogReads, start: PhysicalOffset, stop: PhysicalOffset
) -> tuple[bytes, PhysicalOffset, str | None]:
    """Return records, where the next one begins, and why that cannot be read, if so."""
    scan = LogScan(log.segments, start, stop, verify_crc=False)
    pieces: list[bytes] = []
    size = 0
    for head in scan:
        view = log.view(head.physical_offset, head.size)
        if view is None:
            return b"", head.physical_offset, "it has expired"
        pieces.append(bytes(view))
        size += head.size
        if size >= ANSWER_BYTES_MAX:
            return b"".join(pieces), scan.offset, None
    # What is left before `stop` is a blank, or the beginning of a record that never came whole.
    following = stop if scan.bad is None else scan.offset
    return b"".join(pieces), following, None if pieces else scan.bad
