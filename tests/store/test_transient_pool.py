"""The transient pool: appends go to memory first, and readers see what reached the file."""

from __future__ import annotations

from typing import Final

import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.store.commit_log import CommitLog
from rmq.store.transient_pool import TransientPool
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import (
    SEGMENT_BYTES,
    TOPIC,
    content,
    fill_segments,
    log_path,
    message,
    message_of_size,
    numbered_bodies,
    open_core,
    put,
    put_numbered,
    query_bodies,
    read_bodies,
    small_config,
)

POOLED: Final = small_config(transient_pool_enabled=True, transient_pool_size=2)
LARGE_POOLED: Final = small_config(
    transient_pool_enabled=True, transient_pool_size=2, segment_bytes=1 << 20
)


def test_a_pool_lends_its_buffers_and_takes_them_back() -> None:
    pool = TransientPool(2, 4096, lock=False)
    assert pool.available == 2
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    assert first is not second
    assert (len(first), pool.available) == (4096, 0)
    assert pool.borrow() is None
    pool.give_back(first)
    assert pool.borrow() is first


def test_a_pool_that_cannot_be_locked_works_all_the_same() -> None:
    # Whether the limits allow it depends on the machine; either way there are buffers.
    pool = TransientPool(1, 4096, lock=True)
    buffer = pool.borrow()
    assert buffer is not None
    buffer[:5] = b"hello"
    assert bytes(buffer[:5]) == b"hello"


def test_messages_are_seen_when_they_are_committed() -> None:
    storage = MemoryStorage()
    core = open_core(storage, POOLED)
    results = put_numbered(core, range(3))
    log = core.log
    end = results[-1].end_offset
    assert (log.written, log.readable, log.uncommitted) == (end, 0, end)
    assert storage.read(log_path()) == bytes(SEGMENT_BYTES)
    assert core.dispatcher.dispatched == 0
    assert core.queues.get(TOPIC, 0) is not None
    assert read_bodies(core) == []
    assert core.reads.record_at(PhysicalOffset(0)) is None
    assert core.plan_flush() is None
    log.commit()
    assert (log.readable, log.uncommitted) == (end, 0)
    assert core.reads.record_at(PhysicalOffset(0)) is not None
    # Dispatch follows what can be read.
    assert read_bodies(core) == []
    assert not core.dispatcher.catch_up()
    assert read_bodies(core) == numbered_bodies(range(3))
    assert core.flush() == end


def test_offsets_go_on_while_dispatch_waits_for_the_commit() -> None:
    core = open_core(MemoryStorage(), POOLED)
    assert [result.queue_offset for result in put_numbered(core, range(3))] == [0, 1, 2]
    core.log.commit()
    # What is appended now is not dispatched at once, because what came before is not.
    assert [result.queue_offset for result in put_numbered(core, range(3, 5))] == [3, 4]
    core.dispatcher.catch_up()
    assert read_bodies(core) == numbered_bodies(range(3))
    core.log.commit()
    core.dispatcher.catch_up()
    assert read_bodies(core) == numbered_bodies(range(5))
    assert query_bodies(core, "key4") == numbered_bodies([4])


@pytest.mark.parametrize("commit_every", [1, 7, 1000])
def test_the_files_are_those_of_a_store_without_a_pool(commit_every: int) -> None:
    contents = []
    for config in (POOLED, small_config()):
        storage = MemoryStorage()
        core = open_core(storage, config)
        for number in range(300):
            put(core, [message(b"%d" % number * (number % 90), keys=f"key{number}")])
            if number % commit_every == 0:
                core.log.commit()
                core.dispatcher.catch_up()
        assert len(core.log.segments) > 4
        core.close()
        contents.append(content(storage))
        assert storage.writes_without_room() == []
    assert contents[0] == contents[1]


def test_a_pool_that_is_used_up_is_written_past() -> None:
    core = open_core(MemoryStorage(), POOLED)
    count = fill_segments(core, 5)
    # Two segments are in the pool, the others went into their files; readers still see none.
    assert core.log.readable == 0
    core.log.commit()
    assert core.log.readable == core.log.written
    while core.dispatcher.catch_up():
        pass
    assert read_bodies(core) == numbered_bodies(range(count))


