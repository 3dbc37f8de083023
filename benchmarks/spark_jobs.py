"""One measured job of Spark in a process of its own: `python -m benchmarks.spark_jobs`.

The job is a JSON object on standard input, what came of it one on standard output. Work is done
before it is measured, so that Java has compiled it and the Python workers are there: reads twice as
a whole, writes on a twentieth of the data.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_naive import NaiveStoreSource, NaiveWireSource
from benchmarks.spark_process import ExecutorMemory, cpu_seconds, descendants
from rmq.spark import open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

Job = dict[str, Any]
CONF: Final = {"spark.driver.memory": "4g"}
WARM_READS: Final = 2
"""Java goes on to compile during the second one."""


def main() -> None:
    job: Job = json.load(sys.stdin)
    # Whatever else is printed must not be taken for the result.
    result_fd = os.dup(1)
    os.dup2(2, 1)
    spark = open_session(
        "bench", f"local[{job['cores']}]", {**CONF, **job.get("conf", {})}, quiet=True
    )
    spark.dataSource.register(NaiveStoreSource)
    spark.dataSource.register(NaiveWireSource)
    try:
        result = JOBS[job["kind"]](spark, job)
    finally:
        spark.stop()
    os.write(result_fd, json.dumps(result).encode())


def read(spark: SparkSession, job: Job) -> Job:
    """Read a table and throw it away."""
    for _ in range(WARM_READS):
        to_noop(load(spark, job))
    return measured(lambda: to_noop(load(spark, job)))


def memory(spark: SparkSession, job: Job) -> Job:
    """Read a table several times in one query, and watch the processes of the executor."""
    table = load(spark, job)
    whole = table
    for _ in range(job["times"] - 1):
        whole = whole.union(table)
    to_noop(table)
    with ExecutorMemory() as watched:
        result = measured(lambda: to_noop(whole))
    for name, samples in (("python", watched.python), ("java", watched.java)):
        half = len(samples) // 2
        result[f"{name}_bytes"] = [max(samples[:half], default=0), max(samples[half:], default=0)]
    return result


def write(spark: SparkSession, job: Job) -> Job:
    """Send the rows of a table of numbers to a topic."""

    def send(count: int, topic: str) -> None:
        rows = spark.range(0, count, 1, job["cores"] * 2).selectExpr(
            "cast(rpad(cast(id as string), {}, 'x') as binary) as body".format(job["body_bytes"]),
            "'TagA' as tags",
            "concat('key-', id) as keys",
        )
        writer = rows.write.format("rocketmq").mode("append").option("topic", topic)
        writer.options(**job["options"]).save()

    if job["warms_up"]:
        send(job["count"] // 20, job["topic"])
    return measured(lambda: send(job["count"], job["topic"]))


def save(spark: SparkSession, job: Job) -> Job:
    """Read a table and write it as Parquet."""
    load(spark, job).write.mode("overwrite").parquet(job["out"])
    return measured(lambda: load(spark, job).write.mode("overwrite").parquet(job["out"]))


def pipeline(spark: SparkSession, job: Job) -> Job:
    """Run a pipeline as its command does, in this session."""
    from rmq.spark.pipelines.catalogue import PIPELINES
    from rmq.spark.pipelines.job import build_parser, run_pipeline

    known = {each.name: each for each in PIPELINES}
    name, *arguments = job["arguments"]
    parsed = build_parser(known[name]).parse_args(arguments)
    codes: list[int] = []
    result = measured(lambda: codes.append(run_pipeline(known[name], parsed)))
    result["code"] = codes[0]
    return result


JOBS: Final[dict[str, Callable[[SparkSession, Job], Job]]] = {
    "read": read,
    "memory": memory,
    "write": write,
    "save": save,
    "pipeline": pipeline,
}


def load(spark: SparkSession, job: Job) -> DataFrame:
    return spark.read.format(job["format"]).options(**job["options"]).load(job.get("path"))


def to_noop(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def measured(work: Callable[[], None]) -> Job:
    pids = descendants(os.getpid())
    cpu, started = cpu_seconds(pids), time.perf_counter()
    work()
    elapsed = time.perf_counter() - started
    return {"wall_s": elapsed, "cpu_s": cpu_seconds(descendants(os.getpid())) - cpu}


if __name__ == "__main__":
    main()
