"""Rules for Prometheus ask for metrics that exist, and every alert has its section in the guide."""

from __future__ import annotations

import re
from typing import Final

import promql_parser
import pytest

from tests.ops.exposed import FLAGS, KNOWN, VALUES
from tests.ops.promql import Labels, labels_of, matchers_of, selectors
from tests.ops.rules_kit import FOLDER, Rule, read_rules, rule_files
from tests.paths import DOCS, ROOT

RULES: Final = read_rules()
ALERTS: Final = [rule for rule in RULES if rule.is_alert]
RECORDED: Final = {rule.name: rule for rule in RULES if not rule.is_alert}
GUIDE: Final = DOCS / "runbooks" / "alerts.md"
FUNCTIONS: Final = {"humanize", "humanize1024", "humanizeDuration", "humanizePercentage"}


def result_labels(rule: Rule) -> Labels:
    """Return the labels that a rule's result has; raise for a rule that can have none."""
    labels = labels_of(promql_parser.parse(rule.expr), ALL_KNOWN)
    assert labels is not None, f"{rule.name} is a number"
    return labels


ALL_KNOWN: Final = dict(KNOWN)
ALL_KNOWN.update({name: result_labels(rule) for name, rule in RECORDED.items()})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_asks_for_what_exists(rule: Rule) -> None:
    expression = promql_parser.parse(rule.expr)
    asked = list(selectors(expression))
    assert asked
    result_labels(rule)
    for selector in asked:
        for metric, label, wanted, is_pattern in matchers_of(selector, ALL_KNOWN):
            if label in FLAGS:
                assert wanted in ("true", "false")
                continue
            values = VALUES[metric, label]
            fitting = [value for value in values if re.fullmatch(wanted, value)]
            assert fitting, (metric, label, wanted)
            words = wanted.split("|") if is_pattern else [wanted]
            plain = {word for word in words if re.fullmatch(r"\w+", word)}
            assert plain <= values, (metric, label, plain - values)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_the_one_who_is_called_needs(alert: Rule) -> None:
    assert alert.name.startswith("RocketMQ")
    assert alert.labels.keys() == {"severity"}
    assert alert.labels["severity"] in ("critical", "warning")
    assert alert.annotations.keys() == {"summary", "impact", "action", "runbook_url"}
    assert alert.annotations["runbook_url"] == f"docs/runbooks/alerts.md#{alert.name.lower()}"
    assert alert.annotations["impact"].endswith(".")
    assert re.search(r"[.?]$|[a-z)\]-]$", alert.annotations["action"])
    shown = result_labels(alert)
    for text in alert.annotations.values():
        for place in re.findall(r"\{\{(.*?)\}\}", text):
            found = re.fullmatch(r" \$(?:labels\.(\w+)|value(?: \| (\w+))?) ", place)
            assert found, place
            label, function = found.groups()
            assert label is None or label in shown, (label, shown)
            assert function is None or function in FUNCTIONS


def test_names_are_there_once_and_windows_hold_several_scrapes() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) > 60
    assert all(re.fullmatch(r"[a-z_]+:rocketmq_\w+:\w+", name) for name in RECORDED)
    for rule in RULES:
        windows = re.findall(r"\[(\d+)([mh])\]", rule.expr)
        assert all(int(number) >= 5 or unit == "h" for number, unit in windows)


def test_what_is_recorded_has_labels_that_alerts_go_by() -> None:
    for rule in RECORDED.values():
        labels = result_labels(rule)
        assert "cluster" in labels
        level = rule.name.partition(":")[0]
        wanted = {"node": "node_id", "instance": "instance", "group": "consumer_group"}
        assert wanted.get(level, "store") in labels


@pytest.mark.parametrize(
    "alert",
    [
        # A lone master that is killed has no peer to tell of it.
        "RocketMQBrokerDown",
        "RocketMQNameserverDown",
        "RocketMQSplitBrain",
        "RocketMQSlaveDiverged",
        "RocketMQSyncMasterWithoutSlave",
        "RocketMQForgedReports",
        "RocketMQMasterFenced",
        "RocketMQDiskFull",
        "RocketMQConsumerStuck",
    ],
)
def test_what_must_not_go_unseen_has_an_alert(alert: str) -> None:
    assert alert in {each.name for each in ALERTS}


# --- the guide ----------------------------------------------------------------------------------


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    sections = re.findall(r"^### (RocketMQ\w+)$", GUIDE.read_text(), re.MULTILINE)
    assert sections == [alert.name for file in order() for alert in ALERTS if alert.file == file]


def order() -> list[str]:
    """The files in the order of the guide."""
    found = re.findall(r"^Of \[ops/prometheus/([\w-]+\.yml)\]", GUIDE.read_text(), re.MULTILINE)
    assert sorted(found) == sorted(path.name for path in rule_files() if "alerts" in path.name)
    return found


def test_a_section_says_what_it_means_how_to_check_and_what_to_do() -> None:
    _, *sections = re.split(r"^### ", GUIDE.read_text(), flags=re.MULTILINE)
    severities = {alert.name: alert.labels["severity"] for alert in ALERTS}
    for section in sections:
        name = section.partition("\n")[0]
        assert section.partition("\n\n")[2].startswith(f"{severities[name].capitalize()}. "), name
        parts = re.findall(r"^- \*\*(\w+)\*\*: \S", section, re.MULTILINE)
        assert parts == ["Impact", "Check", "Do"], name
        check = section.partition("**Check**")[2].partition("**Do**")[0]
        assert "`" in check or "\n    " in check, f"{name}: no command to check by"


def test_the_rules_are_all_that_is_in_the_folder() -> None:
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {path.name for path in rule_files()} | {"prometheus.yml"}
    assert {rule.file for rule in RULES} == files - {"prometheus.yml"}


def test_alerts_that_dashboards_name_exist() -> None:
    named = {
        name
        for path in (ROOT / "ops" / "grafana").glob("*.json")
        for name in re.findall(r"RocketMQ[A-Z]\w+", path.read_text())
    }
    assert named
    assert named <= {alert.name for alert in ALERTS}
