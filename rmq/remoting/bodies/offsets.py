"""Tables of offsets: resets, what consumers and brokers report, what slaves copy from a master."""

import msgspec

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.base import Body, BodyError
from rmq.remoting.header import Int32, Int64


class ResetOffsetBody(Body, frozen=True, kw_only=True):
    """Request 220, RESET_CONSUMER_CLIENT_OFFSET, the answer to 222: where each queue goes on."""

    offset_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)


class MessageQueueForC(Body, frozen=True, kw_only=True):
    """One queue and its offset, for clients whose JSON library has no objects as keys."""

    topic: str
    broker_name: str
    queue_id: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(Body, frozen=True, kw_only=True):
    """Request 220 as brokers send it when a C++ admin client asked for the reset."""

    offset_table: tuple[MessageQueueForC, ...] = ()


def decode_reset_offset(data: bytes | None) -> ResetOffsetBody:
    """Read request 220 in either form; the asker's language decides it, not the receiver's."""
    try:
        return ResetOffsetBody.decode(data)
    except BodyError as map_form_error:
        try:
            rows = ResetOffsetBodyForC.decode(data).offset_table
        except BodyError:
            raise map_form_error from None
    return ResetOffsetBody(
        offset_table={
            MessageQueue(
                topic=row.topic, broker_name=row.broker_name, queue_id=row.queue_id
            ): row.offset
            for row in rows
        }
    )


class GetConsumerStatusBody(Body, frozen=True, kw_only=True):
    """The answer of a client to 221 (`message_queue_table`), of a broker to 223 (the other one)."""

    message_queue_table: dict[MessageQueue, Int64] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Int64]] = msgspec.field(default_factory=dict)
    """The tables of all clients asked, by client id."""


class ConsumerOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """The answer to 43, GET_ALL_CONSUMER_OFFSET: by `topic@group`, then by queue number."""

    offset_table: dict[str, dict[Int32, Int64]] = msgspec.field(default_factory=dict)


class DelayOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """The answer to 45, GET_ALL_DELAY_OFFSET: how far each delay level has been delivered."""

    offset_table: dict[Int32, Int64] = msgspec.field(default_factory=dict)


class QueryCorrectionOffsetBody(Body, frozen=True, kw_only=True):
    """The answer to 308, QUERY_CORRECTION_OFFSET, by queue number."""

    correction_offsets: dict[Int32, Int64] = msgspec.field(default_factory=dict)


class OffsetMovedEvent(Body, frozen=True, kw_only=True):
    """The body of a message to topic OFFSET_MOVED_EVENT: a broker moved a consumer's offset."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: Int64 = 0
    offset_new: Int64 = 0
