"""Where a forecast gets what is not counted from messages: disks, retention, earlier runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rmq.client.blocking.admin import BlockingAdmin
from rmq.errors import ClientError, ConfigError, StorageError
from rmq.spark.jobs.forecast.data import Observed
from rmq.spark.jobs.forecast.model import (
    HOUR_S,
    RESERVED_HOURS,
    Disk,
    GroupState,
    LagPoint,
    Sample,
    parse_capacity,
)
from rmq.spark.jobs.report.data import SKEW_MESSAGES_MIN
from rmq.spark.jobs.report.history import read_history
from rmq.spark.jobs.report.lag import skews

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from rmq.client.core.config import ClientConfig
    from rmq.client.core.routes import Address
    from rmq.spark.jobs.report.history import PastRun
    from rmq.spark.jobs.report.lag import GroupLag, Skew
    from rmq.store.reader import Reader

HOT_QUEUES_MAX: Final = 20
_STORE: Final = "store "
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of disks; None is not said."""

    capacity_bytes: int | None = None
    used_bytes: int | None = None
    reserved_hours: float | None = None

    def applied(self, disk: Disk) -> Disk:
        """Return a disk as it was found, with what was said in its place."""
        if self.capacity_bytes is not None:
            # Of a disk of this size the store may have all of it.
            disk = replace(disk, total_bytes=self.capacity_bytes, used_bytes=disk.log_bytes)
        if self.used_bytes is not None:
            disk = replace(disk, used_bytes=self.used_bytes)
        if self.reserved_hours is not None:
            disk = replace(disk, reserved_s=self.reserved_hours * HOUR_S)
        return disk


# --- disks --------------------------------------------------------------------------------------


def store_disk(reader: Reader, root: Path) -> Disk:
    """Return the disk that a store is on; its samples are none yet. Raises `StorageError`."""
    try:
        usage = shutil.disk_usage(root)
    except OSError as exc:
        raise StorageError(
            "read the size of the disk of", str(root), exc.strerror or str(exc)
        ) from exc
    return Disk(
        name=f"disk of {root}",
        total_bytes=usage.total,
        used_bytes=usage.total - usage.free,
        log_bytes=reader.end_offset - reader.min_offset,
        samples=(),
        reserved_s=RESERVED_HOURS * HOUR_S,
    )


def cluster_disks(config: ClientConfig) -> tuple[dict[str, Disk], list[str]]:
    """Ask the masters for their disks; return these by broker, and what could not be found out."""
    found: dict[str, Disk] = {}
    failures: list[str] = []
    with BlockingAdmin(config) as admin:
        for broker in admin.list_brokers():
            if broker.broker_id != 0:
                continue
            try:
                found[broker.broker_name] = _broker_disk(admin, broker)
            except ClientError as error:
                failures.append(f"disk of {broker.broker_name}: {error}")
    return found, failures


def _broker_disk(admin: BlockingAdmin, broker: Address) -> Disk:
    info = admin.runtime_info(broker.address)
    hours = admin.broker_config(broker.address).get("fileReservedTime", "")
    capacity = parse_capacity(info.table.get("commitLogDirCapacity", ""))
    log_bytes = max(0, info.log_end - info.log_start)
    total, free = capacity if capacity is not None else (None, 0.0)
    return Disk(
        name=f"disk of {broker.broker_name}",
        total_bytes=total,
        used_bytes=log_bytes if total is None else total - free,
        log_bytes=log_bytes,
        samples=(),
        reserved_s=(float(hours) if hours.isdecimal() else RESERVED_HOURS) * HOUR_S,
    )


# --- groups and queues --------------------------------------------------------------------------


def group_states(
    lags: Sequence[GroupLag], history: Sequence[PastRun], now_s: float, ignored: Collection[str]
) -> list[GroupState]:
    """Return how far groups are, and were in earlier runs."""
    return [
        GroupState(
            group=lag.group,
            topic=lag.topic,
            points=[
                *_points(history, (lag.group, lag.topic)),
                LagPoint(now_s, lag.lag, lag.lag_s),
            ],
            expired=lag.expired,
        )
        for lag in lags
        if lag.group not in ignored
    ]


