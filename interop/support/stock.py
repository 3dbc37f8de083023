"""The stock nameserver and broker as processes: where they listen, when they are ready.

What a broker is told beyond its address, and how it comes to its end, is up to who runs it.
"""

from __future__ import annotations

import random
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from interop.support.java import JavaProgram, last_words, running_java

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

START_TIMEOUT_S: Final = 60
VIP_DISTANCE: Final = -2
HA_DISTANCE: Final = 1

# Below the range that systems take the ports of outgoing connections from: a broker comes back to
# its port after a restart, and no client may have got it meanwhile.
_PORTS: Final = range(20_000, 32_000)

# Nothing is logged: each start would otherwise fill thirty files.
_LOGBACK: Final = '<configuration><root level="OFF"/></configuration>\n'


@dataclass(frozen=True)
class ServerHome:
    """What servers of one check are started with."""

    jars: Path
    folder: Path
    """Logs and local state go here."""
    properties: Mapping[str, str]
    """System properties for all of them."""

    def __post_init__(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        for name in ("logback_namesrv.xml", "logback_broker.xml"):
            (conf / name).write_text(_LOGBACK)

    def program(self, main_class: str, config: Path) -> JavaProgram:
        return JavaProgram(
            main_class=main_class,
            arguments=("-c", str(config)),
            classpath=[f"{self.jars}/*"],
            home=self.folder,
            properties={
                # A machine whose disk is nearly full is no reason to refuse some messages.
                "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
                "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
                "tls.config.file": str(self.folder / "none"),
                **self.properties,
            },
            jvm_options=("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g"),
            environment={"ROCKETMQ_HOME": str(self.folder)},
        )


@asynccontextmanager
async def stock_nameserver(home: ServerHome) -> AsyncIterator[str]:
    """Run a nameserver for the length of a block; its address is given."""
    port = free_port()
    config = write_properties(
        home.folder / "conf" / "namesrv.conf",
        {"listenPort": str(port), "kvConfigPath": str(home.folder / "kvConfig.json")},
    )
    program = home.program("org.apache.rocketmq.namesrv.NamesrvStartup", config)
    log = home.folder / "nameserver.log"
    async with running_java(program, log=log) as process:
        await wait_listening(process, port, log)
        yield f"127.0.0.1:{port}"


@asynccontextmanager
async def stock_broker(
    home: ServerHome, port: int, settings: Mapping[str, str]
) -> AsyncIterator[trio.Process]:
    """Run a broker for the length of a block, at most; it listens when the block begins."""
    config = write_properties(
        home.folder / "conf" / "broker.conf",
        {
            "listenPort": str(port),
            "haListenPort": str(port + HA_DISTANCE),
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            **settings,
        },
    )
    program = home.program("org.apache.rocketmq.broker.BrokerStartup", config)
    log = home.folder / "broker.log"
    async with running_java(program, log=log) as process:
        await wait_listening(process, port, log)
        yield process


async def wait_listening(process: trio.Process, port: int, log: Path) -> None:
    """Return when a program listens; raise RuntimeError with its output when it never does."""
    with trio.move_on_after(START_TIMEOUT_S):
        while process.poll() is None:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await trio.sleep(0.05)
            else:
                await stream.aclose()
                return
    raise RuntimeError(f"{log.stem} does not listen on port {port}; it said:\n{last_words(log)}")


def free_port(*distances: int) -> int:
    """Return a port that is free now, and so are the ones at the given distances from it."""
    candidates = random.sample(_PORTS, len(_PORTS))
    return next(
        port
        for port in candidates
        if all(_is_free(port + distance) for distance in (0, *distances))
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
