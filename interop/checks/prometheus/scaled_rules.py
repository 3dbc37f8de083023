"""Rules with their times divided, so that minutes of waiting become seconds. Pure.

What is divided: `for`, the windows of ranges, `offset`, and how far ahead a disk is foreseen to be
full (`4 * 3600`). Other thresholds stay as they are, also those in seconds.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

FACTOR: Final = 20
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WINDOW: Final = re.compile(r"(\[|\boffset )(\d+)([smhd])\b")
_HOURS_AHEAD: Final = re.compile(r"\b(\d+) \* 3600\b")
_DURATION: Final = re.compile(r"(\d+)([smhd])")


def scaled(document: dict[str, Any], factor: int = FACTOR) -> dict[str, Any]:
    """Return a file of rules with all times divided."""
    document = copy.deepcopy(document)
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = scaled_expression(rule["expr"], factor)
            if "for" in rule:
                found = _DURATION.fullmatch(rule["for"])
                assert found, rule["for"]
                rule["for"] = _divided(found[1], found[2], factor)
    return document


def scaled_expression(expression: str, factor: int = FACTOR) -> str:
    expression = _HOURS_AHEAD.sub(rf"\1 * 3600 / {factor}", expression)
    return _WINDOW.sub(
        lambda found: f"{found[1]}{_divided(found[2], found[3], factor)}", expression
    )


def _divided(number: str, unit: str, factor: int) -> str:
    return f"{int(number) * _UNITS_MS[unit] // factor}ms"
