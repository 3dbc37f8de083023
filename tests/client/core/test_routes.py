"""Routes: which queues there are, where they are, and when that has changed."""

from __future__ import annotations

from rmq.client.core.routes import Address, MissingTopics, RouteTable, TopicRoute
from rmq.model.limits import QUEUES_MAX
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData


def route_data(
    *brokers: tuple[str, dict[int, str]], perm: int = 6, queues: int = 2, order: str | None = None
) -> TopicRouteData:
    return TopicRouteData(
        order_topic_conf=order,
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
            for name, _ in brokers
        ),
        broker_datas=tuple(
            BrokerData(cluster="C", broker_name=name, broker_addrs=addresses)
            for name, addresses in brokers
        ),
    )


B = ("b", {0: "b0:1", 1: "b1:1"})
A = ("a", {0: "a0:1"})
SLAVE_ONLY = ("c", {1: "c1:1"})


def test_queues_are_in_the_order_of_broker_names() -> None:
    route = TopicRoute("T", route_data(B, A))
    assert [(q.broker_name, q.queue_id) for q in route.writable] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert route.readable == route.writable


def test_without_a_master_a_queue_is_only_read() -> None:
    route = TopicRoute("T", route_data(SLAVE_ONLY))
    assert route.writable == ()
    assert len(route.readable) == 2
    assert route.master_of("c") is None
    assert route.address_of("c") == Address("c", 1, "c1:1")


def test_permissions() -> None:
    assert TopicRoute("T", route_data(A, perm=4)).writable == ()
    assert TopicRoute("T", route_data(A, perm=2)).readable == ()


def test_an_ordered_topic_keeps_its_queues() -> None:
    route = TopicRoute("T", route_data(A, order="a:2;gone:1;bad:x"))
    assert route.is_ordered
    assert [(q.broker_name, q.queue_id) for q in route.writable] == [
        ("a", 0),
        ("a", 1),
        ("gone", 0),
    ]


def test_any_broker_of_the_name_will_do() -> None:
    route = TopicRoute("T", route_data(A, B))
    assert route.address_of("b", 1) == Address("b", 1, "b1:1")
    assert route.address_of("b", 7) == Address("b", 0, "b0:1")
    assert route.address_of("nobody") is None


def test_a_table_knows_what_has_changed() -> None:
    table = RouteTable()
    assert table.put(TopicRoute("T", route_data(A, B)))
    assert not table.put(TopicRoute("T", route_data(B, A)))
    assert table.put(TopicRoute("T", route_data(A)))
    assert table.put(TopicRoute("U", route_data(SLAVE_ONLY)))
    assert [broker.address for broker in table.brokers()] == ["a0:1", "c1:1"]
    assert table.address_of("c", 0) == Address("c", 1, "c1:1")
    table.forget("U")
    assert table.address_of("c", 0) is None
    assert table.get("U") is None


def test_where_a_broker_is_is_what_was_told_last_by_whichever_topic() -> None:
    table = RouteTable()
    table.put(TopicRoute("Old", route_data(B)))
    table.put(TopicRoute("T", route_data(B)))
    # The master is gone, or its slave has taken over: that of another topic is not asked for often.
    table.put(TopicRoute("T", route_data(("b", {1: "b1:1"}))))
    assert table.address_of("b") == Address("b", 1, "b1:1")
    table.put(TopicRoute("T", route_data(("b", {0: "b1:1"}))))
    assert table.address_of("b") == Address("b", 0, "b1:1")
    # A route that is told again counts as told last, also if it is the same.
    table.put(TopicRoute("Old", route_data(B)))
    assert table.address_of("b") == Address("b", 0, "b0:1")
    # Who no longer has the topic may still have others.
    table.put(TopicRoute("Old", route_data(A)))
    assert table.address_of("b") == Address("b", 0, "b1:1")
    table.forget("T")
    assert table.address_of("b") is None
    assert table.address_of("a") == Address("a", 0, "a0:1")


def test_a_missing_topic_is_looked_for_less_and_less_often() -> None:
    missing = MissingTopics(pause_s_max=8.0)
    asked = [now for now in range(40) if missing.due({"T"}, float(now))]
    assert asked == [0, 1, 3, 7, 15, 23, 31, 39]
    assert missing.due({"T", "U"}, 40.0) == ["U"]
    # Once it was there it is new again.
    missing.due(set(), 41.0)
    assert missing.due({"T"}, 42.0) == ["T"]


def test_a_nameserver_is_not_believed_everything() -> None:
    route = TopicRoute("T", route_data(A, queues=2**31 - 1))
    assert len(route.writable) == len(route.readable) == QUEUES_MAX
    ordered = TopicRoute("T", route_data(A, order="a:2147483647"))
    assert len(ordered.writable) == QUEUES_MAX
