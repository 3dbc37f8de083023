"""`read_head` on bytes that are damaged, cut, hostile or random.

It must never raise anything but its own errors, never give bytes from outside the record, and
accept exactly what the declared layout accepts.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq.model import record_layout
from rmq.model.record import (
    BadRecordError,
    NeedMoreDataError,
    RecordHead,
    decode_record,
    decode_records,
    read_head,
)
from tests.store.built_records import (
    BLANK_HEAD,
    HOST_VARIANTS,
    build_record,
    declared_head,
    drawn_records,
    length_places,
)

# Around a record in tests, so that reading beyond it shows: no record built here contains it.
FENCE: Final = b"\xee" * 64

BASES: Final = [
    *(pytest.param(build_record(hosts=bits), id=name) for bits, name in HOST_VARIANTS.items()),
    pytest.param(build_record(body=b""), id="no body"),
    pytest.param(build_record(body=b"", topic=b"", properties=b""), id="nothing in it"),
    pytest.param(build_record(body=b"b" * 300, topic=b"t" * 127), id="longest topic"),
]
bases = pytest.mark.parametrize("record", BASES)
examples = settings(max_examples=100)


def head_of(data: bytes, *, verify_crc: bool = True) -> RecordHead | None:
    """Read `data` as all there is in the segment; None if it is refused."""
    fenced = FENCE + data + FENCE
    limit = len(FENCE) + len(data)
    try:
        return read_head(fenced, len(FENCE), limit, room=len(data), verify_crc=verify_crc)
    except BadRecordError:
        return None


def patched(record: bytes, place: int, hexadecimal: str) -> bytes:
    patch = bytes.fromhex(hexadecimal)
    return record[:place] + patch + record[place + len(patch) :]


def outcome(data: bytes, limit: int, room: int) -> RecordHead | int | None:
    """Read `limit` bytes of `data`: the head, how many bytes it wants, or None if it is refused."""
    try:
        return read_head(data, 0, limit, room=room, verify_crc=True)
    except NeedMoreDataError as needs:
        return needs.size
    except BadRecordError:
        return None


def damageable(record: bytes) -> list[int]:
    """Return the places of the fixed part and of the lengths behind it."""
    places = length_places(record)
    return [
        *range(places["body_length"][0] + 4),
        *(place + i for place, size in list(places.values())[2:] for i in range(size)),
    ]


# --- damage ---------------------------------------------------------------------------------


@bases
def test_a_flipped_bit_is_noticed_or_changes_only_its_own_field(record: bytes) -> None:
    sound = head_of(record)
    assert sound is not None
    for place in damageable(record):
        for bit in range(8):
            damaged = bytearray(record)
            damaged[place] ^= 1 << bit
            head = head_of(bytes(damaged))
            assert head == declared_head(bytes(damaged)), (place, bit)
            if head is not None:
                assert head.size == len(record)
                assert (head.topic, head.properties) == (sound.topic, sound.properties)


@bases
def test_a_byte_with_an_extreme_value_is_noticed_or_changes_only_its_own_field(
    record: bytes,
) -> None:
    for place in damageable(record):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF):
            damaged = record[:place] + bytes([value]) + record[place + 1 :]
            assert head_of(damaged) == declared_head(damaged), (place, value)


@bases
def test_every_flipped_bit_of_sizes_magic_and_body_is_noticed(record: bytes) -> None:
    places = length_places(record)
    sensitive = {place + i for place, size in places.values() for i in range(size)} | {*range(4, 8)}
    body_length_at, _ = places["body_length"]
    topic_length_at, _ = places["topic_length"]
    if topic_length_at > body_length_at + 4:
        # The CRC of an empty body is not looked at.
        sensitive |= {*range(8, 12), *range(body_length_at + 4, topic_length_at)}
    for place in sensitive:
        for bit in range(8):
            damaged = bytearray(record)
            damaged[place] ^= 1 << bit
            assert head_of(bytes(damaged)) is None, (place, bit)


def test_a_damaged_body_is_accepted_only_when_the_crc_is_not_asked_for() -> None:
    record = build_record(body=b"hello")
    damaged = record.replace(b"hello", b"hellp")
    with pytest.raises(BadRecordError, match="CRC of the body"):
        read_head(damaged, 0, len(damaged), room=len(damaged), verify_crc=True)
    assert head_of(damaged, verify_crc=False) == head_of(record)


@examples
@given(data=st.data())
def test_lengths_that_lie_are_accepted_only_if_they_agree(data: st.DataObject) -> None:
    record = data.draw(drawn_records())
    lying = bytearray(record)
    for name, (place, size) in length_places(record).items():
        true = int.from_bytes(record[place : place + size], signed=True)
        limit = 1 << 8 * size - 1
        near = st.integers(max(true - 20, -limit), min(true + 20, limit - 1))
        told = data.draw(near | st.integers(-limit, limit - 1) | st.just(true), label=name)
        lying[place : place + size] = told.to_bytes(size, signed=True)
    assert head_of(bytes(lying)) == declared_head(bytes(lying))


@examples
@given(
    record=drawn_records(), addition=st.sampled_from([0x10, 0x20, 0x30]), verify_crc=st.booleans()
)
def test_hosts_of_another_length_than_the_flags_say_do_not_lead_outside(
    record: bytes, addition: int, verify_crc: bool
) -> None:
    damaged = bytearray(record)
    damaged[39] ^= addition
    head = head_of(bytes(damaged), verify_crc=verify_crc)
    assert head == declared_head(bytes(damaged), verify_crc=verify_crc)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(bytes(200), "nothing was written here", id="zeros"),
        pytest.param(b"\0" * 4 + b"\x01" * 196, "magic 0x01010101 is not", id="another magic"),
        pytest.param(b"1234567", "only 7 bytes are left", id="less than a prefix"),
        pytest.param(b"", "only 0 bytes are left", id="nothing left"),
        pytest.param(build_record(total_size=90), "size 90 with", id="too small for any record"),
        pytest.param(build_record(total_size=-1), "size -1 with", id="negative size"),
        pytest.param(build_record(total_size=115), "size 115 with 114", id="beyond the segment"),
        pytest.param(
            patched(build_record(body=b"", properties=b""), 36, "00000030"),
            "size 92 is less than its fixed part",
            id="no room for the hosts",
        ),
        pytest.param(
            # The topic length would be that at 76, the properties length behind it the 12 left.
            patched(
                build_record(body=b"", topic=b"", properties=b""),
                76,
                "00 000C 0000000000 FFFFFFF4",
            ),
            "body length -12 in a record",
            id="lengths that agree with a negative one",
        ),
        pytest.param(
            patched(build_record(body=b"", topic=b"", properties=bytes(200)), 88, "C8 0000"),
            "topic length 200 in a record",
            id="a topic too long for its length to be positive",
        ),
        pytest.param(build_record()[:-1], "size 114 with 113", id="cut"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecordError, match=reason):
        read_head(data, 0, len(data), room=len(data), verify_crc=True)


@examples
@given(data=st.binary(max_size=300), size=st.none() | st.integers(80, 320))
@example(data=bytes(300), size=300)
@example(data=b"\xff" * 300, size=300)
@example(data=b"\xff" * 300, size=91)
def test_random_bytes_are_read_as_declared(data: bytes, size: int | None) -> None:
    if size is not None:
        data = record_layout.RECORD_PREFIX.pack(size, record_layout.MESSAGE_MAGIC) + data
    assert head_of(data) == declared_head(data)
    assert head_of(data, verify_crc=False) == declared_head(data, verify_crc=False)


@pytest.mark.parametrize("length", [0, 8, 454, -1, 1 << 30])
def test_a_blank_ends_the_segment_whatever_its_length(length: int) -> None:
    blank = record_layout.Blank.build({"length": length})
    assert head_of(blank) == head_of(blank + bytes(100)) == BLANK_HEAD
    with pytest.raises(BadRecordError):
        decode_record(blank)


# --- not all there --------------------------------------------------------------------------


@bases
def test_a_record_cut_anywhere_asks_for_the_rest_if_the_segment_may_have_it(record: bytes) -> None:
    for room in (len(record), len(record) + 100):
        for limit in range(len(record)):
            assert outcome(record[:limit], limit, room) == (8 if limit < 8 else len(record))
            assert outcome(record, limit, room) == (8 if limit < 8 else len(record))


@bases
def test_a_record_cut_anywhere_is_refused_if_the_segment_has_no_more(record: bytes) -> None:
    for limit in range(len(record)):
        assert outcome(record, limit, limit) is None


@bases
def test_a_record_without_room_is_refused_as_soon_as_its_size_is_known(record: bytes) -> None:
    room = len(record) - 1
    for limit in range(8):
        assert outcome(record, limit, room) == 8
    for limit in range(8, room + 1):
        assert outcome(record, limit, room) is None


@examples
@given(data=st.data())
def test_more_data_changes_nothing_but_a_request_for_it(data: st.DataObject) -> None:
    """What is refused stays refused, what is read stays as it is, and requests come to an end."""
    whole = bytearray(data.draw(drawn_records()) + bytes(data.draw(st.integers(0, 20))))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, min(len(whole), 120) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    room = len(whole)
    final = outcome(bytes(whole), room, room)
    assert not isinstance(final, int)

    limit = data.draw(st.integers(0, room))
    found = outcome(bytes(whole), limit, room)
    while isinstance(found, int):
        assert limit < found <= room
        limit = found
        found = outcome(bytes(whole), limit, room)
    assert found == final


# --- decoders -------------------------------------------------------------------------------


@examples
@given(data=st.binary(max_size=300), prefixed=st.booleans())
def test_decoders_raise_only_their_own_error(data: bytes, prefixed: bool) -> None:
    if prefixed:
        data = record_layout.RECORD_PREFIX.pack(8 + len(data), record_layout.MESSAGE_MAGIC) + data
    for decode in (decode_record, lambda content: list(decode_records(content))):
        try:
            decode(data)
        except BadRecordError:
            continue
        assert data == b"" or declared_head(data) is not None


@bases
def test_one_record_is_decoded_only_if_it_is_all_there_is(record: bytes) -> None:
    assert decode_record(record).size == len(record)
    for other in (record + b"\0", record[:-1], b"\0" + record, record + record):
        with pytest.raises(BadRecordError):
            decode_record(other)


def test_records_before_a_bad_one_are_decoded() -> None:
    record = build_record()
    for rest in (b"\0", bytes(8), bytes(200), record[:-1], record.replace(b"hello", b"HELLO")):
        decoded = decode_records(record + record + rest)
        assert next(decoded) == next(decoded) == decode_record(record)
        with pytest.raises(BadRecordError):
            next(decoded)
