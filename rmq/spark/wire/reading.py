"""What a task does: it reads its part of a queue and turns it into batches of Arrow.

Pulls bring few messages each, and decoding few at a time is slow; so what pulls bring is gathered
before it is decoded. How much memory that takes does not depend on how much is read.

Without a filter every offset of the range must come, once and in order. That is checked for every
batch, because a loss would go unnoticed otherwise. A broker that is gone is waited for, or its
slave is read (`rmq.client.blocking.ranges`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq.errors import (
    NoNameserverError,
    NoRouteError,
    OffsetOutOfRangeError,
    ResponseError,
    RmqError,
)
from rmq.model.properties import TAGS
from rmq.model.record import BadRecordError
from rmq.model.record_layout import MESSAGE_MAGIC_BYTES
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import build_subscription
from rmq.spark.decoding.boundaries import chained
from rmq.spark.decoding.heads import Heads
from rmq.spark.decoding.properties import Properties
from rmq.spark.decoding.records import RecordDecoder
from rmq.spark.wire.clients import PAUSE_S, borrowed_consumer
from rmq.spark.wire.data_loss import DataLossError, Loss
from rmq.spark.wire.positions import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rmq.client.blocking import BlockingConsumer
    from rmq.client.blocking.ranges import RawPull
    from rmq.spark.wire.planning import Range
    from rmq.spark.wire.settings import SourceOptions

logger = logging.getLogger(__name__)

GATHERED_BYTES_MAX: Final = 16 * 1024**2
"""Bytes that are decoded at once, or as many records as a batch has rows."""
_REMOVED: Final = "MESSAGE_WAS_REMOVING"
"""What a broker remarks that has the entries of a queue and not the messages any more."""


class BadRangeError(RmqError):
    """A broker gave out, for a range of a queue, bytes that are no messages or other messages."""


def read_range(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a part of a queue, in the order of their offsets."""
    with borrowed_consumer(options.values) as consumer:
        yield from RangeBatches(consumer, options, part).batches()


@final
class RangeBatches:
    """Reads one range. Iterate over `batches` once."""

    def __init__(self, consumer: BlockingConsumer, options: SourceOptions, part: Range) -> None:
        values = options.values
        self._consumer = consumer
        self._part = part
        self._expression = options.tags
        tags = build_subscription(part.queue.topic, options.tags).tags_set
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        self._fails = options.fails_on_data_loss
        self._rows_max = values.integer("batchRows")
        self._decoder = RecordDecoder(
            options.columns,
            decompress=values.flag("decompress"),
            verify_crc=values.flag("verifyCrc"),
            broker_name=part.queue.broker_name,
        )
        self._next = part.start
        """Everything before this offset has been handed out, or is not wanted."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches; raise `DataLossError` and `ClientError`."""
        for data in self._gathered():
            for batch in self._decoded(data):
                for first in range(0, batch.num_rows, self._rows_max):
                    yield batch.slice(first, self._rows_max)
        if self._tags is None and self._next < self._part.end:
            self._lose(self._next, self._part.end, "the broker has left them out")

    # --- bytes -------------------------------------------------------------------------------

    def _gathered(self) -> Iterator[bytes]:
        """Yield the records of many pulls at a time."""
        parts: list[bytes] = []
        size = count = 0
        for pull in self._pulls():
            if not pull.body:
                if pull.remark == _REMOVED and self._tags is not None:
                    self._lose(pull.offset, pull.next_offset, "the broker has deleted them")
                continue
            parts.append(pull.body)
            size += len(pull.body)
            # With a filter, pulls skip messages; bodies that have the magic in them only make
            # the batch smaller.
            more = (
                pull.next_offset - pull.offset
                if self._tags is None
                else pull.body.count(MESSAGE_MAGIC_BYTES)
            )
            count += more
            if size >= GATHERED_BYTES_MAX or count + more > self._rows_max:
                data = b"".join(parts)
                parts.clear()
                size = count = 0
                yield data
        if parts:
            yield b"".join(parts)

    def _pulls(self) -> Iterator[RawPull]:
        """Pull, over places where messages are missing if that is allowed."""
        queue, start, end = self._part
        self._wait_for_route()
        while start < end:
            try:
                for pull in self._consumer.read_raw(queue, start, end, self._expression):
                    start = pull.next_offset
                    yield pull
            except OffsetOutOfRangeError as exc:
                if exc.asked < exc.first:
                    stop = min(exc.first, end)
                    why = f"it begins at {exc.first}: the broker has deleted them (retention)"
                else:
                    stop = end
                    why = (
                        f"it ends at {exc.last}: they were lost after a failover to a slave that"
                        " had not got them, or the topic was created again"
                    )
                self._lose(start, stop, why)
                start = stop
            except ResponseError as exc:
                if exc.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                self._lose(start, end, f"the topic was deleted while it was read ({exc.peer})")
                return

    def _wait_for_route(self) -> None:
        client = self._consumer.client
        for attempt in range(self._consumer.config.pull_retries, -1, -1):
            try:
                client.route(self._part.queue.topic)
            except (NoRouteError, NoNameserverError):
                if not attempt:
                    raise
                client.connections.sleep(PAUSE_S)
            else:
                return

    # --- records -----------------------------------------------------------------------------

    def _decoded(self, data: bytes) -> Iterator[pa.RecordBatch]:
        try:
            heads = Heads(data, chained(data))
            yield from self._decoder.batches_of(self._wanted(heads))
        except BadRecordError as exc:
            raise BadRangeError(
                f"{name_of(self._part.queue)}, from offset {self._next} on: {exc}; the broker's"
                " store may be damaged: `rmq store verify` tells, and its slave may be sound"
            ) from exc

    def _wanted(self, heads: Heads) -> Heads:
        """Return those of the records that are to be handed out, having checked them all."""
        offsets = heads.integers("queue_offset")
        if self._tags is None:
            self._check_dense(offsets)
            is_wanted = offsets < self._part.end
        else:
            if (np.diff(offsets) <= 0).any():
                raise self._disorder(offsets)
            tags = Properties(heads).values_of(TAGS)
            is_tagged = pc.is_in(tags, value_set=self._tags).to_numpy(zero_copy_only=False)
            is_wanted = is_tagged & (offsets < self._part.end)
        return heads if is_wanted.all() else heads.part(np.flatnonzero(is_wanted))

    def _check_dense(self, offsets: NDArray[np.int64]) -> None:
        """See that nothing is missing before, between or behind these offsets."""
        expected = np.arange(self._next, self._next + len(offsets))
        if (offsets == expected).all():
            self._next += len(offsets)
            return
        previous = np.concatenate(([self._next - 1], offsets[:-1]))
        if (offsets <= previous).any():
            raise self._disorder(offsets)
        for index in np.flatnonzero(offsets != previous + 1):
            self._lose(int(previous[index]) + 1, int(offsets[index]), "the broker left them out")
        self._next = int(offsets[-1]) + 1

    def _disorder(self, offsets: NDArray[np.int64]) -> BadRangeError:
        return BadRangeError(
            f"{name_of(self._part.queue)}: messages were asked for from offset {self._next} on, and"
            f" those that came are not in order ({offsets[0]} to {offsets[-1]})"
        )

    def _lose(self, start: int, stop: int, why: str) -> None:
        """Take notice of offsets that are not there; raise `DataLossError` unless that is fine."""
        loss = Loss(self._part.queue, f"offsets {start} to {stop} are missing: {why}")
        if self._fails:
            raise DataLossError([loss])
        logger.warning("skipped: %s", loss)
