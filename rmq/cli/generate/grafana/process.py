"""What the dashboard of the store shows of the process: its time, memory, threads and scrapes."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Row, Section
from rmq.cli.generate.grafana.panels import Query, Stat, TimeSeries, Unit, levels
from rmq.cli.generate.grafana.queries import INTERVAL, PROCESSES, increase, of, quantile, rate
from rmq.cli.generate.grafana.shared import BAD_ABOVE_0, LOOP_LAG

_INSTANCE: Final = "{{node_id}} {{instance}}"

PROCESS_SECTION: Final = Section(
    "The process",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Processor time",
                    "In cores. A broker runs its event loop on one: near 1 it is at its limit;"
                    " more are threads that read and sync.",
                    Unit.NONE,
                    (
                        Query(
                            f"rate({of('process_cpu_seconds_total', among=PROCESSES)}[{INTERVAL}])",
                            "{{instance}}",
                        ),
                    ),
                ),
                TimeSeries(
                    "Memory",
                    "What is resident, parts of the page cache included that are mapped. It grows"
                    " with the log up to what the machine has to spare.",
                    Unit.BYTES,
                    (Query(of("process_resident_memory_bytes", among=PROCESSES), "{{instance}}"),),
                ),
                TimeSeries(
                    "Descriptors used",
                    "Connections and files, as a part of what the process may have. Below 80 % is"
                    " right; at 100 % no client can connect.",
                    Unit.RATIO,
                    (
                        Query(
                            f"{of('process_open_fds', among=PROCESSES)}"
                            f" / {of('process_max_fds', among=PROCESSES)}",
                            "{{instance}}",
                        ),
                    ),
                    levels=levels("green", (0.8, "orange"), (0.95, "red")),
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Event loop",
                    "How late a broker does what is due. p99 below 20 ms is right; a line in the"
                    " log names what was served when it was more than 250 ms.",
                    Unit.SECONDS,
                    tuple(
                        Query(
                            quantile(
                                part, "rocketmq_event_loop_lag_seconds", by="node_id, instance"
                            ),
                            f"{_INSTANCE} {legend}",
                        )
                        for part, legend in ((0.99, "p99"), (0.999, "p99.9"))
                    ),
                    levels=LOOP_LAG,
                ),
                TimeSeries(
                    "Threads busy",
                    "Of those for work that blocks, as a part of how many there may be. At 100 %"
                    " such work waits.",
                    Unit.RATIO,
                    (
                        Query(
                            f"{of('rocketmq_worker_threads_busy')}"
                            f" / {of('rocketmq_worker_threads_limit')}",
                            f"{_INSTANCE} {{{{pool}}}}",
                        ),
                    ),
                    levels=levels("green", (0.9, "orange")),
                ),
                TimeSeries(
                    "Log lines",
                    "Per minute, of level warning and above. Few are right; the log says what they"
                    " are about.",
                    Unit.COUNT,
                    (
                        Query(
                            "60 * "
                            + rate(
                                "rocketmq_log_events_total",
                                'level=~"warning|error|critical"',
                                by="node_id, instance, level",
                            ),
                            f"{_INSTANCE} {{{{level}}}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            6,
            (
                TimeSeries(
                    "Time of a scrape",
                    "How long the last scrape took to be put together. Below 1 s is right; one that"
                    " takes 10 s is broken off.",
                    Unit.SECONDS,
                    (Query(of("rocketmq_scrape_duration_seconds"), _INSTANCE),),
                    levels=levels("green", (1, "orange"), (10, "red")),
                ),
                TimeSeries(
                    "Series left out",
                    "Of families that have more topics and groups than are shown. None is right.",
                    Unit.COUNT,
                    (Query(of("rocketmq_unlisted_series"), f"{_INSTANCE} {{{{family}}}}"),),
                    absent="none",
                ),
                Stat(
                    "Scrapes that failed, 1 h",
                    "0 is right.",
                    Unit.COUNT,
                    (Query(increase("rocketmq_scrape_errors_total", over="1h"), "failed"),),
                    levels=BAD_ABOVE_0,
                    decimals=0,
                ),
            ),
        ),
    ),
)
