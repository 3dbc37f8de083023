"""The line that a person needs, out of everything that Spark says about an error."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from rmq.errors import ConfigError, RmqError
from rmq.spark.pipelines.failures import TEXT_MAX, describe, spark_reason

TASK = """\
An error occurred while calling o87.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 1 \
times, most recent failure: Lost task 3.0 in stage 1.0 (TID 7) (127.0.0.1 executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 2100, in main
    process()
  File "/site-packages/rmq/spark/files/reading.py", line 10, in read
    raise CorruptStoreError(path, reason)
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/site-packages/rmq/spark/files/reading.py", line 12, in read
    raise CorruptStoreError(path, reason)
rmq.errors.CorruptStoreError: /s/commitlog/00000000000000000000, physical offset 99: the CRC is
wrong; use skipCorrupt

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(P.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException
\t... 20 more
"""

JAVA = """\
An error occurred while calling o87.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.Foo.bar(Foo.scala:1)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows
\tat org.apache.spark.sql.Foo.bar(Foo.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 3 more
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            TASK,
            "/s/commitlog/00000000000000000000, physical offset 99: the CRC is"
            " wrong; use skipCorrupt",
        ),
        (JAVA, "IOException: No space left on device"),
        ("[UNRESOLVED_COLUMN] A column `x` cannot be resolved.\nSecond", "A column `x` cannot"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'q'\n", "KeyError: 'q'"),
        ("Traceback (most recent call last):\n  File x\nsome.where.Stopped\n", "Stopped"),
        ("Traceback (most recent call last):\n", "Traceback"),
        ("", "Spark failed and did not say why"),
    ],
)
def test_the_reason(text: str, reason: str) -> None:
    assert spark_reason(text).startswith(reason)


def test_a_long_reason_is_cut() -> None:
    assert len(spark_reason("x" * 100_000)) == TEXT_MAX + 1


# --- hints ------------------------------------------------------------------------------------


def on_worker(line: str, where: str = "10.0.0.7 executor 3") -> str:
    """Return what Spark says of a task that failed with a line."""
    return (
        "An error occurred while calling o87.save.\n: org.apache.spark.SparkException: Job aborted"
        " due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task"
        f" 0.3 in stage 1.0 (TID 7) ({where}): org.apache.spark.api.python.PythonException:"
        " Traceback (most recent call last):\n"
        '  File "/pyspark.zip/pyspark/serializers.py", line 500, in loads\n'
        f"{line}\n\n\tat org.apache.spark.api.python.Foo.bar(Foo.scala:1)\n"
    )


def hint_of(text: str) -> str | None:
    return describe(PySparkException(text)).hint


@pytest.mark.parametrize("module", ["rmq", "rmq.spark.wire", "pyspark_rmq", "pyspark_rmq_store"])
def test_a_worker_without_rmq_is_named_with_the_ways_to_bring_it_there(module: str) -> None:
    failure = describe(
        PySparkException(on_worker(f"ModuleNotFoundError: No module named '{module}'"))
    )
    assert failure.text == f"ModuleNotFoundError: No module named '{module}'"
    assert failure.hint == (
        "rmq is not on 10.0.0.7: send it with spark-submit --py-files or --conf"
        " spark.submit.pyFiles (rmq pipeline bundle FILE writes it), or install rmq[spark] there"
    )


@pytest.mark.parametrize(
    "module", ["numpy", "pyarrow.lib", "msgspec._core", "construct", "prometheus_client"]
)
def test_packages_that_do_not_travel_are_told_apart(module: str) -> None:
    top = module.partition(".")[0]
    assert hint_of(on_worker(f"ModuleNotFoundError: No module named '{module}'")) == (
        f"{top} is not on 10.0.0.7: the bundle has rmq only, because packages with compiled parts"
        " do not travel in a zip file; install rmq[spark] on every node, or send an environment"
        " with spark.archives"
    )


def test_without_a_task_it_is_this_machine() -> None:
    line = "ModuleNotFoundError: No module named 'rmq'"
    planning = f"[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n{line}\n"
    for text in (planning, on_worker(line, "127.0.0.1 executor driver")):
        assert (hint_of(text) or "").startswith("rmq is not on this machine: ")


def test_modules_of_others_and_other_errors_have_no_hint() -> None:
    assert hint_of(on_worker("ModuleNotFoundError: No module named 'mine'")) is None
    assert hint_of(TASK) is None


def test_a_task_whose_host_spark_does_not_tell_was_on_a_worker() -> None:
    """As an action of RDDs says it: only the exception of the worker is kept."""
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'rmq'\n\n"
        "\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:906)\n"
    )
    assert (hint_of(text) or "").startswith("rmq is not on a worker: ")


def test_a_worker_with_another_python_is_named() -> None:
    mismatch = (
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in"
        " worker has different version: 3.10 than that in driver: 3.11"
    )
    must = "must lead to a Python of the driver's version there"
    assert (hint_of(on_worker(mismatch)) or "").startswith(
        f"the Python on 10.0.0.7 is of another version: PYSPARK_PYTHON {must} ("
    )
    missing = 'java.io.IOException: Cannot run program "/opt/py": error=2, No such file'
    assert (hint_of(on_worker(missing)) or "").startswith(
        f"/opt/py does not run on 10.0.0.7: PYSPARK_PYTHON {must} ("
    )


def test_a_full_disk_is_told_without_a_promise() -> None:
    """Replay and redrive have sent messages by then."""
    for error in (
        OSError(28, "No space left on device", "/out/a"),
        OSError(122, "Disk quota exceeded", "/out/a"),
        PySparkException(JAVA),
        RmqError("cannot write /out/ledger: No space left on device"),
    ):
        assert describe(error).hint == (
            "make room in --out or spark.local.dir, then run it again; replay and redrive carry on"
            " with the same --out"
        )
    other = ConfigError("x", "No space left on device", hint="its own")
    assert describe(other).hint == "its own"
