"""A count over the last minute, hour and day, as RocketMQ 4.9.8 StatsItem keeps it. Pure.

A `Meter` counts up and never down. Now and then it is sampled; what it says about a span is the
difference between the last and the first sample kept for that span:

    span     sampled every   samples kept   reaches back
    minute   10 s            7              60 s
    hour     10 min          7              60 min
    day      1 h             25             24 h

So figures stand still between two samples, and what came after the last one is not in them yet. A
meter that is younger than its first sample is taken to have counted for one whole interval.
"""

from __future__ import annotations

import enum
from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple, final

_COLUMNS: Final = 4
"""Time, times, value and size of a sample, one after the other in one array."""


@dataclass(frozen=True, eq=False, slots=True)
class Span:
    """How far back a figure reaches: the interval between samples, and how many are kept.

    No enum, because it is a key that is looked up for every sample, and enums hash slowly.
    """

    interval_ms: int
    samples_max: int


MINUTE: Final = Span(10_000, 7)
HOUR: Final = Span(600_000, 7)
DAY: Final = Span(3_600_000, 25)
SPANS: Final = (MINUTE, HOUR, DAY)


class Column(enum.IntEnum):
    """Which of the two things a meter adds up."""

    VALUE = 2
    SIZE = 3


class Figures(NamedTuple):
    """What happened within a span."""

    sum: int = 0
    per_second: float = 0.0
    per_time: float = 0.0
    """How much one call added on average."""
    times: int = 0


@final
class Meter:
    """Counts calls, and two things they bring: as a rule messages, and their bytes.

    The counts are public so that counting is one addition each. Those that have no use for calls or
    sizes leave them at 0.
    """

    __slots__ = ("_samples", "size", "times", "value")

    def __init__(self) -> None:
        self.times = 0
        self.value = 0
        self.size = 0
        # An array holds a day in 1.2 KiB; tuples of numbers would take eight.
        self._samples: dict[Span, array[int]] = {}

    def sample(self, span: Span, now_ms: int) -> None:
        """Note the counts; to be called at the interval of the span."""
        samples = self._samples.get(span)
        if samples is None:
            samples = self._samples[span] = array("q", (now_ms - span.interval_ms, 0, 0, 0))
        samples.extend((now_ms, self.times, self.value, self.size))
        if len(samples) > span.samples_max * _COLUMNS:
            del samples[:_COLUMNS]

    def figures(self, span: Span, column: Column = Column.VALUE) -> Figures:
        """Return what the samples of a span say; all 0 before there is one."""
        samples = self._samples.get(span)
        if samples is None:
            return Figures()
        last = len(samples) - _COLUMNS
        total = samples[last + column] - samples[column]
        times = samples[last + 1] - samples[1]
        elapsed_ms = samples[last] - samples[0]
        return Figures(
            total,
            total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
            total / times if times > 0 else 0.0,
            times,
        )

    @property
    def is_idle(self) -> bool:
        """Whether no call was counted for a whole day, so that all figures are 0."""
        samples = self._samples.get(DAY)
        if samples is None or len(samples) < DAY.samples_max * _COLUMNS:
            return False
        return samples[1] == self.times
