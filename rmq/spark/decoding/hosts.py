"""Addresses of many records as text, and their offset message ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rmq.model.record import unpack_host
from rmq.model.record_layout import HOST_V4_BYTES
from rmq.remoting.addresses import format_address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmq.spark.decoding.heads import Heads

KNOWN_HOSTS_MAX: Final = 65_536

_HEX_PAIRS: Final = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)
"""The two digits of every byte."""


class HostNames:
    """Turns packed hosts into text; those seen before it remembers."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def column(self, heads: Heads, name: str) -> pa.StringArray:
        """Return a host of all records as `host:port`."""
        parts = []
        for group in heads.groups:
            field = np.ascontiguousarray(group.heads[name])
            width = field.dtype.itemsize
            # Packed as eight bytes, hosts are compared as integers.
            kind = pa.int64() if width == HOST_V4_BYTES else pa.binary(width)
            packed = pa.Array.from_buffers(kind, len(field), [None, pa.py_buffer(field)])
            encoded = packed.dictionary_encode()
            hosts = memoryview(encoded.dictionary.buffers()[1]).cast("B")
            names = [
                self._name(bytes(hosts[width * index : width * (index + 1)]))
                for index in range(len(encoded.dictionary))
            ]
            parts.append(pa.array(names, pa.string()).take(encoded.indices))
        return in_rows(heads, parts)

    def _name(self, host: bytes) -> str:
        name = self._known.get(host)
        if name is None:
            if len(self._known) >= KNOWN_HOSTS_MAX:
                self._known.clear()
            name = self._known[host] = format_address(unpack_host(host))
        return name


def offset_message_ids(heads: Heads) -> pa.StringArray:
    """Return the offset message id of all records, see `rmq.model.record.message_id`."""
    parts = []
    for group in heads.groups:
        count = len(group.heads)
        host, offset = group.heads["store_host"], group.heads["physical_offset"]
        packed = np.empty((count, host.dtype.itemsize + offset.dtype.itemsize), np.uint8)
        packed[:, : host.dtype.itemsize] = _bytes_of(host)
        packed[:, host.dtype.itemsize :] = _bytes_of(offset)
        digits = _HEX_PAIRS[packed]
        ends = np.arange(count + 1, dtype=np.int32) * np.int32(2 * packed.shape[1])
        parts.append(
            pa.Array.from_buffers(
                pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(digits)], null_count=0
            )
        )
    return in_rows(heads, parts)


def in_rows(heads: Heads, parts: list[pa.Array]) -> pa.Array:
    """Return what was made group by group in the order of the records."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([np.asarray(group.rows) for group in heads.groups])
    places = np.empty(len(rows), np.int64)
    places[rows] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(places))


def _bytes_of(field: NDArray[np.void]) -> NDArray[np.uint8]:
    flat = np.ascontiguousarray(field).view(np.uint8)
    return flat.reshape(len(field), field.dtype.itemsize)
