"""Expiry in a running store: what goes when, who follows, and what a full disk means."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.model.offsets import QueueOffset
from rmq.model.record import decode_record
from rmq.store.append import AppendStatus
from rmq.store.core import Refusal, StoreCore
from rmq.store.reads import GetStatus
from rmq.store.store import open_store
from rmq.testing.storage import MemoryStorage
from tests.store.running import (
    ROOT,
    SEGMENT_BYTES,
    Gate,
    Running,
    bodies_of,
    is_of_log,
    message,
    running,
    small_config,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

HOUR_MS = 3_600_000
ANY_HOUR = frozenset(range(24))
NO_HOUR: frozenset[int] = frozenset()
LOG_FOLDER = ROOT / "commitlog"
BODY = bytes(SEGMENT_BYTES // 2)
"""So long that every segment holds one of them."""


def expiring(**settings: object) -> dict[str, object]:
    """Return settings with which segments expire after an hour, in any hour."""
    return {
        "reserved_hours": 1,
        "delete_hours": ANY_HOUR,
        "clean_interval_ms": 10_000,
        "disk_used_ratio_max": 0.75,
        "disk_clean_ratio": 0.85,
        "disk_full_ratio": 0.90,
        "recovery_point_interval_ms": 1000,
        **settings,
    }


async def fill(now: Running, segments: int) -> None:
    """Write messages, one to a segment, each with a key of its own."""
    start = now.store.statistics().segments
    for number in range(start, start + segments):
        (result,) = await now.store.put([message(BODY, key=f"K{number}")])
        assert result.status is AppendStatus.PUT_OK
    await now.settle()


def age_all(now: Running, hours: float = 2) -> None:
    """Let the last write to every segment be so long ago."""
    for name in now.storage.names(LOG_FOLDER):
        now.storage.set_modified_ms(LOG_FOLDER / name, now.now.ms - int(hours * HOUR_MS))


async def next_round(now: Running, clock: MockClock, *, held: int = 0) -> None:
    """Let time pass up to the next look for expired segments."""
    for _ in range(10):
        clock.jump(1)
        await now.settle(held=held)


def first_segments(now: Running) -> tuple[int, int]:
    """Return where the log begins, for the store and on disk, in segments."""
    names = now.storage.names(LOG_FOLDER)
    return now.store.statistics().min_offset // SEGMENT_BYTES, int(names[0]) // SEGMENT_BYTES


# --- when segments go -----------------------------------------------------------------------


async def test_expired_segments_go_in_the_hours_of_delete_when(mock_clock: MockClock) -> None:
    async with running(**expiring()) as now:
        await fill(now, 5)
        await next_round(now, mock_clock)
        assert first_segments(now) == (0, 0)
        age_all(now)
        await next_round(now, mock_clock)
        # All but the last, which is being written.
        assert first_segments(now) == (4, 4)
        assert now.store.statistics().segments == 1


async def test_no_segment_goes_in_other_hours_unless_an_operator_asks(
    mock_clock: MockClock,
) -> None:
    async with running(**expiring(delete_hours=NO_HOUR)) as now:
        await fill(now, 3)
        age_all(now)
        await next_round(now, mock_clock)
        assert first_segments(now) == (0, 0)
        now.core.retention.arm_manual_deletion()
        await next_round(now, mock_clock)
        assert first_segments(now) == (2, 2)


async def test_segments_go_one_batch_after_the_other(mock_clock: MockClock) -> None:
    async with running(**expiring(delete_batch_max=2)) as now:
        await fill(now, 6)
        age_all(now)
        seen: list[int] = []
        for _ in range(4):
            await next_round(now, mock_clock)
            seen.append(first_segments(now)[0])
        assert seen == [2, 4, 5, 5]


@pytest.mark.parametrize(
    ("ratio", "hours_old", "first", "refusal"),
    [
        pytest.param(0.75, 2.0, 0, None, id="not-above-the-first-limit"),
        pytest.param(0.76, 0.5, 0, None, id="above-the-first-nothing-expired"),
        pytest.param(0.76, 2.0, 3, None, id="above-the-first-expired"),
        pytest.param(0.86, 0.5, 3, None, id="above-the-second-whatever-their-age"),
        pytest.param(0.91, 0.5, 3, Refusal.DISK_FULL, id="above-the-third"),
    ],
)
async def test_the_use_of_the_disk_decides_in_any_hour(
    mock_clock: MockClock, ratio: float, hours_old: float, first: int, refusal: Refusal | None
) -> None:
    async with running(**expiring(delete_hours=NO_HOUR)) as now:
        await fill(now, 4)
        age_all(now, hours_old)
        now.storage.reported_used_ratio = ratio
        await next_round(now, mock_clock)
        assert first_segments(now) == (first, first)
        assert now.store.statistics().refusal is refusal


async def test_what_a_recovery_would_read_stays_even_on_a_full_disk(mock_clock: MockClock) -> None:
    async with running(**expiring(recovery_point_interval_ms=15_000)) as now:
        await fill(now, 4)
        now.storage.reported_used_ratio = 0.86
        await next_round(now, mock_clock)
        assert first_segments(now) == (0, 0)
        await next_round(now, mock_clock)
        assert first_segments(now) == (3, 3)


async def test_segments_are_deleted_by_a_thread(mock_clock: MockClock) -> None:
    threads: list[threading.Thread] = []
    async with running(**expiring()) as now:
        await fill(now, 3)
        age_all(now)
        now.storage.faults.watch(
            lambda operation, path: (
                threads.append(threading.current_thread())
                if operation == "delete" and is_of_log(path)
                else None
            )
        )
        await next_round(now, mock_clock)
        assert len(threads) == 2
        assert threading.current_thread() not in threads


# --- a full disk ----------------------------------------------------------------------------


async def test_messages_are_refused_while_the_disk_is_full_and_taken_again_after(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(**expiring()) as now:
        await fill(now, 1)
        now.storage.reported_used_ratio = 0.91
        for _ in range(3):
            await next_round(now, mock_clock)
        (refused,) = await now.store.put([message()])
        assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason == "the disk is full"
        assert len(bodies_of(now.store)) == 1
        now.storage.reported_used_ratio = 0.5
        for _ in range(3):
            await next_round(now, mock_clock)
        (result,) = await now.store.put([message()])
        assert result.status is AppendStatus.PUT_OK
        told = [record.levelno for record in caplog.records]
        assert told == [logging.ERROR, logging.WARNING]


async def test_a_full_disk_is_noticed_before_the_first_message(mock_clock: MockClock) -> None:
    storage = MemoryStorage()
    storage.reported_used_ratio = 0.95
    async with running(storage, **expiring()) as now:
        (refused,) = await now.store.put([message()])
        assert refused.reason == "the disk is full"


# --- who follows ----------------------------------------------------------------------------


def query(now: Running, key: str) -> int:
    return len(now.store.reads.query("T", key, 10, 0, 2**62))


async def test_queues_and_index_follow_the_log(mock_clock: MockClock) -> None:
    settings = expiring(queue_segment_bytes=3 * 20, index_slots=5, index_entries=4)
    async with running(**settings) as now:
        await fill(now, 10)
        queue_folder, index_folder = ROOT / "consumequeue" / "T" / "0", ROOT / "index"
        assert len(now.storage.names(queue_folder)) == 4
        assert len(now.storage.names(index_folder)) == 4
        for name in now.storage.names(LOG_FOLDER)[:7]:
            now.storage.set_modified_ms(LOG_FOLDER / name, now.now.ms - 2 * HOUR_MS)
        await next_round(now, mock_clock)
        assert first_segments(now) == (7, 7)
        got = now.store.reads.get("T", 0, QueueOffset(0), 10)
        assert (got.status, got.min_offset, got.max_offset) == (GetStatus.OFFSET_TOO_SMALL, 7, 10)
        assert now.store.reads.get("T", 0, QueueOffset(7), 10).count == 2
        assert now.store.reads.get("T", 0, QueueOffset(9), 10).count == 1
        # Whole files only: those of offsets 0 to 5, and of the first six keys.
        assert [int(name) // 20 for name in now.storage.names(queue_folder)] == [6, 9]
        assert len(now.storage.names(index_folder)) == 2
        assert [query(now, f"K{number}") for number in (0, 5, 6, 7, 9)] == [0, 0, 0, 1, 1]
    # What is left is a store like any other.
    core = StoreCore(now.core.config, storage=now.storage)
    assert core.recovery.was_clean
    assert core.reads.get("T", 0, QueueOffset(7), 10).count == 2
    (result,) = core.append([message()])
    assert result.queue_offset == 10
    core.close()


async def test_the_segment_made_ahead_is_neither_expired_nor_in_the_way(
    mock_clock: MockClock,
) -> None:
    async with running(**expiring()) as now:
        await fill(now, 1)
        assert len(now.storage.names(LOG_FOLDER)) == 2
        age_all(now)
        await next_round(now, mock_clock)
        assert first_segments(now) == (0, 0)
        assert len(now.storage.names(LOG_FOLDER)) == 2
        await fill(now, 2)
        assert len(bodies_of(now.store)) == 3


# --- who still reads ------------------------------------------------------------------------


async def test_views_stay_valid_when_their_segment_is_deleted(mock_clock: MockClock) -> None:
    async with running(**expiring()) as now:
        await fill(now, 3)
        got = now.store.reads.get("T", 0, QueueOffset(0), 2)
        age_all(now)
        await next_round(now, mock_clock)
        assert first_segments(now) == (2, 2)
        assert [decode_record(view).body for view in got.records] == [BODY, BODY]


async def test_views_of_a_real_file_stay_valid_when_it_is_deleted(tmp_path: Path) -> None:
    config = small_config(
        tmp_path / "store",
        **expiring(
            clean_interval_ms=1,
            recovery_point_interval_ms=1,
            disk_full_ratio=1.0,
            disk_clean_ratio=1.0,
        ),
    )
    now_ms = [0]
    async with open_store(config, now_ms=lambda: now_ms[0]) as store:
        for number in range(4):
            await store.put([message(b"%d" % number + BODY)])
        got = store.reads.get("T", 0, QueueOffset(0), 3)
        log_folder = config.root / "commitlog"
        # The files were written just now, and that is long ago for a store of the far future.
        now_ms[0] = 2**42
        with trio.fail_after(10):
            # The segment in use and the one made ahead stay.
            while len(list(log_folder.iterdir())) > 2:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.001)
        bodies = [decode_record(view).body for view in got.records]
        assert bodies == [b"%d" % number + BODY for number in range(3)]
        assert store.reads.get("T", 0, QueueOffset(3), 1).count == 1


# --- faults ---------------------------------------------------------------------------------


async def test_a_file_that_cannot_be_deleted_is_reported_and_goes_before_any_other(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    async with running(storage, **expiring(delete_batch_max=2)) as now:
        await fill(now, 6)
        age_all(now)
        fault = storage.faults.fail("delete", errno.EACCES, times=2, on=is_of_log)
        await next_round(now, mock_clock)
        await next_round(now, mock_clock)
        assert fault.fired == 2
        assert "expired files cannot be removed" in caplog.text
        assert "Permission denied" in caplog.text
        (result,) = await now.store.put([message()])
        assert result.status is AppendStatus.PUT_OK
        # With a gap behind the file that stayed the store would not open again.
        core = StoreCore(now.core.config, storage=storage.kill())
        assert core.reads.get("T", 0, QueueOffset(5), 1).count == 1
        core.release()
        await next_round(now, mock_clock)
        assert first_segments(now)[1] == 2
        await next_round(now, mock_clock)
        assert first_segments(now) == (4, 4)


async def test_a_folder_that_cannot_be_read_is_reported_and_tried_again(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(**expiring()) as now:
        await fill(now, 3)
        age_all(now)
        with now.storage.faults.failing("modified_ms", errno.EIO):
            await next_round(now, mock_clock)
        assert "Input/output error" in caplog.text
        assert first_segments(now) == (0, 0)
        await next_round(now, mock_clock)
        assert first_segments(now) == (2, 2)


async def test_a_queue_file_that_cannot_be_deleted_goes_in_a_later_round(
    mock_clock: MockClock,
) -> None:
    async with running(**expiring(queue_segment_bytes=20)) as now:
        await fill(now, 4)
        age_all(now)
        queue_folder = ROOT / "consumequeue" / "T" / "0"
        now.storage.faults.fail("delete", errno.EACCES, on=lambda path: path.parent == queue_folder)
        await next_round(now, mock_clock)
        await next_round(now, mock_clock)
        assert len(now.storage.names(queue_folder)) == 1


async def test_a_slow_flush_of_segments_that_expire_meanwhile_is_no_failure(
    mock_clock: MockClock,
) -> None:
    """On a full disk segments go before their time, maybe while a flush still has them to sync."""
    async with running(**expiring(recovery_point_interval_ms=1000)) as now:
        gate = Gate(now.storage, "sync", lambda path: path.name == f"{0:020d}")
        await fill(now, 1)
        gate.shut()
        now.store.append([message(BODY), message(BODY), message(BODY)])
        now.store.when_flushed(now.core.log.written, lambda _: None)
        await gate.wait_arrival()
        # The recovery point, which syncs the same segments, is faster than the flush.
        gate.let_others_pass()
        now.storage.reported_used_ratio = 0.86
        for _ in range(12):
            mock_clock.jump(1)
            await now.settle(held=1)
        assert now.store.statistics().min_offset == 3 * SEGMENT_BYTES
        gate.open()
        await now.settle()
        assert now.store.statistics().refusal is None
        (result,) = await now.store.put([message()])
        assert result.status is AppendStatus.PUT_OK
