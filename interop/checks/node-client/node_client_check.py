"""The Node client ali-ons 3.12.0 against our nameserver and broker.

The cases are in `interop/node_client`. With `--against stock` they run against the stock servers:
what they expect is what RocketMQ does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from interop.support.case_lines import read_topics, run_cases
from interop.support.cases import CaseTable, say
from interop.support.check import run_check
from interop.support.cluster import Against, open_cluster, parse_against
from interop.support.java import CACHE, MissingPartError
from interop.support.tools import need_tool, run_tool
from interop.support.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT: Final = "Node client ali-ons 3.12.0"
TIMEOUT_S: Final = 600
SOURCES: Final = Path(__file__).resolve().parent.parent.parent / "node_client"

VERSION_MIN: Final = (18,)
DOWNLOAD_TIMEOUT_S: Final = 300

BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "enablePropertyFilter": "true",
    # Level 1 as it always is; retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 2s 3s",
}


async def main(table: CaseTable, folder: Path, *, against: Against) -> None:
    packages = await fetch_packages()
    program = ["node", str(SOURCES / "main.js")]
    environment = {**os.environ, "HOME": str(folder), "NODE_PATH": str(packages)}
    async with open_cluster(against, folder) as cluster:
        say(f"starting the nameserver and the broker of {against} ...")
        await cluster.add_nameserver()
        broker = cluster.place_broker("broker-a")
        await cluster.start_broker(broker, BROKER_SETTINGS)
        topics = await read_topics(program, environment=environment)
        await create_topics(cluster, broker, topics)
        say("running the cases ...")
        await run_cases(
            table,
            CLIENT,
            [*program, "run", cluster.nameserver, broker.address],
            environment=environment,
            folder=folder,
        )


async def fetch_packages() -> Path:
    """Return a folder with the packages of the client, downloaded if need be."""
    await need_tool("node", "--version", version_min=VERSION_MIN)
    if shutil.which("npm") is None:
        raise MissingPartError("`npm` is not installed")
    lock = SOURCES / "package-lock.json"
    home = CACHE / "node" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    packages = home / "node_modules"
    if packages.is_dir():
        return packages
    say("fetching the Node client ...")
    # The folder gets its name only when it is complete: an interrupted download leaves no lie.
    partial_home = home.with_suffix(".partial")
    shutil.rmtree(partial_home, ignore_errors=True)
    partial_home.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(SOURCES / name, partial_home / name)
    fetched = await run_tool(
        "npm",
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        f"--cache={CACHE / 'npm'}",
        folder=partial_home,
        timeout_s=DOWNLOAD_TIMEOUT_S,
    )
    if fetched.code:
        raise MissingPartError(f"npm could not fetch the client:\n{fetched.text.strip()[:1000]}")
    partial_home.rename(home)
    return packages


if __name__ == "__main__":
    sys.exit(run_check(partial(main, against=parse_against(sys.argv[1:])), timeout_s=TIMEOUT_S))
