"""The format `rocketmq-store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmq.spark.files.query import open_store, plan
from rmq.spark.files.reading import read_part
from rmq.spark.files.settings import store_options
from rmq.spark.hints import hints_in_text
from rmq.spark.schema import check_asked, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rmq.spark.files.planning import LogPart
    from rmq.spark.files.settings import StoreOptions


class StoreDataSource(DataSource):
    """Registered as `rocketmq-store`: the CommitLog of a store directory as a table."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> str:
        """Return the columns, having checked all options and that there is a store."""
        with hints_in_text():
            options = store_options(self.options)
            open_store(options).close()
            return spark_schema(options.columns)

    def reader(self, schema: StructType) -> StoreReader:
        with hints_in_text():
            options = store_options(self.options)
            asked = ((field.name, field.dataType.simpleString()) for field in schema.fields)
            check_asked(asked, options.columns)
            return StoreReader(options)


class StoreReader(DataSourceReader):
    """Reads what a store holds now. Spark pickles it: it holds options, and no files."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads. Spark asks once per query and keeps the answer."""
        with hints_in_text(), open_store(self._options) as reader:
            return [InputPartition(part) for part in plan(reader, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        part: LogPart | None = partition.value
        if part is None:
            # What Spark makes of no partitions at all.
            return
        with hints_in_text():
            yield from read_part(self._options, part)
