"""Bytes of a master's log that a socket writes into the slave's, and what both compare."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import DiskFullError, LogGapError, StorageError, StoreUnavailableError
from rmq.model.offsets import PhysicalOffset
from rmq.store.checkpoint import RecoveryPoints
from rmq.store.core import StoreCore
from rmq.store.storage import DiskStorage
from rmq.testing.storage import MemoryStorage
from tests.store.running import bodies_of, running
from tests.store.running import message as running_message
from tests.store.store_kit import (
    ROOT,
    SEGMENT_BYTES,
    fill_segments,
    kill,
    numbered_bodies,
    open_core,
    put_numbered,
    read_bodies,
    save_point,
    small_config,
)

if TYPE_CHECKING:
    from trio.testing import MockClock


def log_of(core: StoreCore) -> bytes:
    data = b"".join(bytes(segment.buffer) for segment in core.log.segments)
    return data[: core.log.written - core.log.min_offset]


def receive(slave: StoreCore, data: bytes, size_max: int = 1 << 30) -> None:
    """Let a slave take bytes as a socket gives them: as many as there is room for at a time."""
    while data:
        room = slave.raw_room(min(size_max, len(data)))
        room[:] = data[: len(room)]
        slave.raw_written(len(room))
        data = data[len(room) :]


def catch_up(core: StoreCore) -> None:
    while core.dispatcher.catch_up():
        pass


@given(sizes=st.lists(st.integers(1, 3000), min_size=1))
def test_a_log_received_in_any_pieces_is_the_masters(sizes: list[int]) -> None:
    master, slave = open_core(MemoryStorage()), open_core(MemoryStorage())
    count = fill_segments(master, 3)
    data = log_of(master)
    while slave.log.written < len(data):
        for size in sizes:
            start = slave.log.written
            receive(slave, data[start : start + size], size)
    catch_up(slave)
    assert log_of(slave) == data
    assert read_bodies(slave) == numbered_bodies(range(count))


def test_room_ends_with_its_segment_and_goes_on_in_the_next() -> None:
    slave = open_core(MemoryStorage())
    assert len(slave.raw_room(100)) == 100
    assert len(slave.raw_room(3 * SEGMENT_BYTES)) == SEGMENT_BYTES
    slave.raw_written(SEGMENT_BYTES - 5)
    assert len(slave.raw_room(100)) == 5
    slave.raw_written(5)
    assert (slave.log.written, len(slave.log.segments)) == (SEGMENT_BYTES, 1)
    assert len(slave.raw_room(100)) == 100
    assert (slave.log.written, len(slave.log.segments)) == (SEGMENT_BYTES, 2)


def test_what_is_not_noted_is_not_part_of_the_log() -> None:
    slave = open_core(MemoryStorage())
    slave.raw_room(10)[:] = b"0123456789"
    slave.raw_written(4)
    assert (slave.log.written, slave.log.readable) == (4, 4)
    slave.raw_room(2)[:] = b"ab"
    slave.raw_written(2)
    assert bytes(slave.log.view(PhysicalOffset(0), 6) or b"") == b"0123ab"


def test_the_store_is_known_to_be_raw_on_disk_before_the_first_byte() -> None:
    storage = MemoryStorage()
    slave = open_core(storage)
    slave.raw_room(10)
    assert RecoveryPoints(storage.crash(lambda _: 0), ROOT / "recovery-point").was_raw


def test_a_closed_store_has_no_room() -> None:
    slave = open_core(MemoryStorage())
    slave.raw_room(10)
    slave.close()
    for call in (lambda: slave.raw_room(10), lambda: slave.raw_written(1)):
        with pytest.raises(StoreUnavailableError, match="closed"):
            call()


def test_a_full_disk_has_none_and_what_was_received_stays() -> None:
    storage = MemoryStorage(capacity_bytes=1 << 20)
    slave = open_core(storage)
    receive(slave, bytes(SEGMENT_BYTES))
    storage.capacity_bytes = storage.used_bytes
    with pytest.raises(DiskFullError):
        slave.raw_room(10)
    assert slave.log.written == SEGMENT_BYTES
    storage.capacity_bytes = None
    assert len(slave.raw_room(10)) == 10


# --- where it begins ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "is killed"])
def test_an_empty_log_begins_where_the_masters_does(*, is_killed: bool) -> None:
    master = open_core(MemoryStorage())
    fill_segments(master, 3)
    data = log_of(master)
    storage = MemoryStorage()
    slave = open_core(storage)
    slave.begin_raw(PhysicalOffset(SEGMENT_BYTES))
    assert slave.log.written == slave.log.min_offset == slave.dispatcher.dispatched == SEGMENT_BYTES
    if is_killed:
        kill(slave)
        slave = open_core(storage)
        assert slave.log.written == slave.log.min_offset == SEGMENT_BYTES
    receive(slave, data[SEGMENT_BYTES:])
    catch_up(slave)
    expected = [
        record.body
        for physical in range(SEGMENT_BYTES, len(data))
        if (record := master.reads.record_at(PhysicalOffset(physical))) is not None
    ]
    assert read_bodies(slave) == expected


def test_to_begin_where_it_ends_is_nothing() -> None:
    slave = open_core(MemoryStorage())
    slave.begin_raw(PhysicalOffset(0))
    assert len(slave.log.segments) == 0
    receive(slave, b"12345")
    slave.begin_raw(PhysicalOffset(5))
    assert slave.log.written == 5


@pytest.mark.parametrize("offset", [1, SEGMENT_BYTES + 1, SEGMENT_BYTES - 1])
def test_a_log_begins_with_a_segment(offset: int) -> None:
    slave = open_core(MemoryStorage())
    with pytest.raises(LogGapError):
        slave.begin_raw(PhysicalOffset(offset))
    assert slave.log.written == 0


def test_a_log_that_is_not_empty_does_not_begin_again() -> None:
    slave = open_core(MemoryStorage())
    receive(slave, b"12345")
    with pytest.raises(LogGapError):
        slave.begin_raw(PhysicalOffset(SEGMENT_BYTES))


# --- a running store ---------------------------------------------------------------------------


async def test_what_a_running_store_receives_is_dispatched(mock_clock: MockClock) -> None:
    del mock_clock
    async with running() as master, running(MemoryStorage()) as slave:
        await master.store.put([running_message(b"%d" % number) for number in range(20)])
        data = log_of(master.core)
        slave.store.begin_raw(PhysicalOffset(0))
        while len(data):
            room = slave.store.raw_room(min(len(data), 333))
            room[:] = data[: len(room)]
            slave.store.raw_written(len(room))
            data = data[len(room) :]
            await slave.settle()
        assert bodies_of(slave.store) == bodies_of(master.store)


# --- a slave's recovery points -----------------------------------------------------------------


def test_the_recovery_points_of_a_slave_advance_as_a_masters_do() -> None:
    master = open_core(MemoryStorage())
    count = fill_segments(master, 4)
    put_numbered(master, range(count, count + 9))
    count += 9
    data = log_of(master)
    storage = MemoryStorage()
    slave = open_core(storage)
    receive(slave, data[:-30])
    catch_up(slave)
    save_point(slave)
    saved = slave.statistics().recovery_point
    assert saved == slave.dispatcher.dispatched > 3 * SEGMENT_BYTES
    receive(slave, data[-30:])
    slave.flush()
    again = open_core(storage.crash(lambda _: 0))
    assert again.recovery.used_point
    assert again.recovery.started_at == saved
    assert again.recovery.records_read <= 2
    receive(again, data[again.log.written :])
    catch_up(again)
    assert read_bodies(again) == numbered_bodies(range(count))


# --- digests and descriptors -------------------------------------------------------------------


def test_a_digest_is_that_of_the_bytes() -> None:
    core = open_core(MemoryStorage())
    fill_segments(core, 3)
    data = log_of(core)
    for start, stop in (
        (0, len(data)),
        (0, 0),
        (len(data), len(data)),
        (100, SEGMENT_BYTES),
        (SEGMENT_BYTES - 1, 2 * SEGMENT_BYTES + 1),
    ):
        assert (
            core.digest(PhysicalOffset(start), PhysicalOffset(stop))
            == hashlib.sha256(data[start:stop]).digest()
        )


@pytest.mark.parametrize("reach", [(0, 1), (-1, 0), (-10_000, -9_000)])
def test_there_is_no_digest_of_what_is_not_there(reach: tuple[int, int]) -> None:
    core = open_core(MemoryStorage())
    core.begin_raw(PhysicalOffset(2 * SEGMENT_BYTES))
    receive(core, bytes(100))
    start, stop = 2 * SEGMENT_BYTES + reach[0], 2 * SEGMENT_BYTES + 100 + reach[1]
    with pytest.raises(StoreUnavailableError, match="the log goes from"):
        core.digest(PhysicalOffset(start), PhysicalOffset(stop))


def test_the_kernel_sends_a_segment_by_its_descriptor(tmp_path: Path) -> None:
    core = StoreCore(small_config(tmp_path))
    put_numbered(core, range(20))
    data = log_of(core)
    segment = core.log.segments[0]
    fd = segment.file.fileno()
    assert segment.file.fileno() == fd
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert os.sendfile(ours.fileno(), fd, 50, 500) == 500
        assert theirs.recv(1000) == data[50:550]
        # What is appended later is seen through the same one.
        put_numbered(core, range(20, 30))
        end = core.log.written
        assert os.sendfile(ours.fileno(), fd, end - 100, 100) == 100
        assert theirs.recv(1000) == log_of(core)[-100:]
    core.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_descriptor_is_for_files_that_are_open(tmp_path: Path) -> None:
    storage = DiskStorage()
    file = storage.create(tmp_path / "file", 4096)
    os.fstat(file.fileno())
    file.close()
    with pytest.raises(StorageError, match="closed"):
        file.fileno()
    for_reading = storage.open(tmp_path / "file", writable=False)
    assert os.pread(for_reading.fileno(), 4, 0) == bytes(4)
    with pytest.raises(StorageError, match="for reading only"):
        for_reading.write_at(0, [b"x"])
    for_reading.close()


def test_memory_has_no_descriptor() -> None:
    with pytest.raises(StorageError, match="not supported"):
        MemoryStorage().create(Path("file"), 10).fileno()
