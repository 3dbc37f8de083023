"""What Spark calls to write a table: `df.write.format("rocketmq")` and `df.writeStream`.

Options and columns are checked where the write is planned, before anything is sent. Tasks then
encode their rows and send them, and report how many they have sent to each topic when all of these
are stored.

Only `append` can be done: a topic cannot be overwritten. Spark itself refuses a batch write that
does not say `.mode("append")`.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rmq.errors import ConfigError, RmqError
from rmq.spark.hints import hints_in_text
from rmq.spark.sink import pool
from rmq.spark.sink.columns import choose_columns
from rmq.spark.sink.encoding import Limits, RowEncoder
from rmq.spark.sink.identity import RowIdentity
from rmq.spark.sink.rate import TokenBucket, parallel_tasks
from rmq.spark.sink.sending import RowsNotSentError, Sender, SendLimits, stored_text
from rmq.spark.sink.settings import BATCH_OPTIONS, STREAM_OPTIONS, SinkSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rmq.model.queues import MessageQueue
    from rmq.settings.schema import Schema
    from rmq.spark.sink.columns import ChosenColumn

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_SPECULATION: Final = "spark.speculation"


@dataclass
class SentRows(WriterCommitMessage):
    """What a task reports: how many rows it has sent to each topic."""

    by_topic: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Sink:
    """All that a task has to know. It is pickled on its way there."""

    settings: SinkSettings
    columns: Mapping[str, ChosenColumn]

    def send_rows(
        self,
        batches: Iterator[pa.RecordBatch],
        identity: RowIdentity,
        setting: Callable[[str], str | None],
    ) -> SentRows:
        """Send all rows of a task; `setting` looks up a setting of Spark."""
        values = self.settings.values
        refuse_speculation(setting)
        client, config = self.settings.client(), self.settings.producer()
        batch_messages = values.integer("batchMessages")
        bucket = None
        per_second = values.integer("maxMessagesPerSecond")
        if per_second:
            tasks = parallel_tasks(values.integer("parallelTasks"), setting, os.cpu_count() or 1)
            bucket = TokenBucket(per_second / tasks, time.monotonic())
            batch_messages = max(1, min(batch_messages, per_second // tasks))
        producer = pool.take(client, config)
        try:
            sender = Sender(producer, self._send_limits(), bucket)
            encoder = RowEncoder(
                self.columns,
                identity,
                Limits(
                    values.integer("batchBytes"), batch_messages, values.integer("messageBytesMax")
                ),
                topic=self.settings.topic,
                spark_key_in_keys=values.flag("sparkKeyInKeys"),
                queues_of=_KeptQueues(sender),
            )
            _send_all(batches, encoder, sender)
        except BaseException:
            pool.drop(producer)
            raise
        pool.give_back(client, config, producer)
        return SentRows(dict(sender.confirmed))

    def _send_limits(self) -> SendLimits:
        values = self.settings.values
        return SendLimits(
            batches=values.integer("inFlightBatches"),
            batch_bytes=values.integer("inFlightBytes"),
            accepted=self.settings.accepted,
            retries=values.integer("sendRetries"),
            busy_timeout_s=values.integer("busyTimeoutMs") / 1000,
            broker_timeout_s=values.integer("brokerTimeoutMs") / 1000,
        )


class BatchWriter(DataSourceArrowWriter):
    """Writes a table once."""

    def __init__(self, sink: Sink, run_id: str) -> None:
        self._sink = sink
        self._run_id = run_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task."""
        task = _task()
        identity = RowIdentity(self._run_id, task.partitionId())
        with hints_in_text():
            return self._sink.send_rows(iterator, identity, task.getLocalProperty)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was sent, now that all tasks have."""
        logger.info("run %s: %s", self._run_id, sent_text(checked(messages)))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was sent, although the write has failed: it cannot be taken back."""
        logger.warning(
            "run %s has failed: %s; written again with the option runId=%s, the same rows have the"
            " same message ids",
            self._run_id,
            aborted_text(messages),
            self._run_id,
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """Send the rows of one task of one batch."""
        task = _task()
        query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise RmqError(
                "Spark does not tell the id of the query and of the batch, without which rows have"
                " no key; versions 4.2 to 4.3 do"
            )
        identity = RowIdentity(query_id, batch_id, task.partitionId())
        with hints_in_text():
            return self._sink.send_rows(iterator, identity, task.getLocalProperty)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Say what was sent, now that all tasks of a batch have."""
        logger.info("batch %d: %s", batchId, sent_text(checked(messages)))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Say what was sent, although the batch has failed: it will be sent again."""
        logger.warning(
            "batch %d has failed: %s; when the query goes on, the batch is sent again with the same"
            " message ids",
            batchId,
            aborted_text(messages),
        )


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Return what writes a table; raise `ConfigError` for options or columns that are wrong."""
    sink = _planned(BATCH_OPTIONS, options, schema, overwrite)
    return BatchWriter(sink, sink.settings.values.text("runId") or secrets.token_hex(8))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return what writes a stream; raise `ConfigError` for options or columns that are wrong."""
    return StreamWriter(_planned(STREAM_OPTIONS, options, schema, overwrite))


def _planned(
    known: Schema, options: Mapping[str, str], schema: StructType, overwrite: bool
) -> Sink:
    if overwrite:
        raise ConfigError(
            "mode",
            "a topic cannot be overwritten, messages are only added",
            hint='write with .mode("append"), or in a stream with .outputMode("append")',
        )
    settings = read_settings(known, options)
    columns = choose_columns(
        [(each.name, each.dataType.simpleString()) for each in schema.fields],
        has_topic=settings.topic is not None,
        ignores_extra=settings.values.flag("ignoreExtraColumns"),
    )
    return Sink(settings, columns)


def refuse_speculation(setting: Callable[[str], str | None]) -> None:
    """Raise `ConfigError` if Spark may run a task twice at the same time."""
    if (setting(_SPECULATION) or "").lower() == "true":
        raise ConfigError(
            _SPECULATION,
            "is true: Spark would run slow tasks twice, and both would send their rows",
            hint="set spark.speculation=false for a session that writes to topics",
        )


def checked(messages: Sequence[WriterCommitMessage | None]) -> list[SentRows]:
    """Return the reports of all tasks; raise `RmqError` if one is missing."""
    reports = [message for message in messages if isinstance(message, SentRows)]
    if len(reports) < len(messages):
        raise RmqError(
            f"{len(messages) - len(reports)} of {len(messages)} tasks did not report what they have"
            " sent"
        )
    return reports


def sent_text(reports: Sequence[SentRows]) -> str:
    """Say how many messages were sent, in all and by topic."""
    total = sum((Counter(report.by_topic) for report in reports), Counter())
    by_topic = ", ".join(f"{topic} {count}" for topic, count in sorted(total.items()))
    return f"{total.total()} messages sent" + (f" ({by_topic})" if by_topic else "")


def aborted_text(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Say what tasks have sent that were done, and what is not known of the others."""
    reports = [message for message in messages if isinstance(message, SentRows)]
    missing = len(messages) - len(reports)
    return (
        f"{sent_text(reports)} by the {len(reports)} tasks that were done, what the other {missing}"
        " have sent is in their errors"
    )


class _KeptQueues:
    """The queues of topics as they were when a task first asked: order depends on them."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._queues: dict[str, Sequence[MessageQueue]] = {}

    def __call__(self, topic: str) -> Sequence[MessageQueue]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._sender.queues_of(topic)
        return queues


def _send_all(batches: Iterator[pa.RecordBatch], encoder: RowEncoder, sender: Sender) -> None:
    try:
        for batch in batches:
            for outgoing in encoder.encode(batch):
                sender.send(outgoing)
    except RowsNotSentError:
        raise
    except RmqError as exc:
        sender.drain()
        exc.args = (f"{exc}. {stored_text(sender.confirmed.total())}",)
        raise
    sender.finish()


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls this in a task only"
    return task
