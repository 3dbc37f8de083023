"""Consumer groups as they are: `rmq group list` and `describe`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq.cli.admin.session import Cluster, open_cluster, print_found
from rmq.cli.common.tables import DIM, ODD, Cell, Column, Styled, print_facts, print_table
from rmq.client.core.admin.clients import consumer_connections, running_info
from rmq.client.core.admin.groups import (
    broker_times,
    brokers_of_group,
    consume_stats,
    is_system_group,
)
from rmq.client.core.admin.targets import TIMEOUT_S, Failure
from rmq.client.core.flows import ask
from rmq.errors import NoBrokerError
from rmq.model.names import DLQ_PREFIX, dlq_topic, retry_topic
from rmq.model.words import count_text, seconds_text
from rmq.remoting.bodies import (
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from rmq.client.core.admin.clients import ConsumerConnections
    from rmq.client.core.admin.targets import Group
    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import ConsumeStats

_QUEUES: Final = (
    "TOPIC",
    "BROKER",
    Column("QUEUE", True),
    Column("AT", True),
    Column("END", True),
    Column("LAG", True),
    Column("BEHIND", True),
    "MEMBER",
)


class Progress(NamedTuple):
    """What one broker knows of a group."""

    stats: ConsumeStats
    delays_ms: dict[MessageQueue, int]
    """How old the next message of each queue is."""


# --- list -------------------------------------------------------------------------------------


def list_groups(args: Namespace) -> int:
    """Print all groups of a cluster."""
    with open_cluster(args) as cluster:
        found, failures = groups_found(cluster, args.cluster, with_system=args.all)
    return print_found(args, {"groups": found}, lambda: _show_groups(found), failures)


def groups_found(
    cluster: Cluster, name: str | None = None, *, with_system: bool = False
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Return how far all groups of a cluster are, and which brokers do not answer."""
    tried = cluster.read_each("groups", cluster.groups(cluster=name), _groups_of)
    names = sorted(
        {
            name
            for _, (configs, _) in tried.answers
            for name in configs.subscription_group_table
            if with_system or not is_system_group(name)
        }
    )
    dead = {topic.removeprefix(DLQ_PREFIX) for _, (_, topics) in tried.answers for topic in topics}
    asked: dict[tuple[str, int], Flow[ConsumeStats]] = {
        (name, number): consume_stats(broker.address, name, None)
        for name in names
        for number, (broker, _) in enumerate(tried.answers)
    }
    stats, errors = cluster.run_all(asked)
    told: dict[str, list[ConsumeStats]] = {}
    for (group, _), each in stats.items():
        told.setdefault(group, []).append(each)
    members, _ = cluster.run_all(
        {name: consumer_connections(cluster.nameservers, name) for name in names}
    )
    found = [
        _line(name, told.get(name, ()), members.get(name), has_dead=name in dead) for name in names
    ]
    silent = {tried.answers[number][0]: error for (_, number), error in errors.items()}
    return found, [*tried.failures, *(Failure(broker, error) for broker, error in silent.items())]


def _groups_of(broker: Address) -> Flow[tuple[SubscriptionGroupWrapper, list[str]]]:
    """Return the groups of a broker, and its topics of dead letters."""
    groups = yield from ask(
        broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=TIMEOUT_S
    )
    topics = yield from ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=TIMEOUT_S)
    table = topics.body(TopicConfigSerializeWrapper).topic_config_table
    return (
        groups.body(SubscriptionGroupWrapper),
        [name for name in table if name.startswith(DLQ_PREFIX)],
    )


def _line(
    name: str,
    stats: Sequence[ConsumeStats],
    members: ConsumerConnections | None,
    *,
    has_dead: bool,
) -> dict[str, Any]:
    queues = {queue: told for each in stats for queue, told in each.offset_table.items()}
    retries = retry_topic(name)
    return {
        "group": name,
        "members": None if members is None else len(members.connections),
        "topics": sorted({queue.topic for queue in queues if queue.topic != retries}),
        "lag": sum(max(0, told.broker_offset - told.consumer_offset) for told in queues.values()),
        "per_second": round(sum(each.consume_tps for each in stats), 1),
        "has_dead_letters": has_dead,
    }


def _show_groups(found: list[dict[str, Any]]) -> None:
    print_table(
        (
            "GROUP",
            Column("MEMBERS", True),
            Column("LAG", True),
            Column("READ/S", True),
            "TOPICS",
            "",
        ),
        [
            (
                group["group"],
                Styled("0", DIM) if group["members"] == 0 else group["members"],
                Styled(f"{group['lag']:,}", ODD) if group["lag"] else 0,
                group["per_second"],
                ", ".join(group["topics"]) or None,
                Styled("dead letters", ODD) if group["has_dead_letters"] else "",
            )
            for group in found
        ],
    )


# --- describe ---------------------------------------------------------------------------------


def describe(args: Namespace) -> int:
    """Print how far a group is."""
    with open_cluster(args) as cluster:
        found, failures = group_found(cluster, args.group, args.topic)
    return print_found(args, found, lambda: _show_group(found), failures)


def group_found(
    cluster: Cluster, group: str, topic: str | None = None
) -> tuple[dict[str, Any], list[Failure]]:
    """Return how far a group is and who reads; raise `NoBrokerError` if no broker knows it."""
    brokers = cluster.run(brokers_of_group(cluster.nameservers, group, topic))
    tried = cluster.read_each(
        f"progress of group {group}", brokers, partial(_progress, group=group, topic=topic)
    )
    members = cluster.run(consumer_connections(cluster.nameservers, group))
    clients = [each.client_id for each in members.connections if each.client_id]
    infos, _ = cluster.run_all(
        {name: running_info(cluster.nameservers, group, name) for name in clients}
    )
    member_of = {queue: name for name, info in infos.items() for queue in info.mq_table}
    queues: list[dict[str, Any]] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "consumer_offset": told.consumer_offset,
            "broker_offset": told.broker_offset,
            "lag": max(0, told.broker_offset - told.consumer_offset),
            "lag_s": delays.get(queue, 0) / 1000,
            "last_consumed_at_ms": max(0, told.last_timestamp) or None,
            "member": member_of.get(queue),
        }
        for _, (stats, delays) in tried.answers
        for queue, told in stats.offset_table.items()
        if topic is None or queue.topic == topic
    ]
    told = {(each["topic"], each["broker"], each["queue_id"]) for each in queues}
    queues += [
        _uncommitted(queue, name)
        for queue, name in member_of.items()
        if (topic is None or queue.topic == topic)
        and (queue.topic, queue.broker_name, queue.queue_id) not in told
    ]
    if not queues and not clients:
        expect_known(cluster, brokers, group)
    queues.sort(key=lambda each: (each["topic"], each["broker"], each["queue_id"]))
    found = {
        "group": group,
        "model": None if members.message_model is None else members.message_model.value,
        "type": None if members.consume_type is None else members.consume_type.value,
        "lag": sum(each["lag"] or 0 for each in queues),
        "lag_s": max((each["lag_s"] or 0.0 for each in queues), default=0.0),
        "per_second": round(sum(each.stats.consume_tps for _, each in tried.answers), 1),
        "members": [
            {
                "client_id": each.client_id,
                "address": each.client_addr,
                "language": None if each.language is None else each.language.name,
                "answers": each.client_id in infos,
                "queues": sum(name == each.client_id for name in member_of.values()),
            }
            for each in members.connections
        ],
        "subscriptions": {
            name: data.sub_string for name, data in sorted(members.subscriptions.items())
        },
        "queues": queues,
    }
    return found, [*tried.failures, *members.failures]


def _uncommitted(queue: MessageQueue, member: str) -> dict[str, Any]:
    """Return what is known of a queue that a member reads and has committed nothing of yet."""
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "consumer_offset": None,
        "broker_offset": None,
        "lag": None,
        "lag_s": None,
        "last_consumed_at_ms": None,
        "member": member,
    }


def _progress(broker: Address, *, group: str, topic: str | None) -> Flow[Progress]:
    stats = yield from consume_stats(broker.address, group, topic)
    delays: dict[MessageQueue, int] = {}
    for name in sorted({queue.topic for queue in stats.offset_table}):
        spans = (yield from broker_times(broker.address, group, name)).consume_time_span_set
        delays |= {span.message_queue: max(0, span.delay_time) for span in spans}
    return Progress(stats, delays)


def expect_known(cluster: Cluster, brokers: Sequence[Group], group: str) -> None:
    """Raise `NoBrokerError` for a group that has no settings anywhere."""
    tried = cluster.read_each("groups", brokers, _groups_of)
    known = {name for _, (each, _) in tried.answers for name in each.subscription_group_table}
    if group not in known and not tried.failures:
        raise NoBrokerError(
            f"group {group}", "no broker knows it", hint="`rmq group list` shows all groups"
        )


def _show_group(found: dict[str, Any]) -> None:
    own = (retry_topic(found["group"]), dlq_topic(found["group"]))
    reads = [
        f"{topic} ({expression})"
        for topic, expression in found["subscriptions"].items()
        if topic not in own
    ]
    print_facts(
        [
            ("group", found["group"]),
            ("members", count_text(len(found["members"]), "member")),
            ("model", found["model"]),
            ("reads", ", ".join(reads) or None),
            ("lag", lag_text(found["lag"], found["lag_s"])),
            ("rate", f"{found['per_second']:,} messages per second"),
        ]
    )
    if found["queues"]:
        print()
        print_table(_QUEUES, [queue_row(queue) for queue in found["queues"]])
    if found["members"]:
        print()
        print_table(
            ("MEMBER", "ADDRESS", "LANGUAGE", Column("QUEUES", True)),
            [
                (
                    each["client_id"],
                    each["address"],
                    each["language"],
                    each["queues"] if each["answers"] else Styled("no answer", ODD),
                )
                for each in found["members"]
            ],
        )


def queue_row(queue: dict[str, Any]) -> tuple[Cell, ...]:
    """Return a line of the table of queues."""
    lag = queue["lag"]
    return (
        queue["topic"],
        queue["broker"],
        queue["queue_id"],
        queue["consumer_offset"],
        queue["broker_offset"],
        Styled(f"{lag:,}", ODD) if lag else lag,
        seconds_text(queue["lag_s"]) if lag else None,
        queue["member"],
    )


def lag_text(messages: int, seconds: float) -> Cell:
    """Return how far a group is behind, in messages and time."""
    if not messages:
        return "none"
    return Styled(f"{count_text(messages, 'message')}, {seconds_text(seconds)}", ODD)
