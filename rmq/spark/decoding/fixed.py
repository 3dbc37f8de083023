"""Structures of fixed size, read at many places of a buffer at once.

Their numpy types are derived from the same declarations as everything else that reads them, see
`rmq.store.layout` and `rmq.packing`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import struct
    from collections.abc import Sequence

    from numpy.typing import NDArray

_FIELD: Final = re.compile(r"(\d*)([bBhHiIlLqQs])")
_NUMPY_KINDS: Final = {
    "b": "i1",
    "B": "u1",
    "h": ">i2",
    "H": ">u2",
    "i": ">i4",
    "I": ">u4",
    "l": ">i4",
    "L": ">u4",
    "q": ">i8",
    "Q": ">u8",
}
"""What the codes of `struct` mean in its standard mode, big-endian."""


def dtype_of(layout: struct.Struct, names: Sequence[str]) -> np.dtype[Any]:
    """Return the numpy type of a big-endian layout whose fields have these names."""
    order, formats = layout.format[0], layout.format[1:]
    fields = _FIELD.findall(formats)
    if order != ">" or "".join(count + code for count, code in fields) != formats:
        raise TypeError(f"{layout.format} is not a big-endian layout of integers and bytes")
    # A void keeps the zeros at its end, which numpy's own type for bytes drops.
    kinds = [f"V{count or 1}" if code == "s" else _NUMPY_KINDS[code] for count, code in fields]
    dtype = np.dtype(list(zip(names, kinds, strict=True)))
    if dtype.itemsize != layout.size:
        raise TypeError(f"{layout.format} has {layout.size} bytes, not {dtype.itemsize}")
    return dtype


def structures_at(data: bytes, places: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the structures at some places of `data`, each of which must lie wholly within it."""
    if len(places) == 0:
        return np.empty(0, dtype)
    size = dtype.itemsize
    # Overlapping windows, one at each byte, of which only those at the places are ever read.
    windows = np.ndarray(len(data) - size + 1, f"V{size}", data, strides=(1,))
    found: NDArray[Any] = windows[places].view(dtype)
    return found
