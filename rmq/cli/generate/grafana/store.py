"""The store: disks, writes, files and the process that they belong to."""

from __future__ import annotations

from typing import Final

from rmq.cli.generate.grafana.dashboard import Dashboard, Row, Section
from rmq.cli.generate.grafana.panels import (
    NEUTRAL,
    BarGauge,
    Gauge,
    Heatmap,
    Query,
    Stat,
    TimeSeries,
    Unit,
    levels,
)
from rmq.cli.generate.grafana.process import PROCESS_SECTION
from rmq.cli.generate.grafana.queries import (
    buckets,
    increase,
    of,
    quantile,
    rate,
    total,
)
from rmq.cli.generate.grafana.shared import (
    ANNOTATIONS,
    BROKER_VARIABLES,
    DISK,
    PUT_LATENCY,
    STORE,
)

_MIB: Final = 1024 * 1024
_FREE: Final = of("rocketmq_storage_disk_free_bytes", 'store="commitlog"')
_INSTANCE: Final = "{{node_id}} {{instance}}"

_ROOM: Final = Section(
    "Room",
    (
        Row(
            5,
            (
                Gauge(
                    "Disk of the log",
                    "How full it is. Above 75 % expired files go at once, above 85 % also those"
                    " that are not expired, above 90 % messages are refused; these are settings.",
                    Unit.RATIO,
                    (
                        Query(
                            of("rocketmq_storage_disk_used_ratio", 'store="commitlog"'), _INSTANCE
                        ),
                    ),
                    levels=DISK,
                    width=6,
                ),
                Stat(
                    "Full in",
                    "Time until the disk of the log is full at the rate of the last hour. Files"
                    " that expire make room again: the rate may be 0, and the time without end.",
                    Unit.SECONDS,
                    (
                        Query(
                            f"{_FREE} / (-deriv({_FREE}[1h]) > 1024)",
                            _INSTANCE,
                        ),
                    ),
                    levels=levels("red", (4 * 3600, "orange"), (24 * 3600, "green")),
                    absent="does not fill",
                    text="value_and_name",
                    width=6,
                ),
                Stat(
                    "Messages are kept for",
                    "Age of the oldest message of the log. With fileReservedTime=72 it grows to"
                    " three days and a part of a file; less means that the disk was too full.",
                    Unit.SECONDS,
                    (Query(of("rocketmq_storage_message_reserve_seconds"), _INSTANCE),),
                    levels=NEUTRAL,
                    absent="empty",
                    text="value_and_name",
                    width=6,
                ),
                Stat(
                    "Unclean stops",
                    "Brokers whose store had not been closed when it was opened: a crash, or a"
                    " machine that lost its power. 0 is right.",
                    Unit.NONE,
                    (Query(total(f"1 - {of('rocketmq_storage_last_shutdown_clean')}"), "unclean"),),
                    levels=levels("green", (1, "orange")),
                    width=3,
                ),
                Stat(
                    "Longest recovery",
                    "How long recovery took when a store was opened. Seconds are right; a crash"
                    " with much in memory takes longer.",
                    Unit.SECONDS,
                    (Query(f"max({of('rocketmq_storage_recovery_seconds')})", "recovery"),),
                    levels=levels("green", (60, "yellow"), (600, "orange")),
                    width=3,
                ),
            ),
        ),
        Row(
            8,
            (
                TimeSeries(
                    "Disk used",
                    "Of the disks of log and queues, with the limits that the broker goes by."
                    " Below reclaim is right.",
                    Unit.RATIO,
                    (
                        Query(of("rocketmq_storage_disk_used_ratio"), f"{_INSTANCE} {{{{store}}}}"),
                        Query(
                            f"min by (limit) ({of('rocketmq_storage_disk_limit_ratio')})",
                            "limit: {{limit}}",
                        ),
                    ),
                    maximum=1,
                ),
                TimeSeries(
                    "Room left",
                    "On the disks of log and queues. It falls while messages come, and rises when"
                    " files are deleted.",
                    Unit.BYTES,
                    (Query(of("rocketmq_storage_disk_free_bytes"), f"{_INSTANCE} {{{{store}}}}"),),
                ),
                TimeSeries(
                    "Size of files",
                    "Files have their full size from the start, so this grows in steps.",
                    Unit.BYTES,
                    (Query(of("rocketmq_storage_files_bytes"), f"{_INSTANCE} {{{{store}}}}"),),
                ),
            ),
        ),
    ),
)

