"""`rmq generate prometheus`: what Prometheus scrapes, recording rules and alerts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmq.cli.common.usage import UsageError
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.templates import fill, template
from rmq.errors import ConfigError
from rmq.remoting.addresses import format_address, parse_address

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from rmq.cli.generate.deployment import Deployment

RULES: Final = (
    "recording-rules.yml",
    "broker-alerts.yml",
    "storage-alerts.yml",
    "replication-alerts.yml",
    "consumer-alerts.yml",
    "nameserver-alerts.yml",
    "pipeline-alerts.yml",
)
RUNBOOKS: Final = "docs/runbooks/alerts.md"
"""The page about alerts, within the project."""
_RUNBOOKS: Final = re.compile(r"[\w./:~%?=&@+-]{1,500}", re.ASCII)
_PORT: Final = re.compile(r"(^[^:]+|\]):[^:]*$")
"""What an address with a port looks like; one of IPv6 without has more colons."""
_HOST: Final = re.compile(r"[\w.-]{1,253}|[0-9A-Fa-f:.]{2,45}", re.ASCII)


def scrape_config(
    deployment: Deployment,
    *,
    title: str,
    brokers: Sequence[str] | None = None,
    rules: str = "",
) -> str:
    """Return a `prometheus.yml`.

    `brokers` are HOST:PORT of their metrics, by default those of a pair in containers; `rules` is
    the folder of the rules, with its slash.
    """
    name, port = deployment.name, deployment.metrics_port
    if brokers is None:
        brokers = [f"{name}-{number}:{port}" for number in range(2)]
    hosts = dict.fromkeys(parse_address(each)[0] for each in deployment.nameservers)
    for host in hosts:
        _check_host("-n", host)
    nameservers = [format_address((host, deployment.nameserver_metrics_port)) for host in hosts]
    values = {
        "title": title,
        "rules": rules,
        "cluster": deployment.cluster,
        "brokers": _lines(brokers),
        "nameservers": _lines(nameservers),
    }
    return fill(template("prometheus/prometheus.yml"), values)


def _lines(targets: Iterable[str]) -> str:
    return "\n".join(f'- "{target}"' for target in targets)


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    if not _RUNBOOKS.fullmatch(args.runbooks):
        raise UsageError(f"--runbooks {args.runbooks!r} is no address of a page")
    title = f"Scrapes the brokers and nameservers of {deployment.cluster}."
    brokers = None if args.brokers is None else _brokers(args.brokers, deployment.metrics_port)
    yield GeneratedFile("prometheus.yml", scrape_config(deployment, title=title, brokers=brokers))
    for name in RULES:
        text = fill(template(f"prometheus/{name}"), {"runbooks": args.runbooks})
        yield GeneratedFile(name, text)


def _brokers(text: str, default_port: int) -> list[str]:
    """Return HOST:PORT of each broker that `--brokers` names."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        try:
            host, port = parse_address(part if _PORT.search(part) else f"{part}:{default_port}")
        except ConfigError as wrong:
            raise UsageError(f"--brokers {text}: {wrong.reason}") from None
        _check_host(f"--brokers {text}", host)
        found.append(format_address((host, port)))
    if not found:
        raise UsageError("--brokers names no broker")
    return found


def _check_host(where: str, host: str) -> None:
    if not _HOST.fullmatch(host):
        raise UsageError(f"{where}: {host!r} is no name or address of a host")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--brokers",
        metavar="HOST[:PORT][;HOST[:PORT]]",
        help="all brokers, masters and slaves, with the port of their metrics"
        " (default: two hosts named after the broker)",
    )
    parser.add_argument(
        "--runbooks",
        default=RUNBOOKS,
        metavar="URL",
        help="where the page about alerts is found, for the links in alerts (%(default)s)",
    )


KIND: Final = Kind(
    name="prometheus",
    help="scrape config, recording rules and alerts for Prometheus",
    description="A prometheus.yml and the rules that it reads from its own folder. Targets are the"
    " hosts of\n-n and --brokers, with the ports of the metrics.",
    files=_files,
    add_arguments=_add_arguments,
)
