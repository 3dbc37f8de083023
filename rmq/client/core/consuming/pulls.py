"""Pulls: messages of one queue from an offset on (11). Pure.

`pull` is the whole conversation. Who pipelines pulls on a channel uses `pull_request` and
`read_pull_answer` instead, which are the same without the wait between them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.client.core.flows import Answer, Ask, Flow
from rmq.client.core.received import BadMessagesError, ReceivedMessage, decode_messages
from rmq.client.core.routes import broker_of
from rmq.errors import BadAnswerError
from rmq.model.names import MASTER_ID
from rmq.model.pull_flags import FLAG_COMMIT_OFFSET, FLAG_LITE_PULL, FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.expressions import is_tag_type
from rmq.remoting.headers import PullMessageRequest, PullMessageResponse

if TYPE_CHECKING:
    from rmq.client.core.routes import RouteTable
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import SubscriptionData


SUSPEND_S: Final = 15.0
"""How long a push consumer lets the broker wait for messages."""
TIMEOUT_S: Final = 30.0
"""How long a pull that may wait is waited for."""


class PullStatus(enum.Enum):
    """What a pull found."""

    FOUND = ResponseCode.SUCCESS
    """Messages; none of them may have passed the exact filter of tags."""
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    """The end of the queue."""
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    """Messages, none of which the broker's filter let pass."""
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The queue has no such place: `next_offset` is the nearest that it has."""


_STATUS: Final = {int(status.value): status for status in PullStatus}


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """What a pull brought."""

    status: PullStatus
    next_offset: int
    """Where to go on. Messages between the last one here and this are not for the consumer."""
    min_offset: int
    max_offset: int
    """The next offset that the queue will give out."""
    messages: list[ReceivedMessage]
    suggested_broker_id: int
    """Which broker of the name to ask next time."""


def pull(
    routes: RouteTable,
    queue: MessageQueue,
    *,
    group: str,
    subscription: SubscriptionData,
    offset: int,
    max_messages: int = 32,
    suspend_s: float = SUSPEND_S,
    commit_offset: int | None = None,
    sends_expression: bool = False,
    is_lite: bool = False,
    broker_id: int = MASTER_ID,
    timeout_s: float = TIMEOUT_S,
    checks_crc: bool = True,
) -> Flow[PullResult]:
    """Pull messages from `offset` on.

    `suspend_s` lets the broker wait for messages if there are none; 0 does not. `commit_offset`
    stores where the group is on the way. `sends_expression` says with the request what is
    subscribed to; without, the broker goes by the group's heartbeats.

    Raises `NoRouteError`, `BadAnswerError`, `ResponseError` with the broker's code, and what the
    call itself fails with.
    """
    broker = broker_of(routes, queue, broker_id)
    header = pull_request(
        queue,
        group=group,
        subscription=subscription,
        offset=offset,
        max_messages=max_messages,
        suspend_s=suspend_s,
        commit_offset=commit_offset if broker.broker_id == MASTER_ID else None,
        sends_expression=sends_expression,
        is_lite=is_lite,
    )
    answer = yield Ask(broker.address, RequestCode.PULL_MESSAGE, header, None, timeout_s)
    assert answer is not None
    return read_pull_answer(
        answer, queue, group=group, subscription=subscription, checks_crc=checks_crc
    )


def pull_request(
    queue: MessageQueue,
    *,
    group: str,
    subscription: SubscriptionData,
    offset: int,
    max_messages: int,
    suspend_s: float,
    commit_offset: int | None,
    sends_expression: bool,
    is_lite: bool = False,
) -> PullMessageRequest:
    """Return the header of a pull. Only a master may be given a `commit_offset`."""
    sys_flag = 0
    # Offset 0 is not stored, as in 4.9.8: it is where a group without an offset starts anyway.
    if commit_offset:
        sys_flag |= FLAG_COMMIT_OFFSET
    if suspend_s > 0:
        sys_flag |= FLAG_SUSPEND
    if sends_expression:
        sys_flag |= FLAG_SUBSCRIPTION
    if is_lite:
        sys_flag |= FLAG_LITE_PULL
    names_tags = is_tag_type(subscription.expression_type)
    return PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=sys_flag,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=round(suspend_s * 1000),
        subscription=subscription.sub_string if sends_expression else None,
        sub_version=0 if sends_expression and names_tags else subscription.sub_version,
        expression_type=subscription.expression_type,
        broker_name=queue.broker_name,
    )


class PullParts(NamedTuple):
    """The response to a pull, with records not decoded."""

    status: PullStatus
    header: PullMessageResponse
    body: bytes
    """Records as they are stored, one behind the other. They may be damaged, and be others than
    the tags that were asked for: brokers compare hashes."""


def read_pull_parts(answer: Answer) -> PullParts:
    """Decode the header of a response to a pull; raise `ResponseError` or `BadAnswerError`."""
    status = _STATUS.get(answer.code)
    if status is None:
        raise answer.failure()
    header = answer.header(PullMessageResponse)
    if status is not PullStatus.FOUND:
        return PullParts(status, header, b"")
    body = answer.command.body
    if not body:
        raise _bad_answer(answer, "messages were found, and none is there")
    return PullParts(status, header, body)


def read_pull_answer(
    answer: Answer,
    queue: MessageQueue,
    *,
    group: str,
    subscription: SubscriptionData,
    checks_crc: bool = True,
    parts: PullParts | None = None,
) -> PullResult:
    """Return what a broker answered to a pull; raise `ResponseError` or `BadAnswerError`.

    `parts` are those of the response, if it was decoded already.
    """
    status, header, body = parts or read_pull_parts(answer)
    next_offset = header.next_begin_offset
    messages: list[ReceivedMessage] = []
    if status is PullStatus.FOUND:
        try:
            messages = decode_messages(
                body, queue, subscription=subscription, group=group, checks_crc=checks_crc
            )
        except BadMessagesError as exc:
            if exc.next_offset is None:
                raise _bad_answer(answer, f"{_place(answer)}: {exc}") from exc
            # What is sound is not held up. The next pull begins with what is not, and says so.
            messages, next_offset = exc.messages, exc.next_offset
    return PullResult(
        status,
        next_offset,
        header.min_offset,
        header.max_offset,
        messages,
        header.suggest_which_broker_id,
    )


def _bad_answer(answer: Answer, reason: str) -> BadAnswerError:
    return BadAnswerError(answer.ask.address, answer.ask.code.name, reason)


def _place(answer: Answer) -> str:
    asked = answer.ask.header
    assert isinstance(asked, PullMessageRequest), f"{asked!r} is no pull"
    return f"topic {asked.topic}, queue {asked.queue_id}, offset {asked.queue_offset}"
