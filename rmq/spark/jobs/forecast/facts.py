"""A forecast for programs: facts of the verdict, and metrics. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmq.spark.jobs.forecast.model import DAY_S, HOUR_S
from rmq.spark.pipelines.verdict import Gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.spark.jobs.forecast.data import Forecast
    from rmq.spark.jobs.forecast.model import Growth
    from rmq.spark.pipelines.verdict import Json

GAUGES_MAX: Final = 1_000
"""Topics, and pairs of group and topic, that have facts and metrics of their own."""


def facts_of(forecast: Forecast) -> dict[str, Json]:
    """Return what programs read of a forecast."""
    seen = forecast.seen
    topics: list[Json] = [
        {"topic": topic, **_growth_facts(growth)}
        for topic, growth in list(forecast.growth.items())[:GAUGES_MAX]
    ]
    disks: list[Json] = [
        {
            "disk": each.disk.name,
            "total_bytes": each.disk.total_bytes,
            "used_bytes": each.disk.used_bytes,
            "log_bytes": each.disk.log_bytes,
            "full_in_seconds": _left(forecast, each.full_in_s),
            "early_deletion_in_seconds": _left(forecast, each.clean_in_s),
            "retention_seconds": each.retention_s,
            "reserved_seconds": each.disk.reserved_s,
            **_growth_facts(each.growth),
        }
        for each in forecast.disks
    ]
    groups: list[Json] = [
        {
            "group": each.state.group,
            "topic": each.state.topic,
            "lag": each.state.now.lag,
            "lag_seconds": each.state.now.age_s,
            "lag_seconds_growth": each.age_slope,
            "runs": len(each.state.points),
            "expired": each.state.expired,
            "loss_in_seconds": _left(forecast, each.loss_in_s),
            "earliest_loss_in_seconds": _left(forecast, each.earliest_s),
            "read_in_seconds": _left(forecast, each.read_in_s),
        }
        for each in forecast.groups[:GAUGES_MAX]
    ]
    return {
        "basis": seen.basis,
        "seen_s": seen.seen_s,
        "within_seconds": forecast.within_s,
        "topics": topics,
        "disks": disks,
        "groups": groups,
        "hot_queues": [
            {
                "topic": each.topic,
                "broker_name": each.largest[0],
                "queue_id": each.largest[1],
                "skew": each.ratio,
                "share": each.ratio / each.queues,
            }
            for each in seen.hot_queues
        ],
        "hot_keys": [
            {
                "topic": each.topic,
                "key": each.key,
                "messages": each.messages,
                "share": each.share,
            }
            for each in seen.hot_keys
        ],
        "failures": list((*seen.failures, *seen.age_failures)[:GAUGES_MAX]),
    }


def _left(forecast: Forecast, in_s: float | None) -> float | None:
    """Return the seconds that are left; None for never and for not known."""
    return forecast.left_s(in_s) if in_s is not None and math.isfinite(in_s) else None


def _growth_facts(growth: Growth | None) -> dict[str, Json]:
    if growth is None:
        return {"bytes_per_hour": None, "messages_per_hour": None, "samples": None}
    return {
        "bytes_per_hour": growth.size_bytes * HOUR_S,
        "messages_per_hour": growth.messages * HOUR_S,
        "disk_bytes_per_day": growth.disk_bytes * DAY_S,
        "mean_disk_bytes_per_day": growth.mean_disk_bytes * DAY_S,
        "samples": growth.samples,
        "from_s": growth.from_s,
        "to_s": growth.to_s,
    }


def gauges_of(forecast: Forecast) -> Iterator[Gauge]:
    """Yield the metrics of a forecast."""
    for disk in forecast.disks:
        labels = {"disk": disk.disk.name}
        if disk.full_in_s is not None:
            text = "Seconds until the disk of a store is full; +Inf is never."
            yield Gauge("disk_full_seconds", text, forecast.left_s(disk.full_in_s), labels)
        if disk.growth is not None:
            text = "Bytes by which a store grows in a second, in the median."
            yield Gauge("disk_growth_bytes", text, disk.growth.disk_bytes, labels)
    for topic, growth in list(forecast.growth.items())[:GAUGES_MAX]:
        if growth is not None:
            text = "Bytes by which a topic grows in a second, in the median."
            yield Gauge("growth_bytes", text, growth.size_bytes, {"topic": topic})
    for each in forecast.groups[:GAUGES_MAX]:
        if each.loss_in_s is not None:
            labels = {"group": each.state.group, "topic": each.state.topic}
            text = "Seconds until a group loses messages that it has not read; +Inf is never."
            value = math.inf if each.is_fresh else forecast.left_s(each.loss_in_s)
            yield Gauge("loss_in_seconds", text, value, labels)
