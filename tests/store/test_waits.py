"""Waits for a watermark against a plain list, and what they leave behind in memory."""

from __future__ import annotations

import gc
import math
import sys
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmq.model.offsets import PhysicalOffset
from rmq.store.waits import WatermarkWaits


def waits_of(*waits: tuple[int, float, str]) -> WatermarkWaits[str]:
    waiting = WatermarkWaits[str]()
    for offset, deadline, token in waits:
        waiting.add(PhysicalOffset(offset), deadline, token)
    return waiting


# --- one rule each --------------------------------------------------------------------------


def test_nobody_waits_at_first() -> None:
    waiting = WatermarkWaits[str]()
    assert len(waiting) == 0
    assert waiting.next_deadline() is None
    assert waiting.advance(PhysicalOffset(10**18)) == []
    assert waiting.expire(math.inf) == []
    assert waiting.fail_all() == []


@pytest.mark.parametrize(
    ("mark", "reached"),
    [
        pytest.param(99, [], id="below"),
        pytest.param(100, ["a"], id="at"),
        pytest.param(101, ["a"], id="above"),
    ],
)
def test_an_offset_is_reached_when_the_mark_is_at_it(mark: int, reached: list[str]) -> None:
    assert waits_of((100, 5.0, "a")).advance(PhysicalOffset(mark)) == reached


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        pytest.param(4.9, [], id="before"),
        pytest.param(5.0, ["a"], id="at"),
        pytest.param(5.1, ["a"], id="after"),
    ],
)
def test_a_deadline_has_come_when_it_is_that_time(now: float, expired: list[str]) -> None:
    assert waits_of((100, 5.0, "a")).expire(now) == expired


@pytest.mark.parametrize(
    ("offsets", "order"),
    [
        pytest.param([10, 20, 30], [0, 1, 2], id="growing"),
        pytest.param([30, 20, 10], [2, 1, 0], id="falling"),
        pytest.param([10, 10, 10], [0, 1, 2], id="equal"),
        pytest.param([20, 10, 20, 10], [1, 3, 0, 2], id="equal and late"),
        pytest.param([10, 30, 20, 30, 20, 40], [0, 2, 4, 1, 3, 5], id="mixed"),
    ],
)
def test_reached_and_expired_come_in_order_and_equal_ones_as_added(
    offsets: list[int], order: list[int]
) -> None:
    by_offset = WatermarkWaits[int]()
    by_deadline = WatermarkWaits[int]()
    for token, key in enumerate(offsets):
        by_offset.add(PhysicalOffset(key), 0.0, token)
        by_deadline.add(PhysicalOffset(0), float(key), token)
    assert by_offset.advance(PhysicalOffset(40)) == order
    assert by_deadline.expire(40.0) == order


def test_a_token_is_handed_out_once_whichever_way_comes_first() -> None:
    waiting = waits_of((10, 5.0, "flushed"), (20, 1.0, "late"), (30, 9.0, "failed"))
    assert waiting.advance(PhysicalOffset(10)) == ["flushed"]
    assert waiting.expire(5.0) == ["late"]
    assert waiting.fail_all() == ["failed"]
    assert waiting.advance(PhysicalOffset(30)) == []
    assert waiting.expire(9.0) == []
    assert waiting.fail_all() == []


def test_the_next_deadline_passes_over_those_who_got_their_answer() -> None:
    waiting = waits_of((10, 1.0, "a"), (20, 3.0, "b"), (30, 2.0, "c"))
    assert waiting.next_deadline() == 1.0
    waiting.advance(PhysicalOffset(10))
    assert waiting.next_deadline() == 2.0
    waiting.discard("c")
    assert waiting.next_deadline() == 3.0
    waiting.discard("b")
    assert waiting.next_deadline() is None


def test_everyone_fails_as_added() -> None:
    assert waits_of((30, 1.0, "a"), (10, 3.0, "b"), (20, 2.0, "c")).fail_all() == ["a", "b", "c"]


def test_a_discarded_token_is_not_handed_out() -> None:
    waiting = waits_of((10, 1.0, "gone"), (20, 2.0, "here"))
    waiting.discard("gone")
    assert len(waiting) == 1
    assert waiting.advance(PhysicalOffset(20)) == ["here"]


def test_discarding_a_token_that_got_its_answer_is_no_error() -> None:
    waiting = waits_of((10, 1.0, "a"), (20, 2.0, "b"))
    waiting.advance(PhysicalOffset(10))
    waiting.discard("a")
    waiting.discard("never seen")
    assert len(waiting) == 1


