"""Batches of records, column by column against what the store's own readers make of them."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model.record import BadRecordError, pack_host, read_head
from rmq.spark.decoding.boundaries import chained
from rmq.spark.decoding.heads import UnsoundRecordError
from rmq.spark.decoding.records import RecordDecoder
from rmq.spark.schema import BODY, COLUMNS, arrow_schema
from tests.spark.decoding.oracle import rows, rows_of, starts_of, time_of
from tests.store.built_records import (
    HOST_VARIANTS,
    build_record,
    drawn_records,
    length_places,
)
from tests.store.golden import stores as golden

ALL = tuple(COLUMNS)


def decoder(*columns: str, **options: Any) -> RecordDecoder:  # noqa: ANN401
    defaults: dict[str, Any] = {
        "decompress": False,
        "verify_crc": True,
        "broker_name": "broker-a",
    }
    return RecordDecoder(columns or ALL, **(defaults | options))


def decoded(*records: bytes, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    batch = decoder(**options).decode(b"".join(records), starts_of(records))
    assert batch.schema.equals(arrow_schema(ALL), check_metadata=True)
    batch.validate(full=True)
    return rows(batch)


# --- against the oracle ---------------------------------------------------------------------


@given(st.lists(drawn_records(), max_size=8))
@settings(max_examples=60)
def test_drawn_records_read_as_the_store_reads_them(records: list[bytes]) -> None:
    assert decoded(*records) == rows_of(records, "broker-a")


@pytest.mark.parametrize("store", golden.STORES)
def test_golden_records_read_as_the_store_reads_them(store: str) -> None:
    records = [record.data for record in golden.sound_records(store)]
    assert decoded(*records) == rows_of(records, "broker-a")


@pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CRASHED])
def test_golden_records_are_what_the_java_client_read(store: str) -> None:
    data = b"".join(record.data for record in golden.sound_records(store))
    batch = decoder(decompress=True).decode(data, chained(data))
    by_place = {row["commitLogOffset"]: row for row in rows(batch)}
    messages = golden.messages_of(store)
    assert messages
    for message in messages:
        row = by_place[message.physical_offset]
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (
            message.topic,
            message.queue_id,
            message.queue_offset,
        )
        assert row["storeSize"] == message.size
        assert row["msgId"] == message.message_id
        assert row["bornTimestamp"] == time_of(message.born_ms)
        assert row["storeTimestamp"] == time_of(message.store_ms)
        assert (row["sysFlag"], row["flag"]) == (message.sys_flag, message.flag)
        assert row["bodyCrc"] == message.body_crc
        assert row["reconsumeTimes"] == message.reconsume_times
        assert row["preparedTransactionOffset"] == message.prepared_offset
        assert (row["tags"], row["keys"]) == (message.tags, message.keys)
        assert row["properties"] == message.properties
        assert len(row["body"]) == message.body_length
        assert hashlib.sha256(row["body"]).hexdigest() == message.body_sha256


@pytest.mark.parametrize("name", ALL)
def test_every_column_is_the_same_alone(name: str) -> None:
    records = [build_record(hosts=hosts, queue_id=hosts) for hosts in HOST_VARIANTS] * 2
    batch = decoder(name).decode(b"".join(records), starts_of(records))
    assert batch.schema.equals(arrow_schema([name]), check_metadata=True)
    assert rows(batch) == [{name: row[name]} for row in rows_of(records, "broker-a")]


def test_no_records_are_an_empty_batch() -> None:
    assert decoded() == []


def test_records_may_have_gaps_between_them() -> None:
    one, two = build_record(queue_id=1), build_record(queue_id=2)
    data = b"??" + one + b"???" + two + b"?"
    batch = decoder("queueId").decode(data, np.array([2, 5 + len(one)]))
    assert rows(batch) == [{"queueId": 1}, {"queueId": 2}]


def test_a_broker_without_a_name_is_null() -> None:
    assert decoded(build_record(), broker_name=None)[0]["brokerName"] is None


# --- single columns -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_ms", "is_there"),
    [
        (0, True),
        (-62_135_596_800_000, True),
        (-62_135_596_800_001, False),
        (253_402_300_799_999, True),
        (253_402_300_800_000, False),
        (2**63 - 1, False),
        (-(2**63), False),
    ],
)
def test_times_outside_the_calendar_are_null(time_ms: int, is_there: bool) -> None:
    (row, other) = decoded(build_record(store_ms=time_ms), build_record())
    assert (row["storeTimestamp"] is not None) == is_there
    assert row["storeTimestamp"] == time_of(time_ms)
    assert other["storeTimestamp"] is not None


def test_hosts_of_both_kinds_in_one_batch() -> None:
    v6 = pack_host("fe80::1:2", 10911)
    records = [
        build_record(born_host=pack_host("1.2.3.4", 65535)),
        build_record(hosts=0x10, born_host=v6),
        build_record(hosts=0x20, store_host=v6),
        build_record(hosts=0x30, born_host=v6, store_host=v6),
        build_record(store_host=bytes.fromhex("FFFFFFFF FFFFFFFF")),
    ]
    found = [(row["bornHost"], row["storeHost"]) for row in decoded(*records)]
    assert found == [
        ("1.2.3.4:65535", "10.0.0.1:10911"),
        ("[fe80::1:2]:10911", "10.0.0.1:10911"),
        ("10.0.0.9:40000", "[fe80::1:2]:10911"),
        ("[fe80::1:2]:10911", "[fe80::1:2]:10911"),
        ("10.0.0.9:40000", "255.255.255.255:4294967295"),
    ]


def test_a_message_without_a_unique_key_is_named_by_its_place() -> None:
    records = [
        build_record(properties=b"UNIQ_KEY\x01ABC"),
        build_record(properties=b"", physical_offset=-2),
        build_record(hosts=0x20, properties=b"", physical_offset=1 << 40),
        build_record(properties=b"UNIQ_KEY\x01"),
    ]
    assert [row["msgId"] for row in decoded(*records)] == [
        "ABC",
        "0A00000100002A9FFFFFFFFFFFFFFFFE",
        "0000000000000000000000000A00000100002A9F0000010000000000",
        "0A00000100002A9F0000000000000400",
    ]


def test_a_topic_that_is_not_utf8_reads_as_text() -> None:
    records = [build_record(topic=b"Caf\xe9"), build_record(topic="Café".encode())]
    assert [row["topic"] for row in decoded(*records)] == ["Caf\ufffd", "Café"]


# --- what is not sound ----------------------------------------------------------------------


@pytest.mark.parametrize("hosts", list(HOST_VARIANTS))
@pytest.mark.parametrize(
    "field", ["total_size", "body_length", "topic_length", "properties_length"]
)
def test_every_wrong_length_is_refused_with_the_reason_of_the_store(hosts: int, field: str) -> None:
    sound = build_record(hosts=hosts, body=b"b" * 40, topic=b"Topic", physical_offset=777)
    at, size = length_places(sound)[field]
    value = int.from_bytes(sound[at : at + size])
    for wrong in {value - 1, value + 1, 0, 1, 127, 128, 2 ** (8 * size - 1), 2 ** (8 * size) - 1}:
        if wrong == value or wrong >= 2 ** (8 * size):
            continue
        bad = sound[:at] + wrong.to_bytes(size) + sound[at + size :]
        with pytest.raises(BadRecordError) as reason:
            read_head(bad, 0, len(bad), len(bad), verify_crc=False)
        for before in (0, 2):
            records = [sound] * before + [bad]
            with pytest.raises(UnsoundRecordError) as caught:
                decoder("queueId").decode(b"".join(records), starts_of(records))
            text = f"record {before}, physical offset 777: {reason.value}"
            assert str(caught.value) == text
            assert caught.value.index == before


@given(drawn_records(), st.data())
@settings(max_examples=60)
def test_a_flipped_byte_is_judged_as_the_store_judges_it(
    record: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(record) - 1))
    flip = data.draw(st.integers(1, 255))
    bad = record[:at] + bytes((record[at] ^ flip,)) + record[at + 1 :]
    sound = build_record()
    try:
        expected = [*rows_of([sound]), *rows_of([bad])]
    except BadRecordError:
        with pytest.raises(UnsoundRecordError, match="record 1, "):
            decoded(sound, bad, broker_name=None)
    else:
        assert decoded(sound, bad, broker_name=None) == expected


def test_the_first_of_several_unsound_records_is_named() -> None:
    # The second fails the last of the checks, the third the first of them.
    sound = build_record()
    at, size = length_places(sound)["properties_length"]
    records = [sound, sound[:at] + bytes(size) + sound[at + size :], build_record(magic=1)]
    data = b"".join(records)
    with pytest.raises(UnsoundRecordError, match=r"record 1, .*not the sum of its fields"):
        decoder("queueId").decode(data, np.array([0, len(records[0]), 2 * len(records[0])]))


@pytest.mark.parametrize("body", [b"spoilt", b"spoilt" * 2_000])
def test_a_wrong_crc_is_named_and_only_looked_at_when_asked(body: bytes) -> None:
    bad = build_record(body=body, body_crc=5, physical_offset=4096)
    found = zlib.crc32(body) & 0x7FFFFFFF
    with pytest.raises(UnsoundRecordError) as caught:
        decoded(build_record(), bad)
    assert str(caught.value) == (
        f"record 1, physical offset 4096: CRC of the body is {found}, the record says 5"
    )
    assert decoded(bad, verify_crc=False)[0]["body"] == body
    without_body = [name for name in ALL if name != BODY]
    assert decoder(*without_body).decode(bad, np.array([0])).num_rows == 1


def test_every_crc_of_many_is_checked() -> None:
    records = [build_record(body=b"%d" % number) for number in range(600)]
    assert len(decoded(*records)) == 600
    for index in (0, 255, 256, 599):
        spoilt = list(records)
        spoilt[index] = build_record(body=b"x", body_crc=1)
        with pytest.raises(UnsoundRecordError, match=f"record {index}, .* CRC of the body"):
            decoded(*spoilt)


def test_an_empty_body_may_have_any_crc() -> None:
    assert decoded(build_record(body=b"", body_crc=-5))[0]["bodyCrc"] == -5


def test_records_must_not_overlap() -> None:
    data = build_record(body=build_record())
    with pytest.raises(UnsoundRecordError, match="the next record begins inside of it"):
        decoder().decode(data, np.array([0, 88]))
    with pytest.raises(ValueError, match="does not begin within the bytes"):
        decoder().decode(data, np.array([0, len(data)]))


def test_batches_of_one_decoder_have_one_schema() -> None:
    one = decoder()
    batches = [
        one.decode(build_record(properties=properties), np.array([0]))
        for properties in (b"", b"A\x01B", b"\xff\x01B", b"TAGS\x01x")
    ]
    assert pa.Table.from_batches(batches).schema.equals(one.schema, check_metadata=True)
