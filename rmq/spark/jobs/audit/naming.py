"""Which records the differing bytes of two logs belong to, found in the tasks of the audit.

A log is walked only around the bytes that differ. A record is named only if its own bytes differ,
so what the walk around damage takes for a record, or skips, adds no wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import decode_text
from rmq.model.record_layout import BLANK_MAGIC, MESSAGE_MAGIC, RECORD_PREFIX
from rmq.spark.jobs.audit.compare import require_here
from rmq.spark.jobs.audit.plan import Range, merged, overlaps, without
from rmq.spark.jobs.audit.records import (
    changed_fields,
    difference,
    digest,
    head_of,
    is_same_record,
    unique_key,
    unsound_reason,
)
from rmq.store.reader.files import FilePool
from rmq.store.reader.log import LogFiles, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rmq.errors import CorruptStoreError
    from rmq.model.record import RecordHead

MASTER: Final = "master"
SLAVE: Final = "slave"

DIFFERS: Final = "differs"
"""Both have the record at this offset, with other bytes."""
LOST: Final = "lost"
"""The master has a record where the slave has another one, or none; it may be elsewhere."""
FOUND: Final = "found"
"""The slave has a record where the master has another one, or none; it may be elsewhere."""
UNREADABLE: Final = "unreadable"
"""Bytes that differ and belong to no record that was named."""

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""How far before a difference the walk begins. Records are smaller unless a broker's settings allow
more; then the walk begins with the segment.
"""


_BLANK_MAGIC: Final = BLANK_MAGIC.to_bytes(4, signed=True)
_MAGIC_AT: Final = RECORD_PREFIX.size - len(_BLANK_MAGIC)


class Row(NamedTuple):
    """A difference, or one half of it; a row of the table that Spark puts together."""

    kind: str
    physical_offset: int
    size: int
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    unique_key: str | None = None
    store_ms: int | None = None
    digest: str | None = None
    """Of all bytes but the physical offset: equal for a record that is elsewhere."""
    first_byte: int | None = None
    """The physical offset of the first byte that differs."""
    bytes_differing: int | None = None
    fields: str | None = None
    """The fields that differ, by their names in the format."""
    damaged: str | None = None
    """Whose bytes are no sound record: master, slave, both or neither."""
    reason: str | None = None


ROW_SCHEMA: Final = (
    "kind STRING, physical_offset BIGINT, size BIGINT, topic STRING, queue_id INT,"
    " queue_offset BIGINT, unique_key STRING, store_ms BIGINT, digest STRING, first_byte BIGINT,"
    " bytes_differing BIGINT, fields STRING, damaged STRING, reason STRING"
)


@dataclass(frozen=True, slots=True)
class Task:
    """The runs of one segment, in order."""

    segment: int
    runs: tuple[Range, ...]


