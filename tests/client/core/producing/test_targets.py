"""The targets of topics follow the table of routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.core.producing.targets import TOPICS_MAX, QueueTarget, TargetTable
from rmq.client.core.routes import RouteTable, TopicRoute
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData

if TYPE_CHECKING:
    from collections.abc import Mapping

    Brokers = Mapping[str, Mapping[int, str]]


def route_of(brokers: Brokers, topic: str = "T", *, perm: int = 6) -> TopicRoute:
    return TopicRoute(
        topic,
        TopicRouteData(
            queue_datas=tuple(
                QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=perm)
                for name in brokers
            ),
            broker_datas=tuple(
                BrokerData(cluster="c", broker_name=name, broker_addrs=dict(addresses))
                for name, addresses in brokers.items()
            ),
        ),
    )


PAIR = {"a": {0: "a:1", 1: "a:2"}}


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue(topic="T", broker_name=broker, queue_id=number)


def test_every_writable_queue_is_a_target_with_the_address_of_its_master() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: -1)
    assert table.get("T") is None
    routes.put(route_of(PAIR))
    topic = table.get("T")
    assert topic is not None
    assert topic.targets == tuple(QueueTarget(queue(number), "a", "a:1") for number in range(2))
    assert table.get("T") is topic, "it is made once for a route"


def test_a_chosen_queue_need_not_be_writable_or_have_a_master() -> None:
    routes = RouteTable()
    routes.put(route_of(PAIR))
    topic = TargetTable(routes, lambda: 0).get("T")
    assert topic is not None
    assert topic.target_to(queue(1)) is topic.targets[1]
    assert topic.target_to(queue(9)).address == "a:1"
    assert topic.target_to(queue(0, "gone")).address == ""


def test_another_broker_is_one_of_another_name_that_takes_messages() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: 0)
    for brokers, others in ((PAIR, False), (PAIR | {"b": {0: "b:1"}}, True)):
        routes.put(route_of(brokers))
        topic = table.get("T")
        assert topic is not None
        assert topic.has_other("a") is others
        assert topic.has_other("gone")


def test_a_changed_route_keeps_the_turn() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: 5)
    routes.put(route_of(PAIR))
    before = table.get("T")
    routes.put(route_of({"b": {0: "b:1"}}))
    after = table.get("T")
    assert before is not None
    assert after is not None
    assert after.ring is before.ring
    assert [target.address for target in after.targets] == ["b:1", "b:1"]


def test_a_route_without_writable_queues_has_no_targets() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: 0)
    routes.put(route_of(PAIR))
    assert table.get("T") is not None
    routes.put(route_of(PAIR, perm=4))
    assert table.get("T") is None


def test_a_named_master_is_used_until_another_route_is_told() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: 0)
    routes.put(route_of(PAIR))
    told = routes.get("T")
    assert told is not None
    table.use(told.with_master("a", "a:2"))
    topic = table.get("T")
    assert topic is not None
    assert {target.address for target in topic.targets} == {"a:2"}
    table.use(told)
    topic = table.get("T")
    assert topic is not None
    assert {target.address for target in topic.targets} == {"a:1"}
    table.use(told)
    assert table.get("T") is topic
    table.use(told.with_master("a", "a:2"))
    routes.put(route_of({"a": {0: "a:3"}}))
    topic = table.get("T")
    assert topic is not None
    assert {target.address for target in topic.targets} == {"a:3"}


def test_a_variant_of_a_route_that_is_not_known_or_not_writable_is_not_used() -> None:
    routes = RouteTable()
    table = TargetTable(routes, lambda: 0)
    table.use(route_of(PAIR))
    assert table.get("T") is None
    routes.put(route_of({"a": {1: "a:2"}}))
    told = routes.get("T")
    assert told is not None
    table.use(told.with_master("a", "a:2"))
    assert table.get("T") is not None
    table.use(told)
    assert table.get("T") is None


def test_topics_are_bounded_and_the_oldest_goes() -> None:
    routes = RouteTable()
    firsts = iter(range(TOPICS_MAX + 2))
    table = TargetTable(routes, lambda: next(firsts))
    for number in range(TOPICS_MAX + 1):
        routes.put(route_of(PAIR, f"T{number}"))
        assert table.get(f"T{number}") is not None
    assert next(firsts) == TOPICS_MAX + 1
    firsts = iter([7])
    assert table.get("T0") is not None
    assert list(firsts) == [], "it was forgotten, and is made again"
