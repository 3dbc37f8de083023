"""The line that a person needs, out of everything that Spark says about an error."""

from __future__ import annotations

import pytest

from rmq.spark.pipelines.failures import TEXT_MAX, spark_reason

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
