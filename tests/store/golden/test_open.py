"""Golden stores that were stopped cleanly: opening changes no byte, and everything reads back."""

from __future__ import annotations

import bisect
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import decode_record, parse_message_id
from rmq.store.reads import GetStatus
from tests.store.golden import stores as golden
from tests.store.golden.compare import (
    FOREVER_MS,
    KEYED_MAX,
    POINT_FILE,
    STORE_HOST,
    assert_finds_keys,
    assert_reads_back,
    choose_place,
    differing,
    end_of_log,
    keys_of,
    on_disk_too,
    stored,
    stored_by_queue,
)

if TYPE_CHECKING:
    from rmq.model.record import StoredRecord
    from rmq.store.core import StoreCore
    from tests.store.golden.compare import Place

ENTRIES_PER_SEGMENT = golden.QUEUE_SEGMENT_BYTES // 20

place = pytest.fixture(choose_place)
clean_stores = pytest.mark.parametrize(
    "store", [golden.CLEAN_MASTER, golden.CLEAN_SLAVE, golden.CRASHED_RECOVERED]
)


# --- files ----------------------------------------------------------------------------------


@clean_stores
@on_disk_too
def test_opening_and_closing_changes_no_byte(store: str, place: Place) -> None:
    place.unpack(store)
    for is_first in (True, False):
        with place.opened() as core:
            assert place.exists("abort")
            assert core.recovery.was_clean
            # The first time all there is to go by is the stock broker's, later it is our own.
            assert core.recovery.used_point is not is_first
            assert core.recovery.records_dispatched == 0
            assert core.statistics().written == end_of_log(store)
        assert differing(golden.files(store), place.files()) == {POINT_FILE}


def make_spare(core: StoreCore) -> None:
    end = core.log.segments.end
    core.log.create_spare()
    assert core.storage.exists(core.config.commit_log_paths[0] / f"{end:020}")


@clean_stores
def test_a_clean_stop_takes_the_segment_made_ahead_with_it(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        make_spare(core)
    assert differing(golden.files(store), place.files()) == {POINT_FILE}


@clean_stores
@pytest.mark.parametrize("has_spare", [False, True], ids=["alone", "segment made ahead"])
def test_a_store_in_which_nothing_was_written_survives_a_kill_as_it_was(
    store: str, has_spare: bool, place: Place
) -> None:
    core = place.unpack(store).open()
    if has_spare:
        make_spare(core)
    core.release()
    place.reopen()
    assert differing(golden.files(store), place.files()) == {POINT_FILE}


# --- by queue offset ------------------------------------------------------------------------


@clean_stores
@on_disk_too
def test_every_message_reads_back_as_the_java_client_read_it(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        assert_reads_back(core, store)


@clean_stores
def test_bounds_of_queues_and_log_are_those_of_the_records(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        reads = core.reads
        for (topic, queue_id), records in stored_by_queue(store).items():
            beyond = reads.get(topic, queue_id, QueueOffset(len(records) + 1), 32)
            assert beyond.status is GetStatus.OFFSET_OVERFLOW_BADLY
            assert (beyond.min_offset, beyond.max_offset) == (0, len(records))
            assert beyond.next_offset == len(records)
            assert (
                reads.get(topic, queue_id, QueueOffset(-1), 32).status is GetStatus.OFFSET_TOO_SMALL
            )
            assert reads.earliest_store_time(topic, queue_id) == records[0].store_ms
            assert [
                reads.store_time(topic, queue_id, QueueOffset(offset))
                for offset in range(len(records))
            ] == [record.store_ms for record in records]
            assert reads.store_time(topic, queue_id, QueueOffset(len(records))) == -1
        assert reads.earliest_store_time_of_log() == stored(store)[0].store_ms
        assert (
            reads.get("GoldenTopic", 99, QueueOffset(0), 32).status
            is GetStatus.NO_MATCHED_LOGIC_QUEUE
        )


# --- by time --------------------------------------------------------------------------------


@clean_stores
def test_a_time_leads_to_the_message_stored_nearest_to_it(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        for (topic, queue_id), records in stored_by_queue(store).items():
            times = [record.store_ms for record in records]
            asked = {time + shift for time in times for shift in (-1, 0, 1)}
            asked |= {(one + other) // 2 for one, other in pairwise(times)}
            for time_ms in asked | {0, FOREVER_MS}:
                found = core.reads.offset_by_time(topic, queue_id, time_ms)
                assert found in nearest(times, time_ms), (topic, queue_id, time_ms)


def nearest(times: list[int], time_ms: int) -> range:
    """Return the offsets that 4.9.8 may give for a time, several if they have that very time.

    Only one queue file is searched, the first that reaches up to the time, so a message in the file
    before it is not found even if it is nearer.
    """
    first = 0
    while (
        first + ENTRIES_PER_SEGMENT < len(times)
        and times[first + ENTRIES_PER_SEGMENT - 1] < time_ms
    ):
        first += ENTRIES_PER_SEGMENT
    last = min(first + ENTRIES_PER_SEGMENT, len(times))
    left = bisect.bisect_left(times, time_ms, first, last)
    right = bisect.bisect_right(times, time_ms, first, last)
    if left < right:
        return range(left, right)
    if left == first or (left < last and times[left] - time_ms < time_ms - times[left - 1]):
        return range(left, left + 1)
    return range(left - 1, left)


# --- by message id and by key ---------------------------------------------------------------


@clean_stores
def test_a_message_id_leads_to_its_record_and_nowhere_else(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        for record in stored(store):
            host, physical_offset = parse_message_id(record.message_id)
            assert host == STORE_HOST
            assert core.reads.record_at(physical_offset) == record
            assert core.reads.record_at(physical_offset + 1) is None
            assert core.reads.record_at(PhysicalOffset(physical_offset + record.size - 1)) is None
        assert core.reads.record_at(PhysicalOffset(end_of_log(store))) is None
        assert core.reads.record_at(PhysicalOffset(-1)) is None


@clean_stores
def test_a_key_leads_to_the_messages_that_carry_it(store: str, place: Place) -> None:
    with place.unpack(store).opened() as core:
        assert_finds_keys(core, store)
        assert core.reads.query("GoldenTopic", "nokey", KEYED_MAX, 0, FOREVER_MS) == []
        assert core.reads.query("NoTopic", "key1", KEYED_MAX, 0, FOREVER_MS) == []


def test_a_time_range_bounds_what_a_key_leads_to(place: Place) -> None:
    """The index knows times to the second, counted from the first entry of its file."""
    with place.unpack(golden.CLEAN_MASTER).opened() as core:

        def is_found(record: StoredRecord, key: str, begin_ms: int, end_ms: int) -> bool:
            views = core.reads.query(record.topic, key, KEYED_MAX, begin_ms, end_ms)
            return record in [decode_record(view) for view in views]

        for record in stored(golden.CLEAN_MASTER)[::10]:
            for key in keys_of(record):
                assert is_found(record, key, record.store_ms - 999, record.store_ms)
                assert not is_found(record, key, record.store_ms + 1, FOREVER_MS)
                assert not is_found(record, key, 0, record.store_ms - 1000)
