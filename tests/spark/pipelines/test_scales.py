"""Axes with round ticks, and how values are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.spark.pages.scales import (
    Unit,
    log_scale,
    tick_time_text,
    time_scale,
    time_step,
    value_scale,
)

_MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("highest", "unit", "ticks"),
    [
        (10, Unit.COUNT, [0, 2, 4, 6, 8, 10]),
        (4_321, Unit.COUNT, [0, 1_000, 2_000, 3_000, 4_000, 5_000]),
        (0, Unit.COUNT, [0, 1]),
        (2, Unit.COUNT, [0, 1, 2]),
        (math.nan, Unit.COUNT, [0, 1]),
        (0.05, Unit.SECONDS, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
        (300, Unit.SECONDS, [0, 60, 120, 180, 240, 300]),
        (15 * _MIB, Unit.BYTES, [0, 4 * _MIB, 8 * _MIB, 12 * _MIB, 16 * _MIB]),
        (100, Unit.PERCENT, [0, 20, 40, 60, 80, 100]),
    ],
)
def test_ticks_are_round(highest: float, unit: Unit, ticks: list[float]) -> None:
    assert value_scale(highest, unit, 200, 10).ticks == pytest.approx(ticks)


def test_an_axis_may_go_below_zero() -> None:
    scale = value_scale(80, Unit.COUNT, 200, 0, lowest=-30)
    assert (scale.low, scale.high) == (-50, 100)
    assert scale.place(-50) == 200
    assert scale.place(100) == 0


@given(
    highest=st.floats(1e-6, 1e18),
    unit=st.sampled_from(list(Unit)),
    share=st.floats(0, 1),
)
def test_every_value_has_a_place_on_its_axis(highest: float, unit: Unit, share: float) -> None:
    scale = value_scale(highest, unit, 200, 10)
    assert 2 <= len(scale.ticks) <= 8
    assert scale.high >= highest * (1 - 1e-9)
    assert 10 <= scale.place(highest * share) <= 200
    assert all(unit.text(tick) for tick in scale.ticks)


def test_logarithmic_axes() -> None:
    scale = log_scale(0.002, 0.4, 200, 0)
    assert scale.ticks == pytest.approx((0.001, 0.01, 0.1, 1))
    assert scale.place(0.001) == 200
    assert scale.place(1) == 0
    assert scale.place(0) == 200
    assert log_scale(0.01, 0.01, 1, 0).ticks == pytest.approx((0.01, 0.1))


def test_times_are_at_whole_minutes_hours_and_days() -> None:
    midnight = 1_763_424_000.0
    hours = time_scale(midnight - 3_000, midnight + 3_000, 0, 100)
    assert [tick_time_text(tick, hours.ticks) for tick in hours.ticks] == [
        *("23:15", "23:30", "23:45"),
        *("Nov 18", "00:15", "00:30", "00:45"),
    ]
    assert [tick_time_text(30, (0.0, 30.0)), tick_time_text(7 * 86_400, ())] == [
        "00:00:30",
        "Jan 8",
    ]
    assert time_step(61) == 120
    assert time_step(800 * 86_400) == 3 * 364 * 86_400
    assert time_scale(5, 5, 0, 1).high == 65


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Unit.COUNT, 0, "0"),
        (Unit.COUNT, 999, "999"),
        (Unit.COUNT, 12_345, "12.3 k"),
        (Unit.COUNT, 999_900, "1 M"),
        (Unit.COUNT, 0.25, "0.25"),
        (Unit.BYTES, 16 * _MIB, "16 MiB"),
        (Unit.BYTES, 1.5 * _MIB, "1.5 MiB"),
        (Unit.SECONDS, 0, "0"),
        (Unit.SECONDS, 0.000_02, "20 µs"),
        (Unit.SECONDS, 0.002, "2 ms"),
        (Unit.SECONDS, 0.9999, "1 s"),
        (Unit.SECONDS, 100, "1 min 40 s"),
        (Unit.SECONDS, -100, "-1 min 40 s"),
        (Unit.RATIO, 1.5, "1.5 x"),
        (Unit.PERCENT, 12.345, "12.3 %"),
        (Unit.COUNT, math.nan, "-"),
    ],
)
def test_how_values_are_written(unit: Unit, value: float, text: str) -> None:
    assert unit.text(value) == text
