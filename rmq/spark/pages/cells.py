"""Plots made of bars and cells, as SVG inside a page: bars, histogram, heat map, map of a log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.spark.pages.markup import NOTHING, Markup, element, joined, text
from rmq.spark.pages.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    canvas,
    figure,
    time_axis,
    value_axis,
)
from rmq.spark.pages.scales import Scale, Unit, moment_text, time_scale, value_scale

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME_WIDTH: Final = 250
_BAR_HEIGHT: Final = 24
_NAME_CHARS: Final = 36
_ROW_MAX: Final = 40
_LEVELS: Final = 7
_CELL: Final = 13
_CELLS_A_ROW: Final = 64
CELLS_MAX: Final = 1_024
"""How many cells a map of a log has at most."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    name: str
    value: float
    note: str = ""
    """What stands behind the value."""
    is_bad: bool = False


def shortened(name: str, limit: int = _NAME_CHARS) -> str:
    """Return a name with its middle left out if it is long: names differ at their ends."""
    if len(name) <= limit:
        return name
    half = (limit - 1) // 2
    return f"{name[:half]}…{name[-(limit - 1 - half) :]}"


def bar_plot(title: str, subtitle: str, bars: Sequence[Bar], unit: Unit) -> Markup:
    """Return horizontal bars with names at the left and values behind them, in the order given."""
    shown = bars[:_ROW_MAX]
    if len(bars) > len(shown):
        subtitle = f"{subtitle}; {len(bars) - len(shown)} more are not drawn"
    highest = max((bar.value for bar in shown if math.isfinite(bar.value)), default=0.0)
    along = value_scale(highest, unit, _NAME_WIDTH, WIDTH - 150, count=4)
    along = Scale(0.0, max(highest, 1e-12), along.start, along.stop, ())
    parts: list[Markup] = []
    for row, bar in enumerate(shown):
        y = row * _BAR_HEIGHT + 4
        stop = along.place(bar.value) if math.isfinite(bar.value) else along.start
        name = text(shortened(bar.name))
        value = unit.text(bar.value) + (f" · {bar.note}" if bar.note else "")
        kind = "bar bad" if bar.is_bad else "bar"
        parts += [
            element("text", name, x=_NAME_WIDTH - 10, y=y + 13, class_="name end"),
            element(
                "path",
                d=_rounded(_NAME_WIDTH, y, max(stop - _NAME_WIDTH, 1.0), _BAR_HEIGHT - 7),
                class_=kind,
            ),
            element("text", text(value), x=max(stop, _NAME_WIDTH) + 8, y=y + 13, class_="value"),
            element(
                "rect",
                element("title", text(f"{bar.name}\n{value}")),
                x=0,
                y=y - 3,
                width=WIDTH,
                height=_BAR_HEIGHT,
                class_="hit",
            ),
        ]
    height = max(len(shown), 1) * _BAR_HEIGHT + 8
    if not shown:
        parts.append(element("text", text("nothing to show"), x=WIDTH / 2, y=18, class_="tick"))
    return figure(title, subtitle, canvas(f"{title}. {subtitle}", height, *parts))


def _rounded(x: float, y: float, width: float, height: float) -> str:
    """Return a bar whose far end is round: its near end stands on the axis."""
    radius = min(3.0, width / 2)
    flat = width - radius
    return (
        f"M{x:.2f} {y:.2f}h{flat:.2f}a{radius:.2f} {radius:.2f} 0 0 1 {radius:.2f} {radius:.2f}"
        f"v{height - 2 * radius:.2f}a{radius:.2f} {radius:.2f} 0 0 1 -{radius:.2f} {radius:.2f}"
        f"h-{flat:.2f}z"
    )


def histogram(
    title: str, subtitle: str, bins: Sequence[tuple[str, float]], unit: Unit, *, axis_name: str
) -> Markup:
    """Return how many values there are in each of several bins, from low to high."""
    up = value_scale(max((count for _, count in bins), default=0), unit, HEIGHT - BOTTOM, TOP)
    step = (WIDTH - RIGHT - LEFT) / max(len(bins), 1)
    every = 1 + len(bins) // 14
    parts = [value_axis(up, unit, LEFT, WIDTH - RIGHT)]
    for index, (name, count) in enumerate(bins):
        x, y = LEFT + index * step, up.place(count)
        if count > 0:
            height = max(HEIGHT - BOTTOM - y, 1)
            parts.append(element("rect", x=x + 1, y=y, width=step - 2, height=height, class_="bar"))
        if index % every == 0:
            parts.append(
                element(
                    "text", text(name), x=x + step / 2, y=HEIGHT - BOTTOM + 18, class_="tick middle"
                )
            )
        parts.append(
            element(
                "rect",
                element("title", text(f"{axis_name} {name}\n{unit.text(count)}")),
                x=x,
                y=TOP,
                width=step,
                height=HEIGHT - BOTTOM - TOP,
                class_="hit",
            )
        )
    return figure(title, subtitle, canvas(f"{title}. {subtitle}", HEIGHT, *parts))


