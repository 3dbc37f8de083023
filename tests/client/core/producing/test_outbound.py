"""Messages on their way out, byte for byte as the stock 4.9.8 producer sends them."""

from __future__ import annotations

import itertools
import random
import zlib
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.messages import RESERVED, Message, SendStatus
from rmq.client.core.producing.outbound import (
    COMPRESSED_BY_ZLIB,
    OutboundMessage,
    prepare,
    prepare_batch,
    prepare_half,
    properties_text,
    read_send_answer,
    send_request,
    split_batch,
)
from rmq.client.core.producing.unique_keys import UniqueKeys
from rmq.errors import BadAnswerError, IllegalMessageError, ResponseError
from rmq.model.java import hash_map_order
from rmq.model.properties import decode_properties
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.batch import decode_batch
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import SendMessageResponse
from tests.client.flow_kit import command_of, reply
from tests.remoting.frames import captured, receive

if TYPE_CHECKING:
    from rmq.remoting.command import Command

NOW_MS: Final = 1_794_797_297_877
QUEUE: Final = MessageQueue(topic="T", broker_name="broker-a", queue_id=2)
MIB: Final = 1024**2


def unique_keys() -> UniqueKeys:
    return UniqueKeys(bytes(4), 1, 2)


def prepared(message: Message, *, bytes_max: int = 4 * MIB) -> OutboundMessage:
    return prepare(
        message,
        unique_keys=unique_keys(),
        now_ms=NOW_MS,
        compress_above=4096,
        compress_level=5,
        bytes_max=bytes_max,
    )


# --- against captures ------------------------------------------------------------------------

# What the golden producer sent.
GOLDEN: Final = (
    Message("GoldenTopic", b"hello", "TagA", ("key1", "key2"), 0, {"color": "blue", "n": "42"}),
    Message("GoldenTopic", "héllo wörld 消息".encode(), "TagB", ("kéy",), flag=7),
    Message("GoldenTopic", b"compressed", "TagA", ("big",)),
    Message("GoldenTopic", b"no tag, no key", waits_stored=False),
    Message("GoldenTopic", b"to queue two", "TagC", ("order1",)),
    Message("GoldenTopic", b"async 0", "TagA", ("async0",)),
    Message("GoldenTopic", b"async 1", "TagA", ("async1",)),
    Message("GoldenTopic", b"async 2", "TagA", ("async2",)),
    Message("GoldenTopic", b"one way", "TagA", ("oneway",)),
    Message("GoldenTopic", b"delayed level 1", "TagA", ("delay1",), 1),
    Message("GoldenTopic", b"delayed level 2", "TagA", ("delay2",), 2),
)


class SetKeys:
    """Gives out ids that are known beforehand."""

    def __init__(self, *ids: str) -> None:
        self._ids = list(ids)

    def next(self, now_ms: int) -> str:
        return self._ids.pop(0)

    def many(self, now_ms: int, count: int) -> list[str]:
        return [self.next(now_ms) for _ in range(count)]


def golden_keys(*ids: str) -> UniqueKeys:
    return SetKeys(*ids)  # type: ignore[return-value]


def golden_sends(run: str, code: int) -> list[tuple[Command, bytes]]:
    found = []
    for frame in captured(run):
        if frame.kind != "response" and frame.code == code:
            (command,) = receive(frame.frame).commands
            found.append((command, frame.frame))
    return found


def unique_key_of(properties: str) -> str:
    return decode_properties(properties.encode())["UNIQ_KEY"]


def frame_of(outbound: OutboundMessage, golden: Command, group: str = "golden_producer") -> bytes:
    """The frame that we would send where the golden producer sent one."""
    ext = golden.ext_fields
    queue = MessageQueue(topic=outbound.topic, broker_name=ext["n"], queue_id=int(ext["e"]))
    header = send_request(
        outbound, group=group, queue=queue, now_ms=int(ext["g"]), default_queues=4
    )
    head = encode_frame(
        code=outbound.code,
        flag=golden.flag,
        opaque=golden.opaque,
        header=header,
        body_length=len(outbound.body),
        serialization=golden.serialization,
        language=LanguageCode.JAVA,
    )
    return head + outbound.body


@pytest.mark.parametrize("run", ["producer", "producer-binary"])
def test_messages_are_sent_byte_for_byte_as_by_a_stock_producer(run: str) -> None:
    # Asynchronous sends may have overtaken each other.
    by_body = {message.body: message for message in GOLDEN}
    for command, frame in golden_sends(run, 310):
        body = command.body
        assert body is not None
        if command.ext_fields["f"] == str(COMPRESSED_BY_ZLIB):
            message = by_body.pop(b"compressed")
            message = msgspec.structs.replace(message, body=zlib.decompress(body))
        else:
            message = by_body.pop(body)
        outbound = prepare(
            message,
            unique_keys=golden_keys(unique_key_of(command.ext_fields["i"])),
            now_ms=NOW_MS,
            compress_above=4096,
            compress_level=5,
            bytes_max=4 * MIB,
        )
        assert frame_of(outbound, command) == frame
    assert not by_body


