"""Names of topics, groups and clients: rules and words of RocketMQ 4.9.8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.model.name_rules import (
    SUBSCRIBED_CHARS_MAX,
    client_id_refusal,
    group_refusal,
    is_subscribable,
    topic_refusal,
)

ALLOWED = "%|abcxyzABCXYZ0189_-"
TOPIC_WORDS = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize("name", ["a", "%RETRY%group", "MQ_INST_1%group", "a|b-c_D9", "t" * 127])
def test_what_stock_clients_take_is_legal(name: str) -> None:
    assert topic_refusal(name) is None
    assert group_refusal(name) is None
    assert is_subscribable(name)


@pytest.mark.parametrize(
    "name", ["a b", "a.b", "a@b", "../../x", "a\n", "\x00", "a\x7f", "ä", "\uff11", "a\ud800", "\\"]
)
def test_other_characters_are_illegal(name: str) -> None:
    assert topic_refusal(name) == TOPIC_WORDS
    assert group_refusal(name) == (
        f"the specified group[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )
    assert not is_subscribable(name)


@pytest.mark.parametrize("name", ["", " ", "\t\n ", "\u2003", "\x1c"])
def test_a_blank_name_is_none(name: str) -> None:
    assert topic_refusal(name) == "The specified topic is blank."
    assert group_refusal(name) == "the specified group is blank"


@pytest.mark.parametrize("name", ["\x85", "\xa0", "\u2007", "\u202f"])
def test_what_java_does_not_take_for_blank_is_illegal(name: str) -> None:
    assert topic_refusal(name) == TOPIC_WORDS


def test_names_have_a_length() -> None:
    assert topic_refusal("t" * 128) == "The specified topic is longer than topic max length."
    assert group_refusal("g" * 255) is None
    assert group_refusal("g" * 256) == ("the specified group is longer than group max length 255.")
    assert is_subscribable("%RETRY%" + "g" * 255)
    assert not is_subscribable("t" * (SUBSCRIBED_CHARS_MAX + 1))
    assert client_id_refusal("192.0.2.1@any name at all \u00e4\x00") is None
    assert client_id_refusal("i" * 1025) is not None


@given(st.text(max_size=140) | st.text(alphabet=ALLOWED, max_size=140))
def test_the_rule_is_that_of_topic_validator(name: str) -> None:
    expected = (
        bool(name)
        and len(name) <= 127
        and all(
            character.isascii() and (character.isalnum() or character in "%|_-")
            for character in name
        )
    )
    assert (topic_refusal(name) is None) == expected
