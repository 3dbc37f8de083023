"""Messages under the names of mqadmin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.cli.admin.messages import get as show_one
from rmq.cli.admin.session import open_cluster, tell_missing
from rmq.cli.common.tables import print_table
from rmq.cli.common.usage import UsageError
from rmq.client.blocking.producer import BlockingProducer
from rmq.client.core.admin.messages import messages_by_key
from rmq.client.core.messages import Message
from rmq.errors import IllegalMessageError

if TYPE_CHECKING:
    from argparse import Namespace

GROUP = "rmq_admin"


def by_id(args: Namespace) -> int:
    """Print one message by its id."""
    args.json, args.at = False, None
    return show_one(args)


def by_offset(args: Namespace) -> int:
    """Print one message by its place."""
    args.json, args.id = False, None
    args.at = f"{args.broker}:{args.queue}:{args.offset}"
    return show_one(args)


def by_key(args: Namespace) -> int:
    """Print messages with a key."""
    with open_cluster(args) as cluster:
        found = cluster.run(messages_by_key(cluster.nameservers, args.topic, args.key))
    print_table(
        ("#Message ID", "#QID", "#Offset"),
        [
            (each.message_id, str(each.queue.queue_id), str(each.queue_offset))
            for each in found.messages
        ],
    )
    return tell_missing(found.failures)


def send(args: Namespace) -> int:
    """Send one message."""
    try:
        keys = (args.key,) if args.key else ()
        message = Message(args.topic, args.body.encode(), tag=args.tag, keys=keys)
    except IllegalMessageError as exc:
        raise UsageError(exc.reason) from None
    with open_cluster(args) as cluster, BlockingProducer(cluster.admin.client, GROUP) as producer:
        done = producer.send(message)
    print_table(
        ("#Broker Name", "#QID", "#Send Result", "#MsgId"),
        [
            (
                done.queue.broker_name,
                str(done.queue.queue_id),
                done.status.value,
                done.message_id,
            )
        ],
    )
    return 0 if done.is_ok else 1
