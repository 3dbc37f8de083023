"""Segments that somebody still needs: they stay until the disk leaves no choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    SEGMENT_BYTES,
    Clock,
    fill_segments,
    open_core,
    save_point,
    small_config,
)

if TYPE_CHECKING:
    from rmq.store.core import StoreCore

DELETE_HOUR = 4
SEGMENTS = 6


def expiring(used_ratio: float = 0.1, **changes: Any) -> StoreCore:  # noqa: ANN401 - any setting
    """Return a store of six segments, all of which have had their time."""
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, small_config(**changes), clock=clock)
    fill_segments(core, SEGMENTS)
    core.flush()
    save_point(core)
    clock.ms += 1000 * 3_600_000
    storage.reported_used_ratio = used_ratio
    return core


def expired(core: StoreCore) -> list[int]:
    """Return which segments go, by their number."""
    return [segment.first // SEGMENT_BYTES for segment in core.plan_expiry(DELETE_HOUR).segments]


@pytest.mark.parametrize(
    ("kept_from", "gone"),
    [
        (None, [0, 1, 2, 3, 4]),
        (0, []),
        (SEGMENT_BYTES - 1, []),
        (SEGMENT_BYTES, [0]),
        (3 * SEGMENT_BYTES + 1, [0, 1, 2]),
        (1 << 60, [0, 1, 2, 3, 4]),
    ],
)
def test_nothing_goes_that_is_needed(kept_from: int | None, gone: list[int]) -> None:
    core = expiring()
    if kept_from is not None:
        core.keeps_from = lambda: PhysicalOffset(kept_from)
    assert expired(core) == gone


def test_what_is_needed_no_longer_goes_with_the_next_round() -> None:
    core = expiring()
    kept_from = PhysicalOffset(0)
    core.keeps_from = lambda: kept_from
    assert expired(core) == []
    kept_from = PhysicalOffset(2 * SEGMENT_BYTES)
    assert expired(core) == [0, 1]


@pytest.mark.parametrize(
    ("used_ratio", "clean_forcibly", "gone"),
    [
        pytest.param(0.80, True, [], id="above diskMaxUsedSpaceRatio"),
        pytest.param(0.86, True, [0, 1, 2, 3, 4], id="above the clean ratio"),
        pytest.param(0.86, False, [], id="above the clean ratio, nothing is forced"),
        pytest.param(-1.0, True, [], id="unknown"),
    ],
)
def test_a_disk_without_room_takes_it_all_the_same(
    used_ratio: float, clean_forcibly: bool, gone: list[int]
) -> None:
    core = expiring(used_ratio, clean_forcibly=clean_forcibly)
    core.keeps_from = lambda: PhysicalOffset(0)
    assert expired(core) == gone
