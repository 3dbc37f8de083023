"""A nameserver and brokers as processes of their own, which can be killed.

Each runs the program as `rmq` does. They are forked from a process that has loaded it already, so
that a start takes a moment even on a busy machine. Everything a broker says goes into a file beside
its store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from rmq.cli.app import main
from tests.ha.processes.surroundings import NotAllowedError, Surroundings
from tests.port_shares import own_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

READY: Final = b"boot success"
NOT_ALLOWED: Final = 77
"""With this a process ends that cannot have its surroundings."""
START_S: Final = 30.0
STOP_S: Final = 15.0
SEGMENT_BYTES: Final = 16 * 1024**2
_PORTS: Final = own_share(range(30_000, 32_000))
"""Below those that systems dial from: a broker comes back to its port."""

forks: Final = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["rmq.cli.broker", "rmq.cli.namesrv"])


def _run(arguments: list[str], log: Path, surroundings: Surroundings) -> None:
    """Be one `rmq` process."""
    with log.open("ab") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)
    try:
        surroundings.take_on()
    except NotAllowedError as exc:
        sys.stderr.write(f"{exc}\n")
        sys.exit(NOT_ALLOWED)
    sys.exit(main(arguments))


class Process:
    """One `rmq` command; may be started, killed and started again."""

    def __init__(self, name: str, folder: Path, arguments: list[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.surroundings = Surroundings()
        self._arguments = arguments
        self._process: ForkServerProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def start(self) -> None:
        """Start it and wait until it serves; raise NotAllowedError if it cannot live so."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self._process = forks.Process(
            target=_run, args=(self._arguments, self.log, self.surroundings), daemon=True
        )
        self._process.start()
        deadline = time.monotonic() + START_S
        while READY not in self.said(begin):
            if self._process.exitcode is not None or time.monotonic() > deadline:
                text = self.said(begin).decode(errors="replace")
                if self._process.exitcode == NOT_ALLOWED:
                    raise NotAllowedError(text.strip())
                raise AssertionError(
                    f"{self.name} did not start (exit code {self._process.exitcode}):\n{text}"
                )
            time.sleep(0.01)

    def said(self, begin: int = 0) -> bytes:
        try:
            with self.log.open("rb") as log:
                log.seek(begin)
                return log.read()
        except FileNotFoundError:
            return b""

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As a power switch would for the process; what it wrote is with the system."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None

    def stop(self) -> None:
        """Let it finish in order; one that was paused is killed."""
        if self._process is not None:
            self._process.terminate()
            self._process.join(STOP_S)
            self.kill()


def kill_together(processes: Iterable[Process]) -> None:
    """Kill processes in this order, all of them before the first is waited for. Blocks.

    A master comes first: while it lives, it sees that its slave is gone and tells producers so.
    """
    running = [process for process in processes if process.is_running]
    for process in running:
        process.signal(signal.SIGKILL)
    for process in running:
        process.kill()


class Cluster:
    """One nameserver and the brokers of one name."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        self.nameserver_address = f"{host}:{free_port(host)}"
        conf = folder / "namesrv.conf"
        _, _, port = self.nameserver_address.rpartition(":")
        conf.write_text(
            f"bindAddress={host}\nlistenPort={port}\nmetricsPort=0\n"
            f"kvConfigPath={folder / 'kv.json'}\n"
        )
        self.nameserver = Process("namesrv", folder, ["namesrv", "-c", str(conf)])
        self.brokers: dict[str, Process] = {}
        self.addresses: dict[str, str] = {}

    def add(
        self,
        name: str,
        role: str,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
    ) -> Process:
        """Prepare a broker; `start` it next."""
        host = host or self.host
        # Asked for here, wherever it is going to live.
        port = free_port("127.0.0.1")
        wanted = {
            "brokerClusterName": "C",
            "brokerName": "broker-a",
            "brokerId": str(broker_id),
            "brokerRole": role,
            "brokerIP1": host,
            "brokerIP2": host,
            "bindAddress": host,
            "listenPort": str(port),
            "metricsPort": "0",
            "namesrvAddr": self.nameserver_address,
            "storePathRootDir": str(self.store_of(name)),
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            # No send is refused because the machine is busy.
            "waitTimeMillsInSendQueue": "10000",
            "mappedFileSizeConsumeQueue": "60000",
            "maxHashSlotNum": "20000",
            "maxIndexNum": "80000",
            "diskMaxUsedSpaceRatio": "95",
            "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
            "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
            "shutdownDrainTime": "100",
            **(settings or {}),
        }
        conf = self.folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
        process = Process(name, self.folder, ["broker", "-c", str(conf)])
        self.brokers[name] = process
        self.addresses[name] = f"{host}:{port}"
        return process

    def ha_address(self, name: str) -> str:
        """Return where slaves connect to."""
        host, _, port = self.addresses[name].rpartition(":")
        return f"{host}:{int(port) + 1}"

    def store_of(self, name: str) -> Path:
        return self.folder / name

    def stop(self) -> None:
        for process in (*reversed(self.brokers.values()), self.nameserver):
            process.stop()


def log_pieces(
    store: Path, start: int, stop: int, segment_bytes: int = SEGMENT_BYTES
) -> Iterator[bytes]:
    """Yield the log of a store from its files, piece by piece."""
    while start < stop:
        first = start - start % segment_bytes
        size = min(1024**2 - start % 1024**2, stop - start, first + segment_bytes - start)
        with (store / "commitlog" / f"{first:020d}").open("rb") as segment:
            segment.seek(start - first)
            data = segment.read(size)
        assert len(data) == size, f"{store}: {len(data)} bytes of {size} at {start}"
        yield data
        start += size


def assert_same_log(
    one: Path, other: Path, start: int, stop: int, segment_bytes: int = SEGMENT_BYTES
) -> None:
    """Compare two stores byte by byte."""
    offset = start
    pieces = zip(
        log_pieces(one, start, stop, segment_bytes),
        log_pieces(other, start, stop, segment_bytes),
        strict=True,
    )
    for mine, theirs in pieces:
        if mine != theirs:
            place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
            raise AssertionError(f"{one} and {other} differ at offset {offset + place}")
        offset += len(mine)


def free_port(host: str) -> int:
    """Return a port that is free with its neighbours 2 below and 1 above."""
    offset = os.getpid() * 7
    for attempt in range(len(_PORTS) // 4):
        port = _PORTS[(offset + attempt * 4) % len(_PORTS)] + 2
        if port in _taken:
            continue
        with ExitStack() as held:
            try:
                for each in (port - 2, port, port + 1):
                    held.enter_context(socket.socket()).bind((host, each))
            except OSError:
                continue
            _taken[port] = None
            return port
    if not _taken:
        raise AssertionError(f"no free ports at {host}")
    # Those that were given out first are free again: the tests that had them are over.
    for port in list(_taken)[: len(_taken) // 2 + 1]:
        del _taken[port]
    return free_port(host)


_taken: Final[dict[int, None]] = {}
