"""Connections that end, wherever they end, and masters that come and go."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.ha.protocol.wire import DOWN, PREAMBLE
from rmq.ha.slave_connection import PlainConnection
from rmq.ha.slave_status import SlaveState
from tests.ha.following import Hands, Node, following, node
from tests.ha.scripted_masters import CoreMaster, Listener, StockMaster
from tests.store.running import bodies_of

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize(
    "is_native", [pytest.param(True, id="native"), pytest.param(False, id="stock")]
)
async def test_a_connection_cut_at_any_byte_is_taken_up_where_it_ended(
    mock_clock: MockClock, is_native: bool
) -> None:
    async with node() as source:
        source.put(1)
        master: CoreMaster | StockMaster
        master = CoreMaster(source) if is_native else StockMaster(source)
        dialect = "native" if is_native else "stock"
        async with trio.open_nursery() as nursery:
            await nursery.start(master.run)
            # How much there is to be cut, greeting and all.
            async with node() as copy:
                hands = Hands(mock_clock, [source.limiter, copy.limiter])
                async with following(copy, None, dialect=dialect) as slave:
                    slave.runner.point_to(master.address, None)
                    await hands.until(lambda: copy.log.end == source.log.end)
            total = len(master.sent[0])
            assert total > source.log.end
            # Every byte of the frame with the log, and places all over the greeting before it.
            frame = total - source.log.end - DOWN.size
            for cut in [*range(1, frame, 7), *range(max(1, frame), total)]:
                async with node() as copy:
                    hands = Hands(mock_clock, [source.limiter, copy.limiter])
                    master.cut_after = cut
                    accepted = master.accepted
                    async with following(copy, None, dialect=dialect) as slave:
                        slave.runner.point_to(master.address, None)
                        await hands.settle()
                        assert copy.log.end < source.log.end or cut >= total - 100
                        master.cut_after = None
                        waited_s = await hands.until(lambda: copy.log.end == source.log.end)
                        assert waited_s < 0.5
                        assert copy.bytes == source.bytes
                        await hands.settle()
                        assert bodies_of(copy.core) == bodies_of(source.core)
                        assert master.accepted > accepted
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "is_native", [pytest.param(True, id="native"), pytest.param(False, id="stock")]
)
async def test_a_master_that_is_silent_for_twenty_seconds_is_dialled_again(
    mock_clock: MockClock, is_native: bool
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        master: CoreMaster | StockMaster
        master = CoreMaster(source) if is_native else StockMaster(source)
        async with following(copy, master, dialect="native" if is_native else "stock") as slave:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            # The other end is there for the system only.
            master.is_mute = True
            await hands.pass_time(19.9)
            assert master.accepted == 1
            await hands.pass_time(0.6)
            assert master.accepted == 2
            assert "silent for 20" in (slave.runner.status.last_error or "")
            source.put(3)
            master.unmute()
            await hands.until(lambda: copy.bytes == source.bytes, 45)
            # The master's second link sees nothing of the first one's end, and serves.
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)


async def test_a_slave_dials_soon_at_first_and_then_less_often(mock_clock: MockClock) -> None:
    class Hangup(Listener):
        """Hangs up on everyone."""

        times: list[float] = []  # noqa: RUF012 - one listener only

        async def serve(self, number: int, stream: trio.abc.Stream) -> None:
            self.times.append(trio.current_time())

    async with node() as copy:
        hands = Hands(mock_clock, [copy.limiter])
        master = Hangup()
        async with following(copy, master) as slave:
            await hands.pass_time(12, 0.05)
            assert slave.state() is SlaveState.CONNECTING
            assert slave.runner.status.last_error is not None
        pauses = [round(b - a, 1) for a, b in zip(master.times, master.times[1:], strict=False)]
        assert pauses[:3] == pytest.approx([0.2, 0.4, 0.8], abs=0.11)
        assert pauses[3:] == pytest.approx([1.0] * len(pauses[3:]), abs=0.11)
        assert len(pauses) > 10


async def test_a_master_that_was_restarted_is_found_within_a_moment(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        master = CoreMaster(source)
        async with following(copy, master) as slave, trio.open_nursery() as nursery:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            await hands.pass_time(2)
            master.stop()
            await hands.settle()
            assert slave.state() is SlaveState.CONNECTING
            assert slave.runner.status.lag_s >= 0
            await hands.pass_time(0.5)
            again = CoreMaster(source)
            again.port = master.port
            await nursery.start(again.run)
            source.put(3)
            waited_s = await hands.until(lambda: copy.bytes == source.bytes)
            assert waited_s < 1
            told = [record for record in caplog.records if "ended" in record.getMessage()]
            assert len(told) == 2, "that it ended, and why it cannot be dialled, each once"
            nursery.cancel_scope.cancel()


async def test_a_native_master_that_hangs_is_not_taken_for_a_stock_one(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            master.is_mute = True
            # It is dialled again after 20 s, and its silence is no answer yet.
            await hands.pass_time(24)
            assert master.accepted == 2
            master.unmute()
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            assert slave.runner.status.is_native


async def test_a_slave_that_is_stopped_in_the_middle_of_a_frame_leaves_a_sound_log(
    mock_clock: MockClock,
) -> None:
    async with node() as source:
        source.put(50, size=500)
        async with node() as copy:
            hands = Hands(mock_clock, [source.limiter, copy.limiter])
            master = CoreMaster(source)
            master.cut_after = 7000
            async with following(copy, master):
                await hands.settle()
                assert 0 < copy.log.end < source.log.end
        assert copy.storage is not None
        async with node(storage=copy.storage) as again:
            hands = Hands(mock_clock, [source.limiter, again.limiter])
            assert again.core.recovery.was_clean
            master.cut_after = None
            async with following(again, CoreMaster(source)):
                await hands.until(lambda: again.bytes == source.bytes)
                await hands.settle()
                assert bodies_of(again.core) == bodies_of(source.core)


class Deaf(CoreMaster):
    """Sends, but reads nothing behind the greeting until it is told to."""

    def __init__(self, source: Node, **settings: int) -> None:
        super().__init__(source, **settings)
        self.hears = trio.Event()
        self.buffer_bytes = 1024

    async def receive(self, number: int, stream: trio.abc.Stream) -> bytes:
        if len(self.received[number]) > len(PREAMBLE):
            await self.hears.wait()
        return await super().receive(number, stream)


async def test_a_master_that_does_not_read_gets_the_newest_report_later(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PlainConnection] = []

    async def dial(
        address: str, tls_context: object, timeout_s: float, *, master_name: str | None
    ) -> PlainConnection:
        host, _, port = address.rpartition(":")
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024)
        sock.connect((host, int(port)))
        made.append(PlainConnection(sock))
        return made[-1]

    monkeypatch.setattr("rmq.ha.slave.dial", dial)
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = Deaf(source)
        async with following(copy, master) as slave:
            await hands.settle()
            for _ in range(200):
                master.put(1)
                await hands.settle()
            assert copy.bytes == source.bytes, "what it says does not hold up what it hears"
            assert made[0].has_unsent
            assert master.appended < source.log.end
            sent = slave.runner.counters.reports
            assert sent < 150
            master.hears.set()
            await hands.settle()
            assert master.appended == source.log.end
            assert slave.runner.counters.reports <= sent + 2, "older ones were left out"
            assert master.accepted == 1
