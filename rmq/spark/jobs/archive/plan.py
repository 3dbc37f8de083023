"""What a run of the archive reads: for each queue from where to where, and what is wrong. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.spark.jobs.archive.manifest import Manifest, Queue


class Bounds(NamedTuple):
    """What a queue holds now."""

    first: int
    end: int
    """That the next message will get."""


class Span(NamedTuple):
    """Offsets to archive; the end is not included."""

    start: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.start


class Restart(NamedTuple):
    """A queue that is not the one that was archived, though it has its name."""

    queue: Queue
    archived: int
    """The last offset in the archive."""
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run archives."""

    spans: Mapping[Queue, Span]
    restarts: tuple[Restart, ...]
    left: int
    """Messages that are there and that this run leaves to the next one."""
    unreadable: tuple[Queue, ...] = ()
    """Queues that earlier runs archived, and that cannot be read now."""

    @property
    def messages(self) -> int:
        return sum(span.messages for span in self.spans.values())


def make_plan(
    manifest: Manifest,
    bounds: Mapping[Queue, Bounds],
    changed: Mapping[Queue, str],
    limit: int | None = None,
    *,
    expected: Iterable[Queue] = (),
) -> Plan:
    """Decide what to read.

    A queue goes on where its last run ended, or begins with the first message there is. `changed`
    has queues whose last archived message the broker does not have any more in its place, and what
    it has instead. `limit` is how many messages a run may archive; all queues get the same share of
    what they have. `expected` has the archived queues that the source should have.
    """
    spans: dict[Queue, Span] = {}
    restarts: list[Restart] = []
    for queue, bound in sorted(bounds.items()):
        part = manifest.parts.get(queue)
        if part is None:
            start = bound.first
        elif queue in changed:
            restarts.append(Restart(queue, part.last, changed[queue]))
            continue
        elif bound.end <= part.last:
            reason = f"its next message gets offset {bound.end}"
            restarts.append(Restart(queue, part.last, reason))
            continue
        else:
            start = max(part.last + 1, bound.first)
        if start < bound.end:
            spans[queue] = Span(start, bound.end)
    total = sum(span.messages for span in spans.values())
    if limit is not None and total > limit:
        spans = _share(spans, limit, total)
    taken = sum(span.messages for span in spans.values())
    unreadable = tuple(sorted(queue for queue in expected if queue not in bounds))
    return Plan(spans, tuple(restarts), total - taken, unreadable)


def _share(spans: Mapping[Queue, Span], limit: int, total: int) -> dict[Queue, Span]:
    """Give every queue its share; what rounding leaves goes to the first ones."""
    shares = {queue: span.messages * limit // total for queue, span in spans.items()}
    rest = limit - sum(shares.values())
    found: dict[Queue, Span] = {}
    for queue, span in spans.items():
        extra = min(rest, span.messages - shares[queue])
        rest -= extra
        count = shares[queue] + extra
        if count:
            found[queue] = Span(span.start, span.start + count)
    return found
