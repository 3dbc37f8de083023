"""`rmq message ACTION`."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, yes_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, TIME, Argument, Option

_ID: Final = Argument(
    "id", "its id: the one that its producer gave it (with --topic), or that of its place"
)

COMMAND: Final = Command(
    name="message",
    help="find messages, see who has read them, deliver them again",
    actions=lambda: (
        Command(
            name="get",
            help="show one message, and which groups have read it",
            description=(
                "Shows one message: by its id, or by its place in a queue (--topic and --at). Ids"
                " that producers give are looked up in a topic."
            ),
            params=admin_options(
                Argument("id", "its id (or give --at)", required=False),
                Option("--topic", metavar="TOPIC", help="the topic it was sent to"),
                Option(
                    "--at",
                    metavar="BROKER:QUEUE:OFFSET",
                    help="the message at this place of the topic",
                ),
            ),
            run="rmq.cli.admin.messages:get",
            examples=(
                "rmq message get 7F00000100002A9F0000000000000000",
                "rmq message get AC11000100012A9F0000000000000001 --topic Orders",
                "rmq message get --topic Orders --at broker-a:0:4711 --json",
            ),
        ),
        Command(
            name="find",
            help="list the messages with a key",
            params=admin_options(
                Option("--topic", required=True, metavar="TOPIC", help="of this topic"),
                Option("--key", required=True, metavar="KEY", help="with this key"),
                Option("--from", "from_ms", type=TIME, metavar="TIME", help="stored from then on"),
                Option("--to", "to_ms", type=TIME, metavar="TIME", help="stored up to then"),
                Option(
                    "--count",
                    type=POSITIVE,
                    default=64,
                    metavar="N",
                    help="at most N from each broker (64)",
                ),
            ),
            run="rmq.cli.admin.messages:find",
            examples=("rmq message find --topic Orders --key order-4711",),
        ),
        Command(
            name="trace",
            help="show what producers and consumers have traced of a message",
            params=admin_options(
                Argument("id", "the id that its producer gave it"),
                Option(
                    "--trace-topic",
                    metavar="TOPIC",
                    help="where clients write traces (RMQ_SYS_TRACE_TOPIC)",
                ),
            ),
            run="rmq.cli.admin.messages:trace",
            examples=("rmq message trace AC11000100012A9F0000000000000001",),
        ),
        Command(
            name="resend",
            help="deliver a message again: to one group, or to all",
            description=(
                "With --group only that group gets the message again, about a second later, by way"
                " of its retry topic; without, a copy is stored in the topic, for all groups."
            ),
            params=admin_options(
                _ID,
                Option("--topic", metavar="TOPIC", help="the topic it was sent to"),
                Option("--group", metavar="GROUP", help="the group that is to get it"),
                yes_option(),
            ),
            run="rmq.cli.admin.resending:resend",
            examples=(
                "rmq message resend AC11000100012A9F0000000000000001 --topic Orders",
                "rmq message resend 7F00000100002A9F0000000000000000 --group billing",
            ),
        ),
    ),
    examples=(
        "rmq message get AC11000100012A9F0000000000000001 --topic Orders",
        "rmq message find --topic Orders --key order-4711",
        "rmq message trace AC11000100012A9F0000000000000001",
        "rmq message resend AC11000100012A9F0000000000000001 --topic Orders --group billing",
    ),
)
