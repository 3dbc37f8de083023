"""Plots over time, as SVG inside a page: stacked series, lines, percentile bands. Pure.

Colours are variables of the page's style, so the same drawing is right on a light and on a dark
screen. Every plot has a title, an axis with a unit, a legend if it has more than one series, and
for each moment a strip that tells its values when it is pointed at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rmq.spark.pages.markup import NOTHING, Markup, element, joined, number, text
from rmq.spark.pages.scales import (
    Scale,
    Unit,
    log_scale,
    moment_text,
    tick_time_text,
    time_scale,
    value_scale,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 960
HEIGHT: Final = 260
LEFT: Final = 76
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 30
COLOURS: Final = 8
"""How many colours the style has; what comes after them is put together as others."""
COLUMNS_MIN: Final = 12
COLUMNS_MAX: Final = 90
"""Up to this many moments are drawn as columns, more as areas."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one thing at each moment; not-a-number where there is none."""

    name: str
    values: Sequence[float]

    @property
    def total(self) -> float:
        return sum(value for value in self.values if math.isfinite(value))


def leading(series: Iterable[Series], limit: int = COLOURS - 1) -> list[Series]:
    """Return the series with the largest totals, the others added up behind them."""
    ordered = sorted(series, key=lambda one: (-one.total, one.name))
    if len(ordered) <= limit + 1:
        return ordered
    rest = ordered[limit:]
    added = [
        sum(value for value in column if math.isfinite(value))
        for column in zip(*(one.values for one in rest), strict=True)
    ]
    return [*ordered[:limit], Series(f"{len(rest)} others", added)]


def figure(title: str, subtitle: str, drawing: Markup, legend: Markup = NOTHING) -> Markup:
    """Return a drawing with its title."""
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", text(title)),
            element("span", text(subtitle), class_="sub") if subtitle else NOTHING,
        ),
        legend,
        element("div", drawing, class_="scroll"),
    )


