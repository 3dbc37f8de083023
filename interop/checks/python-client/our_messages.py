"""Messages between the words of our client and those that checks use for the stock one.

Cases compare what was sent with what came in one vocabulary, whichever client was on which side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.support.java_messages import Queue, Received, Sent
from rmq.client.core.messages import Message

if TYPE_CHECKING:
    from interop.support.java_messages import Outgoing
    from rmq.client.core.messages import SendResult
    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue


def ours(outgoing: Outgoing) -> Message:
    """Return a message as our producer takes it."""
    return Message(
        outgoing.topic,
        outgoing.body,
        tag=outgoing.tags,
        keys=tuple(outgoing.keys.split()) if outgoing.keys else (),
        delay_level=outgoing.delay_level or 0,
        properties=dict(outgoing.properties),
    )


def as_sent(result: SendResult) -> Sent:
    """Return what our producer was answered."""
    return Sent(
        status=result.status.value,
        message_id=result.message_id,
        offset_message_id=result.offset_message_id,
        queue=as_queue(result.queue),
        queue_offset=result.queue_offset,
    )


def as_queue(queue: MessageQueue) -> Queue:
    return Queue(queue.topic, queue.broker_name, queue.queue_id)


def as_received(
    message: ReceivedMessage, *, received_ms: int | None = None, attempt: int | None = None
) -> Received:
    """Return what our consumer got."""
    return Received(
        topic=message.topic,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        sys_flag=message.sys_flag,
        born_ms=message.born_at_ms,
        born_host=str(message.born_host),
        store_ms=message.stored_at_ms,
        store_host=str(message.store_host),
        reconsume_times=message.reconsume_times,
        body=message.body,
        properties=message.properties,
        tags=message.tag,
        keys=" ".join(message.keys) or None,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        received_ms=received_ms,
        attempt=attempt,
    )
