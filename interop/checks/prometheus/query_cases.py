"""Every query of a dashboard and every selector of a rule has an answer, or a reason for none."""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING, Final
from urllib.request import urlopen

import promql_parser
import trio

from interop.checks.prometheus.scaled_rules import scaled_expression
from interop.support.cases import expect, say
from tests.ops.promql import selectors
from tests.ops.queries import dashboard_queries
from tests.ops.rules_kit import read_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from interop.checks.prometheus.prometheus_session import Session

RATE_INTERVAL: Final = "15s"
_PIPELINES: Final = (r"\brmq_pipeline_\w+", "no pipeline runs here, and no node-exporter")
EMPTY_QUERIES: Final[tuple[tuple[str, str], ...]] = (
    _PIPELINES,
    (r"\brocketmq_unlisted_series\b", "nothing is left out with so few topics and groups"),
)
"""What may be empty in dashboards: a pattern of expressions, and why."""
EMPTY_SELECTORS: Final[tuple[tuple[str, str], ...]] = (_PIPELINES,)
"""The same for what rules ask for."""


async def run_query_cases(session: Session) -> None:
    end_s = time.time()
    queries = list(dashboard_queries(rate_interval=RATE_INTERVAL))
    with session.operations.operation(
        "panels", "every query of every dashboard has an answer", timeout_s=300
    ) as case:
        expressions = [each.expression for each in queries]
        empty = await _without_value(session, expressions, EMPTY_QUERIES, end_s)
        places = {each.expression: f"{each.dashboard}: {each.panel}" for each in queries}
        found = [f"{places[expression]}: {expression}" for expression in empty]
        for line in found:
            say(f"without a value: {line}")
        expect("without a value", found, [])
        case.note(f"{len(queries)} queries")
    with session.operations.operation(
        "rules", "all that alerts and recording rules ask for has an answer", timeout_s=120
    ) as case:
        asked = sorted(_asked())
        empty = await _without_value(session, asked, EMPTY_SELECTORS, end_s)
        expect("without a value", sorted(empty), [])
        case.note(f"{len(asked)} selectors")


def _asked() -> Iterable[str]:
    """Return all selectors, without windows and offsets."""
    found = set()
    for rule in read_rules():
        for selector in selectors(promql_parser.parse(scaled_expression(rule.expr))):
            assert selector.name is not None
            found.add(selector.name + _matchers(selector))
        if not rule.is_alert:
            found.add(rule.name)
    return found


def _matchers(selector: promql_parser.VectorSelector) -> str:
    text = selector.prettify()
    found = re.search(r"\{.*\}", text)
    return found[0] if found else ""


async def _without_value(
    session: Session, expressions: Sequence[str], allowed: Sequence[tuple[str, str]], end_s: float
) -> set[str]:
    """Return those that had no value at any time of the run, and no reason for that."""
    empty = set()
    for expression in dict.fromkeys(expressions):
        if any(re.search(pattern, expression) for pattern, _ in allowed):
            continue
        if not await session.prometheus.has_value(expression, session.begun_s, end_s):
            empty.add(expression)
    return empty


async def run_metrics_cases(session: Session) -> None:
    """promtool finds nothing wrong with names, units, help texts and the format."""
    watched = session.watched
    targets = {
        "a master": watched.target_of(watched.master),
        "a slave": watched.target_of(watched.slave),
        "a nameserver": watched.nameserver_metrics,
    }
    for name, target in targets.items():
        with session.operations.operation("metrics", f"promtool finds nothing: {name}"):
            said = await trio.to_thread.run_sync(_checked, session.promtool, target)
            expect("promtool check metrics", said, (0, ""))


def _checked(promtool: str, target: str) -> tuple[int, str]:
    with urlopen(f"http://{target}/metrics", timeout=10) as answer:
        text = answer.read()
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode()
