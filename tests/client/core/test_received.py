"""Decoding what a pull brought: against the declared layout, a Java client, and bad bytes."""

from __future__ import annotations

import hashlib
import pickle
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.received import (
    BadMessagesError,
    UnreadableBodyError,
    decode_messages,
    received,
)
from rmq.model import flags, record_layout
from rmq.model.compression import Compression, DecompressError, decompressed, use_decompressor
from rmq.model.properties import decode_properties, decode_text
from rmq.model.queues import MessageQueue
from rmq.model.record import BadRecordError, decode_record, decode_records
from rmq.remoting.expressions import build_subscription
from tests.store.built_records import HOST_VARIANTS, build_record, drawn_records, length_places
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.client.core.received import ReceivedMessage
    from rmq.remoting.bodies import SubscriptionData

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=3)


def decode_one(record: bytes, **options: Any) -> ReceivedMessage:  # noqa: ANN401 - any option
    (message,) = decode_messages(record, QUEUE, **options)
    return message


def everything_of(message: ReceivedMessage) -> dict[str, object]:
    return {
        name: getattr(message, name)
        for name in (
            "topic",
            "queue_offset",
            "stored_bytes",
            "reconsume_times",
            "raw_body",
            "properties_bytes",
            "properties",
            "tag",
            "keys",
            "message_id",
            "offset_message_id",
            "physical_offset",
            "born_at_ms",
            "stored_at_ms",
            "born_host",
            "store_host",
            "flag",
            "sys_flag",
            "prepared_offset",
            "delay_level",
            "body_crc",
            "is_compressed",
            "transaction_id",
        )
    }


# --- the same as the declaration -------------------------------------------------------------


@given(st.lists(drawn_records(), max_size=4))
def test_every_field_is_what_the_declared_layout_says(records: list[bytes]) -> None:
    messages = decode_messages(b"".join(records), QUEUE)
    assert len(messages) == len(records)
    for message, record in zip(messages, records, strict=True):
        fields = record_layout.Record.parse(record)
        assert message.queue is QUEUE
        assert message.topic == decode_text(fields.topic)
        assert message.queue_offset == fields.queue_offset
        assert message.stored_bytes == fields.total_size == len(record)
        assert message.reconsume_times == fields.reconsume_times
        assert message.raw_body == fields.body
        assert message.properties_bytes == fields.properties
        assert message.properties == decode_properties(fields.properties)
        assert message.physical_offset == fields.physical_offset
        assert message.born_at_ms == fields.born_ms
        assert message.stored_at_ms == fields.store_ms
        assert message.flag == fields.flag
        assert message.sys_flag == fields.sys_flag
        assert message.prepared_offset == fields.prepared_offset
        assert message.body_crc == fields.body_crc
        assert message.offset_message_id == decode_record(record).message_id


@given(drawn_records())
def test_a_record_read_otherwise_makes_the_same_message(record: bytes) -> None:
    stored = decode_record(record)
    other = received(stored, QUEUE.broker_name)
    assert other.queue == MessageQueue(
        topic=stored.topic, broker_name="broker-a", queue_id=stored.queue_id
    )
    assert everything_of(other) == everything_of(decode_one(record))


@pytest.mark.parametrize("hosts", HOST_VARIANTS, ids=HOST_VARIANTS.values())
def test_hosts_and_ids(hosts: int) -> None:
    message = decode_one(build_record(hosts=hosts))
    born = "[::a00:9]:40000" if hosts & flags.BORN_HOST_V6 else "10.0.0.9:40000"
    store = "[::a00:1]:10911" if hosts & flags.STORE_HOST_V6 else "10.0.0.1:10911"
    assert (message.born_host, message.store_host) == (born, store)
    prefix = "00" * 12 if hosts & flags.STORE_HOST_V6 else ""
    assert message.offset_message_id == prefix + "0A00000100002A9F0000000000000400"
    assert message.message_id == message.offset_message_id


def test_what_a_java_client_read_is_read_here() -> None:
    expected = {
        (it.topic, it.queue_id, it.queue_offset): it
        for it in golden.messages_of(golden.CLEAN_MASTER)
    }
    compressed = 0
    for record in golden.sound_records(golden.CLEAN_MASTER):
        stored = decode_record(record.data)
        java = expected.pop((stored.topic, stored.queue_id, stored.queue_offset), None)
        if java is None:
            continue
        queue = MessageQueue(topic=stored.topic, broker_name="b", queue_id=stored.queue_id)
        (message,) = decode_messages(record.data, queue)
        compressed += message.is_compressed
        assert message.message_id == java.message_id
        assert message.tag == java.tags
        assert message.keys == tuple((java.keys or "").split())
        assert message.properties == java.properties
        assert len(message.body) == java.body_length
        assert hashlib.sha256(message.body).hexdigest() == java.body_sha256
        assert message.body_error is None
        assert (message.born_at_ms, message.stored_at_ms) == (java.born_ms, java.store_ms)
        assert (message.flag, message.sys_flag) == (java.flag, java.sys_flag)
        assert message.body_crc == java.body_crc
        assert message.reconsume_times == java.reconsume_times
        assert message.prepared_offset == java.prepared_offset
        assert message.physical_offset == java.physical_offset
        assert message.stored_bytes == java.size
    assert not expected
    assert compressed


