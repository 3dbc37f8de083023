"""Where records begin: against the sizes alone, and where bodies look like records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model.record import BadRecordError
from rmq.model.record_layout import MESSAGE_MAGIC, RECORD_BYTES_MIN
from rmq.spark.decoding.boundaries import STRANDS_BYTES_MIN, chained, find_chain, find_strands
from tests.spark.decoding.oracle import starts_of
from tests.store.built_records import build_record, drawn_records
from tests.store.golden import stores as golden

MAGIC = MESSAGE_MAGIC.to_bytes(4, signed=True)


@given(st.lists(drawn_records(), max_size=8))
@settings(max_examples=50)
def test_drawn_records_begin_where_the_one_before_ends(records: list[bytes]) -> None:
    assert chained(b"".join(records)).tolist() == starts_of(records).tolist()


@pytest.mark.parametrize("store", golden.STORES)
def test_golden_records_are_found(store: str) -> None:
    records = [record.data for record in golden.sound_records(store)]
    assert chained(b"".join(records)).tolist() == starts_of(records).tolist()


def test_a_magic_inside_a_body_is_no_record() -> None:
    inner = build_record(body=b"inner")
    bodies = [
        inner,
        inner * 3,
        b"plain",
        MAGIC * 50,
        b"\0\0\0\x5b" + MAGIC,
        build_record(body=inner),
        b"plain",
    ]
    # With one at the beginning, one at the end, and two in a row.
    records = [build_record(body=body) for body in (*bodies, *bodies[:2])]
    assert chained(b"".join(records)).tolist() == starts_of(records).tolist()


@pytest.mark.parametrize("size", [0, 150, 1_000, 10_000, 200_000])
def test_strands_that_begin_inside_bodies_are_found_out(size: int) -> None:
    inner = build_record(body=bytes(30))
    false = build_record(body=inner * (size // len(inner) + 1) + inner[: size % len(inner)])
    wrong = build_record(body=(build_record(total_size=500) + bytes(7)) * (size // 121 + 1))
    plain = [build_record(body=bytes(length)) for length in range(0, 300, 7)]
    records = [
        *plain * 30,
        false,
        *plain * 2,
        false,
        wrong,
        wrong,
        *plain * 9,
        wrong,
        *plain,
        false,
    ]
    data = b"".join(records)
    assert len(data) > STRANDS_BYTES_MIN
    starts = starts_of(records)
    if size >= 10_000:
        assert set(find_strands(data)) - set(starts.tolist())
    assert chained(data).tolist() == starts.tolist()
    for cut in (1, 50, len(records[-1]), len(records[-1]) + 1):
        chain = find_chain(data[:-cut])
        assert chain.starts.tolist() == starts[: len(chain.starts)].tolist()
        assert chain.stop == (starts[-1] if cut <= len(records[-1]) else starts[-2])


@given(
    st.lists(
        st.lists(st.sampled_from([MAGIC, build_record(), b"x", b"\xda", b"\0\0\0\x5b"]), max_size=5)
    )
)
@settings(max_examples=50)
def test_bodies_made_of_parts_of_records_do_not_matter(parts: list[list[bytes]]) -> None:
    records = [build_record(body=b"".join(part)) for part in parts]
    assert chained(b"".join(records)).tolist() == starts_of(records).tolist()


@pytest.mark.parametrize("cut", [1, 4, 7, 8, 90, 113])
def test_a_chain_stops_at_a_record_that_is_not_whole(cut: int) -> None:
    records = [build_record(), build_record(body=MAGIC * 3), build_record()]
    data = b"".join(records)[:-cut]
    chain = find_chain(data)
    assert chain.starts.tolist() == starts_of(records)[:2].tolist()
    assert chain.stop == len(records[0]) + len(records[1])
    with pytest.raises(BadRecordError, match=f"after 2 records, at byte {chain.stop} of"):
        chained(data)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\0", "1 bytes after the last record"),
        (bytes(8), "magic 0x00000000 is not that of a message"),
        (b"\0\0\0\x08\xcb\xd4\x31\x94", "a blank, as segments end with"),
        (build_record(total_size=RECORD_BYTES_MIN - 1), "size 90 with 114 bytes left"),
        (build_record(total_size=-1), "size -1 with 114 bytes left"),
        (build_record(total_size=115), "size 115 with 114 bytes left"),
        (build_record(total_size=2**31 - 1), "size 2147483647 with 114 bytes left"),
        (build_record(magic=7), "magic 0x00000007 is not that of a message"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_what_is_no_record_is_named(tail: bytes, reason: str, before: int) -> None:
    start = b"".join([build_record(body=MAGIC)] * before)
    with pytest.raises(BadRecordError) as caught:
        chained(start + tail)
    assert str(caught.value) == (
        f"after {before} records, at byte {len(start)} of {len(start + tail)}: {reason}"
    )


def test_a_size_that_leads_into_a_record_ends_the_chain() -> None:
    records = [build_record(), build_record(total_size=120), build_record()]
    chain = find_chain(b"".join(records))
    assert chain.starts.tolist() == [0, len(records[0])]
    assert chain.stop == len(records[0]) + 120


@given(st.data())
@settings(max_examples=50)
def test_damage_anywhere_ends_the_chain_before_it(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(MANY) - 1))
    damage = data.draw(
        st.sampled_from([b"", bytes(8), b"\xff" * 8, b"\0\0\1\0" + MAGIC, b"\0\0\0\x01" + MAGIC])
    )
    start = int(starts_of(MANY)[index])
    joined = b"".join(MANY)
    chain = find_chain(joined[:start] + damage + joined[start + len(damage) :])
    walked = find_chain_slowly(joined[:start] + damage + joined[start + len(damage) :])
    assert (chain.starts.tolist(), chain.stop) == walked


MANY = [
    build_record(body=bytes(length % 701) + MAGIC * (length % 3)) for length in range(0, 9000, 13)
]


def find_chain_slowly(data: bytes) -> tuple[list[int], int]:
    places = []
    place = 0
    while place + 8 <= len(data):
        size = int.from_bytes(data[place : place + 4], signed=True)
        if (
            data[place + 4 : place + 8] != MAGIC
            or not RECORD_BYTES_MIN <= size <= len(data) - place
        ):
            break
        places.append(place)
        place += size
    return places, place


@given(st.binary(max_size=300), st.integers(0, 3))
@settings(max_examples=60)
def test_any_bytes_give_a_chain_or_the_reason(tail: bytes, before: int) -> None:
    data = build_record() * before + tail
    chain = find_chain(data)
    assert len(chain.starts) >= before
    if chain.stop < len(data):
        with pytest.raises(BadRecordError):
            chained(data)


def test_nothing_holds_no_records() -> None:
    assert chained(b"").tolist() == []
