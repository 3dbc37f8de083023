"""The declared layouts against what is derived from them, known bytes and the documentation."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import construct
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model import flags, record_layout
from rmq.model.java import string_hash
from rmq.store import layout
from tests.format_pages import check_byte_table, unwrapped
from tests.paths import DOCS
from tests.store.built_records import HOST_VARIANTS, plain

if TYPE_CHECKING:
    from construct import Construct
    from hypothesis.strategies import SearchStrategy

DOCUMENT: Final = DOCS / "formats" / "store.md"

examples = settings(max_examples=60)

derived = pytest.mark.parametrize(
    ("declared", "packed"),
    [
        pytest.param(record_layout.RecordPrefix, record_layout.RECORD_PREFIX, id="record prefix"),
        pytest.param(
            construct.Struct(record_layout.Record.properties_length),
            record_layout.PROPERTIES_LENGTH,
            id="properties length",
        ),
        pytest.param(layout.QueueEntry, layout.QUEUE_ENTRY, id="queue entry"),
        pytest.param(layout.IndexHeader, layout.INDEX_HEADER, id="index header"),
        pytest.param(layout.IndexSlot, layout.INDEX_SLOT, id="index slot"),
        pytest.param(layout.IndexEntry, layout.INDEX_ENTRY, id="index entry"),
        pytest.param(layout.CheckpointTimes, layout.CHECKPOINT_TIMES, id="checkpoint times"),
    ],
)
marked = pytest.mark.parametrize(
    "declared",
    [
        pytest.param(record_layout.Blank, id="blank"),
        pytest.param(layout.RecoveryPoint, id="recovery point"),
        pytest.param(layout.LiveMark, id="live mark"),
    ],
)
hosts_of_records = pytest.mark.parametrize(
    "hosts", [pytest.param(bits, id=name) for bits, name in HOST_VARIANTS.items()]
)


def field_values(field: Construct[Any, Any]) -> SearchStrategy[Any]:
    """Draw a value for one field of fixed size."""
    base = unwrapped(field)
    if isinstance(base, construct.Const):
        return st.just(base.value)
    if isinstance(base, construct.Bytes):
        return st.binary(min_size=base.sizeof(), max_size=base.sizeof())
    assert isinstance(base, construct.FormatField)
    bits = 8 * base.sizeof()
    # struct spells signed integers in small letters.
    if base.fmtstr[-1].islower():
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(0, (1 << bits) - 1)


def values(declared: construct.Struct) -> SearchStrategy[dict[str, Any]]:
    """Draw values for all fields, in the order declared."""
    names = [str(field.name) for field in declared.subcons]
    return st.tuples(*map(field_values, declared.subcons)).map(
        lambda drawn: dict(zip(names, drawn, strict=True))
    )


# --- known bytes ----------------------------------------------------------------------------

VECTORS = [
    pytest.param(
        record_layout.Blank,
        {"length": 454},
        "000001C6 CBD43194",
        id="blank",
    ),
    pytest.param(
        layout.QueueEntry,
        {"physical_offset": 0, "size": 235, "tags_code": string_hash("TagA")},
        "0000000000000000 000000EB 000000000027A807",
        id="queue entry",
    ),
    pytest.param(
        layout.QueueEntry,
        {"physical_offset": 9000, "size": 286, "tags_code": string_hash("golden_pull")},
        "0000000000002328 0000011E FFFFFFFF94AA2FBB",
        id="queue entry with a negative tags code",
    ),
    pytest.param(
        layout.QueueEntry,
        {"physical_offset": 3211, "size": 286, "tags_code": 1794797275793 + 1000},
        "0000000000000C8B 0000011E 000001A1E2410E79",
        id="queue entry of a delayed message",
    ),
    pytest.param(
        layout.IndexEntry,
        {
            "key_hash": string_hash("GoldenTopic#key1"),
            "physical_offset": 0,
            "seconds": 0,
            "previous": 0,
        },
        "3F789A8F 0000000000000000 00000000 00000000",
        id="index entry",
    ),
]


@pytest.mark.parametrize(("declared", "fields", "expected"), VECTORS)
def test_known_values_have_known_bytes(
    declared: construct.Struct, fields: dict[str, int], expected: str
) -> None:
    assert declared.build(fields) == bytes.fromhex(expected)


# --- fields of fixed size -------------------------------------------------------------------


@derived
@examples
@given(data=st.data())
def test_a_derived_struct_writes_and_reads_what_its_declaration_does(
    declared: construct.Struct, packed: struct.Struct, data: st.DataObject
) -> None:
    drawn = data.draw(values(declared))
    built = declared.build(drawn)
    assert packed.pack(*drawn.values()) == built
    assert packed.unpack(built) == tuple(drawn.values())
    assert plain(declared.parse(built)) == drawn
    assert len(built) == packed.size == declared.sizeof()


@derived
def test_too_few_bytes_are_refused_by_declaration_and_struct(
    declared: construct.Struct, packed: struct.Struct
) -> None:
    for length in range(packed.size):
        with pytest.raises(construct.StreamError):
            declared.parse(bytes(length))
        with pytest.raises(struct.error):
            packed.unpack_from(bytes(length))


@marked
@examples
@given(data=st.data())
def test_what_has_a_magic_reads_back_as_written_and_not_without_it(
    declared: construct.Struct, data: st.DataObject
) -> None:
    drawn = data.draw(values(declared))
    built = declared.build(drawn)
    assert plain(declared.parse(built)) == drawn
    assert len(built) == declared.sizeof()
    place, magic = next(
        (built.index(const.build(None)), const.build(None))
        for const in map(unwrapped, declared.subcons)
        if isinstance(const, construct.Const)
    )
    damaged = bytearray(built)
    damaged[place + data.draw(st.integers(0, len(magic) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(construct.ConstError):
        declared.parse(bytes(damaged))


@marked
def test_what_has_a_magic_is_refused_when_it_is_cut(declared: construct.Struct) -> None:
    zeros = {str(field.name): 0 for field in declared.subcons}
    built = declared.build(zeros | {"magic": None, "index_name": bytes(20)})
    for length in range(len(built)):
        with pytest.raises(construct.StreamError):
            declared.parse(built[:length])


@examples
@given(length=st.integers(-(1 << 31), (1 << 31) - 1))
def test_the_struct_of_a_blank_is_that_of_its_declaration(length: int) -> None:
    built = record_layout.Blank.build({"length": length})
    assert record_layout.BLANK.pack(length, record_layout.BLANK_MAGIC) == built
    assert record_layout.BLANK.unpack(built) == (length, record_layout.BLANK_MAGIC)


def test_sizes_are_those_of_the_formats() -> None:
    assert {hosts: head.size for hosts, head in record_layout.RECORD_HEADS.items()} == {
        0x00: 88,
        0x10: 100,
        0x20: 100,
        0x30: 112,
    }
    assert record_layout.RECORD_BYTES_MIN == 91
    assert record_layout.BLANK_BYTES == 8
    assert layout.QUEUE_ENTRY_BYTES == 20
    assert layout.INDEX_HEADER_BYTES == 40
    assert layout.INDEX_SLOT_BYTES == 4
    assert layout.INDEX_ENTRY_BYTES == 20
    assert layout.Checkpoint.sizeof() == layout.CHECKPOINT_BYTES == 4096


def test_the_parts_of_the_recovery_point_file_do_not_overlap() -> None:
    # A slot is written in one go: it must lie within one sector of the smallest kind.
    assert layout.RECOVERY_POINT_SLOT_BYTES == 512
    assert layout.RecoveryPoint.sizeof() <= layout.RECOVERY_POINT_SLOT_BYTES
    assert layout.LIVE_MARK_AT >= 2 * layout.RECOVERY_POINT_SLOT_BYTES
    assert layout.LIVE_MARK_AT + layout.LiveMark.sizeof() <= layout.RECOVERY_POINT_FILE_BYTES


# --- records --------------------------------------------------------------------------------


@st.composite
def record_fields(draw: st.DrawFn, hosts: int) -> dict[str, Any]:
    """Draw the fields of a record whose lengths agree; nothing else in it has to make sense."""
    variable = ("body", "topic", "properties")
    born = (
        record_layout.HOST_V6_BYTES if hosts & flags.BORN_HOST_V6 else record_layout.HOST_V4_BYTES
    )
    store = (
        record_layout.HOST_V6_BYTES if hosts & flags.STORE_HOST_V6 else record_layout.HOST_V4_BYTES
    )
    fields: dict[str, Any] = {}
    for field in record_layout.Record.subcons:
        name = str(field.name)
        if name in variable:
            fields[name] = draw(st.binary(max_size=127))
        elif name in ("born_host", "store_host"):
            length = born if name == "born_host" else store
            fields[name] = draw(st.binary(min_size=length, max_size=length))
        else:
            fields[name] = draw(field_values(field))
    for name in variable:
        fields[f"{name}_length"] = len(fields[name])
    fields["sys_flag"] = fields["sys_flag"] & ~record_layout.HOST_FLAGS | hosts
    return fields


@hosts_of_records
@examples
@given(data=st.data())
def test_the_head_of_a_record_is_packed_as_declared_whatever_the_hosts(
    hosts: int, data: st.DataObject
) -> None:
    fields = data.draw(record_fields(hosts))
    built = record_layout.Record.build(fields)
    assert plain(record_layout.Record.parse(built)) == fields

    head = record_layout.RECORD_HEADS[hosts]
    fixed = list(fields.values())[: list(fields).index("body")]
    assert head.pack(*fixed) == built[: head.size]
    assert list(head.unpack_from(built)) == fixed
    assert record_layout.RECORD_PREFIX.unpack_from(built) == (fields["total_size"], fields["magic"])


@hosts_of_records
@settings(examples, max_examples=5)
@given(data=st.data())
def test_a_record_is_refused_when_it_is_cut(hosts: int, data: st.DataObject) -> None:
    built = record_layout.Record.build(data.draw(record_fields(hosts)))
    for length in range(len(built)):
        with pytest.raises(construct.StreamError):
            record_layout.Record.parse(built[:length])


# --- the documentation ----------------------------------------------------------------------

DOCUMENTED: Final = {
    "Record": record_layout.Record,
    "Blank": record_layout.Blank,
    "ConsumeQueue": layout.QueueEntry,
    "IndexFile header": layout.IndexHeader,
    "IndexFile slot": layout.IndexSlot,
    "IndexFile entry": layout.IndexEntry,
    "checkpoint": layout.CheckpointTimes,
    "recovery-point slot": layout.RecoveryPoint,
    "recovery-point live mark": layout.LiveMark,
}


@pytest.mark.parametrize("title", DOCUMENTED)
def test_the_documented_byte_table_is_that_of_the_declaration(title: str) -> None:
    check_byte_table(DOCUMENT, title, DOCUMENTED[title])
