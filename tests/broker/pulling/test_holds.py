"""Pulls that wait: who is woken by what, and that nobody is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.pulling.filters import filter_for
from rmq.broker.pulling.holds import Hold, PullHolds
from rmq.counting.requests import CodeCounts
from rmq.model.java import string_hash
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.remoting.codes import RequestCode
from rmq.remoting.command import Command
from rmq.remoting.groups import PULL, GroupState
from rmq.remoting.request import Request
from rmq.store.dispatcher import Dispatched
from tests.broker.broker_frames import TOPIC, pull_header, subscription
from tests.broker.clients.registry_kit import open_channel

if TYPE_CHECKING:
    from rmq.remoting.bodies import SubscriptionData
    from rmq.remoting.channel import Channel


ALL = 1_000_000


class Watched:
    """Which queues are watched, and that nobody is told twice."""

    def __init__(self) -> None:
        self.queues: set[tuple[str, int]] = set()

    def __call__(self, topic: str, queue_id: int, is_watched: bool) -> None:
        key = (topic, queue_id)
        assert (key in self.queues) is not is_watched, "told what is known"
        if is_watched:
            self.queues.add(key)
        else:
            self.queues.remove(key)


class Waiting:
    """Holds, and the queues watched on their behalf."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.holds = PullHolds(self.watched)

    def add(
        self,
        queue_id: int = 0,
        offset: int = 0,
        *,
        topic: str = TOPIC,
        deadline: float = 15.0,
        channel: Channel | None = None,
        wants: SubscriptionData | None = None,
    ) -> Hold:
        request = Request(
            Command(RequestCode.PULL_MESSAGE),
            pull_header(queue_id, offset, topic=topic),
            channel or open_channel(),
            GroupState(PULL),
            CodeCounts(),
            0.0,
        )
        hold = Hold(request, deadline, filter_for(wants or subscription()))
        self.holds.add(hold)
        return hold

    def sweep(self, now: float, end: int = 0) -> list[Hold]:
        self.holds.sweep(now, lambda topic, queue_id: end)
        return self.holds.take_woken(ALL)

    def arrive(self, *messages: Dispatched) -> list[Hold]:
        """Let messages arrive in one step; return whom they wake."""
        for message in messages:
            self.holds.arrived(message)
        return self.holds.take_woken(ALL)


def arrived(
    queue_id: int = 0,
    offset: int = 0,
    *,
    topic: str = TOPIC,
    tags: str = "",
    **properties: str,
) -> Dispatched:
    code = string_hash(tags) if tags else 0
    return Dispatched(topic, queue_id, QueueOffset(offset), code, 0, encode_properties(properties))


# --- messages ------------------------------------------------------------------------------------


def test_a_message_wakes_who_waits_for_its_queue() -> None:
    waiting = Waiting()
    hold, other = waiting.add(0), waiting.add(1)
    assert waiting.arrive(arrived(0)) == [hold]
    assert waiting.watched.queues == {other.key}
    assert len(waiting.holds) == 1


def test_all_who_wait_for_a_queue_are_woken_in_the_order_they_came() -> None:
    waiting = Waiting()
    holds = [waiting.add() for _ in range(5)]
    assert waiting.arrive(arrived()) == holds
    assert waiting.watched.queues == set()


def test_the_messages_of_one_step_wake_a_consumer_once() -> None:
    waiting = Waiting()
    hold = waiting.add()
    assert waiting.arrive(*(arrived(offset=offset) for offset in range(32))) == [hold]


@pytest.mark.parametrize(
    ("offset", "is_woken"),
    [pytest.param(4, False, id="before"), pytest.param(5, True, id="at"), pytest.param(6, True)],
)
def test_a_message_before_the_wanted_offset_wakes_nobody(offset: int, is_woken: bool) -> None:
    waiting = Waiting()
    hold = waiting.add(offset=5)
    assert waiting.arrive(arrived(offset=offset)) == ([hold] if is_woken else [])


def test_a_message_with_another_tag_wakes_nobody() -> None:
    waiting = Waiting()
    one = waiting.add(wants=subscription("TagA || TagB"))
    both = waiting.add(wants=subscription("TagC"))
    assert waiting.arrive(arrived(tags="TagC")) == [both]
    assert waiting.arrive(arrived(offset=1)) == []
    assert waiting.arrive(arrived(offset=2, tags="TagB")) == [one]


def test_a_condition_is_tried_on_the_properties_of_a_message_before_it_wakes() -> None:
    waiting = Waiting()
    hold = waiting.add(wants=subscription("a > 5", expression_type="SQL92"))
    assert waiting.arrive(arrived(a="5")) == []
    assert waiting.arrive(arrived(offset=1)) == []
    assert waiting.arrive(arrived(offset=2, a="no number")) == []
    assert waiting.arrive(arrived(offset=3, a="6")) == [hold]


def test_a_message_for_a_queue_nobody_waits_for_is_nothing() -> None:
    waiting = Waiting()
    waiting.add()
    assert waiting.arrive(arrived(7), arrived(topic="other")) == []


def test_those_who_are_woken_may_be_taken_in_parts() -> None:
    waiting = Waiting()
    holds = [waiting.add() for _ in range(5)]
    waiting.holds.arrived(arrived())
    assert waiting.holds.take_woken(2) == holds[:2]
    # The rest is still there to be forgotten with its connection.
    assert waiting.holds.forget(holds[2].request.channel) == [holds[2]]
    assert waiting.holds.take_woken(2) == holds[3:]
    assert not waiting.holds.has_woken
    assert len(waiting.holds) == 0


# --- times ---------------------------------------------------------------------------------------


