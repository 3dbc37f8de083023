"""The replication port at work: the log reaches slaves as it grows, and what they hold answers
sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import ConfigError, ListenError
from rmq.ha import master_channel as sending
from rmq.ha.protocol.pending_acks import AckOutcome, ReplicationMode
from rmq.ha.protocol.slaves import InSyncRules
from rmq.ha.protocol.wire import TRANSFER
from rmq.ha.server import HaServer, HaServerConfig, HaServerListener
from tests.ha.protocol.kit_master import (
    HOST,
    KIB,
    MIB,
    MemoryLog,
    NativePeer,
    dialled,
    open_files,
    serving,
    settled,
    stock_slave,
    stranger,
)

if TYPE_CHECKING:
    from pathlib import Path

    import trio.testing

    from tests.ha.protocol.kit_master import Peer, Serving


async def in_sync_native(run: Serving, peer: Peer, store_id: bytes = b"s" * 16) -> NativePeer:
    slave = NativePeer(MemoryLog(run.log.segment_bytes), store_id=store_id)
    await slave.follow(peer, run.log.end)
    return slave


# ---- the stream ---------------------------------------------------------------------------------


async def test_a_stock_slave_gets_the_log_from_where_it_says(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=20) as run:
        start = run.log.end // 2
        with stock_slave(run) as slave:
            await slave.report(start)
            assert await slave.follow(start, run.log.end) == run.bytes_of_log(start)
            assert run.only_link.in_sync


async def test_slaves_connect_to_the_port(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1000) as run:
        with dialled(run) as peer:
            slave = NativePeer(MemoryLog(run.log.segment_bytes))
            await slave.follow(peer, run.log.end)
            assert slave.log.data == run.bytes_of_log()


async def test_an_empty_stock_slave_gets_all_there_is(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1000) as run:
        assert run.log.end > 2 * run.log.segment_bytes
        with stock_slave(run) as slave:
            await slave.report(0)
            assert await slave.follow(0, run.log.end) == run.bytes_of_log()


async def test_a_native_slave_gets_the_log_and_is_told_that_it_counts(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1000) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
            assert slave.log.data == run.bytes_of_log()
            assert slave.link.master.is_in_sync
            assert slave.link.master.in_sync == 1
            status = run.only_link
            assert (status.name, status.is_native, status.in_sync) == ("broker-a:1", True, True)
            assert (status.appended, status.lag_bytes) == (run.log.end, 0)
            assert status.sent_bytes == run.log.end


async def test_what_is_appended_is_sent_before_pump_returns(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
            before = run.log.end
            end = run.put()
            # Nobody else has run since: the bytes are here, through the kernel.
            slave.hear(peer.take())
            assert slave.log.end == end > before
            assert slave.log.data == run.bytes_of_log()


async def test_no_frame_crosses_the_end_of_a_segment(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=2000) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            position = 0
            edges = set()
            while position < run.log.end:
                offset, body = await slave.frame()
                assert offset == position
                position += len(body)
                assert offset // run.log.segment_bytes == (position - 1) // run.log.segment_bytes
                edges.add(position)
            assert run.log.segment_bytes in edges


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(0, id="the smallest message"),
        pytest.param(sending.JOIN_BYTES - 200, id="just short enough to be copied"),
        pytest.param(sending.JOIN_BYTES + 200, id="just too long to be copied"),
        pytest.param(200 * KIB, id="several frames"),
    ],
)
async def test_messages_of_all_sizes_arrive_as_they_are(tmp_path: Path, size: int) -> None:
    async with serving(tmp_path, store={"segment_bytes": MIB}) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            for _ in range(3):
                start = run.log.end
                end = run.put(size=size)
                assert await slave.follow(start, end) == run.bytes_of_log(start)
            assert run.only_link.sent_bytes == run.log.end


async def test_frames_of_a_stock_slave_are_no_larger_than_the_settings_say(tmp_path: Path) -> None:
    settings = {"stock_frame_bytes": 5000}
    async with serving(tmp_path, settings=settings, messages=300) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            sizes: list[int] = []
            while sum(sizes) < run.log.end:
                sizes.append(len((await slave.frame())[1]))
            assert max(sizes) == 5000


async def test_a_slave_that_reads_slowly_gets_everything_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"segment_bytes": 8 * MIB}) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            end = run.put(30, size=MIB)
            assert run.only_link.is_blocked
            data = bytearray()
            while len(data) < end:
                offset, body = await slave.frame()
                assert offset == len(data)
                data += body
            assert data == run.bytes_of_log()
            await slave.report(end)
            assert not run.only_link.is_blocked
            assert run.only_link.in_sync


async def test_two_slaves_get_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=100) as run:
        with stock_slave(run) as stock, stranger(run) as peer:
            native = await in_sync_native(run, peer)
            await stock.report(0)
            assert await stock.follow(0, run.log.end) == native.log.data
            end = run.put(50)
            assert await stock.follow(len(native.log.data), end) == run.bytes_of_log(
                len(native.log.data)
            )
            await native.follow(peer, end)
            assert native.log.data == run.bytes_of_log()
            assert {status.in_sync for status in run.server.statistics()} == {True}


async def test_a_slave_that_comes_again_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=100) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
        run.put(100)
        with stranger(run) as peer:
            again = NativePeer(slave.log)
            await again.follow(peer, run.log.end)
            assert again.log.data == run.bytes_of_log()
            assert [status.is_connected for status in run.server.statistics()] == [True]


async def test_a_native_slave_hears_of_news_and_of_a_new_mode_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1, mode=ReplicationMode.ASYNC) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
            assert not slave.link.master.is_sync
            run.master.announce()
            run.server.pump()
            await slave.talk(peer)
            assert slave.link.master.news == 1
            run.master.pending_acks.switch(ReplicationMode.SYNC, run.log.end)
            run.server.pump()
            await slave.talk(peer)
            assert slave.link.master.is_sync


async def test_pump_has_nothing_to_say_when_nothing_is_new(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=10) as run:
        with stranger(run) as peer, stock_slave(run) as stock:
            slave = await in_sync_native(run, peer)
            await stock.report(0)
            await stock.follow(0, run.log.end)
            await slave.talk(peer)
            for _ in range(10):
                run.server.pump()
            await settled()
            assert peer.take() == stock.take() == b""


# ---- what slaves hold, and who waits for it -----------------------------------------------------


async def test_one_report_answers_all_sends_it_covers(tmp_path: Path) -> None:
    async with serving(tmp_path) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            answers = [run.ask(run.append()) for _ in range(5)]
            late = run.ask(run.append())
            run.server.pump()
            assert answers == [[]] * 5
            await slave.frame()
            await slave.report(run.log.end - 1)
            assert answers == [[AckOutcome.REPLICATED]] * 5
            assert late == []
            await slave.report(run.log.end)
            assert late == [AckOutcome.REPLICATED]
            assert len(run.master.pending_acks) == 0


async def test_a_send_is_answered_at_once_if_nobody_is_there_to_wait_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as run:
        assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]
        assert run.master.counters.unavailable == 1


async def test_an_asynchronous_master_waits_for_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path, mode=ReplicationMode.ASYNC) as run:
        assert run.ask(run.put()) == [AckOutcome.REPLICATED]


async def test_two_slaves_are_needed_when_the_rules_say_so(tmp_path: Path) -> None:
    async with serving(tmp_path, rules=InSyncRules(needed=2), messages=1) as run:
        with stranger(run) as first, stranger(run) as second:
            one = await in_sync_native(run, first, store_id=b"1" * 16)
            assert run.ask(run.log.end) == [AckOutcome.NOT_AVAILABLE]
            two = await in_sync_native(run, second, store_id=b"2" * 16)
            answer = run.ask(run.put())
            await one.follow(first, run.log.end)
            assert answer == []
            await two.follow(second, run.log.end)
            assert answer == [AckOutcome.REPLICATED]


async def test_a_slave_that_connects_anew_ends_its_old_connection(tmp_path: Path) -> None:
    async with serving(tmp_path, rules=InSyncRules(needed=2), messages=1) as run:
        with stranger(run) as first, stranger(run) as second:
            await in_sync_native(run, first)
            await in_sync_native(run, second)
            await first.wait_closed()
            assert run.only_link.in_sync
            assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]


async def test_a_connection_that_takes_nothing_is_ended_too_when_its_slave_comes_anew(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with serving(tmp_path, store={"segment_bytes": 8 * MIB}) as run:
        with stranger(run) as first, stranger(run) as second:
            old = await in_sync_native(run, first)
            run.put(30, size=MIB)
            assert run.only_link.is_blocked
            new = NativePeer(old.log)
            await new.talk(second)
            mock_clock.jump(1.1)
            await settled()
            assert [status.is_connected for status in run.server.statistics()] == [True]
            await first.wait_closed()


async def test_those_concerned_hear_of_changes(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1) as run:
        counts: list[int] = []
        visible: list[int] = []
        slaves, pending_acks = run.master.slaves, run.master.pending_acks
        run.server.listen(
            HaServerListener(
                in_sync_changed=lambda: counts.append(slaves.in_sync_count),
                visible_moved=lambda: visible.append(pending_acks.visible),
            )
        )
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
            assert counts == [1]
            end = run.put()
            await slave.follow(peer, end)
            assert visible[-1] == end
        await settled()
        assert counts == [1, 0]


async def test_a_slave_that_leaves_is_remembered_with_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=1) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
        await settled()
        status = run.only_link
        assert (status.is_connected, status.in_sync) == (False, False)
        assert status.why == "it closed the connection"
        assert status.appended == slave.log.end
        assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]


async def test_waiting_sends_are_answered_when_the_server_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.report(0)
            answer = run.ask(run.put())
            assert answer == []
            await slave.frame()
    assert answer == [AckOutcome.NOT_AVAILABLE]


# ---- the end of links ---------------------------------------------------------------------------


async def test_links_leave_no_files_open(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=2000) as run:
        await settled()
        before = open_files()
        for _ in range(3):
            with stock_slave(run) as slave:
                await slave.report(0)
                await slave.follow(0, run.log.end)
            await settled()
        assert open_files() == before


async def test_expired_bytes_end_the_link_of_a_slave_that_needs_them(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=3000) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            offset, body = await slave.frame()
            assert (offset, run.bytes_of_log(0, len(body))) == (0, body)
            run.store.request_cleaning()
            drop_first_segments(run, 4)
            assert run.log.begin > 0
            data = await slave.wait_closed()
            # All that came is what it should be, whole frames or not.
            position = len(body)
            while len(data) >= TRANSFER.size:
                offset, size = TRANSFER.unpack_from(data)
                assert offset == position
                data = data[TRANSFER.size + size :]
                position += size
            assert "have expired" in run.only_link.why


def drop_first_segments(run: Serving, count: int) -> None:
    """Delete the oldest segments, as retention does."""
    for _ in range(count):
        run.store.log.segments.drop_first()


# ---- the server itself --------------------------------------------------------------------------


async def test_a_port_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as run:
        second = HaServer(run.master, run.log, HaServerConfig(host=HOST, port=run.port))
        with pytest.raises(ListenError) as caught:
            await second.run()
        assert f"{HOST}:{run.port}" in str(caught.value)
        assert caught.value.hint is not None


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"tls_required": True}, id="TLS without a certificate"),
        pytest.param({"links_max": 0}, id="no links"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        HaServerConfig(**settings)  # type: ignore[arg-type]


async def test_a_native_slave_is_told_to_flush_when_only_that_counts(tmp_path: Path) -> None:
    async with serving(tmp_path, rules=InSyncRules(counts_flushed=True), messages=1) as run:
        with stranger(run) as peer:
            slave = await in_sync_native(run, peer)
            assert slave.link.master.wants_flush
