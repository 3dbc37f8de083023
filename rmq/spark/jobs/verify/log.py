"""A CommitLog whose segments were read by many tasks, put together again.

`plan` divides the log, `linked` tells whether the parts of a segment fit together, and `ScannedLog`
is what `rmq.store.verify.Verifier` walks over: of each run of sound records it gives the first and
the last head, which is all that the rules about damage and about the end of a log need.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from rmq.model.offsets import PhysicalOffset
from rmq.spark.jobs.verify.scan import Bad, Ending, Run, ScanTask
from rmq.store.reader.log import LogFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmq.spark.jobs.verify.expected import Rules
    from rmq.spark.jobs.verify.scan import PartScan
    from rmq.store.reader import Reader
    from rmq.store.reader.files import FilePool, SegmentFile

PART_BYTES: Final = 256 * 1024 * 1024
"""How much of a segment one task reads."""


def plan(reader: Reader, rules: Rules, part_bytes: int = PART_BYTES) -> list[ScanTask]:
    """Return the tasks that together read the whole log.

    Of a store that a broker has open, what may be read ends where its flushed log does.
    """
    log = reader.log
    log_stop = int(reader.end_offset) if reader.state.is_live else log.file_end
    tasks = []
    for segment in log.segments:
        end = segment.first + log.segment_bytes
        step = part_bytes if segment.size == log.segment_bytes else log.segment_bytes
        for start in range(segment.first, end, max(step, 1)):
            if start < log_stop:
                stop = min(start + step, end)
                tasks.append(ScanTask(reader, segment.first, start, stop, log_stop, rules))
    return tasks


def whole_segment(task: ScanTask) -> ScanTask:
    """Return the task that reads the segment of a part from its beginning to its end."""
    first = task.segment_first
    stop = first + task.reader.log.segment_bytes
    return ScanTask(task.reader, first, first, stop, task.log_stop, task.rules)


def by_segment(scans: Iterable[PartScan]) -> dict[int, list[PartScan]]:
    """Return the parts of each segment in order."""
    parts: defaultdict[int, list[PartScan]] = defaultdict(list)
    for scan in sorted(scans, key=lambda scan: (scan.segment_first, scan.start)):
        parts[scan.segment_first].append(scan)
    return dict(parts)


def linked(parts: list[PartScan]) -> list[Run | Bad] | None:
    """Return what a segment has in it; None if its parts do not fit together.

    A part begins at the first sound record it finds. That is where the one before it ended, unless
    there is damage in between, or bytes inside a body look like a record.
    """
    events: list[Run | Bad] = []
    position = parts[0].segment_first
    for part in parts:
        if part.ending is Ending.GONE:
            return []
        if part.ending is Ending.BROKEN:
            return None
        if part.first is None:
            if part is parts[0]:
                return part.events
            if position < part.stop:
                return None
            continue
        if part.first != position:
            return None
        events += part.events
        if part.ending in (Ending.BLANK, Ending.BAD):
            return events  # nothing behind it is ever read, or there is nothing
        assert part.end is not None, part
        position = part.end
    return events


class ScannedLog(LogFiles):
    """The log of a store, walked over run by run."""

    def __init__(self, files: FilePool, log: LogFiles, events: dict[int, list[Run | Bad]]) -> None:
        super().__init__(files, log.directories, log.segment_bytes)
        self._events = events

    def runs(self, stop: int | None = None) -> Iterator[Run]:
        """Yield the runs in the order of the log, as far as they begin below `stop`."""
        for first in sorted(self._events):
            for event in self._events[first]:
                if isinstance(event, Run) and (stop is None or event.start < stop):
                    yield event

    def _walk_segment(
        self,
        segment: SegmentFile,
        start: int,
        stop: int,
        take: Callable[..., Any],
        verify_crc: bool,
    ) -> Iterator[Any]:
        """Yield the first and the last head of each run; raise what is bad."""
        for event in self._events.get(segment.first, ()):
            if isinstance(event, Bad):
                if event.offset >= start:
                    raise event.error()
            elif event.start >= start:
                yield event.first_head
                if event.count > 1:
                    yield event.last_head

    def next_sound(self, offset: PhysicalOffset, stop: PhysicalOffset) -> PhysicalOffset | None:
        """Return where the first run at or behind `offset` begins, below `stop`."""
        starts = (run.start for run in self.runs(stop) if run.start >= offset)
        return next(map(PhysicalOffset, starts), None)
