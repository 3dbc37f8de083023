"""Many stretches of one buffer as one Arrow array, copied by Arrow in one call.

The buffer gets one Arrow array laid over it, whose elements are the stretches and what lies between
them: its offsets are (start 0, end 0, start 1, end 1, ...). Every second element is then taken.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from rmq.model.properties import decode_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

BUFFER_BYTES_MAX: Final = 2**31 - 1
"""Offsets of Arrow's arrays have 31 bits."""


def binary_spans(
    data: Any,  # noqa: ANN401 - whatever has the buffer protocol
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> pa.BinaryArray:
    """Return the bytes of `data` between some starts and ends, which follow each other."""
    buffer = pa.py_buffer(data)
    if buffer.size > BUFFER_BYTES_MAX:
        raise ValueError(f"{buffer.size} bytes at once; {BUFFER_BYTES_MAX} are the most")
    count = len(starts)
    # With one more, so that the element between the last stretch and nothing has an end.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if count else 0
    laid = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer], null_count=0
    )
    return laid.take(_even(count))


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as text; what is not UTF-8 reads as `decode_text` reads it."""
    text = utf8_text(values)
    if text is None:
        text = pa.array(
            [None if value is None else decode_text(value) for value in values.to_pylist()],
            pa.string(),
        )
    return text


def utf8_text(values: pa.BinaryArray) -> pa.StringArray | None:
    """Return bytes as text if all of them are UTF-8, which Arrow checks; None otherwise."""
    text = values.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return text


@lru_cache(maxsize=8)
def _even(count: int) -> pa.Int32Array:
    return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))
