"""`rmq produce`: lines of standard input as messages."""

from __future__ import annotations

from typing import Final

import click

from rmq.cli.common.cluster_options import cluster_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument, Option, flag

COMMAND: Final = Command(
    name="produce",
    help="send lines of standard input as messages",
    description=(
        "Sends each line of standard input as a message, many at a time. Shows on a terminal how"
        " fast. Ends with code 1 and says which lines if some were not stored. Ctrl-C stops"
        " reading and waits for what was sent."
    ),
    params=(
        Argument("topic", "where the messages go"),
        Option("--tag", metavar="TAG", help="consumers subscribe by it"),
        Option(
            "--key",
            multiple=True,
            metavar="KEY",
            help="operators find messages by it; may be given several times",
        ),
        Option(
            "--delay-level",
            type=click.INT,
            default=0,
            metavar="LEVEL",
            help="deliver later: 1 to 18 stand for 1 s to 2 h",
        ),
        flag(
            "--json",
            help="lines are whole messages, as `rmq consume --json` prints them; the options above"
            " are for those that do not say",
        ),
        *cluster_options(),
    ),
    run="rmq.cli.produce:run",
    examples=(
        "echo 'good morning' | rmq produce -n 127.0.0.1:9876 Hello",
        "rmq produce -n 127.0.0.1:9876 Orders --tag new --key 4711 < orders.txt",
        "rmq produce -n 127.0.0.1:9876 Orders --delay-level 3 < reminders.txt",
        """echo '{"body":"hi","keys":["k1"]}' | rmq produce -n 127.0.0.1:9876 Orders --json""",
    ),
)