@pytest.mark.parametrize(
    ("run", "serialization"),
    [("producer", Serialization.JSON), ("producer-binary", Serialization.ROCKETMQ)],
)
def test_a_batch_is_sent_byte_for_byte_as_by_a_stock_producer(
    run: str, serialization: Serialization
) -> None:
    ((command, frame),) = golden_sends(run, 320)
    assert command.serialization is serialization
    entries = decode_batch(command.body)
    keys = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries]
    messages = [
        Message("GoldenTopic", f"batch {number}".encode(), "TagA", (f"batch{number}",))
        for number in range(5)
    ]
    outbound = prepare_batch(messages, unique_keys=golden_keys(*keys), now_ms=NOW_MS)
    assert outbound.message_id == ",".join(keys)
    assert frame_of(outbound, command) == frame


def test_half_messages_are_sent_byte_for_byte_as_by_a_stock_producer() -> None:
    sends = golden_sends("transaction", 310)
    assert len(sends) == 3
    for (command, frame), state in zip(
        sends, ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"), strict=True
    ):
        # A delay level is taken out: half messages cannot be delayed.
        message = Message(
            "GoldenTopic", f"transaction {state}".encode(), "TagTx", (f"tx-{state}",), 3
        )
        outbound = prepare_half(
            message,
            group="golden_tx",
            unique_keys=golden_keys(unique_key_of(command.ext_fields["i"])),
            now_ms=NOW_MS,
            compress_above=4096,
            compress_level=5,
            bytes_max=4 * MIB,
        )
        assert frame_of(outbound, command, "golden_tx") == frame


# --- properties ------------------------------------------------------------------------------

names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
own_properties = st.dictionaries(
    names.filter(lambda name: name not in RESERVED), names, max_size=15
)
key_texts = st.text(
    st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1
)


@given(
    tag=st.none() | names.filter(lambda text: "||" not in text),
    keys=st.lists(key_texts, max_size=3).map(tuple),
    delay_level=st.integers(0, 18),
    properties=own_properties,
    waits_stored=st.booleans(),
)
def test_properties_are_in_the_order_of_a_hash_map_and_read_back(
    tag: str | None,
    keys: tuple[str, ...],
    delay_level: int,
    properties: dict[str, str],
    waits_stored: bool,
) -> None:
    message = Message("T", b"x", tag, keys, delay_level, properties, waits_stored=waits_stored)
    expected = {}
    if tag is not None:
        expected["TAGS"] = tag
    if keys:
        expected["KEYS"] = " ".join(keys)
    expected["WAIT"] = "true" if waits_stored else "false"
    if delay_level:
        expected["DELAY"] = str(delay_level)
    expected.update(properties)
    expected["UNIQ_KEY"] = "ID"
    text = properties_text(message, "ID")
    pairs = [pair.split("\x01") for pair in text.split("\x02")]
    assert dict(pairs) == expected
    assert [name for name, _ in pairs] == hash_map_order(list(expected))


def test_an_empty_tag_is_none() -> None:
    assert properties_text(Message("T", b"x", ""), "ID") == "UNIQ_KEY\x01ID\x02WAIT\x01true"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message("T", b"x", "a\x02b"), id="tag"),
        pytest.param(Message("T", b"x", None, ("a\x01b",)), id="key"),
        pytest.param(Message("T", b"x", "a\x01b", (), 0, {"p": "v"}), id="with-properties"),
    ],
)
def test_separators_in_a_tag_or_key_are_refused(message: Message) -> None:
    with pytest.raises(IllegalMessageError, match="character 1 or 2"):
        properties_text(message, "ID")


def test_properties_may_take_32767_bytes_and_no_more() -> None:
    room = 32_767 - len(properties_text(Message("T", b"x", None, (), 0, {"p": "v"}), "ID")) + 1
    properties_text(Message("T", b"x", None, (), 0, {"p": "v" * room}), "ID")
    with pytest.raises(IllegalMessageError, match="32768 bytes"):
        properties_text(Message("T", b"x", None, (), 0, {"p": "v" * (room + 1)}), "ID")
    with pytest.raises(IllegalMessageError, match="bytes, above 32767"):
        properties_text(Message("T", b"x", "消" * 11_000), "ID")


# --- bodies ----------------------------------------------------------------------------------


def test_bodies_are_compressed_from_4096_bytes_on() -> None:
    short, long = prepared(Message("T", b"x" * 4095)), prepared(Message("T", b"x" * 4096))
    assert (short.body, short.sys_flag) == (b"x" * 4095, 0)
    assert long.sys_flag == COMPRESSED_BY_ZLIB == 0x301
    assert long.body[:2] == b"\x78\x5e"
    assert zlib.decompress(long.body) == b"x" * 4096


def test_a_body_that_compression_makes_no_smaller_is_sent_as_it_is() -> None:
    noise = random.Random(1).randbytes(8192)
    outbound = prepared(Message("Orders", noise))
    assert outbound.body == noise
    assert outbound.sys_flag == 0


