"""Paths to queues follow the routes; what is no longer needed is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.client.core.producing.targets import TOPICS_MAX
from rmq.client.core.routes import TopicRoute
from rmq.client.tasks.send_paths import PathTable, links_of
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import TopicRouteData
from tests.client.producer_kit import route_data

if TYPE_CHECKING:
    from collections.abc import Mapping


def route(topic: str = "T", masters: Mapping[str, str] | None = None) -> TopicRoute:
    return TopicRoute(topic, route_data(dict(masters or {"a": "a:1", "b": "b:1"}), 2))


class News:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_every_queue_has_a_path_and_every_master_one_connection() -> None:
    news = News()
    table = PathTable(news)
    assert table.get("T") is None
    topic = table.take(route())
    assert table.get("T") is topic
    assert [(path.broker_name, path.queue.queue_id, path.address) for path in topic.targets] == [
        ("a", 0, "a:1"),
        ("a", 1, "a:1"),
        ("b", 0, "b:1"),
        ("b", 1, "b:1"),
    ]
    assert len(links_of(topic)) == 2
    assert topic.has_other("a")
    assert news.count == 1
    # Another topic there shares the connections.
    other = table.take(route("U"))
    assert links_of(other) == links_of(topic)
    assert news.count == 1
    assert table.topics() == ("T", "U")


def test_a_queue_of_the_callers_choice_has_a_path_even_if_it_is_not_in_the_route() -> None:
    topic = PathTable(News()).take(route())
    known = MessageQueue(topic="T", broker_name="a", queue_id=1)
    assert topic.target_to(known) is topic.targets[1]
    beyond = MessageQueue(topic="T", broker_name="b", queue_id=9)
    assert topic.target_to(beyond).address == "b:1"
    assert topic.target_to(MessageQueue(topic="T", broker_name="c", queue_id=0)).link is None


def test_an_ordered_topic_keeps_the_queues_of_a_broker_that_is_away() -> None:
    data = route_data({"a": "a:1"}, 2)
    ordered = TopicRouteData(
        order_topic_conf="a:2;b:1", queue_datas=data.queue_datas, broker_datas=data.broker_datas
    )
    topic = PathTable(News()).take(TopicRoute("T", ordered))
    assert [path.address for path in topic.targets] == ["a:1", "a:1", ""]
    assert topic.targets[2].link is None


def test_a_changed_route_keeps_the_turn_and_the_connections_that_stay() -> None:
    news = News()
    table = PathTable(news)
    before = table.take(route())
    link = before.targets[0].link
    table.change(route(masters={"a": "a:1", "c": "c:1"}))
    after = table.get("T")
    assert after is not None
    assert after.ring is before.ring
    assert after.targets[0].link is link
    assert news.count == 2
    # The connection to b is forgotten, and would be a new one.
    assert {each.address for each in links_of(after)} == {"a:1", "c:1"}
    table.faults.note("b", 9.0, 0.0, failed=True)
    table.change(route(masters={"a": "a:1"}))
    assert table.faults.is_available("b", 0.0)


def test_a_route_that_leads_nowhere_is_forgotten() -> None:
    table = PathTable(News())
    table.take(route())
    table.change(TopicRoute("T", TopicRouteData()))
    assert table.get("T") is None
    # And one of a topic that nobody sends to is none of ours.
    table.change(route("U"))
    assert table.get("U") is None
    with pytest.raises(AssertionError):
        table.take(TopicRoute("T", TopicRouteData()))


def test_topics_are_bounded_and_the_oldest_goes() -> None:
    table = PathTable(News())
    for number in range(TOPICS_MAX + 1):
        table.take(route(f"T{number}"))
    assert len(table.topics()) == TOPICS_MAX
    assert table.get("T0") is None
    assert table.get(f"T{TOPICS_MAX}") is not None
