"""Cutting a log on request: what is left, what is refused, and that the note is kept until then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import CorruptStoreError, StorageError
from rmq.model.offsets import PhysicalOffset
from rmq.store.checkpoint import Checkpoint, decode_point
from rmq.store.core import StoreCore
from rmq.store.layout import RECOVERY_POINT_SLOT_BYTES, RecoveryPoint
from rmq.store.reader import Reader
from rmq.store.storage import DiskStorage
from rmq.store.truncation import NOTE_NAME, Truncation, read_request, request_truncation
from rmq.store.verify import verify
from rmq.testing.storage import MemoryStorage
from tests.store.file_steps import Killed, Steps, power_cuts
from tests.store.store_kit import (
    INDEX_CAPACITY,
    INDEX_SLOTS,
    ROOT,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    content,
    kill,
    log_path,
    message,
    open_core,
    overwrite,
    put,
    put_numbered,
    read_bodies,
    save_point,
    small_config,
    stock_stop,
)
from tests.store.truncation_kit import (
    NOTE,
    Left,
    assert_cut,
    assert_goes_on,
    left_below,
    put_varied,
    record_ends,
    request,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.testing.faults import Operation

MESSAGES: Final = 130
SLOTS: Final = (0, RECOVERY_POINT_SLOT_BYTES)
"""Where the two recovery points stand in their file."""


def filled(clock: Clock) -> tuple[MemoryStorage, StoreCore]:
    """Return an open store of several segments, queue segments and index files."""
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    put_varied(core, clock, range(MESSAGES))
    assert len(core.log.segments) >= 4
    assert core.index is not None
    assert len(core.index.files) >= 4
    return storage, core


def choose_cuts() -> dict[str, Callable[[list[int]], int]]:
    def boundary(ends: list[int]) -> int:
        return next(end for end in ends if end and end % SEGMENT_BYTES == 0)

    return {
        "the begin of the log": lambda ends: ends[0],
        "the first record": lambda ends: ends[1],
        "the begin of a segment": boundary,
        "the last record of a segment": lambda ends: ends[ends.index(boundary(ends)) - 1],
        "the first record of a segment": lambda ends: ends[ends.index(boundary(ends)) + 1],
        "a record in the middle": lambda ends: ends[len(ends) // 2],
        "the last but one record": lambda ends: ends[-2],
        "the end of the log": lambda ends: ends[-1],
    }


CUTS: Final = choose_cuts()


@pytest.mark.parametrize("stop", [None, kill, stock_stop], ids=["closed", "killed", "stock"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_store_is_as_if_the_rest_had_never_been(
    cut: Callable[[list[int]], int], stop: Callable[[StoreCore], None] | None
) -> None:
    clock = Clock()
    storage, core = filled(clock)
    end, log_end = cut(record_ends(core)), core.log.written
    expected = left_below(core, end)
    if stop is None:
        core.close()
    else:
        stop(core)
    request(storage, end)
    core = open_core(storage, clock=clock)
    assert_cut(core, storage, expected, end)
    assert core.recovery.truncated_bytes == log_end - end
    assert core.recovery.ended_at == end
    assert_goes_on(core, storage, clock)


def test_it_can_be_cut_at_every_record() -> None:
    clock = Clock()
    storage, core = filled(clock)
    cases = [(end, left_below(core, end)) for end in record_ends(core)]
    core.close()
    for end, expected in cases:
        copy = storage.kill()
        request(copy, end)
        assert_cut(open_core(copy, clock=clock), copy, expected, end)


def test_it_can_be_cut_again_and_again() -> None:
    clock = Clock()
    storage, core = filled(clock)
    cases = [(end, left_below(core, end)) for end in reversed(record_ends(core)[::9])]
    for end, expected in cases:
        core.close()
        request(storage, end)
        core = open_core(storage, clock=clock)
        assert_cut(core, storage, expected, end)


def test_queues_and_index_are_not_built_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    storage, core = filled(clock)
    end = record_ends(core)[60]
    core.close()
    request(storage, end)
    with caplog.at_level(logging.INFO):
        core = open_core(storage, clock=clock)
    assert "did not return" not in caplog.text
    assert "again" not in caplog.text
    assert f"from {end} on are cut off: a test wants it" in caplog.text


def test_a_log_whose_begin_has_expired_keeps_its_queue_offsets() -> None:
    clock = Clock()
    storage, core = filled(clock)
    save_point(core)
    for segment in list(core.log.segments)[:2]:
        storage.set_modified_ms(segment.path, 0)
    core.plan_expiry(4).run()
    core.follow_log()
    assert core.log.min_offset == 2 * SEGMENT_BYTES
    cases = [(end, left_below(core, end)) for end in record_ends(core)]
    assert any(not entries for _, left in cases for _, entries in left.queues.values())
    core.close()
    for end, expected in cases:
        copy = storage.kill()
        request(copy, end)
        cut = open_core(copy, clock=clock)
        assert_cut(cut, copy, expected, end)
        assert_goes_on(cut, copy, clock)


@pytest.mark.parametrize("stop", [None, kill], ids=["closed", "killed"])
def test_the_checkpoint_does_not_tell_of_records_that_are_gone(
    stop: Callable[[StoreCore], None] | None,
) -> None:
    clock = Clock()
    storage, core = filled(clock)
    ends = record_ends(core)
    last = core.reads.record_at(PhysicalOffset(ends[29]))
    assert last is not None
    if stop is None:
        core.close()
    else:
        stop(core)
    request(storage, ends[30])
    open_core(storage, clock=clock).close()
    times = Checkpoint(storage, ROOT / "checkpoint").times
    assert times.physical_ms == times.queues_ms == last.store_ms
    assert times.index_ms <= last.store_ms


def test_no_recovery_point_is_behind_the_end_when_the_log_begins_to_go() -> None:
    clock = Clock()
    storage, core = filled(clock)
    save_point(core)
    end = record_ends(core)[30]
    core.close()
    request(storage, end)
    found: list[list[int]] = []

    def look(operation: Operation, path: Path) -> None:
        if operation in ("delete", "clear_from") and path.parent.name == "commitlog":
            after = storage.crash(lambda _: 0).read(ROOT / "recovery-point")
            slots = (after[at : at + RecoveryPoint.sizeof()] for at in SLOTS)
            points = [decoded for slot in slots if (decoded := decode_point(slot)) is not None]
            found.append([point.physical_offset for _, point in points])

    storage.faults.watch(look)
    open_core(storage, clock=clock)
    assert len(found) >= 3
    assert found == [[end, end]] * len(found)


def test_what_comes_in_its_place_is_not_cut_as_well() -> None:
    clock = Clock()
    storage, core = filled(clock)
    end = record_ends(core)[30]
    core.close()
    request(storage, end)
    core = open_core(storage, clock=clock)
    put_numbered(core, range(5), queue_id=9)
    core.flush()
    core = open_core(storage.crash(lambda _: 0), clock=clock)
    assert len(read_bodies(core, queue_id=9)) == 5


def test_a_topic_that_was_made_again_can_be_cut_back_to_before_that() -> None:
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    put_numbered(core, range(10))
    core.plan_deletion([TOPIC]).run()
    end = core.log.written
    put_numbered(core, range(10, 15))
    core.close()
    request(storage, end)
    core = open_core(storage, clock=clock)
    assert core.log.written == end
    assert read_bodies(core) == []
    (result,) = put(core, [message(15)])
    assert result.queue_offset == 0
    assert read_bodies(core) == [b"body 15"]


def test_without_an_index_there_is_none_to_cut() -> None:
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    config = small_config(index_enabled=False)
    core = open_core(storage, config, clock=clock)
    put_varied(core, clock, range(50))
    end = record_ends(core)[20]
    expected = left_below(core, end)
    core.close()
    request(storage, end)
    assert_cut(open_core(storage, config, clock=clock), storage, expected, end)


def test_with_a_transient_pool_the_rest_is_appended_as_ever() -> None:
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    config = small_config(transient_pool_enabled=True, transient_pool_size=2)
    core = open_core(storage, config, clock=clock)
    put_varied(core, clock, range(90))
    core.log.commit()
    core.dispatcher.catch_up()
    ends = record_ends(core)
    core.close()
    for end in (ends[40], 0):
        request(storage, end)
        core = open_core(storage, config, clock=clock)
        put_numbered(core, range(100), queue_id=7)
        core.close()
        core = open_core(storage, config, clock=clock)
        assert len(read_bodies(core, queue_id=7)) == 100
        core.close()


@pytest.mark.parametrize("place", [0, 30, 60], ids=["all", "most", "some"])
def test_a_store_on_disk_is_sound_after_it(tmp_path: Path, place: int) -> None:
    clock = Clock()
    core = StoreCore(small_config(tmp_path), now_ms=clock)
    put_varied(core, clock, range(MESSAGES))
    end = record_ends(core)[place]
    expected = left_below(core, end)
    core.close()
    request_truncation(tmp_path, Truncation(end, "a test wants it", clock.ms))
    core = StoreCore(small_config(tmp_path), now_ms=clock)
    assert left_below(core, end) == expected
    put_varied(core, clock, range(300, 330))
    core.close()
    with Reader(tmp_path, index_slots=INDEX_SLOTS, index_entries=INDEX_CAPACITY) as reader:
        assert list(verify(reader)) == []
    assert not (tmp_path / NOTE_NAME).exists()


# --- a slave's log -----------------------------------------------------------------------------


def test_a_slave_that_was_killed_within_a_record_can_be_cut() -> None:
    clock = Clock()
    _, master = filled(clock)
    data = left_below(master, master.log.written).log
    ends = record_ends(master)
    storage = MemoryStorage(now_ms=clock)
    slave = open_core(storage, clock=clock)
    slave.append_raw(PhysicalOffset(0), data[: ends[80] + 50])
    slave.dispatcher.catch_up()
    expected = left_below(slave, ends[50])
    kill(slave)
    request(storage, ends[50])
    slave = open_core(storage, clock=clock)
    assert_cut(slave, storage, expected, ends[50])
    slave.append_raw(PhysicalOffset(ends[50]), data[ends[50] :])
    while slave.dispatcher.catch_up():
        pass
    assert left_below(slave, master.log.written) == left_below(master, master.log.written)


# --- all of it ---------------------------------------------------------------------------------


def begins_anew(storage: MemoryStorage, clock: Clock) -> None:
    core = open_core(storage, clock=clock)
    assert left_below(core, 1 << 60) == Left(b"", {}, [], frozenset())
    assert not storage.exists(NOTE)
    assert not storage.names(ROOT / "commitlog")
    assert not storage.names(ROOT / "consumequeue")
    assert not storage.names(ROOT / "index")
    core.begin_raw(PhysicalOffset(5 * SEGMENT_BYTES))
    assert core.log.written == core.dispatcher.dispatched == 5 * SEGMENT_BYTES
    core.close()


@pytest.mark.parametrize("stop", [None, kill, stock_stop], ids=["closed", "killed", "stock"])
def test_a_whole_log_can_be_dropped(stop: Callable[[StoreCore], None] | None) -> None:
    clock = Clock()
    storage, core = filled(clock)
    if stop is None:
        core.close()
    else:
        stop(core)
    request(storage, None)
    begins_anew(storage, clock)


def test_a_log_that_is_dropped_is_set_aside_until_the_next_one_is() -> None:
    clock = Clock()
    storage, core = filled(clock)
    core.close()
    log = ROOT / "commitlog"
    before = {name: storage.read(log / name) for name in storage.names(log)}
    request(storage, None, at_ms=1)
    open_core(storage, clock=clock).close()
    aside = ROOT / "commitlog-set-aside-1"
    assert {name: storage.read(aside / name) for name in storage.names(aside)} == before
    # Nothing to be set aside leaves what was set aside before.
    core = open_core(storage, clock=clock)
    put(core, [message(b"new")])
    core.close()
    request(storage, None, at_ms=2)
    open_core(storage, clock=clock).close()
    assert not storage.exists(aside)
    assert storage.names(ROOT / "commitlog-set-aside-2")


def test_a_log_that_cannot_be_opened_can_be_dropped() -> None:
    clock = Clock()
    storage, core = filled(clock)
    core.close()
    storage.delete(log_path(SEGMENT_BYTES))
    overwrite(storage, log_path(2 * SEGMENT_BYTES), 0, b"damage")
    with pytest.raises(CorruptStoreError):
        open_core(storage, clock=clock)
    request(storage, None)
    begins_anew(storage, clock)


def test_files_of_others_stay_when_a_log_is_dropped() -> None:
    clock = Clock()
    storage, core = filled(clock)
    core.close()
    foreign = ["commitlog/notes.txt", "consumequeue/TopicA/0/notes.txt", "index/notes.txt", "keep"]
    for name in foreign:
        storage.write(ROOT / name, b"mine")
    request(storage, None)
    open_core(storage, clock=clock).close()
    assert {name for name, data in content(storage).items() if data == b"mine"} == set(foreign)


# --- those who know of places in the log -------------------------------------------------------


@pytest.mark.parametrize("is_dropped", [False, True], ids=["cut", "dropped"])
def test_whoever_knows_of_places_in_the_log_is_told_before_the_note_goes(
    is_dropped: bool,
) -> None:
    clock = Clock()
    storage, core = filled(clock)
    end = 0 if is_dropped else record_ends(core)[70]
    core.close()
    request(storage, None if is_dropped else end)
    told: list[tuple[int, int, bool]] = []

    def follow(core: StoreCore) -> None:
        entries = sum(queue.next_offset for queue in core.queues)
        told.append((core.log.written, entries, storage.exists(NOTE)))

    core = StoreCore(small_config(), storage=storage, now_ms=clock, on_cut=follow)
    entries = sum(queue.next_offset for queue in core.queues)
    assert told == [(end, entries, True)]
    assert not storage.exists(NOTE)
    core.close()
    StoreCore(small_config(), storage=storage, now_ms=clock, on_cut=follow).close()
    assert len(told) == 1


@pytest.mark.parametrize("is_dropped", [False, True], ids=["cut", "dropped"])
def test_who_could_not_go_back_is_told_again(is_dropped: bool) -> None:
    clock = Clock()
    storage, core = filled(clock)
    end = 0 if is_dropped else record_ends(core)[70]
    core.close()
    request(storage, None if is_dropped else end)

    def fail(core: StoreCore) -> None:
        raise StorageError("write", "consumerOffset.json", "no space left on device")

    with pytest.raises(StorageError, match="no space left"):
        StoreCore(small_config(), storage=storage, now_ms=clock, on_cut=fail)
    assert storage.exists(NOTE)
    told: list[int] = []
    storage = storage.kill()
    StoreCore(
        small_config(),
        storage=storage,
        now_ms=clock,
        on_cut=lambda core: told.append(core.log.written),
    ).close()
    assert told == [end]
    assert not storage.exists(NOTE)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [None, kill], ids=["closed", "killed"])
def test_an_end_inside_a_record_is_refused_and_the_nearest_one_named(
    stop: Callable[[StoreCore], None] | None,
) -> None:
    clock = Clock()
    storage, core = filled(clock)
    ends = record_ends(core)
    before = left_below(core, core.log.written)
    if stop is None:
        core.close()
    else:
        stop(core)
    for wrong in (ends[40] + 1, ends[41] - 1):
        request(storage, wrong)
        for _ in range(2):
            with pytest.raises(CorruptStoreError, match="inside a record") as refused:
                open_core(storage, clock=clock)
            assert refused.value.offset == wrong
            assert f"a record ends at {ends[40]}" in (refused.value.hint or "")
            assert storage.exists(ROOT / "abort") == (stop is not None)
    storage.delete(NOTE)
    core = open_core(storage, clock=clock)
    assert left_below(core, core.log.written) == before


def test_an_end_inside_a_blank_is_refused() -> None:
    clock = Clock()
    storage, core = filled(clock)
    ends = record_ends(core)
    blank_at = ends[ends.index(SEGMENT_BYTES) - 1]
    core.close()
    request(storage, SEGMENT_BYTES - 1)
    with pytest.raises(CorruptStoreError) as refused:
        open_core(storage, clock=clock)
    assert f"a record ends at {blank_at}" in (refused.value.hint or "")


def test_an_end_before_the_begin_of_the_log_is_refused() -> None:
    clock = Clock()
    storage = MemoryStorage(now_ms=clock)
    core = open_core(storage, clock=clock)
    core.begin_raw(PhysicalOffset(2 * SEGMENT_BYTES))
    core.trim_tail()
    put_numbered(core, range(5))
    core.close()
    request(storage, SEGMENT_BYTES)
    with pytest.raises(CorruptStoreError, match=f"begins at {2 * SEGMENT_BYTES}"):
        open_core(storage, clock=clock)


def test_a_log_that_ends_before_is_left_as_it_is() -> None:
    clock = Clock()
    storage, core = filled(clock)
    end = core.log.written
    expected = left_below(core, end)
    core.close()
    request(storage, end + 1000)
    core = open_core(storage, clock=clock)
    assert_cut(core, storage, expected, end)
    assert core.recovery.truncated_bytes == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b'{"end": -1, "reason": "", "atMs": 0}', b'{"end": 1}', b"\xff\xfe", b"[]"],
    ids=["empty", "torn", "negative", "incomplete", "no text", "no object"],
)
def test_a_note_that_cannot_be_read_stops_the_store(data: bytes) -> None:
    clock = Clock()
    storage, core = filled(clock)
    core.close()
    storage.write(NOTE, data)
    before = content(storage)
    with pytest.raises(CorruptStoreError, match="no request to cut") as refused:
        open_core(storage, clock=clock)
    assert "compare the store with its master" in (refused.value.hint or "")
    assert content(storage) == before


# --- the note ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, 0, 1 << 40])
def test_a_request_is_read_back(tmp_path: Path, end: int | None) -> None:
    assert read_request(tmp_path, DiskStorage()) is None
    for truncation in (Truncation(7, "first", 1), Truncation(end, "second, with ü", START_MS)):
        request_truncation(tmp_path, truncation)
        assert read_request(tmp_path, DiskStorage()) == truncation
    assert [path.name for path in tmp_path.iterdir()] == [NOTE_NAME]


def test_a_power_cut_leaves_one_whole_request_or_the_other(tmp_path: Path) -> None:
    first, second = Truncation(1, "first", 1), Truncation(2, "second", 2)
    request_truncation(tmp_path, first)
    before = {NOTE_NAME: (tmp_path / NOTE_NAME).read_bytes()}
    with Steps().watching() as steps:
        request_truncation(tmp_path, second)
    found = set()
    for left in power_cuts(before, steps):
        (tmp_path / NOTE_NAME).write_bytes(left[NOTE_NAME])
        found.add(read_request(tmp_path, DiskStorage()))
    assert found == {first, second}


def test_a_process_killed_while_it_asks_leaves_the_request_before(tmp_path: Path) -> None:
    first = Truncation(1, "first", 1)
    request_truncation(tmp_path, first)
    with Steps().watching() as steps:
        request_truncation(tmp_path, first)
    for fail_at in range(len(steps.done)):
        with pytest.raises(Killed), Steps(fail_at).watching():
            request_truncation(tmp_path, Truncation(2, "second", 2))
        request = read_request(tmp_path, DiskStorage())
        assert request is not None


def test_a_request_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        request_truncation(tmp_path / "nowhere", Truncation(None, "no such store", 0))
    assert refused.value.path == str(tmp_path / "nowhere" / NOTE_NAME)
