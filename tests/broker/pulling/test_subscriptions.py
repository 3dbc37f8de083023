"""How tag expressions are read, and which ConsumeQueue entries they let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.pulling.subscriptions import TagFilter, filter_of
from rmq.errors import RefusedError
from rmq.model.java import string_hash
from rmq.model.offsets import QueueOffset
from rmq.model.record import decode_records
from rmq.remoting.bodies import SubscriptionData
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import TAGS_CHARS_MAX, build_subscription, is_tag_type
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import TOPIC, message, open_core, put

RECORD = memoryview(b"")


def passes(subscription: SubscriptionData, tag: str) -> bool:
    """Tell whether an entry of a message with this tag gets through."""
    chosen = filter_of(subscription)
    if chosen is None:
        return True
    return chosen.matches_tags_code(string_hash(tag)) and chosen.matches_record(RECORD)


# ---- expressions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", [None, "", "*"], ids=repr)
def test_no_expression_and_the_star_subscribe_to_everything(expression: str | None) -> None:
    subscription = build_subscription("T", expression, "TAG", 7)
    assert subscription == SubscriptionData(topic="T", sub_string="*", sub_version=7)
    assert filter_of(subscription) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        pytest.param("a", {"a"}, id="one"),
        pytest.param("a || b", {"a", "b"}, id="two"),
        pytest.param("a||b||a", {"a", "b"}, id="repeated"),
        pytest.param("\ta\x00 ||  b c ", {"a", "b c"}, id="java-trims-controls-but-not-inside"),
        pytest.param("\u00a0a\u3000", {"\u00a0a\u3000"}, id="java-does-not-trim-other-blanks"),
        pytest.param("a||", {"a"}, id="trailing-separator"),
        pytest.param("|| ||a", {"a"}, id="empty-and-blank-parts"),
        pytest.param("|||", {"|"}, id="a-bar-left-over"),
        pytest.param("a|b", {"a|b"}, id="single-bar-is-no-separator"),
        pytest.param("* || a", {"*", "a"}, id="star-among-others-is-a-tag"),
        pytest.param(" ", set(), id="only-a-blank"),
        pytest.param(" || ", set(), id="blanks-between-separators"),
    ],
)
def test_tags_are_split_at_double_bars_and_trimmed(expression: str, tags: set[str]) -> None:
    subscription = build_subscription("T", expression)
    assert subscription.tags_set == tags
    assert subscription.code_set == {string_hash(tag) for tag in tags}
    assert subscription.sub_string == expression
    assert subscription.expression_type == "TAG"


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_nothing_but_separators_is_refused(expression: str) -> None:
    with pytest.raises(RefusedError) as caught:
        build_subscription("T", expression, "TAG")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert caught.value.remark == "parse the consumer's subscription failed"


def test_a_condition_on_properties_is_carried_as_it_is() -> None:
    subscription = build_subscription("T", "a > 1 || b", "SQL92", 3)
    assert subscription == SubscriptionData(
        topic="T", sub_string="a > 1 || b", sub_version=3, expression_type="SQL92"
    )


@pytest.mark.parametrize("expression", [None, ""], ids=repr)
def test_a_condition_that_is_missing_is_refused(expression: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        build_subscription("T", expression, "SQL92")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("expression_type", "expected"),
    [(None, True), ("", True), ("TAG", True), ("tag", False), ("SQL92", False), ("JS", False)],
)
def test_tags_are_meant_unless_another_type_is_named(
    expression_type: str | None, expected: bool
) -> None:
    assert is_tag_type(expression_type) is expected


# ---- filters -------------------------------------------------------------------------------------


def test_a_filter_lets_its_tags_through_and_no_others() -> None:
    subscription = build_subscription("T", "TagA || TagB")
    assert passes(subscription, "TagA")
    assert passes(subscription, "TagB")
    assert not passes(subscription, "TagC")
    assert not passes(subscription, "")


def test_a_read_of_the_store_brings_the_messages_of_the_tags() -> None:
    negative = "polygenelubricants"
    assert string_hash(negative) == -(2**31)
    core = open_core(MemoryStorage())
    put(core, [message(tag.encode(), tags=tag) for tag in ("TagA", negative, "TagB", negative)])
    chosen = filter_of(build_subscription(TOPIC, f"TagB || {negative}"))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, chosen)
    bodies = [record.body for view in result.records for record in decode_records(view)]
    assert bodies == [negative.encode(), b"TagB", negative.encode()]
    assert result.next_offset == 4


def test_another_tag_of_the_same_hash_passes_because_the_client_looks_again() -> None:
    assert string_hash("Aa") == string_hash("BB")
    assert passes(build_subscription("T", "Aa"), "BB")


def test_an_expression_without_tags_lets_nothing_through() -> None:
    subscription = build_subscription("T", " || ")
    assert not passes(subscription, "")
    assert not passes(subscription, "a")


def test_the_codes_a_client_sent_decide_not_its_expression() -> None:
    heartbeat = SubscriptionData(
        topic="T", sub_string="a", tags_set=frozenset({"a"}), code_set=frozenset({42})
    )
    chosen = filter_of(heartbeat)
    assert chosen is not None
    assert chosen.matches_tags_code(42)
    assert not chosen.matches_tags_code(string_hash("a"))


@pytest.mark.parametrize("sub_string", [None, "", "*"], ids=repr)
def test_a_subscription_to_everything_needs_no_filter(sub_string: str | None) -> None:
    assert filter_of(SubscriptionData(topic="T", sub_string=sub_string)) is None


def test_a_subscription_by_filter_class_is_not_filtered_here() -> None:
    by_class = SubscriptionData(topic="T", sub_string="a.B", class_filter_mode=True)
    assert filter_of(by_class) is None


def test_a_condition_on_properties_is_never_taken_for_no_filter() -> None:
    with pytest.raises(RefusedError) as caught:
        filter_of(build_subscription("T", "a > 1", "SQL92"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert caught.value.remark == "The broker does not support consumer to filter message by SQL92"


@given(st.lists(st.text(min_size=1), max_size=5), st.text())
def test_a_filter_is_membership_in_the_set_of_hashes(tags: list[str], tag: str) -> None:
    codes = {string_hash(each) for each in tags}
    assert TagFilter(codes).matches_tags_code(string_hash(tag)) is (string_hash(tag) in codes)


def test_an_expression_that_would_take_long_to_read_is_refused() -> None:
    assert build_subscription("T", "x" * TAGS_CHARS_MAX).tags_set == {"x" * TAGS_CHARS_MAX}
    with pytest.raises(RefusedError) as caught:
        build_subscription("T", "x" * (TAGS_CHARS_MAX + 1))
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
