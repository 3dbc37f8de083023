"""A slave of a stock master: how it finds out what it is, and the bytes that were captured."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.ha.protocol.wire import PREAMBLE
from rmq.ha.slave_status import SlaveState
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import decode_records
from rmq.remoting.client import open_client
from rmq.remoting.protocol import Requests
from rmq.testing.storage import MemoryStorage
from tests.ha.following import Hands, following, node
from tests.ha.scripted_masters import HEADER, OFFSET, CoreMaster, StockMaster, stock_questions
from tests.paths import DATA
from tests.remoting.client_kit import address_of, serving
from tests.store.running import bodies_of, is_of_log

if TYPE_CHECKING:
    from trio.testing import MockClock

CAPTURED: Final = DATA / "ha"
"""Both directions of one connection between a Java master and its slave."""


def captured_log() -> bytes:
    """Return the bytes of the log that the Java master sent."""
    data = (CAPTURED / "master-to-slave.bin").read_bytes()
    log = b""
    position = 0
    while position < len(data):
        offset, size = HEADER.unpack_from(data, position)
        position += HEADER.size
        assert offset == len(log)
        log += data[position : position + size]
        position += size
    return log


@pytest.mark.parametrize("piece_bytes", [5, 1000, pytest.param(10**6, id="whole")])
async def test_what_a_java_master_sent_becomes_the_same_log(
    mock_clock: MockClock, piece_bytes: int
) -> None:
    captured = (CAPTURED / "master-to-slave.bin").read_bytes()
    last_report = (CAPTURED / "slave-to-master.bin").read_bytes()[-OFFSET.size :]
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = StockMaster(source)
        master.frames = [
            captured[start : start + piece_bytes] for start in range(0, len(captured), piece_bytes)
        ]
        master.sends_pieces = True
        async with following(copy, master, dialect="stock"):
            await hands.settle()
            assert copy.bytes == captured_log()
            assert master.received[0][: OFFSET.size] == OFFSET.pack(0)
            assert master.received[0][-OFFSET.size :] == last_report
            await hands.settle()
            assert copy.store.statistics().dispatched == len(captured_log())
            messages = len(list(decode_records(captured_log())))
            assert sum(queue.next_offset for queue in copy.core.queues) == messages == 18


async def test_a_stock_master_is_known_by_its_silence(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        master = StockMaster(source)
        async with following(copy, master) as slave:
            waited_s = await hands.until(lambda: copy.bytes == source.bytes)
            # So the first report comes within a second of the start.
            assert 0.5 <= waited_s < 1
            assert master.received[0] == PREAMBLE
            assert master.reports[1][0] == 0
            assert (slave.state(), slave.runner.status.is_native) == (
                SlaveState.STREAMING,
                False,
            )
            assert master.accepted == 2
            master.put(5)
            await hands.settle()
            assert master.reports[1][-1] == source.log.end
            assert bodies_of(copy.core) == bodies_of(source.core)


async def test_a_stock_master_is_known_by_its_echo(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        master = StockMaster(source)
        # It would be waited for, but the echo comes first.
        async with following(copy, master, native_wait_s=8.0) as slave:
            waited_s = await hands.until(lambda: copy.bytes == source.bytes)
            assert 5 <= waited_s < 5.5
            assert master.sent[0][: len(PREAMBLE)] == PREAMBLE
            assert slave.runner.status.is_native is False


async def test_a_slave_that_is_told_the_stock_dialect_loses_no_time(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        master = StockMaster(source)
        async with following(copy, master, dialect="stock"):
            await hands.settle()
            assert copy.bytes == source.bytes
            assert trio.current_time() == 0
            assert master.received[0][: OFFSET.size] == OFFSET.pack(0)


async def test_a_slave_in_the_stock_dialect_follows_a_master_of_our_own(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        master = CoreMaster(source)
        async with following(copy, master, dialect="stock") as slave:
            await hands.settle()
            assert copy.bytes == source.bytes
            assert master.appended == source.log.end
            assert slave.runner.status.is_native is False


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"dialect": "native"}, id="native"),
        pytest.param({"secret": b"s"}, id="with a secret"),
    ],
)
async def test_a_slave_that_wants_a_native_master_follows_no_stock_one(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        master = StockMaster(source)
        async with following(copy, master, **options) as slave:
            await hands.pass_time(12)
            assert slave.state() is SlaveState.REFUSED
            assert "does not answer as a native one" in (slave.runner.status.last_error or "")
            assert copy.log.end == 0
            assert {bytes(heard) for heard in master.received} == {PREAMBLE}
        assert [record.levelname for record in caplog.records].count("ERROR") == 1


async def test_a_stock_master_that_becomes_a_native_one_is_followed_as_such(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        stock = StockMaster(source)
        async with following(copy, stock) as slave, trio.open_nursery() as nursery:
            await hands.until(lambda: copy.bytes == source.bytes)
            stock.stop()
            await hands.settle()
            native = CoreMaster(source)
            native.port = stock.port
            await nursery.start(native.run)
            native.put(5)
            await hands.until(lambda: copy.bytes == source.bytes)
            assert slave.runner.status.is_native
            nursery.cancel_scope.cancel()


async def test_a_native_master_that_becomes_a_stock_one_is_believed_when_it_shows_it(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        native = CoreMaster(source)
        async with following(copy, native) as slave, trio.open_nursery() as nursery:
            await hands.until(lambda: copy.bytes == source.bytes)
            native.stop()
            await hands.settle()
            stock = StockMaster(source)
            stock.port = native.port
            await nursery.start(stock.run)
            stock.put(5)
            waited_s = await hands.until(lambda: copy.bytes == source.bytes)
            assert 5 <= waited_s < 7
            assert slave.runner.status.is_native is False
            nursery.cancel_scope.cancel()


async def test_reports_to_a_stock_master_go_out_after_bytes_and_every_five_seconds(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1)
        first = source.log.end
        master = StockMaster(source)
        async with following(copy, master, dialect="stock"):
            await hands.settle()
            assert master.reports[0] == [0, first]
            await hands.pass_time(20.5)
            assert master.reports[0] == [0, *[first] * 5]
            master.put(1)
            await hands.settle()
            assert master.reports[0][-2:] == [first, source.log.end]
            await hands.pass_time(300, 1)
            assert master.accepted == 1


async def test_many_frames_of_a_stock_master_are_answered_by_one_report(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        log = source.bytes
        master = StockMaster(source)
        master.frames = [
            HEADER.pack(start, len(log[start : start + 50])) + log[start : start + 50]
            for start in range(0, len(log), 50)
        ]
        async with following(copy, master, dialect="stock"):
            await hands.settle()
            assert copy.bytes == log
            assert len(master.frames) > 200
            assert master.reports[0] == [0, len(log)]


async def test_a_stock_master_is_asked_first_and_told_nothing_if_it_is_another(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3)
        copy.put(5)
        before = copy.bytes
        master = StockMaster(source)
        async with (
            serving(stock_questions(source)) as server,
            following(copy, master, dialect="stock", master_address=address_of(server)) as slave,
        ):
            await hands.pass_time(12)
            assert slave.state() is SlaveState.DIVERGED
            assert slave.runner.status.diverged_at == source.log.end
            assert master.accepted == 0, "a report that is too large would be believed"
            assert copy.bytes == before
        assert [record.levelname for record in caplog.records].count("ERROR") == 1


async def test_an_empty_slave_of_a_stock_master_gets_everything_if_it_can_ask(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        master = StockMaster(source)
        async with (
            serving(stock_questions(source)) as server,
            following(copy, master, dialect="stock", master_address=address_of(server)) as slave,
        ):
            await hands.until(lambda: slave.state() is SlaveState.STREAMING)
            assert master.reports[0][0] == 1
            assert copy.bytes == source.bytes
            await hands.settle()
            assert bodies_of(copy.core) == bodies_of(source.core)


async def test_an_empty_slave_that_cannot_ask_gets_the_last_file_and_says_so_once(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        master = StockMaster(source)
        async with following(copy, master, dialect="stock"):
            await hands.settle()
            last = source.log.end - source.log.end % source.log.segment_bytes
            assert (copy.log.begin, copy.bytes) == (last, source.bytes[last:])
            master.is_mute = True
            await hands.pass_time(45)
            assert master.accepted > 2
        warned = [text for text in caplog.messages if "cannot be asked" in text]
        assert len(warned) == 1


async def test_a_slave_of_a_stock_master_that_needs_what_has_expired_is_seeded_anew(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(1000)
        copy.core.append_raw(PhysicalOffset(0), source.bytes[:5000])
        source.core.log.segments.drop_first()
        master = StockMaster(source)
        async with (
            serving(stock_questions(source)) as server,
            following(copy, master, dialect="stock", master_address=address_of(server)) as slave,
        ):
            await hands.settle()
            assert slave.state() is SlaveState.RESEEDING
            assert [offset for offset, _ in slave.reseeds] == [source.log.begin]
            assert master.accepted == 0


async def test_a_stock_master_is_asked_with_the_client_that_is_there(
    mock_clock: MockClock,
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        async with serving(stock_questions(source)) as server, open_client() as client:
            options = {"master_address": address_of(server), "client": client}
            async with following(copy, StockMaster(source), dialect="stock", **options):
                await hands.until(lambda: copy.bytes == source.bytes)
                assert client.open_channel_to(address_of(server)) is not None


async def test_a_master_that_answers_late_is_not_taken_for_a_stock_one(
    mock_clock: MockClock,
) -> None:
    """A proxy accepts at once, and what is behind it takes longer than a slave waits."""
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        questions = stock_questions(source)
        questions.add(Requests.HA_STATUS, lambda request: request.reply(body=b"{}"))
        master = StockMaster(source)
        async with serving(questions) as server:
            options = {"master_address": address_of(server)}
            async with following(copy, master, **options) as slave:
                await hands.until(lambda: master.accepted == 2)
                await hands.settle()
                # Both times in the native dialect: nothing of its log is taken.
                assert [received[: len(PREAMBLE)] for received in master.received] == [PREAMBLE] * 2
                assert copy.bytes == b""
                assert "speaks the native dialect" in (slave.runner.status.last_error or "")


async def test_a_disk_without_room_for_the_first_byte_is_waited_for(mock_clock: MockClock) -> None:
    storage = MemoryStorage()
    async with node() as source, node(storage=storage) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        master = StockMaster(source)
        storage.faults.fail("reserve", errno.ENOSPC, times=None, on=is_of_log)
        async with (
            serving(stock_questions(source)) as server,
            following(copy, master, dialect="stock", master_address=address_of(server)) as slave,
        ):
            await hands.pass_time(3)
            assert slave.state() is SlaveState.FAILED
            assert master.accepted == 0
            storage.faults.clear()
            await hands.until(lambda: copy.bytes == source.bytes)
