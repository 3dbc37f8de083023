"""Captured producers and consumers replayed: what a stock broker stored of them and answered, ours
must store and answer.

For each captured send the store is what it was at that moment: the golden CommitLog, cut where the
stock broker then stored the message. So even the places must be the same.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pytest

from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import decode_properties
from rmq.model.record import StoredRecord, decode_record, parse_message_id, unpack_host
from rmq.remoting.bodies import TopicConfig
from rmq.remoting.codes import RequestCode
from rmq.testing.storage import MemoryStorage
from tests.broker.send_kit import SendBroker, WallClock, ext, send_broker
from tests.remoting.frames import WIRE
from tests.remoting.server_kit import Frame, parse_frame
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.mark import ParameterSet

GOLDEN_BROKER: Final = {
    "brokerClusterName": "GoldenCluster",
    "brokerName": "broker-golden",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": str(golden.SEGMENT_BYTES),
}
SEND_CODES: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
RUNS: Final = ("cluster-start", "producer", "producer-binary", "transaction")


class Captured(msgspec.Struct, frozen=True):
    """One line of a capture, as far as it is needed."""

    conn: int
    kind: str
    code: int
    opaque: int
    ext: dict[str, str] | None
    frame: bytes
    answers: str | None = None


class Exchange(NamedTuple):
    """A captured request and its answer, None for a one-way request."""

    request: Captured
    answer: Captured | None


def exchanges(run: str, *codes: RequestCode) -> list[Exchange]:
    """Return the captured requests of these codes, with their answers."""
    decode = msgspec.json.Decoder(Captured).decode
    lines = [decode(line) for line in (WIRE / f"{run}.jsonl").read_bytes().splitlines()]
    names = {code.name for code in codes}
    answers = {(each.conn, each.opaque): each for each in lines if each.answers in names}
    return [
        Exchange(each, answers.get((each.conn, each.opaque)))
        for each in lines
        if each.kind != "response" and each.code in codes
    ]


@cache
def golden_records() -> dict[int, StoredRecord]:
    return {
        record.physical_offset: decode_record(record.data)
        for record in golden.records(golden.CLEAN_MASTER)
    }


def cut_store(root: Path, end: int) -> MemoryStorage:
    """Return the golden store as it was when its log ended at `end`, killed."""
    name = "commitlog/00000000000000000000"
    segment = golden.files(golden.CLEAN_MASTER)[name]
    assert end < len(segment)
    storage = MemoryStorage()
    storage.make_directory(root / "commitlog")
    storage.write(root / name, segment[:end].ljust(len(segment), b"\0"))
    storage.write(root / "abort", b"")
    return storage


def form(record: StoredRecord) -> tuple[object, ...]:
    """Return what must be equal: all, but for the order of the properties."""
    pairs = sorted(record.properties_bytes.split(b"\x02"))
    return (*msgspec.structs.astuple(record)[:-1], pairs)


async def replay(folder: Path, end: int, sent: bytes, expected: StoredRecord) -> Replayed:
    """Send a captured frame to a broker whose log ends at `end`."""
    storage = cut_store(folder, end)
    clock = WallClock(expected.store_ms)
    async with send_broker(
        folder, GOLDEN_BROKER, storage=storage, clock=clock, has_topic=False
    ) as broker:
        assert broker.core.log.written == end
        for topic in ("GoldenTopic", "%RETRY%golden_push", "%DLQ%golden_push"):
            queues = 4 if topic == "GoldenTopic" else 1
            broker.topics.put(
                TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            )
        await broker.tables.topics_writer.save_now()
        host, port = unpack_host(expected.born_host)
        peer = broker.attach(f"{host}:{port}")
        await peer.send(sent)
        await broker.settle()
        answers = await peer.ping()
        return Replayed(answers, stored_from(broker, end))


class Replayed(NamedTuple):
    """What became of a replayed frame."""

    answers: list[Frame]
    records: list[StoredRecord]


def stored_from(broker: SendBroker, offset: int) -> list[StoredRecord]:
    """Return the records from a physical offset on."""
    found: list[StoredRecord] = []
    while (record := broker.store.reads.record_at(PhysicalOffset(offset))) is not None:
        found.append(record)
        offset += record.size
    return found


# --- sends -----------------------------------------------------------------------------------


def captured_sends() -> list[ParameterSet]:
    return [
        pytest.param(exchange, id=f"{run}-{exchange.request.opaque}")
        for run in RUNS
        for exchange in exchanges(run, *SEND_CODES)
    ]


def places_of(exchange: Exchange) -> list[int]:
    """Return where the stock broker stored the messages of a send."""
    request, answer = exchange
    if answer is not None:
        assert answer.ext is not None
        return [parse_message_id(each)[1] for each in answer.ext["msgId"].split(",")]
    # One-way: it is found by its unique key.
    assert request.ext is not None
    key = decode_properties(request.ext["i"].encode())["UNIQ_KEY"]
    return [
        offset
        for offset, record in golden_records().items()
        if record.properties.get("UNIQ_KEY") == key
    ]


@pytest.mark.parametrize("exchange", captured_sends())
async def test_a_captured_send_is_stored_and_answered_alike(
    tmp_path: Path, exchange: Exchange
) -> None:
    places = places_of(exchange)
    expected = [golden_records()[place] for place in places]
    replayed = await replay(tmp_path, places[0], exchange.request.frame, expected[0])
    assert [form(record) for record in replayed.records] == [form(record) for record in expected]
    if exchange.answer is None:
        assert replayed.answers == []
    else:
        (answer,) = replayed.answers
        captured = parse_frame(exchange.answer.frame)
        assert (answer.code, answer.opaque, answer.flag, answer.serialization) == (
            captured.code,
            captured.opaque,
            captured.flag,
            captured.serialization,
        )
        assert ext(answer) == ext(captured)


def test_the_captures_have_sends_of_every_kind() -> None:
    sends = [exchange for run in RUNS for exchange in exchanges(run, *SEND_CODES)]
    assert len(sends) == 39
    assert {exchange.request.kind for exchange in sends} == {"request", "oneway"}
    stored = {golden_records()[places_of(exchange)[0]].topic for exchange in sends}
    assert stored == {"GoldenTopic", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"}


# --- messages that come back -----------------------------------------------------------------


def captured_send_backs() -> list[ParameterSet]:
    return [
        pytest.param(exchange, id=str(exchange.request.opaque))
        for exchange in exchanges("push", RequestCode.CONSUMER_SEND_MSG_BACK)
    ]


@pytest.mark.parametrize("exchange", captured_send_backs())
async def test_a_captured_send_back_is_stored_and_answered_alike(
    tmp_path: Path, exchange: Exchange
) -> None:
    request, answer = exchange
    assert request.ext is not None
    assert answer is not None
    records = golden_records()
    original = records[int(request.ext["offset"])]
    topic = "%DLQ%golden_push" if original.reconsume_times else "SCHEDULE_TOPIC_XXXX"
    (expected,) = (
        record
        for record in records.values()
        if record.topic == topic
        and record.properties["UNIQ_KEY"] == request.ext["originMsgId"]
        and record.reconsume_times == original.reconsume_times + 1
    )
    replayed = await replay(tmp_path, expected.physical_offset, request.frame, expected)
    assert [form(record) for record in replayed.records] == [form(expected)]
    captured = parse_frame(answer.frame)
    assert [(each.code, each.opaque, each.fields, each.remark) for each in replayed.answers] == [
        (captured.code, captured.opaque, captured.fields, captured.remark)
    ]
