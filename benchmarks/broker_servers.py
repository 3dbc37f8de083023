"""The brokers that bench_broker.py compares, as processes: ours and the stock Java one.

Both are given the same `broker.conf` and the same core, and both keep their files in a folder of
the caller's. The Java broker's jars are those of the interoperation checks, fetched the same way;
its options are those of its own start script, but for the sizes of its memory.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

import trio

from benchmarks.broker_load.figures import Process
from interop.support.java import fetch_jars, need_java_tools
from interop.support.stock import HA_DISTANCE, VIP_DISTANCE, free_port, write_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.002

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1


class BrokerKind(Protocol):
    """How one of the two brokers is started."""

    @property
    def name(self) -> str: ...

    @property
    def run_in_s(self) -> float:
        """How long it has to be loaded before its figures are those it keeps."""

    def command(self, config: Path) -> list[str]: ...

    def environment(self, folder: Path) -> Mapping[str, str]: ...


def source_environment(root: Path) -> Mapping[str, str]:
    """Return the environment in which `python -m rmq` is that of a source tree.

    Without the safe path the current folder comes first, which is this source tree.
    """
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}


@dataclass(frozen=True, slots=True)
class OurBroker:
    """`rmq broker` of this source tree, or of another one."""

    name: str = "rmq"
    run_in_s: float = 4.0
    root: Path = ROOT

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", "rmq", "broker", "-c", str(config)]

    def environment(self, folder: Path) -> Mapping[str, str]:
        return source_environment(self.root)


# What RocketMQ 4.9 and its Netty and fastjson reach into on a Java with strong encapsulation.
_OPENED_PACKAGES: Final = (
    "java.base/jdk.internal.ref",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/java.lang",
    "java.base/java.util",
)

_JVM_OPTIONS: Final = (
    "-server",
    # The script has 8 GiB and 15 GiB here.
    "-Xms1g",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=2g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
)
"""`runbroker.sh` of RocketMQ 4.9.8, without its log of collections and without touching the heap
beforehand, which would only cost start-up time and resident memory."""

# Nothing is logged: a benchmark must not measure a log.
_LOGBACK: Final = '<configuration><root level="OFF"/></configuration>\n'


@dataclass(frozen=True, slots=True)
class JavaBroker:
    """The stock broker, 4.9.7: 4.9.8 of it was never published."""

    jars: Path
    name: str = "Java"
    # Its machine code is made while it runs, on the same core: rates double within this time.
    run_in_s: float = 40.0

    def command(self, config: Path) -> list[str]:
        home = config.parent
        for logback in ("logback_broker.xml", "logback_namesrv.xml"):
            (home / "conf").mkdir(exist_ok=True)
            (home / "conf" / logback).write_text(_LOGBACK)
        return [
            "java",
            *_JVM_OPTIONS,
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
            f"-Duser.home={home}",
            # A disk that is nearly full is no reason to refuse some messages.
            "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
            "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
            f"-Dtls.config.file={home / 'none'}",
            "-cp",
            f"{self.jars}/*",
            "org.apache.rocketmq.broker.BrokerStartup",
            "-c",
            str(config),
        ]

    def environment(self, folder: Path) -> Mapping[str, str]:
        changing = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "NAMESRV_ADDR")
        kept = {name: value for name, value in os.environ.items() if name not in changing}
        return {**kept, "ROCKETMQ_HOME": str(folder)}


def fetch_java_broker() -> JavaBroker:
    """Return the stock broker; raise `MissingPartError` saying what this machine lacks."""

    async def fetch() -> Path:
        await need_java_tools()
        return await fetch_jars(ROOT / "interop" / "checks" / "java-servers" / "pom.xml")

    return JavaBroker(trio.run(fetch))


class BrokerFolder:
    """Where one broker keeps its files, and the port that it comes back to."""

    def __init__(
        self,
        kind: BrokerKind,
        path: Path,
        settings: Mapping[str, str],
        *,
        all_cores: bool = False,
    ) -> None:
        self.all_cores = all_cores
        path.mkdir()
        self.kind = kind
        self.path = path
        self.port = free_port(VIP_DISTANCE, HA_DISTANCE)
        store = path / "store"
        self.config = write_properties(
            path / "broker.conf",
            {
                "brokerClusterName": "BenchCluster",
                "brokerName": "bench",
                "listenPort": str(self.port),
                "haListenPort": str(self.port + HA_DISTANCE),
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
                **settings,
            },
        )

    @contextmanager
    def running(self) -> Iterator[RunningBroker]:
        """Run the broker for the length of a block; it listens when the block begins."""
        with (self.path / "output.log").open("ab") as output:
            started_s = time.perf_counter()
            process = spawn(
                self.kind.command(self.config),
                core=None if self.all_cores else SERVER_CORE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.kind.environment(self.path),
            )
        try:
            self._wait_listening(process)
            took_s = time.perf_counter() - started_s
            yield RunningBroker(self.kind.name, process, self.port, took_s)
        finally:
            process.kill()
            process.wait()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _wait_listening(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.perf_counter() + START_TIMEOUT_S
        while process.poll() is None and time.perf_counter() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(_POLL_S)
            else:
                return
        said = (self.path / "output.log").read_text(errors="replace")[-2_000:]
        raise RuntimeError(f"the {self.kind.name} broker does not listen; it said:\n{said}")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that listens."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    start_s: float
    """From its start until a connection was accepted."""

    @property
    def usage(self) -> Process:
        return Process(self.process.pid)

    def stop(self) -> float:
        """Ask it to end, and return how long that took; raise RuntimeError if it does not."""
        started_s = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the {self.name} broker does not stop") from None
        return time.perf_counter() - started_s


_CORES: Final = sorted(os.sched_getaffinity(0))
"""What this process was given, before it moved out of the way of the broker."""


def use_core(core: int) -> None:
    """Stay on one core from now on, if there are two."""
    if len(_CORES) > core:
        os.sched_setaffinity(0, {_CORES[core]})


def spawn(
    command: Sequence[str],
    *,
    core: int | None,
    stdout: IO[bytes] | int,
    stdin: int = subprocess.DEVNULL,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process on one core, if there are two, or on all of them.

    It is this process that moves there for a moment: what is pinned only after its start has
    counted the cores already, and may have started threads.
    """
    here = os.sched_getaffinity(0)
    if core is None:
        os.sched_setaffinity(0, _CORES)
    else:
        use_core(core)
    try:
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=ROOT
        )
    finally:
        os.sched_setaffinity(0, here)
