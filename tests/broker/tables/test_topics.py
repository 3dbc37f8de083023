"""The table of topics: which there are, by which rules they change, and who hears of it.

Their files and bodies are in test_topics_files.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rmq.broker.tables.topics import TopicTable, restricted, topic_sys_flag
from rmq.model.names import ALWAYS_SYSTEM_TOPICS
from rmq.remoting.bodies import (
    DataVersion,
    TopicConfig,
    TopicFilterType,
)
from tests.broker.tables.table_kit import Clock, Settings, topic_table

if TYPE_CHECKING:
    from collections.abc import Callable

# --- built-in topics and names ---


def test_the_built_in_topics_depend_on_the_settings() -> None:
    topics = topic_table(
        Settings(
            cluster_name="C",
            broker_name="b",
            auto_create_topic=False,
            cluster_topic_enabled=False,
            broker_topic_enabled=False,
            trace_topic_enabled=False,
        )
    )
    assert {name: (topic.write_queue_nums, topic.perm) for name, topic in topics.items()} == {
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "C": (16, 1),
        "b": (1, 1),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
    }
    assert topics.system_topics == ALWAYS_SYSTEM_TOPICS | {"C", "b", "C_REPLY_TOPIC"}


def test_a_trace_topic_of_another_name_is_a_system_topic() -> None:
    topics = topic_table(Settings(trace_topic_name="traces"))
    assert "traces" in topics
    assert topics.is_system("traces")


@pytest.mark.parametrize(
    ("topic", "is_system", "is_send_forbidden"),
    [
        ("TBW102", True, False),
        ("SCHEDULE_TOPIC_XXXX", True, True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", True, True),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", True, True),
        ("TRANS_CHECK_MAX_TIME_TOPIC", True, True),
        ("SELF_TEST_TOPIC", True, True),
        ("OFFSET_MOVED_EVENT", True, True),
        ("BenchmarkTest", True, False),
        ("RMQ_SYS_TRACE_TOPIC", True, False),
        ("GoldenCluster_REPLY_TOPIC", True, False),
        ("broker-golden", True, False),
        ("rmq_sys_anything", True, False),
        ("RMQ_SYS_anything", False, False),
        ("Orders", False, False),
        ("%RETRY%group", False, False),
    ],
)
def test_which_topics_are_the_brokers_own(
    topic: str, is_system: bool, is_send_forbidden: bool
) -> None:
    topics = topic_table()
    assert topics.is_system(topic) is is_system
    assert topics.is_send_forbidden(topic) is is_send_forbidden


BLANK = "The specified topic is blank."
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
TOO_LONG = "The specified topic is longer than topic max length."


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("Orders", None),
        ("%RETRY%group-1|x_y", None),
        ("t" * 127, None),
        ("", BLANK),
        (" \t\n", BLANK),
        ("\u3000", BLANK),
        ("\xa0", ILLEGAL),
        ("a b", ILLEGAL),
        ("a@b", ILLEGAL),
        ("../x", ILLEGAL),
        ("topic\n", ILLEGAL),
        ("tópic", ILLEGAL),
        ("a\0", ILLEGAL),
        ("t" * 128, TOO_LONG),
        ("/" * 128, ILLEGAL),
    ],
)
def test_why_a_topic_may_not_have_a_name(topic: str, reason: str | None) -> None:
    assert topic_table().validate_topic(topic) == reason


# --- topics made by a send ---


def test_a_topic_is_made_after_the_default_topic() -> None:
    topics, calls = watched(topic_table())
    created = topics.create_on_send("T", "TBW102", 4, topic_sys_flag(unit=True), "192.0.2.1:5")
    assert created == TopicConfig(
        topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=1
    )
    assert topics.get("T") is created
    assert calls == [created]


def test_a_topic_that_exists_is_not_made_again() -> None:
    topics, calls = watched(topic_table())
    created = topics.create_on_send("T", "TBW102", 4, 0)
    version, changes = topics.version, topics.changes
    assert topics.create_on_send("T", "nothing", 8, 1) is created
    assert topics.create_on_send_back("T", 8, 4, 1) is created
    assert (topics.version, topics.changes) == (version, changes)
    assert calls == [created]


def test_the_filter_type_is_that_of_the_default_topic() -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="model", perm=5, topic_filter_type=TopicFilterType.MULTI_TAG))
    created = topics.create_on_send("T", "model", 4, 0)
    assert created is not None
    assert created.topic_filter_type is TopicFilterType.MULTI_TAG
    assert created.perm == 4


@pytest.mark.parametrize(
    ("asked", "made"),
    [(4, 4), (8, 8), (9, 8), (0, 0), (-3, 0)],
)
def test_the_number_of_queues_asked_for_is_bounded(asked: int, made: int) -> None:
    created = topic_table(Settings(default_topic_queues=8)).create_on_send("T", "TBW102", asked, 0)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums) == (made, made)


@pytest.mark.parametrize(
    "default_topic",
    ["", "nothing", "SELF_TEST_TOPIC"],
    ids=["none", "unknown", "not-inheritable"],
)
def test_no_topic_is_made_after_what_cannot_be_inherited(default_topic: str) -> None:
    topics, calls = watched(topic_table())
    version = topics.version
    assert topics.create_on_send("T", default_topic, 4, 0) is None
    assert "T" not in topics
    assert topics.version == version
    assert calls == []


def test_the_cluster_and_broker_topics_can_be_inherited_unless_they_are_turned_off() -> None:
    assert topic_table().create_on_send("T", "GoldenCluster", 4, 0) is not None
    topics = topic_table(Settings(cluster_topic_enabled=False))
    created = topics.create_on_send("T", "GoldenCluster", 4, 0)
    assert created is not None
    assert created.perm == 0


def test_without_auto_creation_there_is_no_default_topic() -> None:
    topics = topic_table(Settings(auto_create_topic=False))
    assert topics.create_on_send("T", "TBW102", 4, 0) is None


@pytest.mark.parametrize("how", ["file", "reconfigured"])
def test_a_default_topic_of_earlier_days_loses_what_can_be_inherited(how: str) -> None:
    if how == "file":
        topics = topic_table(Settings(auto_create_topic=False))
        topics.load(topic_table().render())
    else:
        topics = topic_table()
        topics.reconfigure(Settings(auto_create_topic=False))
    version, changes = topics.version, topics.changes
    assert topics.create_on_send("T", "TBW102", 4, 0) is None
    default_topic = topics.get("TBW102")
    assert default_topic is not None
    assert default_topic.perm == 6
    assert topics.version == version
    assert topics.changes > changes
    changes = topics.changes
    assert topics.create_on_send("T", "TBW102", 4, 0) is None
    assert topics.changes == changes
    again = topic_table()
    again.load(topics.render())
    assert again.get("TBW102") == default_topic


def test_a_topic_for_retries_is_made_without_a_model() -> None:
    topics, calls = watched(topic_table(Settings(auto_create_topic=False)))
    created = topics.create_on_send_back("%RETRY%g", 1, 6, topic_sys_flag(unit_sub=True))
    assert created == TopicConfig(
        topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=2
    )
    assert calls == [created]
    given_up = topics.create_transaction_check_max()
    assert (given_up.topic_name, given_up.write_queue_nums) == ("TRANS_CHECK_MAX_TIME_TOPIC", 1)


# --- changes ---


def watched(topics: TopicTable) -> tuple[TopicTable, list[TopicConfig | None]]:
    calls: list[TopicConfig | None] = []
    topics.on_change = calls.append
    return topics, calls


CHANGES: dict[str, Callable[[TopicTable], object]] = {
    "put": lambda topics: topics.put(TopicConfig(topic_name="new")),
    "put-the-same": lambda topics: topics.put(TopicConfig(topic_name="T")),
    "delete": lambda topics: topics.delete("T"),
    "create-on-send": lambda topics: topics.create_on_send("new", "TBW102", 4, 0),
    "create-on-send-back": lambda topics: topics.create_on_send_back("new", 1, 6, 0),
    "order": lambda topics: topics.update_order_topics({"T": "broker-golden:4"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_moves_the_version_and_is_told(change: Callable[[TopicTable], object]) -> None:
    clock = Clock()
    topics = topic_table(clock=clock)
    topics.put(TopicConfig(topic_name="T"))
    watched_topics, calls = watched(topics)
    version, changes, text = topics.version, topics.changes, topics.render()
    clock.now_ms = 2_000
    change(watched_topics)
    assert topics.version == DataVersion(timestamp=2_000, counter=version.counter + 1)
    assert topics.changes > changes
    assert topics.render() != text
    assert len(calls) == 1


def test_putting_tells_whether_anything_is_different() -> None:
    topics = topic_table()
    assert topics.put(TopicConfig(topic_name="T"))
    assert not topics.put(TopicConfig(topic_name="T"))
    assert topics.put(TopicConfig(topic_name="T", perm=4))
    assert topics.get("T") == TopicConfig(topic_name="T", perm=4)
    assert '"perm":4' in topics.render()


def test_a_new_topic_is_everywhere_at_once() -> None:
    topics = topic_table()
    topics.render()
    topics.put(TopicConfig(topic_name="T"))
    assert '"T":{' in topics.render()
    assert "T" in topics.to_body().topic_config_table
    assert "T" in topics
    assert "T" in topics.names()


def test_deleting_what_is_not_there_changes_nothing() -> None:
    topics, calls = watched(topic_table())
    version, changes = topics.version, topics.changes
    assert not topics.delete("T")
    assert (topics.version, topics.changes, calls) == (version, changes, [])


def test_a_deleted_topic_is_gone_from_everywhere() -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="T"))
    topics.render()
    assert topics.delete("T")
    assert topics.get("T") is None
    assert '"T"' not in topics.render()
    assert "T" not in topics.to_body().topic_config_table


def test_exactly_the_topics_named_by_the_nameserver_are_ordered() -> None:
    topics, calls = watched(topic_table())
    for name in ("A", "B", "C"):
        topics.put(TopicConfig(topic_name=name, order=name != "A"))
    calls.clear()
    counter = topics.version.counter
    assert topics.update_order_topics({"A": "b:4", "B": "b:4", "unknown": "b:4"})
    assert {name for name, topic in topics.items() if topic.order} == {"A", "B"}
    assert "unknown" not in topics
    assert topics.version.counter == counter + 1
    assert calls == [None]
    assert not topics.update_order_topics({"B": "", "A": ""})
    assert topics.version.counter == counter + 1


# --- registration ---


@pytest.mark.parametrize("permission", [0, 2, 4])
def test_a_broker_that_is_not_open_registers_every_topic_with_its_own_permission(
    permission: int,
) -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="T", read_queue_nums=3, order=True, topic_sys_flag=1))
    table = topics.to_body(permission).topic_config_table
    assert {topic.perm for topic in table.values()} == {permission}
    assert table["T"] == TopicConfig(topic_name="T", read_queue_nums=3, perm=permission)
    assert table["T"] == restricted(msgspec.structs.replace(table["T"], order=True), permission)
    assert list(table) == list(topics.to_body().topic_config_table)


@pytest.mark.parametrize("permission", [None, 6, 7])
def test_an_open_broker_registers_topics_as_they_are(permission: int | None) -> None:
    topics = topic_table()
    topics.put(TopicConfig(topic_name="T", perm=4))
    body = topics.to_body(permission)
    assert body.topic_config_table == dict(topics.items())
    assert body.data_version == topics.version
