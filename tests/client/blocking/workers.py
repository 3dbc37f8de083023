"""What worker processes do in tests of the blocking client, where a spawned one can import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.core.messages import Message

if TYPE_CHECKING:
    from rmq.client.blocking import BlockingConsumer, BlockingProducer
    from rmq.model.queues import MessageQueue


def send_part(producer: BlockingProducer, topic: str, start: int, end: int) -> list[str]:
    """Send numbered messages with a producer that came from another process; return their ids."""
    with producer:
        results = producer.send_many(Message(topic, b"%d" % number) for number in range(start, end))
    return [result.message_id for result in results]


def read_part(consumer: BlockingConsumer, queue: MessageQueue, start: int, end: int) -> list[bytes]:
    """Read a range with a consumer that came from another process."""
    with consumer:
        return [message.body for message in consumer.read_range(queue, start, end)]
