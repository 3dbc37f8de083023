"""`rmq client ACTION`."""

from __future__ import annotations

from typing import Final

import click

from rmq.cli.common.admin_options import admin_options, cluster_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Option

COMMAND: Final = Command(
    name="client",
    help="see who is connected",
    actions=lambda: (
        Command(
            name="list",
            help="list consumers and producers that are connected",
            params=admin_options(
                Option(
                    "--kind",
                    type=click.Choice(("consumer", "producer")),
                    help="only these (default: both)",
                ),
                Option("--group", metavar="GROUP", help="only those of this group"),
                cluster_option(),
            ),
            run="rmq.cli.admin.clients:list_clients",
            examples=("rmq client list", "rmq client list --kind consumer --group billing"),
        ),
    ),
    examples=("rmq client list", "rmq client list --group billing --json"),
)
