"""For every alert, what must change in a healthy cluster for it to fire."""

from __future__ import annotations

from typing import Final

from tests.ops.alert_case import (
    AT_MASTER,
    AT_SLAVE,
    COMMITTED,
    CONNECTED,
    DISK,
    FIRST,
    GROUP,
    LAG,
    Case,
    pipeline,
    refusal,
)
from tests.ops.alert_world import MASTER, NAMESERVERS, SLAVE, THE_GROUP, THE_LAG, own, series
from tests.ops.broker_alerts import BROKERS
from tests.ops.replication_alerts import REPLICATION

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
