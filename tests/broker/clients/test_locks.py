"""Who holds which queue: rules of RocketMQ 4.9.8 RebalanceLockManager."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.clients.locks import QueueLocks
from rmq.model.queues import MessageQueue
from tests.broker.tables.table_kit import finish

LIVE_S = 60.0


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


Q0, Q1, Q2 = (queue(number) for number in range(3))


def test_free_queues_are_given_to_who_asks() -> None:
    locks = QueueLocks()
    assert locks.lock_batch("g", "a", [Q0, Q1], 0) == {Q0, Q1}
    assert locks.owner("g", Q0, 0) == "a"
    assert locks.owner("g", Q2, 0) is None


def test_what_another_client_holds_is_left_out() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0, Q1], 0)
    assert locks.lock_batch("g", "b", [Q1, Q2], 1) == {Q2}
    assert locks.owner("g", Q1, 1) == "a"


def test_groups_do_not_know_each_others_locks() -> None:
    locks = QueueLocks()
    assert locks.lock_batch("g", "a", [Q0], 0) == {Q0}
    assert locks.lock_batch("h", "b", [Q0], 0) == {Q0}
    locks.unlock_batch("h", "b", [Q0])
    assert locks.owner("g", Q0, 0) == "a"


def test_asking_again_renews_a_lock() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0], 0)
    assert locks.lock_batch("g", "a", [Q0], 50) == {Q0}
    assert locks.lock_batch("g", "b", [Q0], 50 + LIVE_S) == set()
    assert locks.lock_batch("g", "b", [Q0], 50 + LIVE_S + 0.001) == {Q0}


def test_a_lock_lapses_after_its_time_and_not_at_it() -> None:
    locks = QueueLocks(live_ms=1_000)
    locks.lock_batch("g", "a", [Q0], 10)
    assert locks.lock_batch("g", "b", [Q0], 11) == set()
    assert locks.owner("g", Q0, 11) == "a"
    assert locks.owner("g", Q0, 11.001) is None
    assert locks.lock_batch("g", "b", [Q0], 11.001) == {Q0}


def test_who_lost_a_lapsed_lock_to_another_does_not_get_it_back() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0], 0)
    locks.lock_batch("g", "b", [Q0], 61)
    assert locks.lock_batch("g", "a", [Q0], 62) == set()
    assert locks.owner("g", Q0, 62) == "b"


def test_the_owner_takes_its_own_lapsed_lock_again() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0], 0)
    assert locks.lock_batch("g", "a", [Q0], 1_000) == {Q0}
    assert locks.lock_batch("g", "b", [Q0], 1_001) == set()


def test_only_the_owner_gives_a_queue_back() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0, Q1], 0)
    locks.unlock_batch("g", "b", [Q0, Q1])
    assert locks.owner("g", Q0, 0) == "a"
    locks.unlock_batch("g", "a", [Q0, Q2])
    assert locks.owner("g", Q0, 0) is None
    assert locks.owner("g", Q1, 0) == "a"


def test_unlocking_what_nobody_holds_does_nothing() -> None:
    locks = QueueLocks()
    locks.unlock_batch("g", "a", [Q0])
    assert len(locks) == 0


def test_nothing_is_kept_of_groups_without_locks() -> None:
    locks = QueueLocks()
    assert locks.lock_batch("g", "a", [], 0) == set()
    locks.lock_batch("h", "a", [Q0], 0)
    locks.unlock_batch("h", "a", [Q0])
    assert finish(locks.expiring(1_000)) == 0
    assert len(locks) == 0


def test_lapsed_locks_are_forgotten_and_others_kept() -> None:
    locks = QueueLocks()
    locks.lock_batch("g", "a", [Q0], 0)
    locks.lock_batch("g", "b", [Q1], 30)
    locks.lock_batch("h", "a", [Q0], 0)
    assert finish(locks.expiring(LIVE_S)) == 0
    assert finish(locks.expiring(LIVE_S + 1)) == 2
    assert len(locks) == 1
    assert locks.owner("g", Q1, LIVE_S + 1) == "b"


_steps = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock", "expire"]),
        st.sampled_from(["a", "b", "c"]),
        st.sets(st.integers(0, 3), max_size=4),
        st.floats(0, 90),
    ),
    max_size=40,
)


@given(_steps)
def test_a_queue_never_has_two_owners_whose_locks_live(
    steps: list[tuple[str, str, set[int], float]],
) -> None:
    locks = QueueLocks()
    model: dict[int, tuple[str, float]] = {}
    now = 0.0
    for action, client, numbers, wait in steps:
        now += wait
        queues = [queue(number) for number in numbers]
        if action == "lock":
            expected = {
                number
                for number in numbers
                if number not in model
                or model[number][0] == client
                or now - model[number][1] > LIVE_S
            }
            assert locks.lock_batch("g", client, queues, now) == {queue(n) for n in expected}
            model.update(dict.fromkeys(expected, (client, now)))
        elif action == "unlock":
            locks.unlock_batch("g", client, queues)
            model = {
                number: lock
                for number, lock in model.items()
                if not (number in numbers and lock[0] == client)
            }
        else:
            finish(locks.expiring(now))
        for number in range(4):
            live = number in model and now - model[number][1] <= LIVE_S
            assert locks.owner("g", queue(number), now) == (model[number][0] if live else None)