# --- properties ------------------------------------------------------------------------------


def test_properties_of_the_system_have_names() -> None:
    message = decode_one(
        build_record(
            properties=b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02DELAY\x013\x02UNIQ_KEY\x01ABC"
            b"\x02TRAN_MSG\x01true\x02colour\x01red"
        )
    )
    assert message.keys == ("k1", "k2")
    assert message.tag == "TagA"
    assert message.delay_level == 3
    assert message.message_id == "ABC"
    assert message.transaction_id == "ABC"
    assert message.properties["colour"] == "red"
    assert "ABC: T, broker-a queue 3 offset 5, 5 bytes" in repr(message)


def test_what_is_not_there_is_nothing() -> None:
    message = decode_one(build_record(properties=b""))
    assert message.keys == ()
    assert message.tag is None
    assert message.delay_level == 0
    assert message.transaction_id is None
    assert message.properties == {}
    assert message.message_id == message.offset_message_id


@pytest.mark.parametrize("level", ["x", "-1", "99999999999999999999", "", "٣"])
def test_a_delay_level_that_is_none_is_0(level: str) -> None:
    assert decode_one(build_record(properties=f"DELAY\x01{level}".encode())).delay_level == 0


def test_messages_can_be_pickled_and_are_equal_only_to_themselves() -> None:
    message = decode_one(build_record())
    again = pickle.loads(pickle.dumps(message))
    assert everything_of(again) == everything_of(message)
    assert again.body == message.body
    assert again != message
    assert len({message, again}) == 2


# --- topics and tags -------------------------------------------------------------------------


def test_only_subscribed_tags_come_through() -> None:
    tags = [b"TagA", b"TagB", b"", b"tagA", b"TagAA", "kéy".encode()]
    records = [
        build_record(queue_offset=number, properties=b"TAGS\x01" + tag if tag else b"")
        for number, tag in enumerate(tags)
    ]
    data = b"".join(records)

    def offsets(subscription: SubscriptionData | None) -> list[int]:
        found = decode_messages(data, QUEUE, subscription=subscription)
        return [message.queue_offset for message in found]

    assert offsets(None) == [0, 1, 2, 3, 4, 5]
    assert offsets(build_subscription("T", "*")) == [0, 1, 2, 3, 4, 5]
    assert offsets(build_subscription("T", "TagA || kéy")) == [0, 5]
    assert offsets(build_subscription("T", "Other")) == []
    assert offsets(build_subscription("T", "a > 1", "SQL92")) == [0, 1, 2, 3, 4, 5]


def test_tags_that_share_a_hash_are_told_apart() -> None:
    # "Aa" and "BB" have one hash in Java, so brokers let both pass.
    records = [
        build_record(queue_offset=n, properties=b"TAGS\x01" + t)
        for n, t in ((0, b"Aa"), (1, b"BB"))
    ]
    subscription = build_subscription("T", "BB")
    assert len(subscription.code_set) == 1
    assert [
        m.tag for m in decode_messages(b"".join(records), QUEUE, subscription=subscription)
    ] == ["BB"]


def test_a_tag_that_is_no_utf8_is_compared_as_java_reads_it() -> None:
    record = build_record(properties=b"TAGS\x01a\xff")
    subscription = build_subscription("T", "a\ufffd")
    assert len(decode_messages(record, QUEUE, subscription=subscription)) == 1


def test_a_class_filter_is_not_filtered_again() -> None:
    subscription = build_subscription("T", "TagB")
    by_class = type(subscription)(topic="T", tags_set=subscription.tags_set, class_filter_mode=True)
    assert len(decode_messages(build_record(), QUEUE, subscription=by_class)) == 1


