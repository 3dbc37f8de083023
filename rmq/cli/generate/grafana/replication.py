"""Replication: would an acknowledged message survive if the master died now?"""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section
from rmq.cli.generate.grafana.links import LINKS_SECTION
from rmq.cli.generate.grafana.panels import (
    NEUTRAL,
    Query,
    Stat,
    StateTimeline,
    TimeSeries,
    Unit,
    Word,
    levels,
)
from rmq.cli.generate.grafana.queries import increase, of, quantile, rate, states, total
from rmq.cli.generate.grafana.shared import (
    ANNOTATIONS,
    BAD_ABOVE_0,
    BROKER_VARIABLES,
    MASTERS,
    REPLICATION,
    ROLE_NUMBERS,
    ROLE_WORDS,
)

_MIB: Final = 1024 * 1024
_LAG_BYTES: Final = of("rocketmq_ha_replication_lag_bytes")
_SYNC: Final = of("rocketmq_ha_mode", 'mode="sync"')
_STOPPED: Final = 'state=~"diverged|stale|refused|outrun|failed"'
_STATE_NUMBERS: Final = {
    'state="streaming"': 1,
    'state="catching_up"': 2,
    'state=~"idle|connecting|changing_role"': 3,
    'state="reseeding"': 4,
    _STOPPED: 5,
}
_STATE_WORDS: Final = (
    Word(1, "streaming", "green"),
    Word(2, "catching up", "blue"),
    Word(3, "not connected", "yellow"),
    Word(4, "reseeding", "orange"),
    Word(5, "stopped", "red"),
)

_NOW: Final = Section(
    "Would an acknowledged message survive if the master died now?",
    (
        Row(
            4,
            (
                Stat(
                    "Masters per broker name",
                    "Exactly one is right. None: nothing is stored. More: two brokers take messages"
                    " under one name, and their logs part. A master that is fenced takes none and"
                    " is not counted.",
                    Unit.NONE,
                    (Query(MASTERS, "{{cluster}} {{node_id}}"),),
                    levels=levels("red", (1, "green"), (2, "red")),
                    text="value_and_name",
                    alert="RocketMQSplitBrain",
                ),
                Stat(
                    "Mode",
                    "What sends wait for. sync: as many slaves as needed hold a message before it"
                    " is acknowledged. async: none.",
                    Unit.NONE,
                    (Query(f"{of('rocketmq_ha_mode')} == 1", "{{node_id}} {{mode}}"),),
                    levels=NEUTRAL,
                    text="name",
                    absent="no master",
                ),
                Stat(
                    "Slaves to spare",
                    "Slaves in sync less those needed, of masters in sync mode. Below 0, a sync"
                    " master answers SLAVE_NOT_AVAILABLE, or refuses messages if minInSyncReplicas"
                    " says so.",
                    Unit.NONE,
                    (
                        Query(
                            f"({of('rocketmq_ha_in_sync_slaves')}"
                            f" - {of('rocketmq_ha_needed_slaves')})"
                            f" and on (job, instance) ({_SYNC} == 1)",
                            "{{node_id}}",
                        ),
                    ),
                    levels=levels("red", (0, "green")),
                    text="value_and_name",
                    absent="async",
                    alert="RocketMQTooFewSlavesInSync",
                ),
                Stat(
                    "Worst lag",
                    "For how long the slave furthest behind has not had all of the log. A slave"
                    " that never had it all is not in this number, but not in sync either.",
                    Unit.SECONDS,
                    (Query(f"max({of('rocketmq_ha_replication_lag_seconds')})", "lag"),),
                    levels=levels("green", (1, "yellow"), (10, "orange"), (30, "red")),
                    absent="no slave",
                    alert="RocketMQReplicationLagHigh",
                ),
                Stat(
                    "Slaves that stopped",
                    "Slaves that follow no master until an operator acts: diverged, stale, refused,"
                    " outrun or failed. 0 is right; their log says what to do.",
                    Unit.NONE,
                    (Query(total(of("rocketmq_ha_slave_state", _STOPPED)), "stopped"),),
                    levels=BAD_ABOVE_0,
                    alert="RocketMQSlaveStopped",
                ),
                Stat(
                    "Fenced masters",
                    "Masters that found out that another broker took over, and refuse messages. 0"
                    " is right; let them follow the new one: rmq ha demote.",
                    Unit.NONE,
                    (Query(total(of("rocketmq_broker_refusal", 'reason="fenced"')), "fenced"),),
                    levels=BAD_ABOVE_0,
                    alert="RocketMQMasterFenced",
                ),
            ),
        ),
        Row(
            6,
            (
                StateTimeline(
                    "Roles",
                    "Which broker had which role when. One line of each name is a master at any"
                    " time.",
                    Unit.NONE,
                    (
                        Query(
                            states("rocketmq_broker_role", ROLE_NUMBERS, by="node_id, instance"),
                            "{{node_id}} {{instance}}",
                        ),
                    ),
                    words=ROLE_WORDS,
                ),
                StateTimeline(
                    "What slaves were doing",
                    "streaming is right; catching up after a start or a break. A slave that stopped"
                    " waits for an operator.",
                    Unit.NONE,
                    (
                        Query(
                            "("
                            + states(
                                "rocketmq_ha_slave_state", _STATE_NUMBERS, by="node_id, instance"
                            )
                            + ") > 0",
                            "{{node_id}} {{instance}}",
                        ),
                    ),
                    words=_STATE_WORDS,
                    absent="no slave",
                ),
            ),
        ),
    ),
)