def test_a_sweep_wakes_whose_time_is_up_and_no_other() -> None:
    waiting = Waiting()
    early, late = waiting.add(deadline=15.0), waiting.add(deadline=15.001)
    assert waiting.sweep(14.999) == []
    assert waiting.sweep(15.0) == [early]
    assert waiting.watched.queues == {late.key}
    assert waiting.sweep(20.0) == [late]
    assert waiting.watched.queues == set()


def test_a_sweep_wakes_who_missed_a_message_whatever_its_tag() -> None:
    waiting = Waiting()
    behind = waiting.add(offset=3, wants=subscription("TagA"))
    at_the_end = waiting.add(offset=4)
    assert waiting.sweep(0.0, end=4) == [behind]
    assert waiting.watched.queues == {at_the_end.key}


# --- queues and connections that go --------------------------------------------------------------


def test_all_who_wait_for_a_topic_are_woken_when_it_changes() -> None:
    waiting = Waiting()
    gone = [waiting.add(0), waiting.add(1)]
    stays = waiting.add(topic="other")
    waiting.holds.wake_topic(TOPIC)
    assert waiting.holds.take_woken(ALL) == gone
    assert waiting.watched.queues == {stays.key}


def test_everybody_is_woken_at_the_end() -> None:
    waiting = Waiting()
    holds = {waiting.add(queue_id) for queue_id in range(3) for _ in range(2)}
    waiting.holds.wake_all()
    assert set(waiting.holds.take_woken(ALL)) == holds
    assert waiting.watched.queues == set()
    assert len(waiting.holds) == waiting.holds.queues == 0


def test_the_holds_of_a_connection_that_ended_are_given_back_and_gone() -> None:
    waiting, channel = Waiting(), open_channel()
    gone = {waiting.add(0, channel=channel), waiting.add(1, channel=channel)}
    stays = waiting.add(1)
    assert set(waiting.holds.forget(channel)) == gone
    assert waiting.watched.queues == {stays.key}
    assert waiting.arrive(arrived(0), arrived(1)) == [stays]
    assert waiting.holds.forget(channel) == []


def test_a_connection_may_end_between_a_message_and_the_answer() -> None:
    waiting, channel = Waiting(), open_channel()
    gone, stays = waiting.add(channel=channel), waiting.add()
    waiting.holds.arrived(arrived())
    assert waiting.holds.forget(channel) == [gone]
    assert waiting.holds.take_woken(ALL) == [stays]
    assert not waiting.holds.has_woken


def test_a_queue_that_cannot_be_watched_is_not_waited_for() -> None:
    def watch(topic: str, queue_id: int, is_watched: bool) -> None:
        raise ValueError("no such queue can be")

    waiting = Waiting()
    hold = waiting.add()
    holds = PullHolds(watch)
    with pytest.raises(ValueError, match="no such queue"):
        holds.add(hold)
    assert len(holds) == holds.queues == 0


def test_those_of_other_queues_are_not_looked_at_for_a_message_or_a_connection() -> None:
    waiting = Waiting()
    channels = [open_channel() for _ in range(2_000)]
    for channel in channels:
        waiting.add(channel=channel, wants=subscription("TagA"))
    # With a walk through all others for each of them this takes minutes, not a moment.
    assert waiting.arrive(*(arrived(offset=n, tags="TagB") for n in range(10))) == []
    for channel in channels:
        assert len(waiting.holds.forget(channel)) == 1
    assert waiting.watched.queues == set()


# --- any order of events -------------------------------------------------------------------------

_QUEUES = st.integers(0, 2)
_EVENTS = st.one_of(
    st.tuples(st.just("add"), _QUEUES, st.integers(0, 3), st.integers(0, 4)),
    st.tuples(st.just("arrive"), _QUEUES, st.integers(0, 5), st.just(0)),
    st.tuples(st.just("sweep"), st.integers(0, 40), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("close"), st.integers(0, 4), st.just(0), st.just(0)),
    st.tuples(st.just("topic"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("take"), st.just(0), st.just(0), st.just(0)),
)


@given(st.lists(_EVENTS, max_size=40))
def test_every_hold_leaves_exactly_once_and_watches_follow(
    events: list[tuple[str, int, int, int]],
) -> None:
    waiting = Waiting()
    channels = [open_channel(str(number)) for number in range(5)]
    resting: set[Hold] = set()
    woken: set[Hold] = set()

    def take() -> None:
        taken = waiting.holds.take_woken(ALL)
        assert len(taken) == len(set(taken))
        assert set(taken) == woken
        woken.clear()

    def wake(which: set[Hold]) -> None:
        resting.difference_update(which)
        woken.update(which)

    for event, first, second, third in events:
        if event == "add":
            resting.add(waiting.add(first, second, deadline=10.0 * second, channel=channels[third]))
        elif event == "arrive":
            waiting.holds.arrived(arrived(first, second))
            wake({hold for hold in resting if hold.key[1] == first and hold.offset <= second})
        elif event == "sweep":
            waiting.holds.sweep(first, lambda topic, queue_id, end=second: end)  # type: ignore[misc]
            wake({hold for hold in resting if hold.deadline <= first or hold.offset < second})
        elif event == "close":
            gone = set(waiting.holds.forget(channels[first]))
            mine = {h for h in resting | woken if h.request.channel is channels[first]}
            assert gone == mine
            resting.difference_update(mine)
            woken.difference_update(mine)
        elif event == "topic":
            waiting.holds.wake_topic(TOPIC)
            wake(set(resting))
        else:
            take()
        assert waiting.watched.queues == {hold.key for hold in resting}
        assert waiting.holds.queues == len(waiting.watched.queues)
        assert len(waiting.holds) == len(resting) + len(woken)
        assert waiting.holds.has_woken is bool(woken)
    take()
