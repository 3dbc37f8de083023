"""The machines of the runbooks: loopback addresses, each with a folder in which its files are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.ha.processes.cluster import free_port
from tests.ha.processes.surroundings import seen_by

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.ha.processes.surroundings import Surroundings
    from tests.runbooks.units import Unit

NAMESERVER_PORT: Final = 9876
BROKER_PORT: Final = 10911
METRICS_PORTS: Final = (5556, 5557)
"""Of a nameserver, of a broker."""
NAMES: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NAMESERVERS: Final = ";".join(f"{name}:{NAMESERVER_PORT}" for name in NAMES)
"""What NAMESRV_ADDR is on every machine, as the first page of the runbooks says."""
FOLDERS: Final = ("etc/rmq", "etc/rocketmq", "var/lib/rmq", "var/lib/rocketmq", "opt", "backup")
"""What the pages name of a machine's files."""

QUICK: Final = {
    "haMaxTimeSlaveNotCatchup": "1000",
    "slaveTimeout": "500",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "1000",
    "mappedFileSizeCommitLog": str(1024**2),
    "maxMessageSize": str(64 * 1024),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "2000",
    "maxIndexNum": "8000",
    "cleanResourceInterval": "100",
    "shutdownDrainTime": "100",
    # No send is refused because this machine is busy, or its disk nearly full.
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
}
"""Settings of brokers that make them small, and quick to notice things."""


@dataclass
class Machine:
    """One machine of the pages."""

    name: str
    host: str
    root: Path
    """Below it are its files."""
    ports: dict[int, int]
    """Ports by those of the pages."""
    settings: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    """Of its brokers."""
    disk: Surroundings | None = None
    """The disk that its broker has to itself."""
    units: dict[str, Unit] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """Where commands run."""
        return self.root / "home"

    def path(self, path: str) -> Path:
        """Return where a file of the machine is."""
        return self.root / path.lstrip("/")

    @property
    def owner(self) -> Unit | None:
        """Return the process that has the disk; others do not see what is on it."""
        for unit in self.units.values():
            if unit.is_running and self.disk is not None and unit.surroundings is self.disk:
                return unit
        return None

    def entering(self) -> list[str]:
        """Return the command by which another one sees the disk of the broker."""
        owner = self.owner
        if owner is None:
            return []
        # Another user than the superuser has mounted it in a user namespace.
        own = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--mount", *own, f"--target={owner.pid}"]

    def seen(self, path: str) -> Path:
        """Return where other processes find a file on the disk of the broker."""
        owner = self.owner
        return self.path(path) if owner is None else seen_by(owner.pid, self.path(path))


def make_machines(folder: Path) -> dict[str, Machine]:
    """Return the machines, by the addresses that they have on the pages."""
    machines: dict[str, Machine] = {}
    for number, name in enumerate(NAMES, 11):
        host = f"127.0.0.{number}"
        broker = free_port(host)
        ports = {BROKER_PORT + distance: broker + distance for distance in (-2, 0, 1)}
        ports |= {port: free_port(host) for port in (NAMESERVER_PORT, *METRICS_PORTS)}
        machine = machines[name] = Machine(name, host, folder / name, ports)
        for path in (*FOLDERS, "home"):
            machine.path(path).mkdir(parents=True)
    return machines


def as_run(here: Machine, machines: dict[str, Machine], text: str) -> str:
    """Return a text of a page with the addresses, ports and paths that there are."""

    def address(found: re.Match[str]) -> str:
        machine = here if found[1] == "127.0.0.1" else machines.get(found[1])
        if machine is None:
            return found[0]
        port = int(found[2] or 0)
        return f"{machine.host}:{machine.ports.get(port, port)}" if port else machine.host

    text = re.sub(r"\b(\d+\.0\.0\.\d+)\b(?::(\d+))?", address, text)
    return re.sub(rf"(?<![\w./])/(?={'|'.join(FOLDERS)}\b)", f"{here.root}/", text)


def as_shown(machines: Iterable[Machine], text: str) -> str:
    """Return what a process printed as it would be on the machines of the pages."""
    for machine in machines:
        for port, real in machine.ports.items():
            text = text.replace(f"{machine.host}:{real}", f"{machine.name}:{port}")
        text = text.replace(str(machine.root), "")
        text = text.replace(machine.host, machine.name)
    return text
