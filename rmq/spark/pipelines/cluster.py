"""Options of pipelines that talk to a cluster: addresses, account, encryption.

They have the names of the other commands' options, except that a secret never stands on the command
line: it is read from a file or from the environment, on each machine that needs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rmq.client.core.credentials import (
    ACCESS_KEY_VARIABLE,
    FILE_NAME,
    FILE_VARIABLE,
    HOME_VARIABLE,
    SECRET_KEY_VARIABLE,
)
from rmq.errors import ConfigError
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.settings.schema import Schema
from rmq.spark.options import (
    CLUSTER_SETTINGS,
    client_config,
    read_options,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from rmq.client.core.config import ClientConfig


_OPTION_NAMES: Final = {
    "credentials": "credentialsFile",
    "access_key": "accessKey",
    "secret_key_file": "secretKeyFile",
    "tls_trust": "tlsTrustFile",
    "tls_cert": "tlsCertFile",
    "tls_key": "tlsKeyFile",
}


def add_cluster_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "-n",
        "--nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help=f"where the nameservers are (default: ${NAMESERVERS_VARIABLE})",
    )
    group.add_argument(
        "--credentials",
        metavar="FILE",
        help="file with accessKey and secretKey of an account, on every machine (default:"
        f" ${FILE_VARIABLE}, else ${HOME_VARIABLE}/conf/{FILE_NAME} if it is there)",
    )
    group.add_argument(
        "--access-key",
        metavar="KEY",
        help=f"the account instead (default: ${ACCESS_KEY_VARIABLE})",
    )
    group.add_argument(
        "--secret-key-file",
        metavar="FILE",
        help=f"file with its secret, on every machine (default: ${SECRET_KEY_VARIABLE})",
    )
    group.add_argument("--tls", action="store_true", help="encrypt connections")
    group.add_argument(
        "--tls-trust",
        metavar="PEM",
        help="check the certificates of servers against these; implies --tls",
    )
    group.add_argument(
        "--tls-check-host",
        action="store_true",
        help="refuse a certificate that does not carry the host that was connected to; needs"
        " --tls-trust",
    )
    group.add_argument("--tls-cert", metavar="PEM", help="show this certificate; needs --tls-key")
    group.add_argument("--tls-key", metavar="PEM", help="the key of --tls-cert")


def cluster_options(args: Namespace, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the options of the format `rocketmq` that lead to the cluster.

    Raises `ConfigError` if no nameserver is named.
    """
    nameservers = _nameservers(args, environ)
    if not nameservers:
        raise ConfigError(
            "--nameservers",
            "which cluster?",
            hint=f"give -n HOST:PORT of a nameserver, or set ${NAMESERVERS_VARIABLE}",
        )
    options = {"nameservers": nameservers}
    for name, option in _OPTION_NAMES.items():
        value = getattr(args, name)
        if value:
            options[option] = value
    if args.tls:
        options["tls"] = "true"
    if args.tls_check_host:
        options["tlsCheckHost"] = "true"
    return options


def cluster_config(args: Namespace, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the same for a client in this process: `rmq.client.blocking`."""
    values = read_options(Schema(CLUSTER_SETTINGS), cluster_options(args, environ))
    return client_config(values, environ)


def cluster_target(args: Namespace, environ: Mapping[str, str] = os.environ) -> str:
    """Return how results name the cluster."""
    return _nameservers(args, environ) or "no cluster"


def store_or_cluster(args: Namespace) -> str:
    """Return how results name the store of `--store`, or else the cluster."""
    return cluster_target(args) if args.store is None else f"store {args.store}"


def _nameservers(args: Namespace, environ: Mapping[str, str]) -> str:
    named: str | None = args.nameservers
    return (environ.get(NAMESERVERS_VARIABLE, "") if named is None else named).strip(" ;")
