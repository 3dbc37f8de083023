"""Hosts take turns, however many connections they have."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.remoting.fairness.turns import Turns

if TYPE_CHECKING:
    from rmq.remoting.channel import Channel


def channel(host: str, number: int) -> Channel:
    return cast("Channel", SimpleNamespace(host=host, number=number))


def turns_of(**connections: int) -> Turns:
    turns = Turns()
    for host, count in connections.items():
        for number in range(count):
            turns.append(channel(host, number))
    return turns


def handled(turns: Turns, frames: int) -> Counter[str]:
    """Have all connections bring frames without end; return how many of each host were handled."""
    found: Counter[str] = Counter()
    while found.total() < frames:
        taken, share = turns.take()
        assert share > 0
        found[taken.host] += share
        turns.took(share)
        turns.append(taken)
    return found


def test_a_host_with_a_thousand_connections_has_the_part_of_one_with_one() -> None:
    found = handled(turns_of(flood=1_000, one=1), 20_000)
    assert found["flood"] == pytest.approx(found["one"], rel=0.05)


def test_many_hosts_have_equal_parts() -> None:
    found = handled(turns_of(a=1, b=3, c=50, d=400), 40_000)
    assert all(count == pytest.approx(10_000, rel=0.1) for count in found.values()), found


def test_connections_of_a_host_take_turns() -> None:
    turns = turns_of(flood=1_000, one=1)
    seen: Counter[int] = Counter()
    while len(seen) < 1_000:
        taken, share = turns.take()
        if taken.host == "flood":
            seen[cast("SimpleNamespace", taken).number] += 1
        turns.took(share)
        turns.append(taken)
    assert max(seen.values()) == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.sampled_from("abc")),
            st.tuples(st.just("take"), st.integers(0, 600)),
        ),
        max_size=80,
    )
)
def test_all_that_wait_come_once(steps: list[tuple[str, str | int]]) -> None:
    turns = Turns()
    waiting: list[Channel] = []
    for number, (what, value) in enumerate(steps):
        if what == "append":
            waiting.append(channel(str(value), number))
            turns.append(waiting[-1])
        elif waiting:
            taken, share = turns.take()
            assert share >= 1
            # Of those of its host it is the one that came first.
            assert taken is next(each for each in waiting if each.host == taken.host)
            waiting.remove(taken)
            turns.took(int(value))
        assert len(turns) == len(waiting)
        assert turns.hosts == len({each.host for each in waiting})
