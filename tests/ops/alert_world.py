"""A healthy cluster as Prometheus sees it: every series that a rule asks for, minute by minute.

A master in sync mode with its slave, a lone master that is meant to be one, three nameservers, a
group that consumes, and runs of pipelines. What a value is in each minute:

    1        the same in each
    "+60"    it grows by this much in each
    "now"    the time, in seconds
    None     the series is not there
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Value: TypeAlias = float | str | None

MASTER: Final = {
    "job": "rocketmq",
    "instance": "m:1",
    "cluster": "C",
    "node_type": "broker",
    "node_id": "a",
}
SLAVE: Final = {**MASTER, "instance": "s:1"}
LONE: Final = {**MASTER, "instance": "l:1", "node_id": "l"}
NAMESERVERS: Final = tuple(
    {"job": "rocketmq-namesrv", "instance": f"n{number}:1", "node_type": "namesrv"}
    for number in (1, 2, 3)
)
_OF_TARGETS: Final = ("job", "instance")


def own(where: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of what a process does not say itself."""
    labels = {name: where[name] for name in _OF_TARGETS}
    return {**labels, "cluster": where["cluster"]} if "cluster" in where else labels


@dataclass(frozen=True)
class Series:
    """One series, by its name and labels."""

    name: str
    labels: tuple[tuple[str, str], ...] = field(default=())

    def __str__(self) -> str:
        shown = ", ".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.name}{{{shown}}}"


def series(name: str, where: Mapping[str, str], **labels: str) -> Series:
    return Series(name, tuple(sorted({**where, **labels}.items())))


ROLES: Final = ("async_master", "sync_master", "slave")
REFUSALS: Final = ("failed", "fenced", "disk_full", "too_few_slaves")
REJECTED: Final = ("queue_full", "acl", "not_master", "disk_full")
SLAVE_STATES: Final = ("streaming", "diverged", "stale", "refused", "outrun", "failed")
UNREADY: Final = ("recovering", "not_registered")
LINK_ENDS: Final = ("refused", "forged", "diverged", "silent")
THE_SLAVE: Final = {"slave": "a:1", "address": "s:10911"}
THE_GROUP: Final = {"topic": "T", "consumer_group": "g", "is_system": "false"}
THE_LAG: Final = {**THE_GROUP, "is_retry": "false"}
CLIENT: Final = {"consumer_group": "g", "language": "java", "version": "V4_9_8"}


def healthy() -> dict[Series, Value]:
    """Return all series, and what each is in any minute."""
    found: dict[Series, Value] = {}
    for number, where in enumerate((MASTER, SLAVE, LONE)):
        found.update(_of_any_broker(where, "slave" if number == 1 else "sync_master"))
        found.update(_of_process(where))
    found.update(_of_master())
    for where, is_alone in ((MASTER, False), (LONE, True)):
        found[series("rocketmq_ha_mode", where, mode="sync")] = int(not is_alone)
        found[series("rocketmq_ha_connections", where)] = int(not is_alone)
        found[series("rocketmq_ha_expected_slaves", where)] = int(not is_alone)
        found[series("rocketmq_ha_in_sync_slaves", where)] = int(not is_alone)
        found[series("rocketmq_ha_needed_slaves", where)] = 1
        found[series("rocketmq_ha_unprotected_bytes", where)] = 1e9 if is_alone else 0
    found.update(_of_slave())
    for where in NAMESERVERS:
        found.update(_of_process(where))
        for reason in ("unregistered", "expired", "connection_lost"):
            name = "rocketmq_namesrv_broker_removals_total"
            found[series(name, where, reason=reason)] = 1
        found[series("rocketmq_namesrv_registrations_total", where, result="accepted")] = "+6"
        found[series("rocketmq_namesrv_registrations_total", where, result="refused")] = 2
    for pipeline in ("audit", "verify", "report"):
        target = {"instance": "node:9100", "target": "store", "pipeline": pipeline}
        found[series("rmq_pipeline_outcome", target)] = 0
        found[series("rmq_pipeline_end_time_seconds", target)] = 0
    return found


