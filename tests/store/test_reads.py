"""Reads by queue offset: every status of `get`, its limits, filters, and how long views live.

The rules are those of RocketMQ 4.9.8 DefaultMessageStore.getMessage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.model.java import string_hash
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import decode_records
from rmq.store.config import KIB
from rmq.store.reads import RECORDS_REFUSED_MAX, SCAN_ENTRIES_MIN, GetResult, GetStatus
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    QUEUE_ENTRIES,
    SEGMENT_BYTES,
    TOPIC,
    RecordFilter,
    fill_segments,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    read_bodies,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.store.core import StoreCore

LARGE: Final = small_config(
    segment_bytes=1 << 21, queue_segment_bytes=2000 * 20, index_enabled=False
)
TAG_A: Final = string_hash("TagA")
TAG_B: Final = string_hash("TagB")


def bodies_of(result: GetResult) -> list[bytes]:
    return [record.body for view in result.records for record in decode_records(view)]


def outcome(result: GetResult) -> tuple[GetStatus, int, int, int, int]:
    """Return status, next offset, min, max and how many messages came."""
    assert result.count == len(bodies_of(result))
    assert result.size == sum(map(len, result.records))
    return (
        result.status,
        result.next_offset,
        result.min_offset,
        result.max_offset,
        result.count,
    )


def expire_first_segment(core: StoreCore) -> None:
    """Let the oldest segment go, as retention does."""
    core.flush()
    core.log.segments.drop_first()


# --- statuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 5])
def test_a_queue_that_is_not_there_is_no_logic_queue(offset: int) -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    for topic, queue_id in (("Other", 0), (TOPIC, 1), (TOPIC, -1), ("../x", 0)):
        result = core.reads.get(topic, queue_id, QueueOffset(offset), 32)
        assert outcome(result) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, 0)
    # Asking makes no queue.
    assert len(core.queues) == 1


@pytest.mark.parametrize("offset", [-1, 0, 7])
def test_a_queue_without_messages_has_none(offset: int) -> None:
    core = open_core(MemoryStorage())
    core.queues.open(TOPIC, 0)
    result = core.reads.get(TOPIC, 0, QueueOffset(offset), 32)
    assert outcome(result) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        pytest.param(-5, GetStatus.OFFSET_TOO_SMALL, 0, id="negative"),
        pytest.param(3, GetStatus.OFFSET_OVERFLOW_ONE, 3, id="the end"),
        pytest.param(4, GetStatus.OFFSET_OVERFLOW_BADLY, 3, id="one beyond"),
        pytest.param(1 << 62, GetStatus.OFFSET_OVERFLOW_BADLY, 3, id="far beyond"),
    ],
)
def test_an_offset_out_of_range_is_corrected(
    offset: int, status: GetStatus, next_offset: int
) -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    assert outcome(core.reads.get(TOPIC, 0, QueueOffset(offset), 32)) == (
        status,
        next_offset,
        0,
        3,
        0,
    )
    # A slave leaves that to its master.
    core.reads.keeps_offset = True
    assert outcome(core.reads.get(TOPIC, 0, QueueOffset(offset), 32)) == (status, offset, 0, 3, 0)
    assert core.reads.get("Other", 0, QueueOffset(offset), 32).next_offset == offset


def test_an_offset_whose_messages_expired_is_too_small() -> None:
    core = open_core(MemoryStorage())
    count = fill_segments(core, 3)
    expire_first_segment(core)
    core.follow_log()
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    low = queue.min_offset
    assert 0 < low < count
    result = core.reads.get(TOPIC, 0, QueueOffset(low - 1), 32)
    assert outcome(result) == (GetStatus.OFFSET_TOO_SMALL, low, low, count, 0)
    assert outcome(core.reads.get(TOPIC, 0, low, 1)) == (GetStatus.FOUND, low + 1, low, count, 1)
    assert read_bodies(core) == numbered_bodies(range(low, count))


def test_records_that_are_gone_before_the_queue_knows_were_removed() -> None:
    core = open_core(MemoryStorage())
    put(core, [message_of_size(2040)] * 4)
    put(core, [message(b"next")])
    put(core, [message_of_size(SEGMENT_BYTES - 500)])
    expire_first_segment(core)
    # The scan passes over the rest of the segment that is gone, and takes what comes behind it.
    result = core.reads.get(TOPIC, 0, QueueOffset(1), 32)
    assert outcome(result)[:4] == (GetStatus.FOUND, 6, 0, 6)
    assert bodies_of(result)[0] == b"next"
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    queue.truncate(PhysicalOffset(SEGMENT_BYTES))
    result = core.reads.get(TOPIC, 0, QueueOffset(1), 32)
    assert outcome(result) == (GetStatus.MESSAGE_WAS_REMOVING, 4, 0, 4, 0)


def test_the_last_of_removed_and_not_matched_is_told() -> None:
    core = open_core(MemoryStorage())
    put(core, [message_of_size(4080), message_of_size(4080)])
    put(core, [message(tags="TagB")])
    put(core, [message_of_size(SEGMENT_BYTES - 500)])
    expire_first_segment(core)
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    queue.truncate(PhysicalOffset(SEGMENT_BYTES + 10))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, RecordFilter(frozenset({0})))
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 3, 0, 3, 0)
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, RecordFilter(text=b"not in it"))
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 3, 0, 3, 0)


def test_a_segment_that_is_gone_is_passed_over_without_asking_the_filter() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(tags="TagA"), message(tags="TagB")])
    put(core, [message_of_size(SEGMENT_BYTES - 8)])
    expire_first_segment(core)
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    queue.truncate(PhysicalOffset(SEGMENT_BYTES))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, RecordFilter(frozenset({TAG_A})))
    assert outcome(result) == (GetStatus.MESSAGE_WAS_REMOVING, 2, 0, 2, 0)


def test_entries_that_are_gone_send_the_consumer_to_the_next_file() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(25))
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    queue.segments.drop_first()
    # The min offset is corrected a moment later.
    result = core.reads.get(TOPIC, 0, QueueOffset(3), 32)
    assert outcome(result) == (GetStatus.OFFSET_FOUND_NULL, QUEUE_ENTRIES, 0, 25, 0)


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count_max", "count"),
    [(1, 1), (2, 2), (31, 31), (32, 32), (33, 32), (1000, 32), (0, 1), (-1, 1)],
)
def test_at_most_32_messages_come_and_at_least_one(count_max: int, count: int) -> None:
    core = open_core(MemoryStorage(), LARGE)
    put_numbered(core, range(100))
    result = core.reads.get(TOPIC, 0, QueueOffset(10), count_max)
    assert outcome(result) == (GetStatus.FOUND, 10 + count, 0, 100, count)
    assert bodies_of(result) == numbered_bodies(range(10, 10 + count))


@pytest.mark.parametrize(
    ("size", "count"),
    [
        pytest.param(64 * KIB, 4, id="exactly 256 KiB"),
        pytest.param(64 * KIB + 1, 3, id="a byte more"),
        pytest.param(300 * KIB, 1, id="the first is always taken"),
        pytest.param(130 * KIB, 1, id="two would be too much"),
    ],
)
def test_at_most_256_kib_come_from_memory(size: int, count: int) -> None:
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message_of_size(size) for _ in range(5)])
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32)
    assert outcome(result) == (GetStatus.FOUND, count, 0, 5, count)
    assert not result.suggests_slave


@pytest.mark.parametrize(
    ("size", "count"),
    [
        pytest.param(200, 8, id="8 messages"),
        pytest.param(16 * KIB, 4, id="exactly 64 KiB"),
        pytest.param(16 * KIB + 1, 3, id="a byte more"),
        pytest.param(100 * KIB, 1, id="the first is always taken"),
    ],
)
def test_at_most_64_kib_and_8_messages_come_from_disk(size: int, count: int) -> None:
    core = open_core(MemoryStorage(), LARGE, memory_bytes=0)
    put(core, [message_of_size(size) for _ in range(10)])
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32)
    assert outcome(result) == (GetStatus.FOUND, count, 0, 10, count)
    assert result.suggests_slave


def test_messages_are_in_memory_within_40_percent_of_it() -> None:
    core = open_core(MemoryStorage(), LARGE, memory_bytes=10_000)
    put(core, [message_of_size(200) for _ in range(40)])
    # 8000 bytes are written; the last 4000 count as in memory, that is from offset 20 on.
    assert core.reads.get(TOPIC, 0, QueueOffset(20), 1).suggests_slave is False
    assert (
        core.reads.get(TOPIC, 0, QueueOffset(19), 1).suggests_slave is False
    )  # looked at 20 in the end
    assert core.reads.get(TOPIC, 0, QueueOffset(18), 1).suggests_slave is True
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 32).count == 8
    assert core.reads.get(TOPIC, 0, QueueOffset(20), 32).count == 20
    # Each message counts by itself: from the ninth on, those in memory are still taken.
    assert core.reads.get(TOPIC, 0, QueueOffset(16), 32).count == 24
    assert core.reads.get(TOPIC, 0, QueueOffset(10), 32).count == 8


@pytest.mark.parametrize(
    ("memory_bytes", "suggests"),
    [(2499, True), (2500, False)],
    ids=["a byte too far", "just within"],
)
def test_a_slave_is_suggested_from_just_above_40_percent_on(
    memory_bytes: int, suggests: bool
) -> None:
    core = open_core(MemoryStorage(), LARGE, memory_bytes=memory_bytes)
    put(core, [message_of_size(1000)])
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 1).suggests_slave is suggests


def test_so_many_entries_are_looked_at_and_no_more() -> None:
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message(n, tags="TagA") for n in range(1000)])
    put(core, [message(n, tags="TagB") for n in range(1000, 1100)])
    wanted = RecordFilter(frozenset({TAG_B}))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, wanted)
    assert outcome(result) == (
        GetStatus.NO_MATCHED_MESSAGE,
        SCAN_ENTRIES_MIN,
        0,
        1100,
        0,
    )
    assert core.reads.get(TOPIC, 0, QueueOffset(0), 900, wanted).next_offset == 900
    result = core.reads.get(TOPIC, 0, QueueOffset(800), 32, wanted)
    assert outcome(result) == (GetStatus.FOUND, 1032, 0, 1100, 32)
    assert bodies_of(result) == numbered_bodies(range(1000, 1032))


def test_a_scan_has_an_end_whatever_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq.store.reads.SCAN_ENTRIES_MAX", 1000)
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message(n, tags="TagA") for n in range(1100)])
    wanted = RecordFilter(frozenset({TAG_B}))
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 2**31 - 1, wanted)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 1000)
    # The consumer goes on there.
    assert core.reads.get(TOPIC, 0, QueueOffset(1000), 2**31 - 1, wanted).next_offset == 1100


def test_only_so_many_records_are_looked_into_for_nothing() -> None:
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message(n, tags="TagA") for n in range(RECORDS_REFUSED_MAX + 10)])
    wanted = RecordFilter(frozenset({TAG_A}), b"nothing like it")
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, wanted)
    assert (result.status, result.next_offset) == (
        GetStatus.NO_MATCHED_MESSAGE,
        RECORDS_REFUSED_MAX,
    )
    assert core.reads.get(TOPIC, 0, QueueOffset(RECORDS_REFUSED_MAX), 32, wanted).next_offset == (
        RECORDS_REFUSED_MAX + 10
    )


def test_a_scan_ends_with_its_queue_file() -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(25))
    result = core.reads.get(TOPIC, 0, QueueOffset(4), 32)
    assert outcome(result) == (GetStatus.FOUND, QUEUE_ENTRIES, 0, 25, 6)


def test_records_side_by_side_share_a_view() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(n, queue_id=n // 3 % 2) for n in range(9)])
    views = core.reads.get(TOPIC, 0, QueueOffset(0), 32).records
    assert [len(list(decode_records(view))) for view in views] == [3, 3]
    core = open_core(MemoryStorage())
    put(core, [message_of_size(3000) for _ in range(5)])
    views = core.reads.get(TOPIC, 0, QueueOffset(0), 32).records
    assert [len(list(decode_records(view))) for view in views] == [2, 2, 1]


# --- filters --------------------------------------------------------------------------------


def test_a_filter_looks_at_the_code_first_and_then_at_the_record() -> None:
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message(n, tags="TagA" if n % 2 else "TagB") for n in range(10)])
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32, RecordFilter(frozenset({TAG_A})))
    assert bodies_of(result) == numbered_bodies([1, 3, 5, 7, 9])
    assert result.next_offset == 10
    result = core.reads.get(
        TOPIC, 0, QueueOffset(0), 32, RecordFilter(frozenset({TAG_A}), b"body 7")
    )
    assert bodies_of(result) == numbered_bodies([7])
    result = core.reads.get(
        TOPIC, 0, QueueOffset(0), 32, RecordFilter(frozenset({TAG_B}), b"body 7")
    )
    assert outcome(result) == (GetStatus.NO_MATCHED_MESSAGE, 10, 0, 10, 0)


def test_a_full_batch_ends_before_the_first_message_it_does_not_take() -> None:
    core = open_core(MemoryStorage(), LARGE)
    put(core, [message(n, tags="TagA" if n in (2, 5) else "TagB") for n in range(8)])
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 1, RecordFilter(frozenset({TAG_A})))
    # The next one is at 5, but where the consumer goes on is behind what was taken.
    assert outcome(result) == (GetStatus.FOUND, 3, 0, 8, 1)


# --- damaged entries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("physical", "size"),
    [(0, -1), (0, 0), (-100, 50), (1 << 60, 100), (0, 0x7FFFFFFF), (10, 1 << 20)],
)
def test_an_entry_that_points_nowhere_is_passed_over(physical: int, size: int) -> None:
    core = open_core(MemoryStorage())
    put_numbered(core, range(3))
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    queue.buffer[20:40] = (
        physical.to_bytes(8, signed=True) + size.to_bytes(4, signed=True) + bytes(8)
    )
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 32)
    assert result.status is GetStatus.FOUND
    assert b"body 0" in bodies_of(result)
    result = core.reads.get(TOPIC, 0, QueueOffset(1), 1)
    assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
    assert core.reads.store_time(TOPIC, 0, QueueOffset(1)) == -1


# --- views outlive files --------------------------------------------------------------------


def test_views_outlive_the_segment_and_the_store(tmp_path: Path) -> None:
    core = open_core(DiskStorage(), small_config(tmp_path))
    fill_segments(core, 3)
    result = core.reads.get(TOPIC, 0, QueueOffset(0), 5)
    record = core.reads.record_at(PhysicalOffset(0))
    expire_first_segment(core)
    assert not (tmp_path / "commitlog" / f"{0:020d}").exists()
    assert bodies_of(result) == numbered_bodies(range(5))
    core.close()
    assert bodies_of(result) == numbered_bodies(range(5))
    assert record is not None
    assert record.body == b"body 0"
    assert all(view.readonly for view in result.records)
