"""Batches: SEND_BATCH_MESSAGE stores several messages of one queue, all of them or none."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.model import flags
from rmq.model.properties import decode_properties, encode_properties
from rmq.model.record import parse_message_id
from rmq.remoting.bodies import BatchMessage, encode_batch
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from tests.broker.send_kit import (
    BORN_MS,
    TOPIC,
    batch_frame,
    ext,
    frame,
    send_broker,
    send_frame,
    send_frame_v1,
    send_header,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Generator

ILLEGAL: Final = ResponseCode.MESSAGE_ILLEGAL
REMARK: Final = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length"
    " limit 4194304B, msg properties length limit 32KB."
)


def entry(body: bytes, flag: int = 0, **pairs: str) -> BatchMessage:
    return BatchMessage(flag, body, encode_properties(pairs))


def numbered(count: int) -> bytes:
    return encode_batch([entry(b"%d" % number, WAIT="true") for number in range(count)])


async def test_each_message_of_a_batch_is_a_record_of_its_own(tmp_path: Path) -> None:
    body = encode_batch(
        [
            entry(b"one", 1, KEYS="k1", TAGS="TagA", WAIT="true"),
            entry(b"", 2),
            BatchMessage(3, b"three", b"KEYS\x01k3\x02"),
        ]
    )
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(queue_id=2))
        answer = await broker.send(
            batch_frame(body, queue_id=2, properties=text(WAIT="true"), opaque=9)
        )
        _, *records = broker.records(queue_id=2)
        assert (answer.code, answer.opaque, answer.remark) == (0, 9, None)
        assert ext(answer) == {
            "msgId": ",".join(record.message_id for record in records),
            "queueId": "2",
            "queueOffset": "1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        assert [(record.body, record.flag, record.queue_offset) for record in records] == [
            (b"one", 1, 1),
            (b"", 2, 2),
            (b"three", 3, 3),
        ]
        assert {(record.born_ms, record.sys_flag, record.store_ms) for record in records} == {
            (BORN_MS, 0, broker.clock.ms)
        }
        # The entry's own, then those of the batch: 4.9.8 stores WAIT twice.
        assert [record.properties_bytes for record in records] == [
            b"KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster",
            b"WAIT\x01true\x02CLUSTER\x01DefaultCluster",
            b"KEYS\x01k3\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster",
        ]


async def test_a_batch_without_outer_properties_gains_the_cluster_alone(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(batch_frame(encode_batch([entry(b"a", KEYS="k"), entry(b"b")])))
        first, second = broker.records()
        assert first.properties_bytes == b"KEYS\x01k\x02CLUSTER\x01DefaultCluster"
        assert second.properties_bytes == b"CLUSTER\x01DefaultCluster"


async def test_a_batch_of_one_is_a_batch(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(batch_frame(encode_batch([entry(b"alone")])))
        _, offset = parse_message_id(ext(answer)["msgId"])
        assert offset == 0
        assert broker.bodies() == [b"alone"]


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_the_header_tells_a_batch_not_the_code(tmp_path: Path, code: RequestCode) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(frame(code, send_header(batch=True), numbered(3)))
        assert answer.code == 0
        assert broker.bodies() == [b"0", b"1", b"2"]
        answer = await broker.send(frame(code, send_header(batch=False), b"one message"))
        assert broker.bodies() == [b"0", b"1", b"2", b"one message"]


async def test_a_batch_under_the_old_names_is_taken(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame_v1(send_header(batch=True), numbered(2)))
        assert (answer.code, broker.bodies()) == (0, [b"0", b"1"])


async def test_a_batch_in_the_binary_serialization_is_taken(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(
            batch_frame(
                numbered(5), properties=text(WAIT="true"), serialization=Serialization.ROCKETMQ
            )
        )
        assert (answer.code, answer.serialization) == (0, Serialization.ROCKETMQ)
        assert len(ext(answer)["msgId"].split(",")) == 5
        assert broker.bodies() == [b"%d" % number for number in range(5)]


async def test_a_one_way_batch_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.make_queues()
        peer = broker.attach()
        await peer.send(batch_frame(numbered(3), oneway=True), batch_frame(b"bad", oneway=True))
        assert await peer.ping() == []
        assert broker.bodies() == [b"0", b"1", b"2"]


async def test_a_batch_creates_its_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(batch_frame(numbered(3), "New", queue_id=-1))
        assert answer.code == 0
        assert broker.bodies("New", int(ext(answer)["queueId"])) == [b"0", b"1", b"2"]


async def test_a_batch_to_a_retry_topic_is_not_looked_at_as_a_retry(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker:
        answer = await broker.send(batch_frame(numbered(2), "%RETRY%nobody"))
        assert (answer.code, broker.bodies("%RETRY%nobody")) == (0, [b"0", b"1"])


async def test_batches_and_single_sends_keep_their_order(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.send(
            send_frame(body=b"a", opaque=1),
            batch_frame(numbered(2), opaque=2),
            send_frame(body=b"b", opaque=3),
            batch_frame(numbered(1), opaque=4),
            send_frame(body=b"c", opaque=5),
        )
        answers = {answer.opaque: ext(answer)["queueOffset"] for answer in await peer.read_many(5)}
        assert answers == {1: "0", 2: "1", 3: "3", 4: "4", 5: "5"}
        assert broker.bodies() == [b"a", b"0", b"1", b"b", b"0", b"c"]


async def test_a_batch_lies_in_one_segment(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": "16384"}
    async with send_broker(tmp_path, settings) as broker:
        peer = broker.attach()
        answer = await peer.request(
            batch_frame(encode_batch([entry(b"x" * 3000) for _ in range(3)]))
        )
        answer = await peer.request(
            batch_frame(encode_batch([entry(b"y" * 3000) for _ in range(3)]))
        )
        places = [parse_message_id(each)[1] for each in ext(answer)["msgId"].split(",")]
        assert {place // 16384 for place in places} == {1}
        assert len(broker.records()) == 6


async def test_many_small_messages_may_take_more_room_stored_than_sent(tmp_path: Path) -> None:
    # 4.9.8 limits the body that was sent; what the records take is bounded by the segment only.
    settings = {"maxMessageSize": "100000", "mappedFileSizeCommitLog": str(1 << 20)}
    body = encode_batch([entry(b"%d" % number) for number in range(3000)])
    assert len(body) < 100_000
    async with send_broker(tmp_path, settings) as broker:
        answer = await broker.send(batch_frame(body, properties=text(WAIT="true")))
        assert (answer.code, answer.remark) == (0, None)
        assert broker.core.log.written > 100_000 + 65_536
        assert len(broker.records()) == 3000


# --- batches of thousands of messages --------------------------------------------------------

ROOMY: Final = {"mappedFileSizeCommitLog": str(1 << 21)}
LARGE: Final = encode_batch([entry(b"%d" % number, WAIT="true") for number in range(6000)])


async def test_others_are_served_while_a_large_batch_is_read(tmp_path: Path) -> None:
    async with send_broker(tmp_path, ROOMY) as broker:
        await broker.make_queues()
        large, other = broker.attach(), broker.attach("192.0.2.9:9")
        await large.send(batch_frame(LARGE, opaque=2))
        offsets = [
            ext(await other.request(send_frame(body=b"other")))["queueOffset"] for _ in range(2)
        ]
        # It is stored in one piece, and has not been yet.
        assert offsets == ["0", "1"]
        await large.send(send_frame(body=b"behind", opaque=3))
        answers = sorted(await large.read_many(2), key=lambda each: each.opaque)
        found = [(each.opaque, each.code, ext(each)["queueOffset"]) for each in answers]
        assert found == [(2, 0, "2"), (3, 0, "6002")]
        await broker.settle()
        records = broker.records()
        assert ext(answers[0])["msgId"].split(",") == [each.message_id for each in records[2:-1]]
        assert [each.body for each in records[2:]] == [
            *(b"%d" % number for number in range(6000)),
            b"behind",
        ]


async def test_a_large_batch_that_is_not_sound_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        answer = await peer.request(batch_frame(LARGE[:-1]))
        assert answer.code == ILLEGAL
        assert "entry 5999 at byte" in (answer.remark or "")
        assert broker.core.log.written == 0
        assert (await peer.request(batch_frame(SOUND))).code == 0


async def test_a_large_batch_that_may_not_be_stored_is_not_read(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(batch_frame(LARGE[:-1], properties=text(DELAY="1")))
        assert (answer.code, answer.remark) == (ILLEGAL, REMARK)


async def test_a_large_batch_whose_topic_is_deleted_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.make_queues()
        work = broker.broker.large_batches
        submit = work.submit

        def submit_and_delete(steps: Generator[None, None, None]) -> None:
            submit(steps)
            broker.tables.topics.delete(TOPIC)

        monkeypatch.setattr(work, "submit", submit_and_delete)
        answer = await broker.send(batch_frame(LARGE))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert broker.core.log.written == 0


# --- refused ---------------------------------------------------------------------------------

SOUND: Final = encode_batch([entry(b"sound", KEYS="k")])


@pytest.mark.parametrize(
    ("sent", "remark"),
    [
        pytest.param(batch_frame(b""), "there is no body", id="no body"),
        pytest.param(
            batch_frame(SOUND, sys_flag=flags.TRANSACTION_PREPARED), REMARK, id="prepared"
        ),
        pytest.param(batch_frame(SOUND, sys_flag=flags.TRANSACTION_COMMIT), REMARK, id="committed"),
        pytest.param(
            batch_frame(SOUND, sys_flag=flags.TRANSACTION_ROLLBACK), REMARK, id="rolled back"
        ),
        pytest.param(batch_frame(SOUND, properties=text(DELAY="1")), REMARK, id="delayed"),
        pytest.param(batch_frame(SOUND + b"x"), "entry 1 at byte", id="bytes behind"),
        pytest.param(batch_frame(SOUND + SOUND[:-1]), "entry 1 at byte", id="the last cut short"),
        pytest.param(
            batch_frame(struct.pack(">i", len(SOUND) + 1) + SOUND[4:]),
            "total size",
            id="a wrong total size",
        ),
        pytest.param(
            batch_frame(SOUND[:16] + struct.pack(">i", -1) + SOUND[20:]),
            "body length -1",
            id="a negative length",
        ),
        pytest.param(
            batch_frame(SOUND[:16] + struct.pack(">i", 2**31 - 1) + SOUND[20:]),
            "needs",
            id="a length beyond the end",
        ),
        pytest.param(
            batch_frame(encode_batch([entry(b"a"), entry(b"b", own="x" * 32_741)])),
            "the properties have 32768 bytes",
            id="properties that are too long with those of the broker",
        ),
    ],
)
async def test_a_batch_that_is_not_sound_is_refused_as_a_whole(
    tmp_path: Path, sent: bytes, remark: str
) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(sent)
        assert answer.code == ILLEGAL
        assert answer.remark is not None
        assert remark in answer.remark
        assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert broker.core.log.written == 0
        assert (await broker.send(batch_frame(SOUND))).code == 0
        assert broker.record().queue_offset == 0


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_a_batch_with_a_level_that_is_none_is_taken(tmp_path: Path, level: str) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(batch_frame(SOUND, properties=text(DELAY=level)))).code == 0


async def test_a_batch_with_a_malformed_level_is_an_error(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(batch_frame(SOUND, properties=text(DELAY="soon")))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == 'DELAY is no number: For input string: "soon"'


async def test_what_an_entry_says_of_delays_and_transactions_does_not_count(
    tmp_path: Path,
) -> None:
    async with send_broker(tmp_path) as broker:
        body = encode_batch([entry(b"a", DELAY="5", TRAN_MSG="true")])
        assert (await broker.send(batch_frame(body))).code == 0
        assert broker.bodies() == [b"a"]


PAIRS: Final = st.dictionaries(
    st.text("abcKEYS", min_size=1, max_size=4), st.text("xyz12", min_size=1, max_size=5), max_size=4
)


@settings(max_examples=30)
@given(
    messages=st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), PAIRS),
        min_size=1,
        max_size=8,
    ),
    outer=PAIRS,
)
async def test_any_batch_is_stored_as_it_was_sent(
    messages: list[tuple[int, bytes, dict[str, str]]], outer: dict[str, str]
) -> None:
    body = encode_batch([BatchMessage(f, b, encode_properties(p)) for f, b, p in messages])
    with tempfile.TemporaryDirectory() as folder:
        async with send_broker(Path(folder)) as broker:
            answer = await broker.send(
                batch_frame(body, properties=encode_properties(outer).decode())
            )
            assert answer.code == 0
            records = broker.records(TOPIC)
            assert ext(answer)["msgId"].split(",") == [record.message_id for record in records]
            assert [
                (record.flag, record.body, decode_properties(record.properties_bytes))
                for record in records
            ] == [(f, b, p | outer | {"CLUSTER": "DefaultCluster"}) for f, b, p in messages]
