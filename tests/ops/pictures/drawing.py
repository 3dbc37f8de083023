"""Shapes and texts of SVG, colours, and how values are written in units of Grafana. Pure."""

from __future__ import annotations

import math
from typing import Final
from xml.sax.saxutils import escape

BACKGROUND: Final = "#111217"
PANEL: Final = "#181b1f"
BORDER: Final = "#2c3036"
TEXT: Final = "#ccccdc"
FAINT: Final = "#8e8e99"
COLORS: Final = {
    "green": "#56a64b",
    "yellow": "#e0b400",
    "orange": "#ff780a",
    "red": "#e02f44",
    "blue": "#3274d9",
    "purple": "#a352cc",
    "text": "#6c707a",
}
PALETTE: Final = (
    *("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0"),
    *("#37872d", "#e0b400", "#c4162a", "#8f3bb8"),
)
_CHAR_PER_PX: Final = 0.56
"""How wide a letter is, as a part of the size of the font."""


def text(
    x: float, y: float, words: str, size: float = 10, color: str = TEXT, anchor: str = "start"
) -> str:
    extra = f' text-anchor="{anchor}"' if anchor != "start" else ""
    place = f'x="{x:.4g}" y="{y:.5g}" font-size="{size:g}"'
    return f'<text {place} fill="{color}"{extra}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, color: str) -> str:
    place = f'x="{x:.4g}" y="{y:.5g}" width="{width:.4g}" height="{height:.4g}"'
    return f'<rect {place} fill="{color}"/>'


def line(x1: float, y1: float, x2: float, y2: float, color: str, *, dashes: str = "") -> str:
    extra = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.4g}" y1="{y1:.5g}" x2="{x2:.4g}" y2="{y2:.5g}" stroke="{color}"{extra}/>'
    )


def path(points: list[tuple[float, float]], color: str) -> str:
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{steps}" fill="none" stroke="{color}"/>'


def dot(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.5" fill="{color}"/>'


def tiles(
    places: list[tuple[float, float]], width: float, height: float, color: str, opacity: float
) -> str:
    """Return equal rectangles of one colour as one shape."""
    one = f"h{width:.1f}v{height:.1f}h-{width:.1f}z"
    steps = "".join(f"M{x:.1f} {y:.1f}{one}" for x, y in places)
    return f'<path d="{steps}" fill="{color}" fill-opacity="{opacity:.2g}"/>'


def fitting(words: str, width: float, size: float = 10) -> str:
    """Return as much of a text as there is room for."""
    most = max(1, int(width / (size * _CHAR_PER_PX)))
    return words if len(words) <= most else f"{words[: most - 1]}…"


def document(width: int, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}"'
        f' width="{width}" height="{height:g}" font-family="sans-serif">\n'
        + "\n".join([rectangle(0, 0, width, height, BACKGROUND), *parts])
        + "\n</svg>\n"
    )


# --- values -------------------------------------------------------------------------------------


def written(value: float, unit: str) -> str:
    """Return a value as a reader expects it."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    match unit:
        case "s":
            return _time(value)
        case "bytes":
            return _binary(value)
        case "Bps":
            return f"{_binary(value)}/s"
        case "cps":
            return f"{_decimal(value)}/s"
        case "percentunit":
            return f"{value * 100:.3g} %"
        case _:
            return _decimal(value)


def _time(value_s: float) -> str:
    size = abs(value_s)
    for bound, factor, name in (
        (1e-3, 1e6, "µs"),
        (1, 1e3, "ms"),
        (120, 1, "s"),
        (7200, 1 / 60, "min"),
        (172_800, 1 / 3600, "h"),
    ):
        if size < bound:
            return "0 s" if value_s == 0 else f"{value_s * factor:.3g} {name}"
    return f"{value_s / 86_400:.3g} d"


def _binary(value: float) -> str:
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g} {name}"
        value /= 1024
    return f"{value:.3g} TiB"


def _decimal(value: float) -> str:
    if abs(value) >= 1e9:
        return f"{value / 1e9:.3g} G"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.3g} K"
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def ticks(low: float, high: float, unit: str) -> list[float]:
    """Return three to six even values between two."""
    for size_s in (86_400, 3_600, 60):
        if unit == "s" and high - low >= 2 * size_s:
            return [size_s * each for each in ticks(low / size_s, high / size_s, "none")]
    base = 1024.0 if unit in ("bytes", "Bps") else 10.0
    span = high - low
    scale = base ** math.floor(math.log(span, base)) if span > 0 else 1.0
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500) if base > 10 else (1, 2, 5)
    step = min(
        (scale * each / part for each in steps for part in (1, 10)),
        key=lambda step: abs(span / step - 4),
    )
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
