"""Pages and plots: whole, well-formed, and closed to what others put into names."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import StorageError
from rmq.spark.pages.cells import Bar, bar_plot, cell_map, heat_map, histogram, shortened
from rmq.spark.pages.cells import Cell as MapCell
from rmq.spark.pages.markup import Markup, element, text
from rmq.spark.pages.page import (
    ROWS_MAX,
    Cell,
    Tile,
    findings_list,
    page,
    section,
    table,
    tiles,
    write_text,
)
from rmq.spark.pages.plots import Series, band_plot, leading, line_plot, stacked_plot
from rmq.spark.pages.scales import Unit
from rmq.spark.pipelines.verdict import Finding, Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "\"'</title></svg><script>alert(1)</script>&\x00\x1b\ud800 others"
TIMES = [1_763_424_000.0 + 60 * minute for minute in range(5)]
VALUES = [1.0, math.nan, 3.0, 0.0, 5.0]
KEY = {"equal": ("equal", "cell-equal")}


def _plots(name: str) -> list[Markup]:
    series = [Series(name, VALUES), Series("b", [2.0] * 5)]
    return [
        stacked_plot(name, name, TIMES, series, Unit.COUNT),
        stacked_plot(name, name, [], [], Unit.COUNT),
        stacked_plot(name, "", TIMES[:1], [Series(name, [1.0])], Unit.BYTES),
        line_plot(name, name, TIMES, series, Unit.SECONDS, limit=9.0, limit_name=name),
        line_plot(name, name, [], series, Unit.SECONDS),
        band_plot(name, name, TIMES, series[0], series[1], series[1], Unit.SECONDS),
        band_plot(name, name, [], series[0], series[1], series[1], Unit.SECONDS),
        bar_plot(name, name, [Bar(name, 5, name), Bar("nan", math.nan)], Unit.COUNT),
        bar_plot(name, name, [], Unit.COUNT),
        histogram(name, name, [(name, 1), ("b", 0)], Unit.COUNT, axis_name=name),
        heat_map(name, name, TIMES, [(name, VALUES)], Unit.COUNT),
        heat_map(name, name, [], [], Unit.COUNT),
        cell_map(name, name, [MapCell("equal", name)], KEY),
    ]


def test_plots_are_well_formed_and_escape_names() -> None:
    for plot in _plots(HOSTILE):
        figure = ET.fromstring(plot)
        assert not list(figure.iter("script"))
        drawing = figure.find(".//svg")
        assert drawing is not None
        label = drawing.get("aria-label")
        assert label
        for path in figure.iter("path"):
            assert "nan" not in (path.get("d") or "")


def test_many_moments_are_drawn_as_areas() -> None:
    times = [60.0 * minute for minute in range(200)]
    plot = ET.fromstring(
        stacked_plot("t", "s", times, [Series("a", [float(at) for at in range(200)])], Unit.COUNT)
    )
    path = next(path for path in plot.iter("path") if path.get("class") == "area")
    assert (path.get("d") or "").count("L") == 2 * 200 - 1
    assert len([shape for shape in plot.iter("rect") if shape.get("class") == "hit"]) == 200


def test_what_is_pointed_at_tells_its_values() -> None:
    plot = stacked_plot("t", "s", TIMES, [Series("a", VALUES), Series("b", [2.0] * 5)], Unit.COUNT)
    titles = [title.text for title in ET.fromstring(plot).iter("title")]
    assert titles[1] == "2025-11-18 00:01 UTC\nall: 2\nb: 2\na: -"
    assert titles[2] == "2025-11-18 00:02 UTC\nall: 5\nb: 2\na: 3"


def test_few_series_and_others() -> None:
    series = [Series(f"s{rank}", [float(rank), math.nan]) for rank in range(20)]
    shown = leading(series, limit=3)
    assert [one.name for one in shown] == ["s19", "s18", "s17", "17 others"]
    assert list(shown[-1].values) == [sum(range(17)), 0]
    assert leading(series[:4], limit=3)[-1].name == "s0"


def test_long_names_lose_their_middle() -> None:
    assert shortened("a" * 36) == "a" * 36
    assert shortened("abcdefghij", 5) == "ab…ij"


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.shown: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


def _whole_page(name: str) -> str:
    verdict = Verdict(
        outcome=Outcome.FAILS, sentence=name, findings=(Finding(name),), findings_left_out=2
    )
    body = [
        tiles([Tile(name, name, name, is_bad=True)]),
        findings_list(verdict),
        section(name, name, *_plots(name)),
        table([name, "n"], [[name, Cell(name, is_bad=True)], ["x", Cell("1", is_code=True)]], "<>"),
    ]
    return page(name, name, 1_763_424_000.0, verdict, body)


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    html = _whole_page(HOSTILE)
    html.encode()  # what cannot be written is replaced
    found = _Elements()
    found.feed(html)
    assert found.names.count("script") == 1
    assert "\x00" not in html
    assert "\x1b" not in html
    assert not {"src", "href", "onload", "onclick", "onerror"} & {
        key for key, _ in found.attributes
    }
    assert "url(" not in html
    assert "@import" not in html
    policy = next(value for key, value in found.attributes if key == "content")
    assert policy is not None
    assert re.fullmatch(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]{44}'", policy
    )
    assert "prefers-color-scheme: dark" in html
    assert "Does not hold" in html


@given(name=st.text())
def test_text_of_any_kind_stays_text(name: str) -> None:
    found = _Elements()
    found.feed(element("p", text(name), title=name))
    assert found.names == ["p"]
    assert [key for key, _ in found.attributes] == ["title"]


def test_tables_are_bounded() -> None:
    rows = [[str(number), "x"] for number in range(ROWS_MAX + 50)]
    told = table(["a", "b"], rows, ">>", total=1_000)
    assert told.count("<tr>") == ROWS_MAX + 1
    assert "… and 800 more" in told
    assert "… and 50 more" in table(["a", "b"], rows, "><")
    assert "more" not in table(["a", "b"], rows[:3], "><")


def test_files_are_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_text(path, "first")
    write_text(path, "second")
    assert path.read_text() == "second"
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file/page\.html: File exists"):
        write_text(tmp_path / "file" / "page.html", "third")
