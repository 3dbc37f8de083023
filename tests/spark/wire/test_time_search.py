"""The first message of a time, found by looking at few."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from rmq.spark.wire.time_search import first_from

if TYPE_CHECKING:
    from collections.abc import Sequence


def search(times: Sequence[int], first: int, hint: int, wanted: int) -> tuple[int, int]:
    """Return what is found in a queue whose messages from `first` on have these times, and after
    how many looks."""
    end = first + len(times)
    looks = 0
    searching = first_from(first, end, hint)
    try:
        place = next(searching)
        while True:
            assert first <= place < end
            looks += 1
            place = searching.send(times[place - first] >= wanted)
    except StopIteration as found:
        return found.value, looks


@given(
    st.lists(st.integers(0, 20), max_size=300).map(sorted),
    st.integers(0, 10**9),
    st.integers(-10, 310),
    st.integers(-1, 22),
)
def test_the_first_of_its_time_is_found(
    times: list[int], first: int, hint: int, wanted: int
) -> None:
    found, looks = search(times, first, first + hint, wanted)
    assert found == first + bisect_left(times, wanted)
    assert looks <= 2 * len(times).bit_length() + 2


def test_a_good_hint_makes_it_quick() -> None:
    times = range(10**6)
    assert search(times, 0, 700_000, 700_000) == (700_000, 2)
    assert search(times, 0, 700_003, 700_000)[1] <= 6
    # A million messages of one millisecond, and a broker that answers with any of them.
    for hint in (0, 123_456, 10**6):
        found, looks = search([5] * 10**6, 0, hint, 5)
        assert found == 0
        assert looks <= 42
