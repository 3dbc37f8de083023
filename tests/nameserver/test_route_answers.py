"""Answers are encoded once and again only after a change that concerns them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.nameserver import route_answers
from rmq.nameserver.route_answers import RouteAnswers
from tests.nameserver.kit import CLUSTER, MASTER, SLAVE, WholeTable, saying, topic
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


def known() -> tuple[WholeTable, RouteAnswers]:
    table: WholeTable = WholeTable()
    answers = RouteAnswers(table.table)
    table.register(saying(version=1, topics=["T", "U"]), "m", 0.0)
    return table, answers


def route(answers: RouteAnswers, name: str = "T", *, standard: bool = True) -> bytes:
    body = finish(answers.route(name, standard=standard, order_topic_conf=None))
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
    change: Callable[[WholeTable], object], concerns_u: bool
) -> None:
    table, answers = known()
    before_t, before_u = route(answers, "T"), route(answers, "U")
    change(table)
    assert finish(answers.route("T", standard=True, order_topic_conf=None)) != before_t
    assert (route(answers, "U") is not before_u) == concerns_u


def test_a_route_with_another_order_conf_is_another_answer() -> None:
    _, answers = known()
    plain = route(answers)
    ordered = finish(answers.route("T", standard=True, order_topic_conf="a:4"))
    assert ordered is not None
    assert b'"orderTopicConf":"a:4"' in ordered
    assert b"orderTopicConf" not in plain
    assert route(answers) == plain


def test_a_route_that_is_kept_is_known_until_it_changes() -> None:
    def kept() -> bytes | None:
        return answers.known_route("T", standard=True, order_topic_conf=None)

    table, answers = known()
    assert kept() is None
    body = route(answers)
    assert kept() is body
    table.wipe_write_perm("a")
    assert kept() is None


def test_nothing_is_kept_for_what_does_not_exist() -> None:
    table, answers = known()
    for number in range(100):
        missing = answers.route(f"no-{number}", standard=True, order_topic_conf=None)
        assert finish(missing) is None
        assert finish(answers.topics_of_cluster(f"no-{number}")) == b'{"topicList":[]}'
    assert not answers._routes
    assert not answers._clusters
    finish(answers.topics_of_cluster(CLUSTER))
    route(answers)
    assert set(answers._clusters) == {CLUSTER}
    assert set(answers._routes) == {"T"}
    table.unregister(MASTER)
    table.clean()
    assert not answers._routes
    assert answers._route_bytes == 0


def test_no_more_routes_are_kept_than_the_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    _, answers = known()
    size = len(route(answers, "T"))
    monkeypatch.setattr(route_answers, "ROUTE_BYTES_MAX", size)
    route(answers, "U")
    assert set(answers._routes) == {"U"}


def test_lists_are_encoded_once_as_long_as_nothing_changes() -> None:
    table, answers = known()
    makers: list[Callable[[], Generator[None, None, bytes]]] = [
        answers.topics,
        answers.cluster_info,
        lambda: answers.topics_of_cluster(CLUSTER),
    ]
    before = [finish(make()) for make in makers]
    again = [finish(make()) for make in makers]
    assert all(one is other for one, other in zip(before, again, strict=True))
    table.delete_topic("T")
    assert finish(answers.topics()) == b'{"topicList":["U"]}'


@pytest.mark.parametrize("kind", ["list", "route"])
def test_what_was_begun_after_a_request_came_answers_it_even_if_the_table_changes(
    kind: str,
) -> None:
    table: WholeTable = WholeTable()
    answers = RouteAnswers(table.table)
    for number in range(400):
        table.register(saying(f"b{number}", address=f"x:{number}", topics=["T"]), "m", 0.0)

    def ask() -> Generator[None, None, bytes | None]:
        if kind == "list":
            return answers.cluster_info()
        return answers.route("T", standard=False, order_topic_conf=None)

    first, second = ask(), ask()
    next(first)  # begun
    third = ask()
    table.register(saying("new", address="x:new", topics=["T"]), "m", 1.0)
    body = finish(first)
    assert body is not None
    assert finish(second) is body
    after = finish(third)
    assert after is not None
    assert after is not body
    assert b"x:new" in after


def test_a_broker_that_is_removed_is_in_no_answer_that_is_begun_later() -> None:
    table: WholeTable = WholeTable()
    answers = RouteAnswers(table.table)
    for number in range(1000):
        said = saying(f"b{number}", address=f"x:{number}", topics=["T"])
        table.register(said, "one" if number % 2 else "two", 0.0)
    table.connection_lost("one")
    assert table.table.needs_cleaning
    for body in (finish(answers.cluster_info()), route(answers), finish(answers.system_topics())):
        assert b'"b0"' in body
        assert b'"b1"' not in body
    table.connection_lost("two")
    assert finish(answers.topics()) == b'{"topicList":[]}'
    assert finish(answers.route("T", standard=True, order_topic_conf=None)) is None