def test_a_discarded_token_may_wait_again_for_another_offset() -> None:
    waiting = waits_of((10, 1.0, "a"))
    waiting.discard("a")
    waiting.add(PhysicalOffset(20), 2.0, "a")
    assert waiting.next_deadline() == 2.0
    assert waiting.expire(1.0) == []
    assert waiting.advance(PhysicalOffset(10)) == []
    assert waiting.advance(PhysicalOffset(20)) == ["a"]


@pytest.mark.parametrize("key", [10, 70], ids=["before the others", "after the others"])
def test_the_next_deadline_is_not_that_of_a_wait_given_up_for_another(key: int) -> None:
    waiting = waits_of((0, 50.0, "other"), (0, float(key), "a"))
    waiting.discard("a")
    waiting.add(PhysicalOffset(0), 60.0, "a")
    assert waiting.next_deadline() == 50.0
    waiting.discard("other")
    assert waiting.next_deadline() == 60.0


@pytest.mark.parametrize("step", [1, -1], ids=["growing", "falling"])
def test_order_outlives_a_sweep(step: int) -> None:
    tokens = list(range(1000))
    waiting = WatermarkWaits[int]()
    for token in tokens[::step]:
        waiting.add(PhysicalOffset(token), float(token), token)
    kept = tokens[::4]
    for token in set(tokens) - set(kept):
        waiting.discard(token)
    assert waiting.advance(PhysicalOffset(500)) == [token for token in kept if token <= 500]
    assert waiting.expire(750.0) == [token for token in kept if 500 < token <= 750]
    assert waiting.advance(PhysicalOffset(1000)) == [token for token in kept if token > 750]


def test_a_token_cannot_wait_twice() -> None:
    waiting = waits_of((10, 1.0, "a"))
    with pytest.raises(AssertionError, match="'a' is waiting already"):
        waiting.add(PhysicalOffset(20), 2.0, "a")


def test_tokens_need_no_order() -> None:
    waiting = WatermarkWaits[complex]()
    for token in (2j, 1j, 3j):
        waiting.add(PhysicalOffset(10), 1.0, token)
    waiting.add(PhysicalOffset(5), 0.5, 4j)
    assert waiting.advance(PhysicalOffset(10)) == [4j, 2j, 1j, 3j]


def test_a_mark_that_goes_back_reaches_nobody() -> None:
    waiting = waits_of((10, 1.0, "a"), (20, 2.0, "b"))
    waiting.advance(PhysicalOffset(10))
    assert waiting.advance(PhysicalOffset(5)) == []
    assert len(waiting) == 1


def test_a_deadline_may_be_never() -> None:
    waiting = waits_of((10, math.inf, "patient"), (20, 1.0, "a"))
    assert waiting.next_deadline() == 1.0
    assert waiting.expire(10**9) == ["a"]
    assert waiting.next_deadline() == math.inf


# --- memory ---------------------------------------------------------------------------------

BLOCKS_MAX: Final = 2_000
"""More blocks of memory than allowed leftovers have, and far less than a leak would have."""


def blocks_in_use() -> int:
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.parametrize(
    ("count", "batch"),
    [
        pytest.param(1_000_000, 1000, id="a million, by the thousand"),
        pytest.param(100_000, 1, id="one by one"),
    ],
)
def test_answered_waits_leave_no_memory_behind_though_their_deadlines_are_far(
    count: int, batch: int
) -> None:
    waiting = WatermarkWaits[int]()
    before = blocks_in_use()
    for first in range(0, count, batch):
        for offset in range(first, first + batch):
            waiting.add(PhysicalOffset(offset), 1e9 + offset, offset)
        assert len(waiting.advance(PhysicalOffset(first + batch - 1))) == batch
    assert len(waiting) == 0
    assert blocks_in_use() - before < BLOCKS_MAX


@pytest.mark.parametrize(
    ("offset", "deadline"),
    [
        pytest.param(10**12, 0.0, id="first to expire"),
        pytest.param(10**12, math.inf, id="last to expire"),
        pytest.param(10**12, 1e6 + 5_000, id="among the others"),
    ],
)
def test_one_who_waits_on_does_not_keep_those_who_got_their_answer(
    offset: int, deadline: float
) -> None:
    waiting = WatermarkWaits[int]()
    waiting.add(PhysicalOffset(offset), deadline, -1)
    before = blocks_in_use()
    for token in range(50_000):
        waiting.add(PhysicalOffset(token), 1e6 + token, token)
        assert waiting.advance(PhysicalOffset(token)) == [token]
    assert blocks_in_use() - before < BLOCKS_MAX
    assert waiting.fail_all() == [-1]


