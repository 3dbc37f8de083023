"""Ends of clients: connections that close, clients that fall silent; and many of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.clients.registry import CHANNEL_EXPIRED_S, ClientRegistry
from tests.broker.clients.registry_kit import (
    Clients,
    consumer,
    identity,
    open_channel,
    subscription,
)

if TYPE_CHECKING:
    from rmq.remoting.channel import Channel

# ---- connections that end ------------------------------------------------------------------------


def test_the_end_of_a_connection_takes_its_clients_out_of_all_groups() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "g")
    clients.consume(channel, "h")
    clients.produce(channel, "p")
    clients.registry.channel_closed(channel)
    assert clients.registry.consumer_groups == {}
    assert clients.registry.producer_groups == {}
    assert clients.registry.find_producer("a") is None


def test_who_stays_is_told_once_per_group_when_a_connection_ends() -> None:
    clients, leaving, staying = Clients(), open_channel("leaving"), open_channel("staying")
    for channel in (leaving, staying):
        clients.consume(channel, "g")
        clients.consume(channel, "h")
    clients.notices.take()
    clients.registry.channel_closed(leaving)
    assert sorted(clients.notices.take()) == [("g", ("staying",)), ("h", ("staying",))]


def test_a_connection_of_nobody_may_end() -> None:
    clients = Clients()
    clients.registry.channel_closed(open_channel("stranger"))
    assert clients.notices.take() == []


def test_a_connection_may_end_twice() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel)
    clients.registry.channel_closed(channel)
    clients.registry.channel_closed(channel)
    assert clients.registry.consumer_group("group") is None


# ---- clients that fall silent --------------------------------------------------------------------


def test_a_client_expires_after_its_time_and_not_at_it() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, now=10.0)
    assert clients.registry.expire(10.0 + CHANNEL_EXPIRED_S) == []
    assert clients.registry.consumer_group("group") is not None
    assert clients.registry.expire(10.001 + CHANNEL_EXPIRED_S) == [channel]
    assert clients.registry.consumer_group("group") is None


def test_a_connection_is_named_once_however_many_groups_of_it_expire() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, "g")
    clients.consume(channel, "h")
    clients.produce(channel, "p")
    assert clients.registry.expire(121.0) == [channel]
    assert clients.registry.statistics().connections == 0


def test_a_heartbeat_keeps_a_client_alive() -> None:
    clients, lively, silent = Clients(), open_channel("lively"), open_channel("silent")
    clients.consume(lively, now=0.0)
    clients.consume(silent, now=0.0)
    clients.consume(lively, now=30.0)
    clients.notices.take()
    assert clients.registry.expire(121.0) == [silent]
    assert clients.notices.take() == [("group", ("lively",))]


def test_a_group_that_heartbeats_no_longer_name_expires_alone() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.produce(channel, "kept", now=0.0)
    clients.produce(channel, "forgotten", now=0.0)
    clients.produce(channel, "kept", now=100.0)
    assert clients.registry.expire(121.0) == []
    assert set(clients.registry.producer_groups) == {"kept"}
    assert clients.registry.find_producer("a") is channel


def test_the_end_of_an_expired_connection_is_no_news() -> None:
    clients, silent, lively = Clients(), open_channel("silent"), open_channel("lively")
    clients.consume(silent, now=0.0)
    clients.consume(lively, now=100.0)
    clients.registry.expire(121.0)
    clients.notices.take()
    clients.registry.channel_closed(silent)
    assert clients.notices.take() == []


def test_an_expired_client_comes_back_as_a_new_one() -> None:
    clients, channel = Clients(), open_channel("a")
    clients.consume(channel, now=0.0)
    clients.registry.expire(121.0)
    clients.notices.take()
    assert clients.consume(channel, now=122.0)
    assert clients.notices.take() == [("group", ("a",))]
    assert clients.registry.expire(122.0 + CHANNEL_EXPIRED_S) == []


# ---- the whole, against a plain model ------------------------------------------------------------

_names = st.sampled_from(["g", "h"])
_channels = st.integers(0, 3)
_events = st.lists(
    st.one_of(
        st.tuples(st.just("consume"), _channels, _names, st.sets(st.sampled_from("TU"))),
        st.tuples(st.just("produce"), _channels, _names, st.none()),
        st.tuples(st.just("leave-consumers"), _channels, _names, st.none()),
        st.tuples(st.just("leave-producers"), _channels, _names, st.none()),
        st.tuples(st.just("close"), _channels, st.none(), st.none()),
        st.tuples(st.just("expire"), st.integers(0, 150), st.none(), st.none()),
    ),
    max_size=40,
)


@dataclass
class Model:
    """Memberships as plain rows: (kind, group, connection) with the time of the last heartbeat."""

    rows: dict[tuple[str, str, Channel], float] = field(default_factory=dict)
    topics: dict[str, set[str]] = field(default_factory=dict)

    def members(self, kind: str, group: str) -> set[Channel]:
        return {row[2] for row in self.rows if row[:2] == (kind, group)}

    def remove(self, rows: list[tuple[str, str, Channel]]) -> set[str]:
        """Remove rows; return the consumer groups that lost members and have others left."""
        for row in rows:
            del self.rows[row]
        lost = {group for kind, group, _ in rows if kind == "consumer"}
        return {group for group in lost if self.members("consumer", group)}


@given(_events)
def test_the_registry_agrees_with_a_plain_table_of_memberships(
    events: list[tuple[str, int, str | None, set[str] | None]],
) -> None:
    clients, model, now = Clients(), Model(), 0.0
    registry: ClientRegistry = clients.registry
    channels = [open_channel(str(number)) for number in range(4)]
    for action, number, group, topics in events:
        told: set[str] = set()
        if action == "expire":
            now += number
            gone = [row for row, heard in model.rows.items() if now - heard > CHANNEL_EXPIRED_S]
            told = model.remove(gone)
            left = {row[2] for row in model.rows}
            assert set(registry.expire(now)) == {row[2] for row in gone} - left
        elif action == "close":
            channel = channels[number]
            told = model.remove([row for row in model.rows if row[2] is channel])
            registry.channel_closed(channel)
        else:
            assert group is not None
            channel = channels[number]
            kind = "producer" if action in ("produce", "leave-producers") else "consumer"
            row = (kind, group, channel)
            is_member = row in model.rows
            if action == "consume":
                assert topics is not None
                before = model.topics[group] if model.members("consumer", group) else set[str]()
                model.rows[row] = now
                model.topics[group] = topics
                changed = registry.register_consumer(
                    group,
                    channel,
                    identity(channel.peer),
                    consumer(group, [subscription(topic) for topic in topics]),
                    now,
                )
                assert changed is (not is_member or topics != before)
                told = {group} if changed else set()
            elif action == "produce":
                model.rows[row] = now
                created = registry.register_producer(group, channel, identity(channel.peer), now)
                assert created is not is_member
            else:
                told = model.remove([row] if is_member else [])
                leave = (
                    registry.unregister_producer
                    if kind == "producer"
                    else registry.unregister_consumer
                )
                assert leave(group, channel) is is_member
        check(clients, model, channels, told)


def check(clients: Clients, model: Model, channels: list[Channel], told: set[str]) -> None:
    registry = clients.registry
    notices = clients.notices.take()
    assert len(notices) == len(told)
    for group, peers in notices:
        assert group in told
        assert set(peers) == {channel.peer for channel in model.members("consumer", group)}
    for group in ("g", "h"):
        consumers = registry.consumer_group(group)
        expected = model.members("consumer", group)
        assert set(consumers.channels if consumers else ()) == expected
        if consumers:
            assert set(consumers.subscriptions) == model.topics[group]
            assert set(consumers.client_ids()) == {channel.peer for channel in expected}
        assert set(registry.producer_channels(group)) == model.members("producer", group)
    for channel in channels:
        is_producer = any(row[0] == "producer" and row[2] is channel for row in model.rows)
        assert registry.find_producer(channel.peer) is (channel if is_producer else None)
    assert registry.statistics().connections == len({row[2] for row in model.rows})
