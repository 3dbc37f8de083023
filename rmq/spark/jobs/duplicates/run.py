"""Reads messages from a cluster, an archive or a store, and finds those that are there twice or
not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from rmq.errors import ConfigError
from rmq.spark import schema
from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.jobs.duplicates.tables import (
    ID,
    LEDGER_KEY,
    READ_COLUMNS,
    find_duplicates,
    find_missing,
)
from rmq.spark.jobs.outputs import write_table
from rmq.spark.pipelines.cluster import cluster_options
from rmq.spark.pipelines.failures import spark_reason
from rmq.spark.pipelines.paths import spark_path

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rmq.spark.pipelines.job import Job

SHOWN_MAX: Final = 100
_FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COLUMN_NAMES: Final = ("key", "id", schema.MSG_ID)


@dataclass(slots=True)
class Duplicates:
    """What a run found."""

    messages: int = 0
    duplicated: dict[str, int] = field(default_factory=dict)
    """By main cause, how many messages are there more than once."""
    extra: dict[str, int] = field(default_factory=dict)
    """By cause, how many copies there are too many."""
    shown: list[dict[str, Any]] = field(default_factory=list)
    """Messages that are there more than once, those with most copies first."""
    ledger_keys: int | None = None
    """How many different keys the ledger has; None if there is no ledger."""
    missing: int = 0
    missing_shown: list[str] = field(default_factory=list)


def check_duplicates(job: Job, args: Namespace) -> Duplicates:
    """Find duplicates and, with a ledger, what is missing."""
    spark = job.spark
    ledger = None if args.ledger is None else read_ledger(spark, args.ledger, args.ledger_column)
    messages = read_messages(spark, args)
    # Read once: a topic goes on, and reading it is what takes time.
    messages = messages.persist() if ledger is not None else messages
    result = Duplicates()
    found = find_duplicates(messages).persist()
    try:
        with job.step("finding duplicates"):
            for row in found.groupBy("cause").count().collect():
                result.duplicated[row["cause"]] = int(row["count"])
            extra = found.select(F.explode("extra").alias("extra")).select("extra.*")
            for row in extra.groupBy("cause").agg(F.sum("copies").alias("copies")).collect():
                result.extra[row["cause"]] = int(row["copies"])
        with job.step("counting messages"):
            result.messages = messages.count()
        order = (F.desc("copies"), F.col(schema.TOPIC), F.col(ID))
        result.shown = [
            row.asDict(recursive=True) for row in found.orderBy(*order).limit(SHOWN_MAX).collect()
        ]
        if ledger is not None:
            _look_for_missing(job, args, messages, ledger, result)
        if args.out is not None:
            with job.step("writing tables"):
                write_table(found, args.out / "duplicates", sum(result.duplicated.values()))
    finally:
        found.unpersist()
        messages.unpersist()
    return result


def _look_for_missing(
    job: Job, args: Namespace, messages: DataFrame, ledger: DataFrame, result: Duplicates
) -> None:
    with job.step("finding what is missing"):
        result.ledger_keys = ledger.distinct().count()
        missing = find_missing(messages, ledger).persist()
        result.missing = missing.count()
        result.missing_shown = [
            row[LEDGER_KEY] for row in missing.orderBy(LEDGER_KEY).limit(SHOWN_MAX).collect()
        ]
        if args.out is not None:
            write_table(missing, args.out / "missing", result.missing)
        missing.unpersist()


def read_messages(spark: SparkSession, args: Namespace) -> DataFrame:
    """Return the messages to check."""
    since_ms: int | None = args.since
    columns = ",".join(READ_COLUMNS)
    if args.archive is not None:
        table = read_archive(spark, args.archive, args.topics).select(*READ_COLUMNS)
        if since_ms is not None:
            since = F.timestamp_millis(F.lit(since_ms))
            table = table.filter(F.col(schema.STORE_TIMESTAMP) >= since)
        return table
    options = {"columns": columns}
    if since_ms is not None:
        options["startingTimestamp"] = str(since_ms)
    if args.store is not None:
        options["path"] = str(args.store)
        options["skipCorrupt"] = str(args.skip_corrupt).lower()
        if args.topics is not None:
            options["topics"] = ",".join(args.topics)
        return spark.read.format("rocketmq-store").options(**options).load()
    if since_ms is not None:
        options["startingOffsetsByTimestampStrategy"] = "latest"
    options["subscribe"] = ",".join(args.topics or ())
    return spark.read.format("rocketmq").options(**cluster_options(args), **options).load()


def read_ledger(spark: SparkSession, path: Path, column: str | None) -> DataFrame:
    """Return the keys that a producer says it has sent, in one column.

    A file, or a directory of files, of Parquet, CSV with a header, or JSON lines.
    """
    if not path.exists():
        raise ConfigError("--ledger", f"{path}: there is no such file or directory")
    named = _format_of(path)
    try:
        reader = spark.read.format(named)
        if named == "csv":
            reader = reader.option("header", True)
        table = reader.load(spark_path(path))
    except AnalysisException as exc:
        raise ConfigError(
            "--ledger", f"{path} cannot be read as {named}: {spark_reason(str(exc))}"
        ) from exc
    chosen = column or _only_column(path, table)
    if chosen not in table.columns:
        raise ConfigError(
            "--ledger-column", f"{path} has no column {chosen}; it has {', '.join(table.columns)}"
        )
    key = F.col(f"`{chosen}`").cast("STRING")
    return table.select(F.trim(key).alias(LEDGER_KEY)).filter(
        F.col(LEDGER_KEY).isNotNull() & (F.col(LEDGER_KEY) != "")
    )


def _format_of(path: Path) -> str:
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    for file in files:
        found = _FORMATS.get(file.suffix.lower())
        if found is not None and not file.name.startswith(("_", ".")):
            return found
    raise ConfigError(
        "--ledger",
        f"{path}: what is in it cannot be told",
        hint=f"files must end with one of {', '.join(_FORMATS)}",
    )


def _only_column(path: Path, table: DataFrame) -> str:
    if len(table.columns) == 1:
        return table.columns[0]
    for name in _COLUMN_NAMES:
        if name in table.columns:
            return name
    raise ConfigError(
        "--ledger-column",
        f"which column of {path} has the keys: {', '.join(table.columns)}?",
    )
