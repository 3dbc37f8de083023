"""Whether what a run wrote is what it was to read. Pure: gaps in the files are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq.errors import StoreError
from rmq.spark.jobs.archive.manifest import Gap, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.spark.jobs.archive.manifest import Queue
    from rmq.spark.jobs.archive.plan import Plan, Span

_HINT: Final = (
    "run it again: retention may have deleted messages meanwhile; if it is a store, rmq store"
    " verify lists damage, and --skip-corrupt archives the rest"
)


class NotProvenError(StoreError):
    """What was written is not what should have been read; nothing of it was archived."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; nothing of this run was archived")
        self.hint = _HINT


def proven(
    plan: Plan,
    written: Mapping[Queue, Part],
    find_gaps: Callable[[Queue], tuple[Gap, ...]],
    *,
    may_lack: bool,
) -> dict[Queue, Part]:
    """Return what was written, with gaps; raise `NotProvenError` if it is not what was planned.

    Offsets between others that the source itself does not have are gaps, which the verdict names.
    The first and the last that were planned are known to be there, and have to be in the files,
    unless the run `may_lack` what is damaged: then these are gaps, too.
    """
    for queue in sorted(set(written) - set(plan.spans)):
        raise NotProvenError(f"{queue} was written, and was not to be read")
    found: dict[Queue, Part] = {}
    for queue, span in plan.spans.items():
        part = written.get(queue, _nothing(span))
        last = span.end - 1
        if part.first < span.start or part.last > last:
            raise _unlike(queue, span, part)
        if part.count and part.count != part.last - part.first + 1:
            part = replace(part, gaps=find_gaps(queue))
        if (part.count == 0 or part.first > span.start or part.last < last) and not may_lack:
            raise _unlike(queue, span, part)
        head = (Gap(span.start, part.first - 1),) if part.first > span.start else ()
        tail = (Gap(part.last + 1, last),) if part.last < last else ()
        part = replace(part, first=span.start, last=last, gaps=(*head, *part.gaps, *tail))
        if not part.is_dense:
            raise NotProvenError(f"{queue}: count, offsets and gaps contradict each other")
        found[queue] = part
    return found


def _nothing(span: Span) -> Part:
    """Return the part of a queue of which nothing could be read."""
    last = span.end - 1
    return Part(span.start, last, 0, 0, 0, 0, 0, (Gap(span.start, last),))


def _unlike(queue: Queue, span: Span, part: Part) -> NotProvenError:
    found = f"{part.first} to {part.last}" if part.count else "none"
    return NotProvenError(
        f"{queue}: of the offsets {span.start} to {span.end - 1} that it has, {found} could be read"
    )
