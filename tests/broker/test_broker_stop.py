"""How a broker stops: those who wait are answered, what is in hand is finished, nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.broker.registration.registration import UNREGISTER_TIMEOUT_S
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import UpdateConsumerOffsetRequest
from tests.broker.broker_frames import GROUP, TOPIC, bodies_of, ext, frame, pull, send
from tests.broker.broker_kit import live_broker, live_config
from tests.broker.registration.nameserver_stand_in import stand_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import LiveBroker
    from tests.remoting.server_kit import Peer

HURRY = 5
"""How much faster than the real ones the seconds of a stop pass where one must wait for them."""


@pytest.fixture
def fast_clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(rate=HURRY)


def sync_settings(*, is_sync: bool) -> dict[str, str]:
    return {"flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH"}


# --- what is in hand -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_sync", [False, True], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_sends_in_hand_are_finished_and_answered(is_sync: bool, tmp_path: Path) -> None:
    live = live_config(tmp_path, sync_settings(is_sync=is_sync))
    async with live_broker(live) as broker:
        await broker.ask(send(b"first"))
        peer = await broker.dial()
        # Each asks for a topic of its own, which has to be written to a file first.
        await peer.send(*(send(b"%d" % n, topic=f"New{n}", opaque=n) for n in range(20)))
        while broker.broker.topics.get("New0") is None:
            await trio.testing.wait_all_tasks_blocked()
        broker.broker.stop()
        answers = await peer.read_to_end()
        assert {answer.opaque for answer in answers} == set(range(20))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    async with live_broker(live) as broker:
        for number in range(20):
            answer = await broker.ask(pull(topic=f"New{number}"))
            assert bodies_of(answer) == [b"%d" % number]


@pytest.mark.parametrize("is_sync", [False, True], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_nothing_that_was_acknowledged_is_lost(is_sync: bool, tmp_path: Path) -> None:
    live = live_config(tmp_path, sync_settings(is_sync=is_sync))
    acknowledged: dict[int, set[bytes]] = {queue_id: set() for queue_id in range(3)}
    enough = trio.Event()

    async def produce(queue_id: int, peer: Peer) -> None:
        """Send as fast as answers come, sixteen at a time, until the broker goes."""
        mine = acknowledged[queue_id]
        number = 0
        try:
            while True:
                batch = range(number, number + 16)
                await peer.send(*(send(b"%d" % n, queue_id=queue_id, opaque=n) for n in batch))
                for _ in batch:
                    answer = await peer.read()
                    assert answer.code == ResponseCode.SUCCESS
                    mine.add(b"%d" % answer.opaque)
                number += 16
                if min(map(len, acknowledged.values())) >= 64:
                    enough.set()
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
            # The end of the connection; answers that came before it count.
            return

    async with live_broker(live) as broker, trio.open_nursery() as nursery:
        await broker.ask(send(b"first", queue_id=3))
        for queue_id in range(3):
            nursery.start_soon(produce, queue_id, await broker.dial())
        await enough.wait()
        await broker.stop()
    async with live_broker(live) as broker:
        for queue_id, bodies in acknowledged.items():
            stored = await all_bodies(broker, queue_id)
            assert bodies <= set(stored)
            assert len(stored) == len(set(stored)), "nothing is there twice"


async def all_bodies(broker: LiveBroker, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = await broker.ask(pull(queue_id, len(found)))
        if answer.code != ResponseCode.SUCCESS:
            return found
        found += bodies_of(answer)


async def test_a_cold_pull_in_hand_is_answered(tmp_path: Path) -> None:
    # So little counts as being in memory that everything is read in threads.
    live = live_config(tmp_path, {"accessMessageInMemoryMaxRatio": "0"})
    async with live_broker(live) as broker:
        for n in range(9):
            await broker.ask(send(b"%d" % n + bytes(50_000)))
        peer = await broker.dial()
        await peer.send(*(pull(0, n, count=1, opaque=n) for n in range(8)))
        while broker.broker.server.statistics().groups and not any(
            group.unanswered for group in broker.broker.server.statistics().groups
        ):
            await trio.lowlevel.checkpoint()
        broker.broker.stop()
        answers = await peer.read_to_end()
        assert {answer.opaque for answer in answers} == set(range(8))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


# --- those who wait ------------------------------------------------------------------------------


async def test_a_thousand_pulls_that_wait_are_answered(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        await broker.ask(send(b"first"))
        peers = [await broker.dial() for _ in range(10)]
        for peer in peers:
            await peer.send(
                *(pull(n % 4, 0 if n % 4 else 1, wait_ms=15_000, opaque=n) for n in range(100))
            )
        await broker.wait_held(1_000)
        broker.broker.stop()
        for peer in peers:
            answers = await peer.read_to_end()
            assert {answer.opaque for answer in answers} == set(range(100))
            assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}


async def test_a_stop_takes_less_than_10_s_whatever_is_in_the_way(
    tmp_path: Path, fast_clock: trio.testing.MockClock
) -> None:
    async with stand_in(silent_to=("unregister",)) as nameserver:
        settings = {"namesrvAddr": f"{nameserver.address};127.0.0.1:1"}
        async with live_broker(live_config(tmp_path, settings)) as broker:
            await broker.ask(send(b"first"))
            waiting, sending, deaf = [await broker.dial() for _ in range(3)]
            await waiting.send(*(pull(0, 1, wait_ms=15_000, opaque=n) for n in range(1_000)))
            await broker.wait_held(1_000)
            # One who does not read what it asked for.
            for _ in range(40):
                await broker.ask(send(bytes(200_000), queue_id=1))
            await deaf.send(*(pull(1, 0, opaque=n) for n in range(40)))
            await sending.send(*(send(b"x", topic=f"New{n}", opaque=n) for n in range(20)))
            while broker.broker.topics.get("New0") is None:
                await trio.testing.wait_all_tasks_blocked()
            started = trio.current_time()
            broker.broker.stop()
            assert len(await waiting.read_to_end()) == 1_000
            assert len(await sending.read_to_end()) == 20
            await broker.ended.wait()
            # The time it waits for others passes faster here than the time it works.
            config = broker.broker.live.current
            waited_s = UNREGISTER_TIMEOUT_S + config.shutdown_drain_ms / 1000
            worked_s = (trio.current_time() - started - waited_s) / HURRY
            assert waited_s + worked_s < 10.0
            assert "unregister" in nameserver.told


async def test_nameservers_are_told_before_those_who_wait_are_sent_away(tmp_path: Path) -> None:
    held: list[int] = []

    async def count_held(what: str) -> None:
        if what == "unregister":
            held.append(len(broker.broker.pulls.holds))

    async with stand_in(count_held) as nameserver:
        live = live_config(tmp_path, {"namesrvAddr": nameserver.address})
        async with live_broker(live) as broker:
            await broker.ask(send(b"first"))
            peer = await broker.dial()
            await peer.send(pull(0, 1, wait_ms=15_000))
            await broker.wait_held(1)
            await broker.stop()
        assert held == [1]


async def test_a_broker_without_clients_stops_at_once(tmp_path: Path) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        with trio.fail_after(2.0):
            await broker.stop()


async def test_a_broker_that_is_cancelled_saves_what_it_has(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    with trio.CancelScope() as scope:
        async with live_broker(live) as broker:
            await broker.ask(send(b"message"))
            await commit(broker, 1)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert not (tmp_path / "abort").exists()
    async with live_broker(live) as broker:
        assert bodies_of(await broker.ask(pull())) == [b"message"]
        assert broker.broker.offsets.query(GROUP, TOPIC, 0) == 1


async def test_what_cannot_be_saved_is_said_and_does_not_keep_a_broker_from_stopping(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live_broker(live_config(tmp_path)) as broker:
        await broker.ask(send(b"message"))
        await commit(broker, 1)
        (tmp_path / "config").rename(tmp_path / "elsewhere")
        (tmp_path / "config").write_text("in the way")
        await broker.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any("not saved" in line and "consumerOffset.json" in line for line in lines)
    # The messages themselves are safe.
    assert not (tmp_path / "abort").exists()


async def commit(broker: LiveBroker, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    answer = await broker.ask(frame(RequestCode.UPDATE_CONSUMER_OFFSET, header))
    assert answer.code == ResponseCode.SUCCESS
    assert ext(answer) == {}
