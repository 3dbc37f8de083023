"""The page about logs tells of lines that are logged, with the levels they are logged at."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rmq.metrics.process import LEVELS
from tests.metrics.all_families import ALL
from tests.paths import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (DOCS / "logs.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]+) \| `(.+?)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)


class Line(NamedTuple):
    level: str | None
    """None: the call does not say it with a word."""
    text: str


def text_of(node: ast.AST) -> str | None:
    """Return a text of the source with `...` where facts go; None for what is no text."""
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "..." for each in node.values)
        return "".join(map(str, parts))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[-+.\d]*[a-z]", "...", node.value)
    return None


def lines_of(node: ast.AST) -> Iterator[Line]:
    """Yield what a call logs, or what a variable holds that may be logged."""
    level = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        values = node.args
        level = node.func.attr.upper() if node.func.attr in LEVELS else None
    else:
        values = [node.value] if isinstance(node, ast.Assign) else []
    for value in values:
        text = text_of(value)
        if text:
            yield Line(level, text)


@cache
def logged_lines() -> list[Line]:
    """What the modules of brokers and nameservers log, and other texts of theirs."""
    lines: list[Line] = []
    for folder in ("access", "broker", "cli", "ha", "nameserver", "remoting", "store"):
        for module in sorted((ROOT / "rmq" / folder).rglob("*.py")):
            source = module.read_text()
            if "logging" in source:
                lines += (line for node in ast.walk(ast.parse(source)) for line in lines_of(node))
    return lines


def test_every_line_worth_an_alert_is_logged_at_its_level() -> None:
    assert len(ROWS) > 20
    for level, shown, _ in ROWS:
        pattern = ".*".join(map(re.escape, shown.split("...")))
        found = {line.level for line in logged_lines() if re.fullmatch(pattern, line.text)}
        assert found, shown
        assert found - {None} <= {level}, (shown, found)


def test_every_metric_beside_a_line_exists() -> None:
    names = {family.name for family in ALL}
    named = set(re.findall(r"`(rocketmq_\w+)", PAGE))
    assert named
    assert named <= names
