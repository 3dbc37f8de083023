"""For every alert, what must change in a healthy cluster for it to fire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.ops.alert_world import (
    CLIENT,
    LONE,
    MASTER,
    NAMESERVERS,
    SLAVE,
    THE_GROUP,
    THE_LAG,
    THE_SLAVE,
    own,
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

REPLICATION: Final = (
    Case(
        alert="RocketMQNoMaster",
        fault={role(MASTER, "sync_master"): None},
        labels=NODE,
    ),
    Case(
        alert="RocketMQSplitBrain",
        fault={role(SLAVE, "async_master"): 1, role(SLAVE, "slave"): 0},
        labels=NODE,
    ),
    Case(alert="RocketMQMasterFenced", fault=refusal(MASTER, "fenced"), labels=AT_MASTER),
    Case(alert="RocketMQSlaveDiverged", fault=state("diverged"), labels=AT_SLAVE),
    Case(
        alert="RocketMQDivergedSlaveRefused",
        fault=link_ends("diverged"),
        labels=AT_MASTER,
        clears_min=11,
    ),
    *(
        Case(alert="RocketMQSlaveStopped", fault=state(each), labels={**AT_SLAVE, "state": each})
        for each in ("stale", "refused", "outrun", "failed")
    ),
    Case(
        alert="RocketMQSlaveDisconnected",
        fault={series("rocketmq_ha_master_connected", SLAVE): 0},
        labels=AT_SLAVE,
    ),
    Case(
        alert="RocketMQSyncMasterWithoutSlave",
        fault={series("rocketmq_ha_in_sync_slaves", MASTER): 0},
        labels=AT_MASTER,
    ),
    Case(
        alert="RocketMQTooFewSlavesInSync",
        fault={series("rocketmq_ha_needed_slaves", MASTER): 2},
        labels=AT_MASTER,
    ),
    Case(
        alert="RocketMQFewerSlavesThanExpected",
        fault={series("rocketmq_ha_connections", MASTER): 0},
        labels=AT_MASTER,
    ),
    Case(
        alert="RocketMQMasterWithoutSlave",
        fault={series("rocketmq_ha_expected_slaves", LONE): None},
        labels={**NODE, "node_id": "l"},
    ),
    Case(
        alert="RocketMQSlaveOutOfSync",
        fault={series("rocketmq_ha_slave_in_sync", MASTER, **THE_SLAVE): 0},
        labels={**AT_MASTER, **THE_SLAVE},
    ),
    Case(
        alert="RocketMQReplicationLagHigh",
        fault={series("rocketmq_ha_replication_lag_seconds", MASTER, **THE_SLAVE): 11},
        labels={**AT_MASTER, **THE_SLAVE},
    ),
    Case(
        alert="RocketMQReplicationLagGrowing",
        fault={series("rocketmq_ha_replication_lag_bytes", MASTER, **THE_SLAVE): "+30000000"},
        labels={**AT_MASTER, **THE_SLAVE},
        delay_min=3,
    ),
    Case(
        alert="RocketMQReplicationStalled",
        fault=link_ends("silent"),
        labels=AT_MASTER,
        clears_min=11,
    ),
    *(
        Case(
            alert="RocketMQUnreplicatedSends",
            fault={series("rocketmq_ha_unreplicated_sends_total", MASTER, status=each): "+4"},
            labels={**NODE, "status": each},
            clears_min=6,
        )
        for each in ("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
    ),
    Case(
        alert="RocketMQSyncWaitSlow",
        fault=slow("rocketmq_put_stage_seconds", MASTER, "0.01", stage="replicate"),
        labels=AT_MASTER,
        clears_min=6,
    ),
    Case(
        alert="RocketMQUnprotectedBytes",
        fault={series("rocketmq_ha_unprotected_bytes", MASTER): 70_000_000},
        labels=AT_MASTER,
    ),
    Case(alert="RocketMQForgedReports", fault=link_ends("forged"), labels=AT_MASTER, clears_min=11),
    Case(
        alert="RocketMQRefusedLinks",
        fault=link_ends("refused", "+4"),
        labels=AT_MASTER,
        delay_min=3,
        clears_min=11,
    ),
    Case(
        alert="RocketMQEpochFlapping",
        fault={series("rocketmq_broker_epoch", MASTER): "+1"},
        labels=AT_MASTER,
        delay_min=3,
        clears_min=31,
    ),
    Case(
        alert="RocketMQSlaveMetadataStale",
        fault={
            series("rocketmq_slave_metadata_sync_timestamp_seconds", SLAVE, kind="topics"): "+0"
        },
        labels={**AT_SLAVE, "kind": "topics"},
        delay_min=2,
    ),
    Case(
        alert="RocketMQSlaveMetadataFailing",
        fault={series("rocketmq_slave_metadata_sync_failures_total", SLAVE, kind="groups"): "+6"},
        labels={**AT_SLAVE, "kind": "groups"},
        clears_min=6,
    ),
)

BROKERS: Final = (
    Case(
        alert="RocketMQBrokerDown",
        fault={series("up", own(LONE)): 0},
        labels={"job": "rocketmq", "instance": "l:1"},
    ),
    Case(
        alert="RocketMQNothingScraped",
        fault={series("up", own(where)): None for where in (MASTER, SLAVE, LONE)},
        labels={"job": "rocketmq"},
    ),
    *(
        Case(
            alert="RocketMQBrokerNotReady",
            fault={series("rocketmq_broker_unready", MASTER, reason=each): 1},
            labels={**AT_MASTER, "reason": each},
        )
        for each in ("recovering", "not_registered")
    ),
    Case(
        alert="RocketMQBrokerNotRegistered",
        fault={series("rocketmq_broker_unready", MASTER, reason="not_registered"): 1},
        labels=AT_MASTER,
    ),
    *(
        Case(
            alert="RocketMQBrokerRefuses",
            fault=refusal(MASTER, each),
            labels={**AT_MASTER, "reason": each},
        )
        for each in ("failed", "too_few_slaves")
    ),
    Case(
        alert="RocketMQSendsRefused",
        fault=rejected("not_master"),
        labels={**AT_MASTER, "reason": "not_master"},
        clears_min=6,
    ),
    Case(
        alert="RocketMQFlowControl",
        fault=rejected("queue_full"),
        labels={**AT_MASTER, "reason": "queue_full"},
        clears_min=6,
    ),
    Case(alert="RocketMQAccessDenied", fault=rejected("acl"), labels=AT_MASTER, clears_min=11),
    Case(
        alert="RocketMQPutErrors",
        fault={series("rocketmq_put_results_total", MASTER, status="FLUSH_DISK_TIMEOUT"): "+100"},
        labels=AT_MASTER,
        delay_min=4,
        clears_min=6,
    ),
    Case(
        alert="RocketMQPutLatencyHigh",
        fault=slow("rocketmq_put_latency_seconds", MASTER, "0.01"),
        labels=AT_MASTER,
        clears_min=6,
    ),
    Case(
        alert="RocketMQVersionSkew",
        fault={
            series("rocketmq_broker_info", SLAVE, broker_id="0", version="1.0", address="x"): None,
            series("rocketmq_broker_info", SLAVE, broker_id="0", version="1.1", address="x"): 1,
        },
        labels={"cluster": "C"},
    ),
    Case(
        alert="RocketMQRestarting",
        fault={series("process_start_time_seconds", own(SLAVE)): "+60"},
        labels={"job": "rocketmq", "instance": "s:1"},
        delay_min=3,
        clears_min=31,
    ),
    *(
        Case(
            alert="RocketMQEventLoopLag",
            fault=slow("rocketmq_event_loop_lag_seconds", where, "0.02"),
            labels=own(where),
            clears_min=6,
        )
        for where in (MASTER, NAMESERVERS[0])
    ),
    Case(
        alert="RocketMQFileDescriptors",
        fault={series("process_open_fds", own(NAMESERVERS[0])): 801},
        labels=own(NAMESERVERS[0]),
    ),
    Case(
        alert="RocketMQConnectionsRefused",
        fault={
            series("rocketmq_remoting_connections_refused_total", MASTER, listener="main"): "+1"
        },
        labels=AT_MASTER,
        clears_min=11,
    ),
    *(
        Case(
            alert="RocketMQLogErrors",
            fault={series("rocketmq_log_events_total", where, level=level): "+1"},
            labels={**own(where), "level": level},
            clears_min=11,
        )
        for where, level in ((MASTER, "error"), (NAMESERVERS[0], "critical"))
    ),
)

STORAGE: Final = (
    Case(alert="RocketMQDiskReclaiming", fault={DISK: 0.76}, labels=AT_MASTER),
    Case(alert="RocketMQDiskNearFull", fault={DISK: 0.86}, labels=AT_MASTER),
    Case(alert="RocketMQDiskFull", fault=refusal(MASTER, "disk_full"), labels=AT_MASTER),
    Case(
        alert="RocketMQDiskFullSoon",
        # From 0.5 to 0.9 in 133 minutes.
        fault={DISK: "+0.003"},
        labels=AT_MASTER,
        delay_min=20,
        clears_min=25,
    ),
    Case(
        alert="RocketMQFilesDeletedEarly",
        fault={
            series("rocketmq_storage_deleted_files_total", MASTER, reason="disk_pressure"): "+1"
        },
        labels=AT_MASTER,
        clears_min=11,
    ),
    Case(
        alert="RocketMQFlushBehind",
        fault={series("rocketmq_storage_flush_behind_bytes", MASTER): 3e8},
        labels=AT_MASTER,
    ),
    Case(
        alert="RocketMQDispatchBehind",
        fault={series("rocketmq_storage_dispatch_behind_bytes", MASTER): 7e7},
        labels=AT_MASTER,
    ),
    Case(
        alert="RocketMQRecoveredAfterCrash",
        fault={series("rocketmq_storage_last_shutdown_clean", MASTER): 0},
        labels=AT_MASTER,
    ),
)

CONSUMERS: Final = (
    Case(
        alert="RocketMQConsumerLagTime",
        fault={series("rocketmq_consumer_lag_seconds", MASTER, **THE_LAG): 301},
        labels=GROUP,
    ),
    Case(
        alert="RocketMQConsumerStuck",
        fault={COMMITTED: "+0"},
        labels={**AT_MASTER, **THE_GROUP},
        delay_min=10,
    ),
    Case(
        alert="RocketMQGroupOffline",
        fault={CONNECTED: None, LAG: 40},
        labels={"cluster": "C", "consumer_group": "g"},
    ),
    Case(
        alert="RocketMQDlqGrowing",
        fault={
            series(
                "rocketmq_send_to_dlq_messages_total", MASTER, topic="T", consumer_group="old"
            ): "+1"
        },
        labels={**GROUP, "consumer_group": "old"},
        clears_min=11,
    ),
    # The first dead letter of a group, whose count was not there before.
    Case(
        alert="RocketMQDlqGrowing",
        fault={
            series("rocketmq_send_to_dlq_messages_total", MASTER, topic="T", consumer_group="g"): 1
        },
        labels=GROUP,
        delay_min=5,
        clears_min=11,
        kept=True,
    ),
)

NAMESERVER: Final = (
    Case(
        alert="RocketMQNameserverDown",
        fault={series("up", own(NAMESERVERS[0])): 0},
        labels=FIRST,
    ),
    Case(
        alert="RocketMQNameserverMajorityLost",
        fault={series("up", own(where)): 0 for where in NAMESERVERS[:2]},
        labels={},
    ),
    Case(
        alert="RocketMQNameserverLacksBroker",
        fault={series("rocketmq_namesrv_registered", SLAVE, namesrv="n2:9876"): 0},
        labels={**AT_SLAVE, "namesrv": "n2:9876"},
    ),
    *(
        Case(
            alert="RocketMQBrokerExpired",
            fault={
                series("rocketmq_namesrv_broker_removals_total", NAMESERVERS[0], reason=each): "+1"
            },
            labels={**FIRST, "reason": each},
            clears_min=11,
        )
        for each in ("expired", "connection_lost")
    ),
    Case(
        alert="RocketMQRegistrationsRefused",
        fault={
            series("rocketmq_namesrv_registrations_total", NAMESERVERS[0], result="refused"): "+1"
        },
        labels=FIRST,
        clears_min=11,
    ),
)

PIPELINES: Final = (
    Case(alert="RocketMQReplicasDiffer", fault=pipeline("audit", 1), labels={"target": "store"}),
    Case(alert="RocketMQStoreDamaged", fault=pipeline("verify", 1), labels={"target": "store"}),
    Case(
        alert="RocketMQPipelineDoesNotHold",
        fault=pipeline("report", 1),
        labels={"pipeline": "report"},
    ),
    Case(
        alert="RocketMQPipelineCouldNotTell",
        fault=pipeline("audit", 2),
        labels={"pipeline": "audit"},
    ),
    Case(
        alert="RocketMQPipelineNotRun",
        # The world begins at 0: a run so long ago was before.
        fault={
            series(
                "rmq_pipeline_end_time_seconds",
                {"instance": "node:9100", "target": "store", "pipeline": "report"},
            ): -2 * 86400
        },
        labels={"pipeline": "report"},
    ),
)

CASES: Final = {
    "replication-alerts.yml": REPLICATION,
    "broker-alerts.yml": BROKERS,
    "storage-alerts.yml": STORAGE,
    "consumer-alerts.yml": CONSUMERS,
    "nameserver-alerts.yml": NAMESERVER,
    "pipeline-alerts.yml": PIPELINES,
}
"""By the file that has the alerts."""
