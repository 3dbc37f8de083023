"""Truncation that is ended at every step, by the end of the process or of the machine.

However often that happens, the next opening that is let go through leaves the store as if what was
cut off had never been there, and until the note is gone no opening refuses.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    Clock,
    kill,
    message,
    open_core,
    put,
    save_point,
)
from tests.store.truncation_kit import (
    CHANGES,
    NOTE,
    Ended,
    EndsAt,
    Left,
    Seen,
    assert_cut,
    assert_goes_on,
    left_below,
    put_varied,
    record_ends,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmq.store.core import StoreCore
    from rmq.testing.faults import Operation

MESSAGES: Final = 70

ENDINGS: Final[dict[str, Callable[[MemoryStorage], MemoryStorage]]] = {
    "killed": lambda storage: storage.kill(),
    "nothing more reached the disk": lambda storage: storage.crash(lambda _: 0),
    "everything reached the disk": lambda storage: storage.crash(lambda n: min(1, n - 1)),
    "some reached the disk": lambda storage: storage.crash(random.Random(1)),
    "some others did": lambda storage: storage.crash(random.Random(2)),
}


def steps_of(storage: MemoryStorage, clock: Clock) -> list[MemoryStorage]:
    """Return the storage as it is before each call that changes it while a store is opened."""
    copy = storage.kill()
    steps: list[MemoryStorage] = []

    def keep(operation: Operation, path: Path) -> None:
        del path
        if operation in CHANGES:
            steps.append(copy.kill())

    copy.faults.watch(keep)
    open_core(copy, clock=clock)
    return steps


def left_by_any_step(storage: MemoryStorage, clock: Clock) -> Iterator[tuple[str, MemoryStorage]]:
    """Yield each disk that is left when opening a store ends at any step in any way, and how."""
    seen = Seen()
    steps = steps_of(storage, clock)
    for number, cut in enumerate(steps, 1):
        for name, ending in ENDINGS.items():
            left = ending(cut)
            if seen.is_new(left):
                yield f"ended at step {number}, {name}", left
    assert len(steps) > 20


@contextmanager
def telling(how: str) -> Iterator[None]:
    """Let a failure tell how it came to it."""
    try:
        yield
    except Exception as exc:
        exc.add_note(how)
        raise


def prepared(clock: Clock, *, is_closed: bool) -> tuple[MemoryStorage, StoreCore, list[int]]:
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    put_varied(core, clock, range(MESSAGES // 2))
    save_point(core)
    put_varied(core, clock, range(MESSAGES // 2, MESSAGES))
    if not is_closed:
        core.flush()
    return storage, core, record_ends(core)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("place", ["segment", "middle", "begin", "last"])
def test_it_is_done_again_after_any_step(place: str, *, is_closed: bool) -> None:
    clock = Clock()
    storage, core, ends = prepared(clock, is_closed=is_closed)
    end = {"segment": SEGMENT_BYTES, "middle": ends[37], "begin": 0, "last": ends[-2]}[place]
    expected = left_below(core, end)
    if is_closed:
        core.close()
    else:
        kill(core)
    request(storage, end)
    for how, left in left_by_any_step(storage, clock):
        with telling(how):
            is_over = not left.exists(NOTE)
            again = open_core(left, clock=clock)
            assert_cut(again, left, expected, end)
            # Once the note is gone the store needs nothing but what is on disk.
            assert not is_over or again.recovery.records_read == 0


@pytest.mark.parametrize("first", ["killed", "nothing more reached the disk"])
def test_it_is_done_again_after_any_two_steps(first: str) -> None:
    # A process that is killed leaves in the page cache what the next one takes for granted.
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    put_sketched(core, clock, [(0, 0, 0), (0, 0, 1), (1, 0, 2)])
    save_point(core)
    end = record_ends(core)[1]
    expected = left_below(core, end)
    kill(core)
    request(storage, end)
    seen_once, seen_twice = Seen(), Seen()
    pairs = 0
    for once in map(ENDINGS[first], steps_of(storage, clock)):
        steps = steps_of(once, clock) if seen_once.is_new(once) else []
        pairs += len(steps)
        for twice in (step.crash(lambda _: 0) for step in steps):
            if seen_twice.is_new(twice):
                assert_cut(open_core(twice, clock=clock), twice, expected, end)
    assert pairs > 400


def test_dropping_the_log_is_done_again_after_any_step() -> None:
    clock = Clock()
    storage, core, _ = prepared(clock, is_closed=True)
    core.close()
    request(storage, None)
    for how, left in left_by_any_step(storage, clock):
        with telling(how):
            again = open_core(left, clock=clock)
            assert left_below(again, 1 << 60) == Left(b"", {}, [], frozenset())
            assert again.log.written == 0
            assert not left.exists(NOTE)
            assert not left.names(ROOT / "commitlog")


@st.composite
def sketched_messages(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draw messages: a queue, a length, and how many keys."""
    one = st.tuples(st.integers(0, 3), st.integers(0, 700), st.integers(0, 3))
    return draw(st.lists(one, min_size=1, max_size=60))


def put_sketched(core: StoreCore, clock: Clock, sketches: list[tuple[int, int, int]]) -> None:
    for number, (queue, length, keys) in enumerate(sketches):
        clock.ms += 300
        new = message(
            b"x" * length,
            topic="TopicA" if queue < 3 else "TopicB",
            queue_id=queue,
            keys=" ".join(f"k{number % (key + 2)}" for key in range(keys)),
        )
        put(core, [new])


@settings(max_examples=150)
@given(
    sketches=sketched_messages(),
    saved=st.integers(0, 60),
    is_closed=st.booleans(),
    ends=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=3),
    data=st.data(),
)
def test_any_log_can_be_cut_at_any_record_with_any_ends_on_the_way(
    sketches: list[tuple[int, int, int]],
    saved: int,
    is_closed: bool,
    ends: list[tuple[int, bool]],
    data: st.DataObject,
) -> None:
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    put_sketched(core, clock, sketches[:saved])
    if saved and core.plan_point() is not None:
        save_point(core)
    put_sketched(core, clock, sketches[saved:])
    cut_at = data.draw(st.sampled_from(record_ends(core)), label="cut at")
    expected = left_below(core, cut_at)
    if is_closed:
        core.close()
    else:
        core.flush()
        kill(core)
    request(storage, cut_at)
    for call, is_power_cut in ends:
        EndsAt(storage, call)
        try:
            core = open_core(storage, clock=clock)
        except Ended:
            pass
        else:
            kill(core)
        storage = (
            storage.crash(lambda n: data.draw(st.integers(0, n - 1)))
            if is_power_cut
            else storage.kill()
        )
    core = open_core(storage, clock=clock)
    assert_cut(core, storage, expected, cut_at)
    assert_goes_on(core, storage, clock)
