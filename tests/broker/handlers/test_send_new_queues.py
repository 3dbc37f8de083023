"""First sends to queues: nothing that blocks is done in the loop, and nothing changes its order."""

from __future__ import annotations

import errno
import logging
import threading
from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import wait_all_tasks_blocked

from rmq.broker.config import BrokerRole
from rmq.broker.sending.queue_creation import QUEUES_AT_ONCE, SENDS_LEFT_MAX
from rmq.model.names import SCHEDULE_TOPIC
from rmq.remoting.bodies import BatchMessage, encode_batch
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import (
    TOPIC,
    batch_frame,
    ext,
    send_broker,
    send_frame,
    text,
)
from tests.store.running import Gate, is_of_queues

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.testing.faults import Operation
    from tests.broker.send_kit import SendBroker

BLOCKING: Final = frozenset(
    {"make_directory", "add_directory", "create", "reserve", "sync_directory"}
)


class InLoop:
    """What is done to the files of queues in the thread of the event loop."""

    def __init__(self, broker: SendBroker) -> None:
        self.calls: list[tuple[str, str]] = []
        self._loop = threading.get_ident()
        broker.storage.faults.watch(self._see)

    def _see(self, operation: Operation, path: Path) -> None:
        if operation in BLOCKING and is_of_queues(path) and threading.get_ident() == self._loop:
            self.calls.append((operation, path.name))


def shut_gate(broker: SendBroker) -> Gate:
    """Hold the making of files of queues from now on."""
    gate = Gate(broker.storage, "create", is_of_queues)
    gate.shut()
    return gate


