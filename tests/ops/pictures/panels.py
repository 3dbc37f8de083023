"""One panel of each kind, drawn from the results of its queries. Pure."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.ops.pictures.drawing import (
    BORDER,
    COLORS,
    FAINT,
    PALETTE,
    PANEL,
    TEXT,
    dot,
    fitting,
    line,
    path,
    rectangle,
    text,
    ticks,
    tiles,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.ops.pictures.prometheus import Series

Panel = dict[str, Any]
_LEGEND_PX: Final = 13
_LEGEND_LINES: Final = 4
_AXIS_PX: Final = 52
_SHADES: Final = 8


@dataclass(frozen=True)
class Box:
    """Where something is drawn."""

    x: float
    y: float
    width: float
    height: float

    def inner(self, left: float = 8, top: float = 26, right: float = 8, bottom: float = 6) -> Box:
        return Box(
            self.x + left,
            self.y + top,
            self.width - left - right,
            self.height - top - bottom,
        )


@dataclass(frozen=True)
class Span:
    """What time is shown, and what is marked in it."""

    begin_s: float
    end_s: float
    marks: tuple[tuple[float, str], ...] = ()
    """Times, and the colours of the marks."""

    def at(self, time_s: float, box: Box) -> float:
        return box.x + (time_s - self.begin_s) / (self.end_s - self.begin_s) * box.width


Results = list[list["Series"]]
"""What each query of a panel was answered."""


def drawn(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    """Yield the shapes of a panel."""
    yield rectangle(box.x, box.y, box.width, box.height, PANEL)
    yield text(box.x + 8, box.y + 16, fitting(panel["title"], box.width - 12, 11), 11)
    if not any(results):
        absent = panel["fieldConfig"]["defaults"].get("noValue", "No data")
        middle = box.y + box.height / 2 + 6
        yield text(box.x + box.width / 2, middle, absent, 12, FAINT, "middle")
        return
    yield from _KINDS[panel["type"]](panel, box, results, span)


def named(panel: Panel, results: Results) -> list[tuple[str, Series]]:
    """Return all series with what the legend calls them."""
    return [
        (legend(target["legendFormat"], series.labels), series)
        for target, found in zip(panel["targets"], results, strict=True)
        for series in found
    ]


def legend(form: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def color_at(thresholds: dict[str, Any], value: float) -> str:
    """Return the colour of a value by its levels."""
    color: str = thresholds["steps"][0]["color"]
    for step in thresholds["steps"][1:]:
        if value >= step["value"]:
            color = step["color"]
    return COLORS[color]


def word_for(mappings: list[dict[str, Any]], value: float) -> tuple[str, str] | None:
    """Return text and colour that stand for a value, if some do."""
    for mapping in mappings:
        found = mapping["options"].get(f"{value:g}")
        if found is not None:
            return found["text"], COLORS[found["color"]]
    return None


# --- the kinds ----------------------------------------------------------------------------------


def _lines(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults["unit"]
    below = {
        each["matcher"]["options"]
        for each in panel["fieldConfig"]["overrides"]
        if each["matcher"]["id"] == "byFrameRefID"
    }
    courses: list[tuple[str, list[tuple[float, float]]]] = []
    for target, found in zip(panel["targets"], results, strict=True):
        sign = -1 if target["refId"] in below else 1
        for series in found:
            points = [(at, sign * value) for at, value in series.points if math.isfinite(value)]
            if points:
                courses.append((legend(target["legendFormat"], series.labels), points))
    shown = min(len(courses), _LEGEND_LINES)
    plot = box.inner(left=_AXIS_PX, bottom=18 + shown * _LEGEND_PX)
    low, high = _range(defaults, [value for _, points in courses for _, value in points])

    def height_of(value: float) -> float:
        return plot.y + plot.height - (value - low) / (high - low) * plot.height

    yield from _axes(plot, span, low, high, unit, height_of)
    if defaults["custom"]["thresholdsStyle"]["mode"] == "line":
        for step in defaults["thresholds"]["steps"][1:]:
            if low < step["value"] < high:
                y = height_of(step["value"])
                color = COLORS[step["color"]]
                yield line(plot.x, y, plot.x + plot.width, y, color, dashes="4 3")
    for (_, points), color in zip(courses, PALETTE * len(courses), strict=False):
        for run in _runs(points, 2.5 * _step(points)):
            places = [(span.at(at, plot), height_of(value)) for at, value in run]
            # One value between gaps is a dot.
            yield path(places, color) if len(run) > 1 else dot(*places[0], color)
    by_last = sorted(zip(courses, PALETTE * len(courses), strict=False), key=_last, reverse=True)
    top = plot.y + plot.height + 25
    for number, ((name, points), color) in enumerate(by_last[:_LEGEND_LINES]):
        more = len(by_last) - _LEGEND_LINES
        is_cut = number == _LEGEND_LINES - 1 and more > 0
        y = top + number * _LEGEND_PX
        yield rectangle(box.x + 10, y - 6, 8, 3, color)
        words = f"and {more + 1} more" if is_cut else name
        yield text(box.x + 23, y, fitting(words, box.width - 110, 9), 9, FAINT)
        if not is_cut:
            last = written(abs(points[-1][1]), unit)
            yield text(box.x + box.width - 8, y, last, 9, FAINT, "end")


def _last(course: tuple[tuple[str, list[tuple[float, float]]], str]) -> float:
    return abs(course[0][1][-1][1])


def _range(defaults: dict[str, Any], values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if "min" in defaults:
        low = min(low, defaults["min"])
    if "max" in defaults:
        high = max(high, defaults["max"])
    if high - low < 1e-12:
        high = low + (abs(low) or 1)
    return low, high + (0 if "max" in defaults else (high - low) * 0.05)


def _step(points: Sequence[tuple[float, float]]) -> float:
    gaps = [after[0] - before[0] for before, after in pairwise(points)]
    return min(gaps, default=1.0)


def _runs(points: list[tuple[float, float]], gap_s: float) -> Iterator[list[tuple[float, float]]]:
    """Yield parts of a course without a gap."""
    run: list[tuple[float, float]] = []
    for point in points:
        if run and point[0] - run[-1][0] > gap_s:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _axes(
    plot: Box, span: Span, low: float, high: float, unit: str, height_of: Callable[[float], float]
) -> Iterator[str]:
    for value in ticks(low, high, unit):
        y = height_of(value)
        yield line(plot.x, y, plot.x + plot.width, y, BORDER)
        words = written(abs(value) if low < 0 else value, unit)
        yield text(plot.x - 5, y + 3, words, 9, FAINT, "end")
    yield from _times(plot, span)


def _times(plot: Box, span: Span) -> Iterator[str]:
    for part in (0.0, 0.5, 1.0):
        at = span.begin_s + part * (span.end_s - span.begin_s)
        words = time.strftime("%H:%M:%S", time.gmtime(at))
        anchor = ("start", "middle", "end")[int(part * 2)]
        yield text(plot.x + part * plot.width, plot.y + plot.height + 12, words, 9, FAINT, anchor)
    for at, color in span.marks:
        x = span.at(at, plot)
        yield line(x, plot.y, x, plot.y + plot.height, COLORS[color], dashes="2 3")


def _tiles(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    shown = [(name, series.points[-1][1]) for name, series in named(panel, results)]
    mode = panel["options"]["textMode"]
    area = box.inner(left=0, right=0, bottom=0, top=24)
    width = area.width / len(shown)
    for number, (name, value) in enumerate(shown):
        word = word_for(defaults["mappings"], value)
        color = word[1] if word else color_at(defaults["thresholds"], value)
        decimals = defaults.get("decimals")
        words = written(round(value, decimals) if decimals is not None else value, defaults["unit"])
        words = word[0] if word else words
        left = area.x + number * width
        yield rectangle(left, area.y, width - (number < len(shown) - 1), area.height, color)
        middle, y = left + width / 2, area.y + area.height / 2
        big = name if mode == "name" else words
        size = min(26.0, 1.6 * width / max(4, len(big)))
        yield text(middle, y + size * 0.35, big, round(size), "#ffffff", "middle")
        if mode == "value_and_name":
            under = area.y + area.height - 6
            yield text(middle, under, fitting(name, width - 4, 9), 9, "#ffffff", "middle")


def _bars(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    """Draw a gauge, or several: a bar for each series."""
    defaults = panel["fieldConfig"]["defaults"]
    shown = [(name, series.points[-1][1]) for name, series in named(panel, results)]
    most = defaults.get("max") or max((value for _, value in shown), default=0) or 1
    area = box.inner()
    height = min(26.0, area.height / len(shown))
    for number, (name, value) in enumerate(shown):
        y = area.y + number * height
        color = color_at(defaults["thresholds"], value)
        room = area.width - 60
        yield rectangle(area.x, y + height * 0.45, room, height * 0.45, BORDER)
        yield rectangle(
            area.x, y + height * 0.45, room * min(1, value / most), height * 0.45, color
        )
        yield text(area.x, y + height * 0.38, fitting(name, room, 8), 8, FAINT)
        words = written(value, defaults["unit"])
        yield text(area.x + area.width, y + height * 0.85, words, 11, TEXT, "end")


def _states(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    mappings = panel["fieldConfig"]["defaults"]["mappings"]
    lanes = named(panel, results)
    plot = box.inner(left=120, bottom=34)
    height = plot.height / len(lanes)
    for number, (name, series) in enumerate(lanes):
        y = plot.y + number * height
        yield text(plot.x - 6, y + height * 0.6, fitting(name, 112, 9), 9, FAINT, "end")
        points = series.points
        step = _step(points)
        begin = 0
        for index in range(1, len(points) + 1):
            goes_on = index < len(points) and points[index][1] == points[begin][1]
            if goes_on and points[index][0] - points[index - 1][0] <= 2.5 * step:
                continue
            word = word_for(mappings, points[begin][1])
            left, right = points[begin][0], min(span.end_s, points[index - 1][0] + step)
            x = span.at(left, plot)
            width = span.at(right, plot) - x
            color = word[1] if word else COLORS["text"]
            yield rectangle(x, y + height * 0.15, width, height * 0.7, color)
            begin = index
    yield from _times(plot, span)
    x = box.x + 10.0
    for mapping in mappings:
        for option in mapping["options"].values():
            y = box.y + box.height - 8
            yield rectangle(x, y - 7, 8, 8, COLORS[option["color"]])
            yield text(x + 11, y, option["text"], 9, FAINT)
            x += 24 + 5.2 * len(option["text"])


def _cells(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    """Draw a heat map: counts by bound are cumulative, a cell shows what is between two."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    rows = sorted((float(series.labels["le"]), dict(series.points)) for series in results[0])
    times = sorted({at for _, points in rows for at in points})
    counts = [
        [
            max(0.0, points.get(at, 0) - (rows[number - 1][1].get(at, 0) if number else 0))
            for at in times
        ]
        for number, (_, points) in enumerate(rows)
    ]
    used = [number for number, row in enumerate(counts) if max(row, default=0) > 0.01]
    if not used:
        return
    low, high = max(0, used[0] - 1), min(len(rows) - 1, used[-1] + 1)
    most = max(max(row) for row in counts)
    plot = box.inner(left=_AXIS_PX, bottom=20)
    height = plot.height / (high - low + 1)
    width = plot.width / len(times)
    shades: dict[int, list[tuple[float, float]]] = {}
    for number in range(low, high + 1):
        y = plot.y + plot.height - (number - low + 1) * height
        yield text(plot.x - 5, y + height * 0.7, written(rows[number][0], unit), 8, FAINT, "end")
        for place, count in enumerate(counts[number]):
            if count > 0.01:
                shade = math.ceil(math.sqrt(count / most) * _SHADES)
                shades.setdefault(shade, []).append((plot.x + place * width, y))
    for shade, places in shades.items():
        yield tiles(places, width - 0.5, height - 1, COLORS["orange"], shade / _SHADES)
    yield from _times(plot, span)


