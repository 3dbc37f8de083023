"""Our Python client against stock servers and ours, beside the stock Java client.

The servers are those of RocketMQ 4.9.7 (4.9.8 of them was never published) first, then ours; the
same cases run against both. `--against` names one of them. The Java client and mqadmin are 4.9.8.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from admin_client_cases import run_admin_client_cases
from admin_command_cases import run_admin_command_cases
from blocking_cases import run_blocking_cases
from broadcasting_cases import run_broadcasting_cases
from command_line_cases import run_command_line_cases
from lite_cases import run_lite_cases
from operator_cases import run_operator_cases
from ordering_cases import run_ordering_cases
from outage_cases import run_outage_cases
from producing_cases import run_producing_cases
from python_session import BROKER_SETTINGS, PythonSession
from raw_pull_cases import run_raw_pull_cases
from receiving_cases import run_receiving_cases
from redelivery_cases import run_redelivery_cases
from reply_cases import run_reply_cases
from self_signed_cases import run_self_signed_cases
from sharing_cases import run_sharing_cases
from signed_cases import run_signed_cases
from slave_cases import run_slave_cases
from trace_cases import run_trace_cases
from transaction_cases import run_transaction_cases

from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations
from rmq.client.trio.opening import open_producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from interop.support.cases import CaseTable

CLIENT: Final[Mapping[Against, str]] = {
    Against.STOCK: "Python client of rmq, stock servers 4.9.7",
    Against.RMQ: "Python client of rmq, servers of rmq",
}
TIMEOUT_S: Final = 1500
CASES: Final[Mapping[str, Callable[[PythonSession], Awaitable[None]]]] = {
    "producing": run_producing_cases,
    "receiving": run_receiving_cases,
    "broadcasting": run_broadcasting_cases,
    "ordering": run_ordering_cases,
    "transactions": run_transaction_cases,
    "redelivery": run_redelivery_cases,
    "sharing": run_sharing_cases,
    "raw pull": run_raw_pull_cases,
    "lite pull": run_lite_cases,
    "replies": run_reply_cases,
    "operators": run_operator_cases,
    "admin": run_admin_client_cases,
    "blocking": run_blocking_cases,
    "traces": run_trace_cases,
    "command line": run_command_line_cases,
    "admin commands": run_admin_command_cases,
    "TLS": run_self_signed_cases,
    "outages": run_outage_cases,
    "slave": run_slave_cases,
}


async def main(
    table: CaseTable, folder: Path, *, servers: Sequence[Against], only: Sequence[str]
) -> None:
    await need_java_tools()
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    for against in servers:
        operations = Operations(table, CLIENT[against], prefix=f"{against}: ")
        place = folder / str(against)
        (place / "signed").mkdir(parents=True)
        if not only or set(only) != {"signed"}:
            await _run_cases(operations, kit, place, against, only)
        if not only or "signed" in only:
            say(f"{against}: signed ...")
            with operations.group("signed"):
                await run_signed_cases(operations, kit, place / "signed", against)


async def _run_cases(
    operations: Operations, kit: DriverKit, folder: Path, against: Against, only: Sequence[str]
) -> None:
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-a")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        async with (
            kit.driver(cluster.nameserver) as driver,
            driver.producer("writer") as java,
            driver.pull_consumer("reader", group="readers") as reader,
            open_producer(cluster.nameserver, "py-producers") as producer,
        ):
            session = PythonSession(
                operations, against, cluster, broker, kit, driver, java, reader, producer
            )
            for name, run in CASES.items():
                if not only or name in only:
                    say(f"{against}: {name} ...")
                    with operations.group(name):
                        await run(session)
        with operations.operation("servers", "no errors in their logs"):
            expect("logged", cluster.logged_errors(), [])


def parse_arguments(arguments: Sequence[str]) -> tuple[list[Against], list[str]]:
    """Return whose servers to run against, and which groups of cases (none: all)."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--against", type=Against, choices=list(Against), help="whose servers (default: both)"
    )
    parser.add_argument("only", nargs="*", metavar="GROUP", help="groups of cases (default: all)")
    parsed = parser.parse_args(arguments)
    unknown = set(parsed.only) - {*CASES, "signed"}
    if unknown:
        parser.error(f"no cases {', '.join(sorted(unknown))}; there are: {', '.join(CASES)}")
    against: Against | None = parsed.against
    if against is None and os.environ.get("RMQ_INTEROP_AGAINST") == Against.STOCK:
        against = Against.STOCK
    servers = [Against.STOCK, Against.RMQ] if against is None else [against]
    return servers, parsed.only


if __name__ == "__main__":
    wanted_servers, wanted_cases = parse_arguments(sys.argv[1:])
    sys.exit(
        run_check(partial(main, servers=wanted_servers, only=wanted_cases), timeout_s=TIMEOUT_S)
    )
