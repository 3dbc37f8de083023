"""What Prometheus has when it scrapes brokers, nameservers and the files of pipelines."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

import rmq.spark
from rmq.broker.metrics import readiness, replication, traffic
from rmq.broker.metrics.node import KINDS
from rmq.metrics.process import LEVELS
from rmq.nameserver import metrics as nameserver
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.spark.pipelines.catalogue import PIPELINES
from rmq.spark.pipelines.metrics import PREFIX, verdict_registry
from rmq.spark.pipelines.printing import Run
from rmq.spark.pipelines.verdict import Outcome, Verdict
from rmq.store.append import AppendStatus
from rmq.store.retention import DeletionCause
from tests.metrics.all_families import OF_BROKER, OF_NAMESERVER, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmq.metrics.families import Family

OF_PROMETHEUS: Final = frozenset({"job", "instance"})
"""Labels that Prometheus adds."""
CONSTANT: Final = frozenset({"cluster", "node_type", "node_id"})
"""Labels that all metrics of a broker have."""


def names_of(family: Family) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the names that samples of a family have, with their own labels."""
    labels = frozenset(family.labels)
    if family.kind == "histogram":
        yield f"{family.name}_bucket", labels | {"le"}
        yield f"{family.name}_sum", labels
        yield f"{family.name}_count", labels
    else:
        yield family.name, labels


def _of(families: Iterable[Family], more: frozenset[str]) -> dict[str, frozenset[str]]:
    return {
        name: labels | more | OF_PROMETHEUS
        for family in families
        for name, labels in names_of(family)
    }


def _of_process() -> dict[str, frozenset[str]]:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    names = [sample.name for family in registry.collect() for sample in family.samples]
    return dict.fromkeys(names, OF_PROMETHEUS)


def _of_pipelines() -> dict[str, frozenset[str]]:
    """Return what runs write: of single pipelines by what their modules say."""
    verdict = Verdict(outcome=Outcome.HOLDS, sentence="fine", records=1, size_bytes=2)
    registry = verdict_registry(Run("audit", "here", 1.0, 2.0), verdict)
    names = [sample.name for family in registry.collect() for sample in family.samples]
    common = OF_PROMETHEUS | {"pipeline", "target"}
    found = dict.fromkeys(names, common)
    for path in Path(rmq.spark.__file__).parent.rglob("*.py"):
        found |= {PREFIX + name: common | labels for name, labels in _gauges(path.read_text())}
    return found


def _gauges(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield names and labels of the gauges that a module makes."""
    if "Gauge(" not in text:
        return
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign | ast.Call)]
    named: ast.expr | None = None
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Assign):
            if ast.unparse(node.targets[0]) == "labels":
                named = node.value
        elif getattr(node.func, "id", "") == "Gauge" and isinstance(node.args[0], ast.Constant):
            labels = node.args[3] if len(node.args) > 3 else ast.Dict(keys=[], values=[])
            yield str(node.args[0].value), _keys(named if isinstance(labels, ast.Name) else labels)


def _keys(node: ast.expr | None) -> frozenset[str]:
    assert isinstance(node, ast.Dict), ast.dump(node) if node else node
    return frozenset(str(key.value) for key in node.keys if isinstance(key, ast.Constant))


BROKER: Final = _of((*OF_BROKER, *SHARED), CONSTANT)
NAMESERVER: Final = _of((*OF_NAMESERVER, *SHARED), frozenset({"node_type"}))
OTHERS: Final = {**_of_process(), **_of_pipelines(), "up": OF_PROMETHEUS}
KNOWN: Final = {**NAMESERVER, **BROKER, **OTHERS}
"""The labels of every metric; of those that brokers and nameservers share, the brokers'."""

JOBS: Final = frozenset({"rocketmq", "rocketmq-namesrv"})
"""Of the scrape config that is generated."""

VALUES: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("rocketmq_broker_role", "role"): frozenset(replication.ROLES.values()),
    ("rocketmq_broker_role_changes_total", "from"): frozenset(replication.ROLES.values()),
    ("rocketmq_broker_role_changes_total", "to"): frozenset(replication.ROLES.values()),
    ("rocketmq_broker_refusal", "reason"): frozenset(replication.REASONS.values()),
    ("rocketmq_broker_unready", "reason"): frozenset(readiness.WORDS),
    ("rocketmq_ha_mode", "mode"): frozenset(replication.MODES.values()),
    ("rocketmq_ha_slave_state", "state"): frozenset(replication.STATES.values()),
    ("rocketmq_slave_metadata_sync_timestamp_seconds", "kind"): frozenset(KINDS.values()),
    ("rocketmq_ha_links_closed_total", "reason"): frozenset(
        label
        for family, labels in replication.COUNTERS.values()
        if family is replication.LINKS_CLOSED
        for label in labels
    ),
    ("rocketmq_storage_disk_limit_ratio", "limit"): frozenset({"reclaim", "clean", "full"}),
    ("rocketmq_storage_deleted_files_total", "reason"): frozenset(
        cause.value for cause in DeletionCause
    ),
    ("rmq_pipeline_outcome", "pipeline"): frozenset(each.name for each in PIPELINES),
    **{(metric, "job"): JOBS for metric in ("up", *_of_process())},
    ("rocketmq_put_results_total", "status"): frozenset(status.value for status in AppendStatus),
    ("rocketmq_put_stage_seconds_bucket", "stage"): frozenset(traffic.STAGES),
    ("rocketmq_requests_rejected_total", "reason"): frozenset(traffic.REASONS),
    ("rocketmq_log_events_total", "level"): frozenset(LEVELS),
    ("rocketmq_namesrv_registrations_total", "result"): frozenset(nameserver.RESULTS),
    ("rocketmq_namesrv_route_requests_total", "result"): frozenset(nameserver.FOUND),
    ("rocketmq_namesrv_broker_removals_total", "reason"): frozenset(nameserver.REASONS),
    **{
        (metric, label): frozenset(words)
        for metric in ("rocketmq_requests_total", "rocketmq_rpc_latency_seconds_bucket")
        for label, words in (
            ("request_code", [code.name.lower() for code in RequestCode]),
            ("response_code", [*(code.name.lower() for code in ResponseCode), "none", "other"]),
        )
    },
}
"""The values that a label can have, where there is a list of them."""
FLAGS: Final = frozenset({"is_system", "is_retry", "is_long_polling"})
"""Labels that are `true` or `false`, whatever has them."""
DISKS: Final = frozenset({"commitlog", "consumequeue"})
"""Values of `store` where disks are meant; files are also those of `index`."""
