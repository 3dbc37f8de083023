"""promtool of Prometheus reads all files; every alert fires at its fault, and only then."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import promql_parser
import pytest

from tests.ops.alert_cases import CASES
from tests.ops.promql import selectors
from tests.ops.promtool_kit import Trial, unit_tests
from tests.ops.rules_kit import FOLDER, RECORDING, read_rules, rule_files
from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RULES: Final = {rule.name: rule for rule in read_rules()}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: prometheus): alerts were not tried out")
    return found


def run(*command: str | Path) -> str:
    """Run a tool that must find nothing wrong; return what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout + done.stderr


def test_there_is_a_case_for_every_alert() -> None:
    for file, cases in CASES.items():
        alerts = [each.name for each in RULES.values() if each.is_alert and each.file == file]
        assert list(dict.fromkeys(case.alert for case in cases)) == alerts
    assert {each.file for each in RULES.values() if each.is_alert} == CASES.keys()


def test_promtool_finds_nothing_wrong_with_rules_and_scrape_configs(promtool: str) -> None:
    said = run(promtool, "check", "rules", "--lint-fatal", *rule_files())
    assert said.count("SUCCESS") == len(rule_files())
    run(promtool, "check", "config", "--lint-fatal", FOLDER / "prometheus.yml")
    compose = ROOT / "ops" / "compose" / "prometheus.yml"
    run(promtool, "check", "config", "--syntax-only", compose)


@pytest.mark.parametrize("file", CASES)
def test_alerts_fire_at_their_fault_in_time_and_clear_afterwards(
    file: str, promtool: str, tmp_path: Path
) -> None:
    """And nothing is about to fire in a healthy cluster."""
    document = unit_tests(
        [Trial(case, RULES[case.alert].for_s, metrics_of(case.alert)) for case in CASES[file]],
        [str(RECORDING), str(FOLDER / file)],
    )
    path = tmp_path / "tests.json"
    # JSON is YAML, too.
    path.write_text(json.dumps(document))
    run(promtool, "test", "rules", path)


def metrics_of(rule: str) -> set[str]:
    """Return the metrics that a rule asks for, also by what others have recorded."""
    expression = promql_parser.parse(RULES[rule].expr)
    asked = {selector.name for selector in selectors(expression) if selector.name is not None}
    recorded = asked & RULES.keys()
    return asked.union(*(metrics_of(each) for each in recorded))
