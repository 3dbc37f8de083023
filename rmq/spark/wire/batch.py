"""Topics as a table: the reader of batch queries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmq.spark.hints import hints_in_text
from rmq.spark.wire.clients import borrowed_consumer
from rmq.spark.wire.cluster import START_PATIENCE_S, Cluster
from rmq.spark.wire.data_loss import DataLossError
from rmq.spark.wire.places import doubts, resolve
from rmq.spark.wire.planning import batch_ranges, split
from rmq.spark.wire.reading import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from rmq.spark.wire.data_loss import Loss
    from rmq.spark.wire.planning import Range
    from rmq.spark.wire.settings import SourceOptions

logger = logging.getLogger(__name__)


class RocketmqBatchReader(DataSourceReader):
    """Reads what the topics hold now. Spark pickles it: it holds options, and no connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._start, self._end = options.for_batch()

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads.

        Spark asks once for a DataFrame and keeps the answer: messages that come later are not in
        it, however often it is used. Load it again to see them.
        """
        options = self._options
        with hints_in_text(), borrowed_consumer(options.values) as consumer:
            cluster = Cluster(consumer, patience_s=START_PATIENCE_S)
            queues = cluster.queues(options.choice, with_system=options.includes_system_topics)
            spans = cluster.spans(queues, prefers_masters=True)
            known = cluster.known(spans, (self._start, self._end), options.group)
            raise_or_log(doubts(self._start, known), options)
            ranges, losses = batch_ranges(
                resolve(self._start, known), resolve(self._end, known), spans
            )
            raise_or_log(losses, options)
            return partitions_of(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one partition."""
        return read_partition(self._options, partition)


def raise_or_log(losses: Sequence[Loss], options: SourceOptions) -> None:
    """Raise `DataLossError` for what is missing, or log it, as the options say."""
    if losses and options.fails_on_data_loss:
        raise DataLossError(losses)
    for loss in losses:
        logger.warning("skipped: %s", loss)


def partitions_of(ranges: Iterable[Range], options: SourceOptions) -> list[InputPartition]:
    """Return ranges as Spark wants them, split as the options say."""
    parts = split(
        ranges,
        partitions_min=options.values.integer("minPartitions"),
        records_max=options.values.integer("maxRecordsPerPartition"),
    )
    return [InputPartition(part) for part in parts]


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a partition that `partitions_of` made."""
    part: Range | None = partition.value
    if part is None:
        # What Spark makes of no partitions at all.
        return
    with hints_in_text():
        yield from read_range(options, part)