_LAG: Final = Section(
    "Lag",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Lag per slave, bytes",
                    "What a slave lacks of the log, as its master and as it says itself. Near 0 is"
                    " right; from haSlaveFallbehindMax on (256 MiB) it is not in sync.",
                    Unit.BYTES,
                    (
                        Query(_LAG_BYTES, "{{node_id}} {{slave}}"),
                        Query(of("rocketmq_ha_lag_behind_master_bytes"), "{{instance}} says"),
                    ),
                    levels=levels("green", (64 * _MIB, "yellow"), (256 * _MIB, "red")),
                    absent="no slave",
                    alert="RocketMQReplicationLagGrowing",
                ),
                TimeSeries(
                    "Lag per slave, seconds",
                    "For how long a slave has not had all of the log. Below 1 s is right; from"
                    " haMaxTimeSlaveNotCatchup on (15 s) it is not in sync.",
                    Unit.SECONDS,
                    (
                        Query(
                            of("rocketmq_ha_replication_lag_seconds"),
                            "{{node_id}} {{slave}}",
                        ),
                        Query(of("rocketmq_ha_lag_behind_master_seconds"), "{{instance}} says"),
                    ),
                    levels=levels("green", (1, "yellow"), (15, "red")),
                    absent="no slave",
                    alert="RocketMQReplicationLagHigh",
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Lag trend",
                    "How fast slaves fall behind (above 0) or catch up (below 0).",
                    Unit.BYTES_PER_SECOND,
                    (Query(f"deriv({_LAG_BYTES}[5m])", "{{node_id}} {{slave}}"),),
                    minimum=None,
                    absent="no slave",
                ),
                TimeSeries(
                    "Received by slaves",
                    "Bytes of the log per second. In balance it is what the master writes.",
                    Unit.BYTES_PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_ha_received_bytes_total", by="instance"),
                            "{{instance}} received",
                        ),
                        Query(
                            f"{rate('rocketmq_commitlog_appended_bytes_total', by='instance')}"
                            f" and on (instance) {of('rocketmq_ha_needed_slaves')}",
                            "{{instance}} wrote",
                        ),
                    ),
                    absent="no slave",
                ),
                TimeSeries(
                    "Caught up in",
                    "How long a slave that is more than 1 MiB behind still needs, at its present"
                    " rate. A slave that does not gain has no end in sight: weeks are shown.",
                    Unit.SECONDS,
                    (
                        Query(
                            f"({_LAG_BYTES} > {_MIB}) / clamp_min(-deriv({_LAG_BYTES}[5m]), 1)",
                            "{{node_id}} {{slave}}",
                        ),
                    ),
                    absent="all have caught up",
                ),
                TimeSeries(
                    "Silence",
                    "For how long master and slaves have not heard each other. Below 5 s is right;"
                    " a link is closed after haHousekeepingInterval (20 s).",
                    Unit.SECONDS,
                    (
                        Query(
                            of("rocketmq_ha_slave_silence_seconds"), "{{node_id}} hears {{slave}}"
                        ),
                        Query(
                            of("rocketmq_ha_master_silence_seconds"),
                            "{{instance}} hears its master",
                        ),
                    ),
                    levels=levels("green", (10, "orange"), (20, "red")),
                    absent="no slave",
                ),
            ),
        ),
    ),
)

