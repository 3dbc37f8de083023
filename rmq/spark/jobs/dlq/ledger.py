"""What was redriven: a ledger that a run which is killed at any moment leaves in a usable state.

In the directory of the pipeline:

    redriven/         Parquet, one row for each copy that was found in its topic: its key, place
                      and time. Rows are only added; one may be there twice, which means nothing.
    redrives/*.json   one file for each run that sends, written before the first message is sent:
                      where the topics ended then. It says `done` when the ledger has all of it.
    redrive.lock      held by the run that sends

A run that finds a file which is not done reads the topics from there on, adds the copies that it
finds to the ledger, and only then decides what is left to send. So a dead letter is sent twice only
if a request of the killed run is stored after the next run has read the topics: it would have to be
in flight for longer than it takes to start the next run. If a part of the topics cannot be read any
more, nothing is sent until an operator who knows what that run did has removed its file.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmq.errors import ConfigError, CorruptStoreError, StorageError
from rmq.spark.jobs.outputs import write_table
from rmq.spark.pipelines.paths import spark_path
from rmq.spark.pipelines.results import write_json
from rmq.spark.wire.positions import as_offset, read_offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from rmq.model.queues import MessageQueue

LEDGER_SCHEMA: Final = (
    "copyKey STRING, run STRING, topic STRING, brokerName STRING, queueId INT,"
    " queueOffset BIGINT, storeTimestamp TIMESTAMP, msgId STRING"
)
_OPEN: Final = "open"
_DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class Redrive:
    """One run that sends."""

    run: str
    started_ms: int
    letters: int
    starts: Mapping[MessageQueue, int]
    """Where the topics that it sends to ended before."""
    state: str = _OPEN


class Ledger:
    """The ledger in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "redriven"
        self._runs = folder / "redrives"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only run that sends; raise `ConfigError` if there is another."""
        path = self.folder / "redrive.lock"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise StorageError("lock", str(path), exc.strerror or str(exc)) from exc
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise ConfigError("--out", f"another run is redriving into {self.folder}") from exc
            yield
        finally:
            os.close(fd)

    # --- runs --------------------------------------------------------------------------------

    def begin(self, redrive: Redrive) -> None:
        """Write down that a run is about to send."""
        self._write(redrive, _OPEN)

    def finish(self, redrive: Redrive) -> None:
        """Write down that all it has sent is in the table."""
        self._write(redrive, _DONE)

    def unfinished(self) -> list[Redrive]:
        """Return the runs that may have sent what is not in the table, the oldest first."""
        return [each for each in self._all() if each.state != _DONE]

    def path_of(self, redrive: Redrive) -> Path:
        """Return the file of a run."""
        return self._runs / f"{redrive.run}.json"

    def _write(self, redrive: Redrive, state: str) -> None:
        write_json(
            self.path_of(redrive),
            {
                "run": redrive.run,
                "state": state,
                "started_ms": redrive.started_ms,
                "letters": redrive.letters,
                "starts": as_offset(redrive.starts),
            },
        )

    def _all(self) -> Iterator[Redrive]:
        try:
            paths = sorted(self._runs.glob("*.json"))
        except OSError as exc:
            raise StorageError("read", str(self._runs), exc.strerror or str(exc)) from exc
        for path in paths:
            try:
                value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                yield Redrive(
                    run=str(value["run"]),
                    started_ms=int(value["started_ms"]),
                    letters=int(value["letters"]),
                    starts=read_offset(value["starts"]),
                    state=str(value["state"]),
                )
            except (OSError, ValueError, KeyError, TypeError, ConfigError) as exc:
                # To go on would be to send again what this run may have sent.
                raise CorruptStoreError(
                    str(path),
                    f"this is not what a redrive wrote: {exc}",
                    hint="find out what that run has sent before you remove the file",
                ) from exc

    # --- the table ---------------------------------------------------------------------------

    def read(self, spark: SparkSession) -> DataFrame | None:
        """Return what was redriven; None if nothing was."""
        if not any(self.table.glob("*.parquet")):
            return None
        return spark.read.schema(LEDGER_SCHEMA).parquet(spark_path(self.table))

    def require_shared(self, spark: SparkSession) -> None:
        """Raise `ConfigError` if what executors write is not seen here; nothing is sent then."""
        nothing = spark.createDataFrame([], LEDGER_SCHEMA)
        write_table(nothing, self.table, 0, mode="append")

    def add(self, found: DataFrame, run: str, rows: int) -> None:
        """Add copies that were found in their topics; raise `ConfigError` if they are not there
        afterwards. `rows` is how many they are.
        """
        from pyspark.sql import functions as F

        names = [part.split()[0] for part in LEDGER_SCHEMA.split(", ")]
        table = found.withColumn("run", F.lit(run)).select(*names)
        write_table(table.coalesce(1), self.table, rows, mode="append")
