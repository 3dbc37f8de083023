from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.stats.store import TIME_CLASSES, Mornings, RatesPerSecond, StoreStats

if TYPE_CHECKING:
    from trio.testing import MockClock

BOOT_MS: Final = 1_700_000_000_000
START_MS: Final = 5_000
TODAY: Final = date(2024, 2, 28)


def sampled_for(seconds: int, stats: StoreStats) -> StoreStats:
    """Sample so many seconds after the first sample, storing one message before each."""
    stats.sample(START_MS, TODAY)
    for second in range(1, seconds + 1):
        stats.put(1, 100)
        stats.sample(START_MS + second * 1000, TODAY)
    return stats


# --- totals and rates ---------------------------------------------------------------------------


def test_puts_and_reads_add_up() -> None:
    stats = StoreStats(BOOT_MS)
    stats.put(3, 300)
    stats.put(1, 50)
    stats.put_failed()
    stats.put_failed(2)
    stats.get(32, 4)
    stats.get(8, 1)
    stats.get(0)
    assert stats.totals == (4, 2, 1, 40)
    assert stats.put_size == 350
    assert stats.put_failures == 3
    assert stats.get_ms_max == 4


@pytest.mark.parametrize(
    ("seconds", "known"),
    [
        pytest.param(0, [], id="one-sample"),
        pytest.param(9, [], id="almost-10-s"),
        pytest.param(10, [10], id="10-s"),
        pytest.param(59, [10], id="almost-a-minute"),
        pytest.param(60, [10, 60], id="a-minute"),
        pytest.param(599, [10, 60], id="almost-10-minutes"),
        pytest.param(600, [10, 60, 600], id="10-minutes"),
        pytest.param(2000, [10, 60, 600], id="long-after"),
    ],
)
def test_a_rate_is_known_once_there_are_samples_enough(seconds: int, known: list[int]) -> None:
    stats = sampled_for(seconds, StoreStats(BOOT_MS))
    rates = {span_s: stats.rate(span_s) for span_s in (10, 60, 600)}
    assert rates == {
        span_s: RatesPerSecond(put=1.0) if span_s in known else None for span_s in rates
    }


def test_a_rate_looks_back_no_further_than_its_span() -> None:
    stats = StoreStats(BOOT_MS)
    stats.get(1000)
    stats.sample(START_MS, TODAY)
    for second in range(1, 11):
        stats.get(second)
        stats.get(0)
        stats.sample(START_MS + second * 1000, TODAY)
    assert stats.rate(10) == RatesPerSecond(found=1.0, missed=1.0, transferred=5.5)


def test_a_rate_is_by_the_clock_not_by_the_number_of_samples() -> None:
    stats = StoreStats(BOOT_MS)
    for step in range(11):
        stats.sample(START_MS + step * 2000, TODAY)
        stats.put(10, 100)
    assert stats.rate(10) == RatesPerSecond(put=5.0)


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    stats = StoreStats(BOOT_MS)
    for _ in range(11):
        stats.sample(START_MS, TODAY)
        stats.put(10, 100)
    assert stats.rate(10) == RatesPerSecond()


# --- how long storing took ----------------------------------------------------------------------


def last_minute(stats: StoreStats) -> StoreStats:
    """Let the minute end in which everything so far happened."""
    stats.sample(START_MS, TODAY)
    stats.sample(START_MS + 60_000, TODAY)
    return stats


@pytest.mark.parametrize(
    ("elapsed_ms", "label"),
    [
        pytest.param(-1, "[<=0ms]", id="clock-went-back"),
        pytest.param(0, "[<=0ms]", id="none"),
        pytest.param(0.4, "[<=0ms]", id="less-than-1-ms"),
        pytest.param(1, "[0~10ms]", id="1-ms"),
        pytest.param(9, "[0~10ms]", id="9-ms"),
        pytest.param(10, "[10~50ms]", id="10-ms"),
        pytest.param(50, "[50~100ms]", id="50-ms"),
        pytest.param(100, "[100~200ms]", id="100-ms"),
        pytest.param(200, "[200~500ms]", id="200-ms"),
        pytest.param(500, "[500ms~1s]", id="500-ms"),
        pytest.param(1000, "[1~2s]", id="1-s"),
        pytest.param(2000, "[2~3s]", id="2-s"),
        pytest.param(3000, "[3~4s]", id="3-s"),
        pytest.param(4000, "[4~5s]", id="4-s"),
        pytest.param(5000, "[5~10s]", id="5-s"),
        pytest.param(9999, "[5~10s]", id="almost-10-s"),
        pytest.param(10_000, "[10s~]", id="10-s"),
        pytest.param(10**9, "[10s~]", id="for-ever"),
    ],
)
def test_times_are_counted_by_class(elapsed_ms: float, label: str) -> None:
    stats = StoreStats(BOOT_MS)
    stats.put_took(elapsed_ms, 3)
    expected = tuple(3 if name == label else 0 for name in TIME_CLASSES)
    assert last_minute(stats).put_times_by_class == expected


