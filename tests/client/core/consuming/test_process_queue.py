"""Unfinished messages of a queue, against a model of plain lists that does nothing cleverly."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmq.client.core.consuming.process_queue import ProcessQueue
from rmq.client.core.received import ReceivedMessage, decode_messages
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import ProcessQueueInfo
from tests.store.built_records import build_record

QUEUE: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=3)


def message(offset: int, body: bytes = b"hello") -> ReceivedMessage:
    (it,) = decode_messages(build_record(queue_offset=offset, body=body), QUEUE)
    return it


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [message(offset) for offset in offsets]


def offsets_of(them: list[ReceivedMessage]) -> list[int]:
    return [it.queue_offset for it in them]


def filled(*offsets: int, start: int = 0) -> ProcessQueue:
    pulled = ProcessQueue(QUEUE, start, 0.0)
    pulled.put(messages(*offsets), offsets[-1] + 1)
    return pulled


# --- one by one ------------------------------------------------------------------------------


def test_messages_finished_out_of_order_hold_back_the_offset() -> None:
    pulled = filled(10, 11, 12, 13, start=10)
    assert pulled.commit_offset == 10
    first, second, third, fourth = pulled.take(10, 1.0)
    assert pulled.remove([second]) == 10
    assert pulled.remove([fourth]) == 10
    assert pulled.remove([first]) == 12
    assert pulled.remove([third]) == 14
    assert (pulled.count, pulled.stored_bytes, pulled.span) == (0, 0, 0)


def test_what_is_not_for_the_consumer_is_passed() -> None:
    pulled = ProcessQueue(QUEUE, 5, 0.0)
    assert pulled.commit_offset == pulled.next_offset == 5
    # Nothing for it up to 40.
    assert pulled.put([], 40) == 0
    assert pulled.commit_offset == 40
    pulled.put(messages(42, 45), 50)
    assert pulled.commit_offset == 42
    batch = pulled.take(9, 0.0)
    assert pulled.remove(batch[:1]) == 45
    assert pulled.remove(batch[1:]) == 50


def test_what_was_there_before_is_left_out() -> None:
    pulled = filled(0, 1, 2)
    assert pulled.put(messages(1, 2, 3), 4) == 1
    assert pulled.count == 4
    pulled.remove(pulled.take(2, 0.0))
    assert pulled.put(messages(0, 1), 2) == 0
    assert (pulled.commit_offset, pulled.next_offset) == (2, 4)


def test_an_end_below_its_messages_is_no_end() -> None:
    pulled = ProcessQueue(QUEUE, 0, 0.0)
    pulled.put(messages(0, 1, 2), 1)
    assert pulled.next_offset == 3


def test_messages_in_disorder_are_put_in_order() -> None:
    pulled = ProcessQueue(QUEUE, 0, 0.0)
    assert pulled.put(messages(3, 1, 1, 2), 4) == 3
    assert pulled.commit_offset == 1
    assert offsets_of(pulled.take(9, 0.0)) == [1, 2, 3]


def test_finishing_twice_counts_once() -> None:
    pulled = filled(0, 1)
    batch = pulled.take(2, 0.0)
    pulled.remove(batch[:1])
    assert pulled.remove(batch[:1]) == 1
    assert pulled.count == 1


def test_in_order_a_batch_is_finished_or_taken_again() -> None:
    pulled = filled(0, 1, 2, 3)
    batch = pulled.take(2, 0.0)
    assert offsets_of(batch) == [0, 1]
    pulled.give_back([*batch, *batch])
    assert pulled.commit_offset == 0
    batch = pulled.take(3, 0.0)
    assert offsets_of(batch) == [0, 1, 2]
    assert pulled.remove(batch) == 3
    pulled.give_back(batch)
    batch = pulled.take(3, 0.0)
    assert offsets_of(batch) == [3]
    assert pulled.remove(batch) == 4
    assert pulled.take(3, 0.0) == []


def test_flow_control() -> None:
    pulled = filled(0, 1, 2, 10)
    size = pulled.stored_bytes
    limits = {"messages_max": 4, "bytes_max": size, "span_max": 10}
    assert pulled.blocked_by(**limits) is None
    assert "4 messages" in str(pulled.blocked_by(**{**limits, "messages_max": 3}))
    assert f"{size} bytes" in str(pulled.blocked_by(**{**limits, "bytes_max": size - 1}))
    assert "span 10" in str(pulled.blocked_by(**{**limits, "span_max": 9}))
    assert pulled.blocked_by(messages_max=4, bytes_max=size) is None
    # The last one is finished: the others do not span so far any longer.
    batch = pulled.take(4, 0.0)
    pulled.remove(batch[-1:])
    assert pulled.span == 2
    pulled.remove(batch)
    assert pulled.blocked_by(messages_max=0, bytes_max=0, span_max=0) is None


def test_what_is_dropped_takes_and_gives_nothing_but_can_be_finished() -> None:
    pulled = filled(0, 1, 2)
    batch = pulled.take(1, 0.0)
    pulled.drop()
    assert pulled.is_dropped
    assert pulled.put(messages(3), 4) == 0
    assert pulled.take(5, 0.0) == []
    assert pulled.next_offset == 3
    assert pulled.remove(batch) == 1
    pulled.clear()
    assert (pulled.count, pulled.waiting, pulled.stored_bytes, pulled.span) == (0, 0, 0, 0)


def test_a_queue_in_use_is_not_cleared() -> None:
    with pytest.raises(AssertionError, match="not dropped"):
        filled(0).clear()


def test_removing_without_taking_leaves_nothing_behind() -> None:
    pulled = ProcessQueue(QUEUE, 0, 0.0)
    for start in range(0, 300, 3):
        batch = messages(start, start + 1, start + 2)
        pulled.put(batch, start + 3)
        assert pulled.remove(batch) == start + 3
    assert not pulled._waiting
    assert not pulled._offsets
    pulled.put(messages(300, 301), 302)
    pulled.remove(messages(300))
    assert offsets_of(pulled.take(5, 0.0)) == [301]


def test_a_lock_lasts_30_s_from_when_it_was_confirmed() -> None:
    pulled = filled(0)
    assert not pulled.is_locked(0.0)
    pulled.lock(100.0)
    assert pulled.is_locked(100.0)
    assert pulled.is_locked(130.0)
    assert not pulled.is_locked(130.1)
    pulled.lock(130.1)
    assert pulled.is_locked(150.0)
    pulled.unlock()
    assert not pulled.is_locked(150.0)


def test_a_queue_that_nobody_pulls_is_noticed() -> None:
    pulled = ProcessQueue(QUEUE, 0, 50.0)
    assert not pulled.is_pull_overdue(170.0)
    assert pulled.is_pull_overdue(170.1)
    pulled.last_pull_at = 170.0
    assert not pulled.is_pull_overdue(290.0)


def test_operators_are_told_how_it_is() -> None:
    pulled = ProcessQueue(QUEUE, 7, 100.0)
    assert pulled.info(now=101.0, now_ms=5000, stored_offset=7) == ProcessQueueInfo(
        commit_offset=7, last_pull_timestamp=4000, last_consume_timestamp=4000
    )
    pulled.put([*messages(8, 9), message(12, bytes(1024**2))], 13)
    pulled.take(2, 100.5)
    pulled.lock(100.25)
    pulled.failed_unlocks = 2
    pulled.drop()
    assert pulled.info(now=101.0, now_ms=5000, stored_offset=7) == ProcessQueueInfo(
        commit_offset=7,
        cached_msg_min_offset=8,
        cached_msg_max_offset=12,
        cached_msg_count=3,
        cached_msg_size_in_mib=1,
        transaction_msg_min_offset=8,
        transaction_msg_max_offset=9,
        transaction_msg_count=2,
        locked=True,
        try_unlock_times=2,
        last_lock_timestamp=4250,
        droped=True,
        last_pull_timestamp=4000,
        last_consume_timestamp=4500,
    )


# --- the model -------------------------------------------------------------------------------


class ProcessQueueMachine(RuleBasedStateMachine):
    """Any calls in any order; after each, all that can be asked is compared with plain lists."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.real = ProcessQueue(QUEUE, start, 0.0)
        self.now = 0.0
        self.end = start
        self.all: list[ReceivedMessage] = []
        """Every message that was ever taken in."""
        self.waiting: list[ReceivedMessage] = []
        self.taken: list[ReceivedMessage] = []
        self.committed = start

    @property
    def unfinished(self) -> list[ReceivedMessage]:
        them = self.waiting + self.taken
        return sorted(them, key=lambda it: it.queue_offset)

    def finish(self, gone: list[ReceivedMessage]) -> None:
        offsets = {it.queue_offset for it in gone}
        self.waiting = [it for it in self.waiting if it.queue_offset not in offsets]
        self.taken = [it for it in self.taken if it.queue_offset not in offsets]

    @rule(
        back=st.integers(0, 3),
        gaps=st.lists(st.integers(1, 4), max_size=6),
        beyond=st.integers(-3, 5),
        body=st.binary(max_size=5),
    )
    def put(self, back: int, gaps: list[int], beyond: int, body: bytes) -> None:
        offset = max(0, self.end - 1 - back)
        brought = []
        for gap in gaps:
            offset += gap
            brought.append(message(offset, body))
        fresh = [it for it in brought if it.queue_offset >= self.end]
        next_offset = max(0, offset + 1 + beyond)
        assert self.real.put(brought, next_offset) == len(fresh)
        self.all += fresh
        self.waiting += fresh
        last = fresh[-1].queue_offset + 1 if fresh else 0
        self.end = max(self.end, last, next_offset)

    @rule(count=st.integers(0, 5), passed=st.floats(0, 10))
    def take(self, count: int, passed: float) -> None:
        self.now += passed
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        self.taken += batch
        assert self.real.take(count, self.now) == batch

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.all), max_size=4))
        self.finish(gone)
        offset = self.real.remove(gone)
        assert offset == self.expected_offset()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def remove_taken(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.taken), max_size=4))
        self.finish(gone)
        assert self.real.remove(gone) == self.expected_offset()

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        asked = data.draw(st.lists(st.sampled_from(self.all), max_size=4))
        self.real.give_back(asked)
        back = [it for it in self.taken if it in asked]
        self.taken = [it for it in self.taken if it not in back]
        self.waiting = sorted(back, key=lambda it: it.queue_offset) + self.waiting

    def expected_offset(self) -> int:
        return min((it.queue_offset for it in self.unfinished), default=self.end)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if not hasattr(self, "real"):
            return
        real, unfinished = self.real, self.unfinished
        assert real.count == len(unfinished)
        assert real.waiting == len(self.waiting)
        assert real.stored_bytes == sum(it.stored_bytes for it in unfinished)
        assert real.next_offset == self.end
        told = real.info(now=self.now, now_ms=0, stored_offset=0)
        taken = sorted(offsets_of(self.taken))
        assert told.transaction_msg_count == len(taken)
        if taken:
            ends = (told.transaction_msg_min_offset, told.transaction_msg_max_offset)
            assert ends == (taken[0], taken[-1])
        offsets = offsets_of(unfinished)
        assert real.span == (offsets[-1] - offsets[0] if offsets else 0)
        assert real.commit_offset == self.expected_offset()

    @invariant()
    def the_offset_passes_nothing_unfinished_and_never_goes_back(self) -> None:
        if not hasattr(self, "real"):
            return
        offset = self.real.commit_offset
        assert all(offset <= it.queue_offset for it in self.unfinished)
        assert self.committed <= offset <= self.real.next_offset
        self.committed = offset


TestProcessQueueModel = ProcessQueueMachine.TestCase
TestProcessQueueModel.settings = settings(max_examples=60, stateful_step_count=40)
