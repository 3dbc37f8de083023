"""Tables that a pipeline writes, and proof that this machine sees them.

Tasks write files on the machines they run on, and Spark ends without an error if the driver sees
none of them: on a cluster whose machines do not share a disk, the table is empty. So what was
written is counted from here, by the footers of the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyarrow import ArrowException
from pyarrow import parquet as pq

from rmq.errors import ConfigError, StorageError
from rmq.model.words import count_text
from rmq.spark.pipelines.paths import spark_path

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import DataFrame

_HINT: Final = (
    "name a directory on storage that the driver and all executors have under the same path, or"
    " run it on this machine with --spark-master 'local[*]'"
)


def write_table(
    table: DataFrame,
    path: Path,
    rows: int | None = None,
    *,
    mode: str = "overwrite",
    option: str = "--out",
) -> None:
    """Write a table as Parquet; raise `ConfigError` if this machine does not see what was written.

    `rows` is how many rows the table has. If that is not known, one file must be there: Spark
    writes one even for no rows. `option` is what the user named the directory with.
    """
    before = data_files(path) if mode == "append" else frozenset()
    table.write.mode(mode).parquet(spark_path(path))
    require_written(path, data_files(path) - before, rows, option=option)


def require_written(
    path: Path, files: Collection[Path], rows: int | None, *, option: str = "--out"
) -> None:
    """Raise `ConfigError` unless there are files, with this many rows if that is known."""
    if not files:
        told = "none of the files that Spark wrote is there"
    elif rows is None or (found := _rows_in(files)) == rows:
        return
    else:
        told = f"{found:,} of {count_text(rows, 'row')} that Spark wrote are there"
    raise ConfigError(option, f"{path} is not on storage that all machines see: {told}", hint=_HINT)


def data_files(path: Path) -> frozenset[Path]:
    """Return the files of a table that this machine sees; none if there is no such directory."""
    try:
        return frozenset(
            file
            for file in path.rglob("*.parquet")
            if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
        )
    except OSError as exc:
        raise StorageError("list", str(path), exc.strerror or str(exc)) from exc


def _rows_in(files: Collection[Path]) -> int:
    total = 0
    for file in files:
        try:
            total += int(pq.read_metadata(file).num_rows)
        except (OSError, ArrowException) as exc:
            raise StorageError("read", str(file), str(exc)) from exc
    return total
