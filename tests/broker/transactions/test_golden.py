"""The captured transactions again: what a stock broker stored, asked and saved, ours must, too.

The captured producer commits one message, rolls one back and does not decide the third, about which
it is asked; it then commits that. The frames are sent as they were captured, except that decisions
name the offsets that our broker gave, as a real producer's would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rmq.broker.transactions.half import GROUP
from rmq.model.names import HALF_TOPIC, OP_HALF_TOPIC
from rmq.model.record import StoredRecord, decode_record, pack_host, parse_message_id
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from rmq.remoting.headers import CheckTransactionStateRequest, EndTransactionRequest
from tests.broker.send_kit import STORE_HOST, WallClock, ext, frame, send_broker
from tests.remoting.frames import captured, receive
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.command import Command
    from tests.broker.send_kit import SendBroker
    from tests.remoting.server_kit import Frame, Peer

TOPIC: Final = "GoldenTopic"
PRODUCER: Final = "127.0.0.1:33880"
GOLDEN_HOST: Final = pack_host("127.0.0.1", 10911)
SETTINGS: Final = {
    "brokerClusterName": "GoldenCluster",
    "transactionTimeOut": "5000",
}


def golden_records(topic: str) -> list[StoredRecord]:
    """Return the golden records of transactions in a topic, in order."""
    records = [decode_record(each.data) for each in golden.records(golden.CLEAN_MASTER)]
    return [each for each in records if each.topic == topic and is_of_transaction(each)]


def is_of_transaction(record: StoredRecord) -> bool:
    return record.topic == OP_HALF_TOPIC or "TRAN_MSG" in record.properties


def contents(record: StoredRecord) -> dict[str, object]:
    """Return what must be equal: all but places, the time of storing and the order of properties.

    A stock broker notes decisions from another thread, hence at other places.
    """
    ours = {STORE_HOST: b"broker", GOLDEN_HOST: b"broker"}
    return {
        "body": record.body,
        "body_crc": record.body_crc,
        "queue_id": record.queue_id,
        "size": record.size,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_ms": None if record.topic == OP_HALF_TOPIC else record.born_ms,
        "born_host": ours.get(record.born_host, record.born_host),
        "store_host": ours[record.store_host],
        "reconsume_times": record.reconsume_times,
        "properties": record.properties,
    }


class CapturedProducer:
    """Sends what was captured."""

    def __init__(self, broker: SendBroker) -> None:
        self._broker = broker
        self._peer: Peer = broker.attach(PRODUCER)
        self._sent: list[Frame] = []
        self.commands: list[tuple[bytes, Command]] = [
            (each.frame, receive(each.frame).commands[0])
            for each in captured("transaction")
            if each.kind != "response"
        ]

    async def send_and_decide(self) -> None:
        """Send the half messages, each with its decision, and the heartbeat."""
        for data, command in self.commands:
            if command.code == RequestCode.SEND_MESSAGE_V2:
                self._sent.append(await self._peer.request(data))
                assert self._sent[-1].code == 0
            elif command.code == RequestCode.END_TRANSACTION:
                header = command.header(EndTransactionRequest)
                if not header.from_transaction_check:
                    await self._decide(header)
            elif command.code == RequestCode.HEART_BEAT:
                assert (await self._peer.request(data)).code == 0

    async def _decide(self, header: EndTransactionRequest) -> None:
        answer = ext(self._sent[-1])
        _, physical_offset = parse_message_id(answer["msgId"])
        await self._end(header, int(answer["queueOffset"]), physical_offset)

    async def _end(
        self, header: EndTransactionRequest, queue_offset: int, physical_offset: int
    ) -> None:
        header = msgspec.structs.replace(
            header, tran_state_table_offset=queue_offset, commit_log_offset=physical_offset
        )
        await self._peer.send(frame(RequestCode.END_TRANSACTION, header, oneway=True))
        assert await self._peer.ping() == []

    async def read_question(self) -> Frame:
        return await self._peer.read()

    async def answer(self, asked: Frame) -> None:
        (header,) = (
            header
            for _, command in self.commands
            if command.code == RequestCode.END_TRANSACTION
            and (header := command.header(EndTransactionRequest)).from_transaction_check
        )
        fields = ext(asked)
        await self._end(header, int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"]))

    @property
    def captured_question(self) -> Command:
        (question,) = (
            command
            for _, command in self.commands
            if command.code == RequestCode.CHECK_TRANSACTION_STATE
        )
        return question


async def test_captured_transactions_end_as_they_did(tmp_path: Path) -> None:
    halves = golden_records(HALF_TOPIC)
    clock = WallClock(halves[0].born_ms)
    async with send_broker(tmp_path, SETTINGS, clock=clock, has_topic=False) as broker:
        await broker.create_topic(TOPIC)
        producer = CapturedProducer(broker)
        await producer.send_and_decide()
        assert len(broker.records(HALF_TOPIC)) == 3

        clock.ms = halves[3].store_ms
        checks = broker.broker.transaction_checks
        await checks.check()
        asked = await producer.read_question()
        check_question(broker, asked, producer.captured_question)
        await producer.answer(asked)
        clock.ms += 20_000
        await checks.check()

        assert [contents(each) for each in broker.records(HALF_TOPIC)] == [
            contents(each) for each in halves
        ]
        assert [contents(each) for each in broker.records(OP_HALF_TOPIC)] == [
            contents(each) for each in golden_records(OP_HALF_TOPIC)
        ]
        committed = [record for queue in range(4) for record in broker.records(TOPIC, queue)]
        assert [contents(each) for each in committed] == [
            contents(each) for each in golden_records(TOPIC)
        ]
        by_place = {int(each.physical_offset): each for each in broker.records(HALF_TOPIC)}
        assert [by_place[each.prepared_offset].queue_offset for each in committed] == [0, 3]
        offsets = broker.broker.offsets
        # Those in the golden consumerOffset.json.
        assert offsets.query(GROUP, HALF_TOPIC, 0) == 4
        assert offsets.query(GROUP, OP_HALF_TOPIC, 0) == 3


def check_question(broker: SendBroker, asked: Frame, expected: Command) -> None:
    """Hold the question against the captured one."""
    copy = broker.records(HALF_TOPIC)[3]
    fields = ext(asked)
    wanted = expected.header(CheckTransactionStateRequest)
    assert (asked.code, asked.flag, asked.remark) == (expected.code, FLAG_ONEWAY, None)
    assert fields == {
        "tranStateTableOffset": str(wanted.tran_state_table_offset),
        "commitLogOffset": str(copy.physical_offset),
        "msgId": wanted.msg_id,
        "transactionId": wanted.transaction_id,
        "offsetMsgId": copy.message_id,
    }
    assert expected.body is not None
    record, golden_record = decode_record(asked.body), decode_record(expected.body)
    assert contents(record) == contents(golden_record)
    assert (record.topic, record.queue_offset) == (TOPIC, golden_record.queue_offset)
    assert record.physical_offset == copy.physical_offset
    # It has the store time of the message that was copied.
    assert record.store_ms == broker.records(HALF_TOPIC)[2].store_ms
