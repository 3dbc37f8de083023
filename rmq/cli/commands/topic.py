"""`rmq topic ACTION`."""

from __future__ import annotations

from typing import Final

import click

from rmq.cli.common.admin_options import admin_options, broker_option, cluster_option, yes_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, Argument, Option, flag

_TOPIC: Final = Argument("topic", "its name")

COMMAND: Final = Command(
    name="topic",
    help="list, create, describe and delete topics",
    actions=lambda: (
        Command(
            name="list",
            help="list topics: their queues and where they are",
            params=admin_options(
                flag("--all", help="those of brokers, retries and dead letters, too"),
                cluster_option(),
            ),
            run="rmq.cli.admin.topics:list_topics",
            examples=("rmq topic list", "rmq topic list --all --json"),
        ),
        Command(
            name="create",
            help="create a topic, or replace its settings",
            description=(
                "Creates a topic on every master of a cluster, or on one broker. A topic that is"
                " there gets these settings."
            ),
            params=admin_options(
                _TOPIC,
                Option(
                    "--queues",
                    type=POSITIVE,
                    default=8,
                    metavar="N",
                    help="queues on each broker (8)",
                ),
                Option(
                    "--read-queues",
                    type=POSITIVE,
                    metavar="N",
                    help="how many of them consumers read (default: all)",
                ),
                Option(
                    "--perm",
                    type=click.Choice(("rw", "r", "w")),
                    default="rw",
                    help="whether it is read and written (rw)",
                ),
                flag("--ordered", help="its queues stay where they are while a broker is away"),
                cluster_option(),
                broker_option(),
            ),
            run="rmq.cli.admin.topic_changes:create",
            examples=("rmq topic create Orders --queues 16", "rmq topic create Audit --perm r"),
        ),
        Command(
            name="describe",
            help="show what a topic holds, and who reads it",
            params=admin_options(_TOPIC),
            run="rmq.cli.admin.topics:describe",
            examples=("rmq topic describe Orders",),
        ),
        Command(
            name="delete",
            help="delete a topic and all its messages",
            description=(
                "Deletes a topic on every master of a cluster, and then at all nameservers. Shows"
                " first what it holds and who reads it, and asks."
            ),
            params=admin_options(_TOPIC, yes_option(), cluster_option()),
            run="rmq.cli.admin.topic_changes:delete",
            examples=("rmq topic delete Orders",),
        ),
        Command(
            name="route",
            help="show which brokers have a topic, as nameservers tell clients",
            params=admin_options(_TOPIC),
            run="rmq.cli.admin.topics:route",
            examples=("rmq topic route Orders",),
        ),
    ),
    examples=(
        "rmq topic list",
        "rmq topic create Orders --queues 16",
        "rmq topic describe Orders",
        "rmq topic route Orders --json",
        "rmq topic delete Orders",
    ),
)
