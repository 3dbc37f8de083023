"""Puts messages into the queues of a running broker, for tests of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.client.core.flows import ask
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse

if TYPE_CHECKING:
    from rmq.client.core.flows import Flow
    from rmq.model.queues import MessageQueue


def store(
    address: str,
    queue: MessageQueue,
    body: bytes,
    *,
    properties: str = "",
    sys_flag: int = 0,
    born_ms: int = 1,
) -> Flow[int]:
    """Send one message to one queue; return its offset there."""
    answer = yield from ask(
        address,
        RequestCode.SEND_MESSAGE_V2,
        SendMessageRequestV2(
            producer_group="p",
            topic=queue.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=born_ms,
            flag=0,
            properties=properties,
        ),
        body=body,
    )
    return answer.header(SendMessageResponse).queue_offset
