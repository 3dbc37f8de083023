"""Options of commands that are clients of a cluster: addresses, account, encryption."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.client.core.config import ClientConfig
from rmq.client.core.credentials import (
    ACCESS_KEY_VARIABLE,
    FILE_NAME,
    FILE_VARIABLE,
    HOME_VARIABLE,
    SECRET_KEY_VARIABLE,
    find_credentials,
)
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.remoting.tls_config import TlsClientConfig

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ArgumentGroup
    from collections.abc import Callable, Mapping

    from rmq.remoting.signing import Credentials

logger = logging.getLogger(__name__)


def add_client_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "-n",
        "--nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help=f"where the nameservers are (default: ${NAMESERVERS_VARIABLE})",
    )
    add_account_arguments(group)
    add_tls_arguments(group)


def add_tls_arguments(group: _ArgumentGroup) -> None:
    """Declare the options of encryption."""
    group.add_argument("--tls", action="store_true", help="encrypt connections")
    group.add_argument(
        "--tls-trust",
        type=Path,
        metavar="PEM",
        help="check the certificates of servers against these; implies --tls",
    )
    group.add_argument(
        "--tls-check-host",
        action="store_true",
        help="refuse a certificate that does not carry the host that was connected to; needs"
        " --tls-trust",
    )
    group.add_argument(
        "--tls-cert", type=Path, metavar="PEM", help="show this certificate; needs --tls-key"
    )
    group.add_argument("--tls-key", type=Path, metavar="PEM", help="the key of --tls-cert")


def add_account_arguments(group: _ArgumentGroup) -> None:
    """Declare the options of the account that requests are signed with."""
    group.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="file with accessKey and secretKey of an account, as mqadmin reads it (default:"
        f" ${FILE_VARIABLE}, else ${HOME_VARIABLE}/conf/{FILE_NAME} if it is there)",
    )
    group.add_argument(
        "--access-key",
        metavar="KEY",
        help=f"the account instead (default: ${ACCESS_KEY_VARIABLE})",
    )
    group.add_argument(
        "--secret-key",
        metavar="KEY",
        help="its secret key; deprecated, because other users of the machine see a command line:"
        f" use --credentials or ${SECRET_KEY_VARIABLE}",
    )


def client_config(args: Namespace, environ: Mapping[str, str]) -> ClientConfig:
    """Return what the options say; raise `UsageError` or `ConfigError`."""
    nameservers = args.nameservers
    if nameservers is None:
        nameservers = environ.get(NAMESERVERS_VARIABLE, "")
    if not nameservers.strip(" ;"):
        raise UsageError(
            f"which cluster? give -n HOST:PORT of a nameserver, or set ${NAMESERVERS_VARIABLE}"
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


def run_checked(name: str, run: Callable[[], int]) -> int:
    """Run a command; a wrong command line is reported as the parser does."""
    try:
        return run()
    except UsageError as wrong:
        print(f"rmq {name}: error: {wrong}", file=sys.stderr)
        return ExitCode.USAGE
