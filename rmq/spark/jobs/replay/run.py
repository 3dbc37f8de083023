"""Sends a table of messages to a topic, and checks that they are all there."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from rmq.errors import ConfigError, CorruptStoreError
from rmq.spark import schema
from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.jobs.copies import (
    CONTENT,
    KEY,
    PLACE_COLUMNS,
    as_copies,
    compare,
    content_hash,
    find_copies,
    first_offsets,
    joined_keys,
    lost_parts,
    parts_text,
    place_of,
)
from rmq.spark.jobs.copy_names import REPLAY
from rmq.spark.jobs.topic_ranges import end_offsets
from rmq.spark.pipelines.cluster import cluster_config, cluster_options
from rmq.spark.pipelines.failures import spark_reason
from rmq.spark.pipelines.paths import spark_path
from rmq.spark.pipelines.results import write_json
from rmq.spark.sink.columns import SHARDING_KEY
from rmq.spark.wire.positions import as_offset, read_offset

if TYPE_CHECKING:
    from argparse import Namespace

    from pyspark.sql import Column, DataFrame, SparkSession

    from rmq.client.core.config import ClientConfig
    from rmq.model.queues import MessageQueue
    from rmq.spark.jobs.copies import Comparison
    from rmq.spark.pipelines.job import Job

TASKS_MAX: Final = 64
"""By how many tasks rows are sent at most; it must not depend on the machine that sends."""
_ROWS_PER_GROUP: Final = 50_000
"""Rows of a file without queues that stay together."""
_FROM: Final = "place"
_QUEUE: Final = "queue"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    run: str
    """The same for the same table and topic."""
    rows: int
    size_bytes: int
    queues: int
    """How many queues the messages came from; 0 if they do not say."""
    already: int
    """How many of them an earlier run had sent."""
    sent: int
    comparison: Comparison | None
    """None if nothing was to be sent."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be sent."""

    table: DataFrame
    """With two more columns: where a row is from, and what it must not overtake."""
    has_queues: bool


def replay(job: Job, args: Namespace) -> Replayed:
    """Send what is not there yet, and find all of it."""
    spark, cluster, config = job.spark, cluster_options(args), cluster_config(args)
    source = read_source(spark, args.source, args.source_topics)
    with job.step("reading what is to be sent"):
        (facts,) = source.table.agg(
            F.count("*").alias("rows"),
            F.coalesce(F.sum(F.length(schema.BODY).cast("BIGINT")), F.lit(0)).alias("bytes"),
            F.count_distinct(_QUEUE).alias("queues"),
            F.bit_xor(F.xxhash64(_FROM, schema.BODY)).alias("fingerprint"),
        ).collect()
    rows, queues = int(facts["rows"]), int(facts["queues"])
    run = run_name(args.topic, rows, int(facts["fingerprint"] or 0))
    starts = end_offsets(config, [args.topic])
    if not starts and not args.create_topic:
        raise ConfigError(
            "--topic",
            f"topic {args.topic} does not exist",
            hint="create it, or let the first message create it with --create-topic",
        )
    state = ReplayState(args.out, run)
    prefix = f"{REPLAY}{run}/"
    copies = _copies(source, args.topic, prefix)
    tasks = max(1, min(TASKS_MAX, queues or TASKS_MAX))
    already = 0
    remaining = copies
    known = state.read()
    if known is not None:
        starts = known
        _require_readable(config, starts, state, args.topic)
        with job.step("finding what an earlier run has sent"):
            ends = end_offsets(config, [args.topic])
            done = find_copies(spark, cluster, starts, ends, prefix).select(KEY).distinct()
            done = done.persist()  # small, and the topic goes on
            already = done.join(copies, KEY, "left_semi").count()
        remaining = copies.join(done, KEY, "left_anti")
    if args.dry_run or rows == 0:
        return Replayed(run, rows, int(facts["bytes"]), queues, already, 0, None)
    if already < rows:
        state.begin(starts)
        options = {**cluster, "runId": send_name(run, already)}
        if args.rate is not None:
            options["maxMessagesPerSecond"] = str(args.rate)
            options["parallelTasks"] = str(min(tasks, spark.sparkContext.defaultParallelism))
        in_order = remaining.repartition(tasks, _QUEUE).sortWithinPartitions(_QUEUE, *_ORDER)
        with job.step(f"sending {rows - already:,} messages"):
            _as_messages(in_order).write.format("rocketmq").options(**options).mode("append").save()
    with job.step("finding what was sent"):
        _require_readable(config, starts, state, args.topic)
        ends = end_offsets(config, [args.topic])
        found = find_copies(spark, cluster, starts, ends, prefix, with_content=True)
        comparison = compare(copies, found)
    return Replayed(run, rows, int(facts["bytes"]), queues, already, rows - already, comparison)


def _require_readable(
    config: ClientConfig, starts: dict[MessageQueue, int], state: ReplayState, topic: str
) -> None:
    """Raise `ConfigError` if a part of what was sent cannot be read, for whatever reason."""
    lost = lost_parts(starts, first_offsets(config, starts))
    if not lost:
        return
    hint = "a longer retention (fileReservedTime) leaves time to find what was sent"
    if state.path is not None:
        hint = (
            f"if a broker is down, start it; to send everything to {topic} again, remove"
            f" {state.path}"
        )
    raise ConfigError(
        "--topic",
        f"what run {state.run} sent can no longer be found in {parts_text(lost)}",
        hint=hint,
    )


