"""What the overview shows of nameservers, below its first screen."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Row, Section
from rmq.cli.generate.grafana.panels import Column, Query, Table, TimeSeries, Unit, levels
from rmq.cli.generate.grafana.queries import NAMESERVERS, increase, of, quantile, rate
from rmq.cli.generate.grafana.shared import LOOP_LAG, YES_NO

NAMESERVERS_TABLE: Final = Table(
    "Nameservers",
    "All nameservers that are scraped. They do not know of each other, so each"
    " should list the same brokers and topics.",
    Unit.NONE,
    (
        Column(f"max by (instance, version) ({of('rocketmq_namesrv_info', among=NAMESERVERS)})"),
        Column(f"max by (instance) ({of('up', among=NAMESERVERS)})", heading="Up", words=YES_NO),
        Column(
            f"max by (instance) ({of('rocketmq_namesrv_brokers', among=NAMESERVERS)})",
            heading="Brokers",
        ),
        Column(
            f"max by (instance) ({of('rocketmq_namesrv_topics', among=NAMESERVERS)})",
            heading="Topics",
        ),
        Column(
            f"time() - max by (instance) ({of('process_start_time_seconds', among=NAMESERVERS)})",
            heading="Runs for",
            unit=Unit.SECONDS,
        ),
    ),
    labels=(("instance", "Instance"), ("version", "Version")),
)

NAMESERVERS_SECTION: Final = Section(
    "Nameservers",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Brokers that are listed",
                    "By each nameserver, slaves included. All lines lie on each other,"
                    " and do not move but when brokers are added or taken out.",
                    Unit.COUNT,
                    (Query(of("rocketmq_namesrv_brokers", among=NAMESERVERS), "{{instance}}"),),
                ),
                TimeSeries(
                    "Registrations",
                    "By brokers, per second; each registers every 30 s and when its"
                    " topics change. None should be refused.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate(
                                "rocketmq_namesrv_registrations_total",
                                by="instance, result",
                                among=NAMESERVERS,
                            ),
                            "{{instance}} {{result}}",
                        ),
                    ),
                ),
                TimeSeries(
                    "Brokers removed",
                    "In each interval, by reason. unregistered is an orderly stop;"
                    " expired and connection_lost are brokers that were lost.",
                    Unit.COUNT,
                    (
                        Query(
                            increase(
                                "rocketmq_namesrv_broker_removals_total",
                                by="instance, reason",
                                among=NAMESERVERS,
                            ),
                            "{{instance}} {{reason}}",
                        ),
                    ),
                ),
                TimeSeries(
                    "Route requests",
                    "Per second: each client asks every 30 s for each of its topics."
                    " Many of not_found are clients of a topic that does not exist.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate(
                                "rocketmq_namesrv_route_requests_total",
                                by="instance, result",
                                among=NAMESERVERS,
                            ),
                            "{{instance}} {{result}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Requests of nameservers",
                    "Per second, by what is asked for.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_requests_total", by="request_code", among=NAMESERVERS),
                            "{{request_code}}",
                        ),
                    ),
                ),
                TimeSeries(
                    "Time of a request, p99",
                    "From the arrival of a request to its answer. Below 20 ms is right.",
                    Unit.SECONDS,
                    (
                        Query(
                            quantile(
                                0.99,
                                "rocketmq_rpc_latency_seconds",
                                by="instance",
                                among=NAMESERVERS,
                            ),
                            "{{instance}}",
                        ),
                    ),
                    levels=levels("green", (0.2, "orange"), (1, "red")),
                ),
                TimeSeries(
                    "Event loop of nameservers, p99",
                    "How late a nameserver does what is due, in 99 of 100 cases. Below"
                    " 20 ms is right.",
                    Unit.SECONDS,
                    (
                        Query(
                            quantile(
                                0.99,
                                "rocketmq_event_loop_lag_seconds",
                                by="instance",
                                among=NAMESERVERS,
                            ),
                            "{{instance}}",
                        ),
                    ),
                    levels=LOOP_LAG,
                ),
            ),
        ),
    ),
)
