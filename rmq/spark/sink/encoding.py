"""Arrow batches to batches of messages that are ready to be sent. Pure.

The messages of one Arrow batch are encoded together: heads by numpy, then all parts of all messages
put behind each other by one call of Arrow. A batch on the wire (`rmq.remoting.bodies.batch`) is a
stretch of that. Rows are sorted by topic, and by queue where they have a sharding key; within a
topic and queue they keep their order.

Delayed messages and those of retry topics cannot go in a batch, and what is larger than a batch may
be does not: these are sent one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.client.core.messages import DELAY_LEVEL_MAX
from rmq.client.core.producing.outbound import OutboundMessage, compressed
from rmq.errors import IllegalMessageError
from rmq.model.names import RETRY_PREFIX
from rmq.model.properties import NAME_VALUE, PAIR, UNIQ_KEY, WAIT
from rmq.model.record import PROPERTIES_BYTES_MAX
from rmq.packing import fixed_prefix_of
from rmq.remoting.codes import RequestCode
from rmq.remoting.layout import BatchEntry
from rmq.spark import schema
from rmq.spark.decoding.fixed import dtype_of
from rmq.spark.sink.arrays import as_binary, binary_over, lengths_of, starts_of
from rmq.spark.sink.columns import DELAY_LEVEL, SHARDING_KEY
from rmq.spark.sink.grouping import Groups
from rmq.spark.sink.identity import ID_CHARS, SPARK_KEY
from rmq.spark.sink.properties import (
    RowError,
    check_rows,
    delay_pairs,
    key_pairs,
    own_pairs,
    tag_pairs,
)
from rmq.spark.sink.settings import check_sendable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rmq.model.queues import MessageQueue
    from rmq.spark.sink.columns import ChosenColumn
    from rmq.spark.sink.grouping import Run
    from rmq.spark.sink.identity import RowIdentity

PART_BYTES: Final = 32 * 1024**2
"""Bodies up to this many bytes are encoded together, so that long ones do not fill memory."""
PROPERTIES_BYTES: Final = PROPERTIES_BYTES_MAX - 512
"""What the properties of a row may take. A stored record has room for `PROPERTIES_BYTES_MAX`, and
brokers add WAIT (10 bytes), CLUSTER (9 and its name) and, if the message is delayed, REAL_TOPIC (12
and its name) and REAL_QID. They refuse the whole batch if one message of it grows too large."""
COMPRESS_ABOVE: Final = 4096
COMPRESS_LEVEL: Final = 5
"""As producers have it: for messages that are sent alone."""

_prefix: Final = fixed_prefix_of(BatchEntry)
_HEAD: Final = dtype_of(_prefix, [field.name or "" for field in BatchEntry.subcons[:5]])
_PROPERTIES_LENGTH: Final = np.dtype(">i2")
_FIXED_BYTES: Final = _HEAD.itemsize + _PROPERTIES_LENGTH.itemsize
_WAIT_PROPERTY: Final = f"{WAIT}\x01true"
"""Stored with every message of a batch by brokers, so that the messages need not have it."""
_ID_START: Final = UNIQ_KEY.encode() + NAME_VALUE


class Limits(NamedTuple):
    """How large things may be."""

    batch_bytes: int
    batch_messages: int
    message_bytes: int


class Outgoing(NamedTuple):
    """A batch, or a message that goes alone, with the rows that are in it."""

    outbound: OutboundMessage
    rows: int
    first_row: int
    queue: MessageQueue | None
    """Where it has to go, if that matters."""


@final
class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        columns: Mapping[str, ChosenColumn],
        identity: RowIdentity,
        limits: Limits,
        *,
        topic: str | None,
        spark_key_in_keys: bool,
        queues_of: Callable[[str], Sequence[MessageQueue]],
    ) -> None:
        """`topic` counts for all rows; None: each names its own.

        `queues_of` returns the queues that rows with a sharding key are dealt out to. It must
        return the same ones for as long as order matters.
        """
        self._columns = columns
        self._identity = identity
        self._limits = limits
        self._topic = topic
        self._spark_key_in_keys = spark_key_in_keys
        self._queues_of = queues_of
        self._next_row = 0
        # What is the same in all rows: the length and the id are filled in.
        text = PAIR + SPARK_KEY.encode() + NAME_VALUE + identity.prefix.encode()
        template = bytes(_PROPERTIES_LENGTH.itemsize) + _ID_START + bytes(ID_CHARS) + text
        self._template = np.frombuffer(template, np.uint8)

    def encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """Yield all rows of a batch, in as few messages on the wire as the limits allow.

        Raises `IllegalMessageError`, which names the row, for a row that no broker would take.
        """
        bodies = as_binary(batch.column(self._columns[schema.BODY].place))
        start = 0
        ends = starts_of(bodies)
        while start < len(batch):
            stop = int(np.searchsorted(ends, int(ends[start]) + PART_BYTES, "right")) - 1
            stop = min(max(stop, start + 1), len(batch))
            part = batch if stop - start == len(batch) else batch.slice(start, stop - start)
            try:
                yield from self._encode(part)
            except RowError as exc:
                row = self._next_row + exc.index
                raise IllegalMessageError(
                    f"row {row} of the task, {SPARK_KEY} {self._identity.key(row)}: {exc.reason}"
                ) from None
            self._next_row += stop - start
            start = stop

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        chosen = self._columns.get(name)
        return None if chosen is None else batch.column(chosen.place)

    # --- one part ----------------------------------------------------------------------------

    def _encode(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        groups = Groups(
            self._topics(batch),
            self._column(batch, SHARDING_KEY),
            self._queues_of,
            len(batch),
        )
        rows = np.arange(self._next_row, self._next_row + len(batch))
        order = groups.order
        if order is not None:
            batch, rows = batch.take(pa.array(order)), rows[order]
        try:
            messages = self._messages(batch, rows)
        except RowError as exc:
            index = exc.index if order is None else int(order[exc.index])
            raise RowError(index, exc.reason) from None
        for run in groups.runs():
            yield from self._cut(messages, run)

    def _topics(self, batch: pa.RecordBatch) -> pa.DictionaryArray | str:
        if self._topic is not None:
            return self._topic
        topics = self._column(batch, schema.TOPIC)
        assert topics is not None, "the schema was checked"
        check_rows(
            topics.is_null().to_numpy(zero_copy_only=False),
            "it has no topic: the column topic is null, and the option topic is not set",
        )
        encoded = topics.dictionary_encode()
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            try:
                check_sendable(topic)
            except IllegalMessageError as exc:
                check_rows(encoded.indices.to_numpy() == number, exc.reason)
        return encoded

    def _messages(self, batch: pa.RecordBatch, rows: NDArray[np.int64]) -> _Messages:
        """Encode rows in the order they have by now."""
        body = as_binary(self._column(batch, schema.BODY))
        body_bytes = lengths_of(body)
        limit = self._limits.message_bytes
        check_rows(body_bytes == 0, "the body is null or empty, which brokers refuse")
        check_rows(body_bytes > limit, f"the body is larger than messageBytesMax, {limit} bytes")
        flags = _numbers(self._column(batch, schema.FLAG), len(batch))
        delays = _numbers(self._column(batch, DELAY_LEVEL), len(batch))
        check_rows(
            (delays < 0) | (delays > DELAY_LEVEL_MAX),
            f"the delay level is not 0 to {DELAY_LEVEL_MAX}",
        )

        numbers = pa.array(rows).cast(pa.string()).cast(pa.binary())
        pairs = [numbers, *self._pairs(batch, numbers, delays)]
        fixed = np.empty((len(batch), len(self._template)), np.uint8)
        fixed[:] = self._template
        properties_bytes = np.sum([lengths_of(pair) for pair in pairs], axis=0) + (
            len(self._template) - _PROPERTIES_LENGTH.itemsize
        )
        check_rows(
            properties_bytes > PROPERTIES_BYTES,
            f"the properties take more than {PROPERTIES_BYTES} bytes; tags, keys and {SPARK_KEY}"
            " count as properties",
        )
        ids = self._identity.ids(rows)
        id_start = _PROPERTIES_LENGTH.itemsize + len(_ID_START)
        fixed[:, id_start : id_start + ID_CHARS] = ids
        fixed[:, : _PROPERTIES_LENGTH.itemsize] = _as_bytes(
            properties_bytes.astype(_PROPERTIES_LENGTH)
        )
        heads = np.zeros(len(batch), _HEAD)
        heads["total_size"] = _FIXED_BYTES + body_bytes + properties_bytes
        heads["flag"] = flags
        heads["body_length"] = body_bytes
        parts = [binary_over(_as_bytes(heads)), body, binary_over(fixed), *pairs]
        joined = pc.binary_join_element_wise(*parts, b"", null_handling="skip")
        return _Messages(joined, starts_of(joined), body_bytes, delays, flags, rows, ids)

    def _pairs(
        self, batch: pa.RecordBatch, numbers: pa.BinaryArray, delays: NDArray[np.int32]
    ) -> Iterator[pa.BinaryArray]:
        """Yield what rows have of properties beside those that all rows have."""
        tags = self._column(batch, schema.TAGS)
        if tags is not None:
            yield tag_pairs(tags)
        spark_keys = None
        if self._spark_key_in_keys:
            prefix = self._identity.prefix.encode()
            spark_keys = pc.binary_join_element_wise(prefix, numbers, b"")
        keys = key_pairs(self._column(batch, schema.KEYS), spark_keys)
        if keys is not None:
            yield keys
        properties = self._column(batch, schema.PROPERTIES)
        if properties is not None:
            yield own_pairs(properties)
        if delays.any():
            yield delay_pairs(delays)

    # --- what goes on the wire ---------------------------------------------------------------

    def _cut(self, messages: _Messages, run: Run) -> Iterator[Outgoing]:
        """Yield the messages of one topic and queue."""
        batch_bytes, batch_messages, _ = self._limits
        starts = messages.starts
        if run.topic.startswith(RETRY_PREFIX):
            alone = np.arange(run.start, run.stop)
        else:
            sizes = np.diff(starts[run.start : run.stop + 1])
            is_alone = (messages.delays[run.start : run.stop] > 0) | (sizes > batch_bytes)
            alone = np.flatnonzero(is_alone) + run.start
        row = run.start
        for stop in [*alone.tolist(), run.stop]:
            while row < stop:
                fitting = np.searchsorted(starts, int(starts[row]) + batch_bytes, "right") - 1
                end = min(int(fitting), row + batch_messages, stop)
                yield messages.batch(row, end, run)
                row = end
            if stop < run.stop:
                yield messages.single(stop, run)
                row = stop + 1


class _Messages(NamedTuple):
    """Rows as entries of a batch, and what is needed to send them otherwise."""

    entries: pa.BinaryArray
    starts: NDArray[np.int32]
    """Where each entry begins."""
    body_bytes: NDArray[np.int64]
    delays: NDArray[np.int32]
    flags: NDArray[np.int32]
    rows: NDArray[np.int64]
    ids: NDArray[np.uint8]

    def batch(self, start: int, stop: int, run: Run) -> Outgoing:
        outbound = OutboundMessage(
            topic=run.topic,
            message_id=self._id(start),
            properties=_WAIT_PROPERTY,
            body=self._bytes(int(self.starts[start]), int(self.starts[stop])),
            code=RequestCode.SEND_BATCH_MESSAGE,
            is_batch=True,
        )
        return Outgoing(outbound, stop - start, int(self.rows[start]), run.queue)

    def single(self, row: int, run: Run) -> Outgoing:
        body_start = int(self.starts[row]) + _HEAD.itemsize
        body_end = body_start + int(self.body_bytes[row])
        properties_start = body_end + _PROPERTIES_LENGTH.itemsize
        body, sys_flag = self._bytes(body_start, body_end), 0
        if len(body) >= COMPRESS_ABOVE:
            body, sys_flag = compressed(body, COMPRESS_LEVEL)
        properties = self._bytes(properties_start, int(self.starts[row + 1]))
        outbound = OutboundMessage(
            topic=run.topic,
            message_id=self._id(row),
            properties=f"{properties.decode('utf-8', 'replace')}\x02{_WAIT_PROPERTY}",
            body=body,
            sys_flag=sys_flag,
            flag=int(self.flags[row]),
        )
        return Outgoing(outbound, 1, int(self.rows[row]), run.queue)

    def _bytes(self, start: int, stop: int) -> bytes:
        whole: bytes = self.entries.buffers()[2].slice(start, stop - start).to_pybytes()
        return whole

    def _id(self, row: int) -> str:
        return bytes(self.ids[row]).decode()


def _numbers(values: pa.Array | None, count: int) -> NDArray[np.int32]:
    """Return numbers, 0 where there is none."""
    if values is None:
        return np.zeros(count, np.int32)
    found: NDArray[np.int32] = values.fill_null(0).to_numpy()
    return found


def _as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    return values.view(np.uint8).reshape(len(values), values.dtype.itemsize)
