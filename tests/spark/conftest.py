"""One session of Spark for all tests of a process: starting Java takes longer than most of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from pyspark.logger import PySparkLogger

from rmq.spark.session import open_session
from tests.spark.quick_spark import QUICK_SPARK

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
            **QUICK_SPARK,
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()
