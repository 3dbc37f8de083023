"""Rows to batches on the wire: the same messages as the client makes of them, one by one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.blocking import BlockingProducer
from rmq.client.core.messages import RESERVED, SendResult
from rmq.client.core.producing.selection import by_hash
from rmq.errors import IllegalMessageError
from rmq.model.compression import decompressed
from rmq.model.flags import COMPRESSED
from rmq.model.properties import decode_properties
from rmq.remoting.bodies.batch import decode_batch, encode_batch
from rmq.remoting.codes import RequestCode
from rmq.remoting.layout import BatchEntry
from rmq.spark.sink import encoding
from rmq.spark.sink.encoding import PROPERTIES_BYTES, Limits, Outgoing
from rmq.spark.sink.identity import SPARK_KEY
from tests.client.blocking.cluster_process import process_cluster
from tests.spark.sink.encoding_kit import (
    LIMITS,
    Row,
    encoded,
    encoder_of,
    expected_properties,
    message_of,
    queues_of,
    record_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Text without the two separators, and without halves of characters that UTF-8 has no form for.
text = st.text(st.characters(min_codepoint=3, exclude_categories=["Cs"]), max_size=12)
words = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs"]), min_size=1, max_size=12)
names = st.one_of(words, st.sampled_from([*sorted(RESERVED), SPARK_KEY]))
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["Orders", "Payments", "%RETRY%billing", "x" * 127]),
        "body": st.binary(min_size=1, max_size=200),
        "tags": st.none() | text.filter(lambda tag: "||" not in tag),
        "keys": st.none() | st.lists(st.none() | words, max_size=3),
        "properties": st.none()
        | st.dictionaries(names, st.none() | words, max_size=4).map(lambda pairs: [*pairs.items()]),
        "shardingKey": st.none() | text | st.text(min_size=60, max_size=80, alphabet="abc"),
        "delayLevel": st.none() | st.sampled_from([0, 0, 0, 1, 18]),
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
    }
)


def messages_in(outgoing: Outgoing) -> list[tuple[int, bytes, dict[str, str]]]:
    """Return flag, body and properties of the messages on the wire."""
    outbound = outgoing.outbound
    if not outbound.is_batch:
        body = outbound.body
        if outbound.sys_flag & COMPRESSED:
            body = decompressed(body, outbound.sys_flag)
        return [(outbound.flag, body, decode_properties(outbound.properties.encode()))]
    entries = decode_batch(outbound.body)
    # What numpy and Arrow wrote is what the declared format says, byte for byte.
    assert encode_batch(entries) == outbound.body
    shared = decode_properties(outbound.properties.encode())
    return [
        (entry.flag, entry.body, {**decode_properties(entry.properties), **shared})
        for entry in entries
    ]


@given(st.lists(rows, min_size=1, max_size=40), st.integers(400, 3000), st.integers(1, 8))
def test_rows_become_what_the_client_makes_of_them(
    rows: list[Row], batch_bytes: int, batch_messages: int
) -> None:
    limits = Limits(batch_bytes, batch_messages, 4 * 1024**2)
    seen: dict[int, Outgoing] = {}
    last_row: dict[tuple[str, object], int] = {}
    for outgoing in encoded(rows, limits=limits):
        outbound = outgoing.outbound
        found = messages_in(outgoing)
        assert len(found) == outgoing.rows <= batch_messages
        assert outbound.is_batch or outgoing.rows == 1
        assert not outbound.is_batch or len(outbound.body) <= batch_bytes
        numbers = [int(properties[SPARK_KEY].rpartition("/")[2]) for _, _, properties in found]
        assert numbers[0] == outgoing.first_row
        for number, (flag, body, properties) in zip(numbers, found, strict=True):
            row = rows[number]
            assert (outbound.topic, body, flag) == (row["topic"], row["body"], row["flag"] or 0)
            assert properties == expected_properties(row, number)
            key = row["shardingKey"]
            queues = queues_of(row["topic"])
            assert outgoing.queue == (
                None if key is None else by_hash(queues, message_of(row), key)
            )
            assert number not in seen
            seen[number] = outgoing
            # Within a topic and queue the order of the rows is kept.
            assert last_row.get((outbound.topic, outgoing.queue), -1) < number
            last_row[outbound.topic, outgoing.queue] = number
        if outbound.is_batch:
            assert outbound.code == RequestCode.SEND_BATCH_MESSAGE
            assert not any(rows[number]["delayLevel"] for number in numbers)
            assert not outbound.topic.startswith("%RETRY%")
        assert outbound.message_id == found[0][2]["UNIQ_KEY"]
    assert sorted(seen) == list(range(len(rows)))


@given(st.lists(rows, min_size=2, max_size=20), st.data())
def test_the_way_rows_are_cut_into_arrow_batches_does_not_matter(
    rows: list[Row], data: st.DataObject
) -> None:
    whole = record_batch(rows)
    encoder = encoder_of(whole)
    parts: list[Outgoing] = []
    start = 0
    while start < len(rows):
        count = data.draw(st.integers(1, len(rows) - start))
        parts += encoder.encode(whole.slice(start, count))
        start += count
    by_row = {}
    for outgoing in encoded(rows):
        for _, _, properties in messages_in(outgoing):
            by_row[properties[SPARK_KEY]] = properties
    again = {}
    for outgoing in parts:
        for _, _, properties in messages_in(outgoing):
            again[properties[SPARK_KEY]] = properties
    assert by_row == again


def test_a_batch_is_the_declared_layout() -> None:
    (outgoing,) = encoded([{"body": b"hello", "tags": "TagA", "flag": 7}], topic="Orders")
    entry = BatchEntry.parse(outgoing.outbound.body)
    assert (entry.magic, entry.body_crc, entry.flag, entry.body) == (0, 0, 7, b"hello")
    assert entry.total_size == len(outgoing.outbound.body)
    assert outgoing.outbound.properties == "WAIT\x01true"


def test_text_bodies_and_large_types_are_taken_as_they_are() -> None:
    rows: list[Row] = [
        {"body": "häuser", "tags": "a", "keys": "k1 k2"},
        {"body": "b", "tags": "", "keys": None},
    ]
    for text_type in (pa.string(), pa.large_string()):
        batch = record_batch(rows, body=text_type, tags=text_type, keys=text_type)
        (outgoing,) = encoder_of(batch, topic="T").encode(batch)
        first, second = messages_in(outgoing)
        assert (first[1], first[2]["KEYS"], first[2]["TAGS"]) == ("häuser".encode(), "k1 k2", "a")
        assert second[1] == b"b"
        assert set(second[2]) == {"UNIQ_KEY", "SPARK_KEY", "WAIT"}


def test_the_key_of_the_row_may_be_one_of_the_keys() -> None:
    rows = [{"body": b"x", "keys": keys} for keys in (["k1", "k2"], [], None)]
    (outgoing,) = encoded(rows, topic="T", spark_key_in_keys=True)
    keys = [properties["KEYS"] for _, _, properties in messages_in(outgoing)]
    assert keys == ["k1 k2 run/3/0", "run/3/1", "run/3/2"]
    (outgoing,) = encoded([{"body": b"x"}], topic="T", spark_key_in_keys=True)
    assert messages_in(outgoing)[0][2]["KEYS"] == "run/3/0"


def test_what_is_larger_than_a_batch_is_sent_alone_and_compressed() -> None:
    large = b"0123456789" * 10_000
    rows = [{"body": b"a"}, {"body": large}, {"body": b"b"}, {"body": b"c"}]
    first, alone, last = encoded(rows, topic="T")
    assert [first.rows, alone.rows, last.rows] == [1, 1, 2]
    assert not alone.outbound.is_batch
    assert len(alone.outbound.body) < 10_000
    assert messages_in(alone)[0][1] == large
    assert [message[1] for message in messages_in(last)] == [b"b", b"c"]


def test_long_bodies_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PART_BYTES", 1000)
    rows = [{"body": b"%03d" % number * 100, "shardingKey": "k"} for number in range(20)]
    found = [each for outgoing in encoded(rows, topic="T") for each in messages_in(outgoing)]
    assert [body for _, body, _ in found] == [row["body"] for row in rows]
    assert [each[2][SPARK_KEY] for each in found] == [f"run/3/{number}" for number in range(20)]


def test_no_rows_are_no_messages() -> None:
    batch = record_batch([{"body": b"x", "shardingKey": "k"}]).slice(0, 0)
    assert list(encoder_of(batch, topic="T").encode(batch)) == []


def test_queues_are_asked_for_only_where_there_are_sharding_keys() -> None:
    def refuse(topic: str) -> Sequence[object]:
        raise AssertionError(topic)

    encoded([{"body": b"x", "shardingKey": None}] * 3, topic="T", queues=refuse)


GOOD: Row = {
    "topic": "T",
    "body": b"x",
    "tags": "t",
    "keys": ["k"],
    "properties": [("a", "b")],
    "shardingKey": "s",
    "delayLevel": 0,
    "flag": 0,
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": None}, "the body is null or empty"),
        ({"body": b""}, "the body is null or empty"),
        ({"body": b"x" * 1001}, "larger than messageBytesMax, 1000 bytes"),
        ({"topic": None}, "it has no topic"),
        ({"topic": ""}, "the topic has no name"),
        ({"topic": "a b"}, "characters other than letters"),
        ({"topic": "x" * 128}, "128 characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "brokers only"),
        ({"tags": "a||b"}, "has || in it"),
        ({"tags": "a\x01b"}, "the tag has a character 1 or 2"),
        ({"keys": ["a\x02"]}, "a key has a character 1 or 2"),
        ({"keys": ["a b"]}, "empty or has a blank"),
        ({"keys": [""]}, "empty or has a blank"),
        ({"properties": [("a", "")]}, "property 'a': has no value"),
        ({"properties": [("", "b")]}, "a property has no name"),
        ({"properties": [("a", "b"), ("c", "\x02")]}, "property 'c': its value has a character"),
        ({"properties": [("\x01", "b")]}, "the name of a property has a character"),
        ({"properties": [("a", "x" * 32_200)]}, "take more than 32255 bytes"),
        ({"delayLevel": 19}, "delay level is not 0 to 18"),
        ({"delayLevel": -1}, "delay level is not 0 to 18"),
    ],
)
def test_a_row_that_no_broker_would_take_is_named(change: Row, reason: str) -> None:
    # The sharding keys of the others put them into another order than the rows have.
    others = [{**GOOD, "shardingKey": f"{number}"} for number in range(9)]
    rows = [*others[:4], {**GOOD, **change}, *others[4:]]
    limits = LIMITS._replace(message_bytes=1000)
    batch = record_batch(rows)
    encoder = encoder_of(batch, limits=limits)
    for _ in range(10):
        list(encoder.encode(record_batch([GOOD] * 10)))
    with pytest.raises(IllegalMessageError, match="row 104 of the task") as caught:
        list(encoder.encode(batch))
    assert reason in str(caught.value)
    assert "SPARK_KEY run/3/104" in str(caught.value)


def longest_property(**row: object) -> str:
    """Return the value with which the properties of a row are as large as they may be."""
    (plain,) = encoded([{"body": b"x", "properties": [("a", "b")], **row}], topic="T")
    length = len(plain.outbound.properties) - len("\x02WAIT\x01true")
    if plain.outbound.is_batch:
        length = int.from_bytes(plain.outbound.body[21:23])
    return "x" * (PROPERTIES_BYTES - length + 1)


def test_properties_up_to_the_limit_are_taken() -> None:
    value = longest_property()
    (outgoing,) = encoded([{"body": b"x", "properties": [("a", value)]}], topic="T")
    assert messages_in(outgoing)[0][2]["a"] == value
    with pytest.raises(IllegalMessageError, match="32255 bytes"):
        encoded([{"body": b"x", "properties": [("a", value + "x")]}], topic="T")


def test_brokers_store_properties_up_to_the_limit_with_what_they_add(tmp_path: Path) -> None:
    name = "T" * 127
    with (
        process_cluster(tmp_path, brokerClusterName="c" * 200) as cluster,
        BlockingProducer(cluster.nameserver, "g") as producer,
    ):
        cluster.create_topic(name, queues=1)
        for delay in (0, 1):
            properties = [("a", longest_property(delayLevel=delay))]
            (outgoing,) = encoded(
                [{"body": b"x", "properties": properties, "delayLevel": delay}], topic=name
            )
            send = producer.begin(outgoing.outbound)
            while send.outcome is None:
                producer.step()
            assert isinstance(send.outcome, SendResult), send.outcome


def test_what_a_null_hides_is_not_looked_at() -> None:
    """A null may have bytes behind it: Arrow does not say that there are none."""
    values = pa.Array.from_buffers(
        pa.string(),
        2,
        [
            pa.py_buffer(b"\x02"),
            pa.py_buffer(struct.pack("=3i", 0, 2, 3)),
            pa.py_buffer(b"\x01\x02t"),
        ],
    )
    assert values.to_pylist() == [None, "t"]
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), values], ["body", "tags"])
    (outgoing,) = encoder_of(batch, topic="T").encode(batch)
    assert [properties.get("TAGS") for _, _, properties in messages_in(outgoing)] == [None, "t"]
