"""The rules in `ops/prometheus`, and what is in their expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER: Final = ROOT / "ops" / "prometheus"
RECORDING: Final = FOLDER / "recording-rules.yml"
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Rule:
    """One rule of a file: an alert, or what is recorded."""

    file: str
    name: str
    expr: str
    is_alert: bool
    for_s: int
    labels: dict[str, str]
    annotations: dict[str, str]


def rule_files() -> list[Path]:
    return sorted([*FOLDER.glob("*-rules.yml"), *FOLDER.glob("*-alerts.yml")])


def read_rules() -> list[Rule]:
    return [rule for path in rule_files() for rule in _of_file(path)]


def _of_file(path: Path) -> Iterator[Rule]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    for group in document["groups"]:
        for each in group["rules"]:
            yield Rule(
                file=path.name,
                name=each.get("alert") or each["record"],
                expr=" ".join(each["expr"].split()),
                is_alert="alert" in each,
                for_s=seconds(each.get("for", "0m")),
                labels=each.get("labels", {}),
                annotations=each.get("annotations", {}),
            )


def seconds(duration: str) -> int:
    """Read a duration of one number and one unit, as all rules have."""
    found = re.fullmatch(r"(\d+)([smhd])", duration)
    assert found, duration
    return int(found[1]) * _UNITS_S[found[2]]
