"""Archives as tables: how messages are written to Parquet, proven, and read back.

Files lie in folders by date and topic. The date is that of the store time in UTC. Everything else
of a message is in the files, with the names and types of the formats (`rmq.spark.schema`), bodies
as they were sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rmq.errors import ConfigError
from rmq.spark import schema
from rmq.spark.jobs.archive.files import ArchiveFolder
from rmq.spark.jobs.archive.manifest import Gap, Part, Queue
from rmq.spark.pipelines.paths import spark_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import Column, DataFrame, Row, SparkSession

DATE: Final = "date"
RUN: Final = "run"
GAPS_MAX: Final = 1_000
"""How many gaps of one run are told apart; more are an error."""

_IN_FILES: Final = [name for name in schema.COLUMNS if name != schema.TOPIC]
_FILE_SCHEMA: Final = f"{schema.spark_schema(_IN_FILES)}, {DATE} DATE, {schema.TOPIC} STRING"
_KEYS: Final = (schema.TOPIC, schema.BROKER_NAME, schema.QUEUE_ID)
_DAY_US: Final = 86_400_000_000
_MASK: Final = (1 << 64) - 1


def read_archive(
    spark: SparkSession, directory: Path | str, topics: Collection[str] | None = None
) -> DataFrame:
    """Return the messages of an archive, with the columns of the formats; of some topics, or all.

    Only runs that have ended are read. Raises `ConfigError` if there is no archive, or if a topic
    is not in it.
    """
    archive = ArchiveFolder(Path(directory))
    folders = archive.run_folders()
    if not folders:
        raise ConfigError("archive", f"{directory} holds no run of an archive")
    if topics is not None:
        known = {queue.topic for run in folders for queue in _parts_of(archive, run)}
        unknown = sorted(set(topics) - known)
        if unknown:
            raise ConfigError(
                "topic",
                f"{', '.join(unknown)} is not in {directory}, which has {', '.join(sorted(known))}",
            )
    table = (
        spark.read.schema(f"{_FILE_SCHEMA}, {RUN} INT")
        .option("basePath", spark_path(archive.data))
        .parquet(*(spark_path(folder) for folder in folders))
    )
    if topics is not None:
        table = table.filter(F.col(schema.TOPIC).isin(*topics))
    return table.select(*schema.COLUMNS)


def _parts_of(archive: ArchiveFolder, folder: Path) -> Iterable[Queue]:
    return archive.run_manifest(int(folder.name.partition("=")[2])).parts


def write_messages(messages: DataFrame, folder: Path) -> None:
    """Write messages as files of a run."""
    day = F.date_from_unix_date(
        F.floor(F.unix_micros(F.col(schema.STORE_TIMESTAMP)) / _DAY_US).cast("INT")
    )
    (
        messages.withColumn(DATE, day)
        .write.mode("errorifexists")
        .partitionBy(DATE, schema.TOPIC)
        .parquet(spark_path(folder))
    )


def read_run(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the messages in the files of one run, whether it has ended or not."""
    return spark.read.schema(_FILE_SCHEMA).parquet(spark_path(folder))


def prove(messages: DataFrame) -> dict[Queue, Part]:
    """Count and check what the files of a run hold; raise `ConfigError` if anything is there twice.

    Every offset is a bit in a word for 64 of them, so that none is taken for another: how many
    different ones there are is exact. All that is summed up here is a number, which keeps Spark
    from sorting the messages.
    """
    offset = F.col(schema.QUEUE_OFFSET)
    marks = F.expr(f"shiftleft(1L, cast({schema.QUEUE_OFFSET} & 63 AS INT))")
    pieces = messages.groupBy(*_KEYS, F.shiftright(offset, 6).alias("piece")).agg(
        F.bit_or(marks).alias("marks"),
        F.count(F.lit(1)).alias("messages"),
        F.min(offset).alias("first"),
        F.max(offset).alias("last"),
        F.sum(F.length(schema.BODY).cast("BIGINT")).alias("bytes"),
        F.bit_xor(row_hash()).alias("checksum"),
        F.sum(F.crc32(schema.BODY)).alias("crc"),
        F.max_by(F.unix_millis(schema.STORE_TIMESTAMP), offset).alias("last_ms"),
    )
    sums = pieces.groupBy(*_KEYS).agg(
        *(F.sum(name).alias(name) for name in ("messages", "bytes", "crc")),
        F.sum(F.bit_count("marks")).alias("different"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.bit_xor("checksum").alias("checksum"),
        F.max_by("last_ms", "last").alias("last_ms"),
    )
    return {_queue_of(row): _part_of(row) for row in sums.collect()}


def row_hash() -> Column:
    """Return the hash of a message that the checksum of its queue is made of."""
    properties = F.sort_array(F.map_entries(schema.PROPERTIES))
    return F.xxhash64(schema.QUEUE_OFFSET, schema.BODY, properties)


def find_gaps(messages: DataFrame, queue: Queue) -> tuple[Gap, ...]:
    """Return the offsets between the first and the last that a queue does not have."""
    mine = messages.filter(
        (F.col(schema.TOPIC) == queue.topic)
        & (F.col(schema.BROKER_NAME) == queue.broker_name)
        & (F.col(schema.QUEUE_ID) == queue.queue_id)
    )
    offset = F.col(schema.QUEUE_OFFSET)
    before = F.lag(offset).over(Window.orderBy(offset))
    rows = (
        mine.select(offset.alias("at"), before.alias("before"))
        .filter(F.col("at") > F.col("before") + 1)
        .orderBy("at")
        .limit(GAPS_MAX + 1)
        .collect()
    )
    if len(rows) > GAPS_MAX:
        raise ConfigError("--topic", f"{queue} has more than {GAPS_MAX} gaps: check the source")
    return tuple(Gap(int(row["before"]) + 1, int(row["at"]) - 1) for row in rows)


def _queue_of(row: Row) -> Queue:
    return Queue(row[schema.TOPIC], row[schema.BROKER_NAME], int(row[schema.QUEUE_ID]))


def _part_of(row: Row) -> Part:
    queue = _queue_of(row)
    count = int(row["messages"])
    if int(row["different"]) != count:
        raise ConfigError(
            "--topic",
            f"{queue}: {count - int(row['different'])} offsets were read twice; nothing of this"
            " run was archived",
        )
    return Part(
        first=int(row["first"]),
        last=int(row["last"]),
        count=count,
        size_bytes=int(row["bytes"] or 0),
        checksum=int(row["checksum"]) & _MASK,
        crc=int(row["crc"]) & _MASK,
        last_store_ms=int(row["last_ms"]),
    )
