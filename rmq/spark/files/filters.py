"""Which records of a store are rows, by topic and store time, before any column is made. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmq.model.names import (
    ALWAYS_SYSTEM_TOPICS,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)
from rmq.model.properties import decode_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmq.spark.decoding.heads import Heads
    from rmq.spark.files.settings import StoreOptions


class RowFilter:
    """Chooses records by the options of a query."""

    def __init__(self, options: StoreOptions) -> None:
        self._topics = options.topics
        self._includes_system = options.includes_system_topics
        self._from_ms = options.from_ms
        self._to_ms = options.to_ms

    def chosen(self, heads: Heads) -> Heads:
        """Return those of the records that are rows."""
        is_row = self._mask(heads)
        return heads if is_row is None else heads.part(np.flatnonzero(is_row))

    def _mask(self, heads: Heads) -> NDArray[np.bool_] | None:
        """Tell for each record whether it is a row; None if all are."""
        is_row = np.ones(len(heads), np.bool_)
        if self._from_ms is not None or self._to_ms is not None:
            store_ms = heads.integers("store_ms")
            if self._from_ms is not None:
                is_row &= store_ms >= self._from_ms
            if self._to_ms is not None:
                is_row &= store_ms < self._to_ms
        if self._topics or not self._includes_system:
            topics = heads.topics
            is_wanted = [self._wants(decode_text(name)) for name in topics.dictionary.to_pylist()]
            if not all(is_wanted):
                is_row &= np.array(is_wanted)[np.asarray(topics.indices)]
        return None if is_row.all() else is_row

    def _wants(self, topic: str) -> bool:
        if self._topics:
            return topic in self._topics
        return self._includes_system or not is_system_topic(topic)


def is_system_topic(topic: str) -> bool:
    """Tell whether a topic belongs to brokers or consumer groups, as far as its name says so."""
    return topic in ALWAYS_SYSTEM_TOPICS or topic.startswith(
        (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)
    )
