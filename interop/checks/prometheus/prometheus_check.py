"""A real Prometheus with the generated rules beside a pair, a lone master and a nameserver.

It scrapes every second, and the times of all rules (`for`, windows, offsets) are divided by 20, so
that a fault of minutes shows within seconds. Faults are staged for real, under load: processes are
killed and stopped, a disk fills, consumers hang. Every alert of a fault must fire, and all must be
quiet when it is repaired.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import trio

from interop.checks.prometheus.fault_cases import run_fault_cases
from interop.checks.prometheus.operator_cases import run_operator_cases
from interop.checks.prometheus.prometheus_server import (
    adapt,
    need_prometheus,
    running_prometheus,
    version_of,
)
from interop.checks.prometheus.prometheus_session import Session
from interop.checks.prometheus.query_cases import run_metrics_cases, run_query_cases
from interop.checks.prometheus.watched_cluster import TOPIC, watched_cluster
from interop.support.cases import expect, expect_true, say
from interop.support.check import run_check
from interop.support.results import Operations
from interop.support.tools import run_tool
from rmq.client import ConsumeFrom, open_push_consumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from interop.checks.prometheus.watched_cluster import Watched
    from interop.support.cases import CaseTable
    from rmq.client import ReceivedMessage

TIMEOUT_S: Final = 1500
HEALTHY_S: Final = 45
"""So long nothing may fire: longer than most windows, divided."""


async def main(table: CaseTable, folder: Path) -> None:
    program, promtool = need_prometheus()
    operations = Operations(table, f"Prometheus {await version_of(program)}")
    say("starting a nameserver, a pair and a lone master ...")
    async with AsyncExitStack() as stack:
        watched = await stack.enter_async_context(watched_cluster(folder))
        await stack.enter_async_context(
            open_push_consumer(
                watched.cluster.nameserver,
                "readers",
                {TOPIC: "*"},
                _accept,
                consume_from=ConsumeFrom.FIRST,
            )
        )
        files = await generated(watched, folder)
        with operations.operation("files", "promtool accepts what is generated"):
            paths = [str(path) for path in sorted(files.glob("*-*.yml"))]
            for command in (("rules", *paths), ("config", str(files / "prometheus.yml"))):
                done = await run_tool(promtool, "check", *command, timeout_s=60)
                expect_true(f"no fault found: {done.text}", done.code == 0)
        adapt(files)
        server = await stack.enter_async_context(running_prometheus(program, files))
        await server.target(watched.brokers, [watched.nameserver_metrics])
        nursery = await stack.enter_async_context(trio.open_nursery())
        session = Session(operations, server, promtool, watched, time.time(), nursery)
        await run_session(session, folder)
        nursery.cancel_scope.cancel()
    with operations.operation("servers", "messages were sent"):
        expect_true("a load", watched.sent > 1000)


async def run_session(session: Session, folder: Path) -> None:
    say(f"a healthy cluster, for {HEALTHY_S} s ...")
    await trio.sleep(5)
    await session.until_quiet()
    await run_metrics_cases(session)
    with session.operations.operation("healthy", "no alert fires", timeout_s=HEALTHY_S + 30):
        seen = set()
        with trio.move_on_after(HEALTHY_S):
            while True:
                seen |= await session.unexpected()
                await trio.sleep(1)
        expect("alerts", seen, set())
    say("faults ...")
    await run_fault_cases(session, folder)
    await run_operator_cases(session)
    say("queries ...")
    await run_query_cases(session)


async def generated(watched: Watched, folder: Path) -> Path:
    """Write the files as an operator does."""
    out = folder / "generated"
    command = [sys.executable, "-m", "rmq", "generate", "prometheus", "--out", str(out)]
    command += ["--brokers", ";".join(watched.brokers), "-n", watched.cluster.nameserver]
    done = await run_tool(*command, timeout_s=60, environment=dict(os.environ))
    expect(f"exit code ({done.text})", done.code, 0)
    return out


async def _accept(_messages: Sequence[ReceivedMessage]) -> None:
    pass


if __name__ == "__main__":
    sys.exit(run_check(main, timeout_s=TIMEOUT_S))
