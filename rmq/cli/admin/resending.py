"""Messages delivered again: `rmq message resend` and `rmq dlq resend`.

To one group: stored in its retry topic with no tries counted, as its own consumers would give a
message back. To all groups of a topic: a copy is sent to it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rmq.cli.admin.dead_letters import letters_of, origin_of, print_letters
from rmq.cli.admin.messages import find_one
from rmq.cli.admin.session import Cluster, NothingFoundError, confirmed, open_cluster, print_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.client.blocking.producer import BlockingProducer
from rmq.client.core.consuming.send_back import resend as to_retry_topic
from rmq.client.core.messages import RESERVED, Message
from rmq.client.core.routes import RouteTable
from rmq.errors import NoRouteError
from rmq.model.names import retry_topic
from rmq.model.words import count_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from rmq.client.core.received import ReceivedMessage

GROUP: Final = "rmq_resend"
DELAY_LEVEL: Final = 1
"""About a second: the shortest that a message waits in a retry topic."""
ROUNDS_MAX: Final = 16
"""How often a group tries, as brokers have it unless told."""


def resend(args: Namespace) -> int:
    """Deliver one message again."""
    with open_cluster(args) as cluster:
        message = find_one(cluster, args.id, args.topic)
        whom = f"group {args.group}" if args.group else f"all groups of {message.topic}"
        if not confirmed(args, f"deliver message {message.message_id} to {whom} again?"):
            return ExitCode.FAILURE
        if args.group:
            _to_group(cluster, args.group, message, message.topic)
        else:
            _to_topic(cluster, message.topic, [message])
    found = {"id": message.message_id, "topic": message.topic, "group": args.group}
    return print_found(
        args, found, lambda: print(f"message {message.message_id} goes to {whom} again")
    )


def resend_dead_letters(args: Namespace) -> int:
    """Deliver dead letters again."""
    if bool(args.ids) == args.all:
        raise UsageError("which dead letters? give --id for some, or --all")
    with open_cluster(args) as cluster:
        wanted = set(args.ids)
        letters = [
            each
            for each in letters_of(cluster, args.group)
            if args.all or wanted & {each.message_id, each.offset_message_id}
        ]
        known = {name for each in letters for name in (each.message_id, each.offset_message_id)}
        if wanted - known:
            missing = ", ".join(sorted(wanted - known))
            raise NothingFoundError(f"group {args.group} has no dead letter {missing}")
        whom = f"all groups of {args.to_topic}" if args.to_topic else f"group {args.group}"
        if not args.json:
            print_letters(letters)
        found: dict[str, Any] = {
            "group": args.group,
            "to_topic": args.to_topic,
            "is_dry_run": args.dry_run,
            "ids": [each.message_id for each in letters],
        }
        if args.dry_run:
            return print_found(args, found, lambda: None)
        count = count_text(len(letters), "dead letter")
        if not confirmed(args, f"deliver {count} to {whom} again?"):
            return ExitCode.FAILURE
        if args.to_topic:
            _to_topic(cluster, args.to_topic, letters)
        else:
            for letter in letters:
                _to_group(cluster, args.group, letter, origin_of(letter))
    return print_found(args, found, lambda: print(f"{count} go to {whom} again"))


def _to_group(cluster: Cluster, group: str, message: ReceivedMessage, topic: str | None) -> None:
    """Have one group get a message as one of a topic."""
    if topic is None:
        raise NothingFoundError(
            f"message {message.message_id} does not say which topic it was sent to",
            hint="send it to a topic with --to-topic",
        )
    routes = RouteTable(cluster.nameservers.slave_reads)
    try:
        routes.put(cluster.run(cluster.nameservers.route(retry_topic(group))))
    except NoRouteError:
        raise NothingFoundError(
            f"group {group} has no retry topic: no consumer of it has been there",
            hint="start one of its consumers first",
        ) from None
    cluster.run(
        to_retry_topic(
            routes,
            msgspec.structs.replace(message, topic=topic),
            group=group,
            delay_level=DELAY_LEVEL,
            reconsume_times=0,
            reconsume_max=ROUNDS_MAX,
            now_ms=int(time.time() * 1000),
        )
    )


def _to_topic(cluster: Cluster, topic: str, messages: Sequence[ReceivedMessage]) -> None:
    with BlockingProducer(cluster.admin.client, GROUP) as producer:
        for message in messages:
            own = {name: text for name, text in message.properties.items() if name not in RESERVED}
            producer.send(
                Message(
                    topic,
                    message.body,
                    tag=message.tag,
                    keys=message.keys,
                    properties=own,
                    flag=message.flag,
                )
            )
