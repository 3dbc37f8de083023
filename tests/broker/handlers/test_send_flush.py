"""SYNC_FLUSH: a send is answered when its message is on disk."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.model.names import SCHEDULE_TOPIC
from rmq.remoting.bodies import BatchMessage, encode_batch
from rmq.remoting.codes import ResponseCode, Serialization
from tests.broker.send_kit import (
    SendBroker,
    batch_frame,
    ext,
    send_back_frame,
    send_broker,
    send_frame,
    text,
)
from tests.store.running import Gate, is_of_log

if TYPE_CHECKING:
    from pathlib import Path

SYNC: Final = {"flushDiskType": "SYNC_FLUSH"}
TWO: Final = encode_batch([BatchMessage(0, b"a", b""), BatchMessage(0, b"b", b"")])

KINDS: Final = [
    pytest.param(send_frame(), id="short way"),
    pytest.param(send_frame(properties=text(WAIT="true")), id="told to wait"),
    pytest.param(send_frame(properties=text(DELAY="1")), id="delayed"),
    pytest.param(send_frame(properties=text(TRAN_MSG="true")), id="half"),
    pytest.param(send_frame("%RETRY%g"), id="retry"),
    pytest.param(send_frame("%RETRY%g", reconsume_times=16), id="dead letter"),
    pytest.param(batch_frame(TWO), id="batch"),
    pytest.param(send_frame("New"), id="to a new topic"),
    pytest.param(send_frame(serialization=Serialization.ROCKETMQ), id="binary"),
]


def shut_gate(broker: SendBroker) -> Gate:
    """Hold the syncs of the log from now on."""
    gate = Gate(broker.storage)
    gate.shut()
    return gate


@pytest.mark.parametrize("sent", KINDS)
async def test_a_send_is_answered_after_its_message_was_synced(tmp_path: Path, sent: bytes) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(sent)
        await gate.wait_arrival()
        assert await peer.ping() == []
        assert broker.served.group("send").unanswered == 1
        gate.open()
        answer = await peer.read()
        assert (answer.code, answer.remark) == (0, None)
        assert broker.core.log.flushed == broker.core.log.written > 0
        assert ext(answer)["msgId"]
        assert broker.served.group("send").unanswered == 0


async def test_with_async_flush_a_send_does_not_wait(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        for kind in KINDS:
            (sent,) = kind.values
            assert isinstance(sent, bytes)
            assert (await broker.send(sent)).code == 0
        assert broker.core.log.flushed < broker.core.log.written


@pytest.mark.parametrize("value", ["false", "False"])
async def test_who_does_not_wait_is_answered_at_once(tmp_path: Path, value: str) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        properties = text(WAIT=value)
        for sent in (
            send_frame(properties=properties),
            send_frame(properties=text(WAIT=value, DELAY="1")),
            batch_frame(TWO, properties=properties),
        ):
            assert (await broker.send(sent)).code == 0
        gate.open()
        await broker.settle()


async def test_of_one_read_only_those_who_wait_wait(tmp_path: Path) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        await broker.make_queues()
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(
            *(
                send_frame(opaque=number, properties=text(WAIT="false" if number % 2 else "true"))
                for number in range(6)
            )
        )
        assert [answer.opaque for answer in await peer.ping()] == [1, 3, 5]
        gate.open()
        assert [answer.opaque for answer in await peer.read_many(3)] == [0, 2, 4]


async def test_answers_come_in_the_order_of_the_sends(tmp_path: Path) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        await broker.make_queues()
        await broker.make_queues(SCHEDULE_TOPIC)
        gate = shut_gate(broker)
        peer = broker.attach()
        for first in range(0, 30, 3):
            await peer.send(
                send_frame(opaque=first),
                send_frame(opaque=first + 1, properties=text(DELAY="1")),
                batch_frame(TWO, opaque=first + 2),
            )
            await wait_all_tasks_blocked()
        assert await peer.ping() == []
        gate.open()
        answers = await peer.read_many(30)
        assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(30)]
        # One sync for the first, one for all who came while the disk was at it.
        assert broker.store.syncs <= 3


async def test_one_way_sends_are_done_with_when_they_are_on_disk(tmp_path: Path) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame(oneway=True), batch_frame(TWO, oneway=True))
        await gate.wait_arrival()
        gate.open()
        await broker.settle()
        assert await peer.ping() == []
        assert broker.bodies() == [b"body", b"a", b"b"]
        assert broker.served.group("send").unanswered == 0


# --- a disk that is slow ---------------------------------------------------------------------


@pytest.mark.parametrize("sent", KINDS)
async def test_a_disk_that_takes_too_long_is_told_of(
    tmp_path: Path, sent: bytes, mock_clock: MockClock
) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(sent)
        await gate.wait_arrival()
        mock_clock.jump(4.99)
        assert await peer.ping() == []
        mock_clock.jump(0.02)
        answer = await peer.read()
        # The message is stored, and the producer is told where.
        assert (answer.code, answer.remark) == (ResponseCode.FLUSH_DISK_TIMEOUT, None)
        assert ext(answer)["msgId"].startswith("0A00000100002A9F")
        assert ext(answer)["MSG_REGION"] == "DefaultRegion"
        assert broker.served.group("send").unanswered == 0
        gate.open()
        await broker.settle()
        assert await peer.ping() == []


async def test_each_send_has_its_own_deadline(tmp_path: Path, mock_clock: MockClock) -> None:
    settings = SYNC | {"syncFlushTimeout": "1000"}
    async with send_broker(tmp_path, settings) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame(opaque=1))
        await gate.wait_arrival()
        mock_clock.jump(0.6)
        await peer.send(send_frame(opaque=2))
        assert await peer.ping() == []
        mock_clock.jump(0.6)
        first = await peer.read()
        assert (first.opaque, first.code) == (1, ResponseCode.FLUSH_DISK_TIMEOUT)
        assert await peer.ping() == []
        gate.open()
        second = await peer.read()
        assert (second.opaque, second.code) == (2, 0)


async def test_a_disk_that_fails_is_told_of(tmp_path: Path) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        peer = broker.attach()
        with broker.storage.faults.failing("sync", errno.EIO, on=is_of_log):
            answer = await peer.request(send_frame())
        # As far as anybody can tell the message is in the log, but not on disk.
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        refused = await peer.request(send_frame(opaque=2))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark is not None
        assert "the store failed and must be restarted: cannot sync" in refused.remark


# --- while it waits --------------------------------------------------------------------------


@pytest.mark.parametrize("sent", KINDS)
async def test_a_producer_that_is_gone_is_not_answered(tmp_path: Path, sent: bytes) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        peer, other = broker.attach(), broker.attach("10.0.0.8:40000")
        await peer.send(sent)
        await gate.wait_arrival()
        await other.send(send_frame(opaque=2))
        await wait_all_tasks_blocked()
        await peer.aclose()
        await wait_all_tasks_blocked()
        gate.open()
        assert (await other.read()).code == 0
        assert broker.served.group("send").unanswered == 0


async def test_a_store_that_is_closed_answers_who_waits(tmp_path: Path) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame(opaque=1))
        await gate.wait_arrival()
        gate.let_others_pass()
        # What closing does: it syncs, and nobody will after it.
        broker.core.close()
        broker.store.end_waits()
        answer = await peer.read()
        assert (answer.opaque, answer.code) == (1, 0)
        gate.open()


async def test_waiting_begins_and_ends_with_the_setting(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        assert (await broker.send(send_frame())).code == 0
        broker.update(flushDiskType="SYNC_FLUSH")
        peer = broker.attach()
        await peer.send(send_frame())
        await gate.wait_arrival()
        assert await peer.ping() == []
        broker.update(flushDiskType="ASYNC_FLUSH")
        assert (await broker.send(send_frame())).code == 0
        gate.open()
        assert (await peer.read()).code == 0


# --- messages that come back -----------------------------------------------------------------


async def test_a_message_is_taken_back_when_its_copy_is_on_disk(tmp_path: Path) -> None:
    # 4.9.8 goes by the copy's WAIT=false and answers at once; the consumer then gives it up.
    async with send_broker(tmp_path, SYNC) as broker:
        peer = broker.attach()
        assert (await peer.request(send_frame())).code == 0
        await broker.settle()
        gate = shut_gate(broker)
        await peer.send(send_back_frame(0))
        await gate.wait_arrival()
        assert await peer.ping() == []
        gate.open()
        assert (await peer.read()).code == 0


async def test_a_message_that_may_be_lost_is_not_taken_back(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with send_broker(tmp_path, SYNC) as broker:
        peer = broker.attach()
        assert (await peer.request(send_frame())).code == 0
        await broker.settle()
        gate = shut_gate(broker)
        await peer.send(send_back_frame(0))
        await gate.wait_arrival()
        mock_clock.jump(5)
        answer = await peer.read()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")
        gate.open()
