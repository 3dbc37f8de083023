"""Starts and ends as options name them, turned into offsets."""

from __future__ import annotations

import pytest

from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue
from rmq.spark.wire.places import Known, Place, PlaceKind, doubts, resolve
from rmq.spark.wire.planning import Span

Q0, Q1 = (MessageQueue(topic="T", broker_name="a", queue_id=number) for number in range(2))
SPANS = {Q0: Span(2, 10), Q1: Span(0, 0)}


def test_queues_begin_and_end_where_brokers_say() -> None:
    known = Known(SPANS)
    assert resolve(Place(PlaceKind.EARLIEST, "startingOffsets"), known) == {Q0: 2, Q1: 0}
    assert resolve(Place(PlaceKind.LATEST, "endingOffsets"), known) == {Q0: 10, Q1: 0}


def test_offsets_are_taken_at_their_word() -> None:
    def at(offsets: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        place = Place(PlaceKind.OFFSETS, "startingOffsets", offsets=offsets)
        return resolve(place, Known(SPANS))

    assert at({Q0: 5, Q1: 0}) == {Q0: 5, Q1: 0}
    assert at({Q0: -2, Q1: -1}) == {Q0: 2, Q1: 0}
    assert at({Q0: 99, Q1: 0}) == {Q0: 99, Q1: 0}, "whether it is there is decided elsewhere"
    with pytest.raises(ConfigError, match=r"startingOffsets: no offset is given for .* queue 1"):
        at({Q0: 5})
    other = MessageQueue(topic="T", broker_name="b", queue_id=7)
    with pytest.raises(ConfigError, match="there is no topic T, broker b, queue 7"):
        at({Q0: 5, Q1: 5, other: 5})


def test_a_group_without_an_offset_has_read_nothing() -> None:
    place = Place(PlaceKind.GROUP, "startingOffsets")
    assert resolve(place, Known(SPANS, committed={Q0: 7, Q1: None})) == {Q0: 7, Q1: 0}
    assert resolve(place, Known(SPANS, committed={Q0: None, Q1: 0})) == {Q0: 2, Q1: 0}


def test_a_time_behind_the_last_message_is_the_end_or_wrong() -> None:
    place = Place(PlaceKind.TIME, "startingTimestamp", time_ms=77)
    known = Known(SPANS, by_time={77: {Q0: 4, Q1: 0}})
    with pytest.raises(ConfigError, match=r"queue 1: nothing was stored at 77.*Strategy=latest"):
        resolve(place, known)
    assert resolve(place._replace(is_end_if_none=True), known) == {Q0: 4, Q1: 0}
    assert resolve(place, Known({Q0: SPANS[Q0]}, by_time={77: {Q0: 4}})) == {Q0: 4}


def test_a_start_where_a_slave_begins_is_in_doubt() -> None:
    """A slave that was added later may begin behind its master."""
    slave = {Q0: Span(2, 10, is_master=False), Q1: Span(0, 9, is_master=False)}
    committed = Known(slave, committed={Q0: None, Q1: None}, by_time={77: {Q0: 2, Q1: 0}})
    for place in (
        Place(PlaceKind.EARLIEST, "startingOffsets"),
        Place(PlaceKind.GROUP, "startingOffsets"),
        Place(PlaceKind.OFFSETS, "startingOffsets", offsets={Q0: -2, Q1: -2}),
        Place(PlaceKind.TIME, "startingTimestamp", time_ms=77),
    ):
        (loss,) = doubts(place, committed)
        assert loss.queue == Q0, "nothing can be before offset 0"
        assert "begins at offset 2" in loss.what
        masters = {each: Span(span.first, span.end) for each, span in slave.items()}
        assert doubts(place, committed._replace(spans=masters)) == [], "a master knows"
    for place in (
        Place(PlaceKind.LATEST, "startingOffsets"),
        Place(PlaceKind.OFFSETS, "startingOffsets", offsets={Q0: 2, Q1: 0}),
        Place(PlaceKind.OFFSETS, "startingOffsets", offsets={Q0: -1, Q1: -1}),
    ):
        assert doubts(place, committed) == []
    read = Known(slave, committed={Q0: 5, Q1: 5}, by_time={77: {Q0: 3, Q1: 1}})
    assert doubts(Place(PlaceKind.GROUP, "startingOffsets"), read) == []
    assert doubts(Place(PlaceKind.TIME, "startingTimestamp", time_ms=77), read) == []