_WRITES: Final = Section(
    "Writes",
    (
        Row(
            8,
            (
                TimeSeries(
                    "Bytes appended",
                    "By which logs grow, per second. On a slave it is what it received.",
                    Unit.BYTES_PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_commitlog_appended_bytes_total", by="node_id, instance"),
                            _INSTANCE,
                        ),
                    ),
                ),
                TimeSeries(
                    "Time of a send, p99",
                    "From the first check of a send to its acknowledgement, by broker. Below 50 ms"
                    " is right; above 200 ms sends may be refused as busy, above 1 s the disk is"
                    " far too slow.",
                    Unit.SECONDS,
                    (
                        Query(
                            quantile(0.99, "rocketmq_put_latency_seconds", by="node_id, instance"),
                            _INSTANCE,
                        ),
                    ),
                    levels=PUT_LATENCY,
                ),
                TimeSeries(
                    "Parts of a send, p99",
                    "append: to be in the log. flush: to be on disk, with SYNC_FLUSH. replicate: to"
                    " be held by slaves, in sync mode. The largest is where to begin.",
                    Unit.SECONDS,
                    (
                        Query(
                            quantile(0.99, "rocketmq_put_stage_seconds", by="node_id, stage"),
                            "{{node_id}} {{stage}}",
                        ),
                    ),
                    levels=PUT_LATENCY,
                ),
            ),
        ),
        Row(
            8,
            (
                Heatmap(
                    "Times of sends",
                    "How many sends took how long, in each interval. One dark band near the bottom"
                    " is right; a second one higher up is what waits for disk or slaves.",
                    Unit.SECONDS,
                    (Query(buckets("rocketmq_put_latency_seconds"), "{{le}}"),),
                ),
                Heatmap(
                    "Sizes of messages",
                    "How many messages were how large as they are stored, in each interval.",
                    Unit.BYTES,
                    (Query(buckets("rocketmq_message_size_bytes"), "{{le}}"),),
                ),
                TimeSeries(
                    "Time of a sync to disk",
                    "How long syncs of the log took. Below 100 ms is right; with SYNC_FLUSH each"
                    " send waits for one, and at syncFlushTimeout (5 s) the answer is"
                    " FLUSH_DISK_TIMEOUT.",
                    Unit.SECONDS,
                    tuple(
                        Query(
                            quantile(
                                part,
                                "rocketmq_storage_flush_latency_seconds",
                                by="node_id, instance",
                            ),
                            f"{_INSTANCE} {legend}",
                        )
                        for part, legend in ((0.5, "p50"), (0.99, "p99"))
                    ),
                    levels=levels("green", (0.1, "yellow"), (0.5, "orange"), (5, "red")),
                ),
            ),
        ),
        Row(
            7,
            (
                TimeSeries(
                    "Not on disk yet",
                    "Bytes of the log that the next power cut would take from this machine. With"
                    " ASYNC_FLUSH up to half a second of messages is right.",
                    Unit.BYTES,
                    (Query(of("rocketmq_storage_flush_behind_bytes"), _INSTANCE),),
                    levels=levels("green", (64 * _MIB, "yellow"), (256 * _MIB, "red")),
                ),
                TimeSeries(
                    "In no queue yet",
                    "Bytes of the log that consumers cannot see, because they are not dispatched. 0"
                    " is right but after a start.",
                    Unit.BYTES,
                    (Query(of("rocketmq_storage_dispatch_behind_bytes"), _INSTANCE),),
                    levels=levels("green", (16 * _MIB, "yellow"), (64 * _MIB, "red")),
                ),
                TimeSeries(
                    "Messages read, from where",
                    "Per second. disk is what has likely left memory: consumers far behind read it,"
                    " and slow the disk down for all.",
                    Unit.PER_SECOND,
                    (
                        Query(
                            rate("rocketmq_storage_read_messages_total", by="node_id, source"),
                            "{{node_id}} {{source}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

_FILES: Final = Section(
    "Files",
    (
        Row(
            7,
            (
                TimeSeries(
                    "Files mapped into memory",
                    "Each is one map; the kernel allows vm.max_map_count of them to a process"
                    " (65,530 where it was not raised).",
                    Unit.COUNT,
                    (Query(of("rocketmq_storage_mapped_files"), _INSTANCE),),
                    levels=levels("green", (50_000, "orange")),
                ),
                TimeSeries(
                    "Mapped bytes",
                    "Address space, not memory: what is read and written often stays in the page"
                    " cache.",
                    Unit.BYTES,
                    (Query(of("rocketmq_storage_mapped_bytes"), _INSTANCE),),
                ),
                TimeSeries(
                    "Files deleted",
                    "Of the log, in each interval, by reason. expired is right; disk_pressure means"
                    " that messages went before their time.",
                    Unit.COUNT,
                    (
                        Query(
                            increase("rocketmq_storage_deleted_files_total", by="node_id, reason"),
                            "{{node_id}} {{reason}}",
                        ),
                    ),
                ),
                BarGauge(
                    "Segments",
                    "How many files log, queues and index have.",
                    Unit.COUNT,
                    (Query(of("rocketmq_storage_segments"), f"{_INSTANCE} {{{{store}}}}"),),
                    levels=NEUTRAL,
                ),
            ),
        ),
    ),
)

DASHBOARD: Final = Dashboard(
    uid=STORE,
    title="RocketMQ store",
    description="Disks, writes, files, and the process: what is slow, what fills up.",
    variables=BROKER_VARIABLES,
    sections=(_ROOM, _WRITES, _FILES, PROCESS_SECTION),
    annotations=ANNOTATIONS,
)
