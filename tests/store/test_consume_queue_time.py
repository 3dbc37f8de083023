"""The search for a store time in one ConsumeQueue, against the steps of RocketMQ 4.9.8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.store.consume_queue import ConsumeQueue, PutOutcome
from rmq.testing.storage import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER: Final = Path("consumequeue/TopicA/3")
ENTRY: Final = 20
PER_SEGMENT: Final = 10
SIZE: Final = 100
"""The size of all records, unless a test says otherwise; so entry n is at physical n * SIZE."""


def new_queue(
    storage: MemoryStorage | None = None, *, segment_bytes: int = PER_SEGMENT * ENTRY
) -> ConsumeQueue:
    return ConsumeQueue(storage or MemoryStorage(), FOLDER, "TopicA", 3, segment_bytes)


def put_entries(queue: ConsumeQueue, start: int, stop: int) -> None:
    for number in range(start, stop):
        assert (
            queue.put(PhysicalOffset(number * SIZE), SIZE, number, QueueOffset(number))
            is PutOutcome.PUT
        )


def filled_queue(count: int, storage: MemoryStorage | None = None) -> ConsumeQueue:
    queue = new_queue(storage)
    put_entries(queue, 0, count)
    return queue


# --- by time --------------------------------------------------------------------------------


def java_offset_by_time(times: Sequence[int | None], timestamp: int, segment: int, low: int) -> int:
    """RocketMQ 4.9.8 ConsumeQueue.getOffsetInQueueByTime within one file, step by step.

    A time of None stands for a record that the log has no more.
    """
    first = segment * PER_SEGMENT
    low = max(low - first, 0)
    high = min(len(times) - first, PER_SEGMENT) - 1
    target = left = right = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // 2
        stored = times[first + middle]
        if stored is None:
            low = middle + 1
            left = middle
            continue
        if stored == timestamp:
            target = middle
            break
        if stored > timestamp:
            high, right, right_time = middle - 1, middle, stored
        else:
            low, left, left_time = middle + 1, middle, stored
    if target != -1:
        found = target
    elif left_time == -1:
        found = right
    elif right_time == -1:
        found = left
    else:
        found = right if abs(timestamp - left_time) > abs(timestamp - right_time) else left
    return first + found


def offset_by_time(times: Sequence[int | None], timestamp: int) -> int:
    """Search a queue whose entry n is of a record stored at `times[n]`."""
    queue = filled_queue(len(times))
    gone = sum(stored is None for stored in times)
    log_min = gone * SIZE
    queue.correct_min_offset(PhysicalOffset(log_min))
    return queue.offset_by_time(
        timestamp, PhysicalOffset(log_min), lambda physical, _: times[physical // SIZE]
    )


@given(
    times=st.lists(st.integers(1, 60), min_size=1, max_size=35).map(sorted),
    timestamp=st.integers(0, 61),
    gone=st.integers(0, 12),
)
def test_a_time_is_found_where_a_stock_broker_finds_it_in_that_file(
    times: list[int], timestamp: int, gone: int
) -> None:
    gone = min(gone, len(times) - 1)
    held: list[int | None] = [None] * gone + list(times[gone:])
    last = (len(times) - 1) // PER_SEGMENT
    # The file whose last record is the first not to be older; files still being filled come last.
    full = [
        n
        for n in range(len(times) // PER_SEGMENT)
        if (stored := held[(n + 1) * PER_SEGMENT - 1]) is not None and stored >= timestamp
    ]
    segment = full[0] if full else last
    expected = java_offset_by_time(held, timestamp, segment, gone)
    assert offset_by_time(held, timestamp) == max(expected, 0)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        pytest.param(50, 0, id="before the first"),
        pytest.param(100, 0, id="the first"),
        pytest.param(110, 0, id="nearer to the left"),
        pytest.param(115, 0, id="between two, the left of equals"),
        pytest.param(116, 1, id="nearer to the right"),
        pytest.param(160, 2, id="the last"),
        pytest.param(999, 2, id="after the last"),
    ],
)
def test_a_time_between_two_messages_finds_the_nearer(timestamp: int, offset: int) -> None:
    assert offset_by_time([100, 130, 160], timestamp) == offset


def test_a_time_of_many_messages_finds_one_of_them() -> None:
    times = [10] * 4 + [20] * 5 + [30]
    assert 4 <= offset_by_time(times, 20) < 9
    assert offset_by_time([20] * 35, 20) < 10


def test_a_time_is_looked_for_across_segments() -> None:
    times = [n * 10 for n in range(35)]
    for number in (0, 9, 10, 19, 20, 34):
        assert offset_by_time(times, number * 10) == number
    # The end of one file is older, the beginning of the next is newer: the next one is searched.
    assert offset_by_time(times, 96) == 10
    assert offset_by_time(times, 94) == 10


def test_no_time_is_found_in_an_empty_queue_or_without_readable_records() -> None:
    assert new_queue().offset_by_time(5, PhysicalOffset(0), lambda *_: 5) == 0
    assert filled_queue(5).offset_by_time(5, PhysicalOffset(0), lambda *_: None) == 0


def test_fillers_have_no_time() -> None:
    queue = new_queue()
    put_entries(queue, 7, 12)
    asked: list[int] = []

    def store_ms_at(physical: int, size: int) -> int:
        assert size == SIZE
        asked.append(physical)
        return physical

    assert queue.offset_by_time(0, PhysicalOffset(0), store_ms_at) == 7
    assert queue.offset_by_time(900, PhysicalOffset(0), store_ms_at) == 9
    assert queue.offset_by_time(99999, PhysicalOffset(0), store_ms_at) == 11
    assert min(asked) == 700
