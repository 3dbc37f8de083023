"""Dashboards as JSON: the classic model, with fields that Grafana 10.4 and all later ones have."""

from __future__ import annotations

import json
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final

from rmq.cli.generate.grafana.dashboard import COLUMNS
from rmq.cli.generate.grafana.panels import (
    BarGauge,
    Column,
    Gauge,
    Heatmap,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmq.cli.generate.grafana.dashboard import Annotation, Dashboard, Section, Variable
    from rmq.cli.generate.grafana.panels import AnyPanel, Levels, Query, Word

Json = dict[str, object]

TAG: Final = "rocketmq"
"""What all dashboards are marked with: the menu of each lists those that have it."""
SCHEMA_VERSION: Final = 39
_SOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
_TYPES: Final = {
    TimeSeries: "timeseries",
    Stat: "stat",
    Gauge: "gauge",
    BarGauge: "bargauge",
    StateTimeline: "state-timeline",
    Heatmap: "heatmap",
    Table: "table",
}
_PRESENT: Final[Json] = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "orientation": "auto",
}


def dashboard_text(dashboard: Dashboard, runbooks: str = "") -> str:
    """Return the file of a dashboard.

    `runbooks` is the address of the page about alerts, for links; without one there are none.
    """
    return json.dumps(dashboard_json(dashboard, runbooks), indent=2, ensure_ascii=False) + "\n"


def dashboard_json(dashboard: Dashboard, runbooks: str = "") -> Json:
    """Return a dashboard as Grafana reads it."""
    return {
        "id": None,
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "refresh": dashboard.refresh,
        "time": {"from": f"now-{dashboard.span}", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "editable": False,
        "links": [_menu()],
        "annotations": {"list": [_annotation(each) for each in dashboard.annotations]},
        "templating": {"list": [_source_variable(), *map(_variable, dashboard.variables)]},
        "panels": list(_placed(dashboard.sections, runbooks)),
    }


def _menu() -> Json:
    return {
        "type": "dashboards",
        "title": "RocketMQ",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name,
        "datasource": _SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": annotation.color,
        "expr": annotation.expression,
        "titleFormat": annotation.name,
        "textFormat": annotation.text,
    }


def _source_variable() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "options": [],
        "regex": "",
        "multi": False,
        "includeAll": False,
    }


def _variable(variable: Variable) -> Json:
    text = f"label_values({variable.of}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "definition": text,
        "query": {"query": text, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": None if variable.is_listed else ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "options": [],
        "regex": "",
    }


# --- panels -------------------------------------------------------------------------------------


def _placed(sections: Iterable[Section], runbooks: str) -> Iterator[Json]:
    """Yield all panels with their numbers and places, row below row."""
    number = top = 0
    for section in sections:
        if section.title:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": section.title,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "collapsed": False,
                "panels": [],
            }
            top += 1
        for row in section.rows:
            left = 0
            for panel, width in zip(row.panels, row.widths(), strict=True):
                number += 1
                place = {"x": left, "y": top, "w": width, "h": row.height}
                yield _panel(panel, number, place, runbooks)
                left += width
            top += row.height


def _panel(panel: AnyPanel, number: int, place: dict[str, int], runbooks: str) -> Json:
    found: Json = {
        "id": number,
        "type": _TYPES[type(panel)],
        "title": panel.title,
        "description": panel.description + (f" Alert: {panel.alert}." if panel.alert else ""),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_overrides(panel))},
        "options": _options(panel),
        "targets": [
            _target(panel, query, letter)
            for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        ],
    }
    if isinstance(panel, Table):
        found["transformations"] = _merged(panel)
    links = list(_links(panel, runbooks))
    if links:
        found["links"] = links
    return found


def _links(panel: AnyPanel, runbooks: str) -> Iterator[Json]:
    if panel.details:
        url = f"/d/{panel.details}?${{__url_time_range}}&${{__all_variables}}"
        yield {"title": "Details", "url": url, "targetBlank": False}
    if panel.alert and runbooks:
        url = f"{runbooks}#{panel.alert.lower()}"
        yield {"title": "What to do", "url": url, "targetBlank": True}


def _target(panel: AnyPanel, query: Query, letter: str) -> Json:
    target: Json = {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
    }
    if isinstance(panel, TimeSeries | StateTimeline | Heatmap):
        is_heatmap = isinstance(panel, Heatmap)
        return {
            **target,
            "instant": False,
            "range": True,
            "format": "heatmap" if is_heatmap else "time_series",
        }
    # What is shown is the present: a series that has ended must not stay.
    is_table = isinstance(panel, Table)
    return {
        **target,
        "instant": True,
        "range": False,
        "format": "table" if is_table else "time_series",
    }


