"""Whole tables as bodies: encoded in steps, each entry once, to the bytes of the body class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.config import load_broker_config
from rmq.broker.registration.state import RegistrationBodies
from rmq.broker.tables.topics import TopicTable, restricted
from rmq.model.topic_flags import PERM_READ, PERM_READ_WRITE
from rmq.remoting.bodies import RegisterBrokerBody, TopicConfig
from tests.broker.tables.table_kit import finish, topic_table
from tests.store.steps import counted

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig


def settings_of(permission: int) -> BrokerConfig:
    return load_broker_config(None, {"brokerPermission": str(permission)}, {}).config


def filled(count: int) -> TopicTable:
    topics = topic_table()
    for number in range(count):
        topics.put(TopicConfig(topic_name=f"Topic-{number}"))
    return topics


def test_a_long_table_is_encoded_in_steps() -> None:
    topics = filled(1000)
    body, turns = counted(topics.encoding())
    assert body == topics.to_body().encode()
    assert turns >= 15


def test_after_a_change_only_what_is_new_is_encoded() -> None:
    topics = filled(1000)
    finish(topics.encoding())
    topics.put(TopicConfig(topic_name="New", perm=4))
    topics.put(TopicConfig(topic_name="Topic-7", perm=2))
    topics.delete("Topic-8")
    body, turns = counted(topics.encoding())
    assert body == topics.to_body().encode()
    assert turns == 0


def test_what_changes_between_the_steps_is_in_the_body() -> None:
    topics = filled(500)
    steps = topics.encoding()
    next(steps)
    topics.put(TopicConfig(topic_name="Topic-3", perm=2))
    topics.put(TopicConfig(topic_name="New"))
    topics.delete("Topic-400")
    next(steps)
    assert finish(steps) == topics.to_body().encode()


async def test_registrations_are_made_of_what_is_encoded_already() -> None:
    topics = filled(300)
    bodies = RegistrationBodies(topics)
    config = settings_of(permission=PERM_READ_WRITE)
    body = await bodies.of_all(config)
    expected = RegisterBrokerBody(
        topic_config_serialize_wrapper=topics.to_body(), filter_server_list=()
    )
    assert body == expected.encode()
    changed = bodies.of(config, {"Topic-7", "gone"})
    table = RegisterBrokerBody.decode(changed).topic_config_serialize_wrapper
    assert table.topic_config_table == {"Topic-7": topics.get("Topic-7")}
    assert table.data_version == topics.version


async def test_a_broker_that_cannot_be_written_registers_no_topic_that_can() -> None:
    topics = filled(3)
    bodies = RegistrationBodies(topics)
    config = settings_of(permission=PERM_READ)
    for body in (await bodies.of_all(config), bodies.of(config, {"Topic-1"})):
        table = RegisterBrokerBody.decode(body).topic_config_serialize_wrapper.topic_config_table
        topic = topics.get("Topic-1")
        assert topic is not None
        assert table["Topic-1"] == restricted(topic, PERM_READ)
        assert {each.perm for each in table.values()} == {PERM_READ}
