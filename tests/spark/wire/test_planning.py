"""Who reads what: shares, splits, and what becomes of queues that are not as they were."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue
from rmq.spark.wire.planning import (
    Range,
    Span,
    apportion,
    batch_ranges,
    limited,
    split,
    stream_ends,
    stream_ranges,
)


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="a", queue_id=number)


Q0, Q1, Q2 = map(queue, range(3))
sizes = st.lists(st.integers(1, 10**12), min_size=1, max_size=20)
totals = st.integers(1, 10**13)
spans = st.builds(
    lambda first, size: Span(first, first + size), st.integers(0, 10**6), st.integers(0, 10**6)
)


# --- shares ----------------------------------------------------------------------------------


@given(sizes, totals, st.integers(0, 1000))
def test_all_is_dealt_out_and_nobody_gets_more_than_there_is(
    parts: list[int], total: int, turn: int
) -> None:
    shares = apportion(parts, total, turn)
    assert sum(shares) == min(total, sum(parts))
    assert all(0 <= share <= size for share, size in zip(shares, parts, strict=True))
    if total >= len(parts):
        assert all(shares)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=10), st.integers(1, 5000))
def test_shares_are_in_proportion(parts: list[int], total: int) -> None:
    shares = apportion(parts, total)
    if len(parts) <= total < sum(parts):
        # One each, and the rest by what is left of each: at most one message off.
        for share, size in zip(shares, parts, strict=True):
            fair = 1 + (total - len(parts)) * (size - 1) / (sum(parts) - len(parts))
            assert abs(share - fair) < 1


@given(
    st.dictionaries(st.integers(0, 30).map(queue), st.integers(1, 50), min_size=1),
    st.integers(1, 40),
)
def test_within_a_limit_every_queue_is_read_to_its_end(
    waiting: dict[MessageQueue, int], limit: int
) -> None:
    places = dict.fromkeys(waiting, 7)
    ends = {each: 7 + size for each, size in waiting.items()}
    rounds = 0
    while places != ends:
        reached = limited(places, ends, limit)
        read = sum(reached[each] - places[each] for each in places)
        assert 1 <= read <= limit
        assert all(places[each] <= reached[each] <= ends[each] for each in places)
        places = reached
        rounds += 1
    assert rounds == -(-sum(waiting.values()) // limit)


@given(st.integers(2, 12), st.integers(1, 11))
def test_no_queue_waits_for_ever(count: int, limit: int) -> None:
    # All of them get more than is read, all the time.
    places = {queue(number): 0 for number in range(count)}
    for _ in range(count):
        ends = {each: place + 1000 * (each.queue_id + 1) for each, place in places.items()}
        places = limited(places, ends, limit)
    assert all(places.values())


ranges = st.dictionaries(
    st.integers(0, 5).map(queue),
    st.tuples(st.integers(0, 10**6), st.integers(0, 5000)),
).map(lambda found: [Range(each, start, start + size) for each, (start, size) in found.items()])


@given(ranges, st.integers(0, 50), st.integers(0, 300))
def test_what_is_split_is_covered_exactly_once(
    whole: list[Range], partitions_min: int, records_max: int
) -> None:
    parts = split(whole, partitions_min=partitions_min, records_max=records_max)
    assert all(part.size > 0 for part in parts)
    if records_max:
        assert all(part.size <= records_max for part in parts)
    total = sum(each.size for each in whole)
    assert len(parts) >= min(partitions_min, total)
    for each in whole:
        own = [part for part in parts if part.queue == each.queue]
        if each.size:
            assert (own[0].start, own[-1].end) == (each.start, each.end)
            assert all(a.end == b.start for a, b in itertools.pairwise(own))
        else:
            assert own == []


def test_without_a_wish_every_queue_is_one_part() -> None:
    whole = [Range(Q0, 5, 10**9), Range(Q1, 3, 4), Range(Q2, 3, 3)]
    assert split(whole) == whole[:2]


def test_a_query_has_no_more_tasks_than_are_of_use() -> None:
    with pytest.raises(ConfigError, match="maxRecordsPerPartition: 1 makes 1000000000000 tasks"):
        split([Range(Q0, 0, 10**12)], records_max=1)


# --- streams ---------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 5).map(queue), spans), st.data())
def test_a_stream_reads_everything_once_and_comes_to_an_end(
    found: dict[MessageQueue, Span], data: st.DataObject
) -> None:
    starts = {
        each: data.draw(st.integers(span.first, span.end))
        for each, span in found.items()
        if data.draw(st.booleans(), label="known")
    }
    total = sum(span.end - span.first for span in found.values())
    limit = data.draw(st.one_of(st.just(0), st.integers(total // 50 + 1, total + 1)))
    pinned = {each: span.end for each, span in found.items()}
    places = dict(starts)
    read: list[Range] = []
    for _ in range(100):
        new = found.keys() - places.keys()
        ends, losses = stream_ends(places, found, pinned=pinned, limit=limit)
        # All of them have the same broker: it was there if any of its queues was.
        lost = {each for each in new if places and found[each].first > 0}
        assert {loss.queue for loss in losses} == lost
        if ends == places:
            break
        ranges, losses = stream_ranges(places, ends, found)
        assert not losses
        assert ranges or new
        assert sum(each.size for each in ranges) <= (limit or total)
        read += ranges
        places = ends
    assert places == pinned
    for each, span in found.items():
        own = sorted(part for part in read if part.queue == each)
        assert sum(part.size for part in own) == span.end - starts.get(each, span.first)
        assert all(a.end == b.start for a, b in itertools.pairwise(own))


def test_a_queue_without_news_stays_where_it_is() -> None:
    assert stream_ends({Q0: 5}, {Q0: Span(0, 5)}) == ({Q0: 5}, [])
    assert stream_ranges({Q0: 5}, {Q0: 5}, {}) == ([], [])


def test_a_new_queue_is_read_from_its_first_message() -> None:
    found = {Q0: Span(0, 5), Q1: Span(0, 9)}
    # Where it begins is stored first: whatever happens to it later can be noticed then.
    assert stream_ends({Q0: 5}, found) == ({Q0: 5, Q1: 0}, [])
    assert stream_ranges({Q0: 5}, {Q0: 5, Q1: 0}, {}) == ([], [])
    assert stream_ends({Q0: 5, Q1: 0}, found) == ({Q0: 5, Q1: 9}, [])
    assert stream_ranges({Q0: 5, Q1: 0}, {Q0: 5, Q1: 9}, found) == ([Range(Q1, 0, 9)], [])
    # It came after the query had begun, which is to stop where queues ended then.
    assert stream_ends({Q0: 5}, found, pinned={Q0: 5}) == ({Q0: 5}, [])


def test_a_new_queue_of_a_known_broker_that_has_lost_messages_is_a_loss() -> None:
    ends, losses = stream_ends({Q0: 5}, {Q0: Span(0, 5), Q1: Span(4, 9)})
    assert ends == {Q0: 5, Q1: 4}
    assert [loss.queue for loss in losses] == [Q1]
    assert (
        "new to this query (created or chosen since it began), and begins at offset 4"
        in losses[0].what
    )
    # Once it is passed over it is no loss any more.
    assert stream_ends(ends, {Q0: Span(0, 5), Q1: Span(4, 9)}) == ({Q0: 5, Q1: 9}, [])


def test_what_a_broker_deleted_before_the_query_knew_it_is_no_loss() -> None:
    other = MessageQueue(topic="T", broker_name="b", queue_id=0)
    assert stream_ends({Q0: 5}, {Q0: Span(0, 5), other: Span(4, 9)}) == ({Q0: 5, other: 4}, [])


def test_only_a_master_says_where_a_new_queue_begins() -> None:
    slave = {Q0: Span(0, 5), Q1: Span(4, 9, is_master=False)}
    assert stream_ends({Q0: 5}, slave) == ({Q0: 5}, [])


def test_a_queue_that_is_gone_is_a_loss_and_keeps_its_place() -> None:
    ends, losses = stream_ends({Q0: 5, Q1: 7}, {Q0: Span(0, 6)})
    assert ends == {Q0: 6, Q1: 7}
    assert [loss.queue for loss in losses] == [Q1]
    assert "it is gone, read up to offset 7: the topic was deleted" in losses[0].what
    # Its broker is only away.
    found = {Q0: Span(0, 6)}
    assert stream_ends({Q0: 5, Q1: 7}, found, away={Q1}) == ({Q0: 6, Q1: 7}, [])
    # It had a part in a batch that is planned again.
    ranges, losses = stream_ranges({Q0: 5, Q1: 7}, {Q0: 6, Q1: 9}, {Q0: Span(0, 6)})
    assert ranges == [Range(Q0, 5, 6)]
    assert [loss.queue for loss in losses] == [Q1]


def test_what_retention_deleted_is_a_loss() -> None:
    found = {Q0: Span(8, 20)}
    # Only deleted once it is to be read.
    assert stream_ends({Q0: 5}, found, limit=4) == ({Q0: 12}, [])
    ranges, losses = stream_ranges({Q0: 5}, {Q0: 12}, found)
    assert ranges == [Range(Q0, 8, 12)]
    assert "offsets 5 to 8 are wanted, and it begins at 8" in losses[0].what
    ranges, losses = stream_ranges({Q0: 5}, {Q0: 7}, found)
    assert ranges == []
    assert "offsets 5 to 7" in losses[0].what


def test_a_failover_that_lowers_the_end_is_a_loss() -> None:
    found = {Q0: Span(0, 80)}
    ends, losses = stream_ends({Q0: 100}, found)
    assert ends == {Q0: 80}, "reading goes on from the new end"
    assert "up to 100, and ends at 80 now" in losses[0].what
    assert "failover" in losses[0].what
    ranges, losses = stream_ranges({Q0: 100}, {Q0: 80}, found)
    assert ranges == []
    assert len(losses) == 1
    # Below a planned end.
    ranges, losses = stream_ranges({Q0: 50}, {Q0: 100}, found)
    assert ranges == [Range(Q0, 50, 80)]
    assert "up to 100, and ends at 80 now" in losses[0].what
    # Below where the query is to stop.
    ends, losses = stream_ends({Q0: 50}, found, pinned={Q0: 100})
    assert ends == {Q0: 80}
    assert len(losses) == 1
    assert stream_ends({Q0: 80}, found, pinned={Q0: 100})[0] == {Q0: 80}


def test_a_slave_is_never_believed_that_the_end_has_gone_back() -> None:
    slave = {Q0: Span(0, 80, is_master=False)}
    assert stream_ends({Q0: 100}, slave) == ({Q0: 100}, [])
    assert stream_ends({Q0: 50}, slave) == ({Q0: 80}, [])
    assert stream_ends({Q0: 50}, slave, pinned={Q0: 100}) == ({Q0: 100}, [])
    assert stream_ranges({Q0: 50}, {Q0: 100}, slave) == ([Range(Q0, 50, 100)], [])


def test_a_slave_is_never_believed_that_messages_are_deleted() -> None:
    """A slave that was added later may begin behind its master."""
    slave = {Q0: Span(60, 80, is_master=False)}
    assert stream_ranges({Q0: 50}, {Q0: 70}, slave) == ([Range(Q0, 50, 70)], [])
    assert stream_ends({Q0: 50}, slave, limit=5) == ({Q0: 55}, []), "all of it counts"
    assert batch_ranges({Q0: 50}, {Q0: 70}, slave) == ([Range(Q0, 50, 70)], [])


# --- batches ---------------------------------------------------------------------------------


def test_a_batch_reads_from_start_to_end() -> None:
    found = {Q0: Span(2, 10), Q1: Span(0, 0), Q2: Span(0, 9)}
    starts = {Q0: 2, Q1: 0, Q2: 5}
    assert batch_ranges(starts, {Q0: 10, Q1: 0, Q2: 3}, found) == ([Range(Q0, 2, 10)], [])


def test_a_batch_that_wants_what_is_not_there_is_a_loss() -> None:
    found = {Q0: Span(2, 10), Q1: Span(2, 10), Q2: Span(2, 10)}
    ranges, losses = batch_ranges({Q0: 1, Q1: 4, Q2: 11}, {Q0: 10, Q1: 12, Q2: 10}, found)
    assert ranges == [Range(Q0, 2, 10), Range(Q1, 4, 10)]
    assert [loss.queue for loss in sorted(losses)] == [Q0, Q1, Q2]
    slave = {Q0: Span(2, 10, is_master=False)}
    assert batch_ranges({Q0: 11}, {Q0: 12}, slave) == ([Range(Q0, 11, 12)], [])
