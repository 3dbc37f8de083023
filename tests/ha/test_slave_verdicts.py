"""Masters that must not be followed, and bytes that must not be taken: nothing is appended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from rmq.errors import ConfigError
from rmq.ha.protocol.slave_link import FRAME_BYTES_MAX
from rmq.ha.protocol.wire import DownHeader, DownKind, pack_down
from rmq.ha.slave_status import SlaveState
from rmq.model.offsets import PhysicalOffset
from tests.ha.following import Hands, Node, Slave, following, node
from tests.ha.scripted_masters import HEADER, CoreMaster, StockMaster
from tests.store.running import message

if TYPE_CHECKING:
    from trio.testing import MockClock


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_slave_that_is_ahead_of_its_master_stops_and_says_so_once(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        copy.put(4)
        before = copy.bytes
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.pass_time(12)
            assert slave.state() is SlaveState.DIVERGED
            status = slave.runner.status
            assert status.diverged_at == source.log.end
            assert "ends at" in (status.last_error or "")
            assert master.accepted == 3, "it is greeted again every 5 s"
            # It stays so when the master has grown beyond it.
            source.put(10)
            source.store.append([message(b"x" * 90000)])
            master.grew()
            await hands.pass_time(12)
            assert slave.state() is SlaveState.DIVERGED
            assert copy.bytes == before
        assert len(errors(caplog)) == 1
        assert "rmq ha resync" in errors(caplog)[0]


async def test_a_slave_whose_tail_is_another_stops(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        copy.store.append([message(b"%06d" % number) for number in range(3)])
        before = copy.bytes
        async with following(copy, CoreMaster(source)) as slave:
            await hands.pass_time(6)
            assert slave.state() is SlaveState.DIVERGED
            assert "differ between" in (slave.runner.status.last_error or "")
            assert copy.bytes == before


async def test_a_slave_follows_again_when_the_master_is_the_right_one(
    mock_clock: MockClock,
) -> None:
    async with node() as wrong, node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter, wrong.limiter])
        source.put(5)
        copy.core.append_raw(PhysicalOffset(0), source.bytes)
        wrong.put(1)
        master = CoreMaster(wrong)
        async with following(copy, master) as slave:
            await hands.pass_time(6)
            assert slave.state() is SlaveState.DIVERGED
            # A master that was set up anew at the same address.
            master.node, master.master.log = source, source.log
            await hands.pass_time(6)
            assert slave.state() is SlaveState.STREAMING
            assert slave.runner.status.diverged_at is None


async def test_a_master_of_an_older_epoch_is_not_followed(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        async with following(copy, CoreMaster(source, epoch=3), epoch=4) as slave:
            await hands.pass_time(12)
            assert slave.state() is SlaveState.STALE
            assert copy.log.end == 0
            assert slave.adopted == []
        assert len(errors(caplog)) == 1
        assert "epoch 3" in errors(caplog)[0]
        assert "rmq ha demote" in errors(caplog)[0]


async def test_a_slave_that_needs_what_has_expired_is_seeded_anew(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        copy.core.append_raw(PhysicalOffset(0), source.bytes[:5000])
        source.core.log.segments.drop_first()
        async with following(copy, CoreMaster(source)) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.RESEEDING
            ((offset, reason),) = slave.reseeds
            assert offset == source.log.begin
            assert "begins at" in reason
            await hands.pass_time(4)
            assert len(slave.reseeds) == 1
            # Should nothing come of it, it is asked for again.
            await hands.pass_time(2)
            assert len(slave.reseeds) == 2
            assert copy.log.end == 5000


async def test_a_slave_that_was_cut_to_nothing_is_seeded_anew_where_its_master_begins(
    mock_clock: MockClock,
) -> None:
    async with node() as source:
        source.put(1000)
        async with node() as copy:
            # The beginning of a record: a clean stop cuts it off, and the segment stays.
            copy.core.append_raw(PhysicalOffset(0), source.bytes[:50])
        source.core.log.segments.drop_first()
        async with node(storage=copy.storage) as again:
            assert (again.log.end, len(again.core.log.segments)) == (0, 1)
            hands = Hands(mock_clock, [source.limiter, again.limiter])
            async with following(again, CoreMaster(source)) as slave:
                await hands.settle()
                assert slave.state() is SlaveState.RESEEDING
                assert [offset for offset, _ in slave.reseeds] == [source.log.begin]
                assert again.log.end == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"cluster": "other"}, "a slave of other/broker-a", id="another cluster"),
        pytest.param({"broker_name": "broker-b"}, "a slave of C/broker-b", id="another broker"),
        pytest.param({"store_id": b"m" * 16}, "the same store", id="a copy of the master"),
        pytest.param({"secret": b"wrong"}, "does not know the secret", id="another secret"),
    ],
)
async def test_a_slave_that_is_refused_stops_and_says_why(
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    reason: str,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        secret = b"right" if "secret" in options else b""
        async with following(copy, CoreMaster(source, secret=secret), **options) as slave:
            await hands.pass_time(12)
            assert slave.state() is SlaveState.REFUSED
            assert reason in (slave.runner.status.last_error or "")
            assert copy.log.end == 0
        assert len(errors(caplog)) == 1
        assert reason in errors(caplog)[0]


async def test_a_secret_that_only_the_master_has_is_asked_for(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        async with following(copy, CoreMaster(source, secret=b"s")) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.REFUSED
            assert "haSecret is not set here" in (slave.runner.status.last_error or "")


async def test_a_master_that_does_not_know_the_secret_gets_and_gives_nothing(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        async with following(copy, CoreMaster(source), secret=b"s") as slave:
            await hands.pass_time(6)
            assert slave.state() is SlaveState.REFUSED
            assert copy.log.end == 0


async def test_who_knows_the_secret_follows(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        async with following(copy, CoreMaster(source, secret=b"s"), secret=b"s") as slave:
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            assert copy.bytes == source.bytes


async def test_a_slave_with_segments_of_another_size_is_refused(mock_clock: MockClock) -> None:
    async with node() as source, node(segment_bytes=32 * 1024) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        async with following(copy, CoreMaster(source)) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.REFUSED
            assert "mappedFileSizeCommitLog is 32768 on the slave and 16384 on the master" in (
                slave.runner.status.last_error or ""
            )


# --- what makes no sense --------------------------------------------------------------------------


async def follow_frames(hands: Hands, source: Node, copy: Node, frames: list[bytes]) -> Slave:
    """Let a slave hear these frames of a stock master, three times."""
    master = StockMaster(source)
    master.frames = frames
    async with following(copy, master, dialect="stock") as slave:
        await hands.pass_time(1)
        assert master.accepted >= 1
        slave.last_status = slave.runner.status
    return slave


@pytest.mark.parametrize(
    ("header", "state", "reason"),
    [
        pytest.param(HEADER.pack(0, -1), "connecting", "a frame of -1 bytes", id="negative size"),
        pytest.param(
            HEADER.pack(0, FRAME_BYTES_MAX + 1),
            "connecting",
            f"a frame of {FRAME_BYTES_MAX + 1} bytes",
            id="huge size",
        ),
        pytest.param(
            HEADER.pack(100, 10), "connecting", "not the beginning of a segment", id="mid segment"
        ),
        pytest.param(
            HEADER.pack(-16384, 10), "connecting", "not the beginning of a segment", id="negative"
        ),
    ],
)
async def test_an_empty_slave_takes_no_frame_that_cannot_be(
    mock_clock: MockClock, header: bytes, state: str, reason: str
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        slave = await follow_frames(hands, source, copy, [header, bytes(10)])
        assert slave.last_status is not None
        assert slave.last_status.state.value == state
        assert reason in (slave.last_status.last_error or "")
        assert copy.log.end == 0
        assert len(copy.core.log.segments) == 0


@pytest.mark.parametrize("offset", [0, 1, 16384, 10**12, -1])
async def test_a_master_that_is_at_another_offset_is_not_followed(
    mock_clock: MockClock, offset: int
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        copy.core.append_raw(PhysicalOffset(0), source.bytes)
        slave = await follow_frames(hands, source, copy, [HEADER.pack(offset, 10), bytes(10)])
        assert slave.last_status is not None
        assert slave.last_status.state is SlaveState.DIVERGED
        assert slave.last_status.diverged_at == offset
        assert copy.bytes == source.bytes


def down(kind: int = DownKind.DATA, *, size: int = 0, offset: int = 0, epoch: int = 1) -> bytes:
    return pack_down(
        DownHeader(
            kind,
            0,
            0,
            0,
            size,
            PhysicalOffset(offset),
            epoch,
            0,
            PhysicalOffset(0),
            PhysicalOffset(0),
            1,
        )
    )


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(down(size=FRAME_BYTES_MAX + 1), "a frame of", id="huge"),
        pytest.param(down(size=10, epoch=7), "bytes of epoch 7 on a link of 1", id="other epoch"),
        pytest.param(down(DownKind.WELCOME), "in the middle of the log", id="a second welcome"),
        pytest.param(down()[:-1] + b"\x00", "checksum", id="damaged"),
        pytest.param(b"GET / HTTP/1.1\r\n" * 4, "checksum", id="something else"),
    ],
)
async def test_a_native_master_that_goes_mad_is_left(
    mock_clock: MockClock, frame: bytes, reason: str
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(2)
        master = CoreMaster(source)
        async with following(copy, master) as slave:
            await hands.settle()
            assert slave.state() is SlaveState.STREAMING
            before = copy.bytes
            await master.interject(frame)
            await hands.settle()
            assert slave.state() is SlaveState.CONNECTING
            assert reason in (slave.runner.status.last_error or "")
            assert copy.bytes == before
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(down(DownKind.CHALLENGE, size=2**32 - 1), id="a challenge of 4 GiB"),
        pytest.param(down(DownKind.DATA, size=100), id="bytes before the greeting"),
        pytest.param(b"\x16\x03\x01" * 30, id="TLS"),
    ],
)
async def test_a_greeting_that_is_none_is_not_waited_for(
    mock_clock: MockClock, frame: bytes
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = StockMaster(source)
        master.frames = [frame + bytes(100)]
        async with following(copy, master, dialect="native") as slave:
            await hands.settle()
            assert slave.state() is SlaveState.CONNECTING
            assert slave.runner.status.last_error is not None
            assert copy.log.end == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"dialect": "both"}, id="no dialect"),
        pytest.param({"dialect": "stock", "secret": b"s"}, id="stock with a secret"),
    ],
)
async def test_a_dialect_that_cannot_be_is_refused_at_once(options: dict[str, Any]) -> None:
    async with node() as copy:
        with pytest.raises(ConfigError, match="haDialect"):
            Slave(copy, **options)
