"""A dashboard: sections of rows of panels, with its variables and annotations. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmq.cli.generate.grafana.panels import AnyPanel, Color

COLUMNS: Final = 24
"""The width of a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels beside each other, all of one height."""

    height: int
    panels: tuple[AnyPanel, ...]

    def widths(self) -> list[int]:
        """Return how many columns each panel has."""
        taken = sum(panel.width for panel in self.panels)
        sharing = sum(not panel.width for panel in self.panels)
        share = (COLUMNS - taken) // sharing if sharing else 0
        return [panel.width or share for panel in self.panels]


@dataclass(frozen=True, slots=True)
class Section:
    """Rows below a title; without one they have no heading."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A choice at the head of a dashboard: the values of a label."""

    name: str
    label: str
    """The label whose values can be chosen."""
    of: str
    """The selector of the series that have it."""
    is_listed: bool = False
    """Whether "All" stands for the values that were found, instead of for every value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """A mark across all panels where an expression has a value."""

    name: str
    color: Color
    expression: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    """Part of its address: it stays."""
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]
    annotations: tuple[Annotation, ...] = ()
    span: str = "1h"
    """How much time is shown at first."""
    refresh: str = "30s"

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.uid.removeprefix('rocketmq-')}.json"
