"""The clients that bench_client.py compares, as processes that take one load after the other.

They run where this process runs: on its core if it keeps to one, on all of them if it does not.
"""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from benchmarks.broker_load.figures import Process
from benchmarks.broker_servers import ROOT
from benchmarks.client_rows import AIO, BLOCKING, CPP, JAVA, TRIO
from benchmarks.client_work import Answer
from interop.support.java import MissingPartError, compile_java, fetch_jars, need_java_tools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from benchmarks.broker_load.figures import Outcome
    from benchmarks.client_work import Load

PATIENCE_S: Final = 60.0
"""How much longer than its load a client may take."""
_STOP_TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 1 << 16

_DRIVER: Final = ROOT / "benchmarks" / "client_java"
_CLIENT_POM: Final = ROOT / "interop" / "java_client" / "pom.xml"

# What the stock client's Netty and fastjson reach into on a Java with strong encapsulation.
_OPENED_PACKAGES: Final = (
    "java.base/jdk.internal.ref",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/java.lang",
    "java.base/java.util",
)

# The sizes of `benchmark/runclass.sh` of RocketMQ; its collector is gone from today's Java.
_JVM_OPTIONS: Final = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-Xmn256m",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
    "-XX:+PerfDisableSharedMem",
)

# Nothing is logged: a benchmark must not measure a log.
_LOGBACK: Final = '<configuration><root level="OFF"/></configuration>\n'


class ClientEndedError(Exception):
    """A client's process is not there any more, or does not answer."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A client and how its process is started."""

    who: str
    command: tuple[str, ...]
    run_in_s: float
    """How long it has to work before its figures are those it keeps."""
    environment: Mapping[str, str] = field(default_factory=dict)


def our_client(who: str) -> ClientKind:
    """Return one of ours: on trio, on asyncio, or the blocking one."""
    module = {
        TRIO: "benchmarks.client_trio",
        AIO: "benchmarks.client_aio",
        BLOCKING: "benchmarks.client_blocking",
    }[who]
    return ClientKind(who, (sys.executable, "-m", module), run_in_s=2.0)


def cpp_client() -> ClientKind:
    """Return the C++ binding; raise `MissingPartError` if it is not installed."""
    if importlib.util.find_spec("rocketmq") is None:
        raise MissingPartError(
            "the C++ binding is not installed (`rocketmq` on PyPI, Linux x86_64)"
        )
    return ClientKind(CPP, (sys.executable, "-m", "benchmarks.client_cpp"), run_in_s=1.0)


def java_client(folder: Path) -> ClientKind:
    """Return the stock client with its driver, compiled into a folder.

    Raise `MissingPartError` saying what this machine lacks.
    """

    async def prepare() -> Path:
        await need_java_tools()
        jars = await fetch_jars(_CLIENT_POM)
        await compile_java(_DRIVER, jars, folder / "classes")
        return jars

    jars = trio.run(prepare)
    logback = folder / "logback.xml"
    logback.write_text(_LOGBACK)
    command = (
        "java",
        *_JVM_OPTIONS,
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
        f"-Duser.home={folder}",
        f"-Dtls.config.file={folder / 'none'}",
        f"-Dlogback.configurationFile={logback}",
        "-Drocketmq.client.logUseSlf4j=true",
        "-cp",
        f"{folder / 'classes'}:{jars}/*",
        "bench.Main",
    )
    # Its machine code is made while it runs: rates double within this time.
    return ClientKind(JAVA, command, run_in_s=40.0)


class RunningClient:
    """A client's process that waits for loads."""

    def __init__(self, kind: ClientKind, process: subprocess.Popen[bytes], log: Path) -> None:
        self.kind = kind
        self.who = kind.who
        self._process = process
        self._log = log
        self._pending = b""

    @property
    def usage(self) -> Process:
        return Process(self._process.pid)

    def run(self, load: Load) -> Outcome:
        """Have a load done; raise `ClientEndedError`, or RuntimeError with what it says."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(load) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended("is not there any more") from None
        line = self._line(time.perf_counter() + load.seconds + PATIENCE_S)
        return msgspec.json.decode(line, type=Answer).outcome(f"{self.who}, {load.work}")

    def _line(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        # Not `select`: it knows no descriptor above 1023.
        ready = select.poll()
        ready.register(output, select.POLLIN)
        while b"\n" not in self._pending:
            left_s = deadline_s - time.perf_counter()
            if left_s <= 0 or not ready.poll(left_s * 1000):
                raise self._ended("does not answer")
            data = os.read(output, _READ_BYTES)
            if not data:
                raise self._ended(f"ended with {self._process.wait()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _ended(self, what: str) -> ClientEndedError:
        said = self._log.read_text(errors="replace")[-2_000:]
        return ClientEndedError(f"{self.who} {what}; it said:\n{said}")


@contextmanager
def running_client(kind: ClientKind, folder: Path) -> Iterator[RunningClient]:
    """Run a client's process for the length of a block, at home in a folder of its own."""
    folder.mkdir()
    changing = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "NAMESRV_ADDR")
    kept = {name: value for name, value in os.environ.items() if name not in changing}
    log = folder / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            kind.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(folder), **kind.environment},
        )
    try:
        yield RunningClient(kind, process, log)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass  # What it has to say was said; it is killed.
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