_ORDER: Final = ("orderA", "orderB")
"""The order within a queue."""


def read_source(spark: SparkSession, path: Path, topics: list[str] | None) -> Source:
    """Return the messages of an archive, or the rows of any Parquet table with bodies."""
    if not path.exists():
        raise ConfigError("--from", f"{path}: there is no such file or directory")
    if is_archive(path):
        return _with_places(read_archive(spark, path, topics))
    try:
        table = spark.read.parquet(spark_path(path))
    except AnalysisException as exc:
        raise ConfigError(
            "--from",
            f"{path} is neither an archive nor a Parquet table: {spark_reason(str(exc))}",
        ) from exc
    if schema.BODY not in table.columns:
        raise ConfigError("--from", f"{path} has no column body; it has {', '.join(table.columns)}")
    if topics is not None:
        if schema.TOPIC not in table.columns:
            raise ConfigError("--source-topic", f"{path} has no column topic")
        table = table.filter(F.col(schema.TOPIC).isin(*topics))
    if set(PLACE_COLUMNS) <= set(table.columns):
        return _with_places(table)
    return _with_rows(table, path)


def is_archive(path: Path) -> bool:
    """Tell whether a directory is one that the pipeline archive has written."""
    return (path / "data").is_dir()


def _with_places(table: DataFrame) -> Source:
    queue = F.concat_ws("/", *(F.col(name).cast("STRING") for name in PLACE_COLUMNS[:3]))
    table = (
        table.withColumn(_FROM, place_of())
        .withColumn(_QUEUE, queue)
        .withColumn(_ORDER[0], F.col(schema.QUEUE_OFFSET))
        .withColumn(_ORDER[1], F.lit(""))
    )
    return Source(table, has_queues=True)


def _with_rows(table: DataFrame, root: Path) -> Source:
    """Number the rows of files: that is the same whenever and wherever they are read."""
    file, row = _path_below(root), F.col("_metadata.row_index")
    if SHARDING_KEY in table.columns:
        queue: Column = F.coalesce(SHARDING_KEY, F.lit(""))
    else:
        queue = F.concat_ws("/", file, F.floor(row / _ROWS_PER_GROUP).cast("STRING"))
    table = (
        table.withColumn(_FROM, F.concat_ws("/", file, row.cast("STRING")))
        .withColumn(_QUEUE, queue)
        .withColumn(_ORDER[0], row)
        .withColumn(_ORDER[1], file)
    )
    return Source(table, has_queues=SHARDING_KEY in table.columns)


def _path_below(root: Path) -> Column:
    """Return the path of the file that a row is from, below the directory that is read.

    The name alone does not do: files in the folders of several partitions may have the same.
    """
    # Spark escapes characters of paths, so parts are counted and not compared. It normalizes paths
    # as text.
    normal = Path(os.path.normpath(root.absolute()))
    depth = len((normal.parent if root.is_file() else normal).parts) - 1
    parts = F.split(F.regexp_replace("_metadata.file_path", "^[a-z]+:/+", ""), "/")
    return F.array_join(F.slice(parts, depth + 1, F.size(parts)), "/")


def _copies(source: Source, topic: str, prefix: str) -> DataFrame:
    """Return what is to be sent, with what it is recognized and ordered by."""
    sharding = F.col(_QUEUE) if source.has_queues else None
    key = F.concat(F.lit(prefix), F.col(_FROM))
    copies = as_copies(source.table, key, F.lit(topic), sharding, kept=(_QUEUE, *_ORDER))
    return copies.withColumn(CONTENT, content_hash(joined_keys(copies)))


def _as_messages(copies: DataFrame) -> DataFrame:
    return copies.drop(KEY, CONTENT, _QUEUE, *_ORDER)


def run_name(topic: str, rows: int, fingerprint: int) -> str:
    """Return the name of a replay, which follows from what is sent where."""
    digest = hashlib.blake2b(f"{topic}\n{rows}\n{fingerprint}".encode(), digest_size=8)
    return f"replay-{digest.hexdigest()}"


def send_name(run: str, already: int) -> str:
    """Return the name under which a run sends what is left when it has sent some already.

    Message ids follow from this name and from the number of a row (`rmq.spark.sink.identity`), and
    what is left is numbered from 0 again: under the same name it would get ids of others. The name
    is the same again if nothing was sent meanwhile.
    """
    return f"{run}.{already}" if already else run


class ReplayState:
    """Where the topic ended before a replay began, kept so that another run can go on with it."""

    def __init__(self, folder: Path | None, run: str) -> None:
        self.path = None if folder is None else folder / f"{run}.json"
        self.run = run

    def begin(self, starts: dict[MessageQueue, int]) -> None:
        """Write it down, if there is a folder for it."""
        if self.path is not None:
            write_json(self.path, {"run": self.run, "starts": as_offset(starts)})

    def read(self) -> dict[MessageQueue, int] | None:
        """Return where it ended; None if no run has begun."""
        if self.path is None or not self.path.exists():
            return None
        try:
            value: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            return read_offset(value["starts"])
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as exc:
            raise CorruptStoreError(
                str(self.path),
                f"this is not what a replay wrote: {exc}",
                hint="remove the file, and everything is sent again",
            ) from exc
