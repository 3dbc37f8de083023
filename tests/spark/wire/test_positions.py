"""Places in queues as JSON: what Spark stores, and what options say."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ConfigError
from rmq.model.queues import MessageQueue
from rmq.spark.wire.positions import (
    EARLIEST,
    INITIAL,
    as_offset,
    is_initial,
    names_of,
    parse_assignment,
    parse_places,
    read_offset,
)

names = st.text("abcXYZ019%|_-", min_size=1, max_size=8)
queues = st.builds(
    lambda topic, broker, number: MessageQueue(topic=topic, broker_name=broker, queue_id=number),
    names,
    names,
    st.integers(0, 2**31 - 1),
)
places = st.dictionaries(queues, st.integers(EARLIEST, 2**63 - 1), max_size=12)


def queue(number: int, topic: str = "T", broker: str = "a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


@given(places, st.booleans())
def test_places_survive_being_an_offset(wanted: dict[MessageQueue, int], initial: bool) -> None:
    offset = json.loads(json.dumps(as_offset(wanted, is_initial=initial)))
    assert read_offset(offset) == wanted
    assert is_initial(offset) == initial


@given(places, st.integers())
def test_equal_places_are_equal_text(wanted: dict[MessageQueue, int], seed: int) -> None:
    items = list(wanted.items())
    random.Random(seed).shuffle(items)
    text = json.dumps(as_offset(wanted))
    assert json.dumps(as_offset(dict(items))) == text
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_the_start_of_a_query_is_no_end_of_a_batch() -> None:
    start = as_offset({queue(0): 5}, is_initial=True)
    assert start == {INITIAL: {}, "T": {"a": {"0": 5}}}
    assert as_offset(read_offset(start)) == {"T": {"a": {"0": 5}}}


def test_places_are_read_from_options() -> None:
    text = '{"T": {"b": {"10": 7, "9": -2}, "a": {"0": -1}}, "%DLQ%g": {"a": {"0": 0}}}'
    assert parse_places("startingOffsets", text) == {
        queue(0, "%DLQ%g"): 0,
        queue(0): -1,
        queue(9, broker="b"): -2,
        queue(10, broker="b"): 7,
    }
    assert parse_assignment("assign", '{"T": {"b": [1, 0], "a": [3]}}') == (
        queue(3),
        queue(0, broker="b"),
        queue(1, broker="b"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '"T"',
        '{"T": 5}',
        '{"T": {"a": 5}}',
        '{"T": {"a": [0]}}',
        '{"T": {"a": {}}}',
        '{"T": {"a": {"x": 5}}}',
        '{"T": {"a": {"-1": 5}}}',
        '{"T": {"a": {"00": 5}}}',
        '{"T": {"a": {"\\u0661": 5}}}',
        '{"T": {"a": {"2147483648": 5}}}',
        '{"T": {"a": {"0": -3}}}',
        '{"T": {"a": {"0": 1.0}}}',
        '{"T": {"a": {"0": true}}}',
        '{"T": {"a": {"0": "5"}}}',
        '{"T": {"a": {"0": null}}}',
        '{"T": {"a": {"0": 9223372036854775808}}}',
        '{"T": {"a": {"0": 1, "0": 2}}}',
        '{"T": {"a": {"0": 1}}, "T": {"a": {"0": 2}}}',
        "[" * 100_000,
    ],
)
def test_what_are_no_places_is_told(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_places("startingOffsets", text)
    assert caught.value.key == "startingOffsets"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"T": [0]}',
        '{"T": {"a": {"0": 1}}}',
        '{"T": {"a": []}}',
        '{"T": {"a": [-1]}}',
        '{"T": {"a": [true]}}',
        '{"T": {"a": ["0"]}}',
        '{"T": {"a": [0, 0]}}',
        '{"T": {"a": [2147483648]}}',
    ],
)
def test_what_is_no_assignment_is_told(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_assignment("assign", text)


def test_of_many_queues_some_are_named() -> None:
    assert names_of([queue(1), queue(0)]) == (
        "topic T, broker a, queue 0; topic T, broker a, queue 1"
    )
    assert names_of(map(queue, range(9))).endswith("queue 4 and 4 more")
