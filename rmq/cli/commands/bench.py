"""`rmq bench`: how fast a cluster takes messages and gives them out."""

from __future__ import annotations

from typing import Final

from rmq.cli.common.admin_options import admin_options, cluster_option
from rmq.cli.common.command import Command
from rmq.cli.common.parameters import POSITIVE, Option, flag

COMMAND: Final = Command(
    name="bench",
    help="measure how fast a cluster takes and gives messages",
    description=(
        "Sends messages one after the other, which shows the time of a send, then many at a time,"
        " and reads them back, each one. One client process on one core: several at once show what"
        " the brokers can do. A topic that was not there before is deleted at the end, unless told"
        " --keep. Exit code 1: a message was not stored, or not read."
    ),
    params=admin_options(
        Option("--topic", default="RMQ_BENCH", metavar="TOPIC", help="where to (RMQ_BENCH)"),
        Option(
            "--messages",
            type=POSITIVE,
            default=20_000,
            metavar="N",
            help="sent many at a time (20000)",
        ),
        Option(
            "--singles",
            type=POSITIVE,
            default=1_000,
            metavar="N",
            help="sent one after the other before (1000)",
        ),
        Option("--size", type=POSITIVE, default=128, metavar="BYTES", help="of each body (128)"),
        Option(
            "--in-flight",
            type=POSITIVE,
            default=64,
            metavar="N",
            help="how many are under way at a time (64)",
        ),
        Option(
            "--queues",
            type=POSITIVE,
            default=8,
            metavar="N",
            help="of the topic at each broker, if it is created (8)",
        ),
        flag("--keep", help="leave the topic and its messages"),
        cluster_option(),
    ),
    run="rmq.cli.bench:run",
    examples=(
        "rmq bench -n 127.0.0.1:9876",
        "rmq bench --messages 100000 --size 1024 --in-flight 256 --json",
    ),
)
