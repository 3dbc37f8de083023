"""The source that one would write first: a record is decoded, a tuple made, and handed to Spark.

It reads the same stores as `rocketmq-store` and gives the same columns, record by record. It is a
module, because Spark's workers import what they run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmq.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq.remoting.addresses import format_address
from rmq.spark.schema import COLUMNS, spark_schema
from rmq.store.reader import Reader
from rmq.store.record import unpack_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType


class NaivePartition(InputPartition):
    """A part of the log."""

    def __init__(self, root: str, start: int, stop: int) -> None:
        self.root = root
        self.start = start
        self.stop = stop


class NaiveReader(DataSourceReader):
    """Reads a store segment by segment."""

    def __init__(self, root: str) -> None:
        self.root = root

    def partitions(self) -> list[InputPartition]:
        with Reader(Path(self.root)) as reader:
            end = reader.end_offset
            return [
                NaivePartition(self.root, segment.first, min(segment.end, end))
                for segment in reader.segments
                if segment.first < end
            ]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, NaivePartition)
        with Reader(Path(partition.root)) as reader:
            for record in reader.records(partition.start, partition.stop):
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


class NaiveDataSource(DataSource):
    """Registered as `naive-store`; its option is `path`."""

    @classmethod
    def name(cls) -> str:
        return "naive-store"

    def schema(self) -> str:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return NaiveReader(self.options["path"])
