"""Where the log of a store directory ends.

A store that one of our brokers has open says how far it is flushed. In any other the log itself is
read from the last point known to be good: the recovery point, or the beginning of the last segment
in use, or after a crash of the third last, as far as a stock recovery reads back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record_layout import BLANK_MAGIC, RECORD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.model.record import RecordHead
    from rmq.store.reader.log import LogFiles
    from rmq.store.reader.state import StoreState

_CRASH_SEGMENTS: Final = 3


def find_end(
    log: LogFiles, state: StoreState, has_entry: Callable[[RecordHead], bool]
) -> PhysicalOffset:
    """Return the physical offset behind the last record that may be read.

    `has_entry` tells whether a record has its entry in a ConsumeQueue.
    """
    if state.live_flushed is not None:
        return max(min(state.live_flushed, log.file_end), log.min_offset)
    start = _good_point(log, state)
    if start is None:
        return log.min_offset
    end, last = sound_end(log, start)
    if state.is_live:
        # A stock broker may be writing the last record right now, its end still to come. What it
        # has put into a queue is whole.
        return end if last is None or has_entry(last) else last.physical_offset
    if not state.is_abort_present:
        end = _end_behind_damage(log, end, last)
    return end


def _good_point(log: LogFiles, state: StoreState) -> PhysicalOffset | None:
    point = state.recovery_point
    if point is not None and log.min_offset <= point.physical_offset <= log.file_end:
        return point.physical_offset
    begun = log.last_begun()
    if begun < 0:
        return None
    is_crashed = state.is_abort_present and not state.is_live
    first = log.segments[max(begun - _CRASH_SEGMENTS + 1, 0) if is_crashed else begun].first
    return PhysicalOffset(first)


def sound_end(log: LogFiles, start: PhysicalOffset) -> tuple[PhysicalOffset, RecordHead | None]:
    """Read on from `start` to the first bytes that are no sound record; return where they are.

    With it comes the last record before them, if there is one.
    """
    last: RecordHead | None = None
    end = start
    try:
        for last in log.heads(start, log.file_end, verify_crc=True):
            end = last.physical_offset + last.size
    except CorruptStoreError:
        pass
    return _behind_blank(log, end), last


def _behind_blank(log: LogFiles, end: PhysicalOffset) -> PhysicalOffset:
    """Return where the next record goes if a segment ends with a blank at `end`."""
    prefix = log.read(end, RECORD_PREFIX.size)
    segment = log.find(end)
    if segment is None or len(prefix) < RECORD_PREFIX.size:
        return end
    room = segment.first + log.segment_bytes - end
    return end + room if RECORD_PREFIX.unpack(prefix) == (room, BLANK_MAGIC) else end


def _end_behind_damage(
    log: LogFiles, end: PhysicalOffset, last: RecordHead | None
) -> PhysicalOffset:
    """Return the end of a log that was closed cleanly, whether or not there is damage in it.

    Sound records behind bytes that are none are messages that were there when the store was closed:
    a reader that reads up to them must find the damage. Only what is older than the record before
    the damage is not: a stock recovery leaves records behind the end, until later ones are written
    over them.
    """
    while (offset := log.next_sound(end, log.file_end)) is not None:
        following = next(log.heads(offset, log.file_end))
        if last is not None and following.store_ms < last.store_ms:
            break
        end, last = sound_end(log, offset)
    return end
