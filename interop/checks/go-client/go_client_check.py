"""The Go client rocketmq-client-go 2.1.2 against our nameserver and broker.

The cases are in `interop/go_client`. With `--against stock` they run against the stock servers:
what they expect is what RocketMQ does.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interop.support.case_lines import add_operation, read_topics, run_cases
from interop.support.cases import CaseTable, expect, say
from interop.support.check import run_check
from interop.support.cluster import Against, Broker, open_cluster, parse_against
from interop.support.java import CACHE, MissingPartError
from interop.support.tools import need_tool, run_tool
from interop.support.topics import create_topics, max_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT: Final = "Go client 2.1.2"
TIMEOUT_S: Final = 600
SOURCES: Final = Path(__file__).resolve().parent.parent.parent / "go_client"

VERSION_MIN: Final = (1, 20)
DOWNLOAD_TIMEOUT_S: Final = 300
BUILD_TIMEOUT_S: Final = 300

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "enablePropertyFilter": "true",
    # Level 1 as it always is; retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
}


async def main(table: CaseTable, folder: Path, *, against: Against) -> None:
    program = await build(folder)
    environment = {
        **os.environ,
        # Offsets of broadcasting consumers go into the home folder.
        "HOME": str(folder),
        "ROCKETMQ_GO_LOG_LEVEL": "error",
    }
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-a")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        topics = await read_topics([str(program)], environment=environment)
        await create_topics(cluster, broker, topics)
        say("running the cases ...")
        await run_cases(
            table,
            CLIENT,
            [str(program), "run", cluster.nameserver, broker.address],
            environment=environment,
            folder=folder,
        )
        await look_for_dead_letters(table, broker)


async def build(folder: Path) -> Path:
    """Return the program with the cases, built in a temporary folder."""
    await need_tool("go", "version", version_min=VERSION_MIN)
    go = CACHE / "go"
    environment = {
        **os.environ,
        "GOMODCACHE": str(go / "modules"),
        "GOCACHE": str(go / "build"),
        # Whoever deletes the cache should not need Go for it.
        "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
    }
    say("fetching the Go client ...")
    fetched = await run_tool(
        "go",
        "mod",
        "download",
        folder=SOURCES,
        environment=environment,
        timeout_s=DOWNLOAD_TIMEOUT_S,
    )
    if fetched.code:
        raise MissingPartError(
            f"go could not fetch the modules of the client:\n{fetched.text.strip()[-2000:]}"
        )
    say("compiling its cases ...")
    program = folder / "goclient"
    for command in (("vet", "."), ("build", "-o", str(program), ".")):
        built = await run_tool(
            "go", *command, folder=SOURCES, environment=environment, timeout_s=BUILD_TIMEOUT_S
        )
        if built.code:
            raise RuntimeError(f"go {command[0]}: {built.text}")
    return program


async def look_for_dead_letters(table: CaseTable, broker: Broker) -> None:
    """See where the two messages of `retryTooOften` have gone."""
    outcome = CaseTable()
    with outcome.case("retry", "it ends in the dead letter queue"):
        expect("dead letters", await max_offset(broker, "%DLQ%go-hopeless"), 2)
    add_operation(table, CLIENT, outcome.cases[0])


if __name__ == "__main__":
    sys.exit(run_check(partial(main, against=parse_against(sys.argv[1:])), timeout_s=TIMEOUT_S))
