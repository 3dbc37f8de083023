"""The stock client of RocketMQ 4.9.8 against our nameserver and broker.

With `--against stock` the same cases run against the stock servers: what they expect is what
RocketMQ does.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from client_session import BROKER_SETTINGS, ClientSession
from consuming_cases import run_consuming_cases
from masters_cases import run_masters_cases
from pulling_cases import run_pulling_cases
from querying_cases import run_querying_cases
from rebalance_cases import run_rebalance_cases
from restart_cases import run_restart_cases
from retry_cases import run_retry_cases
from sending_cases import run_sending_cases
from tls_cases import run_tls_cases

from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster, parse_against
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from interop.support.cases import CaseTable

CLIENT: Final = "Java client 4.9.8"
TIMEOUT_S: Final = 600
CASES: Final[Mapping[str, Callable[[ClientSession], Awaitable[None]]]] = {
    "sending": run_sending_cases,
    "consuming": run_consuming_cases,
    "TLS": run_tls_cases,
    "rebalancing": run_rebalance_cases,
    "retrying": run_retry_cases,
    "pulling": run_pulling_cases,
    "querying": run_querying_cases,
    "restarting": run_restart_cases,
    "two masters": run_masters_cases,
}


async def main(table: CaseTable, folder: Path, *, against: Against) -> None:
    await need_java_tools()
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(table, CLIENT)
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-a")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        async with (
            kit.driver(cluster.nameserver) as driver,
            driver.producer("writer") as producer,
            driver.pull_consumer("reader", group="readers") as reader,
        ):
            session = ClientSession(operations, cluster, broker, kit, driver, producer, reader)
            for name, run in CASES.items():
                say(f"{name} ...")
                with operations.group(name):
                    await run(session)
        with operations.operation("servers", "no errors in their logs"):
            expect("logged", cluster.logged_errors(), [])


if __name__ == "__main__":
    sys.exit(run_check(partial(main, against=parse_against(sys.argv[1:])), timeout_s=TIMEOUT_S))
