"""The dashboards have only fields that Grafana 10.4 knows, as its own schema has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.ops.queries import dashboards

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_PROMETHEUS: Final = {
    "annotations.list.titleFormat",
    "annotations.list.textFormat",
    "templating.list.definition",
}
"""Fields of the data source, which are not in the schema of dashboards."""

register_default_plugins()


def left_out(given: object, kept: object, place: str = "") -> Iterator[str]:
    """Yield where something is given that was not kept."""
    if isinstance(given, dict):
        for key, value in given.items():
            below = f"{place}.{key}".removeprefix(".")
            if isinstance(kept, dict) and key in kept:
                yield from left_out(value, kept[key], below)
            elif value is not None:
                yield below
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for one, other in zip(given, kept, strict=True):
            yield from left_out(one, other, place)
    elif given != kept:
        yield place


def kept_of(dashboard: dict[str, Any]) -> object:
    """Return what the schema keeps of a dashboard."""
    return json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda each: each["uid"])
def test_grafana_knows_every_field(dashboard: dict[str, Any]) -> None:
    assert set(left_out(dashboard, kept_of(dashboard))) <= OF_PROMETHEUS


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    dashboard = dashboards()[0]
    panel = next(each for each in dashboard["panels"] if each["type"] == "timeseries")
    panel["options"]["legend"]["displayModus"] = "table"
    panel["fieldConfig"]["defaults"]["units"] = "s"
    found = set(left_out(dashboard, kept_of(dashboard))) - OF_PROMETHEUS
    assert found == {
        "panels.options.legend.displayModus",
        "panels.fieldConfig.defaults.units",
    }
