"""What the dashboard of replication shows of links, epochs, and why brokers take no messages."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Row, Section
from rmq.cli.generate.grafana.panels import Query, TimeSeries, Unit
from rmq.cli.generate.grafana.queries import INTERVAL, increase, of

LINKS_SECTION: Final = Section(
    "Links and epochs",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Links closed by the master",
                    "In each interval, by reason. refused: wrong secret, address or cluster."
                    " forged: reports of bytes that were never sent. diverged: a log that is not"
                    " the beginning of the master's. silent: nothing heard. reseeded: a slave that"
                    " must copy from the beginning.",
                    Unit.COUNT,
                    (
                        Query(
                            increase("rocketmq_ha_links_closed_total", by="node_id, reason"),
                            "{{node_id}} {{reason}}",
                        ),
                    ),
                    alert="RocketMQRefusedLinks",
                ),
                TimeSeries(
                    "Links accepted",
                    "Connections to the replication port, and those that slaves made, in each"
                    " interval. Without restarts 0 is right.",
                    Unit.COUNT,
                    (
                        Query(
                            increase("rocketmq_ha_links_accepted_total", by="node_id"),
                            "{{node_id}} accepted",
                        ),
                        Query(
                            increase("rocketmq_ha_connects_total", by="instance"),
                            "{{instance}} connected",
                        ),
                    ),
                ),
                TimeSeries(
                    "Epochs",
                    "One more with each new master. Brokers of one name should show the same.",
                    Unit.NONE,
                    (
                        Query(of("rocketmq_broker_epoch"), "{{node_id}} {{instance}}"),
                        Query(
                            f"changes({of('rocketmq_broker_epoch')}[{INTERVAL}])",
                            "{{instance}} changes",
                        ),
                    ),
                    alert="RocketMQEpochFlapping",
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Changes of roles",
                    "In each interval: promotions, demotions and switches of the mode. Only what"
                    " an operator did is right.",
                    Unit.COUNT,
                    (
                        Query(
                            increase(
                                "rocketmq_broker_role_changes_total",
                                by="node_id, instance, from, to",
                            )
                            + " > 0",
                            "{{node_id}} {{instance}}: {{from}} to {{to}}",
                        ),
                    ),
                    absent="none",
                ),
                TimeSeries(
                    "Why brokers are not ready",
                    "1 for each reason, as /readyz says it. No line is right, but during starts,"
                    " stops and promotions.",
                    Unit.NONE,
                    (
                        Query(
                            f"{of('rocketmq_broker_unready')} > 0",
                            "{{node_id}} {{instance}}: {{reason}}",
                        ),
                    ),
                    absent="all are ready",
                ),
                TimeSeries(
                    "Why messages are refused",
                    "1 for the gravest reason why a store takes none. No line is right, but that of"
                    " a broker that starts.",
                    Unit.NONE,
                    (
                        Query(
                            f"{of('rocketmq_broker_refusal')} > 0",
                            "{{node_id}} {{instance}}: {{reason}}",
                        ),
                    ),
                    absent="none are refused",
                ),
            ),
        ),
    ),
)
