"""Rows in the order of where they go: by topic, and by queue if they have a sharding key. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import pyarrow as pa

from rmq.spark.sink.arrays import as_binary
from rmq.spark.sink.sharding import queue_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rmq.model.queues import MessageQueue


class Run(NamedTuple):
    """Rows that lie next to each other and go to the same place."""

    start: int
    stop: int
    topic: str
    queue: MessageQueue | None


@final
class Groups:
    """Rows by where they go."""

    def __init__(
        self,
        topics: pa.DictionaryArray | str,
        sharding_keys: pa.Array | None,
        queues_of: Callable[[str], Sequence[MessageQueue]],
        count: int,
    ) -> None:
        """`order` puts rows of one topic and queue next to each other; None: they are already."""
        self._count = count
        if isinstance(topics, str):
            self._topics = [topics]
            topic_numbers = np.zeros(count, np.int64)
        else:
            self._topics = topics.dictionary.to_pylist()
            topic_numbers = topics.indices.to_numpy().astype(np.int64)
        self._queues: dict[int, Sequence[MessageQueue]] = {}
        queue_numbers_of_rows = np.full(count, -1, np.int64)
        if sharding_keys is not None and sharding_keys.null_count < count:
            keys = as_binary(sharding_keys)
            has_key = keys.is_valid().to_numpy(zero_copy_only=False)
            for number, topic in enumerate(self._topics):
                rows = np.flatnonzero(has_key & (topic_numbers == number))
                if rows.size:
                    queues = self._queues[number] = queues_of(topic)
                    chosen = queue_numbers(keys.take(pa.array(rows)), len(queues))
                    queue_numbers_of_rows[rows] = chosen
        self._width = 2 + int(queue_numbers_of_rows.max(initial=-1))
        codes = topic_numbers * self._width + queue_numbers_of_rows + 1
        self.order: NDArray[np.int64] | None = None
        if count and (codes != codes[0]).any():
            self.order = np.argsort(codes, kind="stable")
            codes = codes[self.order]
        self._codes = codes

    def runs(self) -> Iterator[Run]:
        """Yield the groups, as rows lie once they are in order."""
        if not self._count:
            return
        changes = np.flatnonzero(np.diff(self._codes)) + 1
        starts = [0, *changes.tolist()]
        for start, stop in zip(starts, [*starts[1:], self._count], strict=True):
            topic_number, queue_number = divmod(int(self._codes[start]), self._width)
            queue = self._queues[topic_number][queue_number - 1] if queue_number else None
            yield Run(start, stop, self._topics[topic_number], queue)
