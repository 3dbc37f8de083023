"""A nameserver and a broker as processes, and `rmq` run against them as users do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rmq.cli.dev.processes import free_port
from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.errors import NoRouteError
from rmq.remoting.bodies import format_properties
from tests.broker.broker_kit import NEVER_FULL, SMALL_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.client.core.messages import Message
    from rmq.client.core.received import ReceivedMessage

DEADLINE_S: Final = 60
HOST: Final = "127.0.0.1"


def environment() -> dict[str, str]:
    """That of a user who has set nothing."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RMQ_") and name != "NAMESRV_ADDR"
    }


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start `rmq` with pipes all around."""
    return subprocess.Popen(
        [sys.executable, "-m", "rmq", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


class Processes:
    """What runs."""

    def __init__(self, nameserver: str, broker: subprocess.Popen[bytes]) -> None:
        self.nameserver = nameserver
        self.broker = broker

    def rmq(
        self, command: str, *arguments: str, lines: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "rmq", command, "-n", self.nameserver, *arguments],
            input=lines,
            capture_output=True,
            timeout=DEADLINE_S,
            env=environment(),
            check=False,
        )

    def put(self, *messages: Message) -> None:
        """Store messages that are there to be consumed, without a process."""
        with BlockingProducer(self.nameserver, "fillers") as producer:
            for message in messages:
                producer.send(message)

    def stored(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, queue by queue; none if there is no such topic yet."""
        with BlockingConsumer(self.nameserver, "readers") as consumer:
            try:
                ends = consumer.end_offsets(consumer.queues(topic))
            except NoRouteError:
                return []
            return [
                message
                for queue, end in ends.items()
                for message in consumer.read_range(queue, 0, end)
            ]

    def start(self, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        return start(command, "-n", self.nameserver, *arguments)


@contextmanager
def running(root: Path, **settings: str) -> Iterator[Processes]:
    """Run a nameserver and a broker for the length of a block."""
    port = free_port(HOST, -2, 1)
    with _up("namesrv", root / "namesrv.conf", _nameserver(root)) as (_, first):
        nameserver = first.removeprefix("nameserver listens on ").strip()
        conf = {
            **SMALL_STORE,
            **NEVER_FULL,
            "bindAddress": HOST,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": str(port),
            "metricsPort": "0",
            "namesrvAddr": nameserver,
            "storePathRootDir": str(root / "store"),
            "mappedFileSizeCommitLog": str(16 * 1024**2),
            "enablePropertyFilter": "true",
            "shutdownDrainTime": "100",
            **settings,
        }
        with _up("broker", root / "broker.conf", conf) as (broker, _):
            yield Processes(nameserver, broker)


def _nameserver(root: Path) -> dict[str, str]:
    return {
        "bindAddress": HOST,
        "listenPort": "0",
        "metricsPort": "0",
        "kvConfigPath": str(root / "kvConfig.json"),
        "configStorePath": str(root / "namesrv.properties"),
    }


@contextmanager
def _up(
    command: str, conf: Path, settings: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a server; give it and the first line that it printed."""
    conf.write_bytes(format_properties(settings))
    process = start("--log-level", "error", command, "-c", str(conf))
    try:
        assert process.stdout is not None
        first = last = process.stdout.readline().decode()
        while "boot success" not in last:
            assert last, process.communicate(timeout=DEADLINE_S)[1].decode()
            last = process.stdout.readline().decode()
        yield process, first
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
