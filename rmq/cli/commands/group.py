"""`rmq group ACTION`."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, broker_option, cluster_option, yes_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import Argument, Option, flag

_GROUP: Final = Argument("group", "its name")

COMMAND: Final = Command(
    name="group",
    help="see how far consumer groups are, move and delete them",
    actions=lambda: (
        Command(
            name="list",
            help="list groups: members, and how far they are behind",
            params=admin_options(
                flag("--all", help="those of brokers and tools, too"), cluster_option()
            ),
            run="rmq.cli.admin.groups:list_groups",
            examples=("rmq group list", "rmq group list --json"),
        ),
        Command(
            name="describe",
            help="show how far a group is in every queue, and who reads it",
            description=(
                "Shows the members of a group, and for every queue where it goes on, how many"
                " messages it is behind, how old the next one is, and which member has the queue."
            ),
            params=admin_options(
                _GROUP, Option("--topic", metavar="TOPIC", help="only the queues of this topic")
            ),
            run="rmq.cli.admin.groups:describe",
            examples=("rmq group describe billing", "rmq group describe billing --topic Orders"),
        ),
        Command(
            name="reset",
            help="have a group go on elsewhere in a topic",
            description=(
                "Shows for every queue where the group goes on and where it would, asks, and moves"
                " it. Consumers that run are told by the brokers. Going back delivers messages"
                " again, going forth skips them."
            ),
            params=admin_options(
                _GROUP,
                Option("--topic", required=True, metavar="TOPIC", help="of which topic"),
                Option(
                    "--to",
                    required=True,
                    metavar="WHERE",
                    help="earliest, latest, or a time: milliseconds since 1970, or as ISO 8601 has"
                    " it",
                ),
                flag("--dry-run", help="only show what would change"),
                yes_option(),
            ),
            run="rmq.cli.admin.group_reset:reset",
            examples=(
                "rmq group reset billing --topic Orders --to latest",
                "rmq group reset billing --topic Orders --to 2025-01-31T08:15:00+00:00 --dry-run",
            ),
        ),
        Command(
            name="delete",
            help="delete a group, its retries and its dead letters",
            params=admin_options(
                _GROUP,
                flag("--keep-offsets", help="leave where it is, for a group of the same name"),
                yes_option(),
                cluster_option(),
                broker_option(),
            ),
            run="rmq.cli.admin.group_reset:delete",
            examples=("rmq group delete billing",),
        ),
    ),
    examples=(
        "rmq group list",
        "rmq group describe billing",
        "rmq group reset billing --topic Orders --to earliest --dry-run",
        "rmq group delete billing",
    ),
)
