"""The table of topics as files and bodies, against those of a stock broker."""

from __future__ import annotations

import pytest

from rmq.errors import MalformedJsonError
from rmq.remoting.bodies import (
    BodyError,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode
from tests.broker.tables.table_kit import Clock, Settings, finish, golden_files, topic_table
from tests.remoting.bodies.captures import captured_bodies

FILES = golden_files("topics.json")


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_a_golden_file_is_read_and_written_again_byte_for_byte(text: str) -> None:
    topics = topic_table()
    assert topics.load(text) == len(topics)
    assert topics.render() == text


def test_there_are_golden_files_of_brokers_before_and_after_a_restart() -> None:
    assert len(FILES) == 12
    assert any("GoldenTopic" in text for text in FILES.values())


def test_topics_are_listed_as_by_a_stock_broker_whatever_the_order_they_came_in() -> None:
    text = FILES["clean-master/config/topics.json"]
    loaded = TopicConfigSerializeWrapper.decode(text.encode())
    topics = topic_table()
    for name in sorted(loaded.topic_config_table):
        topics.put(loaded.topic_config_table[name])
    assert list(topics.to_body().topic_config_table) == list(loaded.topic_config_table)


def test_a_new_broker_registers_the_topics_that_a_stock_one_does() -> None:
    first = next(body for body in captured_bodies() if body.code is RequestCode.REGISTER_BROKER)
    registered = RegisterBrokerBody.decode(first.data)
    clock = Clock()
    clock.now_ms = registered.topic_config_serialize_wrapper.data_version.timestamp
    body = RegisterBrokerBody(topic_config_serialize_wrapper=topic_table(clock=clock).to_body(6))
    assert body.encode() == first.data


def test_a_slave_becomes_what_its_master_answers() -> None:
    answers = [
        body.data
        for body in captured_bodies()
        if body.code is RequestCode.GET_ALL_TOPIC_CONFIG and body.is_response
    ]
    topics = topic_table(Settings(broker_name="another"))
    for data in answers:
        finish(topics.replacing(TopicConfigSerializeWrapper.decode(data)))
        assert topics.to_body().encode() == data
        assert "another" not in topics
    assert len(answers) > 3


def test_a_table_of_the_same_version_is_not_replaced() -> None:
    topics = topic_table()
    calls: list[TopicConfig | None] = []
    topics.on_change = calls.append
    version = DataVersion(timestamp=5, counter=5)
    assert finish(topics.replacing(TopicConfigSerializeWrapper(data_version=version)))
    other = TopicConfigSerializeWrapper(
        topic_config_table={"T": TopicConfig(topic_name="T")}, data_version=version
    )
    assert not finish(topics.replacing(other))
    assert calls == [None]
    assert len(topics) == 0
    assert topics.render() == (
        '{\n\t"dataVersion":{\n\t\t"counter":5,\n\t\t"timestamp":5\n\t},\n\t"topicConfigTable":{}\n}'
    )


def test_a_replaced_table_is_written_as_it_is_now() -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="kept"))
    topics.put(TopicConfig(topic_name="changed"))
    topics.put(TopicConfig(topic_name="gone"))
    topics.render()
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={
            "changed": TopicConfig(topic_name="changed", perm=4),
            "kept": TopicConfig(topic_name="kept"),
            "new": TopicConfig(topic_name="new"),
        },
        data_version=DataVersion(timestamp=5, counter=5),
    )
    assert finish(topics.replacing(wrapper))
    assert TopicConfigSerializeWrapper.decode(topics.render().encode()) == wrapper


def test_a_loaded_file_comes_on_top_of_the_built_in_topics() -> None:
    topics = topic_table()
    built_in = set(topics.names())
    loaded = topics.load(
        '{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":'
        '{"T":{"topicName":"T","readQueueNums":2},"TBW102":{"topicName":"TBW102","perm":6}}}'
    )
    assert loaded == 2
    assert set(topics.names()) == built_in | {"T"}
    assert topics.get("T") == TopicConfig(topic_name="T", read_queue_nums=2)
    assert topics.get("TBW102") == TopicConfig(topic_name="TBW102", perm=6)
    assert topics.version == DataVersion(counter=7, timestamp=9)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", BodyError),
        ("{", MalformedJsonError),
        ("\0\0\0", MalformedJsonError),
        ("[]", BodyError),
        ('{"topicConfigTable":{"T":{"topicName":"T","perm":"x"}}}', BodyError),
        ('{"topicConfigTable":{"T":{"topicName":"T","perm":2147483648}}}', BodyError),
        ('{"topicConfigTable":{"T":{}}}', BodyError),
    ],
    ids=["empty", "truncated", "zeros", "a-list", "a-word", "too-large", "no-name"],
)
def test_a_bad_file_is_refused_and_changes_nothing(text: str, error: type[Exception]) -> None:
    topics = topic_table()
    before = topics.render(), topics.changes
    with pytest.raises(error):
        topics.load(text)
    assert (topics.render(), topics.changes) == before


def test_strange_names_survive_a_file() -> None:
    strange = ['"', "\\", "a\nb", "\t", "ünï", "日本", "\U0001f600", "a@b", "", "{}", "\x7f"]
    topics = topic_table()
    for name in strange:
        topics.put(TopicConfig(topic_name=name))
    again = topic_table()
    again.load(topics.render())
    assert dict(again.items()) == dict(topics.items())
    assert again.render() == topics.render()


def test_half_a_surrogate_pair_does_not_keep_the_table_from_being_written() -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="a\ud800"))
    assert '"a?":{' in topics.render()


def test_large_tables_are_written_whole() -> None:
    topics = topic_table()
    for number in range(3_000):
        topics.create_on_send_back(f"topic-{number}", 4)
    again = topic_table()
    again.load(topics.render())
    assert dict(again.items()) == dict(topics.items())
    assert again.render() == topics.render()
