"""Golden files against the declared layouts: what they hold, and what it points at.

A layout can be read without a contradiction and still mean something else, so every entry of a
stock broker's ConsumeQueues and IndexFiles must lead to a record that it fits.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import construct
import pytest

from rmq.model import record_layout
from rmq.model.java import string_hash
from rmq.model.record import StoredRecord, decode_record
from rmq.store import layout
from tests.store.built_records import plain
from tests.store.golden import stores as golden

INDEX_ENTRIES_AT: Final = layout.INDEX_HEADER_BYTES + golden.INDEX_SLOTS * layout.INDEX_SLOT_BYTES

stores = pytest.mark.parametrize("store", golden.STORES)


@cache
def records_of(store: str) -> dict[int, StoredRecord]:
    return {
        record.physical_offset: decode_record(record.data) for record in golden.sound_records(store)
    }


def end_of_log(store: str) -> int:
    """Return where the last whole record ends; queues and index of a torn store go beyond it."""
    last = golden.sound_records(store)[-1]
    return last.physical_offset + len(last.data)


# --- CommitLog ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "count"),
    [
        pytest.param(golden.CLEAN_MASTER, 685, id=golden.CLEAN_MASTER),
        pytest.param(golden.CLEAN_SLAVE, 685, id=golden.CLEAN_SLAVE),
        pytest.param(golden.CRASHED, 2000, id=golden.CRASHED),
        pytest.param(golden.CRASHED_RECOVERED, 2000, id=golden.CRASHED_RECOVERED),
        pytest.param(golden.TORN, 1988, id=golden.TORN),
        pytest.param(golden.TORN_RECOVERED, 1988, id=golden.TORN_RECOVERED),
    ],
)
def test_every_record_of_the_stock_broker_was_found(store: str, count: int) -> None:
    assert len(golden.sound_records(store)) == count


@stores
def test_behind_the_records_of_a_segment_there_is_a_blank_or_nothing(store: str) -> None:
    segments = golden.files_below(store, "commitlog")
    ends = dict.fromkeys(segments, 0)
    for record in golden.records(store):
        position = record.physical_offset % golden.SEGMENT_BYTES
        name = f"commitlog/{record.physical_offset - position:020}"
        assert ends[name] == position
        ends[name] = position + len(record.data)
    blanks = 0
    for name, segment in segments.items():
        assert len(segment) == golden.SEGMENT_BYTES
        rest = segment[ends[name] :]
        if any(rest):
            blanks += 1
            assert rest == record_layout.Blank.build({"length": len(rest)}).ljust(len(rest), b"\0")
            assert record_layout.BLANK.unpack_from(rest) == (len(rest), record_layout.BLANK_MAGIC)
    assert blanks == (1 if store in (golden.CLEAN_MASTER, golden.CLEAN_SLAVE) else 3)


# --- ConsumeQueue ---------------------------------------------------------------------------


@stores
def test_queue_entries_lead_to_the_records_of_their_queue(store: str) -> None:
    records = records_of(store)
    end = end_of_log(store)
    led_to: set[int] = set()
    for name, data in golden.files_below(store, "consumequeue").items():
        _, topic, queue_id, first = name.split("/")
        assert len(data) == golden.QUEUE_SEGMENT_BYTES
        entries = layout.QUEUE_ENTRY.iter_unpack(data)
        first_entry = int(first) // layout.QUEUE_ENTRY_BYTES
        for queue_offset, (physical_offset, size, tags_code) in enumerate(entries, first_entry):
            if size == 0 or physical_offset >= end:
                continue
            record = records[physical_offset]
            led_to.add(physical_offset)
            assert (record.topic, str(record.queue_id)) == (topic, queue_id)
            assert (record.queue_offset, record.size) == (queue_offset, size)
            if topic == "SCHEDULE_TOPIC_XXXX":
                assert tags_code == delivery_ms(record)
            else:
                assert tags_code == record.tags_code
    assert led_to == set(records)


def delivery_ms(record: StoredRecord) -> int:
    """Return when a delayed message is due; the golden ones have low levels, 1 s 5 s 10 s 30 s."""
    return record.store_ms + (0, 1000, 5000, 10_000, 30_000)[int(record.properties["DELAY"])]


@stores
def test_queue_files_parse_and_build_with_the_declaration(store: str) -> None:
    for data in golden.files_below(store, "consumequeue").values():
        parsed = [plain(entry) for entry in construct.GreedyRange(layout.QueueEntry).parse(data)]
        assert b"".join(map(layout.QueueEntry.build, parsed)) == data
        assert [tuple(entry.values()) for entry in parsed] == [
            *layout.QUEUE_ENTRY.iter_unpack(data)
        ]


# --- IndexFile ------------------------------------------------------------------------------


@stores
def test_index_entries_lead_to_records_with_their_key(store: str) -> None:
    records = records_of(store)
    end = end_of_log(store)
    for data in golden.files_below(store, "index").values():
        header = layout.IndexHeader.parse(data)
        slots = layout.INDEX_SLOT.iter_unpack(data[layout.INDEX_HEADER_BYTES : INDEX_ENTRIES_AT])
        entries = list(layout.INDEX_ENTRY.iter_unpack(data[INDEX_ENTRIES_AT:]))
        assert len(entries) == golden.INDEX_ENTRIES
        assert sum(slot > 0 for (slot,) in slots) == header.slots_used
        # Entry 0 is never used.
        for number in range(1, header.entry_count):
            key_hash, physical_offset, seconds, previous = entries[number]
            assert 0 <= previous < number
            assert previous == 0 or entries[previous][0] % golden.INDEX_SLOTS == (
                key_hash % golden.INDEX_SLOTS
            )
            if physical_offset < end:
                record = records[physical_offset]
                assert key_hash in key_hashes(record)
                # The first entry of a file may be counted from the end of the file before.
                elapsed_ms = record.store_ms - header.begin_ms
                assert number == 1 or seconds == max(elapsed_ms, 0) // 1000


def key_hashes(record: StoredRecord) -> set[int]:
    properties = record.properties
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return {abs(string_hash(f"{record.topic}#{key}")) for key in keys if key}


def test_the_slot_of_the_first_key_leads_to_the_first_record() -> None:
    (data,) = golden.files_below(golden.CLEAN_MASTER, "index").values()
    key_hash = string_hash("GoldenTopic#key1")
    slot = key_hash % golden.INDEX_SLOTS
    assert (key_hash, slot) == (1064868495, 495)
    slot_at = layout.INDEX_HEADER_BYTES + slot * layout.INDEX_SLOT_BYTES
    number = layout.IndexSlot.parse(data[slot_at:]).entry
    chain: list[dict[str, Any]] = []
    while number:
        entry_at = INDEX_ENTRIES_AT + number * layout.INDEX_ENTRY_BYTES
        chain.append(plain(layout.IndexEntry.parse(data[entry_at:])))
        number = chain[-1]["previous"]
    assert chain[-1] == {"key_hash": key_hash, "physical_offset": 0, "seconds": 0, "previous": 0}


@pytest.mark.parametrize("store", [golden.CLEAN_MASTER, golden.CRASHED])
def test_index_files_parse_and_build_with_the_declarations(store: str) -> None:
    declared = construct.Struct(
        "header" / layout.IndexHeader,
        "slots" / construct.Array(golden.INDEX_SLOTS, layout.IndexSlot),
        "entries" / construct.Array(golden.INDEX_ENTRIES, layout.IndexEntry),
        construct.Terminated,
    )
    for data in golden.files_below(store, "index").values():
        assert declared.build(declared.parse(data)) == data


# --- checkpoint -----------------------------------------------------------------------------


@stores
def test_a_checkpoint_holds_store_times_of_records(store: str) -> None:
    data = golden.files(store)["checkpoint"]
    checkpoint = layout.Checkpoint.parse(data)
    times = (checkpoint.physical_ms, checkpoint.queues_ms, checkpoint.index_ms)
    assert layout.Checkpoint.build(checkpoint) == data
    assert layout.CHECKPOINT_TIMES.unpack_from(data) == times
    # The torn stores were made from the crashed one and remember records that they lost.
    whole = golden.CRASHED if store in (golden.TORN, golden.TORN_RECOVERED) else store
    assert set(times) <= {record.store_ms for record in records_of(whole).values()} | {0}
    assert checkpoint.queues_ms > 0
