"""Starts and ends as options name them, turned into offsets."""

from __future__ import annotations

import pytest

from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue
from rmq.spark.wire.places import Known, Place, PlaceKind, resolve
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
