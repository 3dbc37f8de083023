"""The page about metrics lists what brokers and nameservers show; tests/ops has who asks for it."""

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
from tests.paths import DOCS

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
