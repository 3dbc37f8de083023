"""Masters and slaves of ours together with stock ones (RocketMQ 4.9.7), with stock clients 4.9.8.

Our slave of a stock master, a stock slave of our master, a slave whose log is another one, and our
brokers under a stock nameserver. Names of parts as arguments run only those.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from diverged_cases import run_diverged_cases
from ha_session import HaSession
from java_slave_cases import run_java_slave_cases
from our_slave_cases import run_our_slave_cases
from promotion_cases import run_promotion_cases
from trimmed_cases import run_trimmed_cases

from interop.support.cases import say
from interop.support.check import run_check
from interop.support.java import fetch_jars, last_words, need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import Operations
from rmq.remoting.client import open_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from interop.support.cases import CaseTable

PEER: Final = "Java master and slave 4.9.7"
TIMEOUT_S: Final = 800
CASES: Final[Mapping[str, Callable[[HaSession], Awaitable[None]]]] = {
    "our-slave": run_our_slave_cases,
    "java-slave": run_java_slave_cases,
    "diverged": run_diverged_cases,
    "promotion": run_promotion_cases,
    "trimmed": run_trimmed_cases,
}
_SERVERS_POM: Final = Path(__file__).resolve().parent.parent / "java-servers" / "pom.xml"


async def main(table: CaseTable, folder: Path, *, parts: Sequence[str]) -> None:
    await need_java_tools()
    jars = await fetch_jars(_SERVERS_POM)
    say("compiling what the stock clients are to do ...")
    kit = await DriverKit.prepare(folder)
    operations = Operations(table, PEER)
    async with open_client() as client:
        session = HaSession(operations, kit, jars, folder, client)
        for name in parts:
            say(f"{name} ...")
            failures = len(table.failures)
            with operations.group(name):
                await CASES[name](session)
            if len(table.failures) > failures:
                _show_logs(folder / name)


def _show_logs(folder: Path) -> None:
    """Print what the servers of a part had to say."""
    for log in sorted(folder.glob("*/log")):
        say(f"---- {log.parent.name}\n{last_words(log)}")


if __name__ == "__main__":
    wanted = sys.argv[1:] or list(CASES)
    sys.exit(run_check(partial(main, parts=wanted), timeout_s=TIMEOUT_S))
