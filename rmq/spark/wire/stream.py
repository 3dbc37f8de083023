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
from rmq.spark.wire.batch import partitions_of, raise_or_log, read_partition
from rmq.spark.wire.clients import borrowed_consumer
from rmq.spark.wire.cluster import PATIENCE_S, START_PATIENCE_S, Cluster
from rmq.spark.wire.data_loss import QueuesAwayError
from rmq.spark.wire.places import doubts, resolve
from rmq.spark.wire.planning import stream_ends, stream_ranges
from rmq.spark.wire.positions import as_offset, is_initial, names_of, read_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

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
        self._initial: dict[str, Any] | None = None
        """Where the query starts: Spark asks more than once."""
        self._pinned: dict[MessageQueue, int] | None = None
        """Where queues ended when a query began that is to read what there is, and stop."""
        self._latest: dict[str, Any] | None = None
        """Where queues ended when Spark asked last."""

    # --- planning, on the driver -------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where the query starts, marked as such: see `positions`."""
        if self._initial is None:
            self._initial = as_offset(self._first_places(), is_initial=True)
        return self._initial

    def _first_places(self) -> dict[MessageQueue, int]:
        options = self._options
        with hints_in_text(), borrowed_consumer(options.values) as consumer:
            cluster = Cluster(consumer, patience_s=START_PATIENCE_S)
            queues = cluster.queues(options.choice, with_system=options.includes_system_topics)
            spans = cluster.spans(queues, prefers_masters=True)
            known = cluster.known(spans, (self._start,), options.group)
            raise_or_log(doubts(self._start, known), options)
            return resolve(self._start, known)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` if there is nothing new.

        The first batch ends where it starts, so that Spark stores that place. A new queue ends
        where it begins in the batch that meets it, for the same reason.
        """
        with hints_in_text():
            places = read_offset(start)
            self._options.choice.check(places)
            if is_initial(start):
                return as_offset(places)
            spans, away = self._look(places, with_new=True, waits=self._options.fails_on_data_loss)
            self._tell_away(away)
            if self._pinned is not None:
                # Brokers that were away when the run began: it has their queues up to here.
                for queue in places.keys() & spans.keys():
                    self._pinned.setdefault(queue, spans[queue].end)
            ends, losses = stream_ends(
                places,
                spans,
                away=away,
                pinned=self._pinned,
                limit=limit.max_rows if isinstance(limit, ReadMaxRows) else 0,
            )
            raise_or_log(losses, self._options)
            self._tell_new(ends.keys() - places.keys(), spans.keys() - ends.keys())
            self._latest = as_offset({queue: span.end for queue, span in spans.items()})
            return as_offset(ends)

    def _tell_away(self, away: Collection[MessageQueue]) -> None:
        if not away:
            return
        if self._options.fails_on_data_loss:
            raise QueuesAwayError(away)
        logger.warning("the query goes on without these for now: %s", names_of(away))

    def _tell_new(self, begun: Collection[MessageQueue], left: Collection[MessageQueue]) -> None:
        if begun:
            logger.warning(
                "new to this query (created since, or their brokers were not there when it began),"
                " and read from their first messages on: %s",
                names_of(begun),
            )
        if left and self._pinned is None:
            logger.warning(
                "new to this query, and not read before their masters say where they begin: %s",
                names_of(left),
            )

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
            spans, _ = self._look((), with_new=True, waits=False)
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
            wanted = [queue for queue, place in starts.items() if ends.get(queue, place) != place]
            # What is skipped here is never read: so it must be certain that it is gone.
            spans, away = self._look(wanted, with_new=False, waits=True)
            if away:
                raise QueuesAwayError(away)
            ranges, losses = stream_ranges(starts, ends, spans)
            raise_or_log(losses, self._options)
            return partitions_of(ranges, self._options)

    def _look(
        self, known: Iterable[MessageQueue], *, with_new: bool, waits: bool
    ) -> tuple[dict[MessageQueue, Span], frozenset[MessageQueue]]:
        """Ask for queues that the query has read, and for new ones if they are wanted.

        Return what they hold, and which of them are away. `waits`: those that are missing are
        waited for.
        """
        options = self._options
        with borrowed_consumer(options.values) as consumer:
            cluster = Cluster(consumer, patience_s=PATIENCE_S)
            present = cluster.queues_now(
                options.choice,
                known,
                with_new=with_new,
                with_system=options.includes_system_topics,
                waits=waits,
            )
            return cluster.spans(present.queues), present.away

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
