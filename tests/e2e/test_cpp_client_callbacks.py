"""Brokers call C++ consumers when operators ask them to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.queues import MessageQueue
from tests.e2e.cpp_orders import Message, SendMode
from tests.e2e.scenarios import scenario
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.scenarios import Stage

QUEUES: Final = 4


@scenario
async def test_a_running_consumer_starts_over_when_its_offsets_are_reset(stage: Stage) -> None:
    topic, group = "reset", "reset-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group)
    producer = await clients.producer()
    bodies = [f"again {number}" for number in range(20)]
    await producer.send(Message(topic=topic, body=body) for body in bodies)
    await consumer.wait_for(bodies)
    await stage.shared.wait_consumed(topic, group)
    assert len(consumer.arrived) == len(bodies)
    broker = stage.shared.brokers[0].address
    await stage.shared.admin.reset_offsets(broker, group, topic, to_ms=0)
    await wait_until(
        "everything once more",
        lambda: sorted(consumer.bodies) == sorted(bodies * 2),
        otherwise=lambda: consumer.bodies,
    )


@scenario
async def test_a_consumer_tells_what_it_runs(stage: Stage) -> None:
    topic, group = "running", "running-consumers"
    await stage.shared.create_topic(topic, queues=QUEUES)
    clients = stage.clients()
    consumer = await clients.push_consumer(topic, group, expression="red || blue")
    producer = await clients.producer()
    messages = [
        Message(topic=topic, body=str(shard), tag="red", shard=shard) for shard in range(QUEUES)
    ]
    await producer.send(messages, SendMode.ORDERED)
    await consumer.wait_for(message.body for message in messages)
    broker = stage.shared.brokers[0]
    info = await stage.shared.admin.running_info(broker.address, group)
    assert info.properties["PROP_NAMESERVER_ADDR"] == stage.shared.nameserver
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {each.topic: each.sub_string for each in info.subscription_set} == {
        topic: "red || blue",
        f"%RETRY%{group}": "*",
    }
    queues = {queue for queue in info.mq_table if queue.topic == topic}
    assert queues == {
        MessageQueue(topic=topic, broker_name=broker.name, queue_id=queue_id)
        for queue_id in range(QUEUES)
    }
