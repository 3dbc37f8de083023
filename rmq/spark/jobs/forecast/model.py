"""Where growth and lag lead: when a disk is full, when a group loses what it has not read. Pure.

Growth is the median of rates over equal stretches of time (or over runs of the report), so that one
burst does not count; the mean stands beside it, because what comes once a day counts, too.

The rules of deletion are those of the brokers (`rmq.store.retention`): a segment goes when it is
`fileReservedTime` old, and before its time when the disk is used above the clean ratio; above the
full ratio messages are refused. So a log does not grow without end: at a steady rate it holds what
came within the retention, and the disk gets full only if that is more than there is room for.

A message lives as long as its segment, which is a little longer than the message's own retention:
what is told here is the earliest moment.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.store.config import StoreConfig
from rmq.store.layout import QUEUE_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HOUR_S: Final = 3_600.0
DAY_S: Final = 86_400.0
SAMPLES_MIN: Final = 3
"""Fewer stretches of time have no median worth the name."""
TREND_POINTS: Final = 5
"""How many of the last runs tell where a lag goes: a group that stops shows after two of them."""
FRESH_SHARE: Final = 0.01
"""A group whose first unread message is younger than this share of the retention is reading."""
BURST_RATIO: Final = 2.0
"""If the mean is at least this many times the median, it is reported."""

_DEFAULTS: Final = StoreConfig(root=Path("store"))
RESERVED_HOURS: Final = float(_DEFAULTS.reserved_hours)
CLEAN_RATIO: Final = _DEFAULTS.disk_clean_ratio
FULL_RATIO: Final = _DEFAULTS.disk_full_ratio

_CAPACITY: Final = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)")
_UNITS: Final = {
    unit: 1024**power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
}


# --- growth -------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What was stored in a stretch of time."""

    start_s: float
    span_s: float
    messages: float
    size_bytes: float

    @property
    def disk_bytes(self) -> float:
        """With the entry that each message has in a ConsumeQueue."""
        return self.size_bytes + QUEUE_ENTRY_BYTES * self.messages


@dataclass(frozen=True, slots=True)
class Growth:
    """How fast something grows, per second."""

    messages: float
    size_bytes: float
    disk_bytes: float
    mean_disk_bytes: float
    """What the mean has, where the others have the median."""
    samples: int
    from_s: float
    to_s: float

    @property
    def is_bursty(self) -> bool:
        """Tell whether the median hides much of what comes."""
        return self.mean_disk_bytes > BURST_RATIO * self.disk_bytes


def growth_of(samples: Sequence[Sample]) -> Growth | None:
    """Return the growth; None if there is too little to tell.

    What came before the first message is left out: a new topic did not grow slowly, it was not.
    """
    began = next((at for at, sample in enumerate(samples) if sample.messages), 0)
    known = [sample for sample in samples[began:] if sample.span_s > 0]
    if len(known) < SAMPLES_MIN:
        return None
    return Growth(
        messages=median(sample.messages / sample.span_s for sample in known),
        size_bytes=median(sample.size_bytes / sample.span_s for sample in known),
        disk_bytes=median(sample.disk_bytes / sample.span_s for sample in known),
        mean_disk_bytes=math.fsum(sample.disk_bytes / sample.span_s for sample in known)
        / len(known),
        samples=len(known),
        from_s=known[0].start_s,
        to_s=known[-1].start_s + known[-1].span_s,
    )


def whole_stretches(first_s: float, end_s: float, step_s: int) -> list[int]:
    """Return the beginnings of the stretches that lie as a whole between two moments.

    The first and the last that have messages are cut off by the window and would count too little.
    """
    start = math.ceil(first_s / step_s) * step_s
    return list(range(start, math.floor(end_s / step_s) * step_s, step_s))


