"""The stock nameserver and broker, started on free ports with all their state in one folder."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from interop.support.java import JavaProgram, last_words, running_java

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

CLUSTER: Final = "InteropCluster"
BROKER: Final = "broker-a"
START_TIMEOUT_S: Final = 60

_VIP_DISTANCE: Final = -2
_HA_DISTANCE: Final = 1

# Nothing is logged: each start would otherwise fill thirty files.
_LOGBACK: Final = '<configuration><root level="OFF"/></configuration>\n'


@dataclass(frozen=True)
class StockServers:
    """Where the servers listen."""

    nameserver: str
    broker: str
    broker_vip: str
    """The broker's second port, where everything but pulls is served."""


@asynccontextmanager
async def stock_servers(
    jars: Path, folder: Path, tls: Mapping[str, str]
) -> AsyncIterator[StockServers]:
    """Run both servers for the length of a block; they are ready when it begins.

    `tls` are system properties for their permissive TLS mode.
    """
    conf = folder / "conf"
    conf.mkdir()
    for name in ("logback_namesrv.xml", "logback_broker.xml"):
        (conf / name).write_text(_LOGBACK)
    nameserver_port = _free_port()
    broker_port = _free_port(_VIP_DISTANCE, _HA_DISTANCE)
    servers = StockServers(
        f"127.0.0.1:{nameserver_port}",
        f"127.0.0.1:{broker_port}",
        f"127.0.0.1:{broker_port + _VIP_DISTANCE}",
    )
    namesrv_conf = _write_properties(
        conf / "namesrv.conf",
        {"listenPort": str(nameserver_port), "kvConfigPath": str(folder / "kvConfig.json")},
    )
    store = folder / "store"
    broker_conf = _write_properties(
        conf / "broker.conf",
        {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "listenPort": str(broker_port),
            "namesrvAddr": servers.nameserver,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
            "diskMaxUsedSpaceRatio": "95",
        },
    )
    async with AsyncExitStack() as stack:
        for main_class, config, port in (
            ("org.apache.rocketmq.namesrv.NamesrvStartup", namesrv_conf, nameserver_port),
            ("org.apache.rocketmq.broker.BrokerStartup", broker_conf, broker_port),
        ):
            program = JavaProgram(
                main_class=main_class,
                arguments=("-c", str(config)),
                classpath=[f"{jars}/*"],
                home=folder,
                properties={
                    # A machine whose disk is nearly full is no reason to refuse ten messages.
                    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
                    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
                    "tls.config.file": str(folder / "none"),
                    **tls,
                },
                jvm_options=("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g"),
                environment={"ROCKETMQ_HOME": str(folder)},
            )
            log = folder / f"{main_class.rpartition('.')[2]}.log"
            process = await stack.enter_async_context(running_java(program, log=log))
            await _wait_listening(process, port, log)
        yield servers


async def _wait_listening(process: trio.Process, port: int, log: Path) -> None:
    with trio.move_on_after(START_TIMEOUT_S):
        while process.poll() is None:
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await trio.sleep(0.1)
            else:
                await stream.aclose()
                return
    raise RuntimeError(f"{log.stem} does not listen on port {port}; it said:\n{last_words(log)}")


def _free_port(*distances: int) -> int:
    """Return a port that is free now, and so are the ones at the given distances from it."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            if all(_is_free(port + distance) for distance in distances):
                return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