def test_the_first_topic_is_back_in_the_own_retry_queue() -> None:
    queue = MessageQueue(topic="%RETRY%g", broker_name="broker-a", queue_id=0)
    properties = b"RETRY_TOPIC\x01Orders\x02REAL_TOPIC\x01%RETRY%g"
    record = build_record(topic=b"%RETRY%g", properties=properties, reconsume_times=2)
    (message,) = decode_messages(record, queue, group="g")
    assert message.topic == "Orders"
    assert message.queue == queue
    assert message.reconsume_times == 2
    # Whoever else reads the queue sees it as it is.
    assert decode_messages(record, queue, group="other")[0].topic == "%RETRY%g"
    assert decode_messages(record, queue)[0].topic == "%RETRY%g"
    # And who has no first topic keeps its own.
    bare = build_record(topic=b"%RETRY%g", properties=b"")
    assert decode_messages(bare, queue, group="g")[0].topic == "%RETRY%g"


def test_a_topic_other_than_the_queues_is_read() -> None:
    message = decode_one(build_record(topic="Täpic".encode()))
    assert message.topic == "Täpic"
    # One that the queue's topic is the beginning of, and one of another length.
    assert decode_one(build_record(topic=b"TT")).topic == "TT"
    assert decode_one(build_record(topic=b"")).topic == ""


# --- bodies ----------------------------------------------------------------------------------

ZLIB = flags.COMPRESSED | Compression.ZLIB


@pytest.mark.parametrize("sys_flag", [ZLIB, flags.COMPRESSED], ids=["named", "of an older client"])
def test_compressed_bodies_are_inflated_when_asked_for(sys_flag: int) -> None:
    body = b"hello" * 1000
    message = decode_one(build_record(body=zlib.compress(body, 5), sys_flag=sys_flag))
    assert message.is_compressed
    assert message.body == body
    assert message.body is message.body
    assert message.body_error is None
    assert zlib.decompress(message.raw_body) == body


def test_an_empty_body_is_empty_compressed_or_not() -> None:
    assert decode_one(build_record(body=b"")).body == b""
    assert decode_one(build_record(body=b"", sys_flag=ZLIB)).body == b""
    # A record without a body has 0 for its CRC, and some writers put anything there.
    assert decode_one(build_record(body=b"", body_crc=5)).body == b""


@pytest.mark.parametrize(
    ("body", "sys_flag", "reason"),
    [
        pytest.param(b"xx", flags.COMPRESSED | Compression.LZ4, "with LZ4", id="LZ4"),
        pytest.param(b"xx", flags.COMPRESSED | Compression.ZSTD, "with ZSTD", id="ZSTD"),
        pytest.param(b"xx", flags.COMPRESSED | 0x700, "not known .sysFlag 0x701", id="unknown"),
        pytest.param(b"no zlib", ZLIB, "no zlib data", id="no zlib"),
        pytest.param(zlib.compress(bytes(99))[:-5], ZLIB, "end too early", id="cut off"),
        pytest.param(zlib.compress(bytes(99))[:-1] + b"!", ZLIB, "no zlib data", id="bad check"),
    ],
)
def test_a_body_that_cannot_be_read_holds_up_nothing_but_itself(
    body: bytes, sys_flag: int, reason: str
) -> None:
    data = (
        build_record(queue_offset=4)
        + build_record(body=body, sys_flag=sys_flag, properties=b"UNIQ_KEY\x01ID")
        + build_record(queue_offset=6)
    )
    before, bad, after = decode_messages(data, QUEUE)
    assert before.body == after.body == b"hello"
    with pytest.raises(UnreadableBodyError, match=reason) as caught:
        _ = bad.body
    assert "message ID (topic T, broker broker-a, queue 3, offset 5)" in str(caught.value)
    assert caught.value.queue == QUEUE
    assert caught.value.queue_offset == 5
    assert caught.value.message_id == "ID"
    if sys_flag != ZLIB:
        assert caught.value.hint is not None
        assert "use_decompressor" in caught.value.hint
    assert str(bad.body_error) == str(caught.value)
    assert bad.raw_body == body
    assert bad.properties == {"UNIQ_KEY": "ID"}


def test_a_damaged_body_is_said_when_it_is_asked_for() -> None:
    record = build_record(body_crc=1)
    message = decode_one(record)
    with pytest.raises(UnreadableBodyError, match="its CRC is 907060870, the record says 1"):
        _ = message.body
    assert message.body_error is not None
    assert decode_one(record, checks_crc=False).body == b"hello"


def test_a_record_read_otherwise_is_checked_too() -> None:
    sound = decode_record(build_record())
    damaged = type(sound)(
        **{name: getattr(sound, name) for name in sound.__struct_fields__ if name != "body"},
        body=b"jello",
    )
    assert received(sound, "b").body == b"hello"
    assert received(damaged, "b").body_error is not None


@pytest.fixture
def lz4() -> Iterator[None]:
    use_decompressor(Compression.LZ4, lambda data: data[::-1])
    yield
    use_decompressor(Compression.LZ4, None)


