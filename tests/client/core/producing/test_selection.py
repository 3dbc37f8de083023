"""Which queue a message goes to: in turn, around brokers that failed, and by key."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.messages import Message
from rmq.client.core.producing.selection import (
    BrokerFaults,
    QueueRing,
    by_hash,
    by_machine_room,
    by_random,
    java_hash,
    left_alone_ms,
)
from rmq.errors import IllegalMessageError
from rmq.model.queues import MessageQueue


def queues(*brokers: str, count: int = 4) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic="T", broker_name=name, queue_id=number)
        for name in brokers
        for number in range(count)
    )


TWO: Final = queues("a", "b")
ANY: Final = Message("T", b"x")


# --- in turn ---------------------------------------------------------------------------------


def test_queues_take_turns() -> None:
    ring = QueueRing(7)
    assert [ring.next(TWO) for _ in range(8)] == list(TWO)


@given(st.integers(0, 100), st.integers(1, 5), st.integers(1, 40))
def test_turns_are_even(first: int, brokers: int, rounds: int) -> None:
    ring = QueueRing(first)
    all_queues = queues(*(f"b{number}" for number in range(brokers)))
    counts = Counter(ring.next(all_queues) for _ in range(rounds * len(all_queues)))
    assert set(counts.values()) == {rounds}


@given(st.integers(0, 100))
def test_a_retry_goes_to_another_broker(first: int) -> None:
    ring = QueueRing(first)
    for _ in range(20):
        assert ring.next(TWO, "a").broker_name == "b"


def test_a_retry_goes_to_the_same_broker_if_there_is_no_other() -> None:
    ring = QueueRing()
    assert {ring.next(queues("a"), "a").queue_id for _ in range(8)} == {0, 1, 2, 3}


# --- brokers that failed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_ms", "alone_ms"),
    [
        (0, 0),
        (549, 0),
        (550, 30_000),
        (1_000, 60_000),
        (2_000, 120_000),
        (3_000, 180_000),
        (14_999, 180_000),
        (15_000, 600_000),
        (99_999, 600_000),
    ],
)
def test_a_slow_broker_is_left_alone_by_the_table(took_ms: int, alone_ms: int) -> None:
    assert left_alone_ms(took_ms) == alone_ms
    faults = BrokerFaults()
    faults.note("a", took_ms / 1000, now=100.0)
    assert faults.is_available("a", 100.0) == (alone_ms == 0)
    assert faults.is_available("a", 100.0 + alone_ms / 1000)


def test_a_failed_broker_is_left_alone_for_ten_minutes() -> None:
    faults = BrokerFaults()
    faults.note("a", 0.001, now=0.0, failed=True)
    assert not faults.is_available("a", 599.9)
    assert faults.is_available("a", 600.0)
    assert faults.is_available("b", 0.0)


def test_turns_pass_over_a_broker_that_is_left_alone() -> None:
    faults = BrokerFaults()
    faults.note("a", 0.001, now=0.0, failed=True)
    ring = QueueRing()
    assert {ring.next_available(TWO, faults, 1.0).broker_name for _ in range(20)} == {"b"}
    assert {ring.next_available(TWO, faults, 700.0).broker_name for _ in range(20)} == {"a", "b"}


def test_if_all_are_left_alone_the_better_half_is_used() -> None:
    faults = BrokerFaults()
    all_queues = queues("a", "b", "c", "d")
    for took_s, name in enumerate("dcba", start=1):
        faults.note(name, took_s, now=0.0)
    ring = QueueRing()
    used = {ring.next_available(all_queues, faults, 1.0).broker_name for _ in range(40)}
    assert used == {"c", "d"}


def test_a_broker_that_is_gone_is_forgotten() -> None:
    faults = BrokerFaults()
    faults.note("a", 9.0, now=0.0)
    faults.keep_only({"b"})
    assert faults.is_available("a", 0.0)
    assert faults.least_bad(0.0) is None


def test_the_least_bad_broker_may_have_no_queue_of_the_topic() -> None:
    faults = BrokerFaults()
    faults.note("a", 1.0, now=0.0)
    faults.note("b", 2.0, now=0.0)
    faults.note("other", 0.6, now=0.0)
    assert QueueRing().next_available(TWO, faults, 1.0) in TWO


# --- by key ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "number"),
    [
        # String.hashCode, from the fact sheet and from the documentation of Java.
        pytest.param("TagA", 2598919 % 7, id="text"),
        pytest.param("golden_pull", 1800785989 % 7, id="negative-hash"),
        pytest.param("polygenelubricants", 2147483648 % 7, id="smallest-hash"),
        pytest.param("", 0, id="empty"),
        pytest.param(12345, 12345 % 7, id="integer"),
        pytest.param(-3, 3, id="negative"),
        # Long.hashCode: the upper half folded into the lower.
        pytest.param(1 << 32, 1, id="long"),
        pytest.param((1 << 40) + 5, (256 ^ 5) % 7, id="larger-long"),
        pytest.param(-(1 << 40), 256 % 7, id="negative-long"),
    ],
)
def test_a_key_chooses_the_queue_that_java_chooses(key: str | int, number: int) -> None:
    assert by_hash(queues("a", count=7), ANY, key).queue_id == number


@given(st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1)), st.integers(1, 20))
def test_a_key_always_chooses_the_same_queue(key: str | int, count: int) -> None:
    some = queues("a", count=count)
    assert by_hash(some, ANY, key) == by_hash(some, ANY, key)
    assert -(2**31) <= java_hash(key) < 2**31


@pytest.mark.parametrize("key", [True, 1 << 63, b"bytes", None, 1.5])
def test_what_java_would_not_hash_alike_is_refused(key: object) -> None:
    with pytest.raises(IllegalMessageError):
        by_hash(TWO, ANY, key)  # type: ignore[arg-type]


def test_rooms_are_preferred_while_they_have_queues() -> None:
    near, far = queues("east@a", "east@b"), queues("west@c", "plain")
    select = by_machine_room(["east"])
    assert {select((*far, *near), ANY, key).broker_name for key in range(50)} == {
        "east@a",
        "east@b",
    }
    assert {select(far, ANY, key).broker_name for key in range(50)} == {"west@c", "plain"}


def test_any_queue_is_one_of_them() -> None:
    assert {by_random(TWO, ANY, 1) for _ in range(200)} <= set(TWO)
