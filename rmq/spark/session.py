"""Sessions of Spark that know the formats of rmq."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.spark.bundle import bundle_of, own_bundle
from rmq.spark.java import use_java

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
"""All cores of this machine, in one process beside this one."""

DEFAULTS: Final = {
    # Timestamps mean the same everywhere.
    "spark.sql.session.timeZone": "UTC",
    # The size at which batches between Java and Python were fastest.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A retried or doubled task sends its messages again.
    "spark.speculation": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a session unless `conf` or `spark-submit` say otherwise."""

_LOCAL_DEFAULTS: Final = {
    # The machine may have no name that leads back to it.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""Likewise, where everything runs on this machine."""
_LOCAL_MASTER: Final = re.compile(r"local\[(?P<cores>\*|\d+)")
SHUFFLE: Final = "spark.sql.shuffle.partitions"
_SHUFFLES_PER_CORE: Final = 2
"""Of a local session. Spark's own 200 are meant for clusters: each costs a task, also an empty one,
and most of the time of a small query goes to them."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_COLLECTOR: Final = "-XX:+UseParallelGC"
_FAST_JAVA: Final = (
    _COLLECTOR,
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)
"""What makes Java read Arrow batches faster: about a tenth less of its CPU time per row, in single
runs. Arrow leaves out the checks of every access to its buffers, and the collector is the one for
throughput.
"""
_PYTHON: Final = "spark.pyspark.python"
_DRIVER_PYTHON: Final = "spark.pyspark.driver.python"
_sent_to: Final[set[str]] = set()
"""Applications whose workers get rmq from us."""
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
"""What Spark logs in a local session: errors, on standard error."""


def open_session(
    name: str,
    master: str = LOCAL,
    conf: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
) -> SparkSession:
    """Return a session in which the formats `rocketmq` and `rocketmq-store` are known.

    Under `spark-submit` its `--master` and `--conf` count, and `master` does only if it is not the
    default. Without it, rmq itself is sent to the workers of a cluster. A session that this process
    has already is taken as it is, and `conf` is added to it.
    With `quiet`, Java says nothing at its start, and lacks a module that speeds up linear algebra.
    Raises `ConfigError` if there is no Java to run Spark on.
    """
    from pyspark.sql import SparkSession  # `rmq --help` does without Spark

    settings = dict(DEFAULTS)
    builder = SparkSession.builder.appName(name)
    if is_submitted():
        builder = builder if master == LOCAL else builder.master(master)
        settings = {}
    else:
        use_java(quiet=quiet)
        builder = builder.master(master)
        if master.startswith("local"):
            settings.update(_LOCAL_DEFAULTS)
            settings[SHUFFLE] = str(_SHUFFLES_PER_CORE * local_cores(master))
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            use_python(os.environ, conf or {})
    settings.update(conf or {})
    if not is_submitted() and master.startswith("local"):
        settings[_JAVA_OPTIONS] = java_options(settings.get(_JAVA_OPTIONS, ""))
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_submitted():
        for key, value in DEFAULTS.items():
            if spark.conf.get(key, None) is None and spark.conf.isModifiable(key):
                spark.conf.set(key, value)
    else:
        send_bundle(spark)
    register(spark)
    return spark


def java_options(given: str) -> str:
    """Return the options of Java in a local session; what the user gives counts."""
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", *_FAST_JAVA]
    if "GC" in given:
        # Java refuses to start with two collectors.
        options.remove(_COLLECTOR)
    return " ".join([*options, given]).strip()


def local_cores(master: str) -> int:
    """Return how many tasks a local master (`local`, `local[4]`, `local[*,2]`) runs at once."""
    named = _LOCAL_MASTER.match(master)
    if named is None:
        return 1
    return (os.cpu_count() or 1) if named["cores"] == "*" else int(named["cores"])


def register(spark: SparkSession) -> None:
    """Make the formats `rocketmq` and `rocketmq-store` known to a session."""
    from rmq.spark.files.source import StoreDataSource
    from rmq.spark.wire.source import RocketmqDataSource

    bundle = bundle_of(Path(__file__))
    if bundle is not None:
        _lead_to(bundle, spark.sparkContext)
    spark.dataSource.register(RocketmqDataSource)
    spark.dataSource.register(StoreDataSource)


def send_bundle(spark: SparkSession) -> None:
    """Have rmq sent to the workers of a session, once, unless they are on this machine."""
    context = spark.sparkContext
    if (context.master or "local").startswith("local") or context.applicationId in _sent_to:
        return
    bundle = own_bundle()
    context.addPyFile(str(bundle))
    _lead_to(bundle, context)
    _sent_to.add(context.applicationId)


def use_python(
    environ: MutableMapping[str, str],
    conf: Mapping[str, str],
    python: Path = Path(sys.executable),
) -> None:
    """Have Spark plan with this Python, and run tasks with one of the same version.

    Spark has one name for both: the driver plans reads and writes in processes of PYSPARK_PYTHON,
    which workers start as well (4.3). A path to this Python may lead nowhere on a worker. So it is
    a name that workers find on their path, and that leads to this Python on the path of the driver.
    A PYSPARK_PYTHON that is set counts for both.
    """
    environ.setdefault("PYSPARK_DRIVER_PYTHON", conf.get(_DRIVER_PYTHON) or str(python))
    if _PYTHON in conf:
        environ.setdefault("PYSPARK_PYTHON", conf[_PYTHON])
    if "PYSPARK_PYTHON" in environ:
        return
    versioned = f"python{sys.version_info.major}.{sys.version_info.minor}"
    is_there = os.access(python.parent / versioned, os.X_OK)
    environ["PYSPARK_PYTHON"] = versioned if is_there else python.name
    environ["PATH"] = os.pathsep.join(filter(None, (str(python.parent), environ.get("PATH"))))


def _lead_to(bundle: Path, context: SparkContext) -> None:
    """Have Python processes of this machine find rmq in a zip file.

    Spark leads them to the files that it was given, except for the one that plans a stream (4.3).
    """
    environment = context.environment
    environment["PYTHONPATH"] = with_path(environment.get("PYTHONPATH", ""), bundle)


def with_path(paths: str, path: Path) -> str:
    """Return a PYTHONPATH that also leads to `path`."""
    known = [each for each in paths.split(os.pathsep) if each]
    return os.pathsep.join(known if str(path) in known else [*known, str(path)])


def is_submitted() -> bool:
    """Tell whether this process was started by `spark-submit`."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
