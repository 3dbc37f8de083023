"""The buffer of pulled messages, beside a model that keeps no buffer at all."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq.client.core.consuming.buffer import BufferLimits, BufferStatistics, PullBuffer, Ticket
from rmq.errors import NotAssignedError
from rmq.model.queues import MessageQueue


class Stored(NamedTuple):
    """A message as the buffer sees it."""

    queue: MessageQueue
    queue_offset: int
    stored_bytes: int = 100


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue(topic="Orders", broker_name="broker-a", queue_id=number)


def stored(number: int, *offsets: int) -> list[Stored]:
    return [Stored(queue(number), offset) for offset in offsets]


def started(*numbers: int, limits: BufferLimits | None = None) -> PullBuffer[Stored]:
    """Return a buffer with queues that begin at 0."""
    buffer: PullBuffer[Stored] = PullBuffer(limits)
    for number in numbers:
        buffer.add(queue(number))
        assert buffer.start(queue(number), 0, buffer.turn(queue(number)))
    return buffer


def pulled(buffer: PullBuffer[Stored], number: int, *offsets: int) -> None:
    ticket = buffer.begin(queue(number))
    assert buffer.finish(ticket, stored(number, *offsets), offsets[-1] + 1)


def offsets(messages: list[Stored]) -> list[tuple[int, int]]:
    return [(message.queue.queue_id, message.queue_offset) for message in messages]


def test_a_queue_is_not_pulled_before_it_is_known_from_where() -> None:
    buffer: PullBuffer[Stored] = PullBuffer()
    buffer.add(queue())
    assert not buffer.may_pull(queue())
    assert buffer.position(queue()) is None
    assert buffer.consumed(queue()) is None
    assert list(buffer.all_consumed()) == []
    turn = buffer.turn(queue())
    assert buffer.start(queue(), 7, turn)
    assert not buffer.start(queue(), 9, turn), "it has an offset already"
    assert buffer.begin(queue()) == Ticket(queue(), 7, turn)
    assert not buffer.may_pull(queue()), "one pull at a time"


def test_a_seek_before_the_start_wins_over_the_start() -> None:
    buffer: PullBuffer[Stored] = PullBuffer()
    buffer.add(queue())
    turn = buffer.turn(queue())
    buffer.seek(queue(), 3)
    assert not buffer.start(queue(), 7, turn)
    assert buffer.position(queue()) == 3


def test_what_was_given_is_consumed_when_the_application_comes_back() -> None:
    buffer = started(0)
    pulled(buffer, 0, 0, 1, 2)
    assert offsets(buffer.take(2)) == [(0, 0), (0, 1)]
    assert buffer.position(queue()) == 2
    assert buffer.consumed(queue()) == 0, "it may still be at work on them"
    buffer.mark_consumed()
    assert buffer.consumed(queue()) == 2, "what is only buffered is not consumed"
    assert list(buffer.all_consumed()) == [(queue(), 2)]


def test_queues_are_handed_out_by_turns() -> None:
    buffer = started(0, 1)
    pulled(buffer, 0, 0, 1)
    pulled(buffer, 0, 2, 3)
    pulled(buffer, 1, 0, 1)
    assert offsets(buffer.take(5)) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    assert offsets(buffer.take(5)) == [(0, 3)]
    assert buffer.take(5) == []


def test_one_by_one_the_queues_take_turns_pull_by_pull() -> None:
    buffer = started(0, 1)
    pulled(buffer, 0, 0, 1)
    pulled(buffer, 0, 2)
    pulled(buffer, 1, 0)
    taken = [buffer.take_one() for _ in range(5)]
    assert offsets([one for one in taken if one]) == [(0, 0), (0, 1), (1, 0), (0, 2)]
    assert taken[-1] is None


def test_offsets_without_messages_are_passed_over_in_order() -> None:
    buffer = started(0)
    assert buffer.finish(buffer.begin(queue()), [], 10)
    assert buffer.position(queue()) == 10
    pulled(buffer, 0, 12)
    assert buffer.finish(buffer.begin(queue()), [], 40)
    assert buffer.position(queue()) == 10, "12 comes first"
    assert offsets(buffer.take(9)) == [(0, 12)]
    assert buffer.position(queue()) == 40
    buffer.mark_consumed()
    assert buffer.consumed(queue()) == 40


def test_a_seek_throws_away_what_is_buffered_and_what_is_on_its_way() -> None:
    buffer = started(0)
    pulled(buffer, 0, 0, 1)
    ticket = buffer.begin(queue())
    buffer.seek(queue(), 100)
    assert buffer.take(9) == []
    assert not buffer.finish(ticket, stored(0, 2, 3), 4)
    buffer.fail(ticket)
    assert (buffer.position(queue()), buffer.consumed(queue())) == (100, 100)
    assert buffer.begin(queue()).offset == 100
    assert buffer.statistics() == BufferStatistics(1, 0, 0)


def test_a_queue_that_was_lost_and_got_back_takes_nothing_of_before() -> None:
    buffer = started(0)
    pulled(buffer, 0, 0, 1)
    ticket = buffer.begin(queue())
    turn = buffer.turn(queue())
    buffer.drop(queue())
    assert buffer.take(9) == []
    buffer.add(queue())
    assert not buffer.start(queue(), 5, turn)
    assert not buffer.finish(ticket, stored(0, 2), 3)
    assert buffer.position(queue()) is None


def test_a_failed_pull_is_begun_again_at_the_same_place() -> None:
    buffer = started(0)
    ticket = buffer.begin(queue())
    buffer.fail(ticket)
    assert buffer.begin(queue()) == ticket


def test_a_paused_queue_is_neither_pulled_nor_handed_out_and_keeps_what_it_has() -> None:
    buffer = started(0, 1)
    pulled(buffer, 0, 0)
    pulled(buffer, 1, 0)
    buffer.pause(queue(0))
    assert buffer.is_paused(queue(0))
    assert not buffer.may_pull(queue(0))
    assert offsets(buffer.take(9)) == [(1, 0)]
    buffer.resume(queue(0))
    assert buffer.may_pull(queue(0))
    assert offsets(buffer.take(9)) == [(0, 0)]


def test_the_next_pull_may_begin_before_the_last_one_is_decoded() -> None:
    buffer = started(0)
    first = buffer.begin(queue())
    assert buffer.answered(first, 2)
    assert buffer.may_pull(queue())
    ahead = buffer.begin(queue())
    assert ahead.offset == 2
    assert not buffer.may_pull(queue())
    assert buffer.finish(first, stored(0, 0, 1), 2)
    assert not buffer.may_pull(queue()), "the second one is still under way"
    assert buffer.finish(ahead, stored(0, 2), 3)
    assert offsets(buffer.take(9)) == [(0, 0), (0, 1), (0, 2)]


def test_a_pull_that_was_begun_too_far_on_is_in_vain() -> None:
    buffer = started(0)
    first = buffer.begin(queue())
    buffer.answered(first, 4)
    ahead = buffer.begin(queue())
    assert buffer.finish(first, stored(0, 0, 1), 2), "a record at 2 was not sound"
    assert not buffer.finish(ahead, stored(0, 4), 5)
    assert buffer.begin(queue()).offset == 2


def test_a_pull_that_failed_after_it_was_answered_is_begun_again() -> None:
    buffer = started(0)
    first = buffer.begin(queue())
    buffer.answered(first, 4)
    ahead = buffer.begin(queue())
    buffer.fail(first)
    assert not buffer.finish(ahead, stored(0, 4), 5)
    assert not buffer.answered(ahead, 5)
    assert buffer.begin(queue()).offset == 0


def test_a_pull_ahead_that_could_not_be_sent_harms_nobody() -> None:
    buffer = started(0)
    first = buffer.begin(queue())
    buffer.answered(first, 2)
    ahead = buffer.begin(queue())
    buffer.not_begun(ahead)
    assert buffer.finish(first, stored(0, 0, 1), 2)
    assert buffer.begin(queue()) == ahead


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(BufferLimits(messages_max=3), id="messages of all queues"),
        pytest.param(BufferLimits(queue_messages_max=3), id="messages of the queue"),
        pytest.param(BufferLimits(queue_bytes_max=300), id="bytes of the queue"),
        pytest.param(BufferLimits(queue_span_max=3), id="span of the queue"),
    ],
)
def test_pulling_stops_at_a_limit_until_some_are_taken(limits: BufferLimits) -> None:
    buffer = started(0, limits=limits)
    pulled(buffer, 0, 0, 1)
    assert buffer.may_pull(queue())
    pulled(buffer, 0, 2, 3)
    assert not buffer.may_pull(queue())
    assert buffer.is_full == (limits.messages_max == 3)
    buffer.take(2)
    assert buffer.may_pull(queue())
    assert not buffer.is_full


def test_a_queue_that_is_not_there_is_said_to_be_missing() -> None:
    buffer: PullBuffer[Stored] = PullBuffer()
    buffer.drop(queue())
    assert not buffer.may_pull(queue())
    for call in (buffer.turn, buffer.pause, buffer.resume, buffer.is_paused, buffer.position):
        with pytest.raises(NotAssignedError, match="queue 0 of Orders on broker-a") as caught:
            call(queue())
        assert caught.value.queue_id == 0


LIMITS = BufferLimits(
    messages_max=12, queue_messages_max=6, queue_bytes_max=1_500, queue_span_max=9
)
PULLED_MAX = 4
NUMBERS = st.integers(0, 2)
OFFSETS = st.integers(0, 60)


class BufferModel(RuleBasedStateMachine):
    """An endless log per queue, of which every third message is filtered out.

    The model knows only the place up to which each queue was handed out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buffer: PullBuffer[Stored] = PullBuffer(LIMITS)
        self.handed_out: dict[int, int] = {}
        """The least offset that may come next, by queue that is there."""
        self.consumed: dict[int, int] = {}
        self.paused: set[int] = set()
        self.under_way: list[Ticket] = []
        self.answered: dict[MessageQueue, tuple[Ticket, int]] = {}
        """Pulls that are answered and not decoded, and how many offsets they cover."""
        self.worthless: list[Ticket] = []

    def lose(self, number: int) -> None:
        self.worthless += [it for it in self.under_way if it.queue == queue(number)]
        self.under_way = [it for it in self.under_way if it.queue != queue(number)]
        if (last := self.answered.pop(queue(number), None)) is not None:
            self.worthless.append(last[0])

    @rule(number=NUMBERS, offset=OFFSETS)
    def add(self, number: int, offset: int) -> None:
        known = queue(number) in self.buffer
        self.buffer.add(queue(number))
        begun = self.buffer.start(queue(number), offset, self.buffer.turn(queue(number)))
        assert begun == (not known)
        if begun:
            self.handed_out[number] = self.consumed[number] = offset

    @rule(number=NUMBERS)
    def drop(self, number: int) -> None:
        self.buffer.drop(queue(number))
        self.handed_out.pop(number, None)
        self.consumed.pop(number, None)
        self.paused.discard(number)
        self.lose(number)

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data(), offset=OFFSETS)
    def seek(self, data: st.DataObject, offset: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.handed_out)))
        self.buffer.seek(queue(number), offset)
        self.handed_out[number] = self.consumed[number] = offset
        self.lose(number)

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data())
    def pause_or_resume(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.handed_out)))
        if number in self.paused:
            self.buffer.resume(queue(number))
        else:
            self.buffer.pause(queue(number))
        self.paused ^= {number}

    @precondition(lambda self: self.handed_out)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.handed_out)))
        if self.buffer.may_pull(queue(number)):
            assert number not in self.paused
            assert queue(number) not in [ticket.queue for ticket in self.under_way]
            self.under_way.append(self.buffer.begin(queue(number)))

    def next_ticket(self, data: st.DataObject) -> Ticket | None:
        """Return a pull that no other one of its queue comes before."""
        free = [ticket for ticket in self.under_way if ticket.queue not in self.answered]
        if not free:
            return None
        ticket = data.draw(st.sampled_from(free))
        self.under_way.remove(ticket)
        return ticket

    @rule(data=st.data(), count=st.integers(0, PULLED_MAX))
    def answer_first(self, data: st.DataObject, count: int) -> None:
        if (ticket := self.next_ticket(data)) is not None:
            assert self.buffer.answered(ticket, ticket.offset + count)
            self.answered[ticket.queue] = (ticket, count)

    @precondition(lambda self: self.answered)
    @rule(data=st.data(), size=st.integers(1, 500), keeps=st.booleans())
    def finish_answered(self, data: st.DataObject, size: int, keeps: bool) -> None:
        of = data.draw(st.sampled_from(sorted(self.answered)))
        ticket, count = self.answered.pop(of)
        if not keeps and count:
            count -= 1
            self.worthless += [it for it in self.under_way if it.queue == of]
            self.under_way = [it for it in self.under_way if it.queue != of]
        assert self.buffer.finish(ticket, self.answer(ticket, count, size), ticket.offset + count)

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def fail_answered(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(sorted(self.answered)))
        ticket, count = self.answered.pop(of)
        self.buffer.fail(ticket)
        if count:
            self.worthless += [it for it in self.under_way if it.queue == of]
            self.under_way = [it for it in self.under_way if it.queue != of]

    @rule(data=st.data(), count=st.integers(0, PULLED_MAX), size=st.integers(1, 500))
    def finish(self, data: st.DataObject, count: int, size: int) -> None:
        ticket = self.next_ticket(data)
        if ticket is None:
            return
        assert self.buffer.finish(ticket, self.answer(ticket, count, size), ticket.offset + count)

    def answer(self, ticket: Ticket, count: int, size: int) -> list[Stored]:
        return [
            Stored(ticket.queue, offset, size)
            for offset in range(ticket.offset, ticket.offset + count)
            if offset % 3
        ]

    @precondition(lambda self: self.worthless)
    @rule(count=st.integers(1, PULLED_MAX))
    def finish_too_late(self, count: int) -> None:
        ticket = self.worthless.pop()
        assert not self.buffer.finish(ticket, self.answer(ticket, count, 1), ticket.offset + count)

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        if (ticket := self.next_ticket(data)) is not None:
            self.buffer.fail(ticket)

    @rule(count=st.integers(1, 9), by_one=st.booleans())
    def poll(self, count: int, by_one: bool) -> None:
        self.buffer.mark_consumed()
        self.consumed = {number: self.position(number) for number in self.handed_out}
        if by_one:
            one = self.buffer.take_one()
            messages = [] if one is None else [one]
        else:
            messages = self.buffer.take(count)
        assert len(messages) <= count
        for message in messages:
            number = message.queue.queue_id
            assert number not in self.paused
            skipped = range(self.handed_out[number], message.queue_offset)
            assert all(offset % 3 == 0 for offset in skipped), "a message was lost"
            self.handed_out[number] = message.queue_offset + 1
        if not messages:
            left = [n for n in self.handed_out if self.buffer.buffered(queue(n))]
            assert set(left) <= self.paused

    def position(self, number: int) -> int:
        position = self.buffer.position(queue(number))
        assert position is not None
        return position

    @invariant()
    def places_are_in_order(self) -> None:
        assert {it.queue_id for it in self.buffer.queues} == set(self.handed_out)
        for number, handed_out in self.handed_out.items():
            position = self.position(number)
            assert position >= handed_out
            assert all(offset % 3 == 0 for offset in range(handed_out, position))
        assert dict(self.buffer.all_consumed()) == {
            queue(number): offset for number, offset in self.consumed.items()
        }

    @invariant()
    def what_is_buffered_is_bounded(self) -> None:
        counts = [self.buffer.buffered(queue(number)) for number in self.handed_out]
        statistics = self.buffer.statistics()
        assert statistics.messages == sum(counts)
        assert statistics.messages < LIMITS.messages_max + 2 * len(counts) * PULLED_MAX
        assert all(count < LIMITS.queue_messages_max + 2 * PULLED_MAX for count in counts)
        assert (statistics.stored_bytes == 0) == (statistics.messages == 0)


BufferModel.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
test_buffer_model = BufferModel.TestCase
