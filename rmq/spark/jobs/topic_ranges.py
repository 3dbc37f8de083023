"""Ranges of queues, from the driver: where topics end now, and tables of what came since.

No Spark is needed to ask; only `read_range` makes a table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rmq.client.blocking.consumer import BlockingConsumer
from rmq.errors import NoRouteError
from rmq.spark.wire.positions import EARLIEST, as_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from rmq.client.core.config import ClientConfig
    from rmq.model.queues import MessageQueue

CONSUMER_GROUP: Final = "rmq-spark"
"""The group under which brokers see the questions; it has no offsets."""


def end_offsets(config: ClientConfig, topics: Iterable[str]) -> dict[MessageQueue, int]:
    """Return where the queues of topics end now; topics that no broker has are left out."""
    with BlockingConsumer(config, CONSUMER_GROUP) as consumer:
        queues: list[MessageQueue] = []
        for topic in topics:
            try:
                queues += consumer.queues(topic)
            except NoRouteError:
                continue
        return dict(sorted(consumer.end_offsets(queues).items()))


def range_options(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> dict[str, str] | None:
    """Return the options that read queues from `starts` to `ends`; None if there is nothing.

    A queue that has no start is read from its first message on.
    """
    places = {
        queue: (starts.get(queue, EARLIEST), end)
        for queue, end in ends.items()
        if end > max(0, starts.get(queue, 0))
    }
    if not places:
        return None
    assignment: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(places):
        assignment.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(
            queue.queue_id
        )
    return {
        "assign": json.dumps(assignment),
        "startingOffsets": json.dumps(as_offset({q: place[0] for q, place in places.items()})),
        "endingOffsets": json.dumps(as_offset({q: place[1] for q, place in places.items()})),
    }


def read_range(
    spark: SparkSession,
    cluster: Mapping[str, str],
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    columns: Iterable[str],
) -> DataFrame:
    """Return the messages of queues from `starts` to `ends` as a table."""
    from rmq.spark.schema import spark_schema

    names = list(columns)
    options = range_options(starts, ends)
    if options is None:
        return spark.createDataFrame([], spark_schema(names))
    return (
        spark.read.format("rocketmq").options(**cluster, **options, columns=",".join(names)).load()
    )
