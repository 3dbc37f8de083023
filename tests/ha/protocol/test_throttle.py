"""The token bucket of catching up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol.throttle import TokenBucket

BURST = 64 * 1024


def test_without_a_limit_everything_goes() -> None:
    bucket = TokenBucket(0, 5.0)
    assert not bucket.is_limited
    assert bucket.allowed(5.0) == math.inf
    bucket.take(10**9)
    assert bucket.allowed(5.0) == math.inf
    assert bucket.wait_s(10**9) == 0.0


def test_it_fills_with_time_up_to_a_burst() -> None:
    bucket = TokenBucket(1_000_000, 0.0)
    assert bucket.allowed(0.0) == 0
    assert bucket.allowed(0.01) == pytest.approx(10_000)
    assert bucket.allowed(60.0) == 100_000


def test_a_small_rate_has_a_burst_that_is_worth_a_frame() -> None:
    assert TokenBucket(10, 0.0).allowed(10**9) == BURST


def test_what_is_owed_is_waited_for() -> None:
    bucket = TokenBucket(1000, 0.0)
    bucket.take(500)
    assert bucket.allowed(0.1) == 0
    assert bucket.wait_s(100) == pytest.approx(0.5)
    assert bucket.allowed(0.5) == pytest.approx(0.0)
    assert bucket.wait_s(100) == pytest.approx(0.1)


def test_more_than_a_burst_is_waited_for_as_a_burst() -> None:
    bucket = TokenBucket(BURST, 0.0)
    assert bucket.wait_s(100 * BURST) == pytest.approx(1.0)


def test_another_rate_holds_from_then_on() -> None:
    bucket = TokenBucket(1000, 0.0)
    bucket.set_rate(2000, 1.0)
    assert bucket.allowed(1.0) == pytest.approx(1000)
    assert bucket.allowed(2.0) == pytest.approx(3000)
    bucket.set_rate(0, 2.0)
    assert bucket.allowed(2.0) == math.inf
    # What was free before the limit is not saved up for it.
    bucket.set_rate(1000, 50.0)
    assert bucket.allowed(50.0) <= 3000


@given(
    st.integers(1, 10**7),
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 200_000)), max_size=60),
)
def test_no_more_goes_than_the_rate_and_one_burst(rate: int, asks: list[tuple[float, int]]) -> None:
    bucket = TokenBucket(rate, 0.0)
    now, sent = 0.0, 0
    for pause_s, size in asks:
        now += pause_s
        allowed = min(size, int(bucket.allowed(now)))
        bucket.take(allowed)
        sent += allowed
    assert sent <= rate * now + max(BURST, 0.1 * rate) + 1
