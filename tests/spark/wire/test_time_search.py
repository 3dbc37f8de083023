"""The first message of a time, found by looking at few."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.blocking import BlockingConsumer
from rmq.spark.wire.cluster import Cluster
from rmq.spark.wire.places import Place, PlaceKind
from rmq.spark.wire.time_search import first_from
from tests.spark.wire.played_queue import QUEUE, played_queue, record

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


def test_files_of_a_queue_that_are_deleted_are_old() -> None:
    """A stock broker that has deleted all messages of a queue still begins it where it did."""
    with played_queue() as queue:
        assert queue.cluster is not None
        queue.record = lambda offset: record(offset, store_ms=1_000 + offset)
        queue.deleted, queue.missing = range(30), set(range(30, 60))
        with BlockingConsumer(queue.cluster.nameserver, "tests") as consumer:
            cluster = Cluster(consumer, patience_s=0.0)
            spans = cluster.spans([QUEUE])
            for time_ms, found in ((0, 60), (1_060, 60), (1_080, 80), (9_999, 100)):
                place = Place(PlaceKind.TIME, "startingTimestamp", time_ms=time_ms)
                known = cluster.known(spans, [place], "")
                assert known.by_time[time_ms] == {QUEUE: found}
