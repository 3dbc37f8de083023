"""The files that say where a recovery begins: their bytes, and what is believed after a crash."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import DiskFullError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.checkpoint import (
    Checkpoint,
    CheckpointTimes,
    Point,
    RecoveryPoints,
    decode_point,
    encode_point,
)
from rmq.store.index_file import IndexState
from rmq.store.layout import (
    LIVE_MARK_AT,
    RECOVERY_POINT_FILE_BYTES,
    RECOVERY_POINT_SLOT_BYTES,
    LiveMark,
    RecoveryPoint,
)
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import flip, overwrite

if TYPE_CHECKING:
    import random

CHECKPOINT: Final = Path("store/checkpoint")
POINTS: Final = Path("store/recovery-point")
NO_INDEX: Final = IndexState(0, 0, PhysicalOffset(0), PhysicalOffset(0), 0, 0)
POINT_BYTES: Final = RecoveryPoint.sizeof()


def new_storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_directory(CHECKPOINT.parent)
    return storage


def times_of(number: int) -> CheckpointTimes:
    return CheckpointTimes(number, number + 1, number + 2)


def point_of(number: int) -> Point:
    return Point(PhysicalOffset(number * 1000), number * 10, times_of(number), "", NO_INDEX)


# --- checkpoint -----------------------------------------------------------------------------


def test_the_file_holds_three_times_and_zeros() -> None:
    storage = new_storage()
    Checkpoint(storage, CHECKPOINT).save(CheckpointTimes(1, 2, 3))
    expected = bytes.fromhex("0000000000000001 0000000000000002 0000000000000003")
    assert storage.read(CHECKPOINT) == expected.ljust(4096, b"\0")


def test_times_are_there_after_a_power_cut_once_they_are_saved() -> None:
    storage = new_storage()
    checkpoint = Checkpoint(storage, CHECKPOINT)
    checkpoint.save(CheckpointTimes(1, 2, 3))
    after_cut = storage.crash(lambda _: 0)
    assert Checkpoint(after_cut, CHECKPOINT).times == (1, 2, 3)


@pytest.mark.parametrize(
    ("times", "min_ms", "min_index_ms"),
    [
        pytest.param((0, 0, 0), 0, 0, id="a young store"),
        pytest.param((10_000, 12_000, 11_000), 7_000, 7_000, id="log first"),
        pytest.param((12_000, 10_000, 5_000), 7_000, 5_000, id="index first"),
        pytest.param((2_999, 9_000, 9_000), 0, 0, id="not below zero"),
        pytest.param((0, 9_000, 9_000), 0, 0, id="nothing flushed"),
        pytest.param((-5, -5, -5), 0, -5, id="garbage"),
    ],
)
def test_a_recovery_begins_three_seconds_before_the_older_time(
    times: tuple[int, int, int], min_ms: int, min_index_ms: int
) -> None:
    assert CheckpointTimes(*times).min_ms == min_ms
    assert CheckpointTimes(*times).min_index_ms == min_index_ms


@pytest.mark.parametrize("size", [0, 1, 23, 4095, 4097, 10_000])
def test_a_file_of_another_size_gets_the_right_one_and_keeps_what_it_says(size: int) -> None:
    storage = new_storage()
    content = CheckpointTimes(7, 8, 9)
    Checkpoint(storage, CHECKPOINT).save(content)
    whole = storage.read(CHECKPOINT).ljust(10_000, b"\xff")[:size]
    storage = new_storage()
    storage.write(CHECKPOINT, whole)
    checkpoint = Checkpoint(storage, CHECKPOINT)
    assert storage.size_of(CHECKPOINT) == 4096
    assert checkpoint.times == (content if size >= 24 else _leading_times(whole))
    checkpoint.save(CheckpointTimes(10, 11, 12))
    assert Checkpoint(storage, CHECKPOINT).times == (10, 11, 12)


def _leading_times(data: bytes) -> tuple[int, ...]:
    data = data.ljust(24, b"\0")
    return tuple(int.from_bytes(data[at : at + 8], signed=True) for at in (0, 8, 16))


@pytest.mark.parametrize("operation", ["create", "reserve", "sync", "sync_directory"])
@pytest.mark.parametrize("kind", [Checkpoint, RecoveryPoints])
def test_a_file_that_cannot_be_made_is_not_left_behind(
    operation: str, kind: type[Checkpoint | RecoveryPoints]
) -> None:
    storage = new_storage()
    storage.faults.fail(operation, errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises(DiskFullError) as caught:
        kind(storage, POINTS)
    assert caught.value.path in (str(POINTS), str(POINTS.parent))
    assert storage.names(POINTS.parent) == []
    kind(storage, POINTS).close()


def test_a_failed_sync_is_an_error() -> None:
    storage = new_storage()
    checkpoint, points = Checkpoint(storage, CHECKPOINT), RecoveryPoints(storage, POINTS)
    with storage.faults.failing("sync"):
        with pytest.raises(StorageError, match="cannot sync store/checkpoint"):
            checkpoint.save(times_of(1))
        with pytest.raises(StorageError, match="cannot sync store/recovery-point"):
            points.save(point_of(1))


# --- recovery points ------------------------------------------------------------------------

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
points = st.builds(
    Point,
    int64s,
    int64s,
    st.builds(CheckpointTimes, int64s, int64s, int64s),
    st.text("0123456789", max_size=20),
    st.builds(IndexState, int64s, int64s, int64s, int64s, int32s, int32s),
)


@given(sequence=int64s, point=points)
def test_a_point_reads_back(sequence: int, point: Point) -> None:
    data = encode_point(sequence, point)
    assert len(data) == POINT_BYTES <= RECOVERY_POINT_SLOT_BYTES
    assert decode_point(data) == (sequence, point)


@given(point=points, position=st.integers(0, POINT_BYTES - 1), mask=st.integers(1, 255))
def test_a_point_with_any_damage_is_none(point: Point, position: int, mask: int) -> None:
    data = bytearray(encode_point(5, point))
    data[position] ^= mask
    assert decode_point(bytes(data)) is None


@given(point=points, cut=st.integers(0, POINT_BYTES - 1))
def test_half_a_point_is_none(point: Point, cut: int) -> None:
    data = encode_point(5, point)
    assert decode_point(data[:cut]) is None
    assert decode_point(data[:cut].ljust(POINT_BYTES, b"\0")) in (None, (5, point))


def test_a_new_file_has_no_point() -> None:
    storage = new_storage()
    assert RecoveryPoints(storage, POINTS).matching(times_of(0)) is None
    assert storage.size_of(POINTS) == RECOVERY_POINT_FILE_BYTES


def test_the_two_slots_take_turns() -> None:
    storage = new_storage()
    file = RecoveryPoints(storage, POINTS)
    for number in range(1, 6):
        # Each time by another process.
        file.close()
        file = RecoveryPoints(storage, POINTS)
        file.save(point_of(number))
        for found in (file, RecoveryPoints(storage, POINTS)):
            assert found.matching(times_of(number)) == point_of(number)
            if number > 1:
                assert found.matching(times_of(number - 1)) == point_of(number - 1)
            assert found.matching(times_of(number - 2)) is None


def test_the_newest_of_two_points_with_equal_times_counts() -> None:
    storage = new_storage()
    file = RecoveryPoints(storage, POINTS)
    first = point_of(1)
    second = first._replace(physical_offset=PhysicalOffset(2000))
    file.save(first)
    file.save(second)
    assert RecoveryPoints(storage, POINTS).matching(times_of(1)) == second


def test_a_point_that_was_torn_leaves_the_one_before_it() -> None:
    storage = new_storage()
    file = RecoveryPoints(storage, POINTS)
    file.save(point_of(1))
    file.save(point_of(2))
    # The second went into the first slot.
    flip(storage, POINTS, 20)
    file = RecoveryPoints(storage, POINTS)
    assert file.matching(times_of(2)) is None
    assert file.matching(times_of(1)) == point_of(1)
    # The next one goes where the torn one is, not over the good one.
    file.save(point_of(3))
    file = RecoveryPoints(storage, POINTS)
    assert file.matching(times_of(1)) == point_of(1)
    assert file.matching(times_of(3)) == point_of(3)


@given(seed=st.randoms(use_true_random=False))
def test_a_power_cut_while_saving_leaves_the_old_point_or_both(seed: random.Random) -> None:
    storage = new_storage()
    file = RecoveryPoints(storage, POINTS)
    file.save(point_of(1))
    file.save(point_of(2))
    with storage.faults.failing("sync"), pytest.raises(StorageError):
        file.save(point_of(3))
    after_cut = RecoveryPoints(storage.crash(seed), POINTS)
    assert after_cut.matching(times_of(2)) == point_of(2)
    assert after_cut.matching(times_of(3)) in (None, point_of(3))


@given(garbage=st.binary(max_size=RECOVERY_POINT_FILE_BYTES))
def test_garbage_is_no_point(garbage: bytes) -> None:
    storage = new_storage()
    storage.write(POINTS, garbage)
    file = RecoveryPoints(storage, POINTS)
    assert file.matching(CheckpointTimes(0, 0, 0)) is None
    file.save(point_of(4))
    assert RecoveryPoints(storage, POINTS).matching(times_of(4)) == point_of(4)


def test_the_mark_for_other_processes_lies_beside_the_points() -> None:
    storage = new_storage()
    file = RecoveryPoints(storage, POINTS)
    assert not file.was_raw
    file.save(point_of(1))
    for is_raw in (True, False, True):
        file.mark_live(PhysicalOffset(12_345), is_raw=is_raw)
        assert LiveMark.parse(storage.read(POINTS)[LIVE_MARK_AT:]).flushed == 12_345
        assert RecoveryPoints(storage, POINTS).was_raw is is_raw
    overwrite(storage, POINTS, LIVE_MARK_AT, b"\xff" * LiveMark.sizeof())
    again = RecoveryPoints(storage, POINTS)
    assert again.matching(times_of(1)) == point_of(1)
    assert not again.was_raw
