"""The format `rocketmq`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rmq.spark.hints import hints_in_text
from rmq.spark.schema import check_asked, spark_schema
from rmq.spark.wire.batch import RocketmqBatchReader
from rmq.spark.wire.settings import SourceOptions
from rmq.spark.wire.stream import RocketmqStreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType


class RocketmqDataSource(DataSource):
    """Registered as `rocketmq`: topics as tables and streams, and rows as messages.

    Filters are not pushed down. Spark 4.3 keeps them with the table and not with the query, so the
    next query over the same table would be answered with some of its rows; use options to read
    less.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns, having checked all options."""
        with hints_in_text():
            return spark_schema(SourceOptions(self.options).columns)

    def reader(self, schema: StructType) -> RocketmqBatchReader:
        with hints_in_text():
            return RocketmqBatchReader(self._source_options(schema))

    def streamReader(self, schema: StructType) -> RocketmqStreamReader:
        with hints_in_text():
            return RocketmqStreamReader(self._source_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from rmq.spark.sink.writer import batch_writer

        with hints_in_text():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from rmq.spark.sink.writer import stream_writer

        with hints_in_text():
            return stream_writer(self.options, schema, overwrite)

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions(self.options)
        asked = ((field.name, field.dataType.simpleString()) for field in schema.fields)
        check_asked(asked, options.columns)
        return options
