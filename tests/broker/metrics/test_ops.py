"""Alerts and the page about metrics speak of metrics that exist; tests/ops has the dashboards."""

from __future__ import annotations

import re
from typing import Final

import pytest

from rmq.broker.metrics.replication import COUNTERS, MODES, REASONS, ROLES, STATES
from rmq.metrics.event_loop import LoopMetrics
from rmq.remoting.event_loop.lag import LoopLag
from rmq.store.core import Refusal
from tests.broker.metrics.metrics_kit import (
    master_status,
    metrics_of,
    pages_of,
    shown,
    slave_status,
)
from tests.metrics.all_families import ALL
from tests.paths import DOCS, ROOT

ALERTS: Final = ROOT / "ops" / "prometheus" / "replication-alerts.yml"
PAGE: Final = DOCS / "metrics.md"

Labels = dict[str, str]


def shown_series() -> list[tuple[str, Labels]]:
    """Every series of a master and of a slave, with the labels that Prometheus adds."""
    series: list[tuple[str, Labels]] = []
    for status in (master_status(), slave_status()):
        pages = pages_of(metrics_of(status), LoopMetrics(LoopLag()))
        pages.registry.scrapes.duration_s = 0.01
        for name, labels in shown(pages):
            series.append((name, {**dict(labels), "job": "rocketmq", "instance": "here:5557"}))
    return series


SERIES: Final = shown_series()
LABELS: Final = {label for _, labels in SERIES for label in labels}

# --- the alerts ---------------------------------------------------------------------------------


def read_alerts() -> list[dict[str, str]]:
    """Read the rules: of YAML no more than that file needs."""
    rules: list[dict[str, str]] = []
    folded: str | None = None
    for line in ALERTS.read_text().splitlines():
        if folded is not None and line.startswith(" " * 10):
            rules[-1][folded] = f"{rules[-1][folded]} {line.strip()}".strip()
            continue
        folded = None
        if match := re.fullmatch(r"      - alert: (\w+)", line):
            rules.append({"alert": match[1]})
        elif match := re.fullmatch(r" {8}(?:  )?(\w+): ?(.*)", line):
            key, text = match.groups()
            if key in ("labels", "annotations"):
                continue
            rules[-1][key] = "" if text == ">-" else text
            folded = key if text == ">-" else None
        else:
            assert not line or line.startswith(("#", "groups:", "  - name:", "    rules:")), line
    return rules


alerts: Final = read_alerts()


# --- names --------------------------------------------------------------------------------------

_SELECTOR: Final = re.compile(r"\b(rocketmq_\w+|process_\w+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The metrics that an expression asks for, and what their labels must be."""
    found = _SELECTOR.findall(re.sub(r"\$\w+", ".+", expression))
    return [(name, _MATCHER.findall(matchers)) for name, matchers in found]


def matches(labels: Labels, label: str, operator: str, wanted: str) -> bool:
    value = labels.get(label, "")
    is_equal = bool(re.fullmatch(wanted, value)) if "~" in operator else value == wanted
    return is_equal is not operator.startswith("!")


EXPRESSIONS: Final = [pytest.param(alert["expr"], id=alert["alert"]) for alert in alerts]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_that_is_asked_for_is_shown_by_some_broker(expression: str) -> None:
    found = selectors(expression)
    assert found
    for name, matchers in found:
        assert any(
            series == name and all(matches(labels, *matcher) for matcher in matchers)
            for series, labels in SERIES
        ), (name, matchers)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_state_that_is_asked_for_exists(expression: str) -> None:
    for name, matchers in selectors(expression):
        for label, operator, wanted in matchers:
            values = {labels.get(label) for series, labels in SERIES if series == name}
            for each in wanted.split("|"):
                if operator == "=" or re.fullmatch(r"\w+", each):
                    assert each in values, (name, label, each)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_labels_to_group_by_exist(expression: str) -> None:
    for names in re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression):
        assert set(names.split(", ")) <= LABELS


def test_labels_in_texts_exist() -> None:
    used = set(re.findall(r"\$labels\.(\w+)", ALERTS.read_text()))
    assert used
    assert used <= LABELS


# --- shape --------------------------------------------------------------------------------------


def test_alerts_have_what_the_one_who_is_called_needs() -> None:
    assert len(alerts) == ALERTS.read_text().count("- alert:")
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert alert["alert"].startswith("RocketMQ")
        assert alert["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[sm]", alert["for"])
        assert {"summary", "description", "action"} <= alert.keys()
        assert all(alert[key] for key in alert)


@pytest.mark.parametrize(
    "alert",
    [
        "RocketMQSlaveDiverged",
        "RocketMQSyncMasterWithoutSlave",
        "RocketMQReplicationLagHigh",
        "RocketMQForgedReports",
        "RocketMQMasterFenced",
    ],
)
def test_what_must_not_go_unseen_has_an_alert(alert: str) -> None:
    assert alert in {each["alert"] for each in alerts}


def test_the_page_lists_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(
        r"^\| `(rocketmq_\w+)` \| (gauge|counter|histogram) \| (.*?) \| (.*?) \|$",
        PAGE.read_text(),
        re.M,
    )
    listed = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)), f"{meaning}.")
        for name, kind, labels, meaning in rows
    }
    assert len(listed) == len(rows)
    assert listed == {family.name: (family.kind, family.labels, family.help) for family in ALL}


def counter_labels(name: str) -> list[str]:
    return [
        label for family, labels in COUNTERS.values() if family.name == name for label in labels
    ]


@pytest.mark.parametrize(
    ("introduction", "values"),
    [
        ("Roles are", list(ROLES.values())),
        ("Reasons are", [REASONS[refusal] for refusal in Refusal]),
        ("Modes are", list(MODES.values())),
        ("States are", list(STATES.values())),
        ("Statuses are", counter_labels("rocketmq_ha_unreplicated_sends_total")),
    ],
)
def test_the_page_lists_the_values_of_a_label_in_their_order(
    introduction: str, values: list[str]
) -> None:
    _, _, text = PAGE.read_text().partition(f"{introduction} ")
    assert re.findall(r"`(\w+)`", re.split(r"[.;]\s|, as ", text)[0]) == values


def test_the_page_lists_the_reasons_for_which_links_are_closed() -> None:
    _, _, table = PAGE.read_text().partition("| `reason` | the connection |")
    rows = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.M)
    assert rows == counter_labels("rocketmq_ha_links_closed_total")


def test_the_page_names_the_metrics_of_the_process_and_the_constant_labels() -> None:
    page = PAGE.read_text()
    shown = {name for name, _ in SERIES if name.startswith("process_")}
    assert set(re.findall(r"`(process_\w+)`", page)) == shown
    _, _, text = page.partition("All metrics of the broker have the labels ")
    labels = re.findall(r"`(\w+)`\s+\(", text.partition(", as those")[0])
    assert labels == ["cluster", "node_type", "node_id"]
    assert set(labels) <= LABELS


def test_the_page_lists_every_alert() -> None:
    listed = re.findall(r"^\| `(RocketMQ\w+)` \|", PAGE.read_text(), re.M)
    assert listed == [alert["alert"] for alert in alerts]
