"""`rmq bundle`: everything that helps others to help, in one file."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument, Option, path_type

COMMAND: Final = Command(
    name="bundle",
    help="collect what helps to find a fault into one file",
    description=(
        "Writes a .tar.gz with what the commands for cluster, topics, groups, clients, settings,"
        " replication and doctor print, the metrics of brokers that can be reached, and with -c and"
        " --log the settings and logs of a broker of this machine. Values of settings that are"
        " secret are masked, and there are no bodies of messages; names and addresses are in it,"
        " and whatever logs say: look before you send it."
    ),
    params=admin_options(
        Argument("file", "what to write: NAME.tar.gz; it must not exist", type=path_type()),
        Option(
            "-c",
            "--config",
            type=path_type(),
            metavar="FILE",
            help="settings of a broker of this machine",
        ),
        Option(
            "--log",
            "log_files",
            type=path_type(),
            multiple=True,
            metavar="FILE",
            help="a log, of which the last 4 MiB are taken; may be given several times",
        ),
    ),
    run="rmq.cli.bundle:run",
    examples=(
        "rmq bundle fault.tar.gz -n 127.0.0.1:9876",
        "rmq bundle fault.tar.gz -c broker.conf --log broker.log",
    ),
)
