"""Kinds of values on the command lines of pipelines."""

from __future__ import annotations

import argparse
import math
from typing import Final

from rmq.model.moments import parse_moment_ms

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def natural(text: str) -> int:
    """Read a number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """Read a number from 1 on."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def amount(text: str) -> float:
    """Read a number above 0, which may have a fraction."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def size_bytes(text: str) -> int:
    """Read a number of bytes, such as 4096, 500M, 1.5T or 2TiB."""
    word = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = word[-1:] if word[-1:] in _UNITS else ""
    try:
        value = float(word.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500M or 1.5T")
    return int(value)


def names(text: str) -> list[str]:
    """Read names joined by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found


def moment_ms(text: str) -> int:
    """Read a moment, in milliseconds since 1970."""
    try:
        return parse_moment_ms(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
