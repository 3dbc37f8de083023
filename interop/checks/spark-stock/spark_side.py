"""A session of Spark in the hands of a check: its calls block, so they run in threads.

Tables are compared with what clients read in one form, a dict by column for each message; times are
in ms.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio
from pyspark.errors import PySparkException

from interop.support.cases import MismatchError
from rmq.spark import open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    T = TypeVar("T")
    Row = dict[str, Any]

WIRE: Final = "rocketmq"
STORE: Final = "rocketmq-store"
_TIMES: Final = ("bornTimestamp", "storeTimestamp")


@final
class SparkSide:
    """Runs one call of Spark at a time. A call that is given up goes on in its thread.

    All calls are made in the thread that has opened the session: Spark 4.3 does not find the
    format of a table that another thread writes.
    """

    def __init__(self, spark: SparkSession, nameserver: str, thread: ThreadPoolExecutor) -> None:
        self._spark = spark
        self._nameserver = nameserver
        self._thread = thread
        self._one = trio.CapacityLimiter(1)

    async def do(self, call: Callable[[SparkSession], T]) -> T:
        """Return what a call returns."""
        return await trio.to_thread.run_sync(
            lambda: self._thread.submit(call, self._spark).result(),
            abandon_on_cancel=True,
            limiter=self._one,
        )

    # ---- batches ---------------------------------------------------------------------------------

    def table(self, **options: object) -> DataFrame:
        """Return a table over the wire; call it in `do`."""
        return self._spark.read.format(WIRE).options(**self.options(**options)).load()

    def options(self, **options: object) -> dict[str, str]:
        given = {name: str(value) for name, value in options.items()}
        return {"nameservers": self._nameserver, **given}

    async def rows(self, **options: object) -> list[Row]:
        """Read topics over the wire."""
        return await self.do(lambda _: collect(self.table(**options)))

    async def failure(self, **options: object) -> str:
        """Return what Spark says to options that it must not accept."""
        try:
            rows = await self.rows(**options)
        except PySparkException as exc:
            return str(exc)
        raise MismatchError(f"{options} were accepted, and gave {len(rows)} rows")

    async def store_rows(self, root: Path, **options: object) -> list[Row]:
        """Read the log of a store."""
        given = {name: str(value) for name, value in options.items()}
        return await self.do(
            lambda spark: collect(spark.read.format(STORE).options(**given).load(str(root)))
        )

    async def save(self, table: Callable[[SparkSession], DataFrame], **options: object) -> None:
        """Write a table to topics."""
        wanted = self.options(**options)
        await self.do(
            lambda spark: table(spark).write.format(WIRE).mode("append").options(**wanted).save()
        )

    # ---- streams ---------------------------------------------------------------------------------

    async def copy_stream(self, folder: Path, **options: object) -> dict[str, Any] | None:
        """Copy what is new in topics to the Parquet table in a folder; return the last progress."""

        def copy(spark: SparkSession) -> dict[str, Any] | None:
            query = self.start_copy(spark, folder, **options)
            query.awaitTermination()
            progress: dict[str, Any] | None = query.lastProgress
            return progress

        return await self.do(copy)

    def start_copy(self, spark: SparkSession, folder: Path, **options: object) -> StreamingQuery:
        """Begin to copy; it ends where the topics end now."""
        return (
            spark.readStream.format(WIRE)
            .options(**self.options(**options))
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "table"))
            .trigger(availableNow=True)
            .start()
        )

    async def copied(self, folder: Path) -> list[Row]:
        """Return what was copied."""
        return await self.do(lambda spark: collect(spark.read.parquet(str(folder / "table"))))


def collect(table: DataFrame) -> list[Row]:
    """Return the rows of a table with the columns of ours."""
    shown = [f"unix_millis({name}) AS {name}" if name in _TIMES else name for name in table.columns]
    rows: list[Row] = table.selectExpr(*shown).toArrow().to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            row["properties"] = dict(row["properties"])
    return rows


@asynccontextmanager
async def open_spark(folder: Path, nameserver: str) -> AsyncIterator[SparkSide]:
    """Run Spark on two cores of this machine for the length of a block."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    thread = ThreadPoolExecutor(1, "spark")
    opened = thread.submit(open_session, "rmq interop", "local[2]", settings, quiet=True)
    spark = await trio.to_thread.run_sync(opened.result)
    try:
        yield SparkSide(spark, nameserver, thread)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(spark.stop)
        thread.shutdown(wait=False, cancel_futures=True)