def test_the_limit_is_that_of_the_body_before_compression() -> None:
    assert prepared(Message("T", b"x" * MIB), bytes_max=MIB).sys_flag
    with pytest.raises(IllegalMessageError, match="1048577 bytes, above 1048576") as caught:
        prepared(Message("T", b"x" * (MIB + 1)), bytes_max=MIB)
    assert caught.value.hint is not None


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_topics_of_brokers_are_refused(topic: str) -> None:
    with pytest.raises(IllegalMessageError, match="by brokers only"):
        prepared(Message(topic, b"x"))


def test_a_flag_that_needs_more_than_32_bits_is_refused() -> None:
    assert prepared(Message("T", b"x", flag=-(2**31))).flag == -(2**31)
    with pytest.raises(IllegalMessageError, match="more than 32 bits"):
        prepared(Message("T", b"x", flag=2**31))


# --- batches ---------------------------------------------------------------------------------

bodies = st.binary(min_size=1, max_size=300)
batch_messages = st.lists(
    st.builds(
        Message,
        topic=st.just("T"),
        body=bodies,
        tag=st.none() | key_texts.filter(lambda text: "||" not in text),
        keys=st.lists(key_texts, max_size=2).map(tuple),
        properties=st.dictionaries(
            names.filter(lambda name: name not in RESERVED), names, max_size=3
        ),
    ),
    min_size=1,
    max_size=30,
)


@given(batch_messages, st.integers(1000, 5000))
def test_a_batch_is_cut_into_parts_that_fit_in_order(
    messages: list[Message], bytes_max: int
) -> None:
    runs = split_batch(messages, bytes_max)
    assert [message for run in runs for message in run] == messages
    keys = UniqueKeys(bytes(16), 1, 2)
    for run in runs:
        outbound = prepare_batch(run, unique_keys=keys, now_ms=NOW_MS)
        assert len(outbound.body) <= bytes_max
        entries = decode_batch(outbound.body)
        assert [entry.body for entry in entries] == [message.body for message in run]
        assert outbound.message_id.split(",") == [
            decode_properties(entry.properties)["UNIQ_KEY"] for entry in entries
        ]
    # No part is cut much too early.
    for run, following in itertools.pairwise(runs):
        together = prepare_batch([*run, following[0]], unique_keys=keys, now_ms=NOW_MS)
        assert len(together.body) > bytes_max - 40 * (len(run) + 1)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        pytest.param([], "no messages", id="none"),
        pytest.param([Message("T", b"x"), Message("U", b"x")], "topics T and U", id="topics"),
        pytest.param([Message("T", b"x", delay_level=1)], "delayed", id="delayed"),
        pytest.param([Message("%RETRY%g", b"x")], "retry topic", id="retry"),
        pytest.param(
            [Message("T", b"x"), Message("T", b"x", waits_stored=False)], "waits_stored", id="wait"
        ),
        pytest.param([Message("T", b"x"), Message("T", b"x" * 2000)], "2000 bytes", id="large"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        split_batch(messages, 1000)


# --- answers ---------------------------------------------------------------------------------


def stored(code: int = ResponseCode.SUCCESS, queue_id: int = 2) -> Command:
    return command_of(
        reply(
            SendMessageResponse(
                msg_id="0A00000100002A9F0000000000000400",
                queue_id=queue_id,
                queue_offset=7,
                msg_region="DefaultRegion",
                trace_on=False,
            ),
            code=code,
        )
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_four_codes_mean_that_it_is_stored(code: int, status: SendStatus) -> None:
    outbound = prepared(Message("T", b"x"))
    result = read_send_answer(stored(code), address="m:1", queue=QUEUE, outbound=outbound)
    assert (result.status, result.queue, result.queue_offset) == (status, QUEUE, 7)
    assert result.message_id == outbound.message_id
    assert result.offset_message_id == "0A00000100002A9F0000000000000400"
    assert (result.region, result.is_trace_on) == ("DefaultRegion", False)


def test_a_broker_may_choose_the_queue() -> None:
    result = read_send_answer(
        stored(queue_id=5), address="m:1", queue=QUEUE, outbound=prepared(Message("T", b"x"))
    )
    assert result.queue == MessageQueue(topic="T", broker_name="broker-a", queue_id=5)


def test_a_no_and_nonsense_are_errors_that_say_where() -> None:
    outbound = prepared(Message("T", b"x"))
    with pytest.raises(ResponseError, match="full") as refused:
        read_send_answer(
            command_of(reply(code=14, remark="disk full")),
            address="m:1",
            queue=QUEUE,
            outbound=outbound,
        )
    assert (refused.value.code, refused.value.peer) == (14, "m:1")
    with pytest.raises(BadAnswerError, match="msgId") as bad:
        read_send_answer(command_of(reply()), address="m:1", queue=QUEUE, outbound=outbound)
    assert bad.value.what == RequestCode.SEND_MESSAGE_V2.name
