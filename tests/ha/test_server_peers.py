"""Who may replicate and who may not: garbage, forgeries, floods, and slaves that do not keep up.

Whatever comes in, a send is answered only by what slaves really hold, and the broker goes on.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.ha import server as server_module
from rmq.ha.protocol.pending_acks import AckOutcome
from rmq.ha.protocol.wire import DOWN, PREAMBLE, REPORT, TRANSFER, DownKind, read_down
from rmq.ha.server import NEWCOMER_S
from rmq.log_limits import LINES_PER_SOURCE
from tests.ha.protocol.kit_master import (
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

    from trio.testing import MockClock

TLS_HELLO = bytes.fromhex("16030100f4010000f00303")


# ---- forgeries and garbage ----------------------------------------------------------------------


async def test_a_first_report_of_more_than_there_is_changes_nothing(tmp_path: Path) -> None:
    # RocketMQ 4.9.8 takes it, and from then on answers every send as if it were replicated.
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as forger:
            await forger.report(10**12)
            assert await forger.wait_closed() == b""
            assert run.master.counters.forged == 1
            assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]
        with stock_slave(run) as slave:
            await slave.report(run.log.end)
            await slave.report(run.log.end)
            answer = run.ask(run.put())
            with stock_slave(run) as forger:
                await forger.report(10**12)
                await forger.wait_closed()
            assert answer == []
            await slave.frame()
            await slave.report(run.log.end)
            assert answer == [AckOutcome.REPLICATED]


async def test_a_later_report_of_more_than_was_sent_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as forger:
            await forger.report(run.log.end)
            answer = run.ask(run.append())
            await forger.report(run.log.end)
            forger.take()
            assert forger.is_closed
            assert run.master.counters.forged == 1
            assert answer == [] or answer == [AckOutcome.NOT_AVAILABLE]
            assert not run.only_link.is_connected


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(REPORT.pack(-1), id="a negative report"),
        pytest.param(REPORT.pack(-(2**63)), id="the most negative report"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(b"\x00\x00\x00\x70\x00\x00\x00\x60{}", id="remoting"),
        pytest.param(b"\x7f" * 4096, id="garbage"),
        pytest.param(PREAMBLE[:-1] + b"\x09", id="a version nobody knows"),
        pytest.param(PREAMBLE + b"\xff" * 8192, id="a greeting of ones"),
        pytest.param(TLS_HELLO, id="TLS"),
    ],
)
async def test_garbage_is_turned_away(tmp_path: Path, said: bytes) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stranger(run) as peer:
            await peer.say(said)
            answer = await peer.wait_closed()
            if said.startswith(PREAMBLE):
                # It was asked to prove itself; nothing else was said.
                assert read_down(answer[: DOWN.size]).kind == DownKind.CHALLENGE
                answer = answer[DOWN.size + read_down(answer[: DOWN.size]).size :]
            assert answer == b""
        counters = run.master.counters
        assert counters.refused + counters.forged == 1
        assert run.server.statistics() == []
        assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]


async def test_tls_on_a_plain_port_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as run:
        with stranger(run) as peer:
            await peer.say(TLS_HELLO)
            await peer.wait_closed()
            assert run.master.counters.refused == 1
    assert "it speaks TLS, and this master does not (haTlsMode)" in caplog.text


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(min_size=1, max_size=64), min_size=1, max_size=8))
def test_nothing_a_peer_says_makes_it_hold_anything(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    async def main() -> None:
        async with serving(tmp_path_factory.mktemp("log"), messages=3) as run:
            with stranger(run) as peer:
                for piece in (PREAMBLE, *pieces):
                    await peer.say(piece)
                    peer.take()
                    if peer.is_closed:
                        break
                assert run.ask(run.put()) == [AckOutcome.NOT_AVAILABLE]
                assert run.master.slaves.replicated == -1

    trio.run(main)


async def test_reports_may_come_one_byte_at_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            for byte in REPORT.pack(0):
                assert slave.take() == b""
                await slave.say(bytes([byte]))
            assert await slave.frame() == (0, run.bytes_of_log())
            answer = run.ask(run.log.end)
            for byte in REPORT.pack(run.log.end):
                await slave.say(bytes([byte]))
            assert run.only_link.in_sync
            assert answer == [AckOutcome.NOT_AVAILABLE]
            assert run.ask(run.log.end) == [AckOutcome.REPLICATED]


async def test_a_hundred_reports_in_one_piece_count_as_the_last_one(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=100) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.follow(0, run.log.end)
            await slave.say(b"".join(REPORT.pack(run.log.end - 100 + i) for i in range(101)))
            assert run.only_link.appended == run.log.end


async def test_a_link_cut_in_the_middle_of_a_frame_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"segment_bytes": 8 * MIB}) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            run.put(4, size=MIB)
            assert run.only_link.is_blocked
            await slave.read(TRANSFER.size + 1000)
        await settled()
        assert not run.only_link.is_connected
        assert run.only_link.why
        with stock_slave(run) as again:
            await again.report(1000)
            assert await again.follow(1000, run.log.end) == run.bytes_of_log(1000)


async def test_who_leaves_in_the_middle_of_a_report_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await slave.report(run.log.end)
            await slave.say(b"\x00\x00\x00")
        await settled()
        assert run.only_link.why == "it closed the connection"


# ---- slaves that do not keep up -----------------------------------------------------------------


async def test_a_slave_that_never_reads_costs_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"segment_bytes": 16 * MIB}) as run:
        with stock_slave(run) as stuck, stranger(run) as peer:
            await stuck.report(0)
            slave = NativePeer(MemoryLog(run.log.segment_bytes))
            await slave.talk(peer)
            run.put(4, size=256 * KIB)
            gc.collect()
            before = len(gc.get_objects())
            for _ in range(60):
                end = run.put(1, size=256 * KIB)
                await slave.follow(peer, end)
            gc.collect()
            assert len(gc.get_objects()) - before < 1000
            statuses = {status.is_native: status for status in run.server.statistics()}
            assert statuses[False].is_blocked
            assert statuses[False].sent_bytes < MIB
            assert statuses[True].in_sync
            assert slave.log.data == run.bytes_of_log()


async def test_a_slave_that_never_reads_does_not_keep_expired_files(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, store={"segment_bytes": 512 * KIB}) as run:
        with stock_slave(run) as stuck:
            await stuck.report(0)
            run.put(40, size=64 * KIB)
            assert run.only_link.is_blocked
            assert [name for name in open_files() if name.startswith(str(tmp_path))]
            segments = run.store.log.segments
            while segments.first < run.log.end - MIB:
                segments.drop_first()
            mock_clock.jump(1.1)
            await settled()
            assert "have expired" in run.only_link.why
            assert [name for name in open_files() if name.endswith("(deleted)")] == []


# ---- who may connect ----------------------------------------------------------------------------


async def test_the_sixty_fifth_link_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await slave.report(run.log.end)
            await slave.report(run.log.end)
            silent = [stranger(run) for _ in range(63)]
            peers = [each.__enter__() for each in silent]
            await settled()
            with stranger(run) as late:
                assert await late.wait_closed() == b""
            assert run.master.counters.refused == 1
            assert "64 connections are open, the limit" in caplog.text
            # Those who were there first are served as before.
            answer = run.ask(run.put())
            await slave.frame()
            await slave.report(run.log.end)
            assert answer == [AckOutcome.REPLICATED]
            silent[0].__exit__(None, None, None)
            await settled()
            with stock_slave(run) as next_one:
                await next_one.report(0)
                assert await next_one.follow(0, run.log.end) == run.bytes_of_log()
            for each in silent[1:]:
                each.__exit__(None, None, None)
            assert len(peers) == 63


async def test_strangers_that_say_nothing_do_not_keep_a_slave_out(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with ExitStack() as strangers:
            peers = [strangers.enter_context(stranger(run)) for _ in range(64)]
            await settled()
            mock_clock.jump(NEWCOMER_S)
            with stock_slave(run) as slave:
                await slave.report(0)
                await settled()
                assert [each.is_connected for each in run.server.statistics()] == [True]
                assert [each.take() for each in peers] == [b""] * 64
                assert [each.is_closed for each in peers].count(True) == 1
            assert run.master.counters.refused == 0


async def test_who_is_not_on_the_list_is_not_listened_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = (ipaddress.ip_network("10.0.0.0/8"),)
    async with serving(tmp_path, messages=3, allowed=allowed) as run:
        with dialled(run) as refused:
            assert await refused.wait_closed() == b""
        assert "its address is not among haAllowedAddresses" in caplog.text
        assert (run.master.counters.refused, run.master.counters.accepted) == (1, 0)
        with stock_slave(run, "10.1.2.3") as slave:
            await slave.report(0)
            assert await slave.follow(0, run.log.end) == run.bytes_of_log()
        # The list may change while the server runs.
        run.server.allowed = (ipaddress.ip_network("127.0.0.0/8"),)
        with dialled(run) as peer:
            taken_in = NativePeer(MemoryLog(run.log.segment_bytes))
            await taken_in.follow(peer, run.log.end)


async def test_a_slave_without_the_secret_is_told_and_turned_away(tmp_path: Path) -> None:
    secret = {"secret": b"sixteen letters."}
    async with serving(tmp_path, messages=3, settings=secret) as run:
        with stranger(run) as peer:
            slave = NativePeer(MemoryLog(run.log.segment_bytes), secret=b"something else..")
            await slave.talk(peer)
            assert slave.link.ending is not None
            assert slave.log.end == 0
            await peer.wait_closed()
        with stock_slave(run) as stock:
            await stock.report(0)
            assert await stock.wait_closed() == b""
        assert run.master.counters.refused == 2
        with stranger(run) as peer:
            genuine = NativePeer(MemoryLog(run.log.segment_bytes), secret=secret["secret"])
            await genuine.follow(peer, run.log.end)
            assert run.only_link.in_sync


async def test_a_slave_that_differs_is_told_why_before_the_link_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, messages=30) as run:
        with stranger(run) as peer:
            other = bytes(run.log.end)
            slave = NativePeer(MemoryLog(run.log.segment_bytes, other))
            await slave.talk(peer)
            assert slave.link.ending is not None
            assert slave.link.ending.kind.name == "DIVERGED"
            await peer.wait_closed()
            assert not peer.was_reset
            assert run.master.counters.diverged == 1


# ---- what is written down -----------------------------------------------------------------------


async def test_the_life_of_a_slave_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path, messages=3) as run:
        with stranger(run) as peer:
            slave = NativePeer(MemoryLog(run.log.segment_bytes))
            await slave.follow(peer, run.log.end)
        await settled()
        end = run.log.end
    assert [record.getMessage() for record in caplog.records if "slave" in record.getMessage()] == [
        f"slave broker-a:1 connected from 127.0.0.1:1 (native), it gets the log from 0 on,"
        f" {end} bytes",
        f"slave broker-a:1 is in sync at {end}",
        "slave broker-a:1 at 127.0.0.1:1 is gone: it closed the connection",
    ]


async def test_a_host_that_floods_the_port_does_not_flood_the_log(
    tmp_path: Path, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, messages=3) as run:
        for _ in range(3 * LINES_PER_SOURCE):
            with stock_slave(run) as forger:
                await forger.report(10**12)
                await forger.wait_closed()
        with stock_slave(run, "10.0.0.1") as other:
            await other.report(10**12)
            await other.wait_closed()
        assert run.master.counters.forged == 3 * LINES_PER_SOURCE + 1
        lines = [record.getMessage() for record in caplog.records]
        assert len([line for line in lines if line.startswith("127.0.0.1")]) == LINES_PER_SOURCE
        assert len([line for line in lines if line.startswith("10.0.0.1")]) == 1
        mock_clock.jump(60)
        with stock_slave(run) as forger:
            await forger.report(10**12)
            await forger.wait_closed()
        assert f"suppressed {2 * LINES_PER_SOURCE} lines about 127.0.0.1" in caplog.text


async def test_a_port_scan_leaves_no_trace_but_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as run:
        with stranger(run):
            await settled()
        await settled()
        assert run.master.counters.accepted == 1
        assert run.master.counters.refused == 0
    assert caplog.records == []


async def test_an_error_in_one_link_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, messages=3) as run:
        with stock_slave(run) as slave:
            await slave.report(0)
            await slave.follow(0, run.log.end)

            def fail(*_: object) -> None:
                raise ValueError("a mistake")

            with monkeypatch.context() as patch:
                patch.setattr(server_module, "PlainChannel", fail)
                with stranger(run) as unlucky:
                    await unlucky.say(REPORT.pack(0))
                    await unlucky.wait_closed()
            assert "a mistake" in caplog.text
            end = run.put()
            assert run.only_link.is_connected
            await slave.follow(run.only_link.appended, end)
            assert run.only_link.in_sync
