"""The stock mqadmin of RocketMQ 4.9.8 against our nameserver and broker.

Each case runs a command and compares what it printed with what there is, and what it changed with
what it should have. With `--against stock` the same cases run against the stock servers.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from interop.checks.mqadmin.admin_session import (
    BROKER_SETTINGS,
    DATA,
    WATCHERS,
    AdminSession,
    send_data,
)
from interop.checks.mqadmin.broker_commands import run_broker_commands
from interop.checks.mqadmin.cleaning_commands import run_cleaning_commands
from interop.checks.mqadmin.client_commands import run_client_commands
from interop.checks.mqadmin.group_commands import run_group_commands
from interop.checks.mqadmin.message_commands import run_message_commands
from interop.checks.mqadmin.nameserver_commands import run_nameserver_commands
from interop.checks.mqadmin.offset_commands import run_offset_commands
from interop.checks.mqadmin.statistics_commands import run_statistics_commands
from interop.checks.mqadmin.topic_commands import run_topic_commands
from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster, parse_against
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from interop.support.cases import CaseTable

TOOL: Final = "mqadmin 4.9.8"
TIMEOUT_S: Final = 400


async def main(cases: CaseTable, folder: Path, *, against: Against) -> None:
    await need_java_tools()
    say("compiling what runs mqadmin ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(cases, TOOL)
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-a")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        async with (
            kit.driver(cluster.nameserver) as tool,
            kit.driver(cluster.nameserver) as driver,
            driver.producer("writer") as producer,
            driver.pull_consumer("reader", group="readers") as reader,
        ):
            session = AdminSession(operations, cluster, broker, kit, tool, driver, producer, reader)
            with operations.group("all commands"):
                await run_all(session)
        with operations.operation("servers", "no errors in their logs"):
            expect("logged", cluster.logged_errors(), [])


async def run_all(session: AdminSession) -> None:
    data = await send_data(session)
    await session.consume_all(WATCHERS, DATA, len(data.messages))
    watching = session.driver.push_consumer(
        WATCHERS, group=WATCHERS, topic=DATA, expression="TagA || TagB"
    )
    async with watching as watcher:
        await _run(session, "topics", run_topic_commands(session, data))
        await _run(session, "messages", run_message_commands(session, data, watcher))
        await _run(session, "clients", run_client_commands(session, watcher))
        await _run(session, "brokers", run_broker_commands(session))
    await _run(session, "offsets", run_offset_commands(session))
    await _run(session, "groups", run_group_commands(session))
    await _run(session, "nameserver", run_nameserver_commands(session))
    await _run(session, "statistics", run_statistics_commands(session))
    await _run(session, "cleaning", run_cleaning_commands(session))


async def _run(session: AdminSession, name: str, commands: Awaitable[None]) -> None:
    say(f"{name} ...")
    with session.operations.group(name):
        await commands


if __name__ == "__main__":
    sys.exit(run_check(partial(main, against=parse_against(sys.argv[1:])), timeout_s=TIMEOUT_S))
