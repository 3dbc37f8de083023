"""The C++ client consumes by push and pull, alone and to everybody, by tag, later and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.e2e.cpp_orders import Message, SendMode
from tests.e2e.scenarios import scenario
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.scenarios import Stage

QUEUES: Final = 4


def tagged(topic: str, tags: tuple[str, ...]) -> list[Message]:
    """Return one message of each tag for each queue, in the order of `tags`."""
    return [
        Message(topic=topic, body=f"{step} {tag} {shard}", tag=tag, shard=shard)
        for step, tag in enumerate(tags)
        for shard in range(QUEUES)
    ]


@scenario
async def test_a_push_consumer_gets_the_tags_it_subscribed_to_and_no_others(stage: Stage) -> None:
    topic = "tags"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, "tags-consumers", expression="Aa || blue")
    producer = await clients.producer()
    # "BB" has the hash code of "Aa", which is all that the broker looks at: the client sorts it
    # out. The last message is wanted, and a queue gives its messages in order.
    messages = tagged(topic, ("Aa", "BB", "red", "", "blue", "BB", "Aa"))
    await producer.send(messages, SendMode.ORDERED)
    wanted = [message.body for message in messages if message.tag in ("Aa", "blue")]
    await consumer.wait_for(wanted)
    assert sorted(consumer.bodies) == sorted(wanted)


@scenario
async def test_a_pull_consumer_gets_everything_once_and_goes_on_where_it_was(stage: Stage) -> None:
    topic = "pull"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    producer = await clients.producer()
    consumer = await clients.pull_consumer(topic, "pull-consumers", reads_properties=("colour",))
    assert await consumer.pull() == []
    for part in range(2):
        messages = [
            Message(
                topic=topic,
                body=f"{part}.{number}",
                keys=f"key{number}",
                properties={"colour": "green"},
                shard=number,
            )
            for number in range(100)
        ]
        await producer.send(messages, SendMode.ORDERED)
        # Fewer than a queue has, so that it takes several pulls.
        pulled = await consumer.pull(batch=7)
        expected = sorted(messages, key=lambda message: message.shard % QUEUES)
        assert [(got.body, got.keys, got.properties) for got in pulled] == [
            (message.body, message.keys, message.properties) for message in expected
        ]
    assert await consumer.pull() == []


@scenario
async def test_a_pull_consumer_gets_the_tags_it_asks_for_and_no_others(stage: Stage) -> None:
    topic = "pull-tags"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    producer = await clients.producer()
    messages = tagged(topic, ("red", "BB", "Aa", "red", "blue"))
    await producer.send(messages, SendMode.ORDERED)
    consumer = await clients.pull_consumer(topic, "pull-tags-consumers", expression="Aa||blue")
    pulled = await consumer.pull()
    assert sorted(message.body for message in pulled) == sorted(
        message.body for message in messages if message.tag in ("Aa", "blue")
    )


@scenario
async def test_broadcasting_consumers_of_a_group_all_get_everything(stage: Stage) -> None:
    topic, group = "broadcast", "broadcast-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumers = [await clients.push_consumer(topic, group, broadcasting=True) for _ in range(2)]
    producer = await clients.producer()
    bodies = [f"to all {number}" for number in range(40)]
    await producer.send(Message(topic=topic, body=body) for body in bodies)
    for consumer in consumers:
        await consumer.wait_for(bodies)
        assert sorted(consumer.bodies) == sorted(bodies)


@scenario
async def test_a_new_group_starts_with_the_first_message_of_a_young_topic(stage: Stage) -> None:
    topic = "before"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    producer = await clients.producer()
    bodies = [f"early {number}" for number in range(20)]
    await producer.send(Message(topic=topic, body=body) for body in bodies)
    consumer = await clients.push_consumer(topic, "before-consumers")
    await consumer.wait_for(bodies)


@scenario
async def test_delayed_messages_arrive_when_their_level_says(stage: Stage) -> None:
    topic = "delays"
    await stage.shared.create_topic(topic, queues=1)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, "delays-consumers", reads_properties=("DELAY",))
    producer = await clients.producer()
    delays_ms = {2: 3000, 1: 1000, 0: 0}
    # The longest first: they overtake each other.
    await producer.send(
        Message(topic=topic, body=f"level {level}", keys=str(level), delay_level=level)
        for level in delays_ms
    )
    await consumer.wait_for([f"level {level}" for level in delays_ms])
    assert consumer.bodies == ["level 0", "level 1", "level 2"]
    for message in consumer.arrived:
        delay_ms = delays_ms[int(message.keys)]
        waited_ms = message.stored_ms - message.born_ms
        assert delay_ms <= waited_ms < delay_ms + 2000, message
        assert message.topic == topic


@scenario
async def test_a_message_that_fails_comes_back_until_it_is_consumed(stage: Stage) -> None:
    topic, group = "retries", "retries-consumers"
    await stage.shared.create_topic(topic, queues=1)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, refusals={"sour": 2})
    producer = await clients.producer()
    [sent] = await producer.send([Message(topic=topic, body="sour", tag="grapes", keys="key")])
    # What is pulled together is refused together.
    await consumer.wait_for(["sour"])
    await producer.send([Message(topic=topic, body="sweet")])
    await wait_until(
        "four deliveries", lambda: len(consumer.arrived) >= 4, otherwise=lambda: consumer.arrived
    )
    assert [(message.body, message.reconsume_times) for message in consumer.arrived] == [
        ("sour", 0),
        ("sweet", 0),
        ("sour", 1),
        ("sour", 2),
    ]
    first, _, *again = consumer.arrived
    for message in again:
        assert (message.topic, message.tag, message.keys) == (topic, "grapes", "key")
        assert message.message_id == sent.message_id
        assert message.born_ms == first.born_ms
        assert message.stored_ms >= first.stored_ms + 1000 * message.reconsume_times
    # Nothing is left for other consumers of the group.
    await consumer.stop()
    await stage.shared.wait_consumed(topic, group, queues=1)
    await stage.shared.wait_consumed(f"%RETRY%{group}", group, queues=1)


@scenario
async def test_a_message_that_always_fails_ends_in_the_dead_letter_queue(stage: Stage) -> None:
    topic, group = "poison", "poison-consumers"
    await stage.shared.create_topic(topic, queues=1)
    broker = stage.shared.brokers[0].address
    await stage.shared.admin.create_group(broker, group, retry_max_times=2)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, refusals={"poison": 1000})
    producer = await clients.producer()
    [sent] = await producer.send(
        [Message(topic=topic, body="poison", tag="green", properties={"colour": "green"})]
    )
    await consumer.wait_for(["poison"])
    await producer.send([Message(topic=topic, body="wholesome")])
    dead_letters = f"%DLQ%{group}"

    async def is_dead() -> bool:
        known = await stage.shared.admin.brokers_of(stage.shared.nameserver, dead_letters)
        return bool(known) and await stage.shared.queue_sizes(dead_letters, queues=1) == [1]

    await wait_until("a dead letter", is_dead, otherwise=lambda: consumer.arrived)
    assert [(message.body, message.reconsume_times) for message in consumer.arrived] == [
        ("poison", 0),
        ("wholesome", 0),
        ("poison", 1),
        ("poison", 2),
    ]
    reader = await clients.pull_consumer(
        dead_letters, "dead-letter-readers", reads_properties=("colour", "RETRY_TOPIC")
    )
    [dead] = await reader.pull()
    assert (dead.body, dead.tag, dead.message_id) == ("poison", "green", sent.message_id)
    assert dead.properties == {"colour": "green", "RETRY_TOPIC": topic}
    assert dead.reconsume_times == 3
