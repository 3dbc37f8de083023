"""`rmq generate compose`: nameservers, a pair, Prometheus and Grafana on one machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import rmq
from rmq.cli.generate.containers import (
    add_image_argument,
    checked_image,
    container_broker_conf,
    container_nameserver_conf,
    host_name,
)
from rmq.cli.generate.deployment import MODES, NAMESERVERS
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.prometheus import scrape_config
from rmq.cli.generate.templates import fill, template

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment

_TEMPLATES: Final = {
    "Dockerfile": "Dockerfile",
    "Dockerfile.dockerignore": "Dockerfile.dockerignore",
    "compose.yaml": "compose.yaml",
    "broker-start.sh": "broker-start.sh",
}


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    # The nameservers are services of the file, whatever others there are.
    deployment = replace(deployment, nameservers=NAMESERVERS)
    values = {
        "image": checked_image(args.image),
        "version": rmq.__version__,
        "name": host_name(deployment),
        "role": MODES[deployment.mode],
        "metrics_port": str(deployment.metrics_port),
        "nameserver_metrics_port": str(deployment.nameserver_metrics_port),
    }
    for path, name in _TEMPLATES.items():
        yield GeneratedFile(path, fill(template(name), values))
    title = "Scrapes the brokers and nameservers of compose.yaml."
    yield GeneratedFile(
        "prometheus.yml", scrape_config(deployment, title=title, rules="/etc/prometheus/rules/")
    )
    yield GeneratedFile("broker.conf", container_broker_conf(deployment, slaves=1))
    yield GeneratedFile("namesrv.conf", container_nameserver_conf(deployment))


KIND: Final = Kind(
    name="compose",
    help="Dockerfile and compose file: nameservers, a pair, Prometheus, Grafana",
    description="A Dockerfile, a compose file and what its services read. Dashboards and alerts are"
    " taken from\n../grafana and ../prometheus beside the folder.",
    files=_files,
    add_arguments=add_image_argument,
)
