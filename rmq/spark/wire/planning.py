"""Which part of which queue is read by which task. Pure: what brokers say comes in, ranges come
out.

Whatever is missing is returned as a `Loss` beside the plan that goes on without it; the caller
decides whether that is an error.

What a master says of a queue is final. What a slave says while its master is gone is not: the
master, or another slave that takes its place, may have more, at the end and at the begin. So a
slave never makes an end go back, and never makes messages count as deleted. A task that asks a
slave for what it lacks waits for the master (`rmq.client.blocking.ranges`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.errors import ConfigError
from rmq.spark.wire.data_loss import Loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rmq.model.queues import MessageQueue

PARTITIONS_MAX: Final = 100_000
"""Tasks of one query. Spark takes some 10 ms for each, whatever it reads."""
_AFTER_FAILOVER: Final = (
    "after a failover to a slave that had not got them, or the topic was created again"
)
_RETENTION: Final = "the broker has deleted them (fileReservedTime, or a full disk)"
_GONE: Final = "the topic was deleted, or has fewer queues now"


class Span(NamedTuple):
    """What a broker says that a queue holds."""

    first: int
    """The offset of the first message that can be read."""
    end: int
    """The offset that the next message will have."""
    is_master: bool = True
    """Whether a master said so."""


class Range(NamedTuple):
    """A part of a queue, to be read by one task."""

    queue: MessageQueue
    start: int
    end: int
    """Not read any more."""

    @property
    def size(self) -> int:
        return self.end - self.start


# --- shares ----------------------------------------------------------------------------------


def apportion(sizes: Sequence[int], total: int, turn: int = 0) -> list[int]:
    """Deal `total` out among parts in proportion to their sizes, all of which are above 0.

    No part gets more than its size, and what is dealt out is `total`, or all there is. Every part
    gets something; if there are more parts than `total`, `turn` says with which of them to begin.
    """
    count = len(sizes)
    if total >= sum(sizes):
        return list(sizes)
    if total <= count:
        served = {(turn + number) % count for number in range(total)}
        return [int(number in served) for number in range(count)]
    # One each, and the rest by what is left of each.
    left = total - count
    rest = sum(sizes) - count
    shares = [1 + left * (size - 1) // rest for size in sizes]
    remainders = sorted(
        range(count), key=lambda number: (-(left * (sizes[number] - 1) % rest), number)
    )
    for number in remainders[: total - sum(shares)]:
        shares[number] += 1
    return shares


def limited(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], limit: int
) -> dict[MessageQueue, int]:
    """Return ends that are together at most `limit` behind `starts`, in proportion to what waits.

    Queues take turns if there are more of them than `limit`: where the turn is follows from how far
    all of them have come.
    """
    waiting = [queue for queue in sorted(ends) if ends[queue] > starts[queue]]
    sizes = [ends[queue] - starts[queue] for queue in waiting]
    turn = sum(starts[queue] for queue in ends)
    shares = dict(zip(waiting, apportion(sizes, limit, turn), strict=True))
    return {
        queue: starts[queue] + shares[queue] if queue in shares else end
        for queue, end in ends.items()
    }


def split(ranges: Iterable[Range], *, partitions_min: int = 0, records_max: int = 0) -> list[Range]:
    """Cut ranges into at least `partitions_min` parts of at most `records_max` records each; 0
    stands for no such wish. Nothing is cut into less than one record. Raises `ConfigError` for
    more parts than are of use.
    """
    whole = [each for each in ranges if each.size > 0]
    counts = [-(-each.size // records_max) if records_max else 1 for each in whole]
    if sum(counts) < partitions_min:
        shares = apportion([each.size for each in whole], partitions_min)
        counts = [max(pair) for pair in zip(counts, shares, strict=True)]
    if sum(counts) > PARTITIONS_MAX:
        raise ConfigError(
            "maxRecordsPerPartition",
            f"{records_max} makes {sum(counts)} tasks, above {PARTITIONS_MAX}",
        )
    parts = []
    for each, count in zip(whole, counts, strict=True):
        cuts = [each.start + each.size * number // count for number in range(count + 1)]
        parts += [Range(each.queue, cuts[number], cuts[number + 1]) for number in range(count)]
    return parts


# --- batches ---------------------------------------------------------------------------------


def batch_ranges(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    spans: Mapping[MessageQueue, Span],
) -> tuple[list[Range], list[Loss]]:
    """Return what a batch query reads. A queue whose end is not behind its start is left out."""
    losses = []
    wanted = {}
    for queue, start in starts.items():
        end = ends[queue]
        span = spans[queue]
        if start > span.end and span.is_master:
            losses.append(Loss(queue, f"offset {start} is asked for, and it ends at {span.end}"))
        elif start < end:
            wanted[queue] = end
    ranges, others = stream_ranges(starts, wanted, spans)
    return ranges, losses + others


# --- streams ---------------------------------------------------------------------------------


def stream_ends(
    starts: Mapping[MessageQueue, int],
    spans: Mapping[MessageQueue, Span],
    *,
    away: Collection[MessageQueue] = (),
    pinned: Mapping[MessageQueue, int] | None = None,
    limit: int = 0,
) -> tuple[dict[MessageQueue, int], list[Loss]]:
    """Return where the next batch ends that starts at `starts`, and what is missing.

    `spans` are the queues as they are now. Those that are not in `starts` are new, and read from
    their first message on: this batch ends there, which stores it, and the next one reads. Those
    of `starts` that are not in `spans` are gone, or only `away`: they stay where they are.
    `pinned`: nothing behind these ends is read. `limit`: how many messages at most, 0 for all there
    are.
    """
    losses = []
    begins = {}
    ends = {}
    brokers = {queue.broker_name for queue in starts}
    for queue in sorted({*starts, *spans}):
        start = starts.get(queue)
        span = spans.get(queue)
        if span is None:
            assert start is not None, f"{queue} comes from nowhere"
            if queue not in away:
                losses.append(Loss(queue, f"it is gone, read up to offset {start}: {_GONE}"))
            begins[queue] = ends[queue] = start
            continue
        if start is None:
            if (pinned is not None and queue not in pinned) or not span.is_master:
                continue
            # The query knows this broker, so it would have known the queue if it had been there.
            if span.first > 0 and queue.broker_name in brokers:
                losses.append(_new_queue_loss(queue, span))
            begins[queue] = ends[queue] = span.first
            continue
        until = None if pinned is None else max(start, pinned.get(queue, start))
        ends[queue], loss = _end(queue, start, span, until)
        if loss is not None:
            losses.append(loss)
        # What is deleted already does not count against the limit.
        begins[queue] = max(start, min(span.first, ends[queue])) if span.is_master else start
    if limit:
        ahead = {queue: end for queue, end in ends.items() if end >= begins[queue]}
        ends.update(limited(begins, ahead, limit))
    return ends, losses


def _end(queue: MessageQueue, start: int, span: Span, until: int | None) -> tuple[int, Loss | None]:
    """Return how far a queue can be read that was read up to `start`, and what is missing."""
    if not span.is_master:
        return max(start, span.end) if until is None else until, None
    reached = start if until is None else until
    if span.end < reached:
        return span.end, _lowered_loss(queue, reached, span)
    return span.end if until is None else until, None


def stream_ranges(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    spans: Mapping[MessageQueue, Span],
) -> tuple[list[Range], list[Loss]]:
    """Return what a batch of a stream reads, and what of it is missing by now.

    Nothing is read of queues without a start: this batch has only stored where they begin.
    """
    losses = []
    ranges = []
    for queue, end in sorted(ends.items()):
        start = starts.get(queue)
        span = spans.get(queue)
        if start is None or start == end:
            continue
        if span is None:
            losses.append(Loss(queue, f"it is gone, offset {end} was to be read up to: {_GONE}"))
            continue
        if start > end:
            losses.append(
                Loss(
                    queue,
                    f"it was read up to offset {start} and is read on from {end}:"
                    f" messages were lost {_AFTER_FAILOVER}",
                )
            )
            continue
        if start < span.first and span.is_master:
            losses.append(
                Loss(
                    queue,
                    f"offsets {start} to {min(span.first, end)} are wanted, and it begins at"
                    f" {span.first}: {_RETENTION}",
                )
            )
            start = min(span.first, end)
        if end > span.end and span.is_master:
            losses.append(_lowered_loss(queue, end, span))
            end = max(start, span.end)
        if start < end:
            ranges.append(Range(queue, start, end))
    return ranges, losses


def _new_queue_loss(queue: MessageQueue, span: Span) -> Loss:
    return Loss(
        queue,
        f"it is new to this query (created or chosen since it began), and begins at offset"
        f" {span.first}: what was before that was never read, {_RETENTION}",
    )


def _lowered_loss(queue: MessageQueue, reached: int, span: Span) -> Loss:
    return Loss(
        queue,
        f"it had offsets up to {reached}, and ends at {span.end} now: messages were lost"
        f" {_AFTER_FAILOVER}",
    )
