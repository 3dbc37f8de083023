from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.stats.broker import BrokerStats, Fall
from rmq.model.names import SCHEDULE_TOPIC
from rmq.remoting.bodies.stats import BrokerStatsData, BrokerStatsItem
from tests.broker.stats.stats_kit import START_MS, minute_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock


def sampled(count: Callable[[BrokerStats], None], *, detailed: bool = True) -> BrokerStats:
    """Return statistics that were sampled once after something was counted."""
    stats = BrokerStats("cluster", detailed=detailed)
    count(stats)
    stats.sample(START_MS)
    return stats


# --- what is counted where ----------------------------------------------------------------------


def test_stored_messages_count_for_their_topic() -> None:
    stats = sampled(lambda stats: stats.put("orders", 3, 40, 8000, times=20))
    assert minute_of(stats, "TOPIC_PUT_NUMS", "orders") == (40, 4.0, 2.0)
    assert minute_of(stats, "TOPIC_PUT_SIZE", "orders") == (8000, 800.0, 400.0)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "payments") is None
    # 4.9.8 counts queues of delayed messages only.
    assert minute_of(stats, "QUEUE_PUT_NUMS", "orders@3") is None


def test_delayed_messages_count_for_their_queue_too() -> None:
    stats = sampled(lambda stats: stats.put(SCHEDULE_TOPIC, 2, 10, 500))
    assert minute_of(stats, "TOPIC_PUT_NUMS", SCHEDULE_TOPIC) == (10, 1.0, 10.0)
    assert minute_of(stats, "QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2") == (10, 1.0, 10.0)
    assert minute_of(stats, "QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@2") == (500, 50.0, 500.0)


def test_messages_that_come_due_count_for_the_group_that_stands_for_the_schedule() -> None:
    stats = sampled(lambda stats: stats.get_delayed("SCHEDULE", 2, 10, 500))
    key = f"{SCHEDULE_TOPIC}@SCHEDULE"
    assert minute_of(stats, "GROUP_GET_NUMS", key) == (10, 1.0, 1.0)
    assert minute_of(stats, "QUEUE_GET_NUMS", f"{SCHEDULE_TOPIC}@2@SCHEDULE") == (10, 1.0, 1.0)
    assert minute_of(stats, "QUEUE_GET_SIZE", f"{SCHEDULE_TOPIC}@2@SCHEDULE") == (500, 50.0, 50.0)


def test_pulled_messages_count_for_topic_and_group() -> None:
    def count(stats: BrokerStats) -> None:
        stats.get("readers", "orders", 0, 30, 3000)
        stats.get("readers", "orders", 1, 10, 1000)
        stats.get("others", "orders", 1, 5, 500)

    stats = sampled(count)
    assert minute_of(stats, "GROUP_GET_NUMS", "orders@readers") == (40, 4.0, 20.0)
    assert minute_of(stats, "GROUP_GET_SIZE", "orders@readers") == (4000, 400.0, 2000.0)
    assert stats.group_get_tps("readers", "orders") == 4.0
    assert stats.group_get_tps("readers", "payments") == 0.0
    assert minute_of(stats, "GROUP_GET_LATENCY", "0@orders@readers") is None


@pytest.mark.parametrize(
    ("detailed", "key", "expected"),
    [
        pytest.param(True, "0@orders@readers", (6, 0.6, 3.0), id="by-queue"),
        pytest.param(True, "orders@readers", None, id="not-by-group"),
        pytest.param(False, "orders@readers", (10, 1.0, pytest.approx(10 / 3)), id="by-group"),
        pytest.param(False, "0@orders@readers", None, id="not-by-queue"),
    ],
)
def test_latency_is_kept_by_queue_if_details_are_wanted(
    detailed: bool, key: str, expected: object
) -> None:
    def count(stats: BrokerStats) -> None:
        stats.get("readers", "orders", 0, 1, 1, 2)
        stats.get("readers", "orders", 0, 1, 1, 4)
        stats.get("readers", "orders", 1, 1, 1, 4)

    assert minute_of(sampled(count, detailed=detailed), "GROUP_GET_LATENCY", key) == expected


def test_without_details_no_queue_is_counted() -> None:
    def count(stats: BrokerStats) -> None:
        stats.put(SCHEDULE_TOPIC, 2, 10, 500)
        stats.get_delayed("SCHEDULE", 2, 10, 500)

    stats = sampled(count, detailed=False)
    assert minute_of(stats, "QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2") is None
    assert minute_of(stats, "QUEUE_GET_NUMS", f"{SCHEDULE_TOPIC}@2@SCHEDULE") is None
    assert stats.kept == 2


def test_messages_sent_back_count_for_topic_and_group() -> None:
    stats = sampled(lambda stats: stats.send_back("readers", "orders", 20))
    assert minute_of(stats, "SNDBCK_PUT_NUMS", "orders@readers") == (20, 2.0, 1.0)


def test_the_broker_counts_under_its_cluster_and_without_calls() -> None:
    def count(stats: BrokerStats) -> None:
        stats.broker_put(50)
        stats.broker_get(20)

    stats = sampled(count)
    assert minute_of(stats, "BROKER_PUT_NUMS", "cluster") == (50, 5.0, 0.0)
    assert minute_of(stats, "BROKER_GET_NUMS", "cluster") == (20, 2.0, 0.0)
    assert minute_of(stats, "BROKER_PUT_NUMS", "another") is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param("BROKER_PUT_NUMS", "cluster", id="broker"),
        pytest.param("TOPIC_PUT_NUMS", "orders", id="topic"),
        pytest.param("GROUP_GET_FALL_SIZE", "0@orders@readers", id="never-viewable"),
        pytest.param("NO_SUCH_STATISTIC", "orders", id="unknown-name"),
        pytest.param("", "", id="empty"),
    ],
)
def test_what_was_never_counted_is_not_there(name: str, key: str) -> None:
    stats = sampled(lambda stats: stats.record_fall("readers", "orders", 0, 10, 100))
    assert stats.view(name, key) is None