async def test_first_sends_make_no_file_in_the_loop(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.create_topic("Wide", 500)
        seen = InLoop(broker)
        peer = broker.attach()
        await peer.send(*(send_frame("Wide", queue_id=n, opaque=n) for n in range(500)))
        answers = await peer.read_many(500)
        assert {(answer.opaque, answer.code) for answer in answers} == {(n, 0) for n in range(500)}
        assert seen.calls == []
        assert [broker.bodies("Wide", n) for n in range(500)] == [[b"body"]] * 500
        assert broker.served.group("send").unanswered == 0


@pytest.mark.parametrize(
    ("sent", "place"),
    [
        pytest.param(send_frame(properties=text(DELAY="1")), (SCHEDULE_TOPIC, 0), id="delayed"),
        pytest.param(
            send_frame(properties=text(TRAN_MSG="true")), ("RMQ_SYS_TRANS_HALF_TOPIC", 0), id="half"
        ),
        pytest.param(
            batch_frame(encode_batch([BatchMessage(0, b"a", b"")])), (TOPIC, 0), id="batch"
        ),
        pytest.param(send_frame("%RETRY%g", reconsume_times=16), ("%DLQ%g", 0), id="dead letter"),
        pytest.param(send_frame("New"), ("New", 0), id="new topic"),
    ],
)
async def test_special_sends_make_none_either(
    tmp_path: Path, sent: bytes, place: tuple[str, int]
) -> None:
    async with send_broker(tmp_path) as broker:
        seen = InLoop(broker)
        assert (await broker.send(sent)).code == 0
        assert seen.calls == []
        assert broker.store.has_queue_file(*place)


async def test_sends_to_other_queues_go_on_meanwhile(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.make_queues(queues=1)
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame(opaque=1, queue_id=1))
        await gate.wait_arrival()
        await peer.send(send_frame(opaque=2, queue_id=0), send_frame(opaque=3, queue_id=1))
        assert [answer.opaque for answer in await peer.ping()] == [2]
        gate.open()
        assert [answer.opaque for answer in await peer.read_many(2)] == [1, 3]


async def test_the_order_within_a_queue_is_kept(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        peers = [broker.attach(), broker.attach("10.0.0.8:1")]
        expected = []
        for number in range(90):
            body = b"%d" % number
            expected.append(body)
            if number % 9 == 4:
                sent = batch_frame(encode_batch([BatchMessage(0, body, b"")]), opaque=number)
            else:
                sent = send_frame(body=body, opaque=number)
            await peers[number % 2].send(sent)
            await wait_all_tasks_blocked()
        gate.open()
        for peer in peers:
            answers = await peer.read_many(45)
            assert [answer.code for answer in answers] == [0] * 45
            offsets = [int(ext(answer)["queueOffset"]) for answer in answers]
            assert offsets == [answer.opaque for answer in answers]
        assert broker.bodies() == expected


async def test_a_queue_that_is_flooded_while_it_is_made_becomes_ready(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        count = SENDS_LEFT_MAX + 500
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            await peer.send(*(send_frame(body=b"%d" % n, opaque=n) for n in numbers))
            await wait_all_tasks_blocked()
        gate.open()
        answers = await peer.read_many(count)
        assert [answer.opaque for answer in answers] == list(range(count))
        assert broker.bodies() == [b"%d" % n for n in range(count)]
        assert broker.broker.new_queues.is_ready(TOPIC, 0)


async def test_files_are_made_some_at_a_time(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        count = QUEUES_AT_ONCE + 1
        await broker.create_topic("Wide", count + 1)
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame("Wide", queue_id=count, opaque=count))
        await gate.wait_arrival()
        await peer.send(*(send_frame("Wide", queue_id=n, opaque=n) for n in range(count)))
        await wait_all_tasks_blocked()
        gate.release_first()
        await gate.wait_arrival()
        assert [answer.opaque for answer in await peer.ping()] == [count]
        for _ in range(QUEUES_AT_ONCE - 1):
            gate.release_first()
            await gate.wait_arrival()
        assert await peer.ping() == []
        gate.release_first()
        await gate.wait_arrival()
        # The last one is still to be made.
        assert [answer.opaque for answer in await peer.ping()] == list(range(QUEUES_AT_ONCE))
        gate.open()
        assert (await peer.read()).opaque == QUEUES_AT_ONCE


async def test_a_topic_that_is_deleted_meanwhile_gets_no_message(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame())
        await gate.wait_arrival()
        broker.topics.delete(TOPIC)
        gate.open()
        assert (await peer.read()).code == ResponseCode.TOPIC_NOT_EXIST
        assert broker.bodies() == []


async def test_a_broker_that_has_become_a_slave_meanwhile_refuses(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame())
        await gate.wait_arrival()
        broker.live.assume_role(BrokerRole.SLAVE, 1, now_ms=broker.clock())
        gate.open()
        assert (await peer.read()).code != 0
        assert broker.bodies() == []


@pytest.mark.parametrize("operation", ["add_directory", "create", "reserve"])
async def test_a_send_to_a_queue_whose_file_cannot_be_made_is_refused_and_stops_no_other(
    tmp_path: Path, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with send_broker(tmp_path) as broker:
        await broker.make_queues(queues=1)
        broker.storage.faults.fail(operation, errno.EMFILE, on=is_of_queues, times=2)
        for _ in range(2):
            refused = await broker.send(send_frame(queue_id=1))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "ulimit -n" in (refused.remark or "")
            assert (await broker.send(send_frame())).code == 0
        assert (await broker.send(send_frame(queue_id=1))).code == 0
        assert (len(broker.bodies()), len(broker.bodies(queue_id=1))) == (2, 1)
        assert broker.served.group("send").unanswered == 0
    said = [record.message for record in caplog.records if "new queues" in record.message]
    assert [text.partition(":")[0] for text in said] == [
        "sends to new queues are refused",
        "files of new queues can be made again",
    ]


async def test_a_producer_that_is_gone_meanwhile_has_sent_its_message(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        gate = shut_gate(broker)
        peer = broker.attach()
        await peer.send(send_frame())
        await gate.wait_arrival()
        await peer.aclose()
        gate.open()
        await broker.settle()
        assert broker.bodies() == [b"body"]
        assert broker.served.group("send").unanswered == 0
