"""Calls by opaque number, and deadlines against a plain list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq.remoting.session import Calls, Deadlines

OPAQUE_MIN: Final = -(2**31)
OPAQUE_MAX: Final = 2**31 - 1

# --- calls ----------------------------------------------------------------------------------


def test_opaque_numbers_begin_at_zero_and_go_up_by_one() -> None:
    calls = Calls[str]()
    assert [calls.next_opaque() for _ in range(3)] == [0, 1, 2]


def test_opaque_numbers_wrap_to_the_least_signed_32_bit_number() -> None:
    calls = Calls[str](first_opaque=OPAQUE_MAX - 1)
    numbers = [calls.next_opaque() for _ in range(4)]
    assert numbers == [OPAQUE_MAX - 1, OPAQUE_MAX, OPAQUE_MIN, OPAQUE_MIN + 1]


def test_opaque_numbers_go_up_through_zero() -> None:
    calls = Calls[str](first_opaque=-2)
    assert [calls.next_opaque() for _ in range(4)] == [-2, -1, 0, 1]


def test_a_number_of_a_call_under_way_is_passed_over_even_across_the_wrap() -> None:
    calls = Calls[str](first_opaque=OPAQUE_MAX)
    for opaque in (OPAQUE_MAX, OPAQUE_MIN, OPAQUE_MIN + 2):
        calls.add(opaque, "slow")
    assert [calls.next_opaque() for _ in range(2)] == [OPAQUE_MIN + 1, OPAQUE_MIN + 3]


def test_a_number_is_free_again_once_its_call_was_answered() -> None:
    calls = Calls[str](first_opaque=5)
    calls.add(5, "slow")
    assert calls.pop(5) == "slow"
    assert calls.next_opaque() == 5


def test_a_number_that_was_only_asked_for_is_not_given_twice() -> None:
    calls = Calls[str]()
    assert calls.next_opaque() != calls.next_opaque()


def test_an_answer_finds_its_call_once() -> None:
    calls = Calls[str]()
    calls.add(-7, "a")
    calls.add(7, "b")
    assert calls.pop(-7) == "a"
    assert calls.pop(-7) is None
    assert calls.pop(8) is None
    assert list(calls) == ["b"]


def test_two_calls_cannot_have_the_same_number() -> None:
    calls = Calls[str]()
    calls.add(1, "first")
    with pytest.raises(AssertionError, match="opaque 1 is under way already"):
        calls.add(1, "second")
    assert calls.pop(1) == "first"


def test_draining_gives_every_call_in_order_and_leaves_none() -> None:
    calls = Calls[str]()
    for name in ("a", "b", "c"):
        calls.add(calls.next_opaque(), name)
    calls.pop(1)
    assert len(calls) == 2
    assert calls.drain() == ["a", "c"]
    assert len(calls) == 0
    assert calls.drain() == []
    assert calls.next_opaque() == 3


@settings(max_examples=50)
@given(
    first=st.integers(OPAQUE_MIN, OPAQUE_MAX) | st.integers(OPAQUE_MAX - 20, OPAQUE_MAX),
    answered=st.lists(st.booleans(), max_size=60),
)
def test_numbers_are_signed_32_bit_and_differ_from_all_under_way(
    first: int, answered: list[bool]
) -> None:
    calls = Calls[int](first_opaque=first)
    under_way: set[int] = set()
    for is_answered in answered:
        opaque = calls.next_opaque()
        assert OPAQUE_MIN <= opaque <= OPAQUE_MAX
        assert opaque not in under_way
        calls.add(opaque, opaque)
        under_way.add(opaque)
        if is_answered:
            assert calls.pop(opaque) == opaque
            under_way.remove(opaque)
    assert set(calls) == under_way


# --- deadlines ------------------------------------------------------------------------------


@dataclass(eq=False)
class Item:
    """Something that waits; compared by identity only, as heap entries must never compare items."""

    name: int
    is_complete: bool = False


SETTLED_MAX: Final = 2 * 64 + 1
"""How many complete items a heap may hold before it is swept."""


def filled(*deadlines: float) -> tuple[Deadlines[Item], list[Item]]:
    heap = Deadlines[Item]()
    items = [Item(number) for number in range(len(deadlines))]
    for deadline, item in zip(deadlines, items, strict=True):
        heap.add(deadline, item)
    return heap, items


def test_nothing_is_due_without_items() -> None:
    heap = Deadlines[Item]()
    assert heap.next_at() is None
    assert heap.expire(1e12) == []


def test_items_expire_in_the_order_of_their_deadlines_then_of_their_coming() -> None:
    heap, items = filled(3.0, 1.0, 2.0, 1.0)
    assert heap.expire(2.5) == [items[1], items[3], items[2]]
    assert heap.next_at() == 3.0
    assert heap.expire(3.0) == [items[0]]
    assert len(heap) == 0


def test_a_deadline_has_passed_when_it_is_reached_and_not_before() -> None:
    heap, items = filled(1.0)
    assert heap.expire(0.999) == []
    assert heap.expire(1.0) == items


def test_an_item_expires_once() -> None:
    heap, items = filled(1.0)
    assert heap.expire(2.0) == items
    assert heap.expire(2.0) == []


def test_complete_items_neither_expire_nor_are_waited_for() -> None:
    heap, items = filled(1.0, 2.0, 3.0)
    items[0].is_complete = True
    assert heap.next_at() == 2.0
    items[1].is_complete = True
    assert heap.expire(2.5) == []
    assert heap.next_at() == 3.0


def test_adding_tells_whether_the_timer_must_be_set_anew() -> None:
    heap = Deadlines[Item]()
    assert heap.add(5.0, Item(0))
    assert not heap.add(6.0, Item(1))
    assert not heap.add(5.0, Item(2))
    assert heap.add(4.0, Item(3))


def test_answered_calls_do_not_pile_up_however_far_their_deadlines() -> None:
    heap = Deadlines[Item]()
    for number in range(10_000):
        item = Item(number)
        heap.add(1e9 + number, item)
        item.is_complete = True
        assert len(heap) <= SETTLED_MAX


def test_calls_that_still_wait_survive_the_sweeping() -> None:
    heap = Deadlines[Item]()
    waiting = []
    for number in range(10_000):
        item = Item(number)
        heap.add(float(number), item)
        if number % 100:
            item.is_complete = True
        else:
            waiting.append(item)
    assert len(heap) <= max(2 * len(waiting) + 1, SETTLED_MAX)
    assert heap.next_at() == 0.0
    assert heap.expire(10_000.0) == waiting


def test_a_crowd_of_complete_calls_is_forgotten_in_the_course_of_as_many_new_ones() -> None:
    crowd = 5_000
    heap, items = filled(*[1e9] * crowd)
    for item in items:
        item.is_complete = True
    for number in range(crowd + 1):
        item = Item(number)
        heap.add(2e9, item)
        item.is_complete = True
        assert len(heap) <= 2 * crowd + 1
    assert len(heap) <= SETTLED_MAX


def test_sweeping_costs_little_however_many_calls_wait() -> None:
    looks = 0

    class Watched(Item):
        @property
        def is_complete(self) -> bool:
            nonlocal looks
            looks += 1
            return False

        @is_complete.setter
        def is_complete(self, is_complete: bool) -> None:
            pass

    count = 20_000
    heap = Deadlines[Item]()
    for number in range(count):
        heap.add(float(number), Watched(number))
    assert looks < 3 * count


class DeadlinesAgainstAList(RuleBasedStateMachine):
    """Steps a heap and a list of (deadline, item) together.

    `timer` is when a caller that sets its timer as `add` and `next_at` tell it would wake up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heap = Deadlines[Item]()
        self.waiting: list[tuple[float, Item]] = []
        self.waiting_max = 0
        self.timer: float | None = None
        self.now = 0.0
        self.count = 0

    @rule(after=st.integers(0, 20), copies=st.sampled_from([1, 1, 1, 50]))
    def add(self, after: int, copies: int) -> None:
        for _ in range(copies):
            item = Item(self.count)
            self.count += 1
            deadline = self.now + after
            if self.heap.add(deadline, item):
                self.timer = deadline
            self.waiting.append((deadline, item))
            self.waiting_max = max(self.waiting_max, len(self.waiting))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def complete_some(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.waiting) - 1))
        count = data.draw(st.sampled_from([1, 1, 2, 40, 200]))
        for _, item in self.waiting[start : start + count]:
            item.is_complete = True
        del self.waiting[start : start + count]

    @rule(seconds=st.integers(0, 15))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        due = sorted((d, item.name, item) for d, item in self.waiting if d <= self.now)
        assert self.heap.expire(self.now) == [item for _, _, item in due]
        self.waiting = [(d, item) for d, item in self.waiting if d > self.now]
        for _, _, item in due:
            item.is_complete = True
        self.timer = self.heap.next_at()

    @rule()
    def ask_what_is_next(self) -> None:
        earliest = min((deadline for deadline, _ in self.waiting), default=None)
        assert self.heap.next_at() == earliest
        self.timer = earliest

    @invariant()
    def no_item_waits_longer_than_the_timer(self) -> None:
        for deadline, _ in self.waiting:
            assert self.timer is not None
            assert self.timer <= deadline

    @invariant()
    def complete_items_are_a_bounded_part(self) -> None:
        assert len(self.waiting) <= len(self.heap) <= 2 * max(64, self.waiting_max) + 1


TestDeadlinesAgainstAList = DeadlinesAgainstAList.TestCase
TestDeadlinesAgainstAList.settings = settings(max_examples=40, stateful_step_count=40)
