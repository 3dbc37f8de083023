"""The fixed fields of many records, and where their contents are.

`Heads` gathers the fixed parts of all records into one array, whose columns are the fields. An IPv6
host makes the fixed part longer, which the sysFlag says; records are grouped by these two bits, and
nearly always there is one group only.

Every length of every record is checked, by the rules of `rmq.model.record.read_head`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmq.model.record import TOPIC_BYTES_MAX, BadRecordError, read_head
from rmq.model.record_layout import (
    HOST_FLAGS,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    RECORD_BYTES_MIN,
    RECORD_HEAD_V4,
    RECORD_HEADS,
    Record,
)
from rmq.spark.decoding.fixed import dtype_of, structures_at
from rmq.spark.decoding.spans import binary_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

_NAMES: Final = [str(field.name) for field in Record.subcons]
HEAD_DTYPES: Final = {
    bits: dtype_of(head, _NAMES[: _NAMES.index("body")]) for bits, head in RECORD_HEADS.items()
}
"""The fixed part of a record, by the two address bits of its sysFlag."""

_PROPERTIES_LENGTH: Final = dtype_of(PROPERTIES_LENGTH, ["properties_length"])
_TOPIC_LENGTH_BYTES: Final = 1


class UnsoundRecordError(BadRecordError):
    """One of many records is not sound, or its body cannot be read; the text says which and why."""

    def __init__(self, index: int, physical_offset: int, reason: str) -> None:
        super().__init__(f"record {index}, physical offset {physical_offset}: {reason}")
        self.index = index
        self.physical_offset = physical_offset
        self.reason = reason


class HostGroup:
    """Records whose hosts have the same lengths."""

    def __init__(self, rows: NDArray[np.int64] | slice, heads: NDArray[Any]) -> None:
        self.rows = rows
        """Which of the records these are."""
        self.heads = heads


class Heads:
    """The fixed parts of records, checked; and where body, topic and properties of each are."""

    def __init__(self, data: bytes, starts: NDArray[np.int64]) -> None:
        """Read the records that begin at `starts` of `data`, in rising order.

        Raises `UnsoundRecordError` for the first that is not sound. CRCs are not checked.
        """
        self.data = data
        self.starts = starts
        if len(starts) and (starts[0] < 0 or starts[-1] + RECORD_HEAD_V4.size > len(data)):
            raise ValueError("a record does not begin within the bytes")
        heads = structures_at(data, starts, HEAD_DTYPES[0])
        self.sizes = heads["total_size"].astype(np.int64)
        self.sys_flags = heads["sys_flag"].astype(np.int32)
        self.ends = starts + self.sizes
        is_bad = heads["magic"] != MESSAGE_MAGIC
        is_bad |= self.sizes < RECORD_BYTES_MIN
        is_bad |= self.ends > len(data)
        is_bad[:-1] |= self.ends[:-1] > starts[1:]
        self._refuse(is_bad)
        self.groups = [*self._groups(heads)]
        self._place()

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, rows: slice | NDArray[np.int64]) -> Heads:
        """Return the heads of some of the records, in rising order."""
        return Heads(self.data, self.starts[rows])

    def integers(self, name: str) -> NDArray[Any]:
        """Return an integer field of all records, in the byte order of the machine."""
        first = self.groups[0].heads[name]
        found = np.empty(len(self), first.dtype.newbyteorder("="))
        for group in self.groups:
            found[group.rows] = group.heads[name]
        return found

    @cached_property
    def topics(self) -> pa.DictionaryArray:
        """The topics of all records, as bytes; there are few different ones."""
        return binary_spans(self.data, self.topic_starts, self.topic_ends).dictionary_encode()

    def _groups(self, heads: NDArray[Any]) -> Iterator[HostGroup]:
        hosts = self.sys_flags & HOST_FLAGS
        if not hosts.any():
            yield HostGroup(slice(None), heads)
            return
        for bits, dtype in HEAD_DTYPES.items():
            rows = np.flatnonzero(hosts == bits)
            if len(rows):
                starts = self.starts[rows]
                is_bad = np.zeros(len(self), np.bool_)
                is_bad[rows] = starts + dtype.itemsize > self.ends[rows]
                self._refuse(is_bad)
                yield HostGroup(rows, structures_at(self.data, starts, dtype))

    def _place(self) -> None:
        """Find out where the contents are, and whether they fill the records."""
        content = np.frombuffer(self.data, np.uint8)
        self.body_starts = np.empty(len(self), np.int64)
        for group in self.groups:
            self.body_starts[group.rows] = self.starts[group.rows] + group.heads.dtype.itemsize
        lengths = self.integers("body_length").astype(np.int64)
        self.body_ends = self.body_starts + lengths
        behind_body = self.body_ends + _TOPIC_LENGTH_BYTES + PROPERTIES_LENGTH.size
        self._refuse((lengths < 0) | (behind_body > self.ends))
        self.topic_starts = self.body_ends + _TOPIC_LENGTH_BYTES
        topic_lengths = content[self.body_ends]
        self.topic_ends = self.topic_starts + topic_lengths
        self.properties_starts = self.topic_ends + PROPERTIES_LENGTH.size
        self._refuse((topic_lengths > TOPIC_BYTES_MAX) | (self.properties_starts > self.ends))
        found = structures_at(self.data, self.topic_ends, _PROPERTIES_LENGTH)
        self._refuse(self.properties_starts + found["properties_length"] != self.ends)

    def _refuse(self, is_bad: NDArray[np.bool_]) -> None:
        """Raise an error for the first unsound record, if there is one among those marked."""
        if not is_bad.any():
            return
        # One before it may have passed the checks so far, and not those to come.
        stop = int(np.argmax(is_bad))
        for index in range(stop + 1):
            start = int(self.starts[index])
            try:
                head = read_head(
                    self.data, start, len(self.data), len(self.data) - start, verify_crc=False
                )
            except BadRecordError as bad:
                raise self.unsound(index, str(bad)) from None
            if head.size == 0:
                raise self.unsound(index, "it is a blank")
        raise self.unsound(stop, "the next record begins inside of it")

    def unsound(self, index: int, reason: str) -> UnsoundRecordError:
        """Return the error for a record."""
        head = structures_at(self.data, self.starts[index : index + 1], HEAD_DTYPES[0])
        return UnsoundRecordError(index, int(head["physical_offset"][0]), reason)