def _of_any_broker(where: Mapping[str, str], role: str) -> Iterator[tuple[Series, Value]]:
    for each in ROLES:
        yield series("rocketmq_broker_role", where, role=each), int(each == role)
    for each in REFUSALS:
        yield series("rocketmq_broker_refusal", where, reason=each), 0
    for each in REJECTED:
        yield series("rocketmq_requests_rejected_total", where, reason=each), 3
    for each in UNREADY:
        yield series("rocketmq_broker_unready", where, reason=each), 0
    for each in LINK_ENDS:
        yield series("rocketmq_ha_links_closed_total", where, reason=each), 1
    for each in ("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"):
        yield series("rocketmq_ha_unreplicated_sends_total", where, status=each), 7
    info = {"broker_id": "0", "version": "1.0", "address": "x"}
    yield series("rocketmq_broker_info", where, **info), 1
    yield series("rocketmq_broker_epoch", where), 3
    yield series("rocketmq_put_results_total", where, status="PUT_OK"), "+6000"
    yield series("rocketmq_put_results_total", where, status="MESSAGE_ILLEGAL"), "+600"
    yield series("rocketmq_put_results_total", where, status="FLUSH_DISK_TIMEOUT"), 9
    for bound, count in (("0.01", "+5990"), ("1", "+6000"), ("+Inf", "+6000")):
        yield series("rocketmq_put_latency_seconds_bucket", where, le=bound), count
        stage = {"stage": "replicate", "le": bound}
        yield series("rocketmq_put_stage_seconds_bucket", where, **stage), count
    yield from _of_store(where)
    for nameserver in ("n1:9876", "n2:9876"):
        yield series("rocketmq_namesrv_registered", where, namesrv=nameserver), 1


def _of_store(where: Mapping[str, str]) -> Iterator[tuple[Series, Value]]:
    yield series("rocketmq_storage_disk_used_ratio", where, store="commitlog"), 0.5
    for limit, ratio in (("reclaim", 0.75), ("clean", 0.85), ("full", 0.9)):
        yield series("rocketmq_storage_disk_limit_ratio", where, limit=limit), ratio
    yield series("rocketmq_storage_deleted_files_total", where, reason="expired"), "+1"
    yield series("rocketmq_storage_deleted_files_total", where, reason="disk_pressure"), 2
    yield series("rocketmq_storage_flush_behind_bytes", where), 4096
    yield series("rocketmq_storage_dispatch_behind_bytes", where), 4096
    yield series("rocketmq_storage_last_shutdown_clean", where), 1


def _of_process(where: Mapping[str, str]) -> Iterator[tuple[Series, Value]]:
    target = own(where)
    yield series("up", target), 1
    yield series("process_start_time_seconds", target), 0
    yield series("process_open_fds", target), 100
    yield series("process_max_fds", target), 1000
    for bound, count in (("0.02", "+598"), ("1", "+600"), ("+Inf", "+600")):
        yield series("rocketmq_event_loop_lag_seconds_bucket", where, le=bound), count
    yield series("rocketmq_remoting_connections_refused_total", where, listener="main"), 4
    lines: dict[str, Value] = {"info": "+1", "warning": "+1", "error": 1, "critical": 1}
    for level, value in lines.items():
        yield series("rocketmq_log_events_total", where, level=level), value


def _of_master() -> Iterator[tuple[Series, Value]]:
    yield series("rocketmq_ha_slave_in_sync", MASTER, **THE_SLAVE), 1
    yield series("rocketmq_ha_replication_lag_seconds", MASTER, **THE_SLAVE), 0.2
    yield series("rocketmq_ha_replication_lag_bytes", MASTER, **THE_SLAVE), 4096
    topic = {"topic": "T", "is_system": "false"}
    yield series("rocketmq_messages_in_total", MASTER, **topic), "+6000"
    yield series("rocketmq_messages_out_total", MASTER, **THE_GROUP), "+6000"
    yield series("rocketmq_consumer_lag_messages", MASTER, **THE_LAG), 12
    yield series("rocketmq_consumer_lag_seconds", MASTER, **THE_LAG), 0.4
    yield series("rocketmq_consumer_committed_messages", MASTER, **THE_LAG), "+6000"
    client = {**CLIENT, "consume_mode": "push", "is_system": "false"}
    yield series("rocketmq_consumer_connections", MASTER, **client), 2
    # One group has dead letters of old, and one has consumed everything and left.
    old = {"topic": "T", "consumer_group": "old"}
    yield series("rocketmq_send_to_dlq_messages_total", MASTER, **old), 5
    left = {**THE_LAG, "consumer_group": "left"}
    yield series("rocketmq_consumer_lag_messages", MASTER, **left), 0


def _of_slave() -> Iterator[tuple[Series, Value]]:
    for state in SLAVE_STATES:
        yield series("rocketmq_ha_slave_state", SLAVE, state=state), int(state == "streaming")
        yield series("rocketmq_ha_slave_state", MASTER, state=state), 0
    yield series("rocketmq_ha_master_connected", SLAVE), 1
    for kind in ("topics", "groups", "consumer_offsets", "delay_offsets"):
        name = "rocketmq_slave_metadata_sync_timestamp_seconds"
        yield series(name, SLAVE, kind=kind), "now"
        yield series("rocketmq_slave_metadata_sync_failures_total", SLAVE, kind=kind), 2
