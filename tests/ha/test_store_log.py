"""A store's log as replication reads it: marks, bytes, files, and pages that are not in memory."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.ha.store_log import READ_AHEAD_BYTES, LogReader, ReadAhead, StoreLog
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import NewMessage
from rmq.store.store import MessageStore, open_store
from tests.ha.protocol.kit_master import (
    KIB,
    MIB,
    MemoryLog,
    NativePeer,
    serving,
    store_config,
    stranger,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.store.segments import Segment


def fill(store: MessageStore, count: int, *, size: int = 1000) -> None:
    for number in range(count):
        store.append([NewMessage("T", 0, bytes([number % 256]) * size, b"")])


def evict(segments: Sequence[Segment]) -> None:
    """Put the pages of segments out of memory; skip the test if the system keeps them."""
    for segment in segments:
        fd = os.open(segment.path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            # Not at an end, where tests look: asking makes the system read ahead.
            os.preadv(fd, [bytearray(1)], segment.size // 2, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)
        pytest.skip("this file system keeps its pages in memory")


async def test_the_marks_are_those_of_the_store(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path)) as store:
        log = StoreLog(store)
        assert (log.begin, log.end, log.flushed, log.segment_bytes) == (0, 0, 0, 64 * KIB)
        fill(store, 200)
        assert log.end == store.log.written > 64 * KIB
        await store.flush()
        assert log.flushed == log.end
        store.log.segments.drop_first()
        assert log.begin == 64 * KIB


async def test_nothing_behind_the_end_of_a_transient_pool_is_shown(tmp_path: Path) -> None:
    config = store_config(tmp_path, transient_pool_enabled=True, transient_pool_size=2)
    async with open_store(config) as store:
        log = StoreLog(store)
        fill(store, 3)
        assert log.end == store.log.readable < store.log.written
        assert log.view(PhysicalOffset(0), store.log.written) is None


async def test_a_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path)) as store:
        log = StoreLog(store)
        fill(store, 20)
        view = log.view(PhysicalOffset(100), 5000)
        assert view is not None
        assert (
            log.digest(PhysicalOffset(100), PhysicalOffset(5100)) == hashlib.sha256(view).digest()
        )


async def test_a_reader_has_one_file_open_and_finds_every_byte(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path)) as store:
        log = StoreLog(store)
        fill(store, 300)
        reader = LogReader(log)
        descriptors = set()
        for offset in range(0, log.end, 1000):
            place = reader.file_at(PhysicalOffset(offset))
            view = log.view(PhysicalOffset(offset), 1)
            assert place is not None
            assert view is not None
            fd, position = place
            assert os.pread(fd, 1, position) == bytes(view)
            descriptors.add(fd)
        assert len(descriptors) == 1
        reader.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptors.pop())
        reader.close()


async def test_there_is_no_file_for_bytes_that_are_not_there(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path)) as store:
        log = StoreLog(store)
        reader = LogReader(log)
        assert reader.file_at(PhysicalOffset(0)) is None
        fill(store, 300)
        assert reader.file_at(PhysicalOffset(10**12)) is None
        assert reader.file_at(PhysicalOffset(0)) is not None
        store.log.segments.drop_first()
        assert reader.file_at(PhysicalOffset(0)) is None
        assert reader.view(PhysicalOffset(0), 10) is None
        reader.close()


async def test_a_segment_of_the_same_name_is_opened_anew(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path)) as store:
        log = StoreLog(store)
        fill(store, 300)
        reader = LogReader(log)
        before = reader.file_at(PhysicalOffset(log.end - 1))
        assert before is not None
        identity = os.fstat(before[0]).st_ino
        # The log is cut back and grows again.
        store._core.log.set_end(PhysicalOffset(64 * KIB), flushed=PhysicalOffset(0))
        fill(store, 300)
        after = reader.file_at(PhysicalOffset(log.end - 1))
        assert after is not None
        assert os.fstat(after[0]).st_ino != identity
        reader.close()


async def test_pages_that_are_not_in_memory_are_noticed(tmp_path: Path) -> None:
    config = store_config(tmp_path, segment_bytes=4 * MIB)
    async with open_store(config) as store:
        fill(store, 9, size=MIB)
    async with open_store(config) as store:
        log = StoreLog(store)
        reader = LogReader(log)
        first = store.log.segments[0]
        evict([first])
        wanted = reader.read_ahead_for(PhysicalOffset(100), 50_000)
        assert wanted == ReadAhead(first.path, 100, 100 + READ_AHEAD_BYTES)
        wanted.run()
        # The same again is taken for granted, and can be seen to be so.
        assert reader.read_ahead_for(PhysicalOffset(100), 50_000) is None
        assert LogReader(log).read_ahead_for(PhysicalOffset(100), 50_000) is None
        reader.close()


async def test_reading_ahead_stays_within_the_segment(tmp_path: Path) -> None:
    config = store_config(tmp_path, segment_bytes=4 * MIB)
    async with open_store(config) as store:
        fill(store, 2500, size=3900)
    async with open_store(config) as store:
        reader = LogReader(StoreLog(store))
        first = store.log.segments[0]
        evict([first])
        assert reader.read_ahead_for(PhysicalOffset(first.end - 4096), 4096) == ReadAhead(
            first.path, first.size - 4096, first.size
        )
        reader.close()


async def test_who_follows_the_end_is_not_held_up_by_questions(tmp_path: Path) -> None:
    async with open_store(store_config(tmp_path, segment_bytes=MIB)) as store:
        log = StoreLog(store)
        fill(store, 10)
        reader = LogReader(log)
        asked: list[int] = []

        def is_warm(fd: int, position: int) -> bool:
            asked.append(position)
            return True

        reader._is_warm = is_warm  # type: ignore[method-assign]
        start = log.end
        reader.caught_up(PhysicalOffset(start - 1))
        assert reader.read_ahead_for(PhysicalOffset(0), 1000) is None
        assert asked == [0, 999]
        reader.caught_up(start)
        fill(store, 10)
        assert reader.read_ahead_for(start, 1000) is None
        assert asked == [0, 999]
        reader.fell_behind()
        assert reader.read_ahead_for(start, 1000) is None
        assert asked == [0, 999, start, start + 999]
        reader.close()


async def test_where_nobody_can_tell_what_is_in_memory_it_is_read_ahead_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    async with open_store(store_config(tmp_path, segment_bytes=MIB)) as store:
        fill(store, 100)
        reader = LogReader(StoreLog(store))
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", cannot)
            wanted = reader.read_ahead_for(PhysicalOffset(0), 1000)
            assert wanted is not None
            assert reader.read_ahead_for(PhysicalOffset(1000), 1000) is None
        wanted.run()
        reader.close()


def test_a_file_that_is_gone_is_not_worth_an_error(tmp_path: Path) -> None:
    ReadAhead(tmp_path / "gone", 0, 100).run()


def test_a_file_that_ends_early_is_not_worth_an_error(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(10))
    ReadAhead(path, 0, 1 << 20).run()


async def test_a_cold_log_reaches_a_slave_through_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    read = ReadAhead.run

    def noted(self: ReadAhead) -> None:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            threads.append(True)
        else:
            threads.append(False)
        read(self)

    monkeypatch.setattr(ReadAhead, "run", noted)
    sizes = {"segment_bytes": 4 * MIB}
    async with open_store(store_config(tmp_path, **sizes)) as store:
        fill(store, 9, size=MIB)
    async with serving(tmp_path, store=sizes) as run:
        evict(list(run.store.log.segments)[:2])
        with stranger(run) as peer:
            slave = NativePeer(MemoryLog(run.log.segment_bytes))
            await slave.follow(peer, run.log.end)
            assert len(threads) >= 2
            assert all(threads)
            assert slave.log.data == run.bytes_of_log()
            # What is appended now is in memory, and nobody asks.
            before = len(threads)
            await slave.follow(peer, run.put(5))
            assert len(threads) == before
