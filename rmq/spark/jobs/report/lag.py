"""How far behind consumer groups are: in messages, in seconds, and where that leads. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TREND_RUNS: Final = 10
"""How many runs, this one included, a trend is made from."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far one group is in one queue."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    """The first message there is; 0 if it is not known."""
    max_offset: int
    """That the next message will get."""
    consumer_offset: int
    """Where the group goes on."""
    unread_ms: int | None = None
    """When the first message that it has not read was stored."""

    @property
    def lag(self) -> int:
        return max(0, self.max_offset - self.consumer_offset)

    @property
    def expired(self) -> int:
        """Messages that are deleted and were never read."""
        return max(0, min(self.min_offset, self.max_offset) - self.consumer_offset)

    def lag_s(self, now_s: float) -> float | None:
        """Return how long the first unread message has been waiting; None if it is not known."""
        if self.lag == 0:
            return 0.0
        return None if self.unread_ms is None else max(0.0, round(now_s - self.unread_ms / 1000, 3))


class Trend(NamedTuple):
    """Where a lag is going."""

    per_second: float
    """How many messages it grows by; negative if it shrinks."""
    runs: int
    """How many runs it was made from."""

    def eta_s(self, lag: int) -> float | None:
        """Return in how many seconds it will be gone; None if it will not."""
        if lag == 0:
            return 0.0
        return lag / -self.per_second if self.per_second < 0 else None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far one group is in one topic."""

    group: str
    topic: str
    lag: int
    lag_s: float | None
    """How old its first unread message is; None if that is not known of all queues."""
    expired: int
    queues: int
    queues_behind: int
    skew: float
    """The largest lag of a queue, in times of the mean."""
    trend: Trend | None = None
    known_lag_s: float = 0.0
    """It is as old at least: the oldest that is known."""


def by_group(queues: Iterable[QueueLag], now_s: float) -> list[GroupLag]:
    """Return the lag of each group in each topic, the largest first."""
    together: dict[tuple[str, str], list[QueueLag]] = {}
    for queue in queues:
        together.setdefault((queue.group, queue.topic), []).append(queue)
    found = []
    for (group, topic), parts in together.items():
        lags = [part.lag for part in parts]
        ages = [part.lag_s(now_s) for part in parts]
        known = max((age for age in ages if age is not None), default=0.0)
        found.append(
            GroupLag(
                group=group,
                topic=topic,
                lag=sum(lags),
                lag_s=None if None in ages else known,
                expired=sum(part.expired for part in parts),
                queues=len(parts),
                queues_behind=sum(lag > 0 for lag in lags),
                skew=skew_of(lags),
                known_lag_s=known,
            )
        )
    return sorted(found, key=lambda each: (-each.lag, each.group, each.topic))


def skew_of(values: Sequence[float]) -> float:
    """Return how many times the mean the largest of some values is; 1 if all are equal."""
    total = math.fsum(values)
    return max(values) * len(values) / total if total > 0 else 1.0


def trend_of(points: Sequence[tuple[float, int]]) -> Trend | None:
    """Return where a lag is going, from moments in order and how large it was then.

    It is the slope of the line that lies nearest to the last points (least squares). One point has
    no trend.
    """
    last = points[-TREND_RUNS:]
    if len(last) < 2 or last[-1][0] <= last[0][0]:
        return None
    mean_time = math.fsum(time_s for time_s, _ in last) / len(last)
    mean_lag = math.fsum(lag for _, lag in last) / len(last)
    above = math.fsum((time_s - mean_time) * (lag - mean_lag) for time_s, lag in last)
    below = math.fsum((time_s - mean_time) ** 2 for time_s, _ in last)
    return Trend(above / below, len(last))


class Skew(NamedTuple):
    """How unevenly the messages of a topic are spread over its queues."""

    topic: str
    ratio: float
    """The largest queue, in times of the mean."""
    largest: tuple[str, int]
    """Broker and queue that have most."""
    messages: int
    queues: int


def skews(
    messages: Mapping[tuple[str, str, int], int], queues: Iterable[tuple[str, str, int]] = ()
) -> list[Skew]:
    """Return the skew of each topic with more than one queue, the largest first.

    `messages` has the number of messages by topic, broker and queue; `queues` names queues that may
    have none of them.
    """
    together: dict[str, dict[tuple[str, int], int]] = {}
    for topic, broker, queue_id in queues:
        together.setdefault(topic, {})[broker, queue_id] = 0
    for (topic, broker, queue_id), count in messages.items():
        together.setdefault(topic, {})[broker, queue_id] = count
    found = []
    for topic, counts in together.items():
        total = sum(counts.values())
        if len(counts) > 1 and total:
            largest = max(counts, key=lambda queue: (counts[queue], queue))
            ratio = skew_of(list(counts.values()))
            found.append(Skew(topic, ratio, largest, total, len(counts)))
    return sorted(found, key=lambda each: (-each.ratio, each.topic))
