"""What all containers of rmq share: their settings, and how a broker is started. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import rmq
from rmq.cli.common.usage import UsageError
from rmq.cli.generate.settings_text import Broker, broker_text, nameserver_text

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from rmq.cli.generate.deployment import Deployment

IMAGE: Final = f"rmq:{rmq.__version__}"
DATA: Final = "/var/lib/rmq"
"""The volume of a container."""
ANY_ADDRESS: Final = "0.0.0.0"
"""In a container the network around it is the border, not the loopback address."""
OF_MACHINES: Final = frozenset(("logFile", "storePathCommitLog", "rocketmqHome"))
"""Paths that a container does not have: it logs to standard error, and has one volume."""
_IMAGE: Final = re.compile(r"[a-z0-9][\w./:@-]{0,254}", re.ASCII)
_HOST_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")


def add_image_argument(parser: ArgumentParser) -> None:
    parser.add_argument("--image", default=IMAGE, help="image of rmq (%(default)s)")


def checked_image(image: str) -> str:
    """Return the name of an image; raise `UsageError` for what is none."""
    if not _IMAGE.fullmatch(image):
        raise UsageError(f"--image {image!r} is no name of an image")
    return image


def host_name(deployment: Deployment) -> str:
    """Return the broker name as a name of hosts; raise `UsageError` if it is none."""
    if not _HOST_NAME.fullmatch(deployment.name):
        raise UsageError(
            f"--name {deployment.name!r}: containers need a name of lower-case letters, digits and"
            " '-', 52 characters at most"
        )
    return deployment.name


def container_broker_conf(deployment: Deployment, slaves: int) -> str:
    """Return the settings that master and slaves share; each adds its role when it starts."""
    kept = tuple(each for each in deployment.settings if each[0] not in OF_MACHINES)
    deployment = replace(deployment, settings=kept)
    return broker_text(
        deployment,
        Broker(
            title=f"{deployment.name}, settings of all its brokers. broker-start.sh adds brokerRole"
            " and brokerId, which change with promotions.",
            name=deployment.name,
            role=None,
            slaves=slaves,
            store=f"{DATA}/store",
            metrics_address=ANY_ADDRESS,
        ),
    )


def container_nameserver_conf(deployment: Deployment) -> str:
    """Return the settings of all nameservers."""
    return nameserver_text(
        kv_path=f"{DATA}/kvConfig.json",
        metrics_port=deployment.nameserver_metrics_port,
        metrics_address=ANY_ADDRESS,
    )
