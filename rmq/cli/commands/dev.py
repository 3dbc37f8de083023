"""`rmq dev`: a nameserver, a master and its slave on this machine, with a self-check."""

from __future__ import annotations

from typing import Final

import click

from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Option, flag, path_type

COMMAND: Final = Command(
    name="dev",
    help="run rmq on this machine and check that it works",
    description=(
        "Starts a nameserver, a master and its slave, sends 10,000 messages, reads them back from"
        " both, compares their logs, and stays up until Ctrl-C, also when one of the brokers is"
        " killed."
    ),
    params=(
        Option(
            "--host", default="127.0.0.1", metavar="HOST", help="address to listen on (127.0.0.1)"
        ),
        Option(
            "--port",
            type=click.INT,
            default=9876,
            metavar="PORT",
            help="port of the nameserver; those of the brokers move with it, 0 takes free ones for"
            " all (9876)",
        ),
        Option(
            "--broker-port",
            type=click.INT,
            metavar="PORT",
            help="port of the master; the slave is 10 above, and each uses its neighbours 2 below"
            " and 1 and 4 above, too (1035 above that of the nameserver: 10911)",
        ),
        Option(
            "--mode",
            type=click.Choice(("sync", "async")),
            default="sync",
            help="whether the master answers when the slave has a message, too (sync)",
        ),
        Option(
            "--data",
            type=path_type(),
            metavar="DIR",
            help="keep data here (default: gone at the end)",
        ),
        flag("--check", help="exit after the self-check"),
    ),
    run="rmq.cli.dev.command:run",
    examples=(
        "rmq dev",
        "rmq dev --check",
        "rmq dev --mode async",
        "rmq dev --port 19876",
        "rmq dev --data data",
    ),
)
