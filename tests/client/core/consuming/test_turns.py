"""Turns of queues: fair, bounded, and with a place left for those that have none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.consuming.turns import Lane, Lanes


def lanes_of(*names: str, calls_max: int) -> tuple[Lanes[str], dict[str, Lane[str]]]:
    lanes: Lanes[str] = Lanes(calls_max)
    made = {name: Lane(name) for name in names}
    for lane in made.values():
        lanes.add(lane)
    return lanes, made


def begin(lanes: Lanes[str], *, offers_again: bool = True) -> str | None:
    lane = lanes.begin()
    if lane is None:
        return None
    if offers_again:
        lanes.offer(lane)
    return lane.owner


def test_lanes_with_work_take_turns() -> None:
    lanes, made = lanes_of("a", "b", "c", calls_max=100)
    for lane in made.values():
        lanes.offer(lane)
    assert [begin(lanes) for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]


def test_a_lane_that_is_not_offered_has_no_turn() -> None:
    lanes, made = lanes_of("a", "b", calls_max=4)
    lanes.offer(made["a"])
    lanes.offer(made["a"])
    assert begin(lanes, offers_again=False) == "a"
    assert begin(lanes) is None
    lanes.offer(made["b"])
    lanes.withdraw(made["b"])
    assert begin(lanes) is None


def test_one_lane_cannot_take_what_others_may_need() -> None:
    lanes, made = lanes_of("slow", "b", "c", calls_max=8)
    assert lanes.reserved == 2
    lanes.offer(made["slow"])
    assert [begin(lanes) for _ in range(7)] == ["slow"] * 6 + [None]
    lanes.offer(made["b"])
    assert begin(lanes) == "b"
    # It has one now: the last place is not for a second one of its own.
    assert begin(lanes) is None
    lanes.offer(made["c"])
    assert begin(lanes) == "c"
    assert lanes.calls == 8
    assert not lanes.may_begin()


def test_a_lane_alone_may_take_everything() -> None:
    lanes, made = lanes_of("only", calls_max=4)
    lanes.offer(made["only"])
    assert [begin(lanes) for _ in range(5)] == ["only"] * 4 + [None]


def test_a_removed_lane_frees_what_was_kept_for_it() -> None:
    lanes, made = lanes_of("a", "b", calls_max=4)
    lanes.offer(made["a"])
    assert [begin(lanes) for _ in range(4)] == ["a", "a", "a", None]
    lanes.remove(made["b"])
    assert lanes.may_begin()
    assert begin(lanes) == "a"
    lanes.remove(made["a"])
    assert begin(lanes) is None
    lanes.offer(made["a"])
    assert begin(lanes) is None


def test_a_lane_can_be_bound_to_one_call() -> None:
    lanes: Lanes[str] = Lanes(10)
    lane = Lane("ordered", calls_max=1)
    lanes.add(lane)
    lanes.offer(lane)
    assert begin(lanes) == "ordered"
    assert begin(lanes) is None
    lanes.end(lane)
    assert begin(lanes) == "ordered"


def test_who_waits_for_the_last_call_is_told_once() -> None:
    lanes, made = lanes_of("a", calls_max=4)
    lane = made["a"]
    told: list[str] = []
    lanes.offer(lane)
    begin(lanes)
    begin(lanes)
    lane.on_idle += [lambda: told.append("first"), lambda: told.append("second")]
    lanes.end(lane)
    assert told == []
    lanes.end(lane)
    assert told == ["first", "second"]
    begin(lanes)
    lanes.end(lane)
    assert told == ["first", "second"]


@given(
    calls_max=st.integers(1, 12),
    count=st.integers(1, 6),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=80),
)
def test_bounds_hold_and_nobody_is_forgotten(
    calls_max: int, count: int, steps: list[tuple[bool, int]]
) -> None:
    lanes: Lanes[int] = Lanes(calls_max)
    made = [Lane(number) for number in range(count)]
    for lane in made:
        lanes.add(lane)
    for is_offer, number in steps:
        lane = made[number % count]
        if is_offer:
            lanes.offer(lane)
            could = lanes.may_begin()
            begun = lanes.begin()
            assert could == (begun is not None)
        elif lane.calls:
            lanes.end(lane)
        assert lanes.calls == sum(each.calls for each in made) <= calls_max
        for each in made:
            # A lane with none under way gets one of the places kept for it, if one is left.
            if each.is_offered and not each.calls:
                assert lanes.may_begin() == (lanes.calls < calls_max)
