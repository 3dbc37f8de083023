"""Options of commands that are clients of a cluster: addresses, account, encryption."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.cli.common.usage import UsageError
from rmq.client.core.config import ClientConfig
from rmq.client.core.credentials import (
    SECRET_KEY_VARIABLE,
    find_credentials,
)
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.remoting.tls_config import TlsClientConfig

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from rmq.remoting.signing import Credentials

logger = logging.getLogger(__name__)


def client_config(args: Namespace, environ: Mapping[str, str]) -> ClientConfig:
    """Return what the options say; raise `UsageError` or `ConfigError`."""
    nameservers = args.nameservers
    if nameservers is None:
        nameservers = environ.get(NAMESERVERS_VARIABLE, "")
    if not nameservers.strip(" ;"):
        raise UsageError(
            f"which cluster? give -n HOST:PORT of a nameserver, set ${NAMESERVERS_VARIABLE}, or"
            " name one with `rmq context add`"
        )
    return ClientConfig(
        nameservers=nameservers, credentials=credentials(args, environ), tls=tls_config(args)
    )


def credentials(args: Namespace, environ: Mapping[str, str]) -> Credentials | None:
    """Return what requests are signed with, None if no account is named; raise `ConfigError`."""
    if args.secret_key is not None:
        logger.warning(
            "--secret-key is deprecated: other users of this machine see it in the list of"
            " processes; put accessKey and secretKey into a file of mode 600 and name it with"
            " --credentials, or set $%s",
            SECRET_KEY_VARIABLE,
        )
    return find_credentials(
        environ,
        file=args.credentials,
        access_key=args.access_key,
        secret_key=args.secret_key,
    )


def tls_config(args: Namespace) -> TlsClientConfig | None:
    """Return what the options of encryption say, None without any; raise `UsageError`."""
    if args.tls_check_host and args.tls_trust is None:
        raise UsageError("--tls-check-host needs --tls-trust: whose certificates to believe")
    if not (args.tls or args.tls_trust or args.tls_cert or args.tls_key):
        return None
    return TlsClientConfig(
        auth_server=args.tls_trust is not None,
        check_hostname=args.tls_check_host,
        trust_cert_path=args.tls_trust,
        cert_path=args.tls_cert,
        key_path=args.tls_key,
    )
