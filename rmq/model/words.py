"""Readable text for numbers: sizes, times, counts. Pure."""

from __future__ import annotations

import math
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int) -> str:
    """Return a number of bytes with the unit that keeps it short: `1.5 MiB`."""
    value = float(size)
    for unit in _UNITS[:-1]:
        # What would be rounded to 1024 belongs to the next unit.
        if abs(value) < (1024 if unit == "B" else 1023.95):
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def seconds_text(seconds: float) -> str:
    """Return a length of time as readable text: `0.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""
    if not math.isfinite(seconds):
        return "never"
    if seconds < 59.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    if minutes < 1_440:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3_600)
    return f"{hours // 24} d {hours % 24} h"


def ms_text(ms: int) -> str:
    """Return milliseconds as readable text; a negative number means never."""
    return seconds_text(math.inf if ms < 0 else ms / 1000)


def offset_text(offset: int) -> str:
    """Return an offset with its digits in groups of three."""
    return f"{offset:,}"


def count_text(count: int, what: str) -> str:
    """Return a number of things: `1 slave`, `2 slaves`, `no slave`."""
    if count == 0:
        return f"no {what}"
    return f"{count:,} {what}{'s' * (count != 1)}"
