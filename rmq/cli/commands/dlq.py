"""`rmq dlq ACTION`."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, cluster_option, yes_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, Argument, Option, flag, path_type

_GROUP: Final = Argument("group", "the consumer group that gave them up")

COMMAND: Final = Command(
    name="dlq",
    help="see dead letters, deliver them again, write them to a file",
    description=(
        "Dead letters are messages that a group has tried too often. They stay until they expire,"
        " delivered again or not."
    ),
    actions=lambda: (
        Command(
            name="list",
            help="list groups that have dead letters",
            params=admin_options(cluster_option()),
            run="rmq.cli.admin.dead_letters:list_groups",
            examples=("rmq dlq list",),
        ),
        Command(
            name="show",
            help="show the latest dead letters of a group",
            params=admin_options(
                _GROUP,
                Option(
                    "--count",
                    type=POSITIVE,
                    default=20,
                    metavar="N",
                    help="the latest N (20)",
                ),
            ),
            run="rmq.cli.admin.dead_letters:show",
            examples=("rmq dlq show billing", "rmq dlq show billing --count 100 --json"),
        ),
        Command(
            name="resend",
            help="deliver dead letters again",
            description=(
                "Delivers dead letters again: to the group that gave them up, by way of its retry"
                " topic, or with --to-topic to all groups of a topic. They stay among the dead"
                " letters, too."
            ),
            params=admin_options(
                _GROUP,
                Option(
                    "--id",
                    "ids",
                    multiple=True,
                    metavar="ID",
                    help="the letter with this id; may be given several times",
                ),
                flag("--all", help="all of them"),
                Option("--to-topic", metavar="TOPIC", help="store them in this topic instead"),
                flag("--dry-run", help="only show which ones"),
                yes_option(),
            ),
            run="rmq.cli.admin.resending:resend_dead_letters",
            examples=(
                "rmq dlq resend billing --all --dry-run",
                "rmq dlq resend billing --id AC11000100012A9F0000000000000001",
            ),
        ),
        Command(
            name="export",
            help="write dead letters as lines of JSON",
            description=(
                "Writes dead letters as lines of JSON, as `rmq produce --json` takes them. Without"
                " FILE to standard output."
            ),
            params=admin_options(
                _GROUP,
                Argument("file", "where to; it must not exist", required=False, type=path_type()),
            ),
            run="rmq.cli.admin.dead_letters:export",
            examples=("rmq dlq export billing letters.jsonl",),
        ),
    ),
    examples=(
        "rmq dlq list",
        "rmq dlq show billing",
        "rmq dlq resend billing --all --dry-run",
        "rmq dlq export billing letters.jsonl",
    ),
)
