"""Which keys of the statistics there are, and when they go."""

from __future__ import annotations

import sys
from typing import Final

import pytest

from rmq.broker.stats.broker import BrokerStats
from rmq.model.names import SCHEDULE_TOPIC
from tests.broker.stats.stats_kit import START_MS, minute_of

HOUR_MS: Final = 3_600_000


def all_keys(stats: BrokerStats, *, topics: list[str], groups: list[str]) -> set[str]:
    """Return the keys there are, of those that topics and groups can have."""
    pairs = [(topic, group) for topic in topics for group in groups]
    possible = [("TOPIC_PUT_NUMS", topic) for topic in topics]
    possible += [("GROUP_GET_NUMS", f"{topic}@{group}") for topic, group in pairs]
    possible += [("SNDBCK_PUT_NUMS", f"{topic}@{group}") for topic, group in pairs]
    possible += [("GROUP_GET_LATENCY", f"0@{topic}@{group}") for topic, group in pairs]
    possible += [("GROUP_GET_LATENCY", f"{topic}@{group}") for topic, group in pairs]
    return {f"{name} {key}" for name, key in possible if stats.view(name, key) is not None}


def count_all(stats: BrokerStats, *, topics: list[str], groups: list[str]) -> None:
    for topic in topics:
        stats.put(topic, 0, 1, 1)
        for group in groups:
            stats.get(group, topic, 0, 1, 1, 1)
            stats.send_back(group, topic)
            stats.record_fall(group, topic, 0, 1, 1)


# Names that begin, end or are part of others must not go with them.
TOPICS: Final = ["orders", "orders-new", "new-orders"]
GROUPS: Final = ["readers", "readers-new", "orders"]


@pytest.mark.parametrize("detailed", [True, False], ids=["detailed", "plain"])
def test_a_deleted_topic_takes_all_its_keys_along(detailed: bool) -> None:
    stats = BrokerStats("cluster", detailed=detailed)
    count_all(stats, topics=TOPICS, groups=GROUPS)
    stats.remove_topic("orders")
    rest = BrokerStats("cluster", detailed=detailed)
    count_all(rest, topics=TOPICS[1:], groups=GROUPS)
    assert all_keys(stats, topics=TOPICS, groups=GROUPS) == all_keys(
        rest, topics=TOPICS, groups=GROUPS
    )
    assert stats.kept == rest.kept


@pytest.mark.parametrize("detailed", [True, False], ids=["detailed", "plain"])
def test_a_deleted_group_takes_all_its_keys_along(detailed: bool) -> None:
    stats = BrokerStats("cluster", detailed=detailed)
    count_all(stats, topics=TOPICS, groups=GROUPS)
    stats.remove_group("orders")
    rest = BrokerStats("cluster", detailed=detailed)
    count_all(rest, topics=TOPICS, groups=GROUPS[:2])
    assert all_keys(stats, topics=TOPICS, groups=GROUPS) == all_keys(
        rest, topics=TOPICS, groups=GROUPS
    )
    assert stats.kept == rest.kept
    assert stats.groups_behind(0) == {"readers": 1, "readers-new": 1}


def test_queues_of_delayed_messages_go_with_topic_and_group() -> None:
    def counted() -> BrokerStats:
        stats = BrokerStats("cluster")
        stats.put(SCHEDULE_TOPIC, 2, 10, 500)
        stats.get_delayed("SCHEDULE", 2, 10, 500)
        return stats

    by_topic = counted()
    by_topic.remove_topic(SCHEDULE_TOPIC)
    assert by_topic.kept == 0
    by_group = counted()
    by_group.remove_group("SCHEDULE")
    assert by_group.kept == 2
    assert by_group.view("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2") is not None


def test_what_is_counted_after_a_removal_begins_anew() -> None:
    stats = BrokerStats("cluster")
    count_all(stats, topics=["orders"], groups=["readers"])
    stats.remove_topic("orders")
    stats.get("readers", "orders", 0, 3, 300, 1)
    stats.sample(START_MS)
    assert minute_of(stats, "GROUP_GET_NUMS", "orders@readers") == (3, 0.3, 3.0)


def test_a_key_that_was_idle_for_a_day_goes_and_a_busy_one_stays() -> None:
    stats = BrokerStats("cluster")
    count_all(stats, topics=["orders"], groups=["readers"])
    for hour in range(25):
        assert stats.view("GROUP_GET_NUMS", "orders@readers") is not None
        assert stats.view("TOPIC_PUT_NUMS", "orders") is not None
        stats.put("payments", 0, 1, 1)
        stats.get("readers", "payments", 0, 1, 1)
        stats.sample(START_MS + hour * HOUR_MS)
    assert all_keys(stats, topics=["orders", "payments"], groups=["readers"]) == {
        "TOPIC_PUT_NUMS payments",
        "GROUP_GET_NUMS payments@readers",
    }
    # Both are counted again at once, the old one from 0 and the busy one where it was.
    stats.get("readers", "orders", 0, 2, 2)
    stats.get("readers", "payments", 0, 1, 1)
    stats.sample(START_MS + 25 * HOUR_MS)
    assert minute_of(stats, "GROUP_GET_NUMS", "orders@readers") == (2, 0.2, 2.0)
    data = stats.view("GROUP_GET_NUMS", "payments@readers")
    assert data is not None
    assert data.stats_day is not None
    assert data.stats_day.sum == 24


def test_the_number_of_keys_has_a_bound_and_what_is_beyond_is_lost() -> None:
    stats = BrokerStats("cluster", meters_max=3)
    stats.put("one", 0, 1, 1)
    stats.get("readers", "one", 0, 1, 1, 5)
    for _ in range(2):
        stats.put("two", 0, 1, 1)
        stats.get("readers", "two", 0, 1, 1, 5)
        stats.send_back("readers", "two")
        stats.put("one", 0, 1, 1)
    assert stats.kept == 3
    assert stats.lost == 8
    stats.sample(START_MS)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "one") == (3, 0.3, 1.0)
    assert all_keys(stats, topics=["one", "two"], groups=["readers"]) == {
        "TOPIC_PUT_NUMS one",
        "GROUP_GET_NUMS one@readers",
        "GROUP_GET_LATENCY 0@one@readers",
    }
    # Once there is room, keys that were lost before are kept.
    stats.remove_topic("one")
    stats.get("readers", "two", 0, 1, 1, 5)
    assert stats.kept == 2


def test_counting_makes_nothing_that_stays() -> None:
    stats = BrokerStats("cluster")
    count_all(stats, topics=["orders"], groups=["readers"])

    def count() -> None:
        for _ in range(100):
            stats.put("orders", 0, 1, 1)
            stats.broker_put(1)
            stats.get("readers", "orders", 0, 1, 1, 1)
            stats.broker_get(1)
            stats.record_fall("readers", "orders", 0, 1, 1)

    count()
    before = sys.getallocatedblocks()
    count()
    assert sys.getallocatedblocks() - before < 10
