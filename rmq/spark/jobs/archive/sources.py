"""Where messages to archive come from: the brokers of a cluster, or the log of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pyspark.sql import functions as F

from rmq.client.blocking.consumer import BlockingConsumer
from rmq.model.queues import MessageQueue
from rmq.spark import schema
from rmq.spark.jobs.archive.manifest import Queue, StorePosition
from rmq.spark.jobs.archive.plan import Bounds
from rmq.spark.jobs.topic_ranges import CONSUMER_GROUP, range_options
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rmq.client.config import ClientConfig
    from rmq.spark.jobs.archive.manifest import Manifest
    from rmq.spark.jobs.archive.plan import Plan


@final
class ClusterSource:
    """Topics over the wire."""

    def __init__(
        self, config: ClientConfig, options: Mapping[str, str], topics: Sequence[str]
    ) -> None:
        self.name = f"cluster {options['nameservers']}"
        self._config = config
        self._options = options
        self._topics = topics

    def look(self, manifest: Manifest) -> tuple[dict[Queue, Bounds], dict[Queue, str]]:
        """Return what queues hold, and which are not those that were archived.

        Raises `ClientError` if a broker does not tell: nobody could say what is new.
        """
        changed: dict[Queue, str] = {}
        with BlockingConsumer(self._config, CONSUMER_GROUP) as consumer:
            places = [place for topic in self._topics for place in consumer.queues(topic)]
            firsts, ends = consumer.begin_offsets(places), consumer.end_offsets(places)
            bounds = {_queue_of(place): Bounds(firsts[place], ends[place]) for place in places}
            for place in places:
                queue = _queue_of(place)
                part = manifest.parts.get(queue)
                if part is None or not bounds[queue].first <= part.last < bounds[queue].end:
                    continue
                for message in consumer.read_range(place, part.last, part.last + 1):
                    if message.stored_at_ms != part.last_store_ms:
                        changed[queue] = _another(part.last)
        return bounds, changed

    def read(self, spark: SparkSession, plan: Plan, manifest: Manifest) -> DataFrame:
        """Return the messages of a plan."""
        starts = {_place_of(queue): span.start for queue, span in plan.spans.items()}
        ends = {_place_of(queue): span.end for queue, span in plan.spans.items()}
        options = {
            **self._options,
            **(range_options(starts, ends) or {}),
            "failOnDataLoss": "true",
            "minPartitions": str(2 * spark.sparkContext.defaultParallelism),
        }
        return spark.read.format("rocketmq").options(**options).load()

    def positions(self, log_end: int) -> dict[str, StorePosition]:
        """Return up to where stores were read: none was."""
        return {}


def _queue_of(place: MessageQueue) -> Queue:
    return Queue(place.topic, place.broker_name, place.queue_id)


def _place_of(queue: Queue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def _another(offset: int) -> str:
    return f"at offset {offset} it has another message than the archive"


@final
class StoreSource:
    """The log of a store, up to where it ends now."""

    def __init__(self, root: Path, broker_name: str, topics: Sequence[str]) -> None:
        self.name = f"store {root}"
        self._root = root
        self._broker_name = broker_name
        self._topics = topics
        with Reader(root) as reader:
            self._begin, self._end = int(reader.min_offset), int(reader.end_offset)
            self._bounds = {
                Queue(bounds.topic, broker_name, bounds.queue_id): Bounds(
                    bounds.min_offset, bounds.max_offset
                )
                for bounds in reader.queues()
                if bounds.topic in topics
            }

    def look(self, manifest: Manifest) -> tuple[dict[Queue, Bounds], dict[Queue, str]]:
        """Return what queues hold, and which are not those that were archived."""
        changed: dict[Queue, str] = {}
        with Reader(self._root) as reader:
            for queue, bounds in self._bounds.items():
                part = manifest.parts.get(queue)
                if part is None or not bounds.first <= part.last < bounds.end:
                    continue
                found = next(
                    reader.messages(queue.topic, queue.queue_id, part.last, part.last + 1), None
                )
                if found is not None and found.store_ms != part.last_store_ms:
                    changed[queue] = _another(part.last)
        return self._bounds, changed

    def read(self, spark: SparkSession, plan: Plan, manifest: Manifest) -> DataFrame:
        """Return the messages of a plan; the log is read from where the last run ended."""
        options = {
            "path": str(self._root),
            "topics": ",".join(self._topics),
            "brokerName": self._broker_name,
            "toOffset": str(self._end),
        }
        known = manifest.store_positions.get(str(self._root.absolute()))
        if (
            known is not None
            and set(self._topics) <= set(known.topics)
            and self._begin <= known.offset <= self._end
        ):
            options["fromOffset"] = str(known.offset)
        messages = spark.read.format("rocketmq-store").options(**options).load()
        rows = [
            (queue.topic, queue.queue_id, span.start, span.end)
            for queue, span in plan.spans.items()
        ]
        spans = spark.createDataFrame(
            rows, f"{schema.TOPIC} STRING, {schema.QUEUE_ID} INT, start BIGINT, end BIGINT"
        )
        wanted = messages.join(F.broadcast(spans), [schema.TOPIC, schema.QUEUE_ID])
        offset = F.col(schema.QUEUE_OFFSET)
        wanted = wanted.filter((offset >= F.col("start")) & (offset < F.col("end")))
        return wanted.select(*schema.COLUMNS)

    def positions(self, log_end: int) -> dict[str, StorePosition]:
        """Return that the log was read up to `log_end`, where a record ends, for these topics."""
        return {str(self._root.absolute()): StorePosition(log_end, tuple(sorted(self._topics)))}
