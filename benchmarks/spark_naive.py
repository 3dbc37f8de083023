"""The sources that one would write first: a record is decoded, a tuple made, and handed to Spark.

They read what `rocketmq-store` and `rocketmq` read and give the same columns, record by record.
They are in a module, because Spark's workers import what they run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmq.client.blocking import BlockingConsumer
from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq.model.record import unpack_host
from rmq.remoting.addresses import format_address
from rmq.spark.schema import COLUMNS, spark_schema
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from rmq.model.queues import MessageQueue


class StorePartition(InputPartition):
    """A part of the log."""

    def __init__(self, root: str, start: int, stop: int) -> None:
        self.root = root
        self.start = start
        self.stop = stop


class StoreReader(DataSourceReader):
    """Reads a store segment by segment."""

    def __init__(self, root: str) -> None:
        self.root = root

    def partitions(self) -> list[InputPartition]:
        with Reader(Path(self.root)) as reader:
            end = reader.end_offset
            return [
                StorePartition(self.root, segment.first, min(segment.end, end))
                for segment in reader.segments
                if segment.first < end
            ]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, StorePartition)
        with Reader(Path(partition.root)) as reader:
            for record in reader.records(
                PhysicalOffset(partition.start), PhysicalOffset(partition.stop)
            ):
                properties = record.properties
                yield (
                    record.topic,
                    None,
                    record.queue_id,
                    record.queue_offset,
                    record.physical_offset,
                    record.size,
                    datetime.fromtimestamp(record.store_ms / 1000, UTC),
                    datetime.fromtimestamp(record.born_ms / 1000, UTC),
                    format_address(unpack_host(record.born_host)),
                    format_address(unpack_host(record.store_host)),
                    record.sys_flag,
                    record.flag,
                    record.body_crc,
                    record.reconsume_times,
                    record.prepared_offset,
                    properties.get(UNIQ_KEY) or record.message_id,
                    properties.get(TAGS),
                    properties.get(KEYS),
                    properties,
                    record.body,
                )


class NaiveStoreSource(DataSource):
    """Registered as `naive-store`; its option is `path`."""

    @classmethod
    def name(cls) -> str:
        return "naive-store"

    def schema(self) -> str:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return StoreReader(self.options["path"])


class QueuePartition(InputPartition):
    """A queue."""

    def __init__(self, queue: MessageQueue, stop: int) -> None:
        self.queue = queue
        self.stop = stop


class QueueReader(DataSourceReader):
    """Reads a topic queue by queue."""

    def __init__(self, nameservers: str, topic: str) -> None:
        self.nameservers = nameservers
        self.topic = topic

    def partitions(self) -> list[InputPartition]:
        with BlockingConsumer(self.nameservers, "naive") as consumer:
            ends = consumer.end_offsets(consumer.queues(self.topic))
            return [QueuePartition(queue, end) for queue, end in ends.items()]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, QueuePartition)
        queue = partition.queue
        with BlockingConsumer(self.nameservers, "naive") as consumer:
            for message in consumer.read_range(queue, 0, partition.stop):
                yield (
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    message.queue_offset,
                    message.physical_offset,
                    message.stored_bytes,
                    datetime.fromtimestamp(message.stored_at_ms / 1000, UTC),
                    datetime.fromtimestamp(message.born_at_ms / 1000, UTC),
                    message.born_host,
                    message.store_host,
                    message.sys_flag,
                    message.flag,
                    message.body_crc,
                    message.reconsume_times,
                    message.prepared_offset,
                    message.message_id,
                    message.tag,
                    " ".join(message.keys),
                    dict(message.properties),
                    message.body,
                )


class NaiveWireSource(DataSource):
    """Registered as `naive-wire`; its options are `nameservers` and `subscribe`."""

    @classmethod
    def name(cls) -> str:
        return "naive-wire"

    def schema(self) -> str:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return QueueReader(self.options["nameservers"], self.options["subscribe"])
