"""Rounds of kills, hangs, cuts, switches and promotions under the load of the stock Java client.

    interop/run java-rounds --rounds 10 --only planned

The client of RocketMQ 4.9.8 sends with its default settings and its own retries. What is done to
the pair, how it is judged and what is printed is that of `tests/ha/processes/rounds.py`.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final

import trio
from steady_load import SteadyLoad

from interop.support.cases import say
from interop.support.check import EXIT_MISSING
from interop.support.java import CACHE, MissingPartError, need_java_tools
from interop.support.java_client import DriverKit
from interop.support.results import record
from tests.ha.processes.rounds import live

if TYPE_CHECKING:
    from pathlib import Path

CLIENT: Final = "Java client 4.9.8, rounds"


def prepare(folder: Path) -> SteadyLoad:
    """Fetch and compile in a process of its own, whose threads end before the network is made."""
    say("compiling what the stock client is to do ...")
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as other:
        classpath = other.submit(trio.run, _compile, folder).result()
    return SteadyLoad(DriverKit(folder, classpath))


async def _compile(folder: Path) -> tuple[str, ...]:
    await need_java_tools()
    return (await DriverKit.prepare(folder)).classpath


def main() -> int:
    CACHE.mkdir(exist_ok=True)
    try:
        code = live(prepare, (__doc__ or "").partition("\n")[0], scratch=CACHE)
    except MissingPartError as exc:
        say(f"missing: {exc}")
        return EXIT_MISSING
    if code != EXIT_MISSING:
        what = "send: all the time, while a pair is killed, hung, cut, switched and promoted"
        record(CLIENT, what, passed=code == 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
