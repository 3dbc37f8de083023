"""Pictures of the dashboards: every kind of panel is drawn from what Prometheus answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import promql_parser
import pytest

from tests.ops.exposed import KNOWN
from tests.ops.pictures.__main__ import chosen, picture, placed
from tests.ops.pictures.drawing import fitting, ticks, written
from tests.ops.pictures.panels import merged
from tests.ops.pictures.prometheus import Prometheus, Series
from tests.ops.promql import labels_of
from tests.ops.queries import dashboards

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGIN_S, END_S = 1_000.0, 1_600.0


class Answering(Prometheus):
    """Answers every query with two series that have the labels of its result."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.asked: list[str] = []

    def now(self, expression: str, at_s: float) -> list[Series]:
        return [
            Series(each.labels, each.points[-1:])
            for each in self.course(expression, at_s - 1, at_s, 1)
        ]

    def course(self, expression: str, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        self.asked.append(expression)
        labels = labels_of(promql_parser.parse(expression), KNOWN)
        assert labels is not None
        return [
            Series(
                {label: f"{number}" if label == "le" else f"{label}{number}" for label in labels},
                [
                    (begin_s + part * (end_s - begin_s) / 4, number * (part + 1))
                    for part in range(5)
                ],
            )
            for number in (1, 2)
        ]


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: each["uid"])
def test_all_panels_of_a_dashboard_are_drawn(dashboard: dict[str, Any]) -> None:
    prometheus = Answering()
    values = chosen(prometheus, dashboard, BEGIN_S, END_S)
    if "nameserver" in values:
        assert values["nameserver"] == "instance1|instance2"
    drawing = picture(prometheus, dashboard, values, BEGIN_S, END_S)
    assert not [expression for expression in prometheus.asked if "$" in expression]
    texts = set(_texts(drawing))
    for panel in dashboard["panels"]:
        width = placed(panel["gridPos"]).width
        assert {panel["title"], fitting(panel["title"], width - 12, 11)} & texts
    assert "No data" not in texts


def _texts(drawing: str) -> Iterator[str]:
    for element in ElementTree.fromstring(drawing).iter():
        yield element.text or ""


def test_a_panel_without_values_says_what_that_means() -> None:
    class Silent(Answering):
        def course(
            self, expression: str, begin_s: float, end_s: float, step_s: float
        ) -> list[Series]:
            return []

    (overview,) = [each for each in dashboards() if each["uid"] == "rocketmq-overview"]
    drawing = picture(Silent(), overview, {"__rate_interval": "20s"}, BEGIN_S, END_S)
    assert {"no slave", "async", "No data"} <= set(_texts(drawing))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (0, "s", "0 s"),
        (5_400, "s", "90 min"),
        (300_000, "s", "3.47 d"),
        (1536, "bytes", "1.5 KiB"),
        (1_048_576, "Bps", "1 MiB/s"),
        (0.256, "percentunit", "25.6 %"),
        (12.34, "cps", "12.3/s"),
        (123_456, "short", "123 K"),
        (float("inf"), "s", "∞"),
    ],
)
def test_values_are_written_in_their_unit(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_axes_have_even_numbers() -> None:
    assert ticks(0, 1, "none") == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert all(
        3 <= len(ticks(0, high, unit)) <= 7 for high in (3, 77, 5e6) for unit in ("s", "Bps")
    )


def test_columns_of_a_table_meet_in_rows_with_the_same_labels() -> None:
    one = [Series({"instance": "a", "version": "1"}, [(0, 1)])]
    other = [Series({"instance": "a"}, [(0, 5)]), Series({"instance": "b"}, [(0, 6)])]
    assert merged([one, other]) == [
        {"instance": "a", "version": "1", "Value #A": 1, "Value #B": 5},
        {"instance": "b", "Value #B": 6},
    ]
