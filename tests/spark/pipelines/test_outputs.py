"""Tables of pipelines: written where this machine sees them, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError, StorageError
from rmq.spark.jobs import outputs
from rmq.spark.jobs.outputs import data_files, require_written, write_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_files_that_spark_does_not_count_are_not_counted(tmp_path: Path) -> None:
    assert data_files(tmp_path / "nowhere") == frozenset()
    for name in ("a.parquet", "day=1/b.parquet", "_temporary/0/c.parquet", ".d.parquet", "e.crc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert data_files(tmp_path) == {tmp_path / "a.parquet", tmp_path / "day=1" / "b.parquet"}


def test_no_file_is_an_error_and_so_is_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--ledger: .* is not on storage that all machines see"):
        require_written(tmp_path, (), None, option="--ledger")
    broken = tmp_path / "a.parquet"
    broken.write_bytes(b"PAR1")
    require_written(tmp_path, [broken], None)
    with pytest.raises(StorageError, match=r"a\.parquet"):
        require_written(tmp_path, [broken], 1)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_table_is_written_and_added_to(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    table = spark.range(rows)
    path = tmp_path / "a table"
    write_table(table, path, rows)
    write_table(table, path)
    assert spark.read.parquet(str(path)).count() == rows
    write_table(table, path, rows, mode="append")
    assert spark.read.parquet(str(path)).count() == 2 * rows


def test_a_table_that_went_to_the_disks_of_executors_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster without a shared disk: what tasks write is elsewhere under the same path."""
    path = tmp_path / "out"
    write_table(spark.range(3), path, 3)
    monkeypatch.setattr(outputs, "spark_path", lambda _: f"file://{tmp_path}/executor")
    for rows in (None, 0, 5):
        with pytest.raises(ConfigError, match=r"--out: .* all machines see: none of the") as caught:
            write_table(spark.range(5), path, rows, mode="append")
        assert caught.value.hint is not None
        assert "--spark-master" in caught.value.hint


def test_a_part_of_a_table_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """As if one of the executors ran on this machine, and the others elsewhere."""
    path = tmp_path / "out"
    write_table(spark.range(0, 10, 1, 4), path, 10)
    files = sorted(data_files(path))
    assert len(files) == 4
    with pytest.raises(ConfigError, match="8 of 10 rows that Spark wrote are there"):
        require_written(path, files[1:], 10)
