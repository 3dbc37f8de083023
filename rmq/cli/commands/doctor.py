"""`rmq doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Option, path_type

COMMAND: Final = Command(
    name="doctor",
    help="find what is wrong with a machine, settings and a cluster",
    description=(
        "Checks the limits of this machine; with -c a broker.conf, its store, disk, ports and"
        " address; with a cluster its nameservers, brokers, disks and replication. Says what was"
        " found and what to do. Changes nothing. Exit code 1: a check failed; warnings do not"
        " count."
    ),
    params=admin_options(
        Option(
            "-c",
            "--config",
            type=path_type(),
            metavar="FILE",
            help="settings of a broker of this machine, usually broker.conf",
        ),
    ),
    run="rmq.cli.doctor.command:run",
    examples=("rmq doctor", "rmq doctor -c broker.conf", "rmq doctor -n 127.0.0.1:9876 --json"),
)
