"""Sessions: the formats are known, times are UTC, and what the user says counts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rmq.spark.session import bundle_of, open_session, register, with_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCRIPT = """
import sys
from rmq.spark import open_session

spark = open_session("quiet", "local[1]", {"spark.sql.session.timeZone": "Asia/Tokyo"}, quiet=True)
print(spark.conf.get("spark.sql.session.timeZone"), spark.range(7).count())
"""


def test_a_session_has_our_defaults(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_a_session_that_is_there_is_taken_with_what_is_added(spark: SparkSession) -> None:
    again = open_session("again", "local[2]", {"spark.sql.shuffle.partitions": "3"})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        again.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.parametrize("format_name", ["rocketmq", "rocketmq-store"])
def test_both_formats_are_known_without_being_registered(
    spark: SparkSession, format_name: str
) -> None:
    plain = spark.newSession()
    for session in (spark, plain):
        with pytest.raises(Exception, match="is not a known setting; did you mean") as refused:
            session.read.format(format_name).option("colums", "body").load("nowhere")
        assert "did you mean columns?" in str(refused.value)
    register(plain)


def test_processes_of_spark_are_led_to_rmq_in_a_zip_file(tmp_path: Path) -> None:
    """`interop/checks/spark-cluster` shows that a stream needs it."""
    bundle = tmp_path / "rmq.zip"
    bundle.touch()
    assert bundle_of(bundle / "rmq" / "spark" / "session.py") == bundle
    assert bundle_of(tmp_path / "rmq" / "spark" / "session.py") is None
    assert with_path("", bundle) == str(bundle)
    assert with_path("/a:/b", bundle) == f"/a:/b:{bundle}"
    assert with_path(f"{bundle}:/b", bundle) == f"{bundle}:/b"


def test_nothing_but_results_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Asia/Tokyo 7\n", "")
