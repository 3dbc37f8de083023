"""Topics made and deleted: `rmq topic create` and `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.cli.admin.session import confirmed, open_cluster, print_found
from rmq.cli.admin.topics import show_topic, topic_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.usage import UsageError
from rmq.client.core.admin import topics as flows
from rmq.client.core.admin.targets import who
from rmq.client.core.messages import check_topic
from rmq.errors import IllegalMessageError
from rmq.model.topic_flags import PERM_READ, PERM_READ_WRITE, PERM_WRITE

if TYPE_CHECKING:
    from argparse import Namespace

PERMS: Final = {"rw": PERM_READ_WRITE, "r": PERM_READ, "w": PERM_WRITE}


def create(args: Namespace) -> int:
    """Create a topic."""
    try:
        check_topic(args.topic)
    except IllegalMessageError as exc:
        raise UsageError(exc.reason) from None
    with open_cluster(args) as cluster:
        done = cluster.run(
            flows.create_topic(
                cluster.nameservers,
                args.topic,
                queues=args.queues,
                read_queues=args.read_queues,
                perm=PERMS[args.perm],
                is_ordered=args.ordered,
                cluster=args.cluster,
                broker=args.broker,
            )
        )
    found = {
        "topic": args.topic,
        "queues": args.queues,
        "read_queues": args.read_queues or args.queues,
        "perm": args.perm,
        "is_ordered": args.ordered,
        "brokers": [{"broker": each.broker_name, "address": each.address} for each in done],
    }

    def show() -> None:
        for broker in done:
            print(f"{args.topic} is on {who(broker)}: {args.queues} queues, {args.perm}")

    return print_found(args, found, show)


def delete(args: Namespace) -> int:
    """Delete a topic, once it is known what goes with it."""
    with open_cluster(args) as cluster:
        found, failures = topic_found(cluster, args.topic)
        if not args.json:
            show_topic(found)
        if failures:
            print_found(args, found, lambda: None, failures)
            raise UsageError("all brokers of the topic must answer before it is deleted")
        question = f"delete {args.topic} and its {found['messages']:,} messages?"
        if not confirmed(args, question):
            return ExitCode.FAILURE
        done = cluster.run(
            flows.delete_topic(cluster.nameservers, args.topic, cluster=args.cluster)
        )
    found["deleted_at"] = [{"broker": each.broker_name, "address": each.address} for each in done]

    def show() -> None:
        print(f"{args.topic} is deleted at {', '.join(map(who, done))}, and at the nameservers")

    return print_found(args, found, show)