def canvas(label: str, height: float, *parts: Markup, width: float = WIDTH) -> Markup:
    """Return an SVG drawing."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
        style=f"max-width:{number(width)}px",
    )


def legend(names: Sequence[str], totals: Sequence[str] | None = None) -> Markup:
    """Return names with the colours they are drawn in."""
    entries = [
        element(
            "span",
            element("i", style=f"background:{colour(index, len(names), name)}"),
            text(name),
            element("b", text(totals[index])) if totals else NOTHING,
        )
        for index, name in enumerate(names)
    ]
    return element("div", *entries, class_="legend") if len(names) > 1 else NOTHING


def colour(index: int, count: int, name: str = "") -> str:
    """Return the colour of a series; what is put together as others is grey."""
    if index >= COLOURS or (index == count - 1 and name.endswith(" others")):
        return "var(--others)"
    return f"var(--s{index + 1})"


def stacked_plot(
    title: str, subtitle: str, times_s: Sequence[float], series: Sequence[Series], unit: Unit
) -> Markup:
    """Return series on top of each other: the total, and the share of each.

    `times_s` are the beginnings of equal stretches of time.
    """
    series = leading(series)
    if not times_s or not series:
        return figure(title, subtitle, _no_data())
    bucket_s = _bucket_s(times_s)
    sums = [sum(_zero(one.values[at]) for one in series) for at in range(len(times_s))]
    # A few moments alone are not made as wide as the plot.
    end_s = max(times_s[-1] + bucket_s, times_s[0] + COLUMNS_MIN * bucket_s)
    along = time_scale(times_s[0], end_s, LEFT, WIDTH - RIGHT)
    up = value_scale(max(sums), unit, HEIGHT - BOTTOM, TOP)
    is_columns = len(times_s) <= COLUMNS_MAX
    marks: list[Markup] = []
    floor = [0.0] * len(times_s)
    for index, one in enumerate(series):
        ceiling = [low + _zero(value) for low, value in zip(floor, one.values, strict=True)]
        style = f"--c:{colour(index, len(series), one.name)}"
        if is_columns:
            path = _columns(times_s, floor, ceiling, along, up, bucket_s)
        else:
            path = _area(times_s, floor, ceiling, along, up, bucket_s / 2)
        marks.append(element("path", d=path, class_="area", style=style))
        floor = ceiling
    strips = _strips(times_s, bucket_s, along, series, unit, with_total=len(series) > 1)
    drawing = canvas(
        f"{title}. {subtitle}",
        HEIGHT,
        value_axis(up, unit, LEFT, WIDTH - RIGHT),
        *marks,
        time_axis(along, HEIGHT - BOTTOM),
        strips,
    )
    totals = [unit.text(one.total) for one in series]
    return figure(title, subtitle, drawing, legend([one.name for one in series], totals))


def line_plot(
    title: str,
    subtitle: str,
    times_s: Sequence[float],
    series: Sequence[Series],
    unit: Unit,
    *,
    limit: float | None = None,
    limit_name: str = "limit",
) -> Markup:
    """Return series as lines, those with the largest last values in colours, with a limit."""
    shown = sorted(series, key=lambda one: (-_last(one.values), one.name))[: COLOURS - 1]
    if not times_s or not shown:
        return figure(title, subtitle, _no_data())
    values = [value for one in shown for value in one.values if math.isfinite(value)]
    highest = max([*values, limit or 0.0], default=0.0)
    along = time_scale(times_s[0], times_s[-1], LEFT, WIDTH - RIGHT)
    up = value_scale(highest, unit, HEIGHT - BOTTOM, TOP, lowest=min([0.0, *values]))
    marks: list[Markup] = []
    for index, one in enumerate(shown):
        style = f"--c:{colour(index, len(shown))}"
        points = [
            (along.place(time_s), up.place(value))
            for time_s, value in zip(times_s, one.values, strict=True)
            if math.isfinite(value)
        ]
        if len(times_s) <= COLUMNS_MAX:
            marks += [
                element("circle", cx=x, cy=y, r=3, class_="dot", style=style) for x, y in points
            ]
        path = _line(times_s, one.values, along, up)
        marks.append(element("path", d=path, class_="line", style=style))
    if limit is not None:
        marks.append(_limit_line(up.place(limit), f"{limit_name} {unit.text(limit)}"))
    left_out = len(series) - len(shown)
    if left_out > 0:
        subtitle = f"{subtitle}; {left_out} more with lower values are not drawn"
    drawing = canvas(
        f"{title}. {subtitle}",
        HEIGHT,
        value_axis(up, unit, LEFT, WIDTH - RIGHT),
        *marks,
        time_axis(along, HEIGHT - BOTTOM),
        _strips(times_s, _bucket_s(times_s), along, shown, unit, is_centred=True),
    )
    lasts = [unit.text(_last(one.values)) for one in shown]
    return figure(title, subtitle, drawing, legend([one.name for one in shown], lasts))


def band_plot(
    title: str,
    subtitle: str,
    times_s: Sequence[float],
    low: Series,
    middle: Series,
    high: Series,
    unit: Unit,
) -> Markup:
    """Return three percentiles over time on a logarithmic axis: a line, and bands up to the others.

    Not-a-number is a moment without values, at which line and bands are interrupted.
    """
    everything = [
        value for one in (low, middle, high) for value in one.values if math.isfinite(value)
    ]
    positive = [value for value in everything if value > 0]
    if not times_s or not everything:
        return figure(title, subtitle, _no_data())
    least = max(min(positive, default=0.001), 1e-6)
    bucket_s = _bucket_s(times_s)
    along = time_scale(times_s[0], times_s[-1] + bucket_s, LEFT, WIDTH - RIGHT)
    up = log_scale(least, max(positive, default=least * 10), HEIGHT - BOTTOM, TOP)
    marks: list[Markup] = []
    together = [sum(at) for at in zip(low.values, middle.values, high.values, strict=True)]
    for first, stop in _stretches(together):
        times = times_s[first:stop]
        lows, middles, highs = (one.values[first:stop] for one in (low, middle, high))
        for floor, ceiling, kind in ((lows, middles, "band"), (middles, highs, "band faint")):
            path = _area(times, floor, ceiling, along, up, bucket_s / 2)
            marks.append(element("path", d=path, class_=kind))
    shifted = [time_s + bucket_s / 2 for time_s in times_s]
    path = _line(shifted, low.values, along, up)
    marks.append(element("path", d=path, class_="line", style="--c:var(--s1)"))
    drawing = canvas(
        f"{title}. {subtitle}",
        HEIGHT,
        value_axis(up, unit, LEFT, WIDTH - RIGHT),
        *marks,
        time_axis(along, HEIGHT - BOTTOM),
        _strips(times_s, bucket_s, along, (low, middle, high), unit),
    )
    key = element(
        "div",
        element("span", element("i", class_="key-line"), text(low.name)),
        element("span", element("i", class_="key-band"), text(f"{low.name} to {middle.name}")),
        element("span", element("i", class_="key-faint"), text(f"{middle.name} to {high.name}")),
        class_="legend",
    )
    return figure(title, subtitle, drawing, key)


# --- axes ---------------------------------------------------------------------------------------


def value_axis(up: Scale, unit: Unit, left: float, right: float) -> Markup:
    """Return horizontal lines with their values at the left."""
    parts: list[Markup] = []
    for tick in up.ticks:
        y = up.place(tick)
        kind = "base" if tick == up.low else "grid"
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_=kind))
        label = text(unit.text(tick))
        parts.append(element("text", label, x=left - 8, y=y + 4, class_="tick end"))
    return joined(parts)


def time_axis(along: Scale, y: float) -> Markup:
    """Return times below a plot."""
    parts: list[Markup] = []
    for tick in along.ticks:
        x = along.place(tick)
        parts.append(element("line", x1=x, x2=x, y1=y, y2=y + 4, class_="base"))
        label = text(tick_time_text(tick, along.ticks))
        kind = "tick middle" if along.start + 20 < x < along.stop - 20 else "tick end"
        if x <= along.start + 20:
            kind = "tick"
        parts.append(element("text", label, x=x, y=y + 19, class_=kind))
    return joined(parts)


def _limit_line(y: float, label: str) -> Markup:
    return joined(
        (
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit"),
            element("text", text(label), x=WIDTH - RIGHT, y=y - 5, class_="tick end limit-text"),
        )
    )


def _strips(
    times_s: Sequence[float],
    bucket_s: float,
    along: Scale,
    series: Sequence[Series],
    unit: Unit,
    *,
    with_total: bool = False,
    is_centred: bool = False,
) -> Markup:
    """Return a strip for each moment that tells its values when it is pointed at."""
    parts: list[Markup] = []
    shift = bucket_s / 2 if is_centred else 0.0
    for at, time_s in enumerate(times_s):
        lines = [f"{moment_text(time_s)} UTC"]
        if with_total:
            lines.append(f"all: {unit.text(sum(_zero(one.values[at]) for one in series))}")
        lines += [f"{one.name}: {unit.text(one.values[at])}" for one in series]
        left = along.place(time_s - shift)
        right = along.place(time_s - shift + bucket_s)
        parts.append(
            element(
                "rect",
                element("title", text("\n".join(lines))),
                x=left,
                y=TOP,
                width=max(right - left, 0.5),
                height=HEIGHT - BOTTOM - TOP,
                class_="hit",
            )
        )
    return joined(parts)


# --- paths --------------------------------------------------------------------------------------


def _columns(
    times_s: Sequence[float],
    floor: Sequence[float],
    ceiling: Sequence[float],
    along: Scale,
    up: Scale,
    bucket_s: float,
) -> str:
    parts = []
    for time_s, low, high in zip(times_s, floor, ceiling, strict=True):
        if high <= low:
            continue
        left, right = along.place(time_s), along.place(time_s + bucket_s)
        gap = min(1.5, (right - left) * 0.12)
        x, width = number(left + gap), number(right - left - 2 * gap)
        top, bottom = up.place(high), up.place(low)
        parts.append(f"M{x} {number(bottom)}V{number(top)}h{width}V{number(bottom)}z")
    return "".join(parts)


def _area(
    times_s: Sequence[float],
    floor: Sequence[float],
    ceiling: Sequence[float],
    along: Scale,
    up: Scale,
    shift_s: float,
) -> str:
    xs = [number(along.place(time_s + shift_s)) for time_s in times_s]
    if len(xs) == 1:
        # One moment alone has no width: give it that of its stretch.
        xs = [number(along.place(times_s[0])), number(along.place(times_s[0] + 2 * shift_s))]
        floor, ceiling = [*floor, floor[0]], [*ceiling, ceiling[0]]
    upper = [f"{x} {number(up.place(value))}" for x, value in zip(xs, ceiling, strict=True)]
    lower = [f"{x} {number(up.place(value))}" for x, value in zip(xs, floor, strict=True)]
    return f"M{'L'.join(upper)}L{'L'.join(reversed(lower))}z"


def _line(times_s: Sequence[float], values: Sequence[float], along: Scale, up: Scale) -> str:
    parts = []
    for first, stop in _stretches(values):
        points = [
            f"{number(along.place(times_s[at]))} {number(up.place(values[at]))}"
            for at in range(first, stop)
        ]
        parts.append(f"M{'L'.join(points)}")
    return "".join(parts)


def _stretches(values: Sequence[float]) -> list[tuple[int, int]]:
    """Return where values are without interruption."""
    edges = [at for at, value in enumerate(values) if not math.isfinite(value)]
    return [
        (before + 1, after)
        for before, after in pairwise([-1, *edges, len(values)])
        if after > before + 1
    ]


def _bucket_s(times_s: Sequence[float]) -> float:
    return min((after - before for before, after in pairwise(times_s)), default=60.0) or 60.0


def _zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _last(values: Sequence[float]) -> float:
    return next((value for value in reversed(values) if math.isfinite(value)), 0.0)


def _no_data() -> Markup:
    label = element("text", text("nothing to show"), x=WIDTH / 2, y=44, class_="tick middle")
    return canvas("nothing to show", 80, label)
