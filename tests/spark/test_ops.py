"""The alerts on pipelines ask for metrics that runs write; of the dashboard see tests/ops."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import generate_latest

import rmq.spark
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.spark.pipelines.metrics import PREFIX, verdict_registry
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.verdict import Outcome, Verdict
from tests.paths import ROOT

OPS: Final = ROOT / "ops"
DASHBOARD: Final[dict[str, Any]] = json.loads((OPS / "grafana" / "pipelines.json").read_text())
ALERTS: Final = (OPS / "prometheus" / "pipeline-alerts.yml").read_text()
_METRIC: Final = re.compile(rf"\b({PREFIX}\w+)")


def written_by_all() -> set[str]:
    """The metrics that every run writes."""
    verdict = Verdict(outcome=Outcome.HOLDS, sentence="fine", records=1, size_bytes=2)
    text = generate_latest(verdict_registry(Run("audit", "here", 1.0, 2.0), verdict)).decode()
    return set(re.findall(rf"^({PREFIX}\w+)\{{", text, re.MULTILINE))


@cache
def gauges() -> dict[str, set[str]]:
    """The metrics of single pipelines with what is said of them, read from where they are made."""
    found: dict[str, set[str]] = {}
    for path in Path(rmq.spark.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        texts = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Gauge":
                name, text = call.args[:2]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    said = text.value if isinstance(text, ast.Constant) else texts.get(text.id, "")  # type: ignore[attr-defined]
                    found.setdefault(PREFIX + name.value, set()).add(str(said))
    return found


def expressions() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", ALERTS, re.MULTILINE)


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_asked_for_is_written(expression: str) -> None:
    asked = set(_METRIC.findall(expression))
    assert asked
    assert asked <= written_by_all() | gauges().keys()


def test_a_metric_means_the_same_wherever_it_is_written() -> None:
    # The collector reads the files of all pipelines together, and one name has one text.
    assert {name: texts for name, texts in gauges().items() if len(texts) > 1} == {}


def test_alerts_name_pipelines_that_exist() -> None:
    known = {pipeline.name for pipeline in PIPELINES}
    named = {
        name for text in re.findall(r'pipeline[!=]~?"([^"]+)"', ALERTS) for name in text.split("|")
    }
    assert named
    assert named <= known


def test_the_dashboard_is_red_when_the_alert_on_missing_runs_fires() -> None:
    (limit,) = re.findall(rf"{PREFIX}end_time_seconds > (\d+) \* (\d+)$", ALERTS, re.MULTILINE)
    (panel,) = (
        each
        for each in DASHBOARD["panels"]
        if any("end_time_seconds" in target["expr"] for target in each.get("targets", ()))
    )
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    (red,) = (step["value"] for step in steps if step["color"] == "red")
    assert red == int(limit[0]) * int(limit[1])
