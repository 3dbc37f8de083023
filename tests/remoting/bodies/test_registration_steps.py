"""Registrations of any size, read in steps: what they say, and how much a step does."""

from __future__ import annotations

import zlib
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import ProtocolError
from rmq.remoting.bodies import (
    BodyError,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    body_crc32,
    registration_steps,
)
from rmq.remoting.bodies.registration_steps import crc32_in_steps, read_registration
from rmq.remoting.layout import CompressedRegistration
from tests.stepping import count_steps, finish

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def body_of(*topics: TopicConfig) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=DataVersion(counter=3, timestamp=1700000000000),
        ),
        filter_server_list=("f:1",),
    )


def many(count: int) -> RegisterBrokerBody:
    return body_of(*(TopicConfig(topic_name=f"topic-{number}") for number in range(count)))


@pytest.fixture
def cut_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut bodies of any size, topic by topic."""
    monkeypatch.setattr(registration_steps, "AT_ONCE_BYTES_MAX", 1)
    monkeypatch.setattr(registration_steps, "_CUT_BYTES", 1)


@pytest.mark.parametrize("count", [0, 1, 100, 5_000])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_body_of_any_size_is_read_as_it_was_written(count: int, compressed: bool) -> None:
    body = many(count)
    data = body.encode_compressed() if compressed else body.encode()
    assert finish(read_registration(data, compressed=compressed)) == body


def test_a_bare_table_of_topics_is_read_as_well() -> None:
    wrapper = many(2_000).topic_config_serialize_wrapper
    read = finish(read_registration(wrapper.encode(), is_bare=True))
    assert read.topic_config_serialize_wrapper == wrapper
    assert read.filter_server_list == ()


@given(st.lists(st.builds(TopicConfig, topic_name=names, perm=st.integers(0, 7)), max_size=5))
@pytest.mark.usefixtures("cut_always")
def test_a_body_that_is_cut_is_the_same_as_a_whole_one(topics: list[TopicConfig]) -> None:
    body = body_of(*topics)
    assert finish(read_registration(body.encode())) == body


# Members of later versions, members in another order, and spaces, as other writers may have them.
OTHERS = [
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","attributes":{}}},'
    b'"mappedTopicConfigMap":{"a":{"b":1}},"dataVersion":{"stateVersion":0,"counter":3}}}',
    b'{ "topicConfigSerializeWrapper" : { "topicConfigTable" : { "T" : { "topicName" : "T" } ,'
    b' "U" : {"topicName":"U","attributes":{"+a":"}"}} } } }',
    b'{"filterServerList":["\\"topicConfigTable\\":{"],"topicConfigSerializeWrapper":{'
    b'"topicConfigTable":{"a\\"b{":{"topicName":"a\\"b{"}}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}',
    b'{"filterServerList":["f:1"]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T","perm":"4"}}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},'
    b'"T":{"topicName":"T","perm":4}}}}',
]


@pytest.mark.parametrize("data", OTHERS)
@pytest.mark.usefixtures("cut_always")
def test_what_others_write_is_cut_in_the_right_places(data: bytes) -> None:
    assert finish(read_registration(data)) == RegisterBrokerBody.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(many(3).encode()[:-3], id="torn"),
        pytest.param(many(3).encode().replace(b"}}}}", b"}}}"), id="not closed"),
        pytest.param(many(3).encode().replace(b'"topic-1":{', b'"topic-1":['), id="a list"),
        pytest.param(many(3).encode().replace(b'"perm":6', b'"perm":"x"'), id="no number"),
        pytest.param(many(3).encode().replace(b',"topic-2"', b',,"topic-2"'), id="two commas"),
        pytest.param(
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"}},'
            b'"topicConfigTable":{"U":{"topicName":"U"}}}}',
            id="two tables",
        ),
    ],
)
@pytest.mark.usefixtures("cut_always")
def test_what_is_broken_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        finish(read_registration(data))


def test_a_long_text_that_is_no_topic_is_not_searched_to_its_end() -> None:
    data = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"' + b"x" * 10_000_000
    with pytest.raises(BodyError, match="is not the beginning of a topic of at most 8192 bytes"):
        finish(read_registration(data))


def test_what_is_not_in_the_table_has_to_be_short() -> None:
    body = RegisterBrokerBody(filter_server_list=tuple(f"f:{n}" for n in range(20_000)))
    with pytest.raises(BodyError, match="bytes besides its topics, above 65536"):
        finish(read_registration(body.encode()))


def test_a_long_body_must_be_standard_json_and_a_short_one_need_not() -> None:
    loose = b"{topicConfigSerializeWrapper:{topicConfigTable:{T:{topicName:'T'}}}}"
    read = finish(read_registration(loose))
    assert set(read.topic_config_serialize_wrapper.topic_config_table) == {"T"}
    quoted = many(10_000).encode().replace(b'"perm":6', b'"perm":"6"')
    assert len(quoted) > 1024 * 1024
    with pytest.raises(BodyError, match="not plain"):
        finish(read_registration(quoted))


def test_a_large_body_is_read_in_steps_of_a_few_dozen_topics() -> None:
    body = many(10_000)
    steps = count_steps(read_registration(body.encode()))[1]
    assert steps >= len(body.encode()) / (16 * 1024)
    steps = count_steps(read_registration(body.encode_compressed(), compressed=True))[1]
    assert steps >= 10_000 / 256


def steps_until_refused(data: bytes, reason: str) -> int:
    """How many steps it takes to refuse a compressed body."""
    steps: deque[None] = deque()
    with pytest.raises(ProtocolError, match=reason):
        steps.extend(read_registration(data, compressed=True))
    return len(steps)


def test_a_bomb_inflates_in_small_steps_up_to_the_limit() -> None:
    sound = CompressedRegistration.build(
        {"data_version": b"{}", "topics": [], "filter_servers": b"[]"}
    )
    bomb = zlib.compress(sound + bytes(40 * 1024**2), 1)
    assert steps_until_refused(bomb, "holds more than 33554432 bytes") >= 32 * 8


def test_a_bomb_that_is_no_registration_is_refused_before_it_is_inflated() -> None:
    bomb = zlib.compress(bytes(40 * 1024**2), 1)
    assert steps_until_refused(bomb, "there is no body") <= 2


@given(st.binary(max_size=100))
def test_a_checksum_in_steps_is_the_same(data: bytes) -> None:
    assert finish(crc32_in_steps(data)) == body_crc32(data)


def test_a_checksum_of_a_large_body_takes_a_step_for_each_mebibyte() -> None:
    data = b"x" * (5 * 1024 * 1024)
    assert count_steps(crc32_in_steps(data)) == (body_crc32(data), 5)
