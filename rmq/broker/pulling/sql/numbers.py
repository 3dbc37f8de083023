"""Reading the numbers in properties as `Integer.valueOf`, `Long.valueOf`, `Double.valueOf` do.

Java and Python differ in what they take for a number: blanks, underscores, `inf`, a trailing `d`,
digits of other scripts. A consumer gets the same messages from both brokers only if the answer is
always Java's.
"""

from __future__ import annotations

import math
import re
from typing import Final

from rmq.broker.pulling.sql.errors import EvaluationError

I32_MIN: Final = -(1 << 31)
I32_MAX: Final = (1 << 31) - 1
I64_MIN: Final = -(1 << 63)
I64_MAX: Final = (1 << 63) - 1

# Python refuses to convert some thousand digits; Java takes any number of leading zeros.
_SHORT_CHARS: Final = 20
_LAST_OF_FIRST_PLANE: Final = "\uffff"

# `\d` is a decimal digit of any script, as for Java's Character.digit.
_INTEGER: Final = re.compile(r"([+-]?)(\d+)")
_DOUBLE: Final = re.compile(
    r"""
    [\x00-\x20]*
    (?P<decimal> [+-]? (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? ) [fFdD]?
    [\x00-\x20]*
    """,
    re.VERBOSE,
)
_RARE_DOUBLE: Final = re.compile(
    r"""
    [\x00-\x20]*
    (?: (?P<word> [+-]?(?:NaN|Infinity) )
      | (?P<hexadecimal> [+-]?0[xX] (?: [0-9a-fA-F]+\.? | [0-9a-fA-F]*\.[0-9a-fA-F]+ )
                         [pP][+-]?[0-9]+ ) [fFdD]? )
    [\x00-\x20]*
    """,
    re.VERBOSE,
)


class NotANumberError(EvaluationError):
    """A text is not a number of the type asked for."""


def read_i32(text: str) -> int:
    """Return what `Integer.valueOf` returns."""
    value = _read_integer(text)
    if I32_MIN <= value <= I32_MAX:
        return value
    raise NotANumberError(text)


def read_i64(text: str) -> int:
    """Return what `Long.valueOf` returns."""
    value = _read_integer(text)
    if I64_MIN <= value <= I64_MAX:
        return value
    raise NotANumberError(text)


def read_double(text: str) -> float:
    """Return what `Double.valueOf` returns."""
    found = _DOUBLE.fullmatch(text)
    if found is not None:
        return float(found["decimal"])
    found = _RARE_DOUBLE.fullmatch(text)
    if found is None:
        raise NotANumberError(text)
    if found["word"]:
        return float(found["word"])
    return _read_hexadecimal(found["hexadecimal"])


def total_order(value: float) -> tuple[float, float]:
    """Return what sorts as `Double.compareTo` does: -0.0 before 0.0, NaN after everything."""
    if math.isnan(value):
        return math.inf, 2.0
    return value, math.copysign(1.0, value)


def _read_integer(text: str) -> int:
    found = _INTEGER.fullmatch(text)
    if found is None or (not text.isascii() and max(text) > _LAST_OF_FIRST_PLANE):
        # Java reads UTF-16 units one by one, and half a pair is no digit.
        raise NotANumberError(text)
    if len(text) <= _SHORT_CHARS:
        return int(text)
    sign, digits = found.groups()
    significant = _without_leading_zeros(digits)
    if len(significant) > _SHORT_CHARS:
        raise NotANumberError(text)
    return int(sign + significant)


def _without_leading_zeros(digits: str) -> str:
    start = next((i for i, digit in enumerate(digits) if int(digit)), len(digits) - 1)
    return digits[start:]


def _read_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf
