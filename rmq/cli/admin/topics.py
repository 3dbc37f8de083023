"""Topics as they are: `rmq topic list`, `describe` and `route`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.session import Cluster, open_cluster, print_found
from rmq.cli.common.shown import time_text
from rmq.cli.common.tables import Cell, Column, print_facts, print_table
from rmq.client.core.admin import topics as flows
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.flows import ask
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.model.topic_flags import PERM_READ, PERM_WRITE
from rmq.remoting.bodies import GroupList, TopicConfigSerializeWrapper, TopicList, TopicStatsTable
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetTopicStatsInfoRequest, QueryTopicConsumeByWhoRequest

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from rmq.client.core.admin.targets import Failure
    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address

_QUEUES: Final = (
    "BROKER",
    Column("QUEUE", True),
    Column("FROM", True),
    Column("END", True),
    Column("MESSAGES", True),
    "LAST STORED",
)


# --- list -------------------------------------------------------------------------------------


def list_topics(args: Namespace) -> int:
    """Print all topics of a cluster."""
    with open_cluster(args) as cluster:
        groups = cluster.groups(cluster=args.cluster)
        tried = cluster.read_each("topics", groups, _topics_of)
    found: dict[str, dict[str, Any]] = {}
    for broker, (table, system) in tried.answers:
        for name, config in table.topic_config_table.items():
            if not args.all and (name in system or name.startswith((RETRY_PREFIX, DLQ_PREFIX))):
                continue
            topic = found.setdefault(name, {"topic": name, "brokers": []})
            topic["brokers"].append(
                {
                    "broker": broker.broker_name,
                    "read_queues": config.read_queue_nums,
                    "write_queues": config.write_queue_nums,
                    "perm": perm_text(config.perm),
                    "is_ordered": config.order,
                }
            )
    topics = [found[name] for name in sorted(found)]
    return print_found(args, {"topics": topics}, lambda: _show_topics(topics), tried.failures)


def _topics_of(
    broker: Address,
) -> Flow[tuple[TopicConfigSerializeWrapper, frozenset[str]]]:
    """Return the settings of all topics of a broker, and which of them it has by itself."""
    table = yield from ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=TIMEOUT_S)
    system = yield from ask(
        broker.address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, timeout_s=TIMEOUT_S
    )
    return table.body(TopicConfigSerializeWrapper), system.body(TopicList).topic_list


def _show_topics(topics: list[dict[str, Any]]) -> None:
    print_table(
        ("TOPIC", Column("QUEUES", True), "PERM", "BROKERS"),
        [
            (
                topic["topic"],
                sum(each["write_queues"] for each in topic["brokers"]),
                _of_all(each["perm"] for each in topic["brokers"]),
                ", ".join(each["broker"] for each in topic["brokers"]),
            )
            for topic in topics
        ],
    )


def _of_all(values: Iterable[str]) -> str:
    """Return a value that all brokers agree on, or all that there are."""
    return ", ".join(dict.fromkeys(values))


def perm_text(perm: int) -> str:
    """Return the permission of a topic as letters: `rw`."""
    text = f"{'r' if perm & PERM_READ else ''}{'w' if perm & PERM_WRITE else ''}"
    return text or "none"


# --- describe ---------------------------------------------------------------------------------


def describe(args: Namespace) -> int:
    """Print what a topic holds."""
    with open_cluster(args) as cluster:
        found, failures = topic_found(cluster, args.topic)
    return print_found(args, found, lambda: show_topic(found), failures)


def topic_found(cluster: Cluster, topic: str) -> tuple[dict[str, Any], list[Failure]]:
    """Return what a topic holds and who reads it, and which brokers did not answer."""
    groups = cluster.groups_of_topic(topic)
    tried = cluster.read_each(
        f"what topic {topic} holds", groups, partial(_read_topic, topic=topic)
    )
    queues = [
        {
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "min_offset": told.min_offset,
            "max_offset": told.max_offset,
            "messages": told.max_offset - told.min_offset,
            "last_stored_at_ms": max(0, told.last_update_timestamp) or None,
        }
        for _, (stats, _) in tried.answers
        for queue, told in sorted(stats.offset_table.items())
    ]
    readers = sorted({name for _, (_, told) in tried.answers for name in told})
    return {
        "topic": topic,
        "messages": sum(each["messages"] for each in queues),
        "groups": readers,
        "queues": sorted(queues, key=lambda each: (each["broker"], each["queue_id"])),
    }, list(tried.failures)


def _read_topic(broker: Address, *, topic: str) -> Flow[tuple[TopicStatsTable, frozenset[str]]]:
    """Return what a broker holds of a topic, and which groups read it there."""
    stats = yield from ask(
        broker.address,
        RequestCode.GET_TOPIC_STATS_INFO,
        GetTopicStatsInfoRequest(topic=topic),
        timeout_s=TIMEOUT_S,
    )
    groups = yield from ask(
        broker.address,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        QueryTopicConsumeByWhoRequest(topic=topic),
        timeout_s=TIMEOUT_S,
    )
    return stats.body(TopicStatsTable), groups.body(GroupList).group_list


def show_topic(found: dict[str, Any]) -> None:
    """Print what `topic_found` has found."""
    print_facts(
        [
            ("topic", found["topic"]),
            ("messages", found["messages"]),
            ("groups", ", ".join(found["groups"]) or "none has read it"),
        ]
    )
    print()
    rows: list[tuple[Cell, ...]] = [
        (
            queue["broker"],
            queue["queue_id"],
            queue["min_offset"],
            queue["max_offset"],
            queue["messages"],
            time_text(queue["last_stored_at_ms"]) if queue["last_stored_at_ms"] else None,
        )
        for queue in found["queues"]
    ]
    print_table(_QUEUES, rows)


# --- route ------------------------------------------------------------------------------------


def route(args: Namespace) -> int:
    """Print where a topic is."""
    with open_cluster(args) as cluster:
        told = cluster.run(flows.topic_route(cluster.nameservers, args.topic))
    queues = {data.broker_name: data for data in told.queue_datas}
    brokers: list[dict[str, Any]] = []
    for data in sorted(told.broker_datas, key=lambda each: each.broker_name):
        own = queues.get(data.broker_name)
        brokers.append(
            {
                "cluster": data.cluster or "",
                "broker": data.broker_name,
                "addresses": {
                    str(number): address for number, address in sorted(data.broker_addrs.items())
                },
                "read_queues": own.read_queue_nums if own is not None else 0,
                "write_queues": own.write_queue_nums if own is not None else 0,
                "perm": perm_text(own.perm) if own is not None else "none",
            }
        )
    found = {"topic": args.topic, "order": told.order_topic_conf, "brokers": brokers}

    def show() -> None:
        print_table(
            (
                "CLUSTER",
                "BROKER",
                Column("ID", True),
                "ADDRESS",
                Column("READ", True),
                Column("WRITE", True),
                "PERM",
            ),
            [
                (
                    broker["cluster"],
                    broker["broker"],
                    int(number),
                    address,
                    broker["read_queues"],
                    broker["write_queues"],
                    broker["perm"],
                )
                for broker in brokers
                for number, address in broker["addresses"].items()
            ],
        )

    return print_found(args, found, show)
