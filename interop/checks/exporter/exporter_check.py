"""The stock rocketmq-exporter, which Prometheus scrapes, beside our nameserver and our pair.

It collects through the admin protocol, and takes the answers apart without any guard. The same
cases run against a stock pair (4.9.7) first, then against ours; at last the series of both are
compared. `--against stock` leaves ours out.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from interop.checks.exporter.exporter_families import FILLED
from interop.checks.exporter.exporter_session import open_session, start_pair
from interop.checks.exporter.moving_cases import run_moving_cases
from interop.checks.exporter.resting_cases import run_resting_cases
from interop.checks.exporter.series import expect_same_series, series_of
from interop.checks.exporter.stock_exporter import exporter_jar, exporter_version, running_exporter
from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster, parse_against
from interop.support.java import need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from interop.checks.exporter.exporter_session import ExporterSession
    from interop.checks.exporter.series import Series
    from interop.checks.exporter.stock_exporter import Scrape
    from interop.support.cases import CaseTable

SERVERS: Final = {Against.STOCK: "stock servers 4.9.7", Against.RMQ: "servers of rmq"}
TIMEOUT_S: Final = 1500


async def main(table: CaseTable, folder: Path, *, servers: Sequence[Against]) -> None:
    await need_java_tools()
    jar = exporter_jar()
    say("compiling what the stock client is to do ...")
    kit = await DriverKit.prepare(folder)
    seen: dict[Against, Series] = {}
    for against in servers:
        name = f"rocketmq-exporter {exporter_version(jar)}, {SERVERS[against]}"
        operations = Operations(table, name, prefix=f"{against}: ")
        with operations.group("exporter"):
            place = folder / str(against)
            await trio.Path(place).mkdir()
            seen[against] = await run_cases(operations, against, kit, jar, place)
        if len(seen) == len(Against):
            with operations.operation("series", "those of the stock servers, no more and no less"):
                expect_same_series(seen[Against.RMQ], seen[Against.STOCK])


async def run_cases(
    operations: Operations, against: Against, kit: DriverKit, jar: Path, folder: Path
) -> Series:
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the pair of {against} ...")
        pair = await start_pair(cluster)
        say(f"{against}: starting the exporter ...")
        async with (
            running_exporter(jar, folder, cluster.nameserver) as exporter,
            open_session(operations, against, cluster, pair, kit, exporter) as session,
        ):
            series = await run_session(session)
        with operations.operation("servers", "no errors in their logs"):
            expect("logged", cluster.logged_errors(), [])
    return series


async def run_session(session: ExporterSession) -> Series:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.flow.run)
        say(f"{session.against}: rates ...")
        await run_moving_cases(session)
        await session.eventually(
            "families", f"{len(FILLED)}, which are all that it ever fills", _filled
        )
        series = series_of(session, await session.exporter.scrape())
        session.flow.stop()
    say(f"{session.against}: state ...")
    await run_resting_cases(session)
    with session.operations.operation("exporter", "no errors in its log"):
        expect("logged", session.exporter.errors(), [])
    return series


def _filled(_session: ExporterSession, seen: Scrape) -> None:
    missing, unexpected = FILLED - seen.families.keys(), seen.families.keys() - FILLED
    expect("families that are missing", missing, frozenset())
    expect("families that are not known", unexpected, frozenset())


if __name__ == "__main__":
    wanted = parse_against(sys.argv[1:])
    both = [Against.STOCK, Against.RMQ] if wanted is Against.RMQ else [wanted]
    sys.exit(run_check(partial(main, servers=both), timeout_s=TIMEOUT_S))
