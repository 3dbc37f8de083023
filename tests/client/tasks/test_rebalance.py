"""Shares of members: what a round gives up and takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.consuming.allocation import Average
from rmq.client.tasks.rebalance import Change, changes, share_of
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Sequence


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="Orders", broker_name="broker-a", queue_id=number)


def queues(*numbers: int) -> tuple[MessageQueue, ...]:
    return tuple(map(queue, numbers))


class Custom:
    """A strategy of an application."""

    name = "CUSTOM"

    def __init__(self, *given: MessageQueue, fails: bool = False) -> None:
        self._given = given
        self._fails = fails

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if self._fails:
            raise LookupError("no share for you")
        return list(self._given)


@pytest.mark.parametrize(
    ("held", "share", "stuck", "change"),
    [
        pytest.param((), (0, 1), (), Change((), queues(0, 1)), id="first"),
        pytest.param((0, 1), (0, 1), (), Change((), ()), id="the same"),
        pytest.param((0, 1), (1, 2), (), Change(queues(0), queues(2)), id="moved"),
        pytest.param((0, 1), (), (), Change(queues(0, 1), ()), id="nothing left"),
        pytest.param((0, 1), (0, 1), (1,), Change(queues(1), queues(1)), id="stuck"),
        pytest.param((0, 1), (0,), (1,), Change(queues(1), ()), id="stuck, and another's"),
    ],
)
def test_what_a_round_changes(
    held: tuple[int, ...], share: tuple[int, ...], stuck: tuple[int, ...], change: Change
) -> None:
    assert changes(queues(*held), frozenset(queues(*share)), queues(*stuck)) == change


@given(
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=8),
    st.integers(1, 20),
)
def test_whoever_comes_and_goes_each_queue_has_one_owner(
    rounds: list[set[str]], count: int
) -> None:
    everything = queues(*range(count))
    held: dict[str, set[MessageQueue]] = {}
    for members in rounds:
        held = {name: held.get(name, set()) for name in members}
        for name in members:
            share = share_of(Average(), "g", name, everything, sorted(members))
            assert share is not None
            change = changes(held[name], share)
            assert held[name].issuperset(change.given_up)
            assert held[name].isdisjoint(change.taken_over)
            held[name] = (held[name] - set(change.given_up)) | set(change.taken_over)
        dealt = sorted(each for owned in held.values() for each in owned)
        assert dealt == sorted(everything)


def test_a_strategy_that_fails_leaves_queues_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    assert share_of(Custom(fails=True), "g", "me", queues(0), ["me"]) is None
    assert "no share for you" in caplog.text


def test_queues_that_a_strategy_makes_up_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    share = share_of(Custom(*queues(0, 7)), "g", "me", queues(0, 1), ["me"])
    assert share == frozenset(queues(0))
    assert "not there" in caplog.text


def test_a_client_that_a_broker_does_not_know_has_no_share() -> None:
    assert share_of(Average(), "g", "me", queues(0), ["other"]) == frozenset()
