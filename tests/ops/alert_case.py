"""What a case of an alert is: what must change in a healthy cluster for it to fire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.ops.alert_world import (
    CLIENT,
    MASTER,
    SLAVE,
    THE_LAG,
    series,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.ops.alert_world import Series, Value


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault, and who is named by the alert that it raises."""

    alert: str
    fault: Mapping[Series, Value]
    """What is different while it lasts."""
    labels: Mapping[str, str]
    """Labels of the alert."""
    delay_min: int = 0
    """How long until the expression holds: what it computes over a window changes slowly."""
    clears_min: int = 1
    """How long it holds when the fault is over."""
    kept: bool = False
    """Series that are new with the fault stay as they are when it is over."""


def role(where: Mapping[str, str], name: str) -> Series:
    return series("rocketmq_broker_role", where, role=name)


def state(name: str) -> dict[Series, Value]:
    family = "rocketmq_ha_slave_state"
    return {series(family, SLAVE, state=name): 1, series(family, SLAVE, state="streaming"): 0}


def refusal(where: Mapping[str, str], reason: str) -> dict[Series, Value]:
    return {series("rocketmq_broker_refusal", where, reason=reason): 1}


def rejected(reason: str) -> dict[Series, Value]:
    return {series("rocketmq_requests_rejected_total", MASTER, reason=reason): "+60"}


def slow(family: str, where: Mapping[str, str], bound: str, **labels: str) -> dict[Series, Value]:
    """No value of a histogram is below the bound that all were below."""
    return {series(f"{family}_bucket", where, le=bound, **labels): "+0"}


def link_ends(reason: str, count: str = "+1") -> dict[Series, Value]:
    return {series("rocketmq_ha_links_closed_total", MASTER, reason=reason): count}


def pipeline(name: str, outcome: int) -> dict[Series, Value]:
    target = {"instance": "node:9100", "target": "store", "pipeline": name}
    return {series("rmq_pipeline_outcome", target): outcome}


NODE: Final = {"cluster": "C", "node_id": "a"}
AT_MASTER: Final = {**NODE, "instance": "m:1"}
AT_SLAVE: Final = {**NODE, "instance": "s:1"}
FIRST: Final = {"instance": "n1:1"}
GROUP: Final = {"cluster": "C", "topic": "T", "consumer_group": "g"}
DISK: Final = series("rocketmq_storage_disk_used_ratio", MASTER, store="commitlog")
LAG: Final = series("rocketmq_consumer_lag_messages", MASTER, **THE_LAG)
COMMITTED: Final = series("rocketmq_consumer_committed_messages", MASTER, **THE_LAG)
CONNECTED: Final = series(
    "rocketmq_consumer_connections", MASTER, **CLIENT, consume_mode="push", is_system="false"
)
