"""What is deployed: the names, ports, places and settings that all kinds of files share.

They come from the command line, else from the `broker.conf` that is given, else from defaults that
depend on no machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.broker.config.loading import load_broker_config
from rmq.broker.config.schema import SCHEMA
from rmq.cli.common.usage import UsageError
from rmq.errors import ConfigError
from rmq.remoting.addresses import parse_address
from rmq.settings.properties_file import read_members

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

NAMESERVERS: Final = ("namesrv-1:9876", "namesrv-2:9876", "namesrv-3:9876")
"""Three: one may be gone, and most of them are still there."""
NAMESERVER_PORT: Final = 9876
METRICS_PORT: Final = 5557
NAMESERVER_METRICS_PORT: Final = 5556
MODES: Final = {"sync": "SYNC_MASTER", "async": "ASYNC_MASTER"}
FILLED_IN: Final = frozenset(
    (
        "brokerClusterName",
        "brokerName",
        "brokerId",
        "brokerRole",
        "brokerIP1",
        "brokerIP2",
        "listenPort",
        "bindAddress",
        "namesrvAddr",
        "storePathRootDir",
        "haMasterAddress",
        "metricsPort",
        "metricsAddress",
    )
)
"""Settings that the files fill in; other ones of a given file are kept as they are."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,61}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Brokers of one name, or of two, and the nameservers that they register with."""

    cluster: str = "DefaultCluster"
    name: str = "broker-a"
    nameservers: tuple[str, ...] = NAMESERVERS
    port: int = 10911
    metrics_port: int = METRICS_PORT
    nameserver_metrics_port: int = NAMESERVER_METRICS_PORT
    store: str | None = None
    """Where the store is; None: where the kind puts it."""
    mode: str = "sync"
    """Of pairs: sync or async."""
    settings: tuple[tuple[str, str], ...] = ()
    """Other settings of the file that was given."""
    left_out: tuple[str, ...] = ()
    """Settings of that file that are secret: they are in no generated file."""
    source: str = ""
    """The file that was given."""

    def setting(self, key: str, default: str) -> str:
        """Return the value of a setting that the file may have changed."""
        return dict(self.settings).get(key, default)

    def other_settings(self, written: frozenset[str]) -> list[tuple[str, str]]:
        """Return the settings of the file that are not written already."""
        return [(key, value) for key, value in self.settings if key not in written]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options that all kinds share."""
    group = parser.add_argument_group("what is deployed")
    group.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="take it from this broker.conf"
    )
    group.add_argument(
        "-n",
        "--nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help=f"nameservers (default: {';'.join(NAMESERVERS)})",
    )
    group.add_argument("--cluster", metavar="NAME", help="brokerClusterName (DefaultCluster)")
    group.add_argument("--name", metavar="BROKER", help="brokerName (broker-a)")
    group.add_argument("--port", type=int, metavar="PORT", help="listenPort (10911)")
    group.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="metricsPort of brokers (5557)"
    )
    group.add_argument("--store", metavar="PATH", help="storePathRootDir")
    group.add_argument("--mode", choices=tuple(MODES), help="of pairs (default: sync)")


def deployment_of(args: Namespace, environ: Mapping[str, str]) -> Deployment:
    """Return what a command line asks for; raise `ConfigError` or `UsageError`."""
    given = Deployment() if args.config is None else _of_file(args.config, environ)
    changes: dict[str, object] = {
        "cluster": args.cluster,
        "name": args.name,
        "port": args.port,
        "metrics_port": args.metrics_port,
        "store": args.store,
        "mode": args.mode,
    }
    given = replace(
        given,
        **{key: value for key, value in changes.items() if value is not None},  # type: ignore[arg-type]  # each by its name
    )
    if args.nameservers is not None:
        given = replace(given, nameservers=_addresses(args.nameservers))
    _check(given)
    return given


def _of_file(path: Path, environ: Mapping[str, str]) -> Deployment:
    loaded = load_broker_config(path, {}, environ)
    text = path.read_text(encoding="utf-8")
    told = {member.key: member.value for member in read_members(text)}
    values = loaded.values
    metrics_port = values.integer("metricsPort")
    known = [key for key in told if key in SCHEMA and key not in FILLED_IN]
    return Deployment(
        cluster=values.text("brokerClusterName"),
        name=values.text("brokerName"),
        nameservers=loaded.config.namesrv_addrs or NAMESERVERS,
        port=values.integer("listenPort"),
        metrics_port=metrics_port if metrics_port > 0 else METRICS_PORT,
        store=told.get("storePathRootDir"),
        mode="async" if values["brokerRole"] == MODES["async"] else "sync",
        settings=tuple((key, told[key]) for key in known if not SCHEMA[key].secret),
        left_out=tuple(key for key in known if SCHEMA[key].secret and told[key]),
        source=path.name,
    )


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(";") if part.strip())
    for address in addresses:
        try:
            parse_address(address)
        except ConfigError as wrong:
            raise UsageError(f"-n {text}: {wrong.reason}") from None
    if not addresses:
        raise UsageError("-n names no nameserver")
    return addresses


def _check(given: Deployment) -> None:
    for option, text in (("--cluster", given.cluster), ("--name", given.name)):
        if not _NAME.fullmatch(text):
            raise UsageError(
                f"{option} {text!r}: letters, digits, '-' and '_' only, 62 characters at most:"
                " it becomes the name of files, units and hosts"
            )
    # Three brokers on one machine at most, each with the ports beside its own.
    for option, port in (("--port", given.port), ("--metrics-port", given.metrics_port)):
        if not 1024 <= port <= 65_000:
            raise UsageError(f"{option} {port} is not between 1024 and 65000")
    store = given.store
    if store is not None and (not store.startswith("/") or re.search(r"[\s\"'\\%$]", store)):
        raise UsageError(f"--store {store!r} is not an absolute path without blanks and quotes")
