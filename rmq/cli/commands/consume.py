"""`rmq consume`: messages of a topic on standard output."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.cluster_options import cluster_options
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, Argument, Option, flag

COMMAND: Final = Command(
    name="consume",
    help="print the messages of a topic",
    description=(
        "Prints the bodies of messages as they are, one per line, and stops at the end of what was"
        " there, unless told --count or --follow. Messages of a queue keep their order. Ctrl-C"
        " commits what was printed, if for a group, and leaves."
    ),
    params=(
        Argument("topic", "whose messages to print"),
        Option(
            "--group",
            metavar="GROUP",
            help="share the messages with others of this group, go on where it is, and commit what"
            " was printed (default: read everything, commit nothing)",
        ),
        Option(
            "--from",
            "start",
            metavar="WHERE",
            help="earliest (the default), latest, or a time: milliseconds since 1970, or as ISO"
            " 8601 has it; for a group, where it begins if it has not",
        ),
        Option("--tag", metavar="EXPR", help="only these tags: 'new || paid'"),
        Option(
            "--sql",
            metavar="EXPR",
            help="only where this holds of the properties: \"amount > 10 AND region = 'north'\";"
            " brokers must allow it (enablePropertyFilter); excludes --tag",
        ),
        Option(
            "--count",
            type=POSITIVE,
            metavar="N",
            help="stop after N messages; wait for them if need be",
        ),
        flag("--follow", help="go on with what comes, until Ctrl-C"),
        flag("--json", help="print everything that is known about each message"),
        *cluster_options(),
    ),
    run="rmq.cli.consume.command:run",
    examples=(
        "rmq consume -n 127.0.0.1:9876 Hello",
        "rmq consume -n 127.0.0.1:9876 Orders --from 2024-05-31T08:00:00+02:00 --json",
        "rmq consume -n 127.0.0.1:9876 Orders --group billing --follow --tag 'new || paid'",
        "rmq consume -n 127.0.0.1:9876 Orders --from latest --count 10",
    ),
)
