"""The overview: one screen that stays open. What is wrong, and on which dashboard to read on."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section
from rmq.cli.generate.grafana.nameservers import NAMESERVERS_SECTION, NAMESERVERS_TABLE
from rmq.cli.generate.grafana.panels import (
    NEUTRAL,
    Column,
    Gauge,
    Query,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    Unit,
    levels,
)
from rmq.cli.generate.grafana.queries import (
    NAMESERVERS,
    PROCESSES,
    increase,
    of,
    quantile,
    rate,
    states,
    total,
)
from rmq.cli.generate.grafana.shared import (
    ANNOTATIONS,
    BAD_ABOVE_0,
    BROKER_VARIABLES,
    CLIENTS,
    CONSUMERS,
    DISK,
    LAG_SECONDS,
    LOOP_LAG,
    MASTERS,
    NAMESERVER,
    ODD_ABOVE_0,
    OVERVIEW,
    PUT_LATENCY,
    REPLICATION,
    ROLE_NUMBERS,
    ROLE_WORDS,
    STORE,
    YES_NO,
)

_NO_SYSTEM: Final = 'is_system="false"'
_FAILED: Final = 'status!="PUT_OK"'
_SYNC: Final = of("rocketmq_ha_mode", 'mode="sync"')
_IN_SYNC: Final = of("rocketmq_ha_in_sync_slaves")
_NEEDED: Final = of("rocketmq_ha_needed_slaves")
_DEAD: Final = total(of("rocketmq_dlq_messages"))
_DEAD_BEFORE: Final = total(f"{of('rocketmq_dlq_messages')} offset 1h")

_SAFETY: Final = Row(
    4,
    (
        Stat(
            "Brokers down",
            "Brokers that cannot be scraped now, of those that were within the time"
            " shown. 0 is right.",
            Unit.NONE,
            (Query(total(f"1 - {of('up', among=PROCESSES)}"), "down"),),
            levels=BAD_ABOVE_0,
            absent="none known",
        ),
        Stat(
            "Brokers not ready",
            "Brokers that answer, but do not do what they are there for. 0 is right;"
            " the reasons are on the dashboard of replication.",
            Unit.NONE,
            (Query(total(f"1 - {of('rocketmq_broker_ready')}"), "not ready"),),
            levels=BAD_ABOVE_0,
            absent="none known",
            details=REPLICATION,
        ),
        Stat(
            "Master problems",
            "Broker names that have not exactly one master. 0 is right. Without a"
            " master nothing is stored under a name; with two of them their logs part. A fenced"
            " master takes no messages and is not counted.",
            Unit.NONE,
            (Query(f"count({MASTERS} != 1) or vector(0)", "names"),),
            levels=BAD_ABOVE_0,
            details=REPLICATION,
            alert="RocketMQNoMaster",
        ),
        Stat(
            "Mode",
            "How many masters are in which mode. sync: a send is answered when as many"
            " slaves as needed hold the message. async: when the master holds it.",
            Unit.NONE,
            (Query(f"{total(of('rocketmq_ha_mode'), by='mode')} > 0", "{{mode}}"),),
            levels=NEUTRAL,
            text="value_and_name",
            absent="no master",
            details=REPLICATION,
        ),
        Stat(
            "Slaves to spare",
            "Slaves in sync less those needed, of the sync master that has fewest. 0 or"
            " more is right. Below 0, sends are answered SLAVE_NOT_AVAILABLE, or refused if"
            " minInSyncReplicas says so.",
            Unit.NONE,
            (Query(f"min(({_IN_SYNC} - {_NEEDED}) and on (job, instance) ({_SYNC} == 1))"),),
            levels=levels("red", (0, "green")),
            absent="async",
            details=REPLICATION,
            alert="RocketMQTooFewSlavesInSync",
        ),
        Stat(
            "Replication lag",
            "For how long the slave furthest behind has not had all of the log. Below"
            " 1 s is right. A slave that never had all of it is not in this number, but not in sync"
            " either.",
            Unit.SECONDS,
            (Query(f"max({of('rocketmq_ha_replication_lag_seconds')})", "lag"),),
            levels=levels("green", (1, "yellow"), (10, "orange"), (30, "red")),
            absent="no slave",
            details=REPLICATION,
            alert="RocketMQReplicationLagHigh",
        ),
        Stat(
            "Consumer lag",
            "Age of the oldest message that a group has not committed, over all"
            " groups. What is right depends on the group: a nightly job may be a day behind.",
            Unit.SECONDS,
            (Query(f"max({of('rocketmq_consumer_lag_seconds', _NO_SYSTEM)})", "lag"),),
            levels=LAG_SECONDS,
            absent="none",
            details=CONSUMERS,
        ),
        Gauge(
            "Fullest disk",
            "How full the fullest disk is. Above 75 % files go before their time, above"
            " 85 % also those that are not expired, above 90 % messages are refused; these are"
            " settings.",
            Unit.RATIO,
            (Query(f"max({of('rocketmq_storage_disk_used_ratio')})", "used"),),
            levels=DISK,
            details=STORE,
        ),
    ),
)

_ERRORS: Final = Row(
    4,
    (
        Stat(
            "Nameservers down",
            "Nameservers that cannot be scraped now, of those that were within the time"
            " shown. 0 is right; most of them must be up for a promotion.",
            Unit.NONE,
            (Query(total(f"1 - {of('up', among=NAMESERVERS)}"), "down"),),
            levels=BAD_ABOVE_0,
            absent="none known",
        ),
        Stat(
            "Registrations missing",
            "Pairs of a broker and a nameserver that does not list it. 0 is right:"
            " clients of such a nameserver do not find the broker.",
            Unit.NONE,
            (Query(total(f"1 - {of('rocketmq_namesrv_registered')}"), "missing"),),
            levels=ODD_ABOVE_0,
            absent="none known",
        ),
        Stat(
            "Sends not OK, 5 min",
            "Sends of the last 5 minutes that ended otherwise than PUT_OK. 0 is right.",
            Unit.COUNT,
            (Query(increase("rocketmq_put_results_total", _FAILED, over="5m")),),
            levels=BAD_ABOVE_0,
            decimals=0,
            details=CLIENTS,
        ),
        Stat(
            "Refused, 5 min",
            "Requests of the last 5 minutes that brokers refused, to protect"
            " themselves or because they may not take them. 0 is right.",
            Unit.COUNT,
            (Query(increase("rocketmq_requests_rejected_total", over="5m")),),
            levels=ODD_ABOVE_0,
            decimals=0,
            details=CLIENTS,
        ),
        Stat(
            "Dead letters, 1 h",
            "Messages that came to dead-letter topics within an hour, because consumers"
            " failed at them too often. 0 is right.",
            Unit.COUNT,
            (Query(f"clamp_min({_DEAD} - ({_DEAD_BEFORE} or vector(0)), 0)"),),
            levels=ODD_ABOVE_0,
            absent="0",
            decimals=0,
            details=CONSUMERS,
        ),
        Stat(
            "Errors logged, 1 h",
            "Lines of level error and above in the logs of brokers and nameservers. 0 is right.",
            Unit.COUNT,
            (
                Query(
                    increase(
                        "rocketmq_log_events_total",
                        'level=~"error|critical"',
                        among='job=~"$job"',
                        over="1h",
                    )
                ),
            ),
            levels=ODD_ABOVE_0,
            decimals=0,
        ),
        Stat(
            "Event loop, p99",
            "How late a broker does what is due, in 99 of 100 cases. Below 20 ms is"
            " right; every request waits this long besides its own work.",
            Unit.SECONDS,
            (Query(f"max({quantile(0.99, 'rocketmq_event_loop_lag_seconds', by='instance')})"),),
            levels=LOOP_LAG,
            details=STORE,
        ),
        Stat(
            "Connections",
            "Connections of clients, slaves' requests and tools to all brokers.",
            Unit.COUNT,
            (Query(total(of("rocketmq_remoting_connections")), "open"),),
            levels=NEUTRAL,
            details=CLIENTS,
        ),
    ),
)

_COURSES: Final = (
    Row(
        6,
        (
            StateTimeline(
                "Roles",
                "Which broker had which role when. One line of each name is a master"
                " at any time; a gap means that the broker was down or opened its store.",
                Unit.NONE,
                (
                    Query(
                        states("rocketmq_broker_role", ROLE_NUMBERS, by="node_id, instance"),
                        "{{node_id}} {{instance}}",
                    ),
                ),
                words=ROLE_WORDS,
                details=REPLICATION,
            ),
            TimeSeries(
                "Messages per second",
                "Stored above zero, handed to consumers below; topics of the broker"
                " itself are left out. Consumers in balance take what comes in, times the number of"
                " groups.",
                Unit.PER_SECOND,
                (
                    Query(
                        rate("rocketmq_messages_in_total", _NO_SYSTEM, by="node_id"),
                        "{{node_id}} in",
                    ),
                    Query(
                        rate("rocketmq_messages_out_total", _NO_SYSTEM, by="node_id"),
                        "{{node_id}} out",
                    ),
                ),
                minimum=None,
                downward=(1,),
                details=CONSUMERS,
            ),
        ),
    ),
    Row(
        7,
        (
            TimeSeries(
                "Time of a send",
                "From the first check of a send to its acknowledgement, disk and slaves"
                " included where they are waited for. p99 below 50 ms is right; clients give up"
                " after 3 s.",
                Unit.SECONDS,
                tuple(
                    Query(quantile(part, "rocketmq_put_latency_seconds"), legend)
                    for part, legend in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
                ),
                levels=PUT_LATENCY,
                details=STORE,
            ),
            TimeSeries(
                "Sends not OK, and refusals",
                "Per second: sends that ended otherwise than PUT_OK, and requests that"
                " were refused, by reason. No line above 0 is right.",
                Unit.PER_SECOND,
                (
                    Query(
                        f"{rate('rocketmq_put_results_total', _FAILED, by='status')} > 0",
                        "{{status}}",
                    ),
                    Query(
                        f"{rate('rocketmq_requests_rejected_total', by='reason')} > 0",
                        "refused: {{reason}}",
                    ),
                ),
                absent="none",
                details=CLIENTS,
            ),
            TimeSeries(
                "Groups furthest behind",
                "Age of the first message not committed, of the five groups that are"
                " furthest behind. Lines that rise as fast as time passes are groups that stand"
                " still.",
                Unit.SECONDS,
                (
                    Query(
                        "topk(5, max by (topic, consumer_group)"
                        f" ({of('rocketmq_consumer_lag_seconds', _NO_SYSTEM)}))",
                        "{{consumer_group}} {{topic}}",
                    ),
                ),
                levels=LAG_SECONDS,
                absent="none",
                details=CONSUMERS,
            ),
        ),
    ),
)

_NODES: Final = Row(
    6,
    (
        Table(
            "Brokers",
            "All brokers that are scraped. Those of a name should have one version.",
            Unit.NONE,
            (
                Column(
                    "max by (cluster, node_id, broker_id, instance, address, version)"
                    f" ({of('rocketmq_broker_info')})"
                ),
                Column(f"max by (instance, role) ({of('rocketmq_broker_role')} == 1)"),
                Column(
                    f"max by (instance) ({of('up', among=PROCESSES)})", heading="Up", words=YES_NO
                ),
                Column(
                    f"max by (instance) ({of('rocketmq_broker_ready')})",
                    heading="Ready",
                    words=YES_NO,
                ),
                Column(
                    rate("rocketmq_messages_in_total", by="instance"),
                    heading="In",
                    unit=Unit.PER_SECOND,
                ),
                Column(
                    "time() - max by (instance)"
                    f" ({of('process_start_time_seconds', among=PROCESSES)})",
                    heading="Runs for",
                    unit=Unit.SECONDS,
                ),
            ),
            labels=(
                ("cluster", "Cluster"),
                ("node_id", "Broker"),
                ("broker_id", "Id"),
                ("instance", "Instance"),
                ("role", "Role"),
                ("address", "Address"),
                ("version", "Version"),
            ),
            details=REPLICATION,
        ),
        NAMESERVERS_TABLE,
    ),
)

DASHBOARD: Final = Dashboard(
    uid=OVERVIEW,
    title="RocketMQ overview",
    description="Is it up, who is master, is data safe, does anything pile up. Each panel leads to"
    " the dashboard that shows more.",
    variables=(*BROKER_VARIABLES, NAMESERVER),
    sections=(Section("", (_SAFETY, _ERRORS, *_COURSES, _NODES)), NAMESERVERS_SECTION),
    annotations=ANNOTATIONS,
)
