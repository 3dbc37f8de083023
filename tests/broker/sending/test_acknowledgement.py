"""When a message that is in the log may be acknowledged."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from rmq.broker.sending.acknowledgement import Acknowledger
from rmq.ha.protocol.pending_acks import AckOutcome
from rmq.store.append import AppendStatus
from rmq.store.config import FlushMode
from tests.store.running import Gate, is_of_log, message, running

if TYPE_CHECKING:
    from collections.abc import Callable

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


# --- slaves --------------------------------------------------------------------------------------


class _Slaves:
    """Stands for slaves, which answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.callbacks: list[Callable[[AckOutcome], None]] = []

    def when_replicated(
        self, end_offset: int, callback: Callable[[AckOutcome], None], sends: int = 1
    ) -> None:
        self.asked.append((end_offset, sends))
        self.callbacks.append(callback)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (AckOutcome.REPLICATED, AppendStatus.PUT_OK),
        (AckOutcome.TIMED_OUT, AppendStatus.FLUSH_SLAVE_TIMEOUT),
        (AckOutcome.NOT_AVAILABLE, AppendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_a_sync_master_waits_for_its_slaves_only_if_the_disk_does_not_matter(
    outcome: AckOutcome, status: AppendStatus
) -> None:
    async with running(flush_mode=FlushMode.ASYNC) as it:
        outcomes: list[AppendStatus] = []
        acknowledger, slaves = Acknowledger(it.store), _Slaves()
        acknowledger.wait_for_slaves(slaves)
        assert not acknowledger.is_immediate
        (result,) = it.store.append([message()])
        acknowledger.when_safe(result.end_offset, outcomes.append, 7)
        assert slaves.asked == [(result.end_offset, 7)]
        assert outcomes == []
        slaves.callbacks[0](outcome)
        assert outcomes == [status]


@pytest.mark.parametrize("disk_first", [True, False], ids=["disk first", "slaves first"])
@pytest.mark.parametrize(
    ("outcome", "disk_fails", "status"),
    [
        (AckOutcome.REPLICATED, False, AppendStatus.PUT_OK),
        (AckOutcome.REPLICATED, True, AppendStatus.FLUSH_DISK_TIMEOUT),
        (AckOutcome.TIMED_OUT, False, AppendStatus.FLUSH_SLAVE_TIMEOUT),
        # As RocketMQ 4.9.8 CommitLog: what slaves did is set last.
        (AckOutcome.NOT_AVAILABLE, True, AppendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_with_sync_flush_both_are_waited_for_and_answered_once(
    outcome: AckOutcome, disk_fails: bool, status: AppendStatus, disk_first: bool
) -> None:
    async with running() as it:
        outcomes: list[AppendStatus] = []
        acknowledger, slaves = Acknowledger(it.store), _Slaves()
        acknowledger.wait_for_slaves(slaves)
        (result,) = it.store.append([message()])
        if disk_fails:
            it.storage.faults.fail("sync", errno.EIO, on=is_of_log)
        gate = Gate(it.storage)
        gate.shut()
        acknowledger.when_safe(result.end_offset, outcomes.append)
        await gate.wait_arrival()
        if not disk_first:
            slaves.callbacks[0](outcome)
            assert outcomes == []
        gate.open()
        await it.settle()
        if disk_first:
            assert outcomes == []
            slaves.callbacks[0](outcome)
        assert outcomes == [status]