def _points(history: Sequence[PastRun], key: tuple[str, str]) -> list[LagPoint]:
    return [
        LagPoint(run.time_s, run.lags[key], run.lag_seconds[key])
        for run in history
        if key in run.lags
    ]


def hot_queues(
    messages: Mapping[tuple[str, str, int], int], queues: Iterable[tuple[str, str, int]] = ()
) -> list[Skew]:
    """Return for topics that are spread unevenly the queue that gets most.

    `queues` names queues that may have no messages, by topic, broker and number.
    """
    found = [each for each in skews(messages, queues) if each.messages >= SKEW_MESSAGES_MIN]
    return found[:HOT_QUEUES_MAX]


# --- history ------------------------------------------------------------------------------------


def history_folder(folder: Path) -> Path:
    """Return where the runs are: the directory itself, or `history` below what `report` wrote."""
    below = folder / "history"
    return below if below.is_dir() else folder


def history_observed(
    folder: Path, given: Given, made_s: float, ignored: Collection[str]
) -> Observed:
    """Return what earlier runs of the report saw; raise `ConfigError` if there are none."""
    runs = read_history(history_folder(folder), None)
    if not runs:
        raise ConfigError(
            "--history",
            f"{folder} has no runs of the report",
            hint="give the --out directory of rmq pipeline report, which adds one with each run",
        )
    last = runs[-1]
    topics = {topic for run in runs for topic in run.topics}
    samples = {topic: [_sample(run, topic) for run in runs] for topic in sorted(topics)}
    whole = [_sample(run, None) for run in runs]
    messages = sum(count for count, _ in last.topics.values())
    size = sum(size for _, size in last.topics.values())
    disk = Disk(
        name=f"disk of {last.target}",
        total_bytes=None,
        used_bytes=size,
        log_bytes=size,
        samples=whole,
        reserved_s=RESERVED_HOURS * HOUR_S,
    )
    groups = [
        GroupState(group, topic, _points(runs, (group, topic)))
        for group, topic in last.lags
        if group not in ignored
    ]
    traffic = folder / "traffic"
    return Observed(
        target=last.target,
        made_s=max(made_s, last.time_s),
        seen_s=last.time_s,
        basis=f"{len(runs)} runs of the report",
        topics=samples,
        disks=[given.applied(disk)],
        groups=groups,
        hot_queues=hot_queues(_queue_messages(traffic)) if traffic.is_dir() else (),
        has_groups=last.has_groups,
        records=messages,
        size_bytes=size,
        more_hint="run rmq pipeline report again with the same --out",
    )


def _sample(run: PastRun, topic: str | None) -> Sample:
    """Return what came, of a topic or in all, in the time that a run covers."""
    counts = run.topics.values() if topic is None else [run.topics.get(topic, (0, 0))]
    messages, size = sum(count for count, _ in counts), sum(size for _, size in counts)
    # A store may be a copy of what ended long before the run; a cluster goes on until the run.
    if run.from_s is None or run.to_s is None:
        return Sample(run.time_s - _MINUTE_S, _MINUTE_S, 0, 0)
    end_s = run.to_s + _MINUTE_S if run.target.startswith(_STORE) else run.time_s
    return Sample(run.from_s, max(_MINUTE_S, end_s - run.from_s), messages, size)


def _queue_messages(traffic: Path) -> dict[tuple[str, str, int], int]:
    """Return how many messages each queue got in the last run, from the table that it wrote."""
    from pyarrow import parquet

    keys = ["topic", "broker_name", "queue_id"]
    table = parquet.read_table(traffic, columns=[*keys, "messages"])
    rows = table.group_by(keys).aggregate([("messages", "sum")]).to_pylist()
    return {
        (row["topic"], row["broker_name"], row["queue_id"]): row["messages_sum"] for row in rows
    }
