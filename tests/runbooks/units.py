"""`systemctl` on the machines of the runbooks: it starts and stops processes of the program."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tests.ha.processes.cluster import Process
from tests.runbooks.machines import BROKER_PORT, METRICS_PORTS, NAMESERVER_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.ha.processes.surroundings import Surroundings
    from tests.runbooks.machines import Machine

BROKER: Final = "rmq-broker@broker-a"
OTHER_BROKER: Final = "rmq-broker@broker-b"
NAMESERVER: Final = "rmq-namesrv"
_ADAPTED: Final = "# Settings of the test.\n"


class Unit(Protocol):
    """A process that may run or not."""

    surroundings: Surroundings

    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None:
        """Return when it serves."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def signal(self, number: signal.Signals) -> None: ...

    def said(self, begin: int = 0) -> bytes: ...


def make_broker(machine: Machine, unit: str = BROKER) -> Unit:
    """Prepare a broker of a machine, by the settings that its file has when it starts."""
    name = unit.partition("@")[2]
    process = _Prepared(
        unit,
        machine,
        "broker",
        machine.path(f"etc/rmq/{name}.conf"),
        lambda: {
            **machine.settings,
            "bindAddress": machine.host,
            "listenPort": str(machine.ports[BROKER_PORT]),
            "metricsPort": str(machine.ports[METRICS_PORTS[1]]),
            "storePathRootDir": str(machine.path(f"var/lib/rmq/{name}/store")),
        },
    )
    if machine.disk is not None:
        process.surroundings = machine.disk
    return process


def make_nameserver(machine: Machine) -> Unit:
    """Prepare the nameserver of a machine."""
    return _Prepared(
        NAMESERVER,
        machine,
        "namesrv",
        machine.path("etc/rmq/namesrv.conf"),
        lambda: {
            "bindAddress": machine.host,
            "listenPort": str(machine.ports[NAMESERVER_PORT]),
            "metricsPort": str(machine.ports[METRICS_PORTS[0]]),
            "kvConfigPath": str(machine.path("var/lib/rmq/namesrv/kvConfig.json")),
        },
    )


class _Prepared(Process):
    """A process of the program whose settings file a page has put there."""

    def __init__(
        self,
        name: str,
        machine: Machine,
        command: str,
        conf: Path,
        settings: Callable[[], Mapping[str, str]],
    ) -> None:
        super().__init__(name, machine.root, [command, "-c", str(conf)])
        self._conf = conf
        self._settings = settings

    def start(self) -> None:
        adapt(self._conf, self._settings())
        super().start()


def adapt(conf: Path, settings: Mapping[str, str]) -> None:
    """Write settings into a file that a page has put there, once; what else is in it stays."""
    text = conf.read_text()
    if _ADAPTED in text:
        return
    for key, value in settings.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key}=")]
        text = "\n".join([*lines, f"{key}={value}", ""])
    conf.write_text(f"{text}{_ADAPTED}")


class Systemctl:
    """Runs the command; knows the units by their names."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[Machine], Unit]] = {
            BROKER: make_broker,
            OTHER_BROKER: partial(make_broker, unit=OTHER_BROKER),
            NAMESERVER: make_nameserver,
        }

    def unit(self, machine: Machine, name: str) -> Unit:
        """Return a unit of a machine, running or not."""
        if name not in machine.units:
            machine.units[name] = self.makers[name](machine)
        return machine.units[name]

    def run(self, machine: Machine, words: list[str]) -> tuple[int, str]:
        """Return exit code and output of a command."""
        is_now = "--now" in words
        verb, *names = (word for word in words[1:] if not word.startswith("--"))
        for name in names:
            unit = self.unit(machine, name)
            if verb in ("stop", "restart") or (verb == "disable" and is_now):
                unit.stop()
            if verb in ("start", "restart") or (verb == "enable" and is_now):
                if not unit.is_running:
                    unit.start()
            elif verb == "reload":
                unit.signal(signal.SIGHUP)
            elif verb not in ("stop", "disable"):
                raise AssertionError(f"systemctl {verb} is not known here")
        return 0, ""
