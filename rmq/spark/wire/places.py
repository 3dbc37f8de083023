"""Where a query starts and ends: what the options say, turned into offsets. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from rmq.errors import ConfigError
from rmq.spark.wire.data_loss import Loss
from rmq.spark.wire.positions import EARLIEST, LATEST, name_of, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.planning import Span


class PlaceKind(enum.Enum):
    """How a place is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    """Where a consumer group is."""
    OFFSETS = "offsets"
    """Queue by queue."""
    TIME = "time"
    """At the first message that was stored at a time or later."""


class Place(NamedTuple):
    """A start or an end, as an option names it."""

    kind: PlaceKind
    key: str
    """The option."""
    offsets: Mapping[MessageQueue, int] = {}
    time_ms: int = -1
    is_end_if_none: bool = False
    """For a time behind the last message: whether that means the end of the queue, or is wrong."""


class Known(NamedTuple):
    """What brokers said of the queues of a query."""

    spans: Mapping[MessageQueue, Span]
    committed: Mapping[MessageQueue, int | None] = {}
    """Where the group is; None: nowhere. For `PlaceKind.GROUP`."""
    by_time: Mapping[int, Mapping[MessageQueue, int]] = {}
    """By time in ms: the first offset that was stored then or later; the end if there is none.
    For `PlaceKind.TIME`."""


def resolve(place: Place, known: Known) -> dict[MessageQueue, int]:
    """Return the offset of every queue that a place means; raise `ConfigError`.

    A group that has no offset in a queue has read nothing of it.
    """
    spans = known.spans
    match place.kind:
        case PlaceKind.EARLIEST:
            return {queue: span.first for queue, span in spans.items()}
        case PlaceKind.LATEST:
            return {queue: span.end for queue, span in spans.items()}
        case PlaceKind.OFFSETS:
            return _by_offsets(place, spans)
        case PlaceKind.GROUP:
            return {queue: _read_by_group(known, queue) for queue in spans}
        case PlaceKind.TIME:
            return _by_time(place, spans, known.by_time[place.time_ms])


def doubts(place: Place, known: Known) -> list[Loss]:
    """Return queues that start where a slave says that they begin.

    Their masters may have older messages: a slave that was added later begins later.
    """
    return [
        Loss(
            queue,
            f"its master does not answer, and the slave that does begins at offset {span.first}:"
            " older messages that only the master has would be left out",
        )
        for queue, span in known.spans.items()
        if span.first > 0 and not span.is_master and _starts_at_begin(place, known, queue)
    ]


def _starts_at_begin(place: Place, known: Known, queue: MessageQueue) -> bool:
    match place.kind:
        case PlaceKind.EARLIEST:
            return True
        case PlaceKind.LATEST:
            return False
        case PlaceKind.OFFSETS:
            return place.offsets.get(queue) == EARLIEST
        case PlaceKind.GROUP:
            return known.committed[queue] is None
        case PlaceKind.TIME:
            return known.by_time[place.time_ms][queue] == known.spans[queue].first


def _read_by_group(known: Known, queue: MessageQueue) -> int:
    committed = known.committed[queue]
    return known.spans[queue].first if committed is None else committed


def _by_offsets(place: Place, spans: Mapping[MessageQueue, Span]) -> dict[MessageQueue, int]:
    offsets = place.offsets
    _complain(place, spans.keys() - offsets.keys(), "no offset is given for")
    _complain(place, offsets.keys() - spans.keys(), "there is no")
    special = {queue: {EARLIEST: span.first, LATEST: span.end} for queue, span in spans.items()}
    return {queue: special[queue].get(offsets[queue], offsets[queue]) for queue in spans}


def _complain(place: Place, queues: Iterable[MessageQueue], what: str) -> None:
    wrong = sorted(queues)
    if wrong:
        raise ConfigError(
            place.key,
            f"{what} {names_of(wrong)}; every queue that is read must be named, {EARLIEST} stands"
            f" for its first message and {LATEST} for its end",
        )


def _by_time(
    place: Place, spans: Mapping[MessageQueue, Span], found: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    if not place.is_end_if_none:
        none = [queue for queue, span in spans.items() if found[queue] >= span.end]
        if none:
            raise ConfigError(
                place.key,
                f"{names_of(none)}: nothing was stored at {place.time_ms} (ms since 1970) or"
                " later; startingOffsetsByTimestampStrategy=latest starts at the end there",
            )
    return {queue: found[queue] for queue in spans}


def check_order(start: Place, end: Place) -> str | None:
    """Say what is wrong if a query is told to end before it starts."""
    if start.kind is end.kind is PlaceKind.TIME and start.time_ms > end.time_ms:
        return f"{start.time_ms} is later than {end.key}, {end.time_ms}"
    if start.kind is end.kind is PlaceKind.OFFSETS:
        for queue, first in start.offsets.items():
            last = end.offsets.get(queue, LATEST)
            if first >= 0 and last >= 0 and first > last:
                return f"{name_of(queue)}: {first} is behind {end.key}, {last}"
    return None