def heat_map(
    title: str,
    subtitle: str,
    times_s: Sequence[float],
    rows: Sequence[tuple[str, Sequence[float]]],
    unit: Unit,
) -> Markup:
    """Return rows of cells over time, the darker the more; rows in the order given.

    `times_s` are the beginnings of equal stretches of time.
    """
    shown = rows[:_ROW_MAX]
    if len(rows) > len(shown):
        subtitle = f"{subtitle}; {len(rows) - len(shown)} more rows are not drawn"
    values = [value for _, row in shown for value in row if math.isfinite(value)]
    highest = max(values, default=0.0)
    if not times_s or highest <= 0:
        label = element("text", text("nothing to show"), x=WIDTH / 2, y=44, class_="tick middle")
        return figure(title, subtitle, canvas(title, 80, label))
    bucket_s = times_s[1] - times_s[0] if len(times_s) > 1 else 60.0
    along = time_scale(times_s[0], times_s[-1] + bucket_s, _NAME_WIDTH, WIDTH - RIGHT)
    row_height = 20 if len(shown) <= 20 else 14
    height = len(shown) * row_height
    parts: list[Markup] = []
    for index, (name, row) in enumerate(shown):
        y = index * row_height
        label = text(shortened(name))
        parts.append(
            element("text", label, x=_NAME_WIDTH - 10, y=y + row_height / 2 + 4, class_="name end")
        )
        parts.append(
            element(
                "rect",
                x=_NAME_WIDTH,
                y=y + 1,
                width=WIDTH - RIGHT - _NAME_WIDTH,
                height=row_height - 2,
                class_="empty",
            )
        )
        for time_s, value in zip(times_s, row, strict=True):
            if not math.isfinite(value) or value <= 0:
                continue
            left, right = along.place(time_s), along.place(time_s + bucket_s)
            gap = 0.6 if right - left > 4 else 0.0
            told = f"{name}\n{moment_text(time_s)} UTC\n{unit.text(value)}"
            parts.append(
                element(
                    "rect",
                    element("title", text(told)),
                    x=left + gap,
                    y=y + 1,
                    width=right - left - 2 * gap,
                    height=row_height - 2,
                    class_=f"heat h{_level(value, highest)}",
                )
            )
    drawing = canvas(
        f"{title}. {subtitle}", height + BOTTOM, *parts, time_axis(along, height + 1.0)
    )
    steps = [element("i", class_=f"swatch h{level}") for level in range(1, _LEVELS + 1)]
    key = element(
        "div",
        element("span", text(f"up to {unit.text(highest / _LEVELS)}")),
        element("span", *steps, class_="ramp"),
        element("span", text(unit.text(highest))),
        class_="legend",
    )
    return figure(title, subtitle, drawing, key)


def _level(value: float, highest: float) -> int:
    return min(_LEVELS, max(1, math.ceil(value / highest * _LEVELS)))


@dataclass(frozen=True, slots=True)
class Cell:
    """A stretch of a log."""

    kind: str
    """One of the kinds of the map's key."""
    told: str
    """What it says when it is pointed at."""


def cell_map(
    title: str, subtitle: str, cells: Sequence[Cell], key: Mapping[str, tuple[str, str]]
) -> Markup:
    """Return a map of a log: one cell for each stretch, in order, row by row.

    `key` has for each kind its name and the class of its colour.
    """
    parts: list[Markup] = []
    for index, cell in enumerate(cells[:CELLS_MAX]):
        row, column = divmod(index, _CELLS_A_ROW)
        parts.append(
            element(
                "rect",
                element("title", text(cell.told)),
                x=column * 15,
                y=row * 15,
                width=_CELL,
                height=_CELL,
                rx=2,
                class_=f"cell {key[cell.kind][1]}",
            )
        )
    rows = -(-max(len(cells), 1) // _CELLS_A_ROW)
    used = {cell.kind for cell in cells}
    counted = element(
        "div",
        *(
            element("span", element("i", class_=f"swatch {style}"), text(name))
            for kind, (name, style) in key.items()
            if kind in used
        ),
        class_="legend",
    )
    drawing = canvas(f"{title}. {subtitle}", rows * 15 + 2, joined(parts) or NOTHING)
    return figure(title, subtitle, drawing, counted)
