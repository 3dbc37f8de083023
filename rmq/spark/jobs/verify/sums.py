"""Fingerprints of many rows, by which what the log says is compared with what its queues say.

A fingerprint is the sum of the hashes of rows, modulo 2^64. It does not depend on their order, and
sums of parts add up, so each part can be made by another task. Equal counts and equal fingerprints
mean equal rows; the chance that they do not is 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.model.java import string_hash
from rmq.model.properties import KEY_SEPARATOR
from rmq.store.key_hash import TopicKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FINGERPRINT_MASK: Final = 2**64 - 1
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

QUEUE_SUMS: Final = np.dtype(
    [
        ("topic", "i4"),
        ("queue_id", "i4"),
        ("first", "i8"),
        ("last", "i8"),
        ("count", "i8"),
        ("fingerprint", "u8"),
        ("is_dense", "?"),
    ]
)
"""Sums over some records of a queue; `topic` is a place in a list of names."""


@dataclass(frozen=True, slots=True)
class RowSum:
    """How many rows there are, and their fingerprint."""

    count: int = 0
    fingerprint: int = 0

    def plus(self, other: RowSum) -> RowSum:
        """Return the sum of rows of two parts."""
        return RowSum(
            self.count + other.count, (self.fingerprint + other.fingerprint) & _FINGERPRINT_MASK
        )


def row_hashes(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """Return one hash per row of some columns of integers; the order of the columns matters."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes ^= column.astype(np.int64).view(np.uint64)
        hashes += _STEP
        # The finalizer of splitmix64, which makes every bit depend on all others.
        hashes ^= hashes >> _SHIFTS[0]
        hashes *= _FACTORS[0]
        hashes ^= hashes >> _SHIFTS[1]
        hashes *= _FACTORS[1]
        hashes ^= hashes >> _SHIFTS[2]
    return hashes


def row_sum(*columns: NDArray[Any]) -> RowSum:
    """Return the sum of rows."""
    return RowSum(len(columns[0]), int(np.add.reduce(row_hashes(*columns), dtype=np.uint64)))


def sums_by_queue(
    topics: NDArray[Any],
    queue_ids: NDArray[Any],
    queue_offsets: NDArray[Any],
    hashes: NDArray[np.uint64],
) -> NDArray[Any]:
    """Return one row of `QUEUE_SUMS` per queue, from records in the order of the log."""
    if len(topics) == 0:
        return np.empty(0, QUEUE_SUMS)
    order = np.lexsort((queue_ids, topics))  # which keeps the order of the log within a queue
    topics, queue_ids = topics[order], queue_ids[order]
    offsets, hashes = queue_offsets[order], hashes[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (topics[1:] != topics[:-1]) | (queue_ids[1:] != queue_ids[:-1])
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    follows = np.ones(len(order), np.bool_)
    follows[1:] = offsets[1:] == offsets[:-1] + 1
    sums = np.empty(len(starts), QUEUE_SUMS)
    sums["topic"], sums["queue_id"] = topics[starts], queue_ids[starts]
    sums["first"], sums["last"] = offsets[starts], offsets[ends - 1]
    sums["count"] = ends - starts
    sums["fingerprint"] = np.add.reduceat(hashes, starts)
    sums["is_dense"] = np.logical_and.reduceat(follows | is_first, starts)
    return sums


class QueueSum:
    """Sums over all records of one queue, part by part in the order of the log."""

    __slots__ = ("expected", "first", "is_dense", "rows")

    def __init__(self) -> None:
        self.first: int | None = None
        """The queue offset of the first record; None if there is none."""
        self.expected = 0
        """The queue offset behind the last record."""
        self.is_dense = True
        """Whether each record has the queue offset behind that of the one before it."""
        self.rows = RowSum()

    def add(self, first: int, last: int, count: int, fingerprint: int, *, is_dense: bool) -> None:
        """Add the next part."""
        if self.first is None:
            self.first = first
        else:
            self.is_dense &= first == self.expected
        self.is_dense &= is_dense
        self.expected = last + 1
        self.rows = self.rows.plus(RowSum(count, fingerprint))


# --- keys -------------------------------------------------------------------------------------

_WEIGHTS_MAX: Final = 32_768
"""More than a property can be long."""


def _weights() -> NDArray[np.uint32]:
    weights = np.full(_WEIGHTS_MAX, 31, np.uint32)
    weights[0] = 1
    return np.multiply.accumulate(weights, dtype=np.uint32)


_WEIGHTS: Final = _weights()


def index_keys(
    unique_keys: pa.StringArray, keys: pa.StringArray
) -> tuple[NDArray[np.int64], pa.StringArray]:
    """Return the keys of records that are indexed, and which record each belongs to."""
    rows = np.flatnonzero(np.asarray(unique_keys.is_valid()))
    owners = [rows]
    found = [unique_keys.take(pa.array(rows))]
    rows = np.flatnonzero(np.asarray(keys.is_valid()))
    if len(rows):
        words = pc.split_pattern(keys.take(pa.array(rows)), KEY_SEPARATOR)
        counts = np.asarray(words.value_lengths())
        flat = words.flatten()
        is_word = np.asarray(pc.binary_length(flat)) > 0
        owners.append(np.repeat(rows, counts)[is_word])
        found.append(flat.filter(pa.array(is_word)))
    return np.concatenate(owners).astype(np.int64), pa.concat_arrays(found)


def index_hashes(
    keys: pa.StringArray, topics: NDArray[Any], topic_names: Sequence[str]
) -> NDArray[np.int64]:
    """Return the hashes under which keys are indexed; see `rmq.store.key_hash.TopicKeys`.

    `topics` tells for each key which of the names its topic has.
    """
    if len(keys) == 0:
        return np.empty(0, np.int64)
    _, offset_buffer, content = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    text = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    lengths = ends - starts
    # Each unit counts 31 to the power of how many follow it in its key.
    units = text.astype(np.uint32)
    following = np.repeat(ends, lengths) - 1 - np.arange(len(text))
    # Only text that is not ASCII is longer than there are weights, and that has its turn below.
    units *= _WEIGHTS[np.minimum(following, _WEIGHTS_MAX - 1)]
    codes = np.add.reduceat(units, starts, dtype=np.uint32)
    seeds = np.array([string_hash(f"{name}#") & 0xFFFFFFFF for name in topic_names], np.uint32)
    codes += seeds[topics] * _WEIGHTS[np.minimum(lengths, _WEIGHTS_MAX - 1)]
    signed = codes.view(np.int32).astype(np.int64)
    hashes = np.abs(signed)
    hashes[hashes == 2**31] = 0  # the one that has no positive counterpart
    if len(text) and text.max() > 0x7F:
        is_plain = np.maximum.reduceat(text, starts) <= 0x7F
        for row in np.flatnonzero(~is_plain).tolist():
            name = topic_names[topics[row]]
            hashes[row] = TopicKeys(name).index_hash(keys[row].as_py().encode())
    return hashes
