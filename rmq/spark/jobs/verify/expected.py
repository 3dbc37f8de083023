"""What ConsumeQueues and index must have of records, many records at a time.

The rules are those of `rmq.store.verify.queues` and `rmq.store.verify.index`; tests compare the
two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rmq.model import flags
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY, decode_text
from rmq.spark.decoding.properties import Properties
from rmq.spark.jobs.verify.sums import (
    RowSum,
    index_hashes,
    index_keys,
    row_hashes,
    row_sum,
    sums_by_queue,
)
from rmq.store.key_hash import TagCodes
from rmq.store.layout import INDEX_SECONDS_MAX
from rmq.store.verify.queues import EXTRA_QUEUES, delay_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rmq.spark.decoding.heads import Heads


@dataclass(frozen=True, slots=True)
class IndexBegins:
    """Where index files begin, and the times from which they count seconds."""

    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]
    last_offset: int | None
    """Records behind this one are not indexed yet; None if all are."""

    def seconds(
        self, physical: NDArray[np.int64], store_ms: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the seconds that entries of records must have.

        A record at which an index file begins may have keys in two files: they count as 0, and are
        checked elsewhere.
        """
        if not self.offsets:
            return np.zeros(len(physical), np.int64)
        begins = np.array(self.offsets, np.int64)
        files = np.searchsorted(begins, physical, side="right") - 1
        is_judged = (files >= 0) & (begins[files] != physical)
        begin_ms = np.array(self.times_ms, np.int64)[files]
        seconds = np.clip((store_ms - begin_ms) // 1000, 0, INDEX_SECONDS_MAX)
        return np.where(is_judged & (begin_ms > 0), seconds, 0)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is expected depends on these."""

    delay_levels_ms: tuple[int, ...]
    """The delays of level 1, 2 and so on (`messageDelayLevel`)."""
    index: IndexBegins | None
    """None if the index is not checked."""


class Expectation:
    """Tells what records must have; knows the topics it has seen."""

    def __init__(self, rules: Rules) -> None:
        self.has_extra_queues = False
        """Whether some record may have entries in further queues, which are not told."""
        self._rules = rules
        self._topics: dict[str, int] = {}
        self._tag_codes = TagCodes({b"": 0})

    @property
    def topics(self) -> list[str]:
        """The names that the topics of rows stand for."""
        return list(self._topics)

    def of(self, heads: Heads) -> tuple[NDArray[Any], RowSum]:
        """Return what queues must have, one row of `QUEUE_SUMS` each, and what the index must."""
        properties = Properties(heads)
        topics = self._places(heads)
        physical, store_ms = heads.integers("physical_offset"), heads.integers("store_ms")
        kinds = heads.sys_flags & flags.TRANSACTION_MASK
        columns = [topics, heads.integers("queue_id"), heads.integers("queue_offset")]
        codes = self._tags_codes(properties, topics, store_ms)
        columns.append(row_hashes(columns[2], physical, heads.sizes, codes))
        is_queued = (kinds == flags.TRANSACTION_NONE) | (kinds == flags.TRANSACTION_COMMIT)
        if not is_queued.all():
            columns = [column[is_queued] for column in columns]
        self.has_extra_queues |= EXTRA_QUEUES in heads.data
        keys = RowSum()
        if self._rules.index is not None:
            is_indexed = kinds != flags.TRANSACTION_ROLLBACK
            if self._rules.index.last_offset is not None:
                is_indexed &= physical <= self._rules.index.last_offset
            owners, words = index_keys(properties.values_of(UNIQ_KEY), properties.values_of(KEYS))
            if not is_indexed.all():
                kept = is_indexed[owners]
                owners, words = owners[kept], words.filter(pa.array(kept))
            hashes = index_hashes(words, topics[owners], self.topics)
            seconds = self._rules.index.seconds(physical, store_ms)
            keys = row_sum(physical[owners], hashes, seconds[owners])
        return sums_by_queue(*columns), keys

    def _places(self, heads: Heads) -> NDArray[np.int64]:
        """Return for each record where in `topics` its topic is."""
        places = [
            self._topics.setdefault(decode_text(name), len(self._topics))
            for name in heads.topics.dictionary.to_pylist()
        ]
        found: NDArray[np.int64] = np.array(places, np.int64)[np.asarray(heads.topics.indices)]
        return found

    def _tags_codes(
        self, properties: Properties, topics: NDArray[np.int64], store_ms: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        codes = _looked_up(properties.values_of(TAGS), self._tag_code)
        schedule = self._topics.get(SCHEDULE_TOPIC)
        if schedule is not None:
            # Entries of delayed messages hold the time of their delivery.
            delays = _looked_up(properties.values_of(DELAY), self._delay_ms)
            is_delayed = (topics == schedule) & (delays >= 0)
            codes[is_delayed] = (store_ms + delays)[is_delayed]
        return codes

    def _tag_code(self, tag: str) -> int:
        return self._tag_codes[tag.encode()]

    def _delay_ms(self, text: str) -> int:
        level = delay_level(text.encode())
        levels = self._rules.delay_levels_ms
        return levels[min(level, len(levels)) - 1] if level > 0 else -1


def _looked_up(values: pa.StringArray, number_of: Callable[[str], int]) -> NDArray[np.int64]:
    """Return a number for each value, looked up once per distinct value; null counts as empty."""
    encoded = values.fill_null("").dictionary_encode()
    numbers = np.array([number_of(value) for value in encoded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = numbers[np.asarray(encoded.indices)]
    return found
