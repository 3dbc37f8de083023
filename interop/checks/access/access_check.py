"""The stock Java client and mqadmin of RocketMQ 4.9.8 against brokers with access control.

Accounts sign with the client's AclClientRPCHook, and mqadmin with its `tools.yml`. What accounts
may do works, everything else is refused in the words of RocketMQ; files of accounts go from one
kind of broker to the other. With `--against stock` the same cases run against the stock servers.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from interop.checks.access.access_session import (
    ADMIN,
    BROKER_SETTINGS,
    TOPICS,
    AccessSession,
    accounts,
    place_of_accounts,
)
from interop.checks.access.client_cases import run_client_cases
from interop.checks.access.file_cases import run_file_cases
from interop.checks.access.mqadmin_cases import run_mqadmin_cases
from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster, parse_against
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations

if TYPE_CHECKING:
    from pathlib import Path

    from interop.support.cases import CaseTable

CLIENT: Final = "Java client and mqadmin 4.9.8, access control"
TIMEOUT_S: Final = 600


async def main(cases: CaseTable, folder: Path, *, against: Against) -> None:
    await need_java_tools()
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(cases, CLIENT)
    place = folder / "cluster"
    place.mkdir()
    async with open_cluster(against, place) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-acl")
        place_of_accounts(against, place, broker).write_text(accounts())
        await cluster.start_broker(broker, BROKER_SETTINGS)
        session = AccessSession(operations, against, cluster, broker, kit)
        async with session.mqadmin(ADMIN) as admin:
            for topic in TOPICS:
                await admin.run("updateTopic", "-b", broker.address, "-t", topic)
        async with kit.driver(cluster.nameserver) as driver:
            say("clients ...")
            with operations.group("client"):
                await run_client_cases(session, driver)
            say("mqadmin ...")
            with operations.group("mqadmin"):
                await run_mqadmin_cases(session, driver)
        with operations.operation("servers", "no errors in their logs"):
            # One case has given the broker a file that cannot be read.
            about_that = "access control goes on with the rules it has"
            logged = [line for line in cluster.logged_errors() if about_that not in line]
            expect("logged", logged, [])
    if against is Against.RMQ:
        # Both kinds of servers take part in these.
        say("files ...")
        with operations.group("files"):
            await run_file_cases(operations, kit, folder)


if __name__ == "__main__":
    sys.exit(run_check(partial(main, against=parse_against(sys.argv[1:])), timeout_s=TIMEOUT_S))
