"""All queries of the dashboards in `ops/grafana`, as a Prometheus takes them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FOLDER: Final = ROOT / "ops" / "grafana"
ANYTHING: Final = ".+"
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)[^}]*\}|(\w+))")


class DashboardQuery(NamedTuple):
    """One query, with nothing left in it that only Grafana understands."""

    dashboard: str
    """The uid."""
    panel: str
    """The title of the panel; `annotation NAME` or `variable NAME` for queries of the dashboard."""
    expression: str
    """PromQL."""
    legend: str
    """What its series are called, with labels as `{{label}}`."""
    is_instant: bool
    """Whether the present value is shown, and not a course over time."""


def dashboards(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return all dashboards as Grafana reads them."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def dashboard_queries(
    *,
    variables: Mapping[str, str] | None = None,
    rate_interval: str = "1m",
    folder: Path = FOLDER,
) -> Iterator[DashboardQuery]:
    """Yield the queries of all panels, annotations and variables of all dashboards.

    `variables` are regular expressions by the name of the variable, such as `{"job": "rocketmq"}`;
    those that are not in it stand for every value.
    """
    values = {"__rate_interval": rate_interval, **(variables or {})}
    for dashboard in dashboards(folder):
        uid = dashboard["uid"]
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                expression = replaced(target["expr"], values)
                legend = target["legendFormat"]
                yield DashboardQuery(uid, panel["title"], expression, legend, target["instant"])
        for note in dashboard["annotations"]["list"]:
            expression = replaced(note["expr"], values)
            name = f"annotation {note['name']}"
            yield DashboardQuery(uid, name, expression, note["textFormat"], is_instant=False)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = label_values(variable["definition"])
                expression = replaced(selector, values)
                name = f"variable {variable['name']}"
                yield DashboardQuery(uid, name, expression, f"{{{{{label}}}}}", is_instant=True)


def replaced(expression: str, values: Mapping[str, str]) -> str:
    """Return an expression with the values of its variables."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], ANYTHING), expression)


def label_values(definition: str) -> tuple[str, str]:
    """Return selector and label of the query of a variable."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", definition)
    assert found, definition
    return found[1], found[2]
