"""Turns of queues: fair, bounded, and with a place left for those that have none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.consuming.turns import FairTurns, QueueTurn


def turns_of(*names: str, calls_max: int) -> tuple[FairTurns[str], dict[str, QueueTurn[str]]]:
    turns: FairTurns[str] = FairTurns(calls_max)
    made = {name: QueueTurn(name) for name in names}
    for turn in made.values():
        turns.add(turn)
    return turns, made


def begin(turns: FairTurns[str], *, offers_again: bool = True) -> str | None:
    turn = turns.begin()
    if turn is None:
        return None
    if offers_again:
        turns.offer(turn)
    return turn.owner


def test_queues_with_work_take_turns() -> None:
    turns, made = turns_of("a", "b", "c", calls_max=100)
    for turn in made.values():
        turns.offer(turn)
    assert [begin(turns) for _ in range(7)] == ["a", "b", "c", "a", "b", "c", "a"]


def test_a_queue_that_is_not_offered_has_no_turn() -> None:
    turns, made = turns_of("a", "b", calls_max=4)
    turns.offer(made["a"])
    turns.offer(made["a"])
    assert begin(turns, offers_again=False) == "a"
    assert begin(turns) is None
    turns.offer(made["b"])
    turns.withdraw(made["b"])
    assert begin(turns) is None


def test_one_queue_cannot_take_what_others_may_need() -> None:
    turns, made = turns_of("slow", "b", "c", calls_max=8)
    assert turns.reserved == 2
    turns.offer(made["slow"])
    assert [begin(turns) for _ in range(7)] == ["slow"] * 6 + [None]
    turns.offer(made["b"])
    assert begin(turns) == "b"
    # It has one now: the last place is not for a second one of its own.
    assert begin(turns) is None
    turns.offer(made["c"])
    assert begin(turns) == "c"
    assert turns.calls == 8
    assert not turns.may_begin()


def test_a_queue_alone_may_take_everything() -> None:
    turns, made = turns_of("only", calls_max=4)
    turns.offer(made["only"])
    assert [begin(turns) for _ in range(5)] == ["only"] * 4 + [None]


def test_a_removed_queue_frees_what_was_kept_for_it() -> None:
    turns, made = turns_of("a", "b", calls_max=4)
    turns.offer(made["a"])
    assert [begin(turns) for _ in range(4)] == ["a", "a", "a", None]
    turns.remove(made["b"])
    assert turns.may_begin()
    assert begin(turns) == "a"
    turns.remove(made["a"])
    assert begin(turns) is None
    turns.offer(made["a"])
    assert begin(turns) is None


def test_a_queue_can_be_bound_to_one_call() -> None:
    turns: FairTurns[str] = FairTurns(10)
    turn = QueueTurn("ordered", calls_max=1)
    turns.add(turn)
    turns.offer(turn)
    assert begin(turns) == "ordered"
    assert begin(turns) is None
    turns.end(turn)
    assert begin(turns) == "ordered"


def test_who_waits_for_the_last_call_is_told_once() -> None:
    turns, made = turns_of("a", calls_max=4)
    turn = made["a"]
    told: list[str] = []
    turns.offer(turn)
    begin(turns)
    begin(turns)
    turn.on_idle += [lambda: told.append("first"), lambda: told.append("second")]
    turns.end(turn)
    assert told == []
    turns.end(turn)
    assert told == ["first", "second"]
    begin(turns)
    turns.end(turn)
    assert told == ["first", "second"]


@given(
    calls_max=st.integers(1, 12),
    count=st.integers(1, 6),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=80),
)
def test_bounds_hold_and_nobody_is_forgotten(
    calls_max: int, count: int, steps: list[tuple[bool, int]]
) -> None:
    turns: FairTurns[int] = FairTurns(calls_max)
    made = [QueueTurn(number) for number in range(count)]
    for turn in made:
        turns.add(turn)
    for is_offer, number in steps:
        turn = made[number % count]
        if is_offer:
            turns.offer(turn)
            could = turns.may_begin()
            begun = turns.begin()
            assert could == (begun is not None)
        elif turn.calls:
            turns.end(turn)
        assert turns.calls == sum(each.calls for each in made) <= calls_max
        for each in made:
            # A queue with none under way gets one of the places kept for it, if one is left.
            if each.is_offered and not each.calls:
                assert turns.may_begin() == (turns.calls < calls_max)
