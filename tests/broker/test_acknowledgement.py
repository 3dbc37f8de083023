"""When a message that is in the log may be acknowledged."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from rmq.broker.acknowledgement import Acknowledger
from rmq.store.append import AppendStatus
from rmq.store.config import FlushMode
from tests.store.running import Gate, is_of_log, message, running

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize(
    ("mode", "is_immediate"),
    [
        pytest.param(FlushMode.ASYNC, True, id="async"),
        pytest.param(FlushMode.SYNC, False, id="sync"),
    ],
)
async def test_the_flush_mode_decides_whether_to_wait(mode: FlushMode, is_immediate: bool) -> None:
    async with running(flush_mode=mode) as it:
        assert Acknowledger(it.store).is_immediate is is_immediate


async def test_what_is_on_disk_is_safe_at_once() -> None:
    async with running() as it:
        outcomes: list[AppendStatus] = []
        (result,) = it.store.append([message()])
        await it.store.flush()
        Acknowledger(it.store).when_safe(result.end_offset, outcomes.append)
        assert outcomes == [AppendStatus.PUT_OK]


async def test_what_is_not_is_safe_after_the_next_sync() -> None:
    async with running() as it:
        gate = Gate(it.storage)
        gate.shut()
        outcomes: list[AppendStatus] = []
        (result,) = it.store.append([message()])
        Acknowledger(it.store).when_safe(result.end_offset, outcomes.append)
        await gate.wait_arrival()
        assert outcomes == []
        gate.open()
        await it.settle()
        assert outcomes == [AppendStatus.PUT_OK]


async def test_a_sync_that_takes_too_long_is_a_timeout(mock_clock: MockClock) -> None:
    async with running(sync_flush_timeout_ms=100) as it:
        gate = Gate(it.storage)
        gate.shut()
        outcomes: list[AppendStatus] = []
        (result,) = it.store.append([message()])
        Acknowledger(it.store).when_safe(result.end_offset, outcomes.append)
        await gate.wait_arrival()
        mock_clock.jump(0.1)
        await it.settle(held=1)
        assert outcomes == [AppendStatus.FLUSH_DISK_TIMEOUT]
        gate.open()
        await it.settle()
        assert len(outcomes) == 1


async def test_a_sync_that_fails_is_a_timeout_too() -> None:
    # There is no status for it; to a producer both mean stored, perhaps not for good.
    async with running() as it:
        outcomes: list[AppendStatus] = []
        (result,) = it.store.append([message()])
        it.storage.faults.fail("sync", errno.EIO, on=is_of_log)
        Acknowledger(it.store).when_safe(result.end_offset, outcomes.append)
        await it.settle()
        assert outcomes == [AppendStatus.FLUSH_DISK_TIMEOUT]
        Acknowledger(it.store).when_safe(result.end_offset, outcomes.append)
        assert outcomes == [AppendStatus.FLUSH_DISK_TIMEOUT] * 2