def test_times_are_those_of_the_last_whole_minute() -> None:
    stats = StoreStats(BOOT_MS)
    stats.sample(START_MS, TODAY)
    stats.put_took(20)
    stats.sample(START_MS + 59_999, TODAY)
    assert sum(stats.put_times_by_class) == 0
    assert stats.put_ms_at(0.99) == 0.0
    stats.sample(START_MS + 60_000, TODAY)
    assert sum(stats.put_times_by_class) == 1
    stats.put_took(30, 5)
    stats.sample(START_MS + 120_000, TODAY)
    assert sum(stats.put_times_by_class) == 5
    stats.sample(START_MS + 180_000, TODAY)
    assert sum(stats.put_times_by_class) == 0
    assert stats.put_ms_max == 30


@pytest.mark.parametrize(
    ("times", "quantile", "expected_ms"),
    [
        pytest.param({}, 0.99, 0.0, id="nothing"),
        pytest.param({0: 100}, 0.99, 0.99, id="spread-over-the-first-class"),
        pytest.param({0: 99, 7: 1}, 0.99, 1.0, id="the-slow-one-is-above"),
        pytest.param({0: 90, 7: 10}, 0.99, 6.9, id="among-the-slow"),
        pytest.param({0: 1, 44: 999}, 0.5, 42 + 2 * 499 / 999, id="classes-of-2-ms"),
        pytest.param({300: 1000}, 0.999, 250 + 50 * 0.999, id="classes-of-50-ms"),
        pytest.param({10_000: 1000}, 0.999, 9000 + 1000 * 0.999, id="the-last-class"),
        pytest.param({60_000: 1000}, 0.99, 10_000.0, id="beyond-all-classes"),
        pytest.param({0: 5, 1: 10, 3: 2, 4: 2, 9: 1}, 0.999, 4.0, id="few-of-all"),
    ],
)
def test_percentiles_are_found_within_their_class(
    times: dict[int, int], quantile: float, expected_ms: float
) -> None:
    stats = StoreStats(BOOT_MS)
    for elapsed_ms, count in times.items():
        stats.put_took(elapsed_ms, count)
    assert last_minute(stats).put_ms_at(quantile) == pytest.approx(expected_ms)


@given(st.lists(st.floats(0, 9_999), min_size=1, max_size=200), st.floats(0, 0.999))
def test_a_percentile_is_off_by_no_more_than_its_class_is_wide(
    times: list[float], quantile: float
) -> None:
    stats = StoreStats(BOOT_MS)
    for elapsed_ms in times:
        stats.put_took(elapsed_ms)
    found = last_minute(stats).put_ms_at(quantile)
    rank = int(len(times) * quantile)
    exact = sorted(times)[max(0, rank - 1)] if rank else 0.0
    ends_and_widths = ((20, 1), (50, 2), (100, 5), (200, 10), (500, 50), (1000, 100), (10**4, 1000))
    width = next(width for end, width in ends_and_widths if exact <= end)
    assert abs(found - exact) <= width


# --- days ---------------------------------------------------------------------------------------


def test_at_midnight_the_totals_are_those_of_the_morning() -> None:
    stats = StoreStats(BOOT_MS)
    stats.sample(START_MS, TODAY)
    stats.put(10, 1)
    stats.get(4)
    stats.sample(START_MS + 1000, TODAY)
    assert stats.mornings == Mornings()
    stats.sample(START_MS + 2000, TODAY + timedelta(days=1))
    assert stats.mornings == Mornings(put_today=10, get_today=4)
    stats.put(5, 1)
    stats.get(1)
    stats.sample(START_MS + 3000, TODAY + timedelta(days=2))
    assert stats.mornings == Mornings(10, 15, 4, 5)


def test_a_clock_that_goes_back_over_midnight_makes_no_second_morning() -> None:
    stats = StoreStats(BOOT_MS)
    stats.sample(START_MS, TODAY)
    stats.put(10, 1)
    stats.sample(START_MS + 1000, TODAY + timedelta(days=1))
    stats.put(10, 1)
    stats.sample(START_MS + 2000, TODAY)
    stats.sample(START_MS + 3000, TODAY + timedelta(days=1))
    assert stats.mornings == Mornings(put_today=10)


# --- the task -----------------------------------------------------------------------------------


async def test_the_task_samples_every_second(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stats = StoreStats(BOOT_MS)
    nursery.start_soon(stats.run)
    await trio.sleep(0.5)
    for _ in range(600):
        stats.put(2, 100)
        await trio.sleep(1)
    assert [stats.rate(span_s) for span_s in (10, 60, 600)] == [RatesPerSecond(put=2.0)] * 3