def _defaults(panel: AnyPanel) -> Json:
    by_level = not isinstance(panel, TimeSeries | Table | Heatmap)
    found: Json = {
        "unit": panel.unit.value,
        "thresholds": _thresholds(panel.levels),
        "color": {"mode": "thresholds" if by_level else "palette-classic"},
        "mappings": _mappings(panel.words),
    }
    if panel.absent:
        found["noValue"] = panel.absent
    match panel:
        case TimeSeries():
            if panel.minimum is not None:
                found["min"] = panel.minimum
            if panel.maximum is not None:
                found["max"] = panel.maximum
            found["custom"] = {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 30 if panel.is_stacked else 5,
                "showPoints": "auto",
                "spanNulls": False,
                "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
                "thresholdsStyle": {"mode": "line" if panel.levels.steps else "off"},
            }
        case Stat():
            if panel.decimals is not None:
                found["decimals"] = panel.decimals
        case Gauge():
            found["min"], found["max"] = 0, panel.maximum
        case BarGauge():
            found["min"] = 0
        case StateTimeline():
            found["custom"] = {"fillOpacity": 80, "lineWidth": 0}
        case Table():
            found["custom"] = {"align": "auto", "cellOptions": {"type": "auto"}}
        case Heatmap():
            found["custom"] = {"scaleDistribution": {"type": "linear"}}
    return found


def _thresholds(levels: Levels) -> Json:
    base: Json = {"color": levels.base, "value": None}
    steps = [{"color": color, "value": value} for value, color in levels.steps]
    return {"mode": "absolute", "steps": [base, *steps]}


def _mappings(words: tuple[Word, ...]) -> list[Json]:
    if not words:
        return []
    options = {
        str(word.value): {"text": word.text, "color": word.color, "index": number}
        for number, word in enumerate(words)
    }
    return [{"type": "value", "options": options}]


def _overrides(panel: AnyPanel) -> Iterator[Json]:
    if isinstance(panel, TimeSeries):
        for number in panel.downward:
            yield {
                "matcher": {"id": "byFrameRefID", "options": ascii_uppercase[number]},
                "properties": [{"id": "custom.transform", "value": "negative-Y"}],
            }
    if isinstance(panel, Table):
        for column in panel.queries:
            if column.heading:
                yield {
                    "matcher": {"id": "byName", "options": column.heading},
                    "properties": list(_column_properties(column)),
                }


def _column_properties(column: Column) -> Iterator[Json]:
    yield {"id": "unit", "value": column.unit.value}
    if column.levels.steps or column.words:
        yield {"id": "thresholds", "value": _thresholds(column.levels)}
        yield {"id": "mappings", "value": _mappings(column.words)}
        yield {"id": "color", "value": {"mode": "thresholds"}}
        yield {"id": "custom.cellOptions", "value": {"type": "color-text"}}


def _options(panel: AnyPanel) -> Json:
    match panel:
        case TimeSeries():
            return {
                "legend": {
                    "displayMode": "table",
                    "placement": "bottom",
                    "calcs": ["lastNotNull", "max"],
                    "showLegend": True,
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Stat():
            return {
                **_PRESENT,
                "colorMode": "background",
                "graphMode": "none",
                "justifyMode": "auto",
                "textMode": panel.text,
            }
        case Gauge():
            return {**_PRESENT, "showThresholdLabels": False, "showThresholdMarkers": True}
        case BarGauge():
            return {
                **_PRESENT,
                "orientation": "horizontal",
                "displayMode": "basic",
                "valueMode": "color",
                "showUnfilled": True,
            }
        case StateTimeline():
            return {
                "mergeValues": True,
                "showValue": "auto",
                "alignValue": "left",
                "rowHeight": 0.8,
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "single", "sort": "none"},
            }
        case Heatmap():
            return {
                "calculate": False,
                "cellGap": 1,
                "color": {"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64},
                "filterValues": {"le": 1e-9},
                "legend": {"show": True},
                "rowsFrame": {"layout": "auto"},
                "showValue": "never",
                "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
                "yAxis": {"axisPlacement": "left", "unit": panel.unit.value},
            }
        case Table():
            by = [{"displayName": panel.sort_by, "desc": True}] if panel.sort_by else []
            return {"showHeader": True, "cellHeight": "sm", "sortBy": by}


def _merged(panel: Table) -> list[Json]:
    """Return how the columns become one table: rows with the same labels are one."""
    names = [
        "Value" if len(panel.queries) == 1 else f"Value #{letter}"
        for _, letter in zip(panel.queries, ascii_uppercase, strict=False)
    ]
    shown = [*panel.labels]
    shown += [(name, each.heading) for name, each in zip(names, panel.queries, strict=True)]
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {
                    "Time": True,
                    **{name: True for name, heading in shown if not heading},
                },
                "indexByName": {name: number for number, (name, _) in enumerate(shown)},
                "renameByName": {name: heading for name, heading in shown if heading},
            },
        },
    ]