class Damage(NamedTuple):
    """Bytes of one side in which the walk found no record."""

    side: str
    where: Range
    reason: str


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two logs, up to the end that counts."""

    name: str
    log: LogFiles
    end: int

    def read(self, start: int, size: int) -> bytes:
        """Return bytes that lie below the end, none where there is no file."""
        return self.log.read(PhysicalOffset(start), max(0, min(size, self.end - start)))


def name_differences(
    tasks: Iterable[Task], master: tuple[Path, int], slave: tuple[Path, int], segment_bytes: int
) -> Iterator[Row]:
    """Name the records of runs of differing bytes; what one task does.

    A log is given as the folder of its segments and its end.
    """
    require_here(master[0], slave[0])
    files = FilePool()
    try:
        ours = Side(MASTER, LogFiles(files, [master[0]], segment_bytes), master[1])
        theirs = Side(SLAVE, LogFiles(files, [slave[0]], segment_bytes), slave[1])
        for task in tasks:
            yield from name_in_segment(ours, theirs, task, segment_bytes)
    finally:
        files.close()


def name_in_segment(master: Side, slave: Side, task: Task, segment_bytes: int) -> Iterator[Row]:
    """Name what differs in one segment."""
    damage: list[Damage] = []
    for side in (master, slave):
        # Where no records are must be known before records are compared with what is there.
        for _ in _records(side, task, segment_bytes, damage):
            pass
    named: list[Range] = []
    for side, other in ((master, slave), (slave, master)):
        holes = [each.where for each in damage if each.side == other.name]
        for head in _records(side, task, segment_bytes, []):
            row = _row_of(side, other, head, holes)
            if row is not None:
                named.append(Range(row.physical_offset, row.physical_offset + row.size))
                yield row
    yield from _unreadable(master, slave, task.runs, damage, merged(named))


def _records(
    side: Side, task: Task, segment_bytes: int, damage: list[Damage]
) -> Iterator[RecordHead]:
    """Yield the records of one side that have differing bytes, or bytes between such."""
    stop = min(task.segment + segment_bytes, side.end)
    for runs in _windows(task.runs, side.end):
        yield from _walk(side, task.segment, stop, runs, damage)


def _windows(runs: Sequence[Range], end: int) -> list[list[Range]]:
    """Return runs that are near to each other together: they are walked at once."""
    groups: list[list[Range]] = []
    for run in runs:
        cut = Range(run.start, min(run.stop, end))
        if not cut.size:
            continue
        if groups and cut.start - groups[-1][-1].stop < WINDOW_BYTES:
            groups[-1].append(cut)
        else:
            groups.append([cut])
    return groups


def _walk(
    side: Side, segment: int, stop: int, runs: Sequence[Range], damage: list[Damage]
) -> Iterator[RecordHead]:
    """Yield the records that have bytes of the runs; what is no record is added to `damage`."""
    log = side.log
    place = PhysicalOffset(segment)
    if log.find(place) is None:
        where = Range(runs[0].start, runs[-1].stop)
        damage.append(Damage(side.name, where, "the segment is missing"))
        return
    if runs[0].start - WINDOW_BYTES > segment:
        start = PhysicalOffset(runs[0].start - WINDOW_BYTES)
        found = log.next_sound(start, PhysicalOffset(runs[0].start + 1))
        place = place if found is None else found
    bad: list[CorruptStoreError] = []
    for head in log.heads(place, PhysicalOffset(stop), on_bad=bad.append):
        if bad:
            # The walk has come to the next sound record.
            where = Range(offset_of(bad[0]), head.physical_offset)
            damage.append(Damage(side.name, where, bad[0].reason))
            bad.clear()
        if head.physical_offset >= runs[-1].stop:
            return
        place = head.physical_offset + head.size
        if overlaps(runs, head.physical_offset, place):
            yield head
    if bad:
        damage.append(Damage(side.name, Range(offset_of(bad[0]), stop), bad[0].reason))


def _row_of(side: Side, other: Side, head: RecordHead, holes: Sequence[Range]) -> Row | None:
    """Return the difference that a record of one side is part of; None if there is none.

    `holes` is where the other side has no records. What both have is reported with the master's
    record.
    """
    offset = head.physical_offset
    mine, theirs = side.read(offset, head.size), other.read(offset, head.size)
    if mine == theirs:
        return None
    first, count = difference(mine, theirs)
    row = Row(
        kind=DIFFERS,
        physical_offset=offset,
        size=head.size,
        topic=decode_text(head.topic),
        queue_id=head.queue_id,
        queue_offset=head.queue_offset,
        unique_key=unique_key(head),
        store_ms=head.store_ms,
        first_byte=offset + first,
        bytes_differing=count,
    )
    pair = (mine, theirs) if side.name == MASTER else (theirs, mine)
    if not theirs.strip(b"\0"):
        reason = "nothing was written there"
    elif overlaps(holes, offset, offset + 1):
        # A record that cannot be read any more is still this one, damaged.
        return _differing(row, *pair)
    else:
        twin = _record_at(other, offset)
        if twin is not None and is_same_record(mine, head, theirs, twin):
            return _differing(row, *pair) if side.name == MASTER else None
        reason = "another record is there"
    kind = LOST if side.name == MASTER else FOUND
    return row._replace(kind=kind, digest=digest(mine), reason=reason)


def _record_at(side: Side, offset: int) -> RecordHead | None:
    """Return the head of the record that begins at an offset, whether its body is sound or not."""
    prefix = side.read(offset, RECORD_PREFIX.size)
    if len(prefix) < RECORD_PREFIX.size:
        return None
    size, magic = RECORD_PREFIX.unpack(prefix)
    return head_of(side.read(offset, size)) if magic == MESSAGE_MAGIC and size > 0 else None


def _differing(row: Row, master: bytes, slave: bytes) -> Row:
    """Add which fields differ and whose bytes are damaged."""
    reasons = {
        MASTER: unsound_reason(master, row.physical_offset),
        SLAVE: unsound_reason(slave, row.physical_offset),
    }
    bad = [name for name, reason in reasons.items() if reason is not None]
    sound, other = (slave, master) if bad == [MASTER] else (master, slave)
    return row._replace(
        fields=", ".join(changed_fields(sound, other)) or None,
        damaged="both" if len(bad) == 2 else (bad[0] if bad else "neither"),
        reason="; ".join(f"{name}: {reasons[name]}" for name in bad) or None,
    )


def _unreadable(
    master: Side,
    slave: Side,
    runs: Sequence[Range],
    damage: Sequence[Damage],
    named: Sequence[Range],
) -> Iterator[Row]:
    """Yield the differing bytes that belong to no record that was named."""
    ends = (master.end, slave.end)
    for run in runs:
        for rest in without(run, named):
            ours, theirs = master.read(rest.start, rest.size), slave.read(rest.start, rest.size)
            if ours == theirs or _is_blank(max(ours, theirs, key=len), rest, min(ends)):
                continue
            first, count = difference(ours, theirs)
            reasons = {
                each.side: each.reason
                for each in damage
                if each.where.start < rest.stop and rest.start < each.where.stop
            }
            told = [f"{side}: {reason}" for side, reason in sorted(reasons.items())]
            yield Row(
                kind=UNREADABLE,
                physical_offset=rest.start,
                size=rest.size,
                first_byte=rest.start + first,
                bytes_differing=count,
                damaged="both" if len(reasons) == 2 else next(iter(reasons), "neither"),
                reason="; ".join(told) or "no record is here",
            )


def _is_blank(data: bytes, where: Range, end: int) -> bool:
    """Tell whether bytes behind the shorter log are the blank at the end of a segment."""
    return where.start >= end and data[_MAGIC_AT : RECORD_PREFIX.size] == _BLANK_MAGIC
