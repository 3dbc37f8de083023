"""`rmq generate broker-conf`: commented settings for the usual ways to deploy brokers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.generate.deployment import MODES
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.settings_text import SLAVE, Broker, broker_text, nameserver_text

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment

STATE: Final = "/var/lib/rmq"
"""Where units put what a process keeps, in a folder for each."""
TOPOLOGIES: Final = ("single", "two-masters", "async-pair", "sync-pair")


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    wanted = TOPOLOGIES if args.topology is None else (args.topology,)
    for topology in wanted:
        for file, broker in _brokers(deployment, topology):
            yield GeneratedFile(f"{topology}/{file}.conf", broker_text(deployment, broker))
    kv_path = f"{STATE}/namesrv/kvConfig.json"
    text = nameserver_text(kv_path=kv_path, metrics_port=deployment.nameserver_metrics_port)
    yield GeneratedFile("namesrv.conf", text)


def _brokers(deployment: Deployment, topology: str) -> Iterable[tuple[str, Broker]]:
    """Yield the name of each file, and the broker it is for."""
    name = deployment.name
    match topology:
        case "single":
            title = f"{name}, a lone master: what its disk loses is lost."
            yield name, _master(deployment, title, name)
        case "two-masters":
            for each in (name, next_name(name)):
                title = (
                    f"{each}, one of two masters without slaves: while one is down, the other takes"
                    " all messages."
                )
                yield each, _master(deployment, title, each)
        case "async-pair" | "sync-pair":
            mode = topology.removesuffix("-pair")
            yield (
                f"{name}-master",
                _master(
                    deployment,
                    f"{name}, the master of a pair that begins {mode}.",
                    name,
                    role=MODES[mode],
                    slaves=1,
                ),
            )
            yield (
                f"{name}-slave",
                Broker(
                    title=f"{name}, the slave of a pair that begins {mode}.",
                    name=name,
                    role=SLAVE,
                    number=1,
                    slaves=1,
                    store=_store(deployment, name),
                ),
            )


def _master(
    deployment: Deployment, title: str, name: str, *, role: str = "ASYNC_MASTER", slaves: int = 0
) -> Broker:
    store = _store(deployment, name)
    return Broker(title=title, name=name, role=role, slaves=slaves, store=store)


def _store(deployment: Deployment, name: str) -> str:
    return deployment.store or f"{STATE}/{name}/store"


def next_name(name: str) -> str:
    """Return a name for another master: broker-b for broker-a."""
    last = name[-1]
    if last.isascii() and last.isalpha() and last not in "zZ" and name[:-1].endswith(("-", "_")):
        return f"{name[:-1]}{chr(ord(last) + 1)}"
    return f"{name}-2"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--topology", choices=TOPOLOGIES, help="only the files of this one (default: all)"
    )


KIND: Final = Kind(
    name="broker-conf",
    help="commented broker.conf for one master, two masters and pairs",
    description="Settings of brokers and nameservers, with comments. The second broker of a name"
    " runs on\nanother machine, so that both have the same ports and paths.",
    files=_files,
    add_arguments=_add_arguments,
)
