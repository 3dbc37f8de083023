"""Sharding keys to queues: what the client chooses for one, for many."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.messages import Message
from rmq.client.core.producing.selection import by_hash
from rmq.model.java import string_hash
from rmq.spark.sink.sharding import java_hashes, queue_numbers
from tests.spark.sink.encoding_kit import queues_of

ascii_text = st.text(st.characters(max_codepoint=127), max_size=64)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)


@given(st.lists(ascii_text, max_size=20) | st.lists(any_text, max_size=20))
def test_hashes_are_those_of_java(texts: list[str]) -> None:
    keys = pa.array([text.encode() for text in ["front", *texts]], pa.binary())
    assert java_hashes(keys).tolist() == [string_hash(text) for text in ["front", *texts]]
    # A slice begins within the buffer of the whole.
    assert java_hashes(keys[1:]).tolist() == [string_hash(text) for text in texts]


@given(st.lists(any_text, min_size=1, max_size=20), st.integers(1, 7))
def test_queues_are_those_of_the_client(texts: list[str], count: int) -> None:
    queues = queues_of("T", count)
    keys = pa.array([text.encode() for text in texts], pa.binary())
    message = Message("T", b"x")
    assert [queues[number] for number in queue_numbers(keys, count).tolist()] == [
        by_hash(queues, message, text) for text in texts
    ]


def test_the_smallest_hash_has_no_positive_counterpart_in_java() -> None:
    key = "polygenelubricants"
    assert string_hash(key) == -(2**31)
    assert queue_numbers(pa.array([key.encode()]), 3).tolist() == [2**31 % 3]
