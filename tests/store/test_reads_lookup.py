"""Reads by store time, by physical offset and by key.

The rules are those of RocketMQ 4.9.8 DefaultMessageStore and ConsumeQueue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import decode_records
from rmq.store.key_hash import TopicKeys
from rmq.testing.storage import MemoryStorage
from tests.store.built_records import build_record
from tests.store.store_kit import (
    INDEX_ENTRIES,
    SEGMENT_BYTES,
    START_MS,
    TOPIC,
    Clock,
    fill_segments,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    small_config,
)

if TYPE_CHECKING:
    from rmq.store.core import StoreCore


def expire_first_segment(core: StoreCore) -> None:
    """Let the oldest segment go, as retention does."""
    core.flush()
    core.log.segments.drop_first()


# --- by time --------------------------------------------------------------------------------


def test_a_time_leads_to_the_message_stored_nearest_to_it() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    for number in range(35):
        clock.ms = START_MS + number * 1000
        put_numbered(core, [number])
    reads = core.reads
    assert reads.offset_by_time(TOPIC, 0, START_MS - 5000) == 0
    assert reads.offset_by_time(TOPIC, 0, START_MS + 7000) == 7
    assert reads.offset_by_time(TOPIC, 0, START_MS + 7400) == 7
    assert reads.offset_by_time(TOPIC, 0, START_MS + 7501) == 8
    assert reads.offset_by_time(TOPIC, 0, START_MS + 27_000) == 27
    assert reads.offset_by_time(TOPIC, 0, START_MS + 99_000) == 34
    assert reads.offset_by_time("Other", 0, START_MS) == 0
    assert reads.store_time(TOPIC, 0, QueueOffset(12)) == START_MS + 12_000
    assert (
        reads.store_time(TOPIC, 0, QueueOffset(35))
        == reads.store_time(TOPIC, 0, QueueOffset(-1))
        == -1
    )
    assert reads.earliest_store_time(TOPIC, 0) == START_MS
    assert reads.earliest_store_time("Other", 0) == -1
    assert reads.earliest_store_time_of_log() == START_MS


def test_times_of_expired_messages_lead_to_the_first_there_is() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    count = 0
    while len(core.log.segments) < 4:
        clock.ms += 1000
        put_numbered(core, [count])
        count += 1
    expire_first_segment(core)
    core.follow_log()
    queue = core.queues.get(TOPIC, 0)
    assert queue is not None
    low = queue.min_offset
    first_ms = START_MS + 1000 * (low + 1)
    assert core.reads.earliest_store_time(TOPIC, 0) == first_ms
    assert core.reads.earliest_store_time_of_log() == first_ms
    assert core.reads.offset_by_time(TOPIC, 0, START_MS) == low
    assert core.reads.offset_by_time(TOPIC, 0, first_ms + 1000) == low + 1


def test_an_empty_store_has_no_times() -> None:
    core = open_core(MemoryStorage())
    assert core.reads.earliest_store_time_of_log() == -1
    core.queues.open(TOPIC, 0)
    assert core.reads.offset_by_time(TOPIC, 0, START_MS) == 0
    assert core.reads.earliest_store_time(TOPIC, 0) == -1


@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
def test_the_time_of_a_record_is_found_with_every_form_of_hosts(hosts: int) -> None:
    core = open_core(MemoryStorage())
    core.append_raw(
        PhysicalOffset(0),
        build_record(hosts=hosts, physical_offset=0, queue_offset=0, topic=b"TopicA"),
    )
    core.dispatcher.catch_up()
    assert core.reads.store_time(TOPIC, 3, QueueOffset(0)) == 1_700_000_000_001
    assert core.reads.earliest_store_time_of_log() == 1_700_000_000_001


# --- by physical offset ---------------------------------------------------------------------


def test_a_record_is_found_where_it_begins_and_nowhere_else() -> None:
    core = open_core(MemoryStorage())
    results = put_numbered(core, range(3))
    starts = {result.physical_offset: result.size for result in results}
    for offset in map(PhysicalOffset, range(-1, core.log.written + 2)):
        record = core.reads.record_at(offset)
        if offset in starts:
            assert record is not None
            assert (record.physical_offset, record.size) == (offset, starts[offset])
            assert core.reads.size_at(offset) == starts[offset]
        else:
            assert record is None


def test_a_blank_is_no_record() -> None:
    core = open_core(MemoryStorage())
    put(core, [message_of_size(5000), message_of_size(5000)])
    assert core.reads.record_at(PhysicalOffset(5000)) is None
    assert core.reads.record_at(PhysicalOffset(SEGMENT_BYTES)) is not None


# What nothing vouches for is not in this list: flags, times and hosts, and what is in topic and
# properties.
@pytest.mark.parametrize("position", [0, 3, 4, 8, 30, 39, 84, 87, 500, 985, 991, 999])
def test_a_damaged_record_is_none(position: int) -> None:
    core = open_core(MemoryStorage())
    put(core, [message_of_size(1000) for _ in range(3)])
    core.log.buffer[1000 + position] ^= 0x11
    assert core.reads.record_at(PhysicalOffset(1000)) is None
    assert core.reads.record_at(PhysicalOffset(0)) is not None
    assert core.reads.record_at(PhysicalOffset(2000)) is not None


# --- by key ---------------------------------------------------------------------------------


def test_a_key_leads_to_its_messages_in_order() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(1, keys="a b"), message(2, keys="b c", unique_key="u2"), message(3)])
    assert query_bodies(core, "a") == numbered_bodies([1])
    assert query_bodies(core, "b") == numbered_bodies([1, 2])
    assert query_bodies(core, "u2") == numbered_bodies([2])
    assert query_bodies(core, "d") == []
    assert query_bodies(core, "") == []
    assert query_bodies(core, "a", "Other") == []


def test_a_query_gives_the_newest_up_to_its_count_across_index_files() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(n, keys="same") for n in range(3 * INDEX_ENTRIES)])
    assert core.index is not None
    assert len(core.index.files) == 3
    everything = numbered_bodies(range(3 * INDEX_ENTRIES))
    assert query_bodies(core, "same") == everything
    assert query_bodies(core, "same", count=5) == everything[-5:]
    assert query_bodies(core, "same", count=10_000) == everything[-64:]
    assert query_bodies(core, "same", count=0) == []


def test_a_query_keeps_to_its_time_range() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    for number in range(10):
        clock.ms = START_MS + number * 1000
        put(core, [message(number, keys="k")])

    def numbers(begin_ms: int, end_ms: int) -> list[bytes]:
        views = core.reads.query(TOPIC, "k", 64, begin_ms, end_ms)
        return [record.body for view in views for record in decode_records(view)]

    assert numbers(START_MS, START_MS) == numbered_bodies([0])
    assert numbers(START_MS + 3000, START_MS + 5000) == numbered_bodies([3, 4, 5])
    assert numbers(0, START_MS - 1) == []
    assert numbers(START_MS + 9001, 1 << 62) == []
    assert numbers(START_MS + 5000, START_MS) == []


def test_a_message_found_twice_comes_once() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(1, keys="k k", unique_key="k")])
    assert query_bodies(core, "k") == numbered_bodies([1])


def collision_with(key: str) -> str:
    """Return another key of the same length and hash: "Aa" and "BB" are alike to Java."""
    other = key.replace("Aa", "BB", 1)
    assert other != key
    hashes = TopicKeys(TOPIC)
    assert hashes.index_hash(key.encode()) == hashes.index_hash(other.encode())
    return other


def test_keys_with_one_hash_are_told_apart() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    key = "order-Aa"
    other = collision_with(key)
    put(core, [message(1, keys=key), message(2, keys=other), message(3, unique_key=key)])
    assert query_bodies(core, key) == numbered_bodies([1, 3])
    assert query_bodies(core, other) == numbered_bodies([2])


def test_a_key_hidden_behind_many_others_of_its_hash_is_still_found() -> None:
    clock = Clock()
    core = open_core(MemoryStorage(), clock=clock)
    key = "order-Aa"
    put(core, [message(b"wanted", keys=key)])
    for number in range(8):
        clock.ms += 1000
        put(core, [message(number, keys=collision_with(key))])
    # Four at a time, each round looks further back; the third finds it.
    assert query_bodies(core, key, count=4) == [b"wanted"]
    for number in range(8):
        clock.ms += 1000
        put(core, [message(number, keys=collision_with(key))])
    # RocketMQ 4.9.8 gives up after three rounds as well.
    assert query_bodies(core, key, count=4) == []
    assert query_bodies(core, key) == [b"wanted"]


def test_topics_that_share_a_hash_with_their_keys_are_told_apart() -> None:
    core = open_core(MemoryStorage())
    put(core, [message(1, topic="TAa", keys="k"), message(2, topic="TBB", keys="k")])
    assert TopicKeys("TAa").index_hash(b"k") == TopicKeys("TBB").index_hash(b"k")
    assert query_bodies(core, "k", "TAa") == numbered_bodies([1])
    assert query_bodies(core, "k", "TBB") == numbered_bodies([2])


def test_keys_of_expired_messages_lead_nowhere() -> None:
    core = open_core(MemoryStorage())
    count = fill_segments(core, 3, keys="all")
    expire_first_segment(core)
    assert query_bodies(core, "key0") == []
    core.follow_log()
    found = query_bodies(core, "all")
    assert found == numbered_bodies(range(count))[-64:]
    assert query_bodies(core, f"key{count - 1}") == [b"body %d" % (count - 1)]


@pytest.mark.parametrize("key", ["ключ", "\U0001f600", "a\ud83d", "x" * 5000, "ключ" * 100])
def test_keys_of_any_characters_are_found(key: str) -> None:
    core = open_core(MemoryStorage(), small_config(segment_bytes=1 << 20))
    stored = key.encode("utf-8", "replace").decode()
    put(core, [message(1, keys=f"other {stored}"), message(2, unique_key=stored)])
    assert query_bodies(core, key) == numbered_bodies([1, 2])
