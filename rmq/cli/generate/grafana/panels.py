"""What a dashboard can show: a vocabulary of panels, named as Grafana names them. Pure."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

Color: TypeAlias = Literal["green", "yellow", "orange", "red", "blue", "purple", "text"]
"""`text` is the colour that text has, for what is neither good nor bad."""


class Unit(StrEnum):
    """Units, as Grafana calls them."""

    NONE = "none"
    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    PER_SECOND = "cps"
    RATIO = "percentunit"
    YES_NO = "bool_yes_no"


class Levels(NamedTuple):
    """From which value on a panel has which colour."""

    base: Color = "green"
    steps: tuple[tuple[float, Color], ...] = ()
    """Rising."""


def levels(base: Color, *steps: tuple[float, Color]) -> Levels:
    """Return levels: the colour of the lowest values, and those from a value on."""
    return Levels(base, steps)


PLAIN: Final = Levels()
NEUTRAL: Final = Levels("blue")
"""For numbers that are neither good nor bad."""


class Word(NamedTuple):
    """What is shown instead of a value."""

    value: int
    text: str
    color: Color


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and what its series are called: `{{label}}` stands for its value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column(Query):
    """A query whose value is a column of a table; without a heading it only brings labels."""

    _: KW_ONLY
    heading: str = ""
    unit: Unit = Unit.NONE
    levels: Levels = PLAIN
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """What all panels have."""

    title: str
    description: str
    """What is shown, and what is right."""
    unit: Unit
    queries: tuple[Query, ...]
    _: KW_ONLY
    width: int = 0
    """Of 24 columns; 0: panels of a row share what is left in equal parts."""
    levels: Levels = PLAIN
    words: tuple[Word, ...] = ()
    absent: str = ""
    """What is shown while there is no value."""
    details: str = ""
    """The uid of the dashboard that shows more."""
    alert: str = ""
    """The alert that fires when the panel shows what is wrong."""


@dataclass(frozen=True, slots=True)
class TimeSeries(Panel):
    """Lines over time; each level is drawn as a line across."""

    _: KW_ONLY
    minimum: float | None = 0
    maximum: float | None = None
    is_stacked: bool = False
    downward: tuple[int, ...] = ()
    """Numbers of the queries that are drawn below zero, from 0 on."""


@dataclass(frozen=True, slots=True)
class Stat(Panel):
    """The present value as a coloured tile, one for each series."""

    _: KW_ONLY
    text: Literal["value", "name", "value_and_name"] = "value"
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Gauge(Panel):
    """The present value as a part of a whole."""

    _: KW_ONLY
    maximum: float = 1


@dataclass(frozen=True, slots=True)
class BarGauge(Panel):
    """Present values as bars beside each other."""


@dataclass(frozen=True, slots=True)
class StateTimeline(Panel):
    """Which state each series was in when; the words name the states."""


@dataclass(frozen=True, slots=True)
class Heatmap(Panel):
    """How often a value was how large; the query has one series for each `le`."""


@dataclass(frozen=True, slots=True)
class Table(Panel):
    """Present values: one row for each set of labels that the columns share."""

    queries: tuple[Column, ...]
    _: KW_ONLY
    labels: tuple[tuple[str, str], ...]
    """Labels that are shown, with their headings, before the values."""
    sort_by: str = ""
    """The heading of the column by which rows are sorted, largest first."""


AnyPanel: TypeAlias = TimeSeries | Stat | Gauge | BarGauge | StateTimeline | Heatmap | Table
