"""Arrow's binary arrays as numpy sees them, and the way back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_binary(values: pa.Array) -> pa.BinaryArray:
    """Return text or bytes as bytes with offsets of 32 bits."""
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def starts_of(values: pa.BinaryArray) -> NDArray[np.int32]:
    """Return where each value begins in the buffer of all of them, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int32)
    ends = np.frombuffer(values.buffers()[1], np.int32)
    return ends[values.offset : values.offset + len(values) + 1]


def lengths_of(values: pa.BinaryArray) -> NDArray[np.int64]:
    """Return how many bytes each value has; none where it is null."""
    lengths = np.diff(starts_of(values)).astype(np.int64)
    if values.null_count:
        lengths[pc.is_null(values).to_numpy(zero_copy_only=False)] = 0
    return lengths


def values_of(values: pa.BinaryArray) -> NDArray[np.uint8]:
    """Return the buffer of all values, which `starts_of` counts in."""
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def binary_over(lines: NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the lines of a table of bytes as values."""
    count, width = lines.shape
    return binary_cut(
        lines, np.arange(0, (count + 1) * width, max(width, 1), dtype=np.int32)[: count + 1]
    )


def binary_cut(values: NDArray[np.uint8] | pa.Buffer, starts: NDArray[np.int32]) -> pa.BinaryArray:
    """Return values that lie end to end in a buffer."""
    return pa.Array.from_buffers(
        pa.binary(),
        len(starts) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(starts, np.int32)), pa.py_buffer(values)],
        null_count=0,
    )
