"""Stores that are refused: with the place, with what to do, at every attempt, and unchanged.

And damage beside them that is no reason to refuse.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import decode_records
from rmq.store.checkpoint import (
    Checkpoint,
    CheckpointTimes,
    Point,
    RecoveryPoints,
    decode_point,
    encode_point,
)
from rmq.store.core import StoreCore
from rmq.store.index_file import IndexState
from rmq.store.layout import INDEX_HEADER, RECOVERY_POINT_SLOT_BYTES, RecoveryPoint
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    QUEUE_ENTRIES,
    QUEUE_SEGMENT_BYTES,
    ROOT,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    content,
    fill_segments,
    flip,
    forget_point,
    four_segments,
    index_paths,
    kill,
    log_path,
    message_of_size,
    numbered_bodies,
    open_core,
    overwrite,
    put,
    put_numbered,
    query_bodies,
    queue_path,
    read_bodies,
    remove_tree,
    save_point,
    small_config,
    stock_stop,
    three_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable

POINT: Final = ROOT / "recovery-point"
QUEUES: Final = ROOT / "consumequeue"


# --- damage that is not repaired ------------------------------------------------------------


def refusal(storage: MemoryStorage, clock: Clock | None = None) -> CorruptStoreError:
    """Return why a store is refused: at every attempt, and without a change to the log."""
    before = content(storage, ROOT / "commitlog")
    # What an index lacks is built again by the start that succeeds.
    names = {name for name in content(storage) if not name.startswith("index/")}
    errors = []
    for _ in range(3):
        with pytest.raises(CorruptStoreError) as caught:
            open_core(storage, clock=clock)
        errors.append(caught.value)
        assert content(storage, ROOT / "commitlog") == before
    assert len({str(error) for error in errors}) == 1
    assert errors[0].hint
    assert set(content(storage)) >= names
    return errors[0]


@pytest.mark.parametrize("place", [0, 4, 9, 32, 87, 500], ids=str)
def test_damage_before_sound_records_is_refused_after_a_clean_stop(place: int) -> None:
    storage = three_records(stock_stop)
    flip(storage, log_path(), 1000 + place, 0x40)
    error = refusal(storage)
    assert (error.path, error.offset) == (str(log_path()), 1000)
    assert "sound records follow from physical offset 2000 on" in str(error)
    assert "rmq store cut DIR --at 1000" in (error.hint or "")
    assert "from a slave or a backup" in (error.hint or "")
    # The damage undone, all is as before.
    flip(storage, log_path(), 1000 + place, 0x40)
    core = open_core(storage)
    assert core.recovery.was_clean
    assert len(read_bodies(core)) == 3


def test_a_damaged_blank_is_refused_as_well() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(5000), message_of_size(5000)])
    stock_stop(core)
    flip(storage, log_path(), 5004)
    error = refusal(storage)
    assert error.offset == 5000
    assert f"physical offset {SEGMENT_BYTES} on" in str(error)


def test_our_own_clean_stop_is_believed_and_damage_does_not_make_garbage() -> None:
    # Reading the last segments at every start takes seconds; `rmq store verify` does it on demand.
    storage = three_records(StoreCore.close)
    flip(storage, log_path(), 1500)
    core = open_core(storage)
    assert core.recovery.records_read == 0
    assert core.log.written == 3000
    assert core.reads.record_at(PhysicalOffset(1000)) is None
    assert core.reads.record_at(PhysicalOffset(2000)) is not None


def store_with_an_earlier_point(count: int) -> MemoryStorage:
    """Return a store stopped cleanly, with the checkpoint that it had after the first record.

    With such a checkpoint the point before the last one matches.
    """
    storage, clock = MemoryStorage(), Clock()
    core = open_core(storage, clock=clock)
    put(core, [message_of_size(1000)])
    save_point(core)
    earlier = storage.read(ROOT / "checkpoint")
    clock.ms += 1000
    put(core, [message_of_size(1000) for _ in range(count - 1)])
    core.close()
    storage.write(ROOT / "checkpoint", earlier)
    return storage


def test_a_hole_behind_an_earlier_point_is_refused_after_a_clean_stop() -> None:
    storage = store_with_an_earlier_point(4)
    overwrite(storage, log_path(), 2000, bytes(1000))
    error = refusal(storage)
    assert (error.path, error.offset) == (str(log_path()), 2000)
    assert "sound records follow from physical offset 3000 on" in str(error)


def test_nothing_is_left_behind_the_end_after_an_earlier_point() -> None:
    storage = store_with_an_earlier_point(2)
    overwrite(storage, log_path(), 3000, b"what a damaged disk shows")
    core = open_core(storage)
    assert (core.recovery.used_point, core.log.written) == (True, 2000)
    assert not any(storage.read(log_path())[2000:])


def test_a_hole_at_the_last_point_is_refused_although_abort_was_removed() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message_of_size(1000)])
    save_point(core)
    fill_segments(core, 2)
    kill(core)
    storage.delete(ROOT / "abort")
    overwrite(storage, log_path(), 1000, bytes(SEGMENT_BYTES - 1000))
    for _ in range(2):
        with pytest.raises(CorruptStoreError, match=f"from physical offset {SEGMENT_BYTES} on"):
            open_core(storage)


def test_a_point_with_a_false_index_is_refused_at_once_where_the_log_is_damaged() -> None:
    # It was taken at first, and refused at the next start, when the index was built again.
    storage, _ = four_segments(kill)
    flip(storage, log_path(), 4)
    core = open_core(storage.kill())
    assert core.recovery.used_point
    for start in (0, RECOVERY_POINT_SLOT_BYTES):
        decoded = decode_point(storage.read(POINT)[start : start + RecoveryPoint.sizeof()])
        if decoded is not None:
            sequence, point = decoded
            state = point.index_state._replace(entry_count=2**31 - 1)
            overwrite(
                storage, POINT, start, encode_point(sequence, point._replace(index_state=state))
            )
    assert "but the log was on disk up to physical offset" in str(refusal(storage))


def test_damage_in_an_old_segment_is_not_noticed_and_does_not_make_garbage() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill_segments(core, 5)
    stock_stop(core)
    flip(storage, log_path(), 90)
    core = open_core(storage)
    assert core.recovery.started_at == 2 * SEGMENT_BYTES
    assert core.reads.record_at(PhysicalOffset(0)) is None
    assert query_bodies(core, "key0") == []
    assert query_bodies(core, "key1") == numbered_bodies([1])


def test_damage_that_keeps_the_queues_from_being_built_is_refused() -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    count = fill_segments(core, 5)
    (place, *_) = core.reads.query(TOPIC, "key20", 1, 0, 1 << 62)
    (record,) = decode_records(place)
    stock_stop(core)
    # The queue lost its end, so that it is to be built from further back than the log is read.
    names = storage.names(queue_path().parent)
    for name in names[1:]:
        storage.delete(queue_path().parent / name)
    flip(storage, log_path(), record.physical_offset + 4)
    error = refusal(storage)
    assert (error.path, error.offset) == (str(log_path()), record.physical_offset)
    assert "the ConsumeQueues lack entries of records behind it" in str(error)
    flip(storage, log_path(), record.physical_offset + 4)
    assert read_bodies(open_core(storage)) == numbered_bodies(range(count))


def test_after_a_crash_records_behind_a_hole_go_if_they_were_not_flushed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = three_records(kill)
    overwrite(storage, log_path(), 1000, bytes(1000))
    forget_point(storage)
    with caplog.at_level(logging.WARNING):
        core = open_core(storage)
    assert core.log.written == 1000
    assert core.recovery.cut_bytes == 2000
    assert "the log ends at physical offset 1000 (nothing was written here)" in caplog.text
    assert "the next at 2000" in caplog.text
    assert len(read_bodies(core)) == 1


def test_after_a_crash_records_behind_damage_stay_if_they_were_flushed() -> None:
    storage, clock = MemoryStorage(), Clock()
    core = open_core(storage, clock=clock)
    for _ in range(4):
        clock.ms += 1000
        put(core, [message_of_size(1000)])
    core.flush()
    plan = core.plan_point()
    assert plan is not None
    plan.run()
    core.release()
    forget_point(storage)
    flip(storage, log_path(), 500)
    error = refusal(storage, clock)
    assert error.offset == 0
    # A checkpoint from the future says nothing of the kind: then the tail is an ordinary one.
    earlier = Clock(START_MS)
    core = open_core(storage, clock=earlier)
    assert core.log.written == 0


@pytest.mark.parametrize("stop", [StoreCore.close, kill])
def test_damage_below_a_recovery_point_is_refused_when_all_is_read(
    stop: Callable[[StoreCore], None],
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    count = fill_segments(core, 4)
    save_point(core)
    stop(core)
    flip(storage, log_path(), 90)
    remove_tree(storage, QUEUES)
    error = refusal(storage)
    assert (error.path, error.offset) == (str(log_path()), 0)
    assert f"the log was on disk up to physical offset {core.log.written}" in str(error)
    flip(storage, log_path(), 90)
    assert read_bodies(open_core(storage)) == numbered_bodies(range(count))


# --- a log that is not all there ------------------------------------------------------------


@pytest.mark.parametrize("stop", [StoreCore.close, kill])
def test_a_last_segment_that_is_gone_is_missed(stop: Callable[[StoreCore], None]) -> None:
    storage, _ = four_segments(stop)
    path = log_path(3 * SEGMENT_BYTES)
    data = storage.read(path)
    storage.delete(path)
    error = refusal(storage)
    assert (error.path, error.offset) == (str(path), 3 * SEGMENT_BYTES)
    assert "the log ends here, but it was on disk up to physical offset" in str(error)
    assert "put back what is missing" in (error.hint or "")
    assert f"remove {POINT}" in (error.hint or "")
    # Put back, or given up: both as the hint says.
    other = storage.kill()
    storage.write(path, data)
    assert len(read_bodies(open_core(storage))) > 0
    forget_point(other)
    core = open_core(other)
    assert core.log.written == 3 * SEGMENT_BYTES
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    assert read_bodies(core) == numbered_bodies(range(queue.next_offset))


def test_a_log_that_is_gone_as_a_whole_is_missed_and_nothing_else_is_removed() -> None:
    # The disk with the log is not mounted: queues and index must not be thrown away for that.
    storage, _ = four_segments(StoreCore.close)
    remove_tree(storage, ROOT / "commitlog")
    before = content(storage)
    error = refusal(storage)
    assert error.path == str(log_path())
    assert "mount its disk" in (error.hint or "")
    assert content(storage) == before
    forget_point(storage)
    core = open_core(storage)
    assert (core.log.written, len(core.queues)) == (0, 0)
    assert index_paths(storage) == []


def test_a_last_segment_cut_short_below_what_was_on_disk_is_missed() -> None:
    storage, _ = four_segments(StoreCore.close)
    path = log_path(3 * SEGMENT_BYTES)
    storage.resize(path, 50)
    error = refusal(storage)
    assert (error.path, error.offset) == (str(path), 3 * SEGMENT_BYTES + 50)
    assert storage.size_of(path) == 50


def test_a_last_segment_cut_short_behind_its_end_is_extended() -> None:
    storage, count = four_segments(StoreCore.close)
    path = log_path(3 * SEGMENT_BYTES)
    storage.resize(path, 5000)
    core = open_core(storage)
    assert storage.size_of(path) == SEGMENT_BYTES
    assert read_bodies(core) == numbered_bodies(range(count))
    put_numbered(core, range(count, count + 100))


@pytest.mark.parametrize("size", [0, 1000, 2500])
def test_a_short_last_segment_of_a_stock_store_is_extended(size: int) -> None:
    storage = three_records(stock_stop)
    storage.resize(log_path(), size)
    core = open_core(storage)
    assert storage.size_of(log_path()) == SEGMENT_BYTES
    assert len(read_bodies(core)) == size // 1000


def test_a_segment_that_is_missing_in_between_is_named() -> None:
    storage, _ = four_segments(StoreCore.close)
    storage.delete(log_path(SEGMENT_BYTES))
    before = content(storage)
    error = refusal(storage)
    assert error.path == str(log_path(2 * SEGMENT_BYTES))
    assert log_path(SEGMENT_BYTES).name in str(error)
    # Nothing was touched yet, not even to say that the store is open.
    assert content(storage) == before


def test_another_segment_size_is_refused_with_the_right_one() -> None:
    storage, _ = four_segments(StoreCore.close)
    before = content(storage)
    for segment_bytes in (4096, 16_384, 3 * 4096):
        with pytest.raises(CorruptStoreError) as caught:
            open_core(storage, small_config(segment_bytes=segment_bytes))
        assert caught.value.path == str(log_path())
        assert caught.value.hint == (
            f"set mappedFileSizeCommitLog={SEGMENT_BYTES}, the size the store was written with"
        )
        assert content(storage) == before


def test_another_index_size_is_refused_and_the_hint_works() -> None:
    storage, count = four_segments(StoreCore.close)
    other = small_config(index_slots=60)
    for _ in range(2):
        with pytest.raises(CorruptStoreError) as caught:
            open_core(storage, other)
        assert caught.value.path == str(index_paths(storage)[0])
        assert "remove the index directory" in (caught.value.hint or "")
    remove_tree(storage, ROOT / "index")
    core = open_core(storage, other)
    assert core.recovery.was_clean
    for number in range(count):
        assert query_bodies(core, f"key{number}") == [b"body %d" % number]


def test_another_queue_file_size_builds_the_queues_again() -> None:
    storage, count = four_segments(StoreCore.close)
    core = open_core(storage, small_config(queue_segment_bytes=300))
    assert core.recovery.rebuilt_queues
    assert read_bodies(core) == numbered_bodies(range(count))
    assert storage.size_of(queue_path(0)) == 300


# --- recovery points that do not belong -----------------------------------------------------


def forge_point(storage: MemoryStorage, physical_offset: int, queue_entries: int) -> None:
    """Forge a point with the index as it is, and the checkpoint that goes with it."""
    index_path = index_paths(storage)[-1]
    state = IndexState._make(INDEX_HEADER.unpack(storage.read(index_path)[:40]))
    times = CheckpointTimes(START_MS, START_MS, 0)
    points = RecoveryPoints(storage, POINT)
    points.save(
        Point(PhysicalOffset(physical_offset), queue_entries, times, index_path.name, state)
    )
    points.close()
    checkpoint = Checkpoint(storage, ROOT / "checkpoint")
    checkpoint.save(times)
    checkpoint.close()


@pytest.mark.parametrize("stop", [StoreCore.close, kill])
@pytest.mark.parametrize(
    ("physical_offset", "entries"),
    [
        pytest.param(1500, 2, id="inside a record"),
        pytest.param(1999, 2, id="before the end of a record"),
        pytest.param(1000, 3, id="with another count"),
        pytest.param(0, 0, id="at the beginning"),
        pytest.param(-5, 0, id="before the beginning"),
    ],
)
def test_a_point_that_does_not_fit_loses_nothing(
    physical_offset: int, entries: int, stop: Callable[[StoreCore], None]
) -> None:
    storage = three_records(stop)
    forge_point(storage, physical_offset, entries)
    core = open_core(storage)
    assert len(read_bodies(core)) == 3
    assert core.log.written == 3000


def test_a_point_of_another_store_is_refused_or_does_no_harm() -> None:
    other, _ = four_segments(StoreCore.close)
    storage = three_records(StoreCore.close)
    point = other.read(POINT)
    storage.write(POINT, point)
    # Its times are not those of this store's checkpoint: it says nothing about it.
    overwrite(storage, ROOT / "checkpoint", 0, (START_MS - 1).to_bytes(8))
    core = open_core(storage)
    assert not core.recovery.used_point
    assert len(read_bodies(core)) == 3
    core.close()
    # With its checkpoint it does, and then the log is shorter than it says.
    storage.write(POINT, point)
    storage.write(ROOT / "checkpoint", other.read(ROOT / "checkpoint"))
    error = refusal(storage)
    assert "was on disk up to physical offset" in str(error)


# --- derived files that are gone --------------------------------------------------------------


@pytest.mark.parametrize("has_point", [False, True], ids=["stock", "point"])
@pytest.mark.parametrize("stop", [StoreCore.close, kill], ids=["clean", "killed"])
def test_queues_without_their_first_file_are_built_again_from_the_log(
    stop: Callable[[StoreCore], None], has_point: bool
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put_numbered(core, range(25))
    save_point(core)
    stop(core)
    if not has_point:
        forget_point(storage)
    storage.delete(queue_path(0))
    core = open_core(storage)
    assert core.recovery.rebuilt_queues
    assert read_bodies(core) == numbered_bodies(range(25))


@pytest.mark.parametrize("lacks_index", [False, True], ids=["index", "no index"])
@pytest.mark.parametrize("stop", [stock_stop, kill], ids=["clean", "killed"])
def test_files_that_are_gone_from_the_beginning_of_a_queue_show_behind_expired_ones_too(
    stop: Callable[[StoreCore], None], lacks_index: bool
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    fill_segments(core, 3)
    stop(core)
    forget_point(storage)
    storage.delete(log_path())
    core = open_core(storage)
    before = read_bodies(core)
    files = core.queues.open(TOPIC, 0).min_offset // QUEUE_ENTRIES + 2
    stop(core)
    forget_point(storage)
    for number in range(files):
        storage.delete(queue_path(number * QUEUE_SEGMENT_BYTES))
    if lacks_index:
        remove_tree(storage, ROOT / "index")
    core = open_core(storage)
    assert core.recovery.rebuilt_queues
    assert read_bodies(core) == before
