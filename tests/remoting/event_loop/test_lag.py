"""How late the event loop is: what is counted, when a line is due, and who measures it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.remoting.event_loop.lag import BOUNDS_S, LINE_INTERVAL_S, LoopLag
from rmq.remoting.event_loop.watch import INTERVAL_S, watch_loop

if TYPE_CHECKING:
    from trio.testing import MockClock


def test_each_observation_is_counted_in_its_bucket() -> None:
    lag = LoopLag()
    for lag_s in (0.0, 0.001, 0.0011, 0.02, 0.3, 11.0, -0.5):
        lag.note(lag_s, 0.0)
    buckets = dict(lag.histogram.buckets())
    assert list(buckets) == [*map(str, BOUNDS_S), "+Inf"]
    assert (buckets["0.001"], buckets["0.0025"], buckets["0.02"]) == (3, 4, 5)
    assert (buckets["0.25"], buckets["0.5"], buckets["10.0"], buckets["+Inf"]) == (5, 6, 6, 7)
    assert lag.histogram.count == 7
    assert lag.histogram.sum == pytest.approx(11.3221)
    assert lag.max_s == 11.0


def test_a_long_wait_is_told_with_the_requests_served_last() -> None:
    lag = LoopLag()
    assert lag.note(0.25, 1.0, (310, 34)) is None
    assert lag.note(0.5, 2.0, (310, 34, 9999), 0.25) == (
        "all connections had to wait for 0.50 s, with 0.25 s of processor time: a step of the event"
        " loop took long; served last: request (9999), HEART_BEAT (34), SEND_MESSAGE_V2 (310)",
        True,
    )


def test_a_loop_that_got_no_processor_time_is_not_to_blame() -> None:
    held_up = LoopLag().note(0.5, 2.0, (310,), 0.24)
    assert held_up is not None
    assert not held_up.is_own
    assert held_up.line == (
        "all connections had to wait for 0.50 s, with 0.24 s of processor time: the machine was"
        " busy, or a call of the event loop waited for it; served last: SEND_MESSAGE_V2 (310)"
    )


def test_there_is_one_line_in_some_time_and_it_tells_of_the_others() -> None:
    lag = LoopLag()
    assert lag.note(0.3, 100.0) is not None
    assert lag.note(4.0, 100.0 + LINE_INTERVAL_S / 2) is None
    assert lag.note(0.3, 100.0 + LINE_INTERVAL_S - 0.1) is None
    held_up = lag.note(0.3, 100.0 + LINE_INTERVAL_S)
    assert held_up is not None
    assert held_up.line.endswith("none; 2 times more since the last such line, for up to 4.00 s")
    later = lag.note(0.3, 100.0 + 2 * LINE_INTERVAL_S)
    assert later is not None
    assert later.line.endswith("served last: none")


async def test_the_task_measures_how_late_it_wakes(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq.remoting")
    lag = LoopLag()
    async with trio.open_nursery() as nursery:
        # The clock is one of the processor here: the loop works all the time.
        nursery.start_soon(watch_loop, lag, lambda: (34,), trio.current_time)
        for late_s in (0.0, 0.004, 2.0):
            await trio.testing.wait_all_tasks_blocked()
            # The clock goes on while no task runs, as it does during a long step.
            mock_clock.jump(INTERVAL_S + late_s)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    buckets = dict(lag.histogram.buckets())
    assert (buckets["0.001"], buckets["0.005"], buckets["1.0"], buckets["2.5"]) == (1, 2, 2, 3)
    assert [(each.levelname, each.getMessage()[:38]) for each in caplog.records] == [
        ("WARNING", "all connections had to wait for 2.00 s")
    ]
    assert "HEART_BEAT (34)" in caplog.text
