"""What may be sent."""

from __future__ import annotations

from typing import Any

import pytest

from rmq.client.core.messages import Message, check_group
from rmq.errors import IllegalMessageError


def test_a_plain_message() -> None:
    message = Message("Orders", b"x", tag="A", keys=("k1", "k2"), properties={"colour": "red"})
    assert (message.topic, message.body, message.delay_level) == ("Orders", b"x", 0)


@pytest.mark.parametrize("keys", ["order-42", ["order-42"], ("order-42",)], ids=repr)
def test_text_alone_is_one_key(keys: str | list[str] | tuple[str, ...]) -> None:
    assert Message("Orders", b"x", keys=keys).keys == ("order-42",)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"topic": ""}, "no name", id="no topic"),
        pytest.param({"topic": "a b"}, "characters other than", id="a blank in the topic"),
        pytest.param({"topic": "t" * 128}, "128 characters, above 127", id="a long topic"),
        pytest.param({"body": b""}, "empty", id="no body"),
        pytest.param({"body": "text"}, "str, not bytes", id="text"),
        pytest.param({"delay_level": 19}, "not 0 to 18", id="delay level"),
        pytest.param({"delay_level": -1}, "not 0 to 18", id="delay level below 0"),
        pytest.param({"tag": "a||b"}, "split at", id="a tag that is two"),
        pytest.param({"keys": ("a b",)}, "has a blank", id="a blank in a key"),
        pytest.param({"keys": "a b"}, "several keys are given as a tuple", id="keys in one text"),
        pytest.param({"keys": ("",)}, "is empty", id="an empty key"),
        pytest.param({"properties": {"TAGS": "a"}}, "belongs to the system", id="reserved"),
        pytest.param({"properties": {"a": ""}}, "must not be empty", id="an empty value"),
        pytest.param({"properties": {"": "a"}}, "must not be empty", id="an empty name"),
        pytest.param({"properties": {"a": "\x02"}}, "character 1 or 2", id="a separator"),
        pytest.param({"properties": {"a": 1}}, "int, not str", id="a number"),
    ],
)
def test_what_no_broker_would_take_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        Message(**{"topic": "Orders", "body": b"x", **fields})


@pytest.mark.parametrize("group", ["", "a b", "g" * 256, "DEFAULT_PRODUCER"])
def test_groups_have_names_of_their_own(group: str) -> None:
    with pytest.raises(IllegalMessageError):
        check_group(group)