def _rows(panel: Panel, box: Box, results: Results, span: Span) -> Iterator[str]:
    organized = next(
        each["options"] for each in panel["transformations"] if each["id"] == "organize"
    )
    columns = [
        (name, organized["renameByName"][name])
        for name in sorted(organized["indexByName"], key=organized["indexByName"].__getitem__)
        if name in organized["renameByName"]
    ]
    rows = merged(results)
    by = panel["options"]["sortBy"]
    if by:
        (key,) = [name for name, heading in columns if heading == by[0]["displayName"]]
        rows.sort(key=lambda row: float(row.get(key, 0)), reverse=True)
    looks = {
        each["matcher"]["options"]: {each["id"]: each["value"] for each in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    area = box.inner()
    longest = [
        max([len(heading), *(len(_cell(row, name, looks.get(heading, {}))[0]) for row in rows)])
        for name, heading in columns
    ]
    total = sum(longest) + 2 * len(longest)
    x = area.x
    for (name, heading), size in zip(columns, longest, strict=True):
        width = area.width * (size + 2) / total
        yield text(x, area.y + 10, fitting(heading, width, 9), 9, COLORS["blue"])
        for number, row in enumerate(rows[: int(area.height / 16) - 1]):
            words, color = _cell(row, name, looks.get(heading, {}))
            yield text(x, area.y + 27 + 16 * number, fitting(words, width, 9), 9, color)
        x += width


def merged(results: Results) -> list[dict[str, str | float]]:
    """Return the rows of a table: labels that all queries share tell rows apart."""
    names = ["Value"] if len(results) == 1 else [f"Value #{chr(65 + n)}" for n in range(26)]
    answered = [found for found in results if found]
    shared = frozenset.intersection(
        *(frozenset(series.labels) for found in answered for series in found)
    )
    rows: dict[tuple[str, ...], dict[str, str | float]] = {}
    for found, name in zip(results, names, strict=False):
        for series in found:
            key = tuple(series.labels[label] for label in sorted(shared))
            row = rows.setdefault(key, {})
            row.update(series.labels)
            row[name] = series.points[-1][1]
    return list(rows.values())


def _cell(row: dict[str, str | float], name: str, look: dict[str, Any]) -> tuple[str, str]:
    value = row.get(name, "")
    if isinstance(value, str):
        return value, TEXT
    word = word_for(look.get("mappings", []), value)
    if word is not None:
        return word
    color = color_at(look["thresholds"], value) if "thresholds" in look else TEXT
    return written(value, look.get("unit", "none")), color


_KINDS: Final[dict[str, Callable[[Panel, Box, Results, Span], Iterator[str]]]] = {
    "timeseries": _lines,
    "stat": _tiles,
    "gauge": _bars,
    "bargauge": _bars,
    "state-timeline": _states,
    "heatmap": _cells,
    "table": _rows,
}