def samples_of(
    sums: Mapping[int, tuple[int, int]], stretches: Iterable[int], step_s: int
) -> list[Sample]:
    """Return samples from messages and bytes by the beginning of their stretch."""
    return [Sample(float(at), float(step_s), *sums.get(at, (0, 0))) for at in stretches]


# --- disks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a store, and what fills it."""

    name: str
    total_bytes: float | None
    """None if its size is not known."""
    used_bytes: float
    log_bytes: float
    """How much of that is the CommitLog, which shrinks when segments expire."""
    samples: Sequence[Sample]
    reserved_s: float

    @property
    def other_bytes(self) -> float:
        return max(0.0, self.used_bytes - self.log_bytes)


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """Where a disk is going; times count from the last observation, infinity is never."""

    disk: Disk
    growth: Growth | None
    full_in_s: float | None
    """When brokers refuse messages; None if that is not known."""
    clean_in_s: float
    """When segments are deleted before their time."""
    mean_full_in_s: float | None
    """When it is full if the mean is right and not the median."""
    retention_s: float
    """How old messages get once segments are deleted before their time, if that is less."""

    def used_at(self, after_s: float) -> float:
        """Return how much will be used."""
        disk, rate = self.disk, 0.0 if self.growth is None else self.growth.disk_bytes
        most = max(disk.log_bytes, rate * disk.reserved_s)
        return disk.other_bytes + min(disk.log_bytes + rate * after_s, most)


def disk_forecast(disk: Disk) -> DiskForecast:
    """Return where a disk is going."""
    growth, total = growth_of(disk.samples), disk.total_bytes
    if growth is None or total is None:
        is_full = total is not None and disk.used_bytes >= FULL_RATIO * total
        return DiskForecast(disk, growth, 0.0 if is_full else None, math.inf, None, disk.reserved_s)
    rate = growth.disk_bytes
    room = max(0.0, CLEAN_RATIO * total - disk.other_bytes)
    return DiskForecast(
        disk=disk,
        growth=growth,
        full_in_s=_reached_in_s(disk, FULL_RATIO * total, rate),
        clean_in_s=_reached_in_s(disk, CLEAN_RATIO * total, rate),
        mean_full_in_s=_reached_in_s(disk, FULL_RATIO * total, growth.mean_disk_bytes),
        retention_s=min(disk.reserved_s, room / rate) if rate > 0 else disk.reserved_s,
    )


def _reached_in_s(disk: Disk, limit: float, rate: float) -> float:
    if disk.used_bytes >= limit:
        return 0.0
    # At this rate the log has this size when it is as old as the retention, and no more.
    if rate <= 0 or disk.other_bytes + rate * disk.reserved_s <= limit:
        return math.inf
    return (limit - disk.used_bytes) / rate


def parse_capacity(text: str) -> tuple[float, float] | None:
    """Return size and free bytes of a disk from `commitLogDirCapacity` of a broker.

    Brokers write it with one digit behind the point.
    """
    found = _CAPACITY.match(text)
    if found is None or found[2] not in _UNITS or found[4] not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2]], float(found[3]) * _UNITS[found[4]]


# --- groups -------------------------------------------------------------------------------------


class LagPoint(NamedTuple):
    """How far behind a group was at a moment."""

    time_s: float
    lag: int
    age_s: float | None
    """How long its first unread message had been waiting; None if that was not known."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far behind a group is in a topic, and was before."""

    group: str
    topic: str
    points: Sequence[LagPoint]
    """In order; the last is now."""
    expired: int = 0
    """Messages that were deleted before it read them."""

    @property
    def now(self) -> LagPoint:
        return self.points[-1]


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """Where a group is going; times count from the last observation, infinity is never."""

    state: GroupState
    loss_in_s: float | None
    """When it loses messages; None if there is too little to tell."""
    earliest_s: float
    """When it loses messages if it reads nothing more."""
    by_disk: bool
    """Whether that is because the disk gets full, not because messages get old."""
    read_in_s: float | None
    """When it has read all; None if that is not known."""
    age_slope: float | None
    """Seconds by which its first unread message gets older, per second."""
    is_fresh: bool
    """Whether it is so little behind that it must be reading."""


