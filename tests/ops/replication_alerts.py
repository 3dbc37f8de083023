"""For every alert on replication, what must change for it to fire."""

from __future__ import annotations

from typing import Final

from tests.ops.alert_case import (
    AT_MASTER,
    AT_SLAVE,
    NODE,
    Case,
    link_ends,
    refusal,
    role,
    slow,
    state,
)
from tests.ops.alert_world import LONE, MASTER, SLAVE, THE_SLAVE, series

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
