"""For every alert on brokers and processes, what must change for it to fire."""

from __future__ import annotations

from typing import Final

from tests.ops.alert_case import AT_MASTER, Case, refusal, rejected, slow
from tests.ops.alert_world import LONE, MASTER, NAMESERVERS, SLAVE, own, series

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
