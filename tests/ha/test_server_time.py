"""The replication port and the clock: heartbeats, silence, deadlines, lag."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from rmq.ha.protocol.pending_acks import AckOutcome, ReplicationMode
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import PREAMBLE, REPORT, TRANSFER
from rmq.ha.server import REPORT_PAUSE_S, HaServerListener
from tests.ha.protocol.kit_master import (
    KIB,
    MIB,
    MemoryLog,
    NativePeer,
    serving,
    settled,
    stock_slave,
    stranger,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.ha.protocol.kit_master import StockPeer


async def pass_time(clock: MockClock, seconds: float, slave: StockPeer, offset: int) -> None:
    """Let time pass, second by second, with a slave that reports each second."""
    for _ in range(round(seconds)):
        clock.jump(1)
        await settled()
        await slave.report(offset)


async def test_an_idle_link_carries_a_heartbeat_every_five_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await slave.report(run.log.end)
            for _ in range(5):
                mock_clock.jump(4.75)
                await settled()
                assert slave.take() == b""
                mock_clock.jump(0.5)
                await settled()
                await slave.report(run.log.end)
                assert slave.take() == TRANSFER.pack(run.log.end, 0)


@pytest.mark.parametrize("mode", list(ReplicationMode))
async def test_reports_are_read_at_once_only_where_sends_wait_for_them(
    tmp_path: Path, mock_clock: MockClock, mode: ReplicationMode
) -> None:
    async with serving(tmp_path, mode=mode) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            (progress,) = run.master.slaves
            end = run.put()
            await settled()
            # The first one is read, and then the master turns to others for a while.
            mock_clock.jump(REPORT_PAUSE_S)
            await slave.report(0)
            await slave.report(end)
            assert progress.appended == (end if mode is ReplicationMode.SYNC else 0)
            mock_clock.jump(REPORT_PAUSE_S)
            await settled()
            assert progress.appended == end


async def test_what_is_sent_stands_for_a_heartbeat(tmp_path: Path, mock_clock: MockClock) -> None:
    async with serving(tmp_path) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            for _ in range(10):
                start = run.log.end
                end = run.put()
                assert await slave.frame() == (start, run.bytes_of_log(start))
                await slave.report(end)
                mock_clock.jump(4.9)
                await settled()
                assert slave.take() == b""


async def test_the_first_heartbeat_comes_at_once_if_the_slave_was_late(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await settled()
            mock_clock.jump(5)
            await slave.report(run.log.end)
            assert slave.take() == TRANSFER.pack(run.log.end, 0)


async def test_a_slave_that_is_silent_for_twenty_seconds_is_gone(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await slave.report(run.log.end)
            for _ in range(19):
                mock_clock.jump(1)
                await settled()
            slave.take()
            assert not slave.is_closed
            mock_clock.jump(1.1)
            await settled()
            slave.take()
            assert slave.is_closed
            assert run.only_link.why.startswith("it was silent for 20")
            assert run.master.counters.silent == 1


async def test_a_silent_slave_that_takes_nothing_is_gone_too(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    # A link that is half open looks like this: the other machine was switched off.
    async with serving(tmp_path, store={"segment_bytes": 4 * MIB}) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            run.put(3, size=MIB)
            assert run.only_link.is_blocked
            for _ in range(22):
                mock_clock.jump(1)
                await settled()
            assert not run.only_link.is_connected
            assert run.master.counters.silent == 1


async def test_ten_minutes_without_messages_end_no_link(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave, stranger(run) as peer:
            await slave.report(run.log.end)
            native = NativePeer(MemoryLog(run.log.segment_bytes))
            await native.follow(peer, run.log.end)
            for _ in range(120):
                mock_clock.jump(5)
                await settled()
                await slave.report(run.log.end)
                native.link.tick(mock_clock.current_time())
                await native.talk(peer)
                slave.take()
            assert run.master.counters.accepted == 2
            assert not slave.is_closed
            assert native.link.ending is None
            assert [status.in_sync for status in run.server.statistics()] == [True, True]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(REPORT.pack(0)[:7], id="seven bytes of a report"),
        pytest.param(PREAMBLE, id="a preamble and no greeting"),
        pytest.param(PREAMBLE + bytes(40), id="a greeting of zeros"),
    ],
)
async def test_who_does_not_say_what_it_wants_is_cut_off(
    tmp_path: Path, mock_clock: MockClock, said: bytes
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stranger(run) as peer:
            await settled()
            if said:
                await peer.say(said)
            mock_clock.jump(9.9)
            await settled()
            peer.take()
            assert not peer.is_closed
            mock_clock.jump(0.2)
            await settled()
            peer.take()
            assert peer.is_closed
            assert run.master.counters.refused == 1
            assert run.server.statistics() == []
            assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]


async def test_each_send_waits_until_its_own_deadline(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            early = run.ask(run.put())
            mock_clock.jump(1)
            await settled()
            late = run.ask(run.put())
            mock_clock.jump(1.9)
            await settled()
            assert (early, late) == ([], [])
            mock_clock.jump(0.1)
            await settled()
            assert (early, late) == ([AckOutcome.TIMED_OUT], [])
            assert run.master.counters.timeouts == 1
            await slave.report(run.log.end)
            assert late == [AckOutcome.REPLICATED]


async def test_a_deadline_of_less_than_a_second_is_kept(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, settings={"timeout_s": 0.25}) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            answer = run.ask(run.put())
            mock_clock.jump(0.24)
            await settled()
            assert answer == []
            mock_clock.jump(0.02)
            await settled()
            assert answer == [AckOutcome.TIMED_OUT]


async def test_a_slave_that_takes_no_bytes_is_left_out_though_it_reports(
    tmp_path: Path, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rules = InSyncRules(lag_s_max=15)
    async with serving(tmp_path, rules=rules, store={"segment_bytes": 4 * MIB}) as run:
        changes: list[int] = []
        slaves = run.master.slaves
        run.server.listen(
            HaServerListener(in_sync_changed=lambda: changes.append(slaves.in_sync_count))
        )
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            run.put(2, size=MIB)
            lag = run.log.end
            await pass_time(mock_clock, 14, slave, 0)
            assert run.only_link.in_sync
            assert run.ask(run.log.end) == []
            await pass_time(mock_clock, 2, slave, 0)
            status = run.only_link
            assert (status.in_sync, status.lag_bytes, status.is_blocked) == (False, lag, True)
            assert status.lag_ms == 16_000
            assert run.ask(run.log.end) == [AckOutcome.NOT_AVAILABLE]
            assert changes == [1, 0]
            assert f"is out of sync: it lacks {lag} bytes" in caplog.text
            await slave.follow(0, run.log.end)
            assert run.only_link.in_sync
            assert changes == [1, 0, 1]
            assert f"is in sync at {lag}" in caplog.text


async def test_a_slave_that_says_nothing_is_left_out_before_it_is_given_up(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, rules=InSyncRules(lag_s_max=15)) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            run.put()
            seen = []
            for _ in range(17):
                mock_clock.jump(1)
                await settled()
                seen.append(run.only_link.in_sync)
            assert seen == [True] * 15 + [False] * 2
            assert run.only_link.is_connected
            assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]


async def test_catching_up_is_held_back_and_following_is_not(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    settings = {"catch_up_bytes_per_s": 256 * KIB, "stock_frame_bytes": 16 * KIB}
    async with serving(tmp_path, settings=settings, store={"segment_bytes": 4 * MIB}) as run:
        run.append(16, size=64 * KIB)
        behind = run.log.end
        with stock_slave(run) as slave:
            await slave.report(1)
            got = len(slave.take())
            assert got < 80 * KIB
            rates: list[int] = []
            while got < behind:
                rates.append(0)
                for _ in range(20):
                    mock_clock.jump(0.05)
                    await settled()
                    rates[-1] += len(slave.take())
                await slave.report(0)
                got += rates[-1]
            assert all(240 * KIB <= rate <= 272 * KIB for rate in rates[:-1]), rates
            await slave.report(behind)
            assert run.only_link.in_sync
            end = run.put(6, size=16 * KIB)
            assert len(slave.take()) > end - behind