def group_forecast(state: GroupState, disks: Sequence[DiskForecast]) -> GroupForecast:
    """Return where a group is going."""
    now, slopes = state.now, slopes_of(state.points, _reserved_s(disks))
    age_slope = None if slopes is None else slopes[1]
    lag_slope = None if slopes is None else slopes[0]
    if now.lag == 0:
        return GroupForecast(state, math.inf, math.inf, False, 0.0, age_slope, True)
    read_in_s: float | None = None
    if lag_slope is not None:
        read_in_s = now.lag / -lag_slope if lag_slope < 0 else math.inf
    is_lost = state.expired > 0
    if now.age_s is None:
        in_s = 0.0 if is_lost else None
        return GroupForecast(state, in_s, 0.0, False, read_in_s, None, False)
    is_fresh = not is_lost and now.age_s < FRESH_SHARE * _reserved_s(disks)
    earliest_s, by_disk = _loss(now.age_s, 1.0, disks)
    if is_lost:
        return GroupForecast(state, 0.0, 0.0, False, read_in_s, age_slope, False)
    if age_slope is None:
        in_s = earliest_s if earliest_s == 0 else None
        return GroupForecast(state, in_s, earliest_s, by_disk, read_in_s, None, is_fresh)
    loss_in_s, by_disk = _loss(now.age_s, age_slope, disks)
    if read_in_s is not None and read_in_s < loss_in_s:
        loss_in_s = math.inf
    return GroupForecast(state, loss_in_s, earliest_s, by_disk, read_in_s, age_slope, is_fresh)


def slopes_of(points: Sequence[LagPoint], reserved_s: float) -> tuple[float, float] | None:
    """Return by how much lag (messages) and age (seconds) grow per second; None for one point.

    It is the median of the slopes between all pairs of points. What was before the last moment at
    which the group was up to date does not count.
    """
    known = [(point, point.age_s) for point in points if point.age_s is not None][-TREND_POINTS:]
    fresh = [at for at, (_, age) in enumerate(known[:-1]) if age < FRESH_SHARE * reserved_s]
    known = known[fresh[-1] :] if fresh else known
    pairs = [
        (after[0].time_s - before[0].time_s, before, after)
        for before, after in combinations(known, 2)
        if after[0].time_s > before[0].time_s
    ]
    if not pairs:
        return None
    lag = median((after[0].lag - before[0].lag) / span_s for span_s, before, after in pairs)
    age = median((after[1] - before[1]) / span_s for span_s, before, after in pairs)
    # What waits gets older by a second each second, and by no more.
    return lag, min(age, 1.0)


def _loss(age_s: float, slope: float, disks: Sequence[DiskForecast]) -> tuple[float, bool]:
    """Return when messages are lost on the first disk that loses them, and whether it is full."""
    by_age = _old_in_s(age_s, slope, _reserved_s(disks))
    by_disk = min(
        (
            max(each.clean_in_s, _old_in_s(age_s, slope, each.retention_s))
            for each in disks
            if math.isfinite(each.clean_in_s)
        ),
        default=math.inf,
    )
    return min(by_age, by_disk), by_disk < by_age


def _old_in_s(age_s: float, slope: float, limit_s: float) -> float:
    if age_s >= limit_s:
        return 0.0
    return (limit_s - age_s) / slope if slope > 0 else math.inf


def _reserved_s(disks: Sequence[DiskForecast]) -> float:
    return min((each.disk.reserved_s for each in disks), default=RESERVED_HOURS * HOUR_S)


# --- shares -------------------------------------------------------------------------------------


class HotKey(NamedTuple):
    """A key that many messages of a topic have."""

    topic: str
    key: str
    messages: int
    share: float
    """Of the messages of the topic."""