_GUARANTEE: Final = Section(
    "What is guaranteed",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Slaves in sync and needed",
                    "In sync should be at least needed at all times in sync mode.",
                    Unit.NONE,
                    (
                        Query(of("rocketmq_ha_in_sync_slaves"), "{{node_id}} in sync"),
                        Query(of("rocketmq_ha_needed_slaves"), "{{node_id}} needed"),
                        Query(of("rocketmq_ha_connections"), "{{node_id}} connected"),
                    ),
                    alert="RocketMQTooFewSlavesInSync",
                ),
                TimeSeries(
                    "Unprotected bytes",
                    "What no slave is known to hold: lost if the master dies for good. Near 0 in"
                    " sync mode; all of the log where there never was a slave.",
                    Unit.BYTES,
                    (Query(of("rocketmq_ha_unprotected_bytes"), "{{node_id}}"),),
                    levels=levels("green", (_MIB, "orange"), (64 * _MIB, "red")),
                ),
                TimeSeries(
                    "Sends answered as not replicated",
                    "Sends per second that are stored, but not by enough slaves. 0 is right;"
                    " producers that send again make duplicates.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_ha_unreplicated_sends_total", by="node_id, status"),
                            "{{node_id}} {{status}}",
                        ),
                    ),
                    absent="none",
                    alert="RocketMQUnreplicatedSends",
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "What slaves cost a send",
                    "How long sends wait for slaves after they are in the master's log. Below 10 ms"
                    " within a data centre; at slaveTimeout (3 s) the answer is"
                    " FLUSH_SLAVE_TIMEOUT.",
                    Unit.SECONDS,
                    tuple(
                        Query(
                            quantile(
                                part,
                                "rocketmq_put_stage_seconds",
                                'stage="replicate"',
                                by="node_id",
                            ),
                            f"{{{{node_id}}}} {legend}",
                        )
                        for part, legend in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                    ),
                    levels=levels("green", (0.1, "orange"), (0.5, "red")),
                    absent="none waits",
                ),
                TimeSeries(
                    "Sends waiting for slaves",
                    "How many at this moment. It follows the load; a number that only grows is a"
                    " slave that does not answer.",
                    Unit.COUNT,
                    (Query(of("rocketmq_ha_sync_waiting_requests"), "{{node_id}}"),),
                ),
                TimeSeries(
                    "Log positions",
                    "Where the log ends, and how much of it is on disk, replicated and visible to"
                    " consumers. Master and slave together; all lines lie close to each other.",
                    Unit.BYTES,
                    tuple(
                        Query(
                            of(f"rocketmq_commitlog_{place}_offset_bytes"),
                            f"{{{{instance}}}} {name}",
                        )
                        for place, name in (
                            ("max", "end"),
                            ("flushed", "flushed"),
                            ("replicated", "replicated"),
                            ("visible", "visible"),
                        )
                    ),
                    minimum=None,
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Age of a slave's tables",
                    "Since when topics, groups and offsets of a slave have not been compared with"
                    " those of its master. Below 20 s is right: they are copied every 10 s. After"
                    " a promotion consumers read again what was committed since.",
                    Unit.SECONDS,
                    (
                        Query(
                            f"time() - {of('rocketmq_slave_metadata_sync_timestamp_seconds')}",
                            "{{instance}} {{kind}}",
                        ),
                    ),
                    levels=levels("green", (30, "orange"), (60, "red")),
                    absent="no slave",
                ),
                TimeSeries(
                    "Copies of tables that failed",
                    "In each interval. 0 is right; a master that is down makes some.",
                    Unit.COUNT,
                    (
                        Query(
                            increase(
                                "rocketmq_slave_metadata_sync_failures_total", by="instance, kind"
                            ),
                            "{{instance}} {{kind}}",
                        ),
                    ),
                    absent="no slave",
                ),
                TimeSeries(
                    "Behind on this machine",
                    "Not on disk yet, and not in any queue yet. What is in no queue is not visible"
                    " to consumers.",
                    Unit.BYTES,
                    (
                        Query(of("rocketmq_storage_flush_behind_bytes"), "{{instance}} flush"),
                        Query(
                            of("rocketmq_storage_dispatch_behind_bytes"), "{{instance}} dispatch"
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    uid=REPLICATION,
    title="RocketMQ replication",
    description="Master and slaves: is data safe, who is behind, who tried to get in.",
    variables=BROKER_VARIABLES,
    sections=(_NOW, _LAG, _GUARANTEE, LINKS_SECTION),
    annotations=ANNOTATIONS,
)
