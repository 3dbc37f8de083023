"""Requests of producers, consumers and admin tools, and a look into the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from rmq.model.properties import encode_properties
from rmq.model.pull_flags import FLAG_COMMIT_OFFSET, FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rmq.model.record import decode_records
from rmq.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.expressions import build_subscription
from rmq.remoting.headers import PullMessageRequest, SendMessageRequestV2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.header import Header
    from tests.remoting.server_kit import Frame

TOPIC: Final = "TopicA"
GROUP: Final = "readers"
START_MS: Final = 1_700_000_000_000


def frame(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
    version: int = VERSION,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """Return a request of a client."""
    head = encode_frame(
        code=code,
        flag=FLAG_ONEWAY if oneway else 0,
        opaque=opaque,
        header=header,
        body_length=len(body),
        serialization=serialization,
        version=version,
        extra=extra,
    )
    return head + body


def pull_header(
    queue_id: int = 0,
    offset: int = 0,
    *,
    topic: str = TOPIC,
    group: str = GROUP,
    count: int = 32,
    wait_ms: int | None = None,
    commit: int | None = None,
    expression: str | None = "*",
    expression_type: str | None = None,
    version: int = 0,
) -> PullMessageRequest:
    """Return a pull; with `wait_ms` it may be held, with `expression` it says itself what it wants.

    Without an expression the group's heartbeats say so.
    """
    flags = FLAG_SUSPEND if wait_ms is not None else 0
    flags |= FLAG_COMMIT_OFFSET if commit is not None else 0
    flags |= FLAG_SUBSCRIPTION if expression is not None else 0
    return PullMessageRequest(
        consumer_group=group,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=flags,
        commit_offset=commit or 0,
        suspend_timeout_millis=wait_ms or 0,
        subscription=expression,
        sub_version=version,
        expression_type=expression_type,
    )


def pull(
    queue_id: int = 0,
    offset: int = 0,
    *,
    opaque: int = 1,
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
    topic: str = TOPIC,
    group: str = GROUP,
    count: int = 32,
    wait_ms: int | None = None,
    commit: int | None = None,
    expression: str | None = "*",
    expression_type: str | None = None,
    version: int = 0,
) -> bytes:
    """Return a pull as `pull_header` makes it, as a frame."""
    header = pull_header(
        queue_id,
        offset,
        topic=topic,
        group=group,
        count=count,
        wait_ms=wait_ms,
        commit=commit,
        expression=expression,
        expression_type=expression_type,
        version=version,
    )
    return frame(
        RequestCode.PULL_MESSAGE,
        header,
        opaque=opaque,
        oneway=oneway,
        serialization=serialization,
    )


def send(
    body: bytes = b"body",
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    opaque: int = 1,
    queues: int = 4,
) -> bytes:
    """Return a send as a stock producer writes it."""
    header = SendMessageRequestV2(
        producer_group="writers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=START_MS,
        flag=0,
        properties=encode_properties(properties).decode() if properties else None,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return frame(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque)


def subscription(
    expression: str = "*",
    *,
    topic: str = TOPIC,
    expression_type: str | None = "TAG",
    version: int = 1,
) -> SubscriptionData:
    built = build_subscription(topic, expression, expression_type, version)
    return msgspec.structs.replace(built, expression_type=expression_type)


def consumer(
    *subscriptions: SubscriptionData,
    group: str = GROUP,
    model: MessageModel = MessageModel.CLUSTERING,
) -> ConsumerData:
    return ConsumerData(group_name=group, message_model=model, subscription_data_set=subscriptions)


def heartbeat(
    client_id: str,
    *consumers: ConsumerData,
    producers: tuple[str, ...] = (),
    opaque: int = 1,
    version: int = VERSION,
) -> bytes:
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=consumers,
        producer_data_set=tuple(ProducerData(group_name=name) for name in producers),
    )
    return frame(RequestCode.HEART_BEAT, body=data.encode(), opaque=opaque, version=version)


def bodies_of(answer: Frame) -> list[bytes]:
    """Return the bodies of the messages in an answer."""
    return [record.body for record in decode_records(answer.body)]


def ext(answer: Frame) -> dict[str, str]:
    """Return the header fields of an answer."""
    assert answer.fields is not None, answer
    return answer.fields
