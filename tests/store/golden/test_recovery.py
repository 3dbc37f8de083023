"""Golden stores of a killed broker: our recovery against what the stock broker's made of them.

Both ended with a CommitLog segment made ahead and with an IndexFile whose last entry is 1 ms newer
than `checkpoint` vouches for. `torn` also lost everything behind the middle of a record.

A stock broker leaves on disk what lies behind the end it found, in CommitLog and ConsumeQueue, and
judges it again at every start. We set it to zero; up to the end all bytes must be the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.offsets import QueueOffset
from rmq.model.record import NewMessage, decode_record
from rmq.store import layout
from rmq.store.append import AppendStatus
from tests.store.golden import stores as golden
from tests.store.golden.compare import (
    FOREVER_MS,
    KEYED_MAX,
    POINT_FILE,
    MemoryPlace,
    assert_finds_keys,
    assert_reads_back,
    below,
    checkpoint_times,
    choose_place,
    differing,
    end_of_log,
    index_contents,
    index_entries,
    on_disk_too,
    stored,
    stored_by_queue,
)

if TYPE_CHECKING:
    from tests.store.golden.compare import Place

RECOVERED: Final = {
    golden.CRASHED: golden.CRASHED_RECOVERED,
    golden.TORN: golden.TORN_RECOVERED,
}
COUNTS: Final = {golden.CRASHED: 2000, golden.TORN: 1988}
SPARE: Final = "commitlog/00000000000001048576"
DROPPED_INDEX: Final = "index/20261116030231311"

place = pytest.fixture(choose_place)
killed_stores = pytest.mark.parametrize("store", list(RECOVERED))


def recover(store: str, place: Place) -> dict[str, bytes]:
    """Open and close a copy of a golden store and return its files."""
    place.unpack(store).reopen()
    return place.files()


def ends_of_files(store: str, folder: str) -> dict[str, int]:
    """Return up to which position each file of a log holds what its recovery kept."""
    ends: dict[str, int] = {}
    if folder == "commitlog":
        places = [(folder, end_of_log(store))]
    else:
        places = [
            (f"{folder}/{topic}/{queue_id}", len(records) * layout.QUEUE_ENTRY_BYTES)
            for (topic, queue_id), records in stored_by_queue(store).items()
        ]
    for name, data in golden.files_below(store, folder).items():
        parent, _, first = name.rpartition("/")
        end = dict(places)[parent]
        ends[name] = min(max(end - int(first), 0), len(data))
    return ends


# --- the result of the recovery -------------------------------------------------------------


@killed_stores
def test_the_recovery_reads_what_the_stock_broker_read(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        report = core.recovery
        assert not report.was_clean
        assert not report.used_point
        assert not report.rebuilt_queues
        # No flush was noted in the checkpoint yet, so everything is read and dispatched again.
        assert (report.started_at, report.ended_at) == (0, end_of_log(store))
        assert report.records_read == report.records_dispatched == COUNTS[store]
        assert report.cut_bytes == 0
        statistics = core.statistics()
        assert statistics.written == statistics.dispatched == end_of_log(store)
        assert statistics.written == statistics.flushed == statistics.recovery_point


@killed_stores
@on_disk_too
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue"])
def test_logs_and_queues_are_those_of_the_stock_recovery_and_end_in_zeros(
    store: str, folder: str, place: Place
) -> None:
    ours = below(recover(store, place), folder)
    expected = golden.files_below(RECOVERED[store], folder)
    ends = ends_of_files(RECOVERED[store], folder)
    assert list(ours) == list(expected)
    for name, data in expected.items():
        assert ours[name] == data[: ends[name]].ljust(len(data), b"\0"), name


@killed_stores
@on_disk_too
def test_index_contents_are_those_of_the_stock_recovery(store: str, place: Place) -> None:
    ours = recover(store, place)
    expected = golden.files_below(RECOVERED[store], "index")
    assert index_contents(ours) == list(expected.values())
    # Both kept the first two; the third was made by the recovery and has the time of that.
    assert list(below(ours, "index"))[:2] == list(expected)[:2]
    assert DROPPED_INDEX not in ours


@killed_stores
def test_checkpoint_times_are_those_of_the_stock_recovery_but_for_the_flush(
    store: str, place: Place
) -> None:
    ours = checkpoint_times(recover(store, place))
    expected = checkpoint_times(golden.files(RECOVERED[store]))
    assert ours[1:] == expected[1:]
    # The stock broker never came to a thorough flush; we sync what we recovered.
    assert (ours.physical_ms, expected.physical_ms) == (stored(store)[-1].store_ms, 0)


def test_a_crashed_store_is_the_recovered_one_to_the_byte(place: Place) -> None:
    ours, expected = recover(golden.CRASHED, place), golden.files(golden.CRASHED_RECOVERED)
    named_by_clock = {list(below(files, "index"))[2] for files in (ours, expected)}
    changed = {name for name in differing(expected, ours) if not name.startswith("config/")}
    assert changed == {"checkpoint", POINT_FILE, *named_by_clock}


# --- what the stock broker was seen to do ---------------------------------------------------


@killed_stores
def test_abort_and_the_segment_made_ahead_are_gone(store: str, place: Place) -> None:
    before = golden.files(store)
    assert "abort" in before
    assert not any(before[SPARE])
    after = recover(store, place)
    assert "abort" not in after
    assert SPARE not in after
    assert {"abort", SPARE}.isdisjoint(golden.files(RECOVERED[store]))


def test_after_a_crash_the_index_holds_the_record_at_its_seam_twice(place: Place) -> None:
    _, second, third = index_contents(recover(golden.CRASHED, place))
    last_but_one, last = stored(golden.CRASHED)[-2:]
    assert [entry[1] for entry in index_entries(third)] == [
        last_but_one.physical_offset,
        last_but_one.physical_offset,
        last.physical_offset,
        last.physical_offset,
    ]
    again = [entry for entry in index_entries(second) if entry[1] == last_but_one.physical_offset]
    assert [entry[0] for entry in again] == [entry[0] for entry in index_entries(third)[:2]]
    header = layout.IndexHeader.parse(third)
    assert (header.begin_ms, header.end_ms) == (last_but_one.store_ms, last.store_ms)
    assert (header.slots_used, header.entry_count) == (4, 5)


def test_after_a_tear_the_new_index_file_is_a_bare_header(place: Place) -> None:
    _, second, third = index_contents(recover(golden.TORN, place))
    full, bare = layout.IndexHeader.parse(second), layout.IndexHeader.parse(third)
    assert (bare.begin_ms, bare.end_ms) == (full.end_ms, full.end_ms)
    assert (bare.begin_offset, bare.end_offset) == (full.end_offset, full.end_offset)
    assert (bare.slots_used, bare.entry_count) == (0, 0)
    assert not any(third[layout.INDEX_HEADER_BYTES :])


def test_after_a_tear_the_index_still_has_entries_of_lost_records(place: Place) -> None:
    end = end_of_log(golden.TORN)
    lost = [
        entry
        for data in index_contents(recover(golden.TORN, place))
        for entry in index_entries(data)
        if entry[1] >= end
    ]
    assert len(lost) == 22


def test_after_a_tear_the_queues_time_is_that_of_the_last_good_record(place: Place) -> None:
    before = checkpoint_times(golden.files(golden.TORN))
    after = checkpoint_times(recover(golden.TORN, place))
    assert after.queues_ms == stored(golden.TORN)[-1].store_ms < before.queues_ms
    assert after.index_ms == before.index_ms


@pytest.mark.parametrize("store", [golden.TORN, golden.TORN_RECOVERED])
def test_what_a_tear_left_behind_the_end_is_cleared(store: str, place: Place) -> None:
    ends = {
        name: end
        for folder in ("commitlog", "consumequeue")
        for name, end in ends_of_files(golden.TORN_RECOVERED, folder).items()
    }
    left = {
        name: golden.files(store)[name][end:].rstrip(b"\0")
        for name, end in ends.items()
        if any(golden.files(store)[name][end:])
    }
    half_a_record = left.pop("commitlog/00000000000000786432")
    lost = golden.sound_records(golden.CRASHED)[COUNTS[golden.TORN] :]
    assert lost[0].data.startswith(half_a_record)
    # The entries of all twelve lost records, in four queues.
    assert sorted(
        layout.QUEUE_ENTRY.unpack(data[at : at + layout.QUEUE_ENTRY_BYTES])[:2]
        for data in left.values()
        for at in range(0, len(data), layout.QUEUE_ENTRY_BYTES)
    ) == [(record.physical_offset, len(record.data)) for record in lost]
    assert (len(left), len(lost)) == (4, 12)
    ours = recover(store, place)
    assert not any(any(ours[name][end:]) for name, end in ends.items())


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
def test_before_or_after_the_stock_recovery_ours_has_the_same_result(
    folder: str,
) -> None:
    ours = recover(golden.TORN, MemoryPlace())
    upon_stock = recover(golden.TORN_RECOVERED, MemoryPlace())
    assert list(below(ours, folder).values()) == list(below(upon_stock, folder).values())


# --- messages -------------------------------------------------------------------------------


@killed_stores
@on_disk_too
def test_every_message_that_survived_reads_back_as_the_java_client_read_it(
    store: str, place: Place
) -> None:
    assert len(golden.messages_of(store)) == COUNTS[store]
    with place.unpack(store).opened() as core:
        assert_reads_back(core, store)


@killed_stores
def test_keys_lead_to_what_survived_and_to_nothing_else(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        assert_finds_keys(core, store)
        for lost in stored(golden.CRASHED)[COUNTS[store] :]:
            unique_key = lost.properties["UNIQ_KEY"]
            assert core.reads.query(lost.topic, unique_key, KEYED_MAX, 0, FOREVER_MS) == []


# --- after the recovery ---------------------------------------------------------------------


@pytest.mark.parametrize("store", [*RECOVERED, *RECOVERED.values()])
@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_recovered_store_opens_again_without_another_change(
    store: str, is_killed: bool, place: Place
) -> None:
    core = place.unpack(store).open()
    core.release() if is_killed else core.close()
    assert place.exists("abort") is is_killed
    once = place.files()
    with place.opened() as core:
        assert core.recovery.used_point
        assert core.recovery.records_read == 0
        assert_reads_back(core, store)
        assert_finds_keys(core, store, step=7)
    assert differing(once, place.files()) <= {POINT_FILE, "abort"}


@pytest.mark.parametrize("store", [*RECOVERED, *RECOVERED.values()])
def test_messages_appended_after_the_recovery_follow_the_last_good_record(
    store: str, place: Place
) -> None:
    place.unpack(store)
    count = len(stored_by_queue(store)["GoldenFill", 2])
    with place.opened() as core:
        (result,) = core.append([NewMessage("GoldenFill", 2, b"later", b"TAGS\x01TagA")])
        assert result.status is AppendStatus.PUT_OK
        assert (result.physical_offset, result.queue_offset) == (end_of_log(store), count)
    with place.opened() as core:
        found = core.reads.get("GoldenFill", 2, QueueOffset(count), 32)
        assert [decode_record(view).body for view in found.records] == [b"later"]
        # The entry of a lost record, which stood behind this one, did not come back to life.
        assert found.max_offset == count + 1
