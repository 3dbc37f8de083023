"""A slave follows a native master: what it appends, what it reports, and how it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rmq.ha.protocol.wire import CatchUp
from rmq.ha.slave_status import SlaveState
from rmq.model.offsets import PhysicalOffset
from tests.ha.following import Hands, following, node
from tests.ha.scripted_masters import CoreMaster
from tests.store.running import bodies_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


async def test_a_slave_gets_what_its_master_has_and_what_comes_later(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with node() as source, node(tmp_path) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1500)
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            assert await hands.until(lambda: master.appended == source.log.end) < 1
            assert slave.state() is SlaveState.STREAMING
            assert len(source.core.log.segments) > 5
            master.put(10)
            await hands.settle()
            assert copy.bytes == source.bytes
            assert master.appended == source.log.end
            assert bodies_of(copy.core) == bodies_of(source.core)
            status = slave.runner.status
            assert (status.is_native, status.lag_bytes, status.lag_s) == (True, 0, 0)
            assert status.received_bytes == source.log.end
            assert status.master.address == "127.0.0.1:10911"


async def test_the_first_dial_is_at_once_and_the_greeting_is_the_first_report(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        master = CoreMaster(source)
        async with following(copy, master):
            await hands.settle()
            # Not a moment has passed.
            assert master.appended == source.log.end
            assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("catch_up", "begins_at_last"),
    [
        pytest.param(CatchUp.OLDEST, False, id="oldest"),
        pytest.param(CatchUp.LAST_FILE, True, id="last file"),
    ],
)
async def test_an_empty_slave_begins_where_it_was_told_to(
    mock_clock: MockClock, catch_up: CatchUp, begins_at_last: bool
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        last = source.log.end - source.log.end % source.log.segment_bytes
        assert last > 0
        master = CoreMaster(source)
        async with following(copy, master, catch_up=catch_up) as slave:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            begin = last if begins_at_last else 0
            assert copy.log.begin == begin
            assert copy.bytes == source.bytes[begin:]
            # What it has is readable, though the queues begin in the middle.
            await hands.settle()
            assert copy.store.statistics().dispatched == source.log.end


@pytest.mark.parametrize("frame_bytes", [100, 512 * 1024], ids=["small frames", "large frames"])
async def test_an_empty_slave_of_a_master_whose_first_segments_have_gone_begins_behind_them(
    mock_clock: MockClock, frame_bytes: int
) -> None:
    settings: dict[str, Any] = {"segment_bytes": 64 * 1024}
    async with node(**settings) as source, node(**settings) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        source.core.log.segments.drop_first()
        begin = source.log.begin
        assert begin == source.log.segment_bytes
        master = CoreMaster(source, frame_bytes=frame_bytes)
        async with following(copy, master) as slave:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            assert copy.log.begin == begin
            assert copy.bytes == source.bytes


async def test_an_empty_slave_of_an_empty_master_gets_the_first_message(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            master.put(1)
            await hands.settle()
            assert (copy.bytes, bodies_of(copy.core)) == (source.bytes, bodies_of(source.core))


async def test_a_slave_that_has_a_part_goes_on_from_there(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    async with node() as source:
        source.put(200)
        for _ in range(3):
            source.put(150)
            async with node(tmp_path) as copy:
                hands = Hands(mock_clock, [source.limiter, copy.limiter])
                before = copy.log.end
                master = CoreMaster(source)
                async with following(copy, master) as slave:
                    await hands.settle()
                    assert master.appended == source.log.end
                    assert slave.runner.status.received_bytes == source.log.end - before
                    assert copy.bytes == source.bytes
                await hands.settle()
                assert bodies_of(copy.core) == bodies_of(source.core)


async def test_reports_go_out_every_five_seconds_of_silence_and_keep_the_link_alive(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            sizes = []
            for _ in range(4):
                before = len(master.received[0])
                await hands.pass_time(5.05)
                sizes.append(len(master.received[0]) - before)
            assert all(size > 0 for size in sizes), sizes
            await hands.pass_time(600, 1)
            assert (master.accepted, slave.runner.status.connects) == (1, 1)


async def test_frames_that_arrive_together_are_reported_once(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source, frame_bytes=64)
        async with following(copy, master) as slave:
            await hands.settle()
            reports = slave.runner.counters.reports
            # More than a hundred frames, in the socket before the slave has its turn.
            source.put(100)
            master.grew()
            await hands.settle()
            assert copy.bytes == source.bytes
            frames = source.log.end // 64
            assert frames > 100
            assert slave.runner.counters.reports - reports <= frames / 8


async def test_large_frames_go_into_the_log_without_a_read_per_message(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"segment_bytes": 4 * 1024 * 1024}
    async with node(**settings) as source, node(tmp_path, **settings) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3000, size=1000)
        master = CoreMaster(source, frame_bytes=512 * 1024)
        async with following(copy, master) as slave:
            await hands.until(lambda: master.appended == source.log.end)
            assert copy.bytes == source.bytes
            assert slave.runner.counters.reads < 500


async def test_news_of_the_master_is_passed_on_once(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        master.master.announce()
        async with following(copy, master) as slave:
            await hands.settle()
            before = slave.news
            assert before >= 1, "whoever connects has missed some"
            master.put(5)
            await hands.pass_time(11)
            assert slave.news == before
            master.master.announce()
            master.grew()
            await hands.settle()
            assert slave.news == before + 1


async def test_who_waits_for_an_offset_is_woken_when_it_is_there(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(10)
        wanted = source.log.end
        woken: list[str] = []
        master = CoreMaster(source)
        async with following(copy, master) as slave, trio.open_nursery() as nursery:

            async def wait(offset: int, name: str) -> None:
                await slave.runner.wait_caught_up(PhysicalOffset(offset))
                woken.append(name)

            nursery.start_soon(wait, wanted, "now")
            nursery.start_soon(wait, wanted + 1, "later")
            nursery.start_soon(wait, 0, "at once")
            await hands.settle()
            assert sorted(woken) == ["at once", "now"]
            master.put(1)
            await hands.settle()
            assert sorted(woken) == ["at once", "later", "now"]


# --- another master -------------------------------------------------------------------------------


async def test_a_slave_without_a_master_waits_for_one(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        async with following(copy, None) as slave, trio.open_nursery() as nursery:
            await hands.pass_time(10)
            assert slave.state() is SlaveState.IDLE
            source.put(3)
            master = CoreMaster(source)
            await nursery.start(master.run)
            slave.runner.point_to(master.address, None)
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            slave.runner.point_to(master.address, None)
            await hands.settle()
            assert master.accepted == 1, "what it knew already changes nothing"
            slave.runner.point_to(None, None)
            await hands.settle()
            assert slave.state() is SlaveState.IDLE
            assert len(master.master.slaves) == 0
            source.put(1)
            master.grew()
            await hands.pass_time(10)
            assert copy.log.end < source.log.end
            nursery.cancel_scope.cancel()


async def test_a_slave_changes_to_another_master_at_once(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        first, second = CoreMaster(source), CoreMaster(source, epoch=2)
        async with following(copy, first) as slave, trio.open_nursery() as nursery:
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            await nursery.start(second.run)
            slave.runner.point_to(second.address, None)
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            assert (len(first.master.slaves), len(second.master.slaves)) == (0, 1)
            assert slave.adopted == [(2, source.log.end)]
            nursery.cancel_scope.cancel()


async def test_an_address_that_cannot_be_dialled_is_shown_and_left_for_a_better_one(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        async with following(copy, None) as slave, trio.open_nursery() as nursery:
            slave.runner.point_to("nowhere", None)
            await hands.pass_time(3)
            assert slave.state() is SlaveState.CONNECTING
            assert "'nowhere' is not host:port" in (slave.runner.status.last_error or "")
            await nursery.start(master.run)
            slave.runner.point_to(master.address, None)
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            assert slave.runner.status.last_error is None
            nursery.cancel_scope.cancel()
