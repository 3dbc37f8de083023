"""Queues of many sharding keys at once: the choice of
`rmq.client.core.producing.selection.by_hash`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rmq.model.java import string_hash
from rmq.spark.sink.arrays import lengths_of, starts_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_COLUMNS_MAX: Final = 64
"""Keys up to this many bytes are hashed together, a byte of each at a time."""


def java_hashes(keys: pa.BinaryArray) -> NDArray[np.int64]:
    """Return `String.hashCode` of many texts in UTF-8, none of which is null."""
    values = values_of(keys)
    starts, lengths = starts_of(keys), lengths_of(keys)
    hashes = np.zeros(len(keys), np.uint32)
    is_short = lengths <= _COLUMNS_MAX
    if not values.size or (is_short.all() and values.max() < 0x80):
        for column in range(int(lengths.max(initial=0))):
            rows = np.flatnonzero(lengths > column)
            hashes[rows] = hashes[rows] * np.uint32(31) + values[starts[rows] + column]
        return hashes.view(np.int32).astype(np.int64)
    # Long ones, and those beyond ASCII, which Java hashes by its own units.
    texts = [key.decode("utf-8", "replace") for key in keys.to_pylist()]
    return np.array([string_hash(text) for text in texts], np.int64)


def queue_numbers(keys: pa.BinaryArray, queues: int) -> NDArray[np.int64]:
    """Return which of `count` queues the rows of these keys go to; no key is null."""
    encoded = keys.dictionary_encode()
    numbers = np.abs(java_hashes(encoded.dictionary)) % queues
    indices: NDArray[np.int32] = encoded.indices.to_numpy()
    return numbers[indices]
