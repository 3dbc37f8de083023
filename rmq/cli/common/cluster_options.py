"""Options of commands that are clients of a cluster: addresses, account, encryption.

`client_options` says what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.parameters import Option, flag, path_type

if TYPE_CHECKING:
    import click

CLUSTER: Final = "the cluster"
NAMESERVERS_METAVAR: Final = "HOST:PORT[;HOST:PORT]"


def cluster_options() -> list[click.Parameter]:
    """Return the options of commands that find brokers by way of nameservers."""
    return [
        Option(
            "-n",
            "--nameservers",
            metavar=NAMESERVERS_METAVAR,
            section=CLUSTER,
            help="where the nameservers are (default: $NAMESRV_ADDR, else those of the context)",
        ),
        context_option(CLUSTER),
        *account_options(CLUSTER),
        *tls_options(CLUSTER),
    ]


def context_option(section: str) -> Option:
    """Return the option that names a cluster of the user's configuration."""
    return Option(
        "--context",
        metavar="NAME",
        section=section,
        help="a cluster that `rmq context add` has named (default: $RMQ_CONTEXT, else the one in"
        " use)",
    )


def account_options(section: str) -> list[Option]:
    """Return the options of the account that requests are signed with."""
    return [
        Option(
            "--credentials",
            type=path_type(),
            metavar="FILE",
            section=section,
            help="file with accessKey and secretKey of an account, as mqadmin reads it (default:"
            " $RMQ_CREDENTIALS, else $ROCKETMQ_HOME/conf/tools.yml if it is there)",
        ),
        Option(
            "--access-key",
            metavar="KEY",
            section=section,
            help="the account instead (default: $RMQ_ACCESS_KEY)",
        ),
        Option(
            "--secret-key",
            metavar="KEY",
            section=section,
            help="its secret key; deprecated, because other users of the machine see a command"
            " line: use --credentials or $RMQ_SECRET_KEY",
        ),
    ]


def tls_options(section: str) -> list[Option]:
    """Return the options of encryption."""
    return [
        flag("--tls", section=section, help="encrypt connections"),
        Option(
            "--tls-trust",
            type=path_type(),
            metavar="PEM",
            section=section,
            help="check the certificates of servers against these; implies --tls",
        ),
        flag(
            "--tls-check-host",
            section=section,
            help="refuse a certificate that does not carry the host that was connected to; needs"
            " --tls-trust",
        ),
        Option(
            "--tls-cert",
            type=path_type(),
            metavar="PEM",
            section=section,
            help="show this certificate; needs --tls-key",
        ),
        Option(
            "--tls-key",
            type=path_type(),
            metavar="PEM",
            section=section,
            help="the key of --tls-cert",
        ),
    ]
