"""Which filter belongs to a subscription."""

from __future__ import annotations

import pytest

from rmq.broker.pulling.filters import ConditionFilter, check_expression, filter_for
from rmq.broker.pulling.sql_filter import SqlSyntaxError
from rmq.model.java import string_hash
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage
from rmq.remoting.bodies import SubscriptionData
from rmq.testing.storage import MemoryStorage
from tests.broker.broker_frames import subscription
from tests.store.store_kit import open_core, put


@pytest.mark.parametrize("kind", [None, "", "TAG"])
@pytest.mark.parametrize("expression", ["*", ""])
def test_who_subscribes_to_everything_has_no_filter(kind: str | None, expression: str) -> None:
    assert filter_for(subscription(expression, expression_type=kind)) is None


def test_tags_are_told_apart_by_their_codes() -> None:
    chosen = filter_for(subscription("TagA || TagB"))
    assert chosen is not None
    assert chosen.matches_tags_code(string_hash("TagA"))
    assert not chosen.matches_tags_code(string_hash("TagC"))
    assert not chosen.matches_tags_code(0)


def test_a_filter_class_of_the_client_is_not_the_brokers_business() -> None:
    data = SubscriptionData(
        topic="T", sub_string="code", expression_type="SQL92", class_filter_mode=True
    )
    assert filter_for(data) is None


def test_a_condition_chooses_by_properties_in_a_record_and_by_themselves() -> None:
    chosen = filter_for(subscription("a > 5 AND b = 'x'", expression_type="SQL92"))
    assert isinstance(chosen, ConditionFilter)
    for pairs, is_chosen in (
        ({"a": "6", "b": "x"}, True),
        ({"a": "5", "b": "x"}, False),
        ({"b": "x"}, False),
        ({"a": "six", "b": "x"}, False),
        ({}, False),
    ):
        properties = encode_properties(pairs)
        core = open_core(MemoryStorage())
        put(core, [NewMessage("T", 0, b"body", properties)])
        (record,) = core.reads.get("T", 0, QueueOffset(0), 1).records
        assert chosen.matches_record(record) is is_chosen
        assert chosen.matches_properties(properties) is is_chosen
        core.close()


def test_a_condition_does_not_know_tags_codes() -> None:
    chosen = filter_for(subscription("a > 5", expression_type="SQL92"))
    assert chosen is not None
    assert chosen.matches_tags_code(string_hash("anything"))


def test_a_condition_is_compiled_once() -> None:
    wanted = subscription("a BETWEEN 1 AND 5", expression_type="SQL92")
    assert filter_for(wanted) is filter_for(wanted)


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        pytest.param("SQL92", "a >", id="unfinished"),
        pytest.param("SQL92", "", id="empty"),
        pytest.param("SQL92", None, id="missing"),
        pytest.param("XPATH", "//a", id="unknown type"),
        pytest.param("sql92", "a > 5", id="type in small letters"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: str, expression: str | None) -> None:
    with pytest.raises(SqlSyntaxError):
        filter_for(SubscriptionData(topic="T", sub_string=expression, expression_type=kind))
    with pytest.raises(SqlSyntaxError):
        check_expression(kind, expression or "")


def test_an_expression_that_makes_sense_passes_the_check() -> None:
    check_expression("SQL92", "a IS NOT NULL")
    check_expression("TAG", "a || b")
