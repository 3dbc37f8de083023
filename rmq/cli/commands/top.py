"""`rmq top`: a cluster, live on a terminal."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, cluster_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import SECONDS, Option

COMMAND: Final = Command(
    name="top",
    help="watch brokers and groups live",
    description=(
        "Shows brokers with their rates and disks, and groups with their lag and how it changes,"
        " those that are farthest behind first. q quits, p pauses, r asks now. Needs the extra"
        " rmq[top]."
    ),
    params=admin_options(
        Option(
            "--interval",
            type=SECONDS,
            default=2.0,
            metavar="SECONDS",
            help="how often brokers are asked (2)",
        ),
        cluster_option(),
    ),
    run="rmq.cli.top.command:run",
    examples=("rmq top -n 127.0.0.1:9876", "rmq top --interval 0.5"),
)
