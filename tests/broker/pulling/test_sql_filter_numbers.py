"""Numbers in properties, read as `Integer`, `Long` and `Double.valueOf` of Java read them."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.pulling.sql.numbers import (
    I32_MAX,
    I32_MIN,
    I64_MAX,
    I64_MIN,
    NotANumberError,
    read_double,
    read_i32,
    read_i64,
    total_order,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("-5", -5),
        ("00005", 5),
        ("0" * 6000 + "7", 7),
        ("-" + "0" * 40 + "7", -7),
        ("0" * 40, 0),
        ("\u0663", 3),
        ("\uff15\u0665", 55),
        ("2147483647", I32_MAX),
        ("-2147483648", I32_MIN),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert read_i32(text) == number
    assert read_i64(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", "-", "--5", "+-5", "5-", " 5", "5 ", "5\n", "\u00a05", "1_0", "5L", "5.0", "5."),
        *("1e3", "0x10", "abc", "NaN", "\u00b2", "\u2164", "\U0001d7d3", "1" * 25, "1" * 6000),
        "9223372036854775808",
        "-9223372036854775809",
    ],
)
def test_what_is_no_whole_number(text: str) -> None:
    for read in (read_i32, read_i64):
        with pytest.raises(NotANumberError):
            read(text)


def test_the_ends_of_32_bits_are_not_those_of_64() -> None:
    for number in (I32_MAX + 1, I32_MIN - 1, I64_MAX, I64_MIN):
        assert read_i64(str(number)) == number
        with pytest.raises(NotANumberError):
            read_i32(str(number))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("5", 5.0), ("5.", 5.0), (".5", 0.5), ("+5.5", 5.5), ("-.5e-2", -0.005), ("1E3", 1000.0)),
        *(("5d", 5.0), ("5.5F", 5.5), ("1e3D", 1000.0), (" 5.0 ", 5.0), ("\x0b\x005\n\r", 5.0)),
        *(("0x1p3", 8.0), ("0x1.8P1d", 3.0), ("-0x.8p0", -0.5), ("0X1.p1", 2.0)),
        *(("Infinity", math.inf), ("-Infinity", -math.inf), ("+Infinity", math.inf)),
        *(("1e400", math.inf), ("-1e400", -math.inf), ("0x1p99999", math.inf)),
        *(("-0x1p99999", -math.inf), ("1e-400", 0.0), ("0x1p-99999", 0.0)),
        ("1" * 5000, math.inf),
        ("0" * 5000 + "1.5", 1.5),
    ],
)
def test_doubles(text: str, number: float) -> None:
    assert read_double(text) == number


@pytest.mark.parametrize("text", ["NaN", "-NaN", "+NaN", " NaN "])
def test_no_number_at_all_is_a_double(text: str) -> None:
    assert math.isnan(read_double(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", ".", "e5", "1e", "1e+", "5L", "1_0", "5 5", "- 5", "\u00a05", "\u0663"),
        *("inf", "Inf", "INFINITY", "infinity", "nan", "NAN", "NaNd", "Infinityf"),
        *("0x10", "0xp1", "0x.p1", "0x1.5", "1p3", "5dd", "true"),
    ],
)
def test_what_is_no_double(text: str) -> None:
    with pytest.raises(NotANumberError):
        read_double(text)


@given(st.integers(-(1 << 70), 1 << 70))
def test_every_whole_number_that_fits_is_read(number: int) -> None:
    for read, low, high in ((read_i32, I32_MIN, I32_MAX), (read_i64, I64_MIN, I64_MAX)):
        if low <= number <= high:
            assert read(str(number)) == number
        else:
            with pytest.raises(NotANumberError):
                read(str(number))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_read_as_it_was(number: float) -> None:
    for text in (repr(number), f"{number!r}d", number.hex()):
        assert struct.pack(">d", read_double(text)) == struct.pack(">d", number)


def test_the_order_of_doubles_is_total() -> None:
    ascending = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    keys = [total_order(value) for value in ascending]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert total_order(math.nan) == total_order(-math.nan)
