"""Topics as a stream: the reader of streaming queries.

Spark keeps the checkpoint, which is the only truth about what was read. The group named by
`commitGroup` is told of it afterwards, for dashboards; nothing depends on that.

One reader lives on the driver for as long as the query and plans its batches; copies of it are sent
to the tasks, which only call `read`. Spark never calls `stop` in time, so nothing is done there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmq.errors import RmqError
from rmq.spark.hints import hints_in_text
from rmq.spark.wire.batch import partitions_of, read_partition, settle
from rmq.spark.wire.clients import borrowed_consumer
from rmq.spark.wire.cluster import PATIENCE_S, START_PATIENCE_S, Cluster
from rmq.spark.wire.places import resolve
from rmq.spark.wire.planning import stream_ends, stream_ranges
from rmq.spark.wire.positions import as_offset, is_initial, read_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from rmq.model.queues import MessageQueue
    from rmq.spark.wire.planning import Span
    from rmq.spark.wire.settings import SourceOptions

logger = logging.getLogger(__name__)


class RocketmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes to the topics, batch by batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._start = options.for_stream()
        self._pinned: dict[MessageQueue, int] | None = None
        """Where queues ended when a query began that is to read what there is, and stop."""
        self._latest: dict[str, Any] | None = None
        """Where queues ended when Spark asked last."""

    # --- planning, on the driver -------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where the query starts, marked as such: see `positions`."""
        options = self._options
        with hints_in_text(), borrowed_consumer(options.values) as consumer:
            cluster = Cluster(consumer, patience_s=START_PATIENCE_S)
            queues = cluster.queues(options.choice, with_system=options.includes_system_topics)
            spans = cluster.spans(queues)
            known = cluster.known(spans, (self._start,), options.group)
            return as_offset(resolve(self._start, known), is_initial=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` if there is nothing new.

        The first batch ends where it starts, so that Spark stores that place.
        """
        with hints_in_text():
            places = read_offset(start)
            self._options.choice.check(places)
            if is_initial(start):
                return as_offset(places)
            spans = self._spans(places, with_new=True)
            ends, losses = stream_ends(
                places,
                spans,
                pinned=self._pinned,
                limit=limit.max_rows if isinstance(limit, ReadMaxRows) else 0,
            )
            settle(losses, self._options)
            self._latest = as_offset({queue: span.end for queue, span in spans.items()})
            return as_offset(ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one batch reads."""
        limit = self._options.offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where queues end, for the progress of the query: its lag can be seen there."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where queues end now: the query stops there."""
        with hints_in_text():
            spans = self._spans((), with_new=True)
        self._pinned = {queue: span.end for queue, span in spans.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a batch reads.

        The first batch is empty, also when it is repeated with another start than it had.
        """
        with hints_in_text():
            starts, ends = read_offset(start), read_offset(end)
            self._options.choice.check(ends)
            if is_initial(start) or starts == ends:
                return []
            wanted = [queue for queue, place in ends.items() if starts.get(queue) != place]
            ranges, losses = stream_ranges(starts, ends, self._spans(wanted, with_new=False))
            settle(losses, self._options)
            return partitions_of(ranges, self._options)

    def _spans(self, known: Iterable[MessageQueue], *, with_new: bool) -> dict[MessageQueue, Span]:
        """Ask for queues that the query has read, and for new ones if they are wanted."""
        options = self._options
        expected = set(known)
        with borrowed_consumer(options.values) as consumer:
            cluster = Cluster(consumer, patience_s=PATIENCE_S)
            queues = cluster.queues_now(
                options.choice,
                expected,
                with_system=options.includes_system_topics,
                waits=options.fails_on_data_loss,
            )
            return cluster.spans(queue for queue in queues if with_new or queue in expected)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has stored the results up to `end`; tell `commitGroup`, if that can be done."""
        group = self._options.commit_group
        if not group:
            return
        try:
            with borrowed_consumer(self._options.values) as consumer:
                Cluster(consumer, patience_s=0.0).commit(group, read_offset(end))
        except RmqError as exc:
            logger.warning("group %s was not told how far the query is: %s", group, exc)

    # --- reading, in tasks -------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one partition."""
        return read_partition(self._options, partition)
