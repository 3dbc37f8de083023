"""`rmq cluster`: a line per broker."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, cluster_option
from rmq.cli.common.command import Command

COMMAND: Final = Command(
    name="cluster",
    help="show all brokers, a line each",
    description=(
        "Asks all brokers at once and shows a line for each: its place, version, messages per"
        " second, how full its disk is and how far its messages reach back. Exit code 1: one did"
        " not answer."
    ),
    params=admin_options(cluster_option()),
    run="rmq.cli.admin.brokers:cluster",
    examples=("rmq cluster -n 127.0.0.1:9876", "rmq cluster --json"),
)
