"""One session of Spark for all tests of a process: starting Java takes longer than most of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.logger import PySparkLogger

from rmq.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def logs_keep_their_format(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep log texts plain, for the tests that follow in this process, too.

    After an error PySpark has loggers that do not propagate and that make every handler they get
    write JSON; pytest gives its handlers to all loggers that do not propagate.
    """
    yield
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, PySparkLogger):
            logger.propagate = True
    plugin = request.config.pluginmanager.getplugin("logging-plugin")
    assert plugin is not None
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "rmq tests",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            # To write and compile Java for a query, and to plan it anew at each shuffle, takes
            # longer than these queries do: a fifth of the CPU time of test_dlq.py. The demo
            # (tests/cli/pipeline) and test_own_process.py run with what users have.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.driver.memory": "1g",
        },
    )
    yield session
    session.stop()
