"""Options of all commands that ask brokers and print what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.common.cluster_options import cluster_options
from rmq.cli.common.parameters import SECONDS, Option, flag

if TYPE_CHECKING:
    import click

TIMEOUT_S: Final = 5.0
_WHICH: Final = "which brokers"


def admin_options(*own: click.Parameter) -> tuple[click.Parameter, ...]:
    """Return the parameters of a command: its own ones, then those that all have."""
    return (
        *own,
        flag("--json", help="print JSON for scripts"),
        Option(
            "--timeout",
            type=SECONDS,
            default=TIMEOUT_S,
            metavar="SECONDS",
            help=f"how long to wait for an answer ({TIMEOUT_S:g})",
        ),
        *cluster_options(),
    )


def cluster_option() -> Option:
    return Option(
        "--cluster",
        metavar="NAME",
        section=_WHICH,
        help="those of this cluster (default: the only one there is, or all)",
    )


def broker_option() -> Option:
    return Option(
        "-b",
        "--broker",
        metavar="NAME|HOST:PORT",
        section=_WHICH,
        help="this one, by its name or its address",
    )


def yes_option() -> Option:
    return flag("--yes", help="do not ask")
