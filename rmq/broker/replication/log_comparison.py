"""Finds the common prefix of the logs of two brokers.

Compared by digests of ranges, coarse ones first and finer ones where the coarse differ, so that
terabytes that are the same cost a read at either end and a few kilobytes on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rmq.broker.replication.log_digests import log_digests
from rmq.model.offsets import PhysicalOffset
from rmq.store.log_scan import LogScan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rmq.broker.replication.log_digests import DigestedLog
    from rmq.remoting.bodies import HaDigestsBody
    from rmq.store.commit_log import LogReads

Ask: TypeAlias = "Callable[[int, int, int], Awaitable[HaDigestsBody]]"
"""Asks another broker for digests: from where, to where, and for how many bytes each."""

STEPS: Final = (16 * 1024**2, 64 * 1024, 4096)
_RANGES_PER_QUESTION: Final = 16


def record_ends(log: LogReads, start: PhysicalOffset, stop: PhysicalOffset) -> list[PhysicalOffset]:
    """Return where the messages end that begin before `stop`, from `start` on. Blocks."""
    scan = LogScan(log.segments, start, log.readable, verify_crc=False)
    ends: list[PhysicalOffset] = []
    for head in scan:
        if head.physical_offset >= stop:
            break
        ends.append(scan.offset)
    return ends


async def common_records(
    log: DigestedLog,
    ask: Ask,
    start: PhysicalOffset,
    ends: Sequence[PhysicalOffset],
    other_end: PhysicalOffset,
) -> PhysicalOffset:
    """Return the last of `ends` up to which two logs are the same from `start` on, or `start`."""
    low, high = 0, sum(end <= other_end for end in ends)
    while low < high:
        middle = (low + high + 1) // 2
        stop = ends[middle - 1]
        step = max(STEPS[-1], stop - start)
        theirs = (await ask(start, stop, step)).digests
        if theirs and theirs == (await log_digests(log, start, stop, step)).digests:
            low = middle
        else:
            high = middle - 1
    return ends[low - 1] if low else start


def count_records(log: LogReads, start: PhysicalOffset, stop: PhysicalOffset) -> int:
    """Return how many messages lie in a range of the log that begins with one. Blocks."""
    return sum(1 for _ in LogScan(log.segments, start, stop, verify_crc=False))


async def common_prefix(log: DigestedLog, ask: Ask) -> tuple[PhysicalOffset, PhysicalOffset]:
    """Return the end of the common prefix of a log and another one, and the end of the other.

    `ask(start, stop, step)` returns digests of the other one. Nothing in common is `log.begin`, or
    where the other one ends if that is before. What both hold is compared, no more: what the other
    one has dropped already counts as the same.
    """
    other = await ask(0, 0, STEPS[-1])
    other_begin, other_end = PhysicalOffset(other.begin), PhysicalOffset(other.end)
    start, stop = max(log.begin, other_begin), min(log.end, other_end)
    if start >= stop:
        return (stop if start == stop else log.begin), other_end
    same_until = stop
    for step in STEPS:
        differs = await _first_difference(log, ask, start, stop, step)
        if differs is None:
            # The log changed since; the coarser range differed, so its start stays the result.
            break
        same_until = start = differs
        stop = min(stop, differs + step)
    return same_until, other_end


async def _first_difference(
    log: DigestedLog,
    ask: Ask,
    start: PhysicalOffset,
    stop: PhysicalOffset,
    step: int,
) -> PhysicalOffset | None:
    """Return where the first range begins that is not the same."""
    while start < stop:
        part = min(stop, start + step * _RANGES_PER_QUESTION)
        theirs = (await ask(start, part, step)).digests
        ours = (await log_digests(log, start, part, step)).digests
        for mine, other in zip(ours, theirs, strict=False):
            if mine != other:
                return PhysicalOffset(mine.start)
        compared = min(len(ours), len(theirs))
        if not compared:
            # One of the two no longer has it, so it cannot be compared.
            return start
        start = PhysicalOffset(ours[compared - 1].stop)
    return None
