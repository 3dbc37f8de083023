"""Structs and bit fields derived from construct declarations, against construct itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Bytes,
    Const,
    Default,
    Flag,
    Float64b,
    GreedyBytes,
    Int8sb,
    Int8ub,
    Int8ul,
    Int16sb,
    Int16ub,
    Int16ul,
    Int24ub,
    Int32sb,
    Int32sl,
    Int32ub,
    Int64sb,
    Int64ub,
    Int64ul,
    Padding,
    Prefixed,
    Rebuild,
    Struct,
    VarInt,
    this,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.packing import BitField, bit_fields_of, fixed_prefix_of, struct_of

if TYPE_CHECKING:
    from construct import Construct

    AnyConstruct = Construct[Any, Any]

EVERY_KIND: Final = Struct(
    "int8" / Int8sb,
    "uint8" / Int8ub,
    "int16" / Int16sb,
    "uint16" / Int16ub,
    "int32" / Int32sb,
    "uint32" / Int32ub,
    "int64" / Int64sb,
    "uint64" / Int64ub,
    "raw" / Bytes(3),
)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1)


NAMES: Final = [str(field.name) for field in EVERY_KIND.subcons]


@settings(max_examples=100)
@given(
    st.tuples(
        signed(8),
        unsigned(8),
        signed(16),
        unsigned(16),
        signed(32),
        unsigned(32),
        signed(64),
        unsigned(64),
        st.binary(min_size=3, max_size=3),
    )
)
def test_every_supported_field_packs_and_unpacks_as_construct_does(values: tuple[Any, ...]) -> None:
    derived = struct_of(EVERY_KIND)
    data = EVERY_KIND.build(dict(zip(NAMES, values, strict=True)))
    assert derived.size == EVERY_KIND.sizeof()
    assert derived.pack(*values) == data
    assert derived.unpack(data) == values


@settings(max_examples=100)
@given(st.binary(min_size=EVERY_KIND.sizeof(), max_size=EVERY_KIND.sizeof()))
def test_any_bytes_unpack_as_construct_parses_them(data: bytes) -> None:
    parsed = EVERY_KIND.parse(data)
    assert struct_of(EVERY_KIND).unpack(data) == tuple(parsed[name] for name in NAMES)


def test_defaults_and_computed_fields_have_the_format_of_what_they_wrap() -> None:
    wrapped = Struct("a" / Default(Int16sb, 7), "b" / Rebuild(Int32sb, this.a + 1))
    derived = struct_of(wrapped)
    assert derived.pack(7, 8) == wrapped.build({})
    assert derived.unpack(wrapped.build({"a": -3})) == (-3, -2)


def test_the_byte_order_of_a_single_byte_does_not_matter() -> None:
    assert struct_of(Struct("a" / Int8ul)).pack(200) == Struct("a" / Int8ul).build({"a": 200})


def test_no_fields_make_an_empty_struct() -> None:
    assert struct_of(Struct()).size == 0


UNSUPPORTED: Final = [
    pytest.param(Int16ul, id="little-endian 16 bits"),
    pytest.param(Int32sl, id="little-endian 32 bits"),
    pytest.param(Int64ul, id="little-endian 64 bits"),
    pytest.param(Int24ub, id="24 bits"),
    pytest.param(Float64b, id="float"),
    pytest.param(Flag, id="flag"),
    pytest.param(VarInt, id="varint"),
    pytest.param(Bytes(this.a), id="bytes of a computed length"),
    pytest.param(GreedyBytes, id="greedy bytes"),
    pytest.param(Const(b"RMQ"), id="constant"),
    pytest.param(Padding(4), id="padding"),
    pytest.param(Array(2, Int8ub), id="array"),
    pytest.param(Prefixed(Int8ub, GreedyBytes), id="prefixed"),
    pytest.param(Struct("inner" / Int8ub), id="struct"),
]


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_a_field_without_a_struct_format_is_refused(field: AnyConstruct) -> None:
    with pytest.raises(TypeError):
        struct_of(Struct("a" / Int32sb, "b" / field))


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_a_declaration_that_begins_with_such_a_field_has_no_fixed_prefix(
    field: AnyConstruct,
) -> None:
    with pytest.raises(TypeError, match="does not begin with a fixed-size field"):
        fixed_prefix_of(Struct("a" / field, "b" / Int32sb))


def test_a_fixed_prefix_ends_before_the_first_field_that_varies() -> None:
    declaration = Struct(
        "code" / Int16sb,
        "length" / Int32sb,
        "text" / Bytes(this.length),
        "after" / Int64sb,
    )
    prefix = fixed_prefix_of(declaration)
    data = declaration.build({"code": -2, "length": 3, "text": b"abc", "after": 1})
    assert prefix.size == 6
    assert prefix.unpack_from(data) == (-2, 3)


def test_the_fixed_prefix_of_fixed_fields_is_all_of_them() -> None:
    assert fixed_prefix_of(EVERY_KIND).format == struct_of(EVERY_KIND).format


# --- bit fields -----------------------------------------------------------------------------

BITS: Final = BitStruct("high" / BitsInteger(3), "middle" / BitsInteger(12), "low" / BitsInteger(1))


@settings(max_examples=100)
@given(high=unsigned(3), middle=unsigned(12), low=unsigned(1))
def test_shift_and_mask_place_bits_as_construct_does(high: int, middle: int, low: int) -> None:
    values = {"high": high, "middle": middle, "low": low}
    fields = bit_fields_of(BITS)
    word = int.from_bytes(BITS.build(values), "big")
    assert word == sum(values[name] << field.shift for name, field in fields.items())
    assert {name: word >> field.shift & field.mask for name, field in fields.items()} == values


def test_bit_fields_are_counted_from_the_high_end() -> None:
    assert bit_fields_of(BITS) == {
        "high": BitField(shift=13, mask=0b111),
        "middle": BitField(shift=1, mask=0xFFF),
        "low": BitField(shift=0, mask=1),
    }


@pytest.mark.parametrize(
    "declaration",
    [
        pytest.param(Int32ub, id="an integer"),
        pytest.param(Struct("a" / Int8ub), id="a plain struct"),
        pytest.param(Prefixed(Int8ub, Struct("a" / Int8ub)), id="a struct behind a length"),
        pytest.param(BitStruct("a" / BitsInteger(8, signed=True)), id="a signed field"),
        pytest.param(BitStruct("a" / BitsInteger(16, swapped=True)), id="a little-endian field"),
        pytest.param(BitStruct("a" / BitsInteger(this.n)), id="a computed width"),
        pytest.param(BitStruct(BitsInteger(8)), id="a field without a name"),
        pytest.param(BitStruct("a" / Flag, "b" / BitsInteger(7)), id="a flag"),
        pytest.param(BitStruct("a" / BitsInteger(4), Padding(4)), id="padding"),
    ],
)
def test_what_is_not_a_row_of_unsigned_bit_fields_is_refused(declaration: AnyConstruct) -> None:
    with pytest.raises(TypeError):
        bit_fields_of(declaration)