def test_a_commit_in_the_middle_makes_a_part_readable() -> None:
    core = open_core(MemoryStorage(), POOLED)
    put(core, [message_of_size(3000)])
    core.log.commit()
    put(core, [message_of_size(3000)])
    assert core.log.readable == 3000
    # The next one begins another segment; the end of the first is not committed yet.
    put(core, [message_of_size(3000)])
    assert (core.log.readable, core.log.written) == (3000, SEGMENT_BYTES + 3000)
    assert core.log.view(PhysicalOffset(0), 3001) is None
    core.log.commit()
    assert core.log.readable == core.log.written
    core.dispatcher.catch_up()
    assert len(read_bodies(core)) == 3


def test_used_buffers_leave_nothing_behind_a_blank() -> None:
    storage = MemoryStorage()
    core = open_core(storage, small_config(transient_pool_enabled=True, transient_pool_size=1))
    for _ in range(6):
        put(core, [message(b"\xee" * 5000)])
        core.log.commit()
    for number in range(5):
        segment = storage.read(log_path(number * SEGMENT_BYTES))
        end = segment.rindex(b"\xee") + 1
        assert segment[end:].count(0) >= SEGMENT_BYTES - end - 30


def test_a_long_body_goes_into_the_pool_as_well() -> None:
    storage = MemoryStorage()
    core = open_core(storage, LARGE_POOLED)
    long = message(b"L" * 100_000)
    put(core, [message(b"a"), long, message(b"b")])
    assert storage.read(log_path()).count(0) == 1 << 20
    core.log.commit()
    core.dispatcher.catch_up()
    assert read_bodies(core) == [b"a", long.body, b"b"]


def test_what_is_in_the_pool_only_is_lost_with_the_process() -> None:
    storage = MemoryStorage()
    core = open_core(storage, POOLED)
    put_numbered(core, range(5))
    core.log.commit()
    put_numbered(core, range(5, 9))
    again = open_core(storage.kill(), POOLED)
    assert read_bodies(again) == numbered_bodies(range(5))
    (result,) = put_numbered(again, [5])
    assert result.queue_offset == 5


def test_a_clean_stop_loses_nothing_and_the_next_start_goes_on() -> None:
    storage = MemoryStorage()
    core = open_core(storage, POOLED)
    put_numbered(core, range(5))
    core.close()
    for start in (5, 100):
        core = open_core(storage, POOLED)
        assert core.recovery.was_clean
        assert read_bodies(core) == numbered_bodies(range(start))
        # The segment in use is written directly, the next ones through the pool again.
        put_numbered(core, range(start, start * 20))
        core.close()
    core = open_core(storage)
    assert read_bodies(core) == numbered_bodies(range(2000))


def test_a_batch_and_raw_bytes_go_through_the_pool() -> None:
    core = open_core(MemoryStorage(), POOLED)
    core.append_batch([message(1), message(2)])
    assert core.log.readable == 0
    core.log.commit()
    data = bytes(core.log.view(PhysicalOffset(0), core.log.written) or b"")
    slave = open_core(MemoryStorage(), POOLED)
    slave.append_raw(PhysicalOffset(0), data)
    assert slave.log.readable == 0
    slave.log.commit()
    slave.dispatcher.catch_up()
    assert read_bodies(slave) == numbered_bodies([1, 2])


def test_a_log_that_gets_another_end_keeps_the_buffer_of_its_segment_and_returns_the_others() -> (
    None
):
    pool = TransientPool(3, SEGMENT_BYTES, lock=False)
    log = CommitLog(POOLED, MemoryStorage(), pool)
    log.append_raw(PhysicalOffset(0), bytes(range(200)))
    log.commit()
    log.roll()
    log.append_raw(log.written, b"in the next segment")
    assert pool.available == 1
    log.set_end(PhysicalOffset(100), flushed=PhysicalOffset(100))
    assert pool.available == 2
    log.append_raw(PhysicalOffset(100), b"new")
    assert (log.written, log.readable) == (103, 100)
    log.commit()
    assert bytes(log.segments[0].buffer[:200]) == bytes(range(100)) + b"new" + bytes(97)
