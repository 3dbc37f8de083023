"""Words of permissions, and what they allow: the tables of RocketMQ 4.9.8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.access.permissions import (
    ANY,
    DENY,
    PUB,
    SUB,
    checked_resources,
    is_enough,
    permission_of,
    resource_of,
    shown_resource,
)

WORDS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}


@pytest.mark.parametrize(("word", "permission"), WORDS.items())
def test_words_are_those_of_the_stock_file(word: str, permission: int) -> None:
    assert permission_of(word) == permission
    assert permission_of(f" {word}\t") == permission


@pytest.mark.parametrize("nothing", [None, "", "  "])
def test_no_word_is_deny(nothing: str | None) -> None:
    assert permission_of(nothing) == DENY


@pytest.mark.parametrize("word", ["pub", "ANY", "PUB |SUB", "PUB,SUB", "ALL"])
def test_a_word_that_stock_would_read_as_deny_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"is not one of DENY, PUB, SUB, PUB\|SUB, SUB\|PUB"):
        permission_of(word)


@pytest.mark.parametrize(
    ("needed", "owned", "enough"),
    [
        (PUB, PUB, True),
        (PUB, SUB, False),
        (SUB, PUB | SUB, True),
        (SUB, DENY, False),
        (SUB, DENY | SUB, False),
        (ANY, PUB, True),
        (ANY, SUB, True),
        (ANY, ANY, False),
        (ANY, DENY | PUB, False),
        (PUB, ANY, False),
    ],
)
def test_deny_wins_and_any_wants_one_of_the_two(needed: int, owned: int, enough: bool) -> None:
    assert is_enough(needed, owned) == enough


@given(
    st.text(min_size=1).filter(lambda name: "=" not in name and name.strip()),
    st.sampled_from(list(WORDS)),
)
def test_a_resource_is_a_name_and_a_word(name: str, word: str) -> None:
    assert resource_of(f"{name}={word}") == (name.strip(), WORDS[word])
    assert checked_resources([f"{name}={word}"]) == [f"{name}={word}"]


@pytest.mark.parametrize("text", ["", "a", "=PUB", "a=", "a=PUB=SUB", " =PUB"])
def test_a_change_that_names_no_resource_is_answered_as_stock_answers(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form name=PERM"):
        resource_of(text)
    with pytest.raises(ValueError, match="Parse Resource format error for") as caught:
        checked_resources(["a=PUB", text])
    assert str(caught.value) == (
        f"Parse Resource format error for {text}.\n"
        "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
    )


def test_a_change_with_an_unknown_word_is_answered_as_stock_answers() -> None:
    with pytest.raises(ValueError, match="Parse resource permission error") as caught:
        checked_resources(["a=PUB", "b=ALL"])
    assert str(caught.value) == (
        "Parse resource permission error for b=ALL.\n"
        "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
    )


def test_refusals_name_topics_and_groups() -> None:
    assert shown_resource("T") == "topic:T"
    assert shown_resource("%RETRY%g") == "group:g"
