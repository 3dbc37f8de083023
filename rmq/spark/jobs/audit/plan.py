"""What the audit of a master's and a slave's log compares, and what is no difference. Pure.

A slave's log is the master's, byte for byte, from where the slave's begins to where it ends. So raw
bytes at equal offsets are compared, which is exact whatever lies in them, and quick: equal bytes
are never taken apart. Three things are no difference: what only one of them still has because the
other's retention is shorter, what the slave has not received yet (that is its lag), and what both
lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import rmq.errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STRETCH_BYTES: Final = 64 * 1024 * 1024
"""How much one task compares at most: so little that many cores share the work evenly."""

RUN_GAP_BYTES: Final = 256
"""Differing bytes that are nearer to each other than this are one run; a record has more."""

RUNS_MAX: Final = 4_096
"""How many runs one task reports; the last of them goes up to the last difference."""


class Range(NamedTuple):
    """Bytes of a log by physical offset."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return max(0, self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Log:
    """What there is of one log."""

    root: str
    begin: int
    end: int
    """Behind the last byte that counts."""
    segment_bytes: int
    segments: tuple[int, ...]
    """The offsets at which its files begin."""
    is_live: bool
    """Whether a broker has it open."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared, and what is not."""

    compared: Range
    lag: Range
    """What the master has and the slave has not received yet."""
    beyond: Range
    """What the slave has behind the end of the master: it came from somewhere else."""
    only_master: Range
    """What only the master still has of the beginning."""
    only_slave: Range
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of both logs that lies in one segment; one task compares it."""

    start: int
    stop: int
    segment: int
    """The offset at which its file begins."""


class NothingInCommonError(rmq.errors.StoreError):
    """The two logs have no byte in common."""


def make_plan(master: Log, slave: Log) -> Plan:
    """Decide what is compared; raise `ConfigError` or `NothingInCommonError`."""
    if master.segment_bytes and slave.segment_bytes and master.segment_bytes != slave.segment_bytes:
        raise rmq.errors.ConfigError(
            "--slave-store",
            f"segments of {slave.root} have {slave.segment_bytes} bytes, those of {master.root}"
            f" {master.segment_bytes}: these logs are no copies of each other",
            hint="the slave of a master has its mappedFileSizeCommitLog",
        )
    start, stop = max(master.begin, slave.begin), min(master.end, slave.end)
    if stop <= start and (master.end > master.begin or slave.end > slave.begin):
        raise NothingInCommonError(
            f"the logs have nothing in common to compare: {master.root} holds {master.begin} to"
            f" {master.end}, {slave.root} {slave.begin} to {slave.end}"
        )
    return Plan(
        compared=Range(start, max(start, stop)),
        lag=Range(min(slave.end, master.end), master.end),
        beyond=Range(min(slave.end, master.end), slave.end),
        only_master=Range(master.begin, max(start, master.begin)),
        only_slave=Range(slave.begin, max(start, slave.begin)),
        segment_bytes=max(master.segment_bytes, slave.segment_bytes),
    )


def stretches(
    compared: Range, segment_bytes: int, stretch_bytes: int = STRETCH_BYTES
) -> list[Stretch]:
    """Divide what is compared; no stretch goes over the end of a segment."""
    found: list[Stretch] = []
    start = compared.start
    while start < compared.stop:
        segment = start - start % segment_bytes
        stop = min(start + stretch_bytes, segment + segment_bytes, compared.stop)
        found.append(Stretch(start, stop, segment))
        start = stop
    return found


def merged(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """Return ranges in order, those put together that are at most `gap` bytes apart."""
    found: list[Range] = []
    for each in sorted(ranges):
        if found and each.start <= found[-1].stop + gap:
            found[-1] = Range(found[-1].start, max(found[-1].stop, each.stop))
        elif each.size:
            found.append(each)
    return found


def by_segment(runs: Sequence[Range], segment_bytes: int) -> dict[int, list[Range]]:
    """Return runs by the segment they lie in, cut at the ends of segments."""
    found: dict[int, list[Range]] = {}
    for run in runs:
        for part in stretches(run, segment_bytes, segment_bytes):
            found.setdefault(part.segment, []).append(Range(part.start, part.stop))
    return found


def overlaps(runs: Sequence[Range], start: int, stop: int) -> bool:
    """Tell whether any of some runs in order has a byte of `start` to `stop`."""
    return any(run.start < stop and start < run.stop for run in runs)


def without(run: Range, covered: Sequence[Range]) -> list[Range]:
    """Return the parts of a run that some ranges in order do not cover."""
    parts: list[Range] = []
    start = run.start
    for each in covered:
        if each.start >= run.stop:
            break
        if each.start > start:
            parts.append(Range(start, each.start))
        start = max(start, each.stop)
    if start < run.stop:
        parts.append(Range(start, run.stop))
    return parts


def received(mine: bytes, other: bytes, *, is_torn_possible: bool) -> bool:
    """Tell whether bytes behind the end of a closed log are a damaged copy of the other's record.

    The end of a closed log is where sound records end, so damage to the last record looks like a
    record that never came. It came if most of its bytes are there. Zeros are what was never
    written. After a crash the end of a record may be missing (`is_torn_possible`), which recovery
    cuts off and fetches again: that is no damage.
    """
    if is_torn_possible and other.startswith(mine.rstrip(b"\0")):
        return False
    written = sum(1 for theirs in other if theirs)
    kept = sum(1 for ours, theirs in zip(mine, other, strict=False) if ours == theirs and theirs)
    return 2 * kept > written
