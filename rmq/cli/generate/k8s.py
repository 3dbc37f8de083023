"""`rmq generate k8s`: manifests for nameservers and the brokers of one name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq.cli.common.usage import UsageError
from rmq.cli.generate.containers import (
    add_image_argument,
    checked_image,
    container_broker_conf,
    container_nameserver_conf,
    host_name,
)
from rmq.cli.generate.deployment import MODES, NAMESERVER_PORT
from rmq.cli.generate.kind import GeneratedFile, Kind
from rmq.cli.generate.templates import fill, template

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from rmq.cli.generate.deployment import Deployment

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_QUANTITY: Final = re.compile(r"[1-9][0-9]{0,9}(Mi|Gi|Ti|Pi|M|G|T|P)")
SLAVES_MAX: Final = 8


def _files(deployment: Deployment, args: Namespace) -> Iterable[GeneratedFile]:
    namespace = _label("--namespace", args.namespace)
    if not _QUANTITY.fullmatch(args.storage):
        raise UsageError(f"--storage {args.storage!r} is no size, such as 100Gi")
    if not 0 <= args.slaves <= SLAVES_MAX:
        raise UsageError(f"--slaves {args.slaves} is not between 0 and {SLAVES_MAX}")
    storage_class = args.storage_class
    if storage_class is not None:
        storage_class = f"storageClassName: {_label('--storage-class', storage_class)}"
    hosts = [f"rmq-namesrv-{number}.rmq-namesrv.{namespace}.svc" for number in range(3)]
    deployment = replace(
        deployment, nameservers=tuple(f"{host}:{NAMESERVER_PORT}" for host in hosts)
    )
    port = deployment.port
    values = {
        "namespace": namespace,
        "image": checked_image(args.image),
        "name": host_name(deployment),
        "brokers": str(1 + args.slaves),
        "role": MODES[deployment.mode] if args.slaves else MODES["async"],
        "port": str(port),
        "vip_port": str(port - 2),
        "ha_port": str(port + 1),
        "metrics_port": str(deployment.metrics_port),
        "nameserver_metrics_port": str(deployment.nameserver_metrics_port),
        "storage": args.storage,
        "storage_class": storage_class or "# storageClassName: the default of the cluster",
        "broker_conf": container_broker_conf(deployment, slaves=args.slaves),
        "namesrv_conf": container_nameserver_conf(deployment),
        "broker_start": template("broker-start.sh"),
    }
    yield GeneratedFile("rmq.yaml", fill(template("k8s.yaml"), values))


def _label(option: str, text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise UsageError(f"{option} {text!r} is no name of Kubernetes")
    return text


def _add_arguments(parser: ArgumentParser) -> None:
    add_image_argument(parser)
    parser.add_argument("--namespace", default="rmq", metavar="NAME", help="(%(default)s)")
    parser.add_argument(
        "--slaves", type=int, default=1, metavar="N", help="slaves of the name (%(default)s)"
    )
    parser.add_argument(
        "--storage", default="100Gi", metavar="SIZE", help="disk of each broker (%(default)s)"
    )
    parser.add_argument("--storage-class", metavar="NAME", help="(default: that of the cluster)")


KIND: Final = Kind(
    name="k8s",
    help="manifests for Kubernetes: nameservers and the brokers of a name",
    description="StatefulSets, headless services, settings and disruption budgets of three"
    " nameservers and of\nthe brokers of one name.",
    files=_files,
    add_arguments=_add_arguments,
)
