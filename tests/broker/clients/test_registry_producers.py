"""Producers: who is in which group, who is picked, who is found by id."""

from __future__ import annotations

from rmq.broker.clients.registry import ClientStatistics
from tests.broker.clients.registry_kit import Clients, identity, open_channel


def test_a_producer_is_known_from_its_first_heartbeat() -> None:
    clients, channel = Clients(), open_channel("a")
    assert clients.produce(channel, "p", now=3.0)
    assert clients.registry.producer_channels("p") == (channel,)
    group = clients.registry.producer_group("p")
    assert group is not None
    (member,) = group.members.values()
    assert (member.client_id, member.version, member.channel) == ("a", 409, channel)
    assert member.last_update == 3.0


def test_a_later_heartbeat_only_moves_the_time() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "p", now=3.0)
    assert not clients.produce(channel, "p", now=33.0)
    group = clients.registry.producer_group("p")
    assert group is not None
    assert [member.last_update for member in group.members.values()] == [33.0]


def test_nobody_is_told_of_producers() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "p")
    clients.registry.unregister_producer("p", channel)
    clients.produce(channel, "p")
    clients.registry.channel_closed(channel)
    assert clients.notices.seen == []


def test_a_group_without_producers_does_not_exist() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "p")
    assert clients.registry.unregister_producer("p", channel)
    assert clients.registry.producer_group("p") is None
    assert clients.registry.producer_channels("p") == ()
    assert clients.registry.producer_groups == {}
    assert not clients.registry.unregister_producer("p", channel)


def test_leaving_a_group_one_is_not_in_changes_nothing() -> None:
    clients, inside, outside = Clients(), open_channel("in"), open_channel("out")
    clients.produce(inside, "p")
    assert not clients.registry.unregister_producer("p", outside)
    assert clients.registry.producer_channels("p") == (inside,)


# ---- by client id --------------------------------------------------------------------------------


def test_a_producer_is_found_by_id_while_any_of_its_groups_is_left() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "p", "id")
    clients.produce(channel, "CLIENT_INNER_PRODUCER", "id")
    clients.registry.unregister_producer("p", channel)
    assert clients.registry.find_producer("id") is channel
    clients.registry.unregister_producer("CLIENT_INNER_PRODUCER", channel)
    assert clients.registry.find_producer("id") is None


def test_the_end_of_an_old_connection_does_not_hide_the_new_one() -> None:
    clients, old, new = Clients(), open_channel("old"), open_channel("new")
    clients.produce(old, "p", "id")
    clients.produce(new, "p", "id")
    assert clients.registry.find_producer("id") is new
    clients.registry.channel_closed(old)
    assert clients.registry.find_producer("id") is new


def test_the_old_connection_serves_again_when_the_new_one_ends() -> None:
    clients, old, new = Clients(), open_channel("old"), open_channel("new")
    clients.produce(old, "p", "id")
    clients.produce(new, "p", "id")
    clients.produce(old, "p", "id")
    clients.registry.channel_closed(new)
    assert clients.registry.find_producer("id") is old


def test_a_connection_that_changes_its_id_is_found_under_the_new_one_only() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "p", "before")
    assert clients.produce(channel, "p", "after")
    assert clients.registry.find_producer("before") is None
    assert clients.registry.find_producer("after") is channel
    assert clients.registry.producer_channels("p") == (channel,)


# ---- turns ---------------------------------------------------------------------------------------


def test_producers_are_picked_in_turn() -> None:
    clients = Clients()
    channels = [open_channel(name) for name in "abc"]
    for channel in channels:
        clients.produce(channel, "p")
    picked = [clients.registry.pick_producer("p") for _ in range(6)]
    assert picked[:3] == picked[3:]
    assert set(picked) == set(channels)


def test_who_does_not_read_is_passed_over_while_there_is_another() -> None:
    clients, stuck, fine = Clients(), open_channel("stuck"), open_channel("fine")
    clients.produce(stuck, "p")
    clients.produce(fine, "p")
    stuck.pause()
    assert {clients.registry.pick_producer("p") for _ in range(4)} == {fine}
    fine.pause()
    assert clients.registry.pick_producer("p") in (stuck, fine)


def test_a_closed_connection_is_never_picked() -> None:
    clients, gone, stuck = Clients(), open_channel("gone"), open_channel("stuck")
    clients.produce(gone, "p")
    gone.close("gone")
    assert clients.registry.pick_producer("p") is None
    clients.produce(stuck, "p")
    stuck.pause()
    assert {clients.registry.pick_producer("p") for _ in range(4)} == {stuck}


def test_there_is_nobody_to_pick_in_an_unknown_group() -> None:
    assert Clients().registry.pick_producer("p") is None


def test_turns_go_on_when_members_change() -> None:
    clients = Clients()
    channels = [open_channel(name) for name in "abcd"]
    for channel in channels:
        clients.produce(channel, "p")
    for _ in range(3):
        clients.registry.pick_producer("p")
    clients.registry.channel_closed(channels[3])
    clients.registry.channel_closed(channels[2])
    assert {clients.registry.pick_producer("p") for _ in range(2)} == set(channels[:2])


def test_statistics_count_clients_groups_and_connections() -> None:
    clients, first, second = Clients(), open_channel("a"), open_channel("b")
    clients.produce(first, "p")
    clients.produce(first, "q")
    clients.produce(second, "p")
    clients.consume(first, "c")
    assert clients.registry.statistics() == ClientStatistics(
        connections=2, producer_groups=2, consumer_groups=1, producers=2, consumers=1
    )
    for channel in (first, second):
        clients.registry.channel_closed(channel)
    assert clients.registry.statistics() == ClientStatistics(0, 0, 0, 0, 0)


def test_the_version_and_language_are_those_of_the_first_heartbeat() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.registry.register_producer("p", channel, identity("id", version=61), 0.0)
    group = clients.registry.producer_group("p")
    assert group is not None
    assert [member.version for member in group.members.values()] == [61]
