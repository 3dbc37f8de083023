"""Which progress is left when the log is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.tables.progress_trail import ProgressTrail
from rmq.model.offsets import ConsumerOffset, PhysicalOffset


def offsets(progress: dict[int, int]) -> dict[int, ConsumerOffset]:
    return {number: ConsumerOffset(offset) for number, offset in progress.items()}


def trail_of(*places: tuple[int, dict[int, int]], places_max: int = 8) -> ProgressTrail:
    trail = ProgressTrail(places_max)
    for log_end, progress in places:
        trail.note(PhysicalOffset(log_end), offsets(progress))
    return trail


def test_what_rests_on_the_rest_of_the_log_is_left() -> None:
    trail = trail_of((100, {0: 1}), (200, {0: 5, 1: 2}), (300, {0: 9, 1: 2}))
    assert trail.cut(PhysicalOffset(299)) == {0: 5, 1: 2}
    assert trail.last_end == 200
    assert trail.cut(PhysicalOffset(200)) is None, "all of it is left"
    assert trail.cut(PhysicalOffset(150)) == {0: 1}
    assert trail.cut(PhysicalOffset(99)) == {}
    assert len(trail) == 0


def test_if_nothing_is_known_nothing_is_left() -> None:
    assert ProgressTrail().cut(PhysicalOffset(1_000)) == {}


def test_the_last_one_of_a_place_counts() -> None:
    trail = trail_of((100, {0: 1}), (100, {0: 2}))
    assert trail.table() == {100: {0: 2}}


def test_later_progress_rests_on_what_earlier_rests_on() -> None:
    """As that of a master whose answer was asked for before this broker's own came further."""
    trail = trail_of((200, {0: 5}), (150, {0: 5, 1: 3}))
    assert trail.table() == {200: {0: 5, 1: 3}}


def test_what_has_not_moved_rests_on_what_it_rested_on() -> None:
    trail = trail_of((100, {0: 1}))
    assert not trail.note(PhysicalOffset(200), offsets({0: 1}))
    assert trail.note(PhysicalOffset(300), offsets({0: 2}))
    assert trail.table() == {100: {0: 1}, 300: {0: 2}}


def test_what_is_kept_cannot_be_changed_from_outside() -> None:
    progress = {0: 1}
    trail = trail_of((100, progress), (200, {0: 2}))
    progress[0] = 7
    found = trail.cut(PhysicalOffset(150))
    assert found == {0: 1}
    found[0] = ConsumerOffset(8)
    trail.note(PhysicalOffset(300), offsets({0: 3}))
    assert trail.cut(PhysicalOffset(200)) == {0: 1}


def test_it_is_saved_and_loaded() -> None:
    trail = ProgressTrail()
    trail.load(trail_of((100, {2: 1, 1: 7}), (200, {1: 8})).table())
    assert trail.table() == {100: {1: 7, 2: 1}, 200: {1: 8}}
    assert trail.last_end == 200


@given(st.lists(st.integers(1, 50), min_size=1, max_size=400), st.integers(0, 20_000))
def test_the_place_is_never_behind_the_cut_and_not_much_before_it(
    steps: list[int], log_end: int
) -> None:
    trail = ProgressTrail(16)
    ends: list[int] = []
    for number, step in enumerate(steps):
        ends.append((ends[-1] if ends else 0) + step)
        trail.note(PhysicalOffset(ends[-1]), offsets({0: number}))
    assert len(trail) <= 16
    left = trail.cut(PhysicalOffset(log_end))
    best = max((number for number, end in enumerate(ends) if end <= log_end), default=None)
    if best is None:
        assert left == {}
    elif best == len(ends) - 1:
        assert left is None
    else:
        assert left is not None
        # Twice as far back at most as the cut goes, and some steps.
        back = len(ends) - 1 - best
        assert best - left[0] <= 2 * back + 8 if back > 6 else left[0] == best
