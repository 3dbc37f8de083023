"""Where messages to archive come from: the brokers of a cluster, or the log of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from pyspark.sql import functions as F

from rmq.client.blocking.consumer import BlockingConsumer
from rmq.errors import CorruptStoreError
from rmq.model.offsets import QueueOffset
from rmq.model.queues import MessageQueue
from rmq.spark import schema
from rmq.spark.jobs.archive.manifest import Queue
from rmq.spark.jobs.archive.plan import Bounds
from rmq.spark.jobs.topic_ranges import CONSUMER_GROUP, range_options
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rmq.client.core.config import ClientConfig
    from rmq.model.record import StoredRecord
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

    def serves(self, queue: Queue) -> bool:
        """Tell whether a queue should be among those that `query_bounds` returns."""
        return queue.topic in self._topics

    def query_bounds(self, manifest: Manifest) -> tuple[dict[Queue, Bounds], dict[Queue, str]]:
        """Return what queues hold, and which are not those that were archived.

        Raises `ClientError` if a broker does not answer: then it is not known what is new.
        """
        changed: dict[Queue, str] = {}
        with BlockingConsumer(self._config, CONSUMER_GROUP) as consumer:
            places = [place for topic in self._topics for place in consumer.queues(topic)]
            firsts, ends = consumer.begin_offsets(places), consumer.end_offsets(places)
            bounds = {_queue_of(place): Bounds(firsts[place], ends[place]) for place in places}
            for place in places:
                queue = _queue_of(place)
                known = _last_message(manifest, queue, bounds[queue])
                if known is None:
                    continue
                for message in consumer.read_range(place, known.offset, known.offset + 1):
                    if message.stored_at_ms != known.store_ms:
                        changed[queue] = _another(known.offset)
        return bounds, changed

    def read(self, spark: SparkSession, plan: Plan) -> DataFrame:
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


def _queue_of(place: MessageQueue) -> Queue:
    return Queue(place.topic, place.broker_name, place.queue_id)


def _place_of(queue: Queue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def _another(offset: int) -> str:
    return f"at offset {offset} it has another message than the archive"


class _Message(NamedTuple):
    """The last message of a queue that is archived."""

    offset: int
    store_ms: int


def _last_message(manifest: Manifest, queue: Queue, bounds: Bounds) -> _Message | None:
    """Return the last archived message of a queue, if the queue has its offset."""
    part = manifest.parts.get(queue)
    offset = None if part is None else part.last_message
    if part is None or offset is None or not bounds.first <= offset < bounds.end:
        return None
    return _Message(offset, part.last_store_ms)


@final
class StoreSource:
    """The log of a store, up to its present end."""

    def __init__(
        self, root: Path, broker_name: str, topics: Sequence[str], *, skips_corrupt: bool = False
    ) -> None:
        self.name = f"store {root}"
        self._root = root
        self._broker_name = broker_name
        self._topics = topics
        self._skips_corrupt = skips_corrupt
        # All questions are answered as of now.
        self._reader = Reader(root)
        with self._reader as reader:
            self._end = int(reader.end_offset)
            self._bounds = {
                Queue(bounds.topic, broker_name, bounds.queue_id): Bounds(
                    bounds.min_offset, bounds.max_offset
                )
                for bounds in reader.queues()
                if bounds.topic in topics
            }

    def serves(self, queue: Queue) -> bool:
        """Tell whether a queue should be among those that `query_bounds` returns."""
        return queue.topic in self._topics and queue.broker_name == self._broker_name

    def query_bounds(self, manifest: Manifest) -> tuple[dict[Queue, Bounds], dict[Queue, str]]:
        """Return what queues hold, and which are not those that were archived."""
        changed: dict[Queue, str] = {}
        with self._reader:
            for queue, bounds in self._bounds.items():
                known = _last_message(manifest, queue, bounds)
                if known is None:
                    continue
                found = self._message(queue, known.offset)
                if found is not None and found.store_ms != known.store_ms:
                    changed[queue] = _another(known.offset)
        return self._bounds, changed

    def start(self, plan: Plan) -> int | None:
        """Return where in the log the first message of a plan lies; None if that cannot be told.

        Each queue is asked by itself. Where the last run ended in the log says nothing: queues are
        not listed at one moment, and what was missing in one of them may lie before that place.
        """
        places: list[int] = []
        with self._reader:
            for queue, span in plan.spans.items():
                message = self._message(queue, span.start)
                if message is None:
                    return None
                places.append(message.physical_offset)
        return min(places, default=None)

    def _message(self, queue: Queue, offset: int) -> StoredRecord | None:
        """Return a message; None if it is gone, or damaged and damage is skipped."""
        start = QueueOffset(offset)
        messages = self._reader.messages(queue.topic, queue.queue_id, start, start + 1)
        try:
            return next(messages, None)
        except CorruptStoreError:
            if self._skips_corrupt:
                return None
            raise

    def read(self, spark: SparkSession, plan: Plan) -> DataFrame:
        """Return the messages of a plan."""
        options = {
            "path": str(self._root),
            "topics": ",".join(sorted({queue.topic for queue in plan.spans})),
            "brokerName": self._broker_name,
            "toOffset": str(self._end),
            "skipCorrupt": str(self._skips_corrupt).lower(),
        }
        start = self.start(plan)
        if start is not None:
            options["fromOffset"] = str(start)
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