@pytest.mark.usefixtures("lz4")
def test_other_decompressors_can_be_named() -> None:
    message = decode_one(build_record(body=b"olleh", sys_flag=flags.COMPRESSED | Compression.LZ4))
    assert message.body == b"hello"


def test_a_decompressor_that_fails_is_told_of() -> None:
    def fail(data: bytes) -> bytes:
        raise OSError("no luck")

    use_decompressor(Compression.ZSTD, fail)
    try:
        with pytest.raises(DecompressError, match="no luck"):
            decompressed(b"x", Compression.ZSTD)
    finally:
        use_decompressor(Compression.ZSTD, None)


def test_a_small_body_that_stands_for_a_huge_one_is_not_inflated() -> None:
    data = zlib.compress(bytes(1001))
    assert decompressed(data, ZLIB, bytes_max=1001) == bytes(1001)
    with pytest.raises(DecompressError, match="more than 1000 bytes"):
        decompressed(data, ZLIB, bytes_max=1000)


# --- bad bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(build_record(magic=1), "magic 0x00000001", id="magic"),
        pytest.param(build_record(magic=record_layout.BLANK_MAGIC), "magic 0xCBD43194", id="blank"),
        pytest.param(build_record(total_size=90), "size 90", id="too small"),
        pytest.param(build_record(total_size=0), "size 0", id="zero"),
        pytest.param(build_record(total_size=-1), "size -1", id="negative"),
        pytest.param(build_record(total_size=115), "size 115 with 114", id="too large"),
        pytest.param(build_record()[:-1], "size 114 with 113", id="cut off"),
        pytest.param(b"\x00\x00", "2 bytes after the last", id="two bytes"),
        pytest.param(bytes(200), "magic 0x00000000", id="zeros"),
    ],
)
def test_bad_records_are_refused_with_what_is_sound_before(record: bytes, reason: str) -> None:
    with pytest.raises(BadMessagesError, match=reason) as caught:
        decode_messages(record, QUEUE)
    assert caught.value.messages == []
    assert caught.value.next_offset is None
    assert isinstance(caught.value, BadRecordError)
    sound = build_record(queue_offset=7) + build_record(queue_offset=9)
    with pytest.raises(BadMessagesError, match=reason) as caught:
        decode_messages(sound + record, QUEUE)
    assert [message.queue_offset for message in caught.value.messages] == [7, 9]
    assert caught.value.next_offset == 10


def test_what_is_filtered_out_counts_as_sound() -> None:
    data = build_record(queue_offset=7) + build_record(queue_offset=8, properties=b"") + b"?"
    subscription = build_subscription("T", "TagA")
    with pytest.raises(BadMessagesError) as caught:
        decode_messages(data, QUEUE, subscription=subscription)
    assert len(caught.value.messages) == 1
    assert caught.value.next_offset == 9


@pytest.mark.parametrize("hosts", HOST_VARIANTS, ids=HOST_VARIANTS.values())
@pytest.mark.parametrize(
    "field", ["total_size", "body_length", "topic_length", "properties_length"]
)
@given(value=st.integers(0, 2**32 - 1))
def test_a_wrong_length_never_passes(hosts: int, field: str, value: int) -> None:
    record = build_record(hosts=hosts)
    at, size = length_places(record)[field]
    wrong = value.to_bytes(4)[-size:]
    if record[at : at + size] == wrong:
        return
    damaged = record[:at] + wrong + record[at + size :]
    # Followed by another one, so that there are bytes to run into.
    with pytest.raises(BadRecordError):
        decode_messages(damaged + build_record(hosts=hosts), QUEUE)


@given(drawn_records(), st.data())
def test_damage_is_refused_or_read_as_the_slow_way_reads_it(
    record: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(record) - 1))
    damaged = record[:at] + bytes((data.draw(st.integers(0, 255)),)) + record[at + 1 :]
    whole = record + damaged + record
    try:
        slow = list(decode_records(whole))
    except BadRecordError:
        try:
            messages = decode_messages(whole, QUEUE)
        except BadMessagesError:
            return
        # Structure is sound, so it is the body that is damaged.
        assert any(message._is_damaged for message in messages)
        return
    fast = decode_messages(whole, QUEUE)
    assert [it.raw_body for it in fast] == [it.body for it in slow]
    assert [it.topic for it in fast] == [it.topic for it in slow]
    assert [it.properties_bytes for it in fast] == [it.properties_bytes for it in slow]


def test_views_are_taken_too() -> None:
    assert (
        decode_one(build_record()).body
        == decode_messages(memoryview(build_record()), QUEUE)[0].body
    )
    assert decode_messages(b"", QUEUE) == []
