"""Topics under the names of mqadmin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from rmq.cli.admin.session import open_cluster, tell_missing
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import print_table
from rmq.cli.mqadmin.printing import stamp, target_of, tell_done
from rmq.client.core.admin.topics import (
    create_topic,
    delete_topic,
    list_topics,
    set_topic_permission,
    topic_clusters,
    topic_route,
    topic_stats,
)

if TYPE_CHECKING:
    from argparse import Namespace


def topic_list(args: Namespace) -> int:
    """Print names."""
    with open_cluster(args) as cluster:
        names = cluster.run(list_topics(cluster.nameservers, cluster=args.cluster))
    print(*names, sep="\n")
    return ExitCode.OK


def topic_status(args: Namespace) -> int:
    """Print the queues of a topic."""
    with open_cluster(args) as cluster:
        stats = cluster.run(topic_stats(cluster.nameservers, args.topic))
    print_table(
        ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"),
        [
            (
                queue.broker_name,
                str(queue.queue_id),
                str(told.min_offset),
                str(told.max_offset),
                stamp(told.updated_at_ms),
            )
            for queue, told in stats.queues.items()
        ],
    )
    return tell_missing(stats.failures)


def print_route(args: Namespace) -> int:
    """Print where a topic is."""
    with open_cluster(args) as cluster:
        route = cluster.run(topic_route(cluster.nameservers, args.topic))
    if not args.list:
        print(json.dumps(msgspec.to_builtins(route, str_keys=True), indent=2))
        return ExitCode.OK
    queues = {data.broker_name: data for data in route.queue_datas}
    print_table(
        ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"),
        [
            (
                data.cluster or "",
                data.broker_name,
                str(data.broker_addrs),
                *(
                    (str(own.read_queue_nums), str(own.write_queue_nums), str(own.perm))
                    if (own := queues.get(data.broker_name)) is not None
                    else ("0", "0", "0")
                ),
            )
            for data in sorted(route.broker_datas, key=lambda each: each.broker_name)
        ],
    )
    return ExitCode.OK


def clusters(args: Namespace) -> int:
    """Print the clusters of a topic."""
    with open_cluster(args) as cluster:
        names = cluster.run(topic_clusters(cluster.nameservers, args.topic))
    print(*names, sep="\n")
    return ExitCode.OK


def update(args: Namespace) -> int:
    """Create a topic, or replace its settings."""
    where = target_of(args)
    with open_cluster(args) as cluster:
        done = cluster.run(
            create_topic(
                cluster.nameservers,
                args.topic,
                queues=args.write,
                read_queues=args.read,
                perm=args.perm,
                is_ordered=args.order,
                cluster=where["cluster"],
                broker=where["broker"],
            )
        )
    tell_done(f"create topic {args.topic}", done)
    return ExitCode.OK


def update_perm(args: Namespace) -> int:
    """Change whether a topic is read and written."""
    where = target_of(args)
    with open_cluster(args) as cluster:
        done = cluster.run(
            set_topic_permission(cluster.nameservers, args.topic, args.perm, **where)
        )
    tell_done(f"update topic perm of {args.topic} to {args.perm}", done)
    return ExitCode.OK


def delete(args: Namespace) -> int:
    """Delete a topic."""
    with open_cluster(args) as cluster:
        cluster.run(delete_topic(cluster.nameservers, args.topic, cluster=args.cluster))
    print(f"delete topic [{args.topic}] from cluster [{args.cluster}] success.")
    print(f"delete topic [{args.topic}] from NameServer success.")
    return ExitCode.OK
