"""What a consumer subscribes to: expressions, versions, and what heartbeats say."""

from __future__ import annotations

import pytest

from rmq.client.core.consuming.subscription_set import Sql, SubscriptionSet
from rmq.errors import ConfigError
from rmq.remoting.bodies import ConsumeFromWhere, ConsumeType, MessageModel


def subscribed(subscriptions: object, *, broadcasting: bool = False) -> SubscriptionSet:
    return SubscriptionSet(
        "readers",
        subscriptions,  # type: ignore[arg-type]
        is_broadcasting=broadcasting,
        now_ms=1_000,
    )


@pytest.mark.parametrize("given", ["Orders", ["Orders"], {"Orders": "*"}], ids=["str", "list", "*"])
def test_a_topic_alone_stands_for_all_of_it(given: object) -> None:
    data = subscribed(given).get("Orders")
    assert data is not None
    assert (data.sub_string, data.tags_set, data.sub_version) == ("*", frozenset(), 1_000)


def test_members_that_share_also_get_what_they_sent_back() -> None:
    assert subscribed("Orders").topics == ("Orders", "%RETRY%readers")
    assert subscribed("Orders", broadcasting=True).topics == ("Orders",)


def test_tags_and_conditions() -> None:
    subscriptions = subscribed({"Orders": "paid || sent", "Prices": Sql("amount > 5")})
    orders, prices = subscriptions.get("Orders"), subscriptions.get("Prices")
    assert orders is not None
    assert prices is not None
    assert orders.tags_set == {"paid", "sent"}
    assert (prices.expression_type, prices.sub_string) == ("SQL92", "amount > 5")
    assert subscriptions.conditions() == (prices,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({}, "no topic", id="none"),
        pytest.param({"Orders": "||"}, "says nothing", id="separators"),
        pytest.param({"Orders": Sql("")}, "says nothing", id="empty condition"),
        pytest.param({"a b": "*"}, "other than letters", id="topic"),
        pytest.param("", "no name", id="empty topic"),
    ],
)
def test_what_no_broker_would_take_is_refused(given: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        subscribed(given)


def test_versions_grow_even_when_the_clock_is_set_back() -> None:
    subscriptions = subscribed("Orders")

    def version() -> int:
        data = subscriptions.get("Orders")
        assert data is not None
        return data.sub_version

    subscriptions.bump("Orders", 5_000)
    assert version() == 5_000
    subscriptions.bump("Orders", 17)
    assert version() == 5_001
    subscriptions.put("Orders", "paid", 18)
    assert version() == 5_002
    subscriptions.bump("Nobody", 9_000)
    assert version() == 5_002


def test_a_topic_can_be_given_up_but_not_the_retry_topic() -> None:
    subscriptions = subscribed(["Orders", "Prices"])
    assert subscriptions.remove("Prices")
    assert not subscriptions.remove("Prices")
    assert not subscriptions.remove("%RETRY%readers")
    assert subscriptions.topics == ("Orders", "%RETRY%readers")
    assert "Prices" not in subscriptions


def test_a_heartbeat_says_all_of_it() -> None:
    presence = subscribed("Orders").presence(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    assert presence.group_name == "readers"
    assert presence.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert presence.message_model is MessageModel.CLUSTERING
    assert presence.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert [data.topic for data in presence.subscription_data_set] == ["Orders", "%RETRY%readers"]
    everything = subscribed("Orders", broadcasting=True).presence(
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    )
    assert everything.message_model is MessageModel.BROADCASTING
