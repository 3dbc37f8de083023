"""Consumer groups and clients under the names of mqadmin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmq.cli.admin.groups import group_found
from rmq.cli.admin.groups import list_groups as list_all
from rmq.cli.admin.session import open_cluster, tell_missing
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import print_table
from rmq.cli.mqadmin.printing import stamp, target_of, tell_done, time_of
from rmq.client.core.admin.clients import consumer_connections, producer_connections
from rmq.client.core.admin.groups import create_group, delete_group
from rmq.client.core.admin.offsets import QUEUE_ENDS_MS, clone_offsets, reset_offsets
from rmq.remoting.bodies import SubscriptionGroupConfig

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import Connection


def progress(args: Namespace) -> int:
    """Print how far a group is, or all are."""
    if args.group is None:
        args.all, args.json = False, False
        return list_all(args)
    with open_cluster(args) as cluster:
        found, failures = group_found(cluster, args.group, args.topic)
    queues = [each for each in found["queues"] if each["lag"] is not None]
    heads = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    print_table(
        [*heads, *(["#Client IP"] if args.showClientIP else []), "#Diff", "#LastTime"],
        [_progress_row(each, with_client=args.showClientIP) for each in queues],
    )
    print(f"\nConsume TPS: {found['per_second']:.2f}")
    print(f"Diff Total: {found['lag']}")
    return tell_missing(failures)


def _progress_row(queue: dict[str, Any], *, with_client: bool) -> tuple[str, ...]:
    return (
        queue["topic"],
        queue["broker"],
        str(queue["queue_id"]),
        str(queue["broker_offset"]),
        str(queue["consumer_offset"]),
        *(((queue["member"] or "N/A").partition("@")[0],) if with_client else ()),
        str(queue["lag"]),
        stamp(queue["last_consumed_at_ms"] or 0) or "N/A",
    )


def consumers(args: Namespace) -> int:
    """Print who is in a group."""
    with open_cluster(args) as cluster:
        told = cluster.run(
            consumer_connections(cluster.nameservers, args.group, broker=args.broker)
        )
    print_table(
        ("#ClientId", "#ClientAddr", "#Language", "#Version"), map(_client, told.connections)
    )
    print("\nBelow is subscription:")
    print_table(
        ("#Topic", "#SubExpression"),
        [(topic, data.sub_string) for topic, data in told.subscriptions.items()],
    )
    if told.is_online:
        print()
        print(f"ConsumeType: {told.consume_type and told.consume_type.value}")
        print(f"MessageModel: {told.message_model and told.message_model.value}")
        print(f"ConsumeFromWhere: {told.consume_from and told.consume_from.value}")
    return tell_missing(told.failures)


def producers(args: Namespace) -> int:
    """Print who sends with a group."""
    with open_cluster(args) as cluster:
        told = cluster.run(producer_connections(cluster.nameservers, args.group, args.topic))
    print_table(
        ("#ClientId", "#ClientAddr", "#Language", "#Version"), map(_client, told.connections)
    )
    return tell_missing(told.failures)


def _client(connection: Connection) -> tuple[str, ...]:
    language = "" if connection.language is None else connection.language.name
    return (
        connection.client_id or "",
        connection.client_addr or "",
        language,
        str(connection.version),
    )


def update(args: Namespace) -> int:
    """Create a group, or replace its settings."""
    where = target_of(args)
    config = SubscriptionGroupConfig(
        group_name=args.group,
        consume_enable=args.consumeEnable,
        consume_from_min_enable=args.consumeFromMinEnable,
        consume_broadcast_enable=args.consumeBroadcastEnable,
        retry_queue_nums=args.retryQueueNums,
        retry_max_times=args.retryMaxTimes,
        broker_id=args.brokerId,
        which_broker_when_consume_slowly=args.whichBrokerWhenConsumeSlowly,
        notify_consumer_ids_changed_enable=args.notifyConsumerIdsChanged,
    )
    with open_cluster(args) as cluster:
        done = cluster.run(create_group(cluster.nameservers, config, **where))
    tell_done(f"create subscription group {args.group}", done)
    return ExitCode.OK


def delete(args: Namespace) -> int:
    """Delete a group."""
    where = target_of(args)
    with open_cluster(args) as cluster:
        done = cluster.run(
            delete_group(
                cluster.nameservers, args.group, removes_offsets=args.removeOffset, **where
            )
        )
    tell_done(f"delete subscription group [{args.group}]", done)
    return ExitCode.OK


def reset(args: Namespace) -> int:
    """Have a group go on where a topic was at a time."""
    return _reset(args, time_of(args.timestamp))


def skip(args: Namespace) -> int:
    """Have a group skip everything that is there."""
    return _reset(args, QUEUE_ENDS_MS)


def _reset(args: Namespace, time_ms: int) -> int:
    with open_cluster(args) as cluster:
        done = cluster.run(
            reset_offsets(
                cluster.nameservers, args.group, args.topic, time_ms, is_forced=args.force
            )
        )
    _print_offsets(done.offsets)
    return ExitCode.OK


def clone(args: Namespace) -> int:
    """Have one group go on where another one is."""
    with open_cluster(args) as cluster:
        done = cluster.run(
            clone_offsets(cluster.nameservers, args.srcGroup, args.destGroup, topic=args.topic)
        )
    _print_offsets(done)
    return ExitCode.OK


def _print_offsets(offsets: dict[MessageQueue, int]) -> None:
    print_table(
        ("#brokerName", "#queueId", "#offset"),
        [
            (queue.broker_name, str(queue.queue_id), str(offset))
            for queue, offset in offsets.items()
        ],
    )
