"""Connected clients: `rmq client list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmq.cli.admin.session import open_cluster, print_found
from rmq.cli.common.tables import Column, print_table
from rmq.client.core.admin.groups import is_system_group
from rmq.client.core.admin.targets import TIMEOUT_S
from rmq.client.core.flows import Ask, ask, expect
from rmq.remoting.bodies import ConsumerConnection, ProducerTableInfo, SubscriptionGroupWrapper
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetConsumerConnectionListRequest

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from rmq.client.core.flows import Flow
    from rmq.client.core.routes import Address


class Seen(NamedTuple):
    """The clients that one broker knows, by group."""

    consumers: Mapping[str, ConsumerConnection]
    producers: ProducerTableInfo


def list_clients(args: Namespace) -> int:
    """Print who is connected."""
    with open_cluster(args) as cluster:
        groups = cluster.groups(cluster=args.cluster)
        tried = cluster.read_each("clients", groups, lambda broker: _seen_by(broker, args))
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for broker, seen in tried.answers:
        for line in _lines(seen):
            key = (line["kind"], line["group"], line["client_id"])
            found.setdefault(key, line)["brokers"].append(broker.broker_name)
    lines = [found[key] for key in sorted(found)]

    def show() -> None:
        print_table(
            ("KIND", "GROUP", "CLIENT", "LANGUAGE", Column("VERSION", True), "BROKERS"),
            [
                (
                    each["kind"],
                    each["group"],
                    each["client_id"],
                    each["language"],
                    str(each["version"]),
                    ", ".join(each["brokers"]),
                )
                for each in lines
            ],
        )

    return print_found(args, {"clients": lines}, show, tried.failures)


def _seen_by(broker: Address, args: Namespace) -> Flow[Seen]:
    """Ask one broker who is connected to it."""
    consumers: dict[str, ConsumerConnection] = {}
    if args.kind != "producer":
        answer = yield from ask(
            broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=TIMEOUT_S
        )
        names = answer.body(SubscriptionGroupWrapper).subscription_group_table
        for name in sorted(names):
            if args.group is not None and name != args.group:
                continue
            header = GetConsumerConnectionListRequest(consumer_group=name)
            told = yield Ask(
                broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, None, TIMEOUT_S
            )
            if told is not None and told.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            consumers[name] = expect(told).body(ConsumerConnection)
    producers = ProducerTableInfo()
    if args.kind != "consumer":
        answer = yield from ask(
            broker.address, RequestCode.GET_ALL_PRODUCER_INFO, timeout_s=TIMEOUT_S
        )
        everyone = answer.body(ProducerTableInfo).data
        producers = ProducerTableInfo(
            data={
                name: members
                for name, members in everyone.items()
                if name == args.group or (args.group is None and not is_system_group(name))
            }
        )
    return Seen(consumers, producers)


def _lines(seen: Seen) -> Iterator[dict[str, Any]]:
    for group, told in seen.consumers.items():
        for member in told.connection_set:
            yield {
                "kind": "consumer",
                "group": group,
                "client_id": member.client_id or "",
                "address": member.client_addr,
                "language": None if member.language is None else member.language.name,
                "version": member.version,
                "brokers": [],
            }
    for group, producers in seen.producers.data.items():
        for producer in producers:
            yield {
                "kind": "producer",
                "group": group,
                "client_id": producer.client_id or "",
                "address": producer.remote_ip,
                "language": None if producer.language is None else producer.language.name,
                "version": producer.version,
                "brokers": [],
            }
