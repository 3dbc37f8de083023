"""Telling a consumer group how far a query has come, once it has ended.

Spark tells a source that a batch is done when it plans the next one. So the last batch of a query
that ends (`availableNow`) is never told of, and `commitGroup` is one batch behind. Code that ends
the query can make up for it:

    query = orders.writeStream....trigger(availableNow=True).start()
    query.awaitTermination()
    commit_progress(query, options, "archive")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmq.errors import ConfigError
from rmq.spark.wire.clients import borrowed_consumer
from rmq.spark.wire.cluster import START_PATIENCE_S, Cluster
from rmq.spark.wire.positions import read_offset
from rmq.spark.wire.settings import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rmq.model.queues import MessageQueue


def commit_progress(
    query: StreamingQuery | Mapping[str, Any] | None,
    options: Mapping[str, str],
    group: str | None = None,
    *,
    source: int = 0,
) -> dict[MessageQueue, int]:
    """Tell a group where a query has ended; return the places that it was told.

    Topics that no broker has any more are logged and left out.

    `query` is the query or its last progress; nothing is told if there is none. `options` are those
    of its source, and `group` is their `commitGroup` unless it is named. `source` is the number of
    the source, if the query has several. Raises `ConfigError` and `ClientError`.
    """
    wanted = SourceOptions(options)
    name = group or wanted.commit_group
    if not name:
        raise ConfigError("commitGroup", "is not set, and no other group is named")
    progress = query if query is None or isinstance(query, Mapping) else query.lastProgress
    if progress is None:
        return {}
    sources = progress["sources"]
    if not 0 <= source < len(sources):
        raise ConfigError("source", f"the query has {len(sources)}, there is no number {source}")
    end = sources[source]["endOffset"]
    offset = json.loads(end) if isinstance(end, str) else end
    if not isinstance(offset, Mapping):
        # A query that was stopped before its first batch.
        return {}
    places = read_offset(offset)
    wanted.choice.check(places)
    with borrowed_consumer(wanted.values) as consumer:
        return Cluster(consumer, patience_s=START_PATIENCE_S).commit(name, places)