def test_a_group_that_only_fell_behind_has_no_figures() -> None:
    stats = sampled(lambda stats: stats.record_fall("readers", "orders", 0, 10, 100))
    assert stats.view("GROUP_GET_NUMS", "orders@readers") is None


# --- figures over time --------------------------------------------------------------------------


def test_a_key_counted_after_the_last_sample_is_there_but_has_no_figures_yet() -> None:
    stats = BrokerStats("cluster")
    stats.put("orders", 0, 1, 100)
    nothing = BrokerStatsItem()
    assert stats.view("TOPIC_PUT_NUMS", "orders") == BrokerStatsData(
        stats_minute=nothing, stats_hour=nothing, stats_day=nothing
    )


def test_minute_hour_and_day_are_sampled_at_their_own_pace() -> None:
    stats = BrokerStats("cluster")
    hours = 30
    for step in range(hours * 360 + 1):
        stats.sample(START_MS + step * 10_000)
        stats.put("orders", 0, 1, 100)
    data = stats.view("TOPIC_PUT_NUMS", "orders")
    assert data is not None
    assert data.stats_minute == BrokerStatsItem(sum=6, tps=0.1, avgpt=1.0)
    assert data.stats_hour == BrokerStatsItem(sum=360, tps=0.1, avgpt=1.0)
    assert data.stats_day == BrokerStatsItem(sum=8640, tps=0.1, avgpt=1.0)


def test_sampling_too_early_changes_nothing() -> None:
    stats = BrokerStats("cluster")
    stats.sample(START_MS)
    stats.put("orders", 0, 1, 100)
    assert stats.next_sample_ms == START_MS + 10_000
    stats.sample(START_MS + 9_999)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "orders") == (0, 0.0, 0.0)
    stats.sample(START_MS + 10_000)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "orders") == (1, 0.1, 1.0)


def test_samples_missed_by_a_standstill_are_not_made_up_for() -> None:
    stats = BrokerStats("cluster")
    stats.sample(START_MS)
    stats.sample(START_MS + 95_000)
    assert stats.next_sample_ms == START_MS + 105_000


def test_a_late_sample_does_not_delay_the_next_one() -> None:
    stats = BrokerStats("cluster")
    stats.sample(START_MS)
    stats.sample(START_MS + 10_007)
    assert stats.next_sample_ms == START_MS + 20_000


# --- falling behind -----------------------------------------------------------------------------


def test_groups_far_behind_are_named_with_their_worst_queue() -> None:
    stats = BrokerStats("cluster")
    stats.record_fall("slow", "orders", 0, 1, 900)
    stats.record_fall("slow", "orders", 1, 1, 5000)
    stats.record_fall("slow", "payments", 0, 1, 100)
    stats.record_fall("quick", "orders", 0, 1, 1000)
    stats.get("idle", "orders", 0, 1, 1)
    assert stats.groups_behind(1000) == {"slow": 5000}
    stats.record_fall("slow", "orders", 1, 1, 0)
    assert stats.groups_behind(899) == {"slow": 900, "quick": 1000}


def test_how_far_behind_a_queue_is_read_can_be_listed() -> None:
    stats = BrokerStats("cluster")
    stats.get("readers", "orders", 0, 1, 1)
    stats.record_fall("readers", "orders", 3, 20, 2000)
    stats.record_fall("readers", "orders", 3, 10, 1000)
    assert list(stats.falls()) == [Fall("readers", "orders", 3, 10, 1000)]


# --- the task -----------------------------------------------------------------------------------


async def test_the_task_samples_every_ten_seconds(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stats = BrokerStats("cluster")
    nursery.start_soon(stats.run)
    await trio.sleep(5)
    for _ in range(12):
        stats.put("orders", 0, 20, 200)
        await trio.sleep(10)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "orders") == (120, 2.0, 20.0)


def test_others_get_their_turn_while_many_keys_are_sampled() -> None:
    stats = BrokerStats("cluster")
    for number in range(2500):
        stats.put(f"topic-{number}", 0, 1, 1)
    assert sum(1 for _ in stats.sampling(START_MS)) == 5
    assert minute_of(stats, "TOPIC_PUT_NUMS", "topic-2499") == (1, 0.1, 1.0)


async def test_the_task_lets_others_run_in_between(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stats = BrokerStats("cluster")
    for number in range(2500):
        stats.put(f"topic-{number}", 0, 1, 1)

    def sampled_count() -> int:
        figures = (minute_of(stats, "TOPIC_PUT_NUMS", f"topic-{number}") for number in range(2500))
        return sum(1 for figure in figures if figure != (0, 0.0, 0.0))

    nursery.start_soon(stats.run)
    seen: set[int] = set()
    while (count := sampled_count()) < 2500:
        seen.add(count)
        await trio.lowlevel.checkpoint()
    assert len(seen) > 2


def test_a_key_that_goes_while_others_are_sampled_is_no_trouble() -> None:
    stats = BrokerStats("cluster")
    for number in range(1200):
        stats.put(f"topic-{number}", 0, 1, 1)
    steps = stats.sampling(START_MS)
    next(steps)
    stats.remove_topic("topic-1100")
    stats.put("late", 0, 1, 1)
    assert len(list(steps)) == 1
    assert stats.view("TOPIC_PUT_NUMS", "topic-1100") is None
    assert minute_of(stats, "TOPIC_PUT_NUMS", "late") == (0, 0.0, 0.0)
