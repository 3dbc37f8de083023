"""Answers are encoded once and again only after a change that concerns them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.nameserver.route_answers import RouteAnswers
from rmq.nameserver.routes import RouteTable
from tests.nameserver.kit import CLUSTER, MASTER, SLAVE, saying, topic

if TYPE_CHECKING:
    from collections.abc import Callable


def known() -> tuple[RouteTable[str], RouteAnswers]:
    table: RouteTable[str] = RouteTable()
    answers = RouteAnswers(table)
    table.register(saying(version=1, topics=["T", "U"]), "m", 0.0)
    return table, answers


def route(answers: RouteAnswers, name: str = "T", *, standard: bool = True) -> bytes:
    body = answers.route(name, standard=standard, order_topic_conf=None)
    assert body is not None
    return body


def test_the_two_forms_differ_in_their_keys_only() -> None:
    _, answers = known()
    broker = b'"brokerName":"a","cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName"'
    start, end = b'{"brokerDatas":[{"brokerAddrs":{', b":" + b'"10.0.0.1:10911"},' + broker
    assert route(answers, standard=True).startswith(start + b'"0"' + end)
    assert route(answers, standard=False).startswith(start + b"0" + end)


def test_a_route_is_encoded_once_per_form_as_long_as_nothing_changes() -> None:
    table, answers = known()
    bodies = [route(answers, standard=standard) for standard in (True, False)]
    table.register(saying(version=1, topics=["T", "U"]), "m", 30.0)
    table.heard_of(MASTER, "m", 31.0)
    again = [route(answers, standard=standard) for standard in (True, False)]
    assert bodies[0] is again[0]
    assert bodies[1] is again[1]


@pytest.mark.parametrize(
    ("change", "concerns_u"),
    [
        pytest.param(
            lambda table: table.register(
                saying(version=2, topics=[topic("T", perm=4), "U"]), "m", 1.0
            ),
            False,
            id="its queues",
        ),
        pytest.param(lambda table: table.delete_topic("T"), False, id="deleted"),
        pytest.param(
            lambda table: table.register(saying(broker_id=1, address=SLAVE), "s", 1.0),
            True,
            id="another broker",
        ),
        pytest.param(lambda table: table.wipe_write_perm("a"), True, id="permissions"),
        pytest.param(
            lambda table: table.register(saying(filter_servers=("f",)), "m", 1.0),
            True,
            id="filter servers",
        ),
    ],
)
def test_a_change_concerns_the_routes_it_is_about(
    change: Callable[[RouteTable[str]], object], concerns_u: bool
) -> None:
    table, answers = known()
    before_t, before_u = route(answers, "T"), route(answers, "U")
    change(table)
    assert answers.route("T", standard=True, order_topic_conf=None) != before_t
    assert (route(answers, "U") is not before_u) == concerns_u


def test_a_route_with_another_order_conf_is_another_answer() -> None:
    _, answers = known()
    plain = route(answers)
    ordered = answers.route("T", standard=True, order_topic_conf="a:4")
    assert ordered is not None
    assert b'"orderTopicConf":"a:4"' in ordered
    assert b"orderTopicConf" not in plain
    assert route(answers) == plain


def test_nothing_is_kept_for_what_does_not_exist() -> None:
    _, answers = known()
    for number in range(100):
        assert answers.route(f"no-{number}", standard=True, order_topic_conf=None) is None
        assert answers.topics_of_cluster(f"no-{number}") == b'{"topicList":[]}'
    assert not answers._routes
    assert not answers._topics_of_cluster
    answers.topics_of_cluster(CLUSTER)
    assert set(answers._topics_of_cluster) == {CLUSTER}


def test_lists_are_encoded_once_as_long_as_nothing_changes() -> None:
    table, answers = known()
    before = [answers.topics(), answers.cluster_info(), answers.topics_of_cluster(CLUSTER)]
    again = [answers.topics(), answers.cluster_info(), answers.topics_of_cluster(CLUSTER)]
    assert all(one is other for one, other in zip(before, again, strict=True))
    table.delete_topic("T")
    assert answers.topics() == b'{"topicList":["U"]}'
