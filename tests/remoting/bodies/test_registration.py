"""REGISTER_BROKER bodies: the compressed form against its layout, and input that breaks it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from rmq.errors import LocalProtocolError
from rmq.remoting.bodies import (
    BodyError,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    body_crc32,
)
from rmq.remoting.bodies.registration_steps import read_registration
from rmq.remoting.layout import CompressedRegistration
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        topic_config_table={
            "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6),
            "%RETRY%ü": TopicConfig(
                topic_name="%RETRY%ü", perm=-1, topic_filter_type=TopicFilterType.MULTI_TAG
            ),
        },
        data_version=DataVersion(counter=3, timestamp=1700000000000),
    ),
    filter_server_list=("10.0.0.1:1",),
)
PLAIN = {
    "data_version": b'{"counter":3,"timestamp":1700000000000}',
    "topics": [b"T 4 4 6 SINGLE_TAG", "%RETRY%ü 16 16 -1 MULTI_TAG".encode()],
    "filter_servers": b'["10.0.0.1:1"]',
}


def decode_compressed(data: bytes, *, size_max: int = 32 * 1024**2) -> RegisterBrokerBody:
    return finish(read_registration(data, compressed=True, size_max=size_max))


def compressed(**changes: object) -> bytes:
    return zlib.compress(CompressedRegistration.build(PLAIN | changes), 9)


def test_the_plain_form_is_that_of_stock_brokers() -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={"T": TopicConfig(topic_name="T")},
            data_version=DataVersion(counter=3, timestamp=1700000000000),
        )
    )
    text = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{'
        b'"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{"T":'
        b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}}'
    )

    assert body.encode() == text
    assert RegisterBrokerBody.decode(text) == body


def test_the_compressed_form_has_the_declared_layout() -> None:
    data = BODY.encode_compressed()
    parsed: Mapping[str, Any] = CompressedRegistration.parse(zlib.decompress(data))

    assert {name: parsed[name] for name in PLAIN} == PLAIN
    assert data == compressed()
    assert data.startswith(b"\x78\xda"), "the mark of zlib's highest level"


def test_the_compressed_form_is_read_as_declared() -> None:
    assert decode_compressed(compressed()) == BODY


def test_system_flag_and_order_are_lost_in_the_compressed_form() -> None:
    topic = TopicConfig(topic_name="T", topic_sys_flag=1, order=True)
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table={"T": topic})
    )

    read = decode_compressed(body.encode_compressed())

    table = read.topic_config_serialize_wrapper.topic_config_table
    assert table == {"T": TopicConfig(topic_name="T")}


def test_bytes_after_the_last_field_and_after_the_stream_are_ignored() -> None:
    data = zlib.compress(CompressedRegistration.build(PLAIN) + b"more") + b"and more"

    assert decode_compressed(data) == BODY


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        pytest.param(b"{}", "zlib stream", "incorrect header check", id="not zlib"),
        pytest.param(compressed()[:-5], "zlib stream", "ends early", id="cut off"),
        pytest.param(
            compressed()[:-4] + b"\0\0\0\0", "zlib stream", "incorrect data check", id="checksum"
        ),
        pytest.param(
            zlib.compress(b"\0\0"), "length of data version", "ends at byte 2", id="no first length"
        ),
        pytest.param(
            zlib.compress(b"\xff\xff\xff\xff{}"),
            "data version",
            "length -1, not between 0 and 16384",
            id="negative length",
        ),
        pytest.param(
            zlib.compress(b"\x7f\xff\xff\xff{}"),
            "data version",
            "length 2147483647, not between 0 and 16384",
            id="absurd length",
        ),
        pytest.param(
            zlib.compress(b"\0\0\0\2{}\xff\xff\xff\xff"),
            "number of topics",
            "-1",
            id="negative count",
        ),
        pytest.param(
            zlib.compress(b"\0\0\0\2{}\0\0\0\2\0\0\0\x12T 4 4 6 SINGLE_TAG"),
            "length of topic 1",
            "ends at byte 32",
            id="absurd count",
        ),
        pytest.param(
            compressed(topics=[b"T 4 4 6"]), "topic 0", "is not `name read", id="four fields"
        ),
        pytest.param(
            compressed(topics=[b"T 4 4 6 SINGLE_TAG x"]), "topic 0", "is not", id="six fields"
        ),
        pytest.param(
            compressed(topics=[b"T 4 4 6 SINGLE_TAG", b"U 4 4 6 NO_TAG"]),
            "topic 1",
            "is not",
            id="unknown filter type",
        ),
        pytest.param(
            compressed(topics=[b"T 4 4_0 6 SINGLE_TAG"]), "topic 0", "is not", id="no number"
        ),
        pytest.param(
            compressed(topics=[b"T 4 4 4294967296 SINGLE_TAG"]),
            "topic 0",
            "more than 32 bits",
            id="large number",
        ),
        pytest.param(
            compressed(filter_servers=b"[1]"), "filter servers", "not all text", id="no texts"
        ),
        pytest.param(
            compressed(filter_servers=b"{}"), "filter servers", "not a list", id="no list"
        ),
        pytest.param(
            compressed(filter_servers=b""), "filter servers", "malformed JSON", id="no JSON"
        ),
    ],
)
def test_broken_compressed_forms_are_refused_with_their_place(
    data: bytes, path: str, reason: str
) -> None:
    with pytest.raises(BodyError) as caught:
        decode_compressed(data)

    assert caught.value.path == path
    assert reason in caught.value.reason
    assert caught.value.body == "compressed RegisterBrokerBody"


def test_a_broken_data_version_is_refused() -> None:
    with pytest.raises(BodyError, match=r"^DataVersion: \$\.counter: expected int of 64 bits"):
        decode_compressed(compressed(data_version=b'{"counter":"x"}'))


def test_a_stream_that_holds_more_than_the_limit_is_refused_before_it_is_decompressed() -> None:
    plain = CompressedRegistration.build(PLAIN)
    data = zlib.compress(plain)

    assert decode_compressed(data, size_max=len(plain)) == BODY
    with pytest.raises(BodyError, match=f"holds more than {len(plain) - 1} bytes"):
        decode_compressed(data, size_max=len(plain) - 1)


def test_a_small_frame_cannot_take_more_than_32_mib() -> None:
    sound = zlib.decompress(compressed())
    bomb = zlib.compress(sound + bytes(33 * 1024 * 1024), 1)

    assert len(bomb) < 1024 * 1024
    with pytest.raises(BodyError, match="holds more than 33554432 bytes"):
        decode_compressed(bomb)


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(TopicConfig(topic_name="a b"), id="a blank in the name"),
        pytest.param(TopicConfig(topic_name="a", topic_filter_type=None), id="no filter type"),
    ],
)
def test_a_topic_that_has_no_compressed_form_is_not_sent(topic: TopicConfig) -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table={"a": topic})
    )

    with pytest.raises(LocalProtocolError, match="has no compressed form"):
        body.encode_compressed()


def test_checksums_have_31_bits() -> None:
    assert body_crc32(b"hello") == 907060870
    assert zlib.crc32(b"a") == 0xE8B7BE43
    assert body_crc32(b"a") == 0x68B7BE43
