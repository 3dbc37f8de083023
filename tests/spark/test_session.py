"""Sessions: the formats are known, times are UTC, and what the user says counts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from rmq.spark.bundle import bundle_of, own_bundle
from rmq.spark.session import (
    java_options,
    local_cores,
    open_session,
    register,
    send_bundle,
    use_python,
    with_path,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_session_has_our_defaults(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_options_of_java_can_be_added_and_another_collector_chosen() -> None:
    assert "-XX:+UseParallelGC" in java_options("")
    mine = java_options("-XX:+UseG1GC -Xss4m")
    assert mine.endswith("-XX:+UseG1GC -Xss4m")
    assert "ParallelGC" not in mine


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
    ],
)
def test_local_sessions_have_few_shuffle_partitions(master: str, cores: int) -> None:
    assert local_cores(master) == cores


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


class _Context:
    """Of Spark's context what sending needs; a real one on a cluster needs a cluster."""

    def __init__(self, master: str, number: str) -> None:
        self.master = master
        self.applicationId = number
        self.added: list[str] = []
        self.environment = {"PYTHONPATH": "/mine"}

    def addPyFile(self, path: str) -> None:
        self.added.append(path)


class _Session:
    def __init__(self, master: str, number: str) -> None:
        self.sparkContext = _Context(master, number)


def test_rmq_is_sent_to_a_cluster_once() -> None:
    near, far = _Session("local[*]", "app-near"), _Session("spark://host:7077", "app-far")
    for session in (near, far, near, far):
        send_bundle(session)  # type: ignore[arg-type]
    assert near.sparkContext.added == []
    assert near.sparkContext.environment["PYTHONPATH"] == "/mine"
    (sent,) = far.sparkContext.added
    assert sent == str(own_bundle())
    # The process that plans a stream does not look among the files that were added.
    assert far.sparkContext.environment["PYTHONPATH"] == f"/mine:{sent}"
    with zipfile.ZipFile(sent) as bundle:
        assert {"rmq/spark/wire/source.py", "pyspark_rmq/__init__.py"} <= set(bundle.namelist())


def test_rmq_that_is_in_a_zip_file_is_sent_as_that_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.zip"
    path.write_bytes(own_bundle().read_bytes())
    code = "import rmq.spark.bundle; print(rmq.spark.bundle.own_bundle())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(path)},
        cwd=tmp_path,
    )
    assert done.stdout == f"{path}\n"


def test_workers_get_a_python_of_the_same_version_and_the_driver_plans_with_this_one(
    tmp_path: Path,
) -> None:
    python = tmp_path / "python"
    named = f"python{sys.version_info.major}.{sys.version_info.minor}"
    environ = {"PATH": "/bin"}
    use_python(environ, {}, python)
    expected = {"PYSPARK_DRIVER_PYTHON": str(python), "PATH": f"{tmp_path}:/bin"}
    assert environ == {**expected, "PYSPARK_PYTHON": "python"}
    (tmp_path / named).touch(mode=0o755)
    environ = {"PATH": "/bin"}
    use_python(environ, {}, python)
    assert environ == {**expected, "PYSPARK_PYTHON": named}


def test_a_python_that_was_chosen_counts(tmp_path: Path) -> None:
    python = tmp_path / "python"
    environ = {"PYSPARK_PYTHON": "/opt/python", "PYSPARK_DRIVER_PYTHON": "mine"}
    use_python(environ, {"spark.pyspark.python": "other"}, python)
    assert environ == {"PYSPARK_PYTHON": "/opt/python", "PYSPARK_DRIVER_PYTHON": "mine"}
    environ = {}
    use_python(environ, {"spark.pyspark.python": "a", "spark.pyspark.driver.python": "b"}, python)
    assert environ == {"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": "b"}
