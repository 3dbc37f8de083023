"""Samples of one meter against RocketMQ 4.9.8 StatsItem, whose rules are spelt out here again."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.stats.window import DAY, HOUR, MINUTE, SPANS, Column, Figures, Meter, Span

START_MS: Final = 1_700_000_000_000


def counted(meter: Meter, value: int, *, size: int = 0, times: int = 1) -> None:
    meter.value += value
    meter.size += size
    meter.times += times


def test_a_meter_that_was_not_sampled_says_nothing() -> None:
    meter = Meter()
    counted(meter, 5)
    assert [meter.figures(span) for span in SPANS] == [Figures(), Figures(), Figures()]


@pytest.mark.parametrize(
    ("span", "interval_ms"),
    [
        pytest.param(MINUTE, 10_000, id="minute"),
        pytest.param(HOUR, 600_000, id="hour"),
        pytest.param(DAY, 3_600_000, id="day"),
    ],
)
def test_the_first_sample_stands_for_one_whole_interval(span: Span, interval_ms: int) -> None:
    meter = Meter()
    counted(meter, 300, size=6000, times=100)
    meter.sample(span, START_MS)
    assert meter.figures(span) == Figures(300, 300_000 / interval_ms, 3.0, 100)
    assert meter.figures(span, Column.SIZE) == Figures(6000, 6_000_000 / interval_ms, 60.0, 100)


@pytest.mark.parametrize(
    ("span", "intervals"),
    [
        pytest.param(MINUTE, 6, id="minute"),
        pytest.param(HOUR, 6, id="hour"),
        pytest.param(DAY, 24, id="day"),
    ],
)
def test_figures_are_the_last_sample_less_the_one_a_span_before(span: Span, intervals: int) -> None:
    meter = Meter()
    for index in range(100):
        counted(meter, index)
        meter.sample(span, START_MS + index * span.interval_ms)
    expected = sum(range(100 - intervals, 100))
    tps = expected * 1000.0 / (intervals * span.interval_ms)
    assert meter.figures(span) == Figures(expected, tps, expected / intervals, intervals)


def test_spans_are_sampled_apart() -> None:
    meter = Meter()
    counted(meter, 7)
    meter.sample(HOUR, START_MS)
    counted(meter, 3)
    meter.sample(MINUTE, START_MS)
    assert meter.figures(HOUR).sum == 7
    assert meter.figures(MINUTE).sum == 10
    assert meter.figures(DAY) == Figures()


def test_without_calls_there_is_no_share_per_call() -> None:
    meter = Meter()
    counted(meter, 50, times=0)
    meter.sample(MINUTE, START_MS)
    assert meter.figures(MINUTE) == Figures(50, 5.0, 0.0, 0)


def test_a_clock_that_went_back_gives_no_rate() -> None:
    meter = Meter()
    counted(meter, 50)
    meter.sample(MINUTE, START_MS)
    meter.sample(MINUTE, START_MS - 60_000)
    assert meter.figures(MINUTE) == Figures(50, 0.0, 50.0, 1)


def test_a_meter_is_idle_once_a_whole_day_brought_no_call() -> None:
    meter = Meter()
    counted(meter, 9)
    idle = []
    for hour in range(26):
        meter.sample(DAY, START_MS + hour * DAY.interval_ms)
        idle.append(meter.is_idle)
    # From the 1st to the 25th sample it is a day.
    assert idle == [False] * 24 + [True, True]
    counted(meter, 1)
    assert not meter.is_idle


class Snapshot(NamedTuple):
    timestamp: int
    times: int
    value: int


class JavaItem:
    """StatsItem with its list of snapshots for one minute."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def sample(self, now_ms: int, times: int, value: int) -> None:
        if not self.snapshots:
            self.snapshots.append(Snapshot(now_ms - 10_000, 0, 0))
        self.snapshots.append(Snapshot(now_ms, times, value))
        if len(self.snapshots) > 7:
            self.snapshots.pop(0)

    def figures(self) -> Figures:
        if not self.snapshots:
            return Figures()
        first, last = self.snapshots[0], self.snapshots[-1]
        total = last.value - first.value
        times = last.times - first.times
        return Figures(
            total,
            (total * 1000.0) / (last.timestamp - first.timestamp),
            total / times if times > 0 else 0.0,
            times,
        )


@given(
    st.lists(
        st.tuples(st.integers(0, 1_000_000_000), st.integers(0, 1000), st.integers(9_000, 11_000)),
        max_size=30,
    )
)
def test_a_minute_is_what_java_makes_of_it(calls: list[tuple[int, int, int]]) -> None:
    meter, java, now_ms = Meter(), JavaItem(), START_MS
    for value, times, pause_ms in calls:
        counted(meter, value, times=times)
        now_ms += pause_ms
        meter.sample(MINUTE, now_ms)
        java.sample(now_ms, meter.times, meter.value)
        assert meter.figures(MINUTE) == java.figures()