@pytest.mark.parametrize("falling", [False, True], ids=["growing", "falling"])
def test_tokens_that_keep_coming_back_leave_no_memory_behind(falling: bool) -> None:
    waiting = WatermarkWaits[str]()
    before = blocks_in_use()
    for place in range(50_000):
        # While one is away the other waits, and what it left before must not count as its wait.
        token = "ab"[place % 2]
        key = 10**6 - place if falling else place
        waiting.discard(token)
        waiting.add(PhysicalOffset(key), float(key), token)
    assert blocks_in_use() - before < BLOCKS_MAX
    assert waiting.advance(PhysicalOffset(10**6)) == (["b", "a"] if falling else ["a", "b"])


@pytest.mark.parametrize("way", ["expire", "discard", "fail_all"])
def test_no_other_way_out_leaves_memory_behind_either(way: str) -> None:
    waiting = WatermarkWaits[int]()
    waiting.add(PhysicalOffset(0), math.inf, -1)
    before = blocks_in_use()
    for token in range(50_000):
        waiting.add(PhysicalOffset(10**12 + token), float(token), token)
        if way == "expire":
            assert waiting.expire(float(token)) == [token]
        elif way == "discard":
            waiting.discard(token)
        else:
            assert waiting.fail_all() == [-1, token]
            waiting.add(PhysicalOffset(0), math.inf, -1)
    assert len(waiting) == 1
    assert blocks_in_use() - before < BLOCKS_MAX


# --- against a plain list -------------------------------------------------------------------


@dataclass(frozen=True)
class PlainWait:
    offset: int
    deadline: float
    token: int


class WaitsAgainstAList(RuleBasedStateMachine):
    """Few tokens and close keys, so that ties and tokens that come back are common.

    Runs of waits are added in one step, because leftovers are swept only when there are many.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting = WatermarkWaits[int]()
        self.model: list[PlainWait] = []
        self.next_token = 1000

    def _add(self, offset: int, deadline: float, token: int) -> None:
        self.waiting.add(PhysicalOffset(offset), deadline, token)
        self.model.append(PlainWait(offset, deadline, token))

    def _take(self, taken: list[PlainWait]) -> list[int]:
        self.model = [wait for wait in self.model if wait not in taken]
        return [wait.token for wait in taken]

    @rule(offset=st.integers(0, 100), deadline=st.integers(0, 100), token=st.integers(0, 9))
    def add_one(self, offset: int, deadline: int, token: int) -> None:
        if all(wait.token != token for wait in self.model):
            self._add(offset, float(deadline), token)

    @rule(
        count=st.integers(1, 200),
        offset=st.integers(0, 100),
        deadline=st.integers(0, 100),
        offset_step=st.sampled_from([0, 1, -1]),
        deadline_step=st.sampled_from([0, 1, -1]),
    )
    def add_many(
        self, count: int, offset: int, deadline: int, offset_step: int, deadline_step: int
    ) -> None:
        for place in range(count):
            self.next_token += 1
            self._add(
                offset + place * offset_step,
                float(deadline + place * deadline_step),
                self.next_token,
            )

    @rule(mark=st.integers(-100, 300))
    def advance(self, mark: int) -> None:
        reached = sorted((w for w in self.model if w.offset <= mark), key=lambda w: w.offset)
        assert self.waiting.advance(PhysicalOffset(mark)) == self._take(reached)

    @rule(now=st.integers(-100, 300))
    def expire(self, now: int) -> None:
        late = sorted((w for w in self.model if w.deadline <= now), key=lambda w: w.deadline)
        assert self.waiting.expire(float(now)) == self._take(late)

    @rule(token=st.integers(0, 9))
    def discard_one(self, token: int) -> None:
        self.waiting.discard(token)
        self.model = [wait for wait in self.model if wait.token != token]

    @rule(every=st.integers(1, 3))
    def discard_many(self, every: int) -> None:
        for wait in self._take(self.model[::every]):
            self.waiting.discard(wait)

    @rule()
    def fail_all(self) -> None:
        assert self.waiting.fail_all() == self._take(list(self.model))

    @rule()
    def ask_for_the_next_deadline(self) -> None:
        # A rule and no invariant, because asking drops leftovers: histories without it matter too.
        earliest = min((wait.deadline for wait in self.model), default=None)
        assert self.waiting.next_deadline() == earliest

    @invariant()
    def as_many_wait(self) -> None:
        assert len(self.waiting) == len(self.model)


TestWaitsAgainstAList = WaitsAgainstAList.TestCase
TestWaitsAgainstAList.settings = settings(max_examples=50, stateful_step_count=30)
