"""From values to places on a plot: axes with round ticks, and how values are written. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final

from rmq.model.words import seconds_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIME_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3_600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 7, 14, 28, 56, 112, 364)),
)
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Unit(Enum):
    """What values are, which decides how they are written and where ticks are."""

    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"
    RATIO = "ratio"
    """How many times as much."""
    PERCENT = "percent"

    def text(self, value: float) -> str:
        """Return a value as readable text."""
        if not math.isfinite(value):
            return "-"
        if self is Unit.BYTES:
            return size_text(round(value)).replace(".0 ", " ")
        if self is Unit.SECONDS:
            return duration_text(value)
        if self is Unit.RATIO:
            return f"{value:.3g} x"
        if self is Unit.PERCENT:
            return f"{value:.3g} %"
        return count_text(value)


def count_text(value: float) -> str:
    """Return a number with three digits that matter: `1.23 M`."""
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor * 0.9995:
            return f"{_digits(value / factor)} {prefix}"
    return f"{value:.0f}" if value == round(value) else _digits(value)


def duration_text(seconds: float) -> str:
    """Return a length of time; below a second in ms or µs."""
    size = abs(seconds)
    if size == 0:
        return "0"
    if size < 0.001:
        return f"{_digits(seconds * 1e6)} µs"
    if size < 0.9995:
        return f"{_digits(seconds * 1e3)} ms"
    if size < 59.5:
        return f"{_digits(seconds)} s"
    return f"{'-' * (seconds < 0)}{seconds_text(size)}"


def _digits(value: float) -> str:
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e" in text else text


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: from values to places, with ticks at round values."""

    low: float
    high: float
    start: float
    """Where `low` is, in units of the drawing."""
    stop: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value is; what lies outside of the axis is put at its end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.stop - self.start)


def value_scale(
    highest: float, unit: Unit, start: float, stop: float, count: int = 5, lowest: float = 0.0
) -> Scale:
    """Return an axis from 0 (or a negative round value) to a round value at or above `highest`."""
    highest = highest if math.isfinite(highest) else 0.0
    if highest <= lowest:
        highest = lowest + 1.0
    step = _round_step((highest - min(lowest, 0.0)) / count, unit)
    first = math.floor(lowest / step) if lowest < 0 else 0
    last = math.ceil(highest / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, stop, ticks)


def log_scale(lowest: float, highest: float, start: float, stop: float) -> Scale:
    """Return an axis with a tick at each power of ten; values must be above 0."""
    first = math.floor(math.log10(max(lowest, 1e-12)) + 1e-9)
    last = max(first + 1, math.ceil(math.log10(max(highest, 1e-12)) - 1e-9))
    every = 1 + (last - first) // 6
    ticks = tuple(10.0**power for power in range(first, last + 1, every))
    return Scale(10.0**first, 10.0**last, start, stop, ticks, is_log=True)


def time_scale(first_s: float, last_s: float, start: float, stop: float, count: int = 8) -> Scale:
    """Return an axis of times whose ticks are at whole minutes, hours or days of UTC."""
    if last_s <= first_s:
        last_s = first_s + 60
    step = time_step((last_s - first_s) / count)
    at = math.ceil(first_s / step) * step
    ticks = []
    while at <= last_s:
        ticks.append(float(at))
        at += step
    return Scale(first_s, last_s, start, stop, tuple(ticks))


def time_step(least_s: float) -> int:
    """Return the smallest round length of time that is at least this."""
    longest = _TIME_STEPS_S[-1]
    more = longest * math.ceil(least_s / longest)
    return next((step for step in _TIME_STEPS_S if step >= least_s), more)


def tick_time_text(time_s: float, ticks: Sequence[float]) -> str:
    """Return the label of a tick: the hour, the date at midnight, seconds where they matter."""
    moment = datetime.fromtimestamp(time_s, UTC)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 60.0
    if step >= 86_400 or (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def moment_text(time_s: float) -> str:
    """Return a moment for tooltips and tables, in UTC."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second else f"{moment:%Y-%m-%d %H:%M}"


def _round_step(least: float, unit: Unit) -> float:
    """Return a round step: 1, 2 or 5 times a power of ten, or of the kind the unit has."""
    if unit is Unit.BYTES and least > 1:
        base = 1024.0 ** math.floor(math.log(least, 1024))
        for factor in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
            if factor * base >= least * (1 - 1e-9):
                return factor * base
    if unit is Unit.SECONDS and least > 1:
        return float(time_step(least))
    base = 10.0 ** math.floor(math.log10(least))
    step = next(factor * base for factor in (1, 2, 5, 10) if factor * base >= least * (1 - 1e-9))
    return max(step, 1.0) if unit is Unit.COUNT else step
