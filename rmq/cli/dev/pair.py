"""The two brokers of `rmq dev`: their folders, ports and settings.

Which of them is master is kept with their data, because it may change: a promotion writes the new
roles into the settings, and the broker that was promoted is the master in the next run, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.cli.ha.change import MODES
from rmq.errors import ConfigError, ProtocolError
from rmq.remoting.bodies import parse_properties

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS: Final = ("broker-1", "broker-2")
METRICS_ABOVE: Final = 4
"""The port for metrics, counted from that for clients."""
SLAVE_ABOVE: Final = 10
"""The port of the slave, counted from that of the master."""
_SLAVE: Final = "SLAVE"

_CONF: Final = """\
# Written by `rmq dev`; start the same broker yourself with: rmq broker -c {path}
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId={broker_id}
brokerRole={role}
brokerIP1={host}
brokerIP2={host}
bindAddress={host}
listenPort={port}
metricsPort={metrics_port}
metricsAddress={host}
namesrvAddr={nameserver}
storePathRootDir={store}
mappedFileSizeCommitLog=134217728
maxHashSlotNum=500000
maxIndexNum=2000000
# No send is refused because this machine has other things to do (200 and 1000 ms are the default).
waitTimeMillsInSendQueue=10000
osPageCacheBusyTimeOutMills=10000
"""


@dataclass(frozen=True, slots=True)
class DevBroker:
    """One of the two."""

    role: str
    """`master` or `slave`."""
    address: str
    folder: Path
    conf: Path
    metrics: str
    """Where Prometheus finds it."""


def write_pair(
    data: Path, host: str, port: int, nameserver: str, mode: str
) -> tuple[DevBroker, DevBroker]:
    """Write the settings of both; return the master and the slave."""
    folders = [data / name for name in FOLDERS]
    if is_slave(folders[0]) and not is_slave(folders[1]) and (folders[1] / "store").exists():
        folders.reverse()
    master = _write(folders[0], MODES[mode], 0, host, port, nameserver)
    slave = _write(folders[1], _SLAVE, 1, host, port + SLAVE_ABOVE, nameserver)
    return master, slave


def is_slave(folder: Path) -> bool:
    """Whether the settings that are kept in a folder make its broker a slave."""
    conf = folder / "broker.conf"
    try:
        kept = parse_properties(conf.read_bytes())
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise ConfigError("--data", f"{conf}: {exc.strerror}") from exc
    except ProtocolError as exc:
        raise ConfigError("--data", f"{conf}: {exc}") from exc
    return kept.get("brokerRole") == _SLAVE


def _write(
    folder: Path, role: str, broker_id: int, host: str, port: int, nameserver: str
) -> DevBroker:
    conf = folder / "broker.conf"
    try:
        folder.mkdir(exist_ok=True)
        conf.write_text(
            _CONF.format(
                path=conf,
                role=role,
                broker_id=broker_id,
                host=host,
                port=port,
                metrics_port=port + METRICS_ABOVE,
                nameserver=nameserver,
                store=folder / "store",
            )
        )
    except OSError as exc:
        raise ConfigError("--data", f"{conf}: {exc.strerror}") from exc
    word = "slave" if role == _SLAVE else "master"
    metrics = f"http://{host}:{port + METRICS_ABOVE}/metrics"
    return DevBroker(word, f"{host}:{port}", folder, conf, metrics)
