"""The C++ client sends in every way it knows, and what it sent is what consumers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.e2e.cpp_orders import Message, SendMode
from tests.e2e.scenarios import scenario

if TYPE_CHECKING:
    from tests.e2e.scenarios import Stage

QUEUES: Final = 4


@scenario
async def test_what_a_sync_send_acknowledges_reaches_a_push_consumer_whole_and_once(
    stage: Stage,
) -> None:
    topic, group = "sync", "sync-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, reads_properties=("colour",))
    producer = await clients.producer()
    messages = [
        Message(
            topic=topic,
            # The client compresses bodies from 4 KiB on.
            body=f"Grüße {number} " + "0123456789" * (number * 30),
            tag=f"tag{number % 3}",
            keys=f"key{number} other{number}",
            properties={"colour": f"blue {number}"},
        )
        for number in range(40)
    ]
    sent = await producer.send(messages)
    assert {each.status for each in sent} == {"OK"}
    await consumer.wait_for(message.body for message in messages)
    await consumer.stop()
    await stage.shared.wait_consumed(topic, group)

    assert await stage.shared.queue_sizes(topic) == [10] * QUEUES
    assert len(consumer.arrived) == len(messages)
    arrived = {message.body: message for message in consumer.arrived}
    for message, acknowledged in zip(messages, sent, strict=True):
        got = arrived[message.body]
        assert (got.topic, got.tag, got.keys) == (topic, message.tag, message.keys)
        assert got.properties == message.properties
        assert got.message_id == acknowledged.message_id
        assert got.queue_offset == acknowledged.queue_offset
        assert got.reconsume_times == 0
        assert got.born_ms <= got.stored_ms


@scenario
async def test_a_topic_that_nobody_created_is_made_by_the_first_send(stage: Stage) -> None:
    clients = stage.clients()
    producer = await clients.producer()
    [sent] = await producer.send([Message(topic="made-by-a-send", body="first")])
    assert (sent.status, sent.queue_offset) == ("OK", 0)
    consumer = await clients.push_consumer("made-by-a-send", "made-by-a-send-consumers")
    await consumer.wait_for(["first"])


@scenario
async def test_one_way_sends_arrive_without_an_acknowledgement(stage: Stage) -> None:
    topic, group = "one-way", "one-way-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group)
    producer = await clients.producer()
    bodies = [f"one-way {number}" for number in range(60)]
    await producer.send((Message(topic=topic, body=body) for body in bodies), SendMode.ONE_WAY)
    await consumer.wait_for(bodies)
    assert sorted(consumer.bodies) == sorted(bodies)


@scenario
async def test_ordered_sends_stay_in_order_up_to_an_ordered_consumer(stage: Stage) -> None:
    topic, group = "ordered", "ordered-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, orderly=True)
    producer = await clients.producer()
    # One after another through all shards, so that each queue gets its own every few messages.
    messages = [
        Message(topic=topic, body=f"{step} of {shard}", tag=str(shard), shard=shard)
        for step in range(20)
        for shard in range(QUEUES)
    ]
    await producer.send(messages[: len(messages) // 2], SendMode.ORDERED)
    await producer.send(messages[len(messages) // 2 :], SendMode.ONE_WAY_ORDERED)
    await consumer.wait_for(message.body for message in messages)
    assert len(consumer.arrived) == len(messages)
    for shard in range(QUEUES):
        got = [message for message in consumer.arrived if message.tag == str(shard)]
        assert {message.queue_id for message in got} == {shard}
        assert [message.queue_offset for message in got] == list(range(20))
        assert [message.body for message in got] == [f"{step} of {shard}" for step in range(20)]


@scenario
async def test_a_batch_arrives_as_its_messages(stage: Stage) -> None:
    topic, group = "batch", "batch-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, reads_properties=("size",))
    producer = await clients.producer()
    messages = [
        Message(topic=topic, body=f"batched {number}", tag=f"t{number}", properties={"size": "XL"})
        for number in range(12)
    ]
    [sent] = await producer.send(messages, SendMode.BATCH)
    assert (sent.status, sent.queue_offset) == ("OK", 0)
    await consumer.wait_for(message.body for message in messages)
    # All of them stand in one queue, in their order.
    assert len({message.queue_id for message in consumer.arrived}) == 1
    assert [message.queue_offset for message in consumer.arrived] == list(range(12))
    assert [(got.body, got.tag, got.properties) for got in consumer.arrived] == [
        (message.body, message.tag, message.properties) for message in messages
    ]


@scenario
async def test_asynchronous_sends_call_back_and_arrive(stage: Stage) -> None:
    topic, group = "async", "async-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group)
    producer = await clients.producer()
    bodies = [f"async {number}" for number in range(20)]
    sent = await producer.send((Message(topic=topic, body=body) for body in bodies), SendMode.ASYNC)
    assert {each.status for each in sent} == {"OK"}
    await consumer.wait_for(bodies)
    assert sorted(consumer.bodies) == sorted(bodies)
