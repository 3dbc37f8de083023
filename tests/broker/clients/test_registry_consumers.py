"""Consumers: who is in which group, what the group subscribes to, and who is told of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.remoting.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
)
from tests.broker.clients.registry_kit import (
    Clients,
    consumer,
    identity,
    open_channel,
    subscription,
)

if TYPE_CHECKING:
    from rmq.broker.clients.registry import ConsumerGroupInfo
    from rmq.remoting.channel import Channel


def the_group(clients: Clients, name: str = "group") -> ConsumerGroupInfo:
    group = clients.registry.consumer_group(name)
    assert group is not None
    return group


def found_at(group: ConsumerGroupInfo, client_id: str) -> Channel:
    member = group.find_client(client_id)
    assert member is not None
    return member.channel


# ---- members -------------------------------------------------------------------------------------


def test_a_new_consumer_is_told_of_itself() -> None:
    clients = Clients()
    assert clients.consume(open_channel("a"))
    assert clients.notices.take() == [("group", ("a",))]


def test_a_second_consumer_is_told_together_with_the_first() -> None:
    clients = Clients()
    clients.consume(open_channel("a"))
    clients.notices.take()
    assert clients.consume(open_channel("b"))
    assert clients.notices.newcomers == ["b"]
    assert clients.notices.take() == [("group", ("a", "b"))]


def test_a_repeated_heartbeat_tells_nobody() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "group", None, subscription("T"), now=1.0)
    clients.notices.take()
    assert not clients.consume(channel, "group", None, subscription("T"), now=31.0)
    assert clients.notices.take() == []
    assert [client.last_update for client in the_group(clients).clients] == [31.0]


def test_a_group_that_wants_no_notices_gets_none_for_heartbeats_and_goodbyes() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    assert clients.consume(first, notify=False)
    assert clients.consume(second, notify=False)
    assert clients.registry.unregister_consumer("group", first, notify=False)
    assert clients.notices.take() == []


def test_who_stays_is_told_when_another_leaves() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.consume(first)
    clients.consume(second)
    clients.notices.take()
    assert clients.registry.unregister_consumer("group", first)
    assert clients.notices.newcomers == [None]
    assert clients.notices.take() == [("group", ("b",))]
    assert the_group(clients).client_ids() == ("b",)


def test_the_last_one_to_leave_ends_the_group_and_tells_nobody() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "group", None, subscription("T"))
    clients.notices.take()
    assert clients.registry.unregister_consumer("group", channel)
    assert clients.registry.consumer_group("group") is None
    assert clients.notices.take() == []


def test_leaving_a_group_one_is_not_in_tells_nobody() -> None:
    clients, inside, outside = Clients(), open_channel("in"), open_channel("out")
    clients.consume(inside)
    clients.notices.take()
    assert not clients.registry.unregister_consumer("group", outside)
    assert not clients.registry.unregister_consumer("unknown", outside)
    assert clients.notices.take() == []


def test_the_list_of_members_follows_every_change() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.consume(first)
    group = the_group(clients)
    assert group.member_list() == b'{"consumerIdList":["a"]}'
    assert group.member_list() is group.member_list()
    clients.consume(second)
    assert group.member_list() == b'{"consumerIdList":["a","b"]}'
    assert list(group.channels) == [first, second]
    clients.registry.channel_closed(first)
    assert group.member_list() == b'{"consumerIdList":["b"]}'
    assert list(group.channels) == [second]
    decoded = GetConsumerListByGroupResponseBody.decode(group.member_list())
    assert decoded.consumer_id_list == group.client_ids()


def test_a_client_with_two_connections_is_listed_once_and_found_by_the_newer() -> None:
    clients, old, new = Clients(), open_channel("old"), open_channel("new")
    clients.consume(old, "group", "id")
    clients.consume(new, "group", "id")
    group = the_group(clients)
    assert group.client_ids() == ("id",)
    assert found_at(group, "id") is new
    clients.registry.channel_closed(old)
    assert group.client_ids() == ("id",)
    assert found_at(group, "id") is new


def test_members_are_found_by_id() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.consume(first)
    clients.consume(second)
    group = the_group(clients)
    assert found_at(group, "a") is first
    assert found_at(group, "b") is second
    assert group.find_client("c") is None
    assert group.find_client(None) is None


def test_a_connection_that_changes_its_id_is_listed_under_the_new_one_without_a_notice() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "group", "before")
    clients.notices.take()
    assert not clients.consume(channel, "group", "after")
    assert clients.notices.take() == []
    assert the_group(clients).client_ids() == ("after",)
    clients.registry.channel_closed(channel)
    assert clients.registry.consumer_group("group") is None


# ---- what a group consumes -----------------------------------------------------------------------


def test_the_last_heartbeat_says_how_a_group_consumes() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel)
    before = the_group(clients)
    assert before.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert before.message_model is MessageModel.CLUSTERING
    assert before.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    clients.registry.register_consumer(
        "group",
        channel,
        identity("a"),
        consumer(
            consume_type=ConsumeType.CONSUME_ACTIVELY, message_model=MessageModel.BROADCASTING
        ),
        1.0,
    )
    after = the_group(clients)
    assert after.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert after.message_model is MessageModel.BROADCASTING


def test_a_new_topic_tells_all_members() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.consume(first, "group", None, subscription("T"))
    clients.consume(second, "group", None, subscription("T"))
    clients.notices.take()
    assert clients.consume(first, "group", None, subscription("T"), subscription("U"))
    assert clients.notices.newcomers == [None]
    assert clients.notices.take() == [("group", ("a", "b"))]
    assert the_group(clients).subscription("U") == subscription("U")


def test_a_topic_that_one_member_does_not_name_is_dropped_for_all() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.consume(first, "group", None, subscription("T"))
    clients.notices.take()
    assert clients.consume(second, "group", None, subscription("U"))
    assert list(the_group(clients).subscriptions) == ["U"]
    assert clients.consume(first, "group", None, subscription("T"))
    assert list(the_group(clients).subscriptions) == ["T"]
    assert clients.notices.take() == [("group", ("a", "b")), ("group", ("a", "b"))]


def test_a_newer_version_replaces_a_subscription_silently() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "group", None, subscription("T", "x", 5))
    clients.notices.take()
    assert not clients.consume(channel, "group", None, subscription("T", "y", 6))
    assert the_group(clients).subscription("T") == subscription("T", "y", 6)
    assert clients.notices.take() == []


def test_an_older_or_equal_version_changes_nothing() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "group", None, subscription("T", "x", 5))
    for version in (4, 5):
        assert not clients.consume(channel, "group", None, subscription("T", "y", version))
        assert the_group(clients).subscription("T") == subscription("T", "x", 5)


def test_of_one_topic_named_twice_the_newer_version_counts() -> None:
    clients = Clients()
    clients.consume(
        open_channel("a"),
        "group",
        None,
        subscription("T", "x", 5),
        subscription("T", "y", 7),
        subscription("T", "z", 6),
    )
    assert the_group(clients).subscriptions == {"T": subscription("T", "y", 7)}


def test_a_subscription_is_asked_for_by_topic() -> None:
    clients = Clients()
    clients.consume(open_channel("a"), "group", None, subscription("T"))
    assert the_group(clients).subscription("T") == subscription("T")
    assert the_group(clients).subscription("U") is None
    assert clients.registry.consumer_group("other") is None


def test_groups_are_found_by_the_topics_they_subscribe_to() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "g", None, subscription("T"), subscription("U"))
    clients.consume(channel, "h", None, subscription("T"))
    assert clients.registry.groups_subscribing("T") == {"g", "h"}
    assert clients.registry.groups_subscribing("U") == {"g"}
    assert clients.registry.groups_subscribing("V") == set()
    assert set(clients.registry.consumer_groups) == {"g", "h"}
