"""Stored records to batches of the chosen columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.model import properties as names
from rmq.spark import schema
from rmq.spark.decoding.bodies import (
    PLAIN_BATCH_BYTES,
    BodiesTooLongError,
    plain_bodies,
    stored_bodies,
)
from rmq.spark.decoding.heads import Heads
from rmq.spark.decoding.hosts import HostNames, offset_message_ids
from rmq.spark.decoding.properties import Properties
from rmq.spark.decoding.spans import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_US_PER_MS: Final = 1000
_FIRST_MS: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1000
_LAST_MS: Final = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000 + 999
"""What a timestamp of Spark can be; the fields of a record can be anything."""


_INTEGERS: Final = {
    schema.QUEUE_ID: "queue_id",
    schema.QUEUE_OFFSET: "queue_offset",
    schema.COMMIT_LOG_OFFSET: "physical_offset",
    schema.STORE_SIZE: "total_size",
    schema.SYS_FLAG: "sys_flag",
    schema.FLAG: "flag",
    schema.BODY_CRC: "body_crc",
    schema.RECONSUME_TIMES: "reconsume_times",
    schema.PREPARED_TRANSACTION_OFFSET: "prepared_offset",
}
_TIMES: Final = {schema.STORE_TIMESTAMP: "store_ms", schema.BORN_TIMESTAMP: "born_ms"}
_HOSTS: Final = {schema.BORN_HOST: "born_host", schema.STORE_HOST: "store_host"}
_PROPERTIES: Final = {schema.TAGS: names.TAGS, schema.KEYS: names.KEYS}
"""Columns that are a field of the record, or a property."""


class RecordDecoder:
    """Turns records into batches of some columns. Columns that are not wanted cost nothing."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        decompress: bool,
        verify_crc: bool,
        broker_name: str | None,
        plain_bytes_max: int = PLAIN_BATCH_BYTES,
    ) -> None:
        """`columns` are names of `rmq.spark.schema`; CRCs are checked if the body is one of them.

        With `decompress` compressed bodies are given as they were sent, up to `plain_bytes_max` of
        them in one batch. `broker_name` is the value of that column, which records do not have.
        """
        self.schema = schema.arrow_schema(columns)
        self._decompress = decompress
        self._plain_bytes_max = plain_bytes_max
        self._verify_crc = verify_crc
        self._broker_name = pa.scalar(broker_name, pa.string())
        self._host_names = HostNames()

    def decode(self, data: bytes, starts: NDArray[np.int64]) -> pa.RecordBatch:
        """Return one batch of the records that begin at `starts` of `data`, in rising order.

        Raises `UnsoundRecordError`, a `BadRecordError`, for the first record that is not sound or
        whose body cannot be decompressed, and `BodiesTooLongError` if decompressed bodies are too
        long for one batch: `batches` makes several then.
        """
        return self.batch(Heads(data, starts))

    def batches(self, data: bytes, starts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield the same records, in several batches if decompressed bodies are long."""
        return self.batches_of(Heads(data, starts))

    def batches_of(self, heads: Heads) -> Iterator[pa.RecordBatch]:
        """Yield batches of records whose heads were read before."""
        first = 0
        stop = len(heads)
        while first < len(heads):
            part = heads if stop - first == len(heads) else heads.part(slice(first, stop))
            try:
                batch = self.batch(part)
            except BodiesTooLongError as exc:
                stop = first + exc.index
                continue
            yield batch
            first, stop = stop, len(heads)

    def batch(self, heads: Heads) -> pa.RecordBatch:
        """Return one batch of records whose heads were read before; see `decode`."""
        if len(heads) == 0:
            return pa.RecordBatch.from_pylist([], self.schema)
        needed = _PROPERTIES.keys() | {schema.MSG_ID, schema.PROPERTIES}
        properties = None
        if not needed.isdisjoint(self.schema.names):
            properties = Properties(heads)
        columns = [self._column(name, heads, properties) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, name: str, heads: Heads, properties: Properties | None) -> pa.Array:
        if name in _INTEGERS:
            return _over(heads.integers(_INTEGERS[name]), schema.COLUMNS[name].arrow_type)
        if name in _TIMES:
            return timestamps(heads.integers(_TIMES[name]))
        if name in _HOSTS:
            return self._host_names.column(heads, _HOSTS[name])
        if name == schema.TOPIC:
            return as_text(heads.topics.dictionary).take(heads.topics.indices)
        if name == schema.BODY:
            bodies = stored_bodies(heads, verify_crc=self._verify_crc)
            if not self._decompress:
                return bodies
            return plain_bodies(heads, bodies, self._plain_bytes_max)
        if name == schema.BROKER_NAME:
            return pa.repeat(self._broker_name, len(heads))
        assert properties is not None, name
        if name in _PROPERTIES:
            return properties.values_of(_PROPERTIES[name])
        return properties.maps() if name == schema.PROPERTIES else message_ids(heads, properties)


def message_ids(heads: Heads, properties: Properties) -> pa.StringArray:
    """Return what producers named the messages, or where they are stored if they did not."""
    unique_keys = properties.values_of(names.UNIQ_KEY)
    if unique_keys.null_count == 0:
        return unique_keys
    return pc.coalesce(unique_keys, offset_message_ids(heads))


def timestamps(values_ms: NDArray[np.int64]) -> pa.TimestampArray:
    """Return times, null where the calendar of Spark has none."""
    is_outside = (values_ms < _FIRST_MS) | (values_ms > _LAST_MS)
    arrow_type = schema.COLUMNS[schema.STORE_TIMESTAMP].arrow_type
    if not is_outside.any():
        return _over(values_ms * _US_PER_MS, arrow_type)
    values_us = np.where(is_outside, 0, values_ms) * _US_PER_MS
    return pa.array(values_us, mask=is_outside).view(arrow_type)


def _over(values: NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return an Arrow array over the memory of numpy's."""
    return pa.Array.from_buffers(
        arrow_type, len(values), [None, pa.py_buffer(values)], null_count=0
    )
