"""The Spark formats of rmq against stock servers (RocketMQ 4.9.7) and beside stock clients (4.9.8).

Topics, stores and groups of stock brokers as tables, rows as messages for stock consumers, and the
pipelines on both. Names of parts as arguments run only those.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from pipeline_cases import run_pipeline_cases
from place_cases import run_place_cases
from reading_cases import run_reading_cases
from sink_cases import run_sink_cases
from spark_side import open_spark
from stock_session import BROKER_SETTINGS, StockSession
from store_cases import run_store_cases
from stream_cases import run_stream_cases

from interop.support.cases import say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations
from interop.support.spark import need_spark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from interop.support.cases import CaseTable

CLIENT: Final = "Spark formats of rmq, stock servers 4.9.7"
TIMEOUT_S: Final = 2400
CASES: Final[Mapping[str, Callable[[StockSession], Awaitable[None]]]] = {
    "batch": run_reading_cases,
    "places": run_place_cases,
    "stream": run_stream_cases,
    "sink": run_sink_cases,
    "store": run_store_cases,
    "pipelines": run_pipeline_cases,
}


async def main(table: CaseTable, folder: Path, *, parts: Sequence[str]) -> None:
    await need_java_tools()
    java = need_spark()
    say(f"Spark runs on Java {java.version}, {java.origin}")
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(table, CLIENT)
    (folder / "servers").mkdir()
    (folder / "spark").mkdir()
    async with open_cluster(Against.STOCK, folder / "servers") as cluster:
        say("starting a stock nameserver and two stock brokers ...")
        await cluster.add_nameserver()
        broker, other = cluster.place_broker("broker-a"), cluster.place_broker("broker-b")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        await cluster.start_broker(other, BROKER_SETTINGS)
        say("starting Spark ...")
        async with (
            kit.driver(cluster.nameserver) as driver,
            driver.producer("writer") as java_producer,
            driver.pull_consumer("reader", group="readers") as reader,
            open_spark(folder / "spark", cluster.nameserver) as spark,
        ):
            session = StockSession(
                operations,
                cluster,
                broker,
                other,
                driver,
                java_producer,
                reader,
                spark,
                folder / "spark",
            )
            await session.fill_first()
            for name in parts:
                say(f"{name} ...")
                with operations.group(name):
                    await CASES[name](session)


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(CASES)
    if unknown := set(wanted) - set(CASES):
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(CASES)}")
    sys.exit(run_check(partial(main, parts=wanted), timeout_s=TIMEOUT_S))
