"""Holds a store against the list. Every check raises `AssertionError` with what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.java import string_hash
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record_layout import BLANK_MAGIC, RECORD_PREFIX
from rmq.store.layout import INDEX_ENTRY, INDEX_HEADER_BYTES, INDEX_SLOT, QUEUE_ENTRY_BYTES
from rmq.store.reads import GetResult, GetStatus
from tests.store.model.messages import QUEUES, SHARED_KEYS
from tests.store.model.world import EVERYTHING, MEMORY_BYTES

if TYPE_CHECKING:
    from rmq.store.consume_queue import ConsumeQueue
    from rmq.store.core import StoreCore
    from rmq.store.index_file import Index
    from rmq.testing.storage import MemoryStorage
    from tests.store.model.plain_list import Listed, PlainList, QueueKey

LATEST_MS: Final = 1 << 60


def walk_log(store: StoreCore, end: int) -> list[tuple[int, bytes]]:
    """Return offset and content of every record from the start of the log to `end`."""
    log = store.log
    found: list[tuple[int, bytes]] = []
    offset = int(log.min_offset)
    while offset < end:
        rest = log.view_from(PhysicalOffset(offset))
        assert rest is not None, f"nothing can be read at {offset}, the log ends at {log.readable}"
        size, magic = RECORD_PREFIX.unpack_from(rest)
        if magic == BLANK_MAGIC:
            assert size == len(rest), f"the blank at {offset} says {size} of {len(rest)} bytes"
        else:
            assert 0 < size <= len(rest), f"size {size} at {offset} with {len(rest)} bytes left"
            found.append((offset, bytes(rest[:size])))
        offset += size
    assert offset == end
    return found


def check_store(
    store: StoreCore, storage: MemoryStorage, listed: PlainList, end: int | None = None
) -> None:
    """Check log, queues and index as a whole, up to the end of the log if nothing else is said."""
    end = int(store.log.readable) if end is None else end
    expected = [(r.physical, r.content) for r in listed.present() if r.end <= end]
    assert walk_log(store, end) == expected, "the log differs from the list"
    for key in {*listed.queues, *store.queues.by_key}:
        check_queue(store, listed, key)
    check_index(store, listed)
    check_room(storage)


def check_tails(store: StoreCore) -> None:
    """Check that everything behind the ends is zero, as it must be after a recovery."""
    log = store.log
    last = log.segments.last
    if last is not None:
        assert last.first <= log.written <= last.end, (log.written, last.path)
        tail = bytes(last.buffer[log.written - last.first :])
        assert not any(tail), f"{last.path} is not clear behind the end of the log, {log.written}"
    for queue in store.queues:
        if (segment := queue.segments.last) is not None:
            tail = bytes(segment.buffer[queue.next_offset * QUEUE_ENTRY_BYTES - segment.first :])
            assert not any(tail), f"{segment.path} is not clear behind entry {queue.next_offset}"


def check_files(store: StoreCore, storage: MemoryStorage) -> None:
    """Check that a store that has just been opened has no files it does not know of."""
    for queue in store.queues:
        for directory in queue.segments.directories:
            assert storage.names(directory) == [s.path.name for s in queue.segments], directory
    names = {name for path in store.log.segments.directories for name in storage.names(path)}
    assert names == {segment.path.name for segment in store.log.segments}, names


def check_room(storage: MemoryStorage) -> None:
    assert storage.writes_without_room() == [], "a full disk would have killed the process"


# --- queues ------------------------------------------------------------------------------------


def entries_of(queue: ConsumeQueue) -> list[bytes]:
    """Return the entries of a queue from its min offset on."""
    entries: list[bytes] = []
    offset = int(queue.min_offset)
    while offset < queue.next_offset:
        view = queue.entries(QueueOffset(offset), EVERYTHING)
        assert view, f"entry {offset} of {queue.topic} {queue.queue_id} cannot be read"
        data = bytes(view)
        found = [data[at : at + QUEUE_ENTRY_BYTES] for at in range(0, len(data), QUEUE_ENTRY_BYTES)]
        entries += found
        offset += len(found)
    return entries


def dispatched_of(store: StoreCore, listed: PlainList, key: QueueKey) -> list[Listed]:
    """Return the records of a queue that have been dispatched: all of them, most of the time."""
    dispatched = store.dispatcher.dispatched
    records = listed.queues.get(key, [])
    done = [record for record in records if record.end <= dispatched]
    if store.dispatcher.error is not None:
        # Those that came together with the one at which it failed may have entries, and lack keys.
        queue = store.queues.get(*key)
        if queue is not None and len(done) <= queue.next_offset <= len(records):
            return list(records[: queue.next_offset])
    return done


def check_queue(store: StoreCore, listed: PlainList, key: QueueKey) -> None:
    expected = dispatched_of(store, listed, key)
    queue = store.queues.get(*key)
    if queue is None:
        assert all(record.physical < listed.forgotten for record in expected), f"{key} is gone"
        return
    low = int(queue.min_offset)
    if not expected or (not len(queue.segments) and expected[-1].physical < listed.forgotten):
        # All its messages expired and a recovery built it again, or it never had any.
        assert low == queue.next_offset, f"{key} has entries {low} to {queue.next_offset}"
        return
    assert queue.next_offset == len(expected), (
        f"{key} ends at {queue.next_offset}, not at {len(expected)}"
    )
    least, most = (
        min(listed.min_offset(key, listed.log_min), listed.min_offset(key, listed.followed)),
        listed.min_offset(key, max(listed.forgotten, listed.log_min)),
    )
    assert least <= low <= min(most, len(expected)), f"{key} begins at {low}, not {least} to {most}"
    entries = entries_of(queue)
    assert entries == [record.entry for record in expected[low:]], f"entries of {key} differ"


# --- index -------------------------------------------------------------------------------------


def check_index(store: StoreCore, listed: PlainList) -> None:
    """Check that each key leads to all records that carry it, and to no others.

    Asking for every key takes long, so most are looked up in what the slots of the files lead to.
    """
    if store.index is None:
        return
    found = reachable(store.index)
    required = _indexed(store, listed)
    missing = [
        (record.physical, key)
        for record in required
        for key in record.keys
        if (_key_hash(record.topic, key), record.physical) not in found
    ]
    assert not missing, f"keys of records are not in the index: {missing}"
    asked = {(record.topic, key) for record in required[-2:] for key in record.keys}
    asked |= {(topic, key) for topic, _ in QUEUES for key in SHARED_KEYS}
    for topic, key in asked:
        check_key(store, listed, topic, key)


def reachable(index: Index) -> set[tuple[int, int]]:
    """Return hash and physical offset of all entries that the slots lead to."""
    found: set[tuple[int, int]] = set()
    for file in index.files:
        data = bytes(file.file.buffer)
        entries_at = INDEX_HEADER_BYTES + file.slots * INDEX_SLOT.size
        for (slot_entry,) in INDEX_SLOT.iter_unpack(data[INDEX_HEADER_BYTES:entries_at]):
            number = slot_entry
            while number:
                assert 0 < number < file.count, f"{file.path}: entry {number} of {file.count}"
                at = entries_at + number * INDEX_ENTRY.size
                key_hash, physical, _, previous = INDEX_ENTRY.unpack_from(data, at)
                assert previous < number, f"{file.path}: from entry {number} to {previous}"
                found.add((key_hash, physical))
                number = previous
    return found


def _key_hash(topic: str, key: str) -> int:
    return abs(string_hash(f"{topic}#{key}"))


def _indexed(store: StoreCore, listed: PlainList) -> list[Listed]:
    """Return the records whose keys must be there."""
    return [
        record
        for record in listed.present()
        if not record.is_torn
        and record.physical >= listed.forgotten
        and record.end <= store.dispatcher.dispatched
    ]


def check_key(store: StoreCore, listed: PlainList, topic: str, key: str, begin_ms: int = 0) -> None:
    """Ask for one key, which may be of no record, and for records from a time on."""
    if store.index is None:
        return
    views = store.reads.query(topic, key, EVERYTHING, begin_ms, LATEST_MS)
    found = [bytes(view) for view in views]
    assert len(set(found)) == len(found), f"a record was found twice under {key}"
    carriers = [
        record
        for record in listed.present()
        if record.topic == topic and key in record.keys and record.store_ms >= begin_ms
    ]
    assert [r.content for r in carriers if r.content in set(found)] == found, (
        f"records without the key {key} were found under it, or not in order"
    )
    # The index knows times to the second.
    required = [
        record
        for record in _indexed(store, listed)
        if record in carriers and record.store_ms >= begin_ms + 1000
    ]
    missing = [record.physical for record in required if record.content not in set(found)]
    assert not missing, f"records at {missing} are not found by {topic}#{key}"


# --- reads by physical offset ------------------------------------------------------------------


def check_record(store: StoreCore, record: Listed, beside: int) -> None:
    """Read the record at an offset; a few bytes beside it there is none."""
    found = store.reads.record_at(PhysicalOffset(record.physical + beside))
    if beside or record.end > store.log.readable:
        assert found is None
    else:
        assert found is not None
        assert found.physical_offset == record.physical
        assert (found.topic, found.queue_id, found.size) == (*record.key, len(record.content))


# --- reads by queue offset ---------------------------------------------------------------------


class Wants:
    """Chooses messages by tags code and by the length of the record."""

    def __init__(self, codes: frozenset[int], lengths: int) -> None:
        self._codes = codes
        self._lengths = lengths

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code in self._codes

    def matches_record(self, record: memoryview) -> bool:
        return len(record) % self._lengths == 0

    def takes(self, record: Listed) -> bool:
        return record.tags_code in self._codes and len(record.content) % self._lengths == 0


def check_get(
    store: StoreCore,
    listed: PlainList,
    key: QueueKey,
    offset: int,
    count: int,
    wants: Wants | None,
) -> GetResult:
    """Read from a queue and compare with what the list has there."""
    result = store.reads.get(*key, QueueOffset(offset), count, wants)
    queue = store.queues.get(*key)
    if queue is None or not queue.next_offset:
        assert result.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
        return result
    low, high = int(queue.min_offset), int(queue.next_offset)
    assert (result.min_offset, result.max_offset) == (low, high)
    content = b"".join(bytes(view) for view in result.records)
    assert len(content) == result.size
    if offset < low:
        expected = (GetStatus.OFFSET_TOO_SMALL, low)
    elif offset == high:
        expected = (GetStatus.OFFSET_OVERFLOW_ONE, offset)
    elif offset > high:
        expected = (GetStatus.OFFSET_OVERFLOW_BADLY, high)
    else:
        taken, scanned = _taken(store, listed, key, offset, count, wants)
        assert content == b"".join(record.content for record in taken), "other messages were read"
        assert result.count == len(taken)
        assert (result.status is GetStatus.FOUND) == bool(taken), result.status
        assert result.next_offset == offset + scanned
        return result
    assert (result.status, result.next_offset) == expected
    assert content == b""
    return result


def _taken(
    store: StoreCore,
    listed: PlainList,
    key: QueueKey,
    offset: int,
    count: int,
    wants: Wants | None,
) -> tuple[list[Listed], int]:
    """Return what a `get` brings, and how many entries it looks at."""
    config, end = store.config, store.log.readable
    per_segment = config.queue_segment_bytes // QUEUE_ENTRY_BYTES
    stop = offset - offset % per_segment + per_segment
    taken: list[Listed] = []
    scanned = 0
    for record in listed.queues[key][offset : min(stop, store.queues.by_key[key].next_offset)]:
        if taken:
            is_on_disk = record.physical < end - int(MEMORY_BYTES * config.memory_ratio)
            most, most_bytes = (
                (config.transfer_count_on_disk, config.transfer_bytes_on_disk)
                if is_on_disk
                else (config.transfer_count_in_memory, config.transfer_bytes_in_memory)
            )
            size = sum(len(one.content) for one in taken) + len(record.content)
            if len(taken) >= min(count, most) or size > most_bytes:
                break
        scanned += 1
        if record.physical >= listed.log_min and (wants is None or wants.takes(record)):
            taken.append(record)
    return taken, scanned
