"""The arithmetic of the forecast: growth, disks, groups. No Spark."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rmq.spark.jobs.forecast.model import (
    CLEAN_RATIO,
    DAY_S,
    FULL_RATIO,
    HOUR_S,
    RESERVED_HOURS,
    Disk,
    GroupState,
    Growth,
    LagPoint,
    Sample,
    disk_forecast,
    group_forecast,
    growth_of,
    parse_capacity,
    samples_of,
    slopes_of,
    whole_stretches,
)

NOW_S = 1_700_000_000.0
RESERVED_S = RESERVED_HOURS * HOUR_S
GIB = 1024.0**3


def _samples(*sizes: float, span_s: float = HOUR_S) -> list[Sample]:
    return [
        Sample(NOW_S + at * span_s, span_s, 1.0 if size else 0.0, size)
        for at, size in enumerate(sizes)
    ]


def test_the_settings_are_those_of_brokers() -> None:
    assert (RESERVED_HOURS, CLEAN_RATIO, FULL_RATIO) == (72.0, 0.85, 0.90)


def test_growth_is_a_median() -> None:
    growth = growth_of(_samples(3_600, 7_200, 3_600_000, 3_600, 7_200))
    assert growth is not None
    assert growth.size_bytes == pytest.approx(2.0)
    assert growth.messages == pytest.approx(1 / HOUR_S)
    assert growth.disk_bytes == pytest.approx(2.0 + 20 / HOUR_S)
    assert growth.mean_disk_bytes == pytest.approx((6.0 + 1_000) / 5 + 20 / HOUR_S)
    assert growth.is_bursty
    assert (growth.samples, growth.from_s) == (5, NOW_S)
    assert growth.to_s == NOW_S + 5 * HOUR_S


def test_growth_of_too_little() -> None:
    assert growth_of([]) is None
    assert growth_of(_samples(5, 5)) is None
    # A topic that is new has no growth from before it was there.
    assert growth_of(_samples(0, 0, 0, 5, 5)) is None
    new = growth_of(_samples(0, 0, 0, 3_600, 3_600, 3_600))
    assert new is not None
    assert (new.size_bytes, new.samples, new.is_bursty) == (1.0, 3, False)
    nothing = growth_of(_samples(0, 0, 0))
    assert nothing is not None
    assert nothing.disk_bytes == 0


def test_only_whole_stretches_count() -> None:
    assert whole_stretches(61, 299, 60) == [120, 180]
    assert whole_stretches(60, 300, 60) == [60, 120, 180, 240]
    assert whole_stretches(61, 119, 60) == []
    samples = samples_of({120: (2, 50), 300: (9, 9)}, [120, 180], 60)
    assert samples == [Sample(120, 60, 2, 50), Sample(180, 60, 0, 0)]


def _disk(
    *, total: float | None = 100 * GIB, used: float = 10 * GIB, a_day: float = 10 * GIB
) -> Disk:
    size = a_day / DAY_S * HOUR_S
    samples = [Sample(NOW_S + at * HOUR_S, HOUR_S, 0, size) for at in range(5)]
    return Disk("d", total, used, used / 2, samples, RESERVED_S)


def test_a_disk_that_holds_the_retention_is_never_full() -> None:
    # 5 GiB of others, and three days of 10 GiB each.
    calm = disk_forecast(_disk())
    assert (calm.full_in_s, calm.clean_in_s, calm.retention_s) == (math.inf, math.inf, RESERVED_S)
    assert calm.used_at(0) == 10 * GIB
    assert calm.used_at(DAY_S) == pytest.approx(20 * GIB)
    assert calm.used_at(100 * DAY_S) == pytest.approx(35 * GIB)


def test_a_disk_that_gets_full() -> None:
    busy = disk_forecast(_disk(a_day=40 * GIB))
    assert busy.full_in_s == pytest.approx(2 * DAY_S)
    assert busy.clean_in_s == pytest.approx(75 / 40 * DAY_S)
    assert busy.mean_full_in_s == pytest.approx(2 * DAY_S)
    # There is room for 80 GiB of log, which come in two days.
    assert busy.retention_s == pytest.approx(2 * DAY_S)
    assert busy.used_at(2 * DAY_S) == pytest.approx(90 * GIB)


def test_a_disk_that_is_full() -> None:
    full = disk_forecast(_disk(used=91 * GIB, a_day=0))
    assert (full.full_in_s, full.clean_in_s) == (0.0, 0.0)
    few = disk_forecast(replace(_disk(used=91 * GIB), samples=[]))
    assert (few.growth, few.full_in_s) == (None, 0.0)


def test_a_disk_that_nobody_knows() -> None:
    assert disk_forecast(_disk(total=None)).full_in_s is None
    few = disk_forecast(replace(_disk(), samples=()))
    assert (few.growth, few.full_in_s, few.clean_in_s) == (None, None, math.inf)
    assert few.used_at(DAY_S) == 10 * GIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Total : 252.0 GiB, Free : 79.6 GiB.", (252 * GIB, 79.6 * GIB)),
        ("Total : 1.5 TiB, Free : 0 B.", (1536 * GIB, 0.0)),
        ("Total : 1.5 XiB, Free : 0 B.", None),
        ("", None),
    ],
)
def test_capacity_as_brokers_tell_it(text: str, expected: tuple[float, float] | None) -> None:
    assert parse_capacity(text) == expected


def _group(*points: tuple[float, int, float | None], expired: int = 0) -> GroupState:
    """Return a group from hours, lags and ages in hours."""
    told = [
        LagPoint(NOW_S + at * HOUR_S, lag, None if age is None else age * HOUR_S)
        for at, lag, age in points
    ]
    return GroupState("G", "T", told, expired)


CALM = [disk_forecast(_disk())]


def test_a_group_that_stopped_loses_messages_when_they_expire() -> None:
    found = group_forecast(_group((0, 100, 10), (1, 200, 11), (2, 300, 12)), CALM)
    assert found.age_slope == pytest.approx(1.0)
    assert found.loss_in_s == pytest.approx(60 * HOUR_S)
    assert (found.earliest_s, found.by_disk, found.read_in_s) == (60 * HOUR_S, False, math.inf)
    slow = group_forecast(_group((0, 100, 10), (2, 200, 11), (4, 300, 12)), CALM)
    assert slow.loss_in_s == pytest.approx(120 * HOUR_S)
    assert slow.earliest_s == pytest.approx(60 * HOUR_S)


def test_a_group_that_catches_up() -> None:
    found = group_forecast(_group((0, 300, 12), (1, 200, 8), (2, 100, 4)), CALM)
    assert found.loss_in_s == math.inf
    assert found.read_in_s == pytest.approx(HOUR_S)
    # Its first unread message ages, but all is read before that matters.
    racing = group_forecast(_group((0, 300, 60), (1, 200, 60.5), (2, 100, 61)), CALM)
    assert racing.age_slope == pytest.approx(0.5)
    assert racing.loss_in_s == math.inf


def test_one_outlier_does_not_make_a_trend() -> None:
    points = ((0, 100, 10.0), (1, 100, 10.0), (2, 9_000, 60.0), (3, 100, 10.0), (4, 100, 10.0))
    assert group_forecast(_group(*points), CALM).loss_in_s == math.inf


def test_a_group_counts_from_when_it_was_up_to_date() -> None:
    # It kept up for weeks and stopped half a day ago: what was before says nothing.
    points = [(float(day * 24), 0, 0.0) for day in range(20)]
    found = group_forecast(_group(*points, (480.0, 50, 12.0)), CALM)
    assert found.age_slope == pytest.approx(0.5)
    assert found.loss_in_s == pytest.approx(120 * HOUR_S)
    assert slopes_of([], RESERVED_S) is None
    # No age grows faster than time, whatever clocks and deleted messages make of it.
    assert slopes_of(_group((0, 5, 2), (1, 5, 9)).points, RESERVED_S) == (0.0, 1.0)


def test_a_group_without_history() -> None:
    alone = group_forecast(_group((0, 100, 10)), CALM)
    assert (alone.loss_in_s, alone.earliest_s, alone.read_in_s) == (None, 62 * HOUR_S, None)
    assert not alone.is_fresh
    assert group_forecast(_group((0, 100, 0.7)), CALM).is_fresh
    assert group_forecast(_group((0, 0, 0)), CALM).loss_in_s == math.inf
    unknown = group_forecast(_group((0, 100, None)), CALM)
    assert (unknown.loss_in_s, unknown.earliest_s, unknown.is_fresh) == (None, 0.0, False)


def test_a_group_that_loses_messages_already() -> None:
    assert group_forecast(_group((0, 100, 73)), CALM).loss_in_s == 0.0
    behind = group_forecast(_group((0, 100, 0.1), expired=5), CALM)
    assert (behind.loss_in_s, behind.is_fresh) == (0.0, False)
    assert group_forecast(_group((0, 100, None), expired=5), CALM).loss_in_s == 0.0
    # It was moved to the end: what it lost is past.
    assert group_forecast(_group((0, 0, 0), expired=0), CALM).loss_in_s == math.inf


def test_a_small_disk_shortens_the_retention() -> None:
    busy = disk_forecast(_disk(a_day=40 * GIB))
    found = group_forecast(_group((0, 100, 0), (10, 200, 10)), [busy])
    # Above 85 % the disk keeps two days, from 75 / 40 of a day on.
    assert found.by_disk
    assert found.loss_in_s == pytest.approx(max(75 / 40 * DAY_S, 38 * HOUR_S))
    old = group_forecast(_group((0, 100, 60), (10, 100, 60)), [*CALM, busy])
    assert old.loss_in_s == pytest.approx(75 / 40 * DAY_S)
    assert isinstance(busy.growth, Growth)
