"""One store directory, our engine and the stock broker of RocketMQ 4.9.7 in turn.

The broker starts on stores that our engine wrote, closed and killed, and the stock client reads
every message; our engine opens what the broker has written, closed and killed. Whoever has it finds
all that was acknowledged, in order, once.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from closed_store import run_closed_store
from default_sizes import ROOM_BYTES, run_default_sizes
from java_side import JavaSide
from killed_store import run_killed_store
from numbered_runs import NUMBERS, SINGLE
from ping_pong import run_ping_pong
from store_place import DEFAULT, StorePlace
from varied_messages import VARIED_TOPICS

from interop.support.cases import say
from interop.support.check import run_check
from interop.support.java import MissingPartError, compile_java, fetch_jars, need_java_tools
from interop.support.stock import HA_DISTANCE, VIP_DISTANCE, ServerHome, free_port, stock_nameserver

if TYPE_CHECKING:
    from interop.support.cases import CaseTable

HERE: Final = Path(__file__).resolve().parent
SERVERS_POM: Final = HERE.parent / "java-servers" / "pom.xml"
TIMEOUT_S: Final = 400
TOPICS: Final = {**VARIED_TOPICS, NUMBERS: 4, SINGLE: 1}


async def main(table: CaseTable, folder: Path) -> None:
    await need_java_tools()
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise MissingPartError(f"{ROOM_BYTES >> 30} GiB of room in {folder}, not {free >> 30}")
    server_jars = await fetch_jars(SERVERS_POM)
    client_jars = await fetch_jars(HERE / "pom.xml")
    say("compiling what the stock client is to do ...")
    classes = folder / "classes"
    await compile_java(HERE / "java", client_jars, classes)
    home = ServerHome(server_jars, folder, {})
    async with stock_nameserver(home) as nameserver:
        java = JavaSide(home, nameserver, [str(classes), f"{client_jars}/*"], TOPICS)
        port = free_port(VIP_DISTANCE, HA_DISTANCE)
        await run_closed_store(table, java, StorePlace(folder / "closed", port))
        await run_killed_store(table, java, StorePlace(folder / "killed", port))
        await run_ping_pong(table, java, StorePlace(folder / "ping-pong", port))
        await run_default_sizes(table, java, StorePlace(folder / "default", port, DEFAULT))


if __name__ == "__main__":
    sys.exit(run_check(main, timeout_s=TIMEOUT_S))
