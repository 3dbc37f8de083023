"""Stock servers as units of the machines of the runbooks, and mqadmin as a command there."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final

from interop.support.java import clean_environment
from interop.support.stock import START_TIMEOUT_S, ServerHome
from tests.ha.processes.surroundings import Surroundings
from tests.runbooks.machines import BROKER_PORT, NAMESERVER_PORT
from tests.runbooks.units import adapt

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from interop.support.java import JavaProgram
    from interop.support.java_client import DriverKit
    from tests.runbooks.machines import Machine

BROKER: Final = "rocketmq-broker"
NAMESERVER: Final = "rmq-namesrv"
"""Under the name that the nameserver of rmq has, for it is on the same address."""
SEGMENT_BYTES: Final = 1 << 20
_STOP_S: Final = 60.0
_POLL_S: Final = 0.02
_MQADMIN: Final = "org.apache.rocketmq.tools.command.MQAdminStartup"
_MQADMIN_S: Final = 60.0


class JavaUnit:
    """A stock server that may run or not."""

    def __init__(
        self, machine: Machine, program: JavaProgram, port: int, prepare: Callable[[], None]
    ) -> None:
        self.surroundings = Surroundings()
        self._address = (machine.host, port)
        self._program = program
        self._prepare = prepare
        self._log = machine.root / f"{program.main_class.rpartition('.')[2]}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._prepare()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._program.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean_environment(), **self._program.environment},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_open():
            if not self.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"it does not listen; it said:\n{self.said().decode()}")
            time.sleep(_POLL_S)

    def _is_open(self) -> bool:
        try:
            socket.create_connection(self._address, timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def said(self, begin: int = 0) -> bytes:
        return self._log.read_bytes()[begin:] if self._log.exists() else b""


def make_broker(machine: Machine, jars: Path, conf: Path) -> JavaUnit:
    """Prepare the stock broker of a machine, by the settings that its file has when it starts."""
    port = machine.ports[BROKER_PORT]
    store = machine.path("var/lib/rocketmq/store")
    settings = {
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "brokerIP1": machine.host,
        "brokerIP2": machine.host,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        "mappedFileSizeConsumeQueue": "60000",
        "maxHashSlotNum": "2000",
        "maxIndexNum": "8000",
        "diskMaxUsedSpaceRatio": "95",
        # It says nothing at all for that long after it has connected as a slave.
        "haSendHeartbeatInterval": "1000",
        "waitTimeMillsInSendQueue": "20000",
        "osPageCacheBusyTimeOutMills": "20000",
    }
    program = _home(machine, jars).program("org.apache.rocketmq.broker.BrokerStartup", conf)
    return JavaUnit(machine, program, port, lambda: adapt(conf, settings))


def make_nameserver(machine: Machine, jars: Path) -> JavaUnit:
    """Prepare the stock nameserver of a machine."""
    port = machine.ports[NAMESERVER_PORT]
    conf = machine.root / "namesrv.conf"
    conf.write_text(f"listenPort={port}\nkvConfigPath={machine.root / 'kvConfig.json'}\n")
    program = _home(machine, jars).program("org.apache.rocketmq.namesrv.NamesrvStartup", conf)
    return JavaUnit(machine, program, port, lambda: None)


def _home(machine: Machine, jars: Path) -> ServerHome:
    home = machine.root / "java"
    home.mkdir(exist_ok=True)
    return ServerHome(jars, home, {})


def mqadmin(kit: DriverKit, nameservers: str) -> Callable[[Machine, list[str]], tuple[int, str]]:
    """Return what runs the stock command; it ends with 0 even if it fails, but says so."""

    def run(machine: Machine, words: list[str]) -> tuple[int, str]:
        variables: Mapping[str, str] = {"$NAMESRV_ADDR": nameservers}
        program = kit.program(_MQADMIN, tuple(variables.get(word, word) for word in words[1:]))
        done = subprocess.run(
            program.command(),
            env={**clean_environment(), **program.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_MQADMIN_S,
            check=False,
        )
        return int("Exception" in done.stdout), done.stdout

    return run
