"""How long a caller that needs a route waits for a master, and how its search fails."""

from __future__ import annotations

import pytest

from rmq.client.core.producing.master_waits import PAUSE_S_MAX, PAUSE_S_MIN, NoMasterError
from rmq.client.core.producing.route_search import RouteSearch
from rmq.errors import RequestTimeoutError

ERROR = NoMasterError("ns:9876", "T", "none of its queues takes messages now")


def search(timeout_s: float = 3.0, now: float = 100.0) -> RouteSearch:
    return RouteSearch("T", asked="ns:9876", timeout_s=timeout_s, now=now)


def test_the_first_request_is_repeated_at_once_and_the_next_ones_after_longer_pauses() -> None:
    under_way, now, pauses = search(), 100.0, []
    for _ in range(6):
        pauses.append(under_way.no_master(ERROR, now))
        now += pauses[-1]
    assert pauses == [0.0, PAUSE_S_MIN, 0.1, 0.2, 0.4, PAUSE_S_MAX]


def test_the_last_pause_ends_with_the_time_of_the_caller() -> None:
    under_way = search(timeout_s=1.0)
    under_way.no_master(ERROR, 100.0)
    assert under_way.no_master(ERROR, 100.97) == pytest.approx(0.03)


@pytest.mark.parametrize("now", [101.0, 105.0])
def test_when_the_time_is_over_the_error_is_that_there_is_no_master(now: float) -> None:
    under_way = search(timeout_s=1.0)
    with pytest.raises(NoMasterError) as caught:
        under_way.no_master(ERROR, now)
    assert caught.value is ERROR


def test_a_search_that_is_ended_during_a_pause_fails_with_what_was_answered_last() -> None:
    under_way = search()
    under_way.no_master(ERROR, 100.0)
    assert under_way.timed_out() is ERROR


def test_a_search_without_any_answer_times_out() -> None:
    error = search(timeout_s=2.0).timed_out()
    assert isinstance(error, RequestTimeoutError)
    assert "asking where topic T is" in str(error)
