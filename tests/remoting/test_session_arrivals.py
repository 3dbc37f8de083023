"""Since when bytes have been waiting, told from how many there were after each read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.remoting.session import Arrivals


def test_what_is_read_at_once_has_not_waited() -> None:
    arrivals = Arrivals()
    assert arrivals.read(100, 0, 1.0) == 1.0
    assert arrivals.read(100, 0, 5.0) == 5.0
    assert not arrivals.is_behind


def test_what_was_there_after_the_last_read_has_waited_since_then() -> None:
    arrivals = Arrivals()
    assert arrivals.read(64, 100, 1.0) == 1.0
    assert arrivals.read(64, 36, 2.0) == 1.0
    assert arrivals.read(64, 0, 3.0) == 1.0
    assert arrivals.read(64, 0, 4.0) == 4.0


def test_bytes_that_came_later_count_from_when_they_were_seen() -> None:
    arrivals = Arrivals()
    arrivals.read(64, 64, 1.0)
    # The 64 of before are read, and 128 have come behind them.
    assert arrivals.read(64, 128, 2.0) == 1.0
    assert arrivals.read(64, 64, 3.0) == 2.0
    assert arrivals.read(64, 0, 4.0) == 2.0


def test_a_pause_of_our_own_does_not_count() -> None:
    arrivals = Arrivals()
    arrivals.read(64, 1000, 1.0)
    arrivals.forget()
    assert arrivals.read(64, 0, 100.0) == 100.0


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 64), st.floats(0.001, 1)),
        min_size=1,
        max_size=200,
    )
)
def test_no_wait_is_told_longer_than_it_was(steps: list[tuple[int, int, float]]) -> None:
    """Before every read some bytes arrive; what is told is never before the first unread came."""
    arrivals = Arrivals()
    arrived_at: list[float] = []
    read = 0
    now = 0.0
    for came, at_most, pause in steps:
        arrived_at += [now] * came
        now += pause
        count = min(at_most, len(arrived_at) - read)
        if not count:
            continue
        since = arrivals.read(count, len(arrived_at) - read - count, now)
        assert arrived_at[read] <= since <= now
        read += count
