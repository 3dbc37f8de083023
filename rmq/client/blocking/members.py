"""What brokers ask of a blocking client by themselves, and what they are told.

Their requests are read while the client waits for something of its own; a client that waits for
nothing answers nothing. Requests that a stock client would hand to a listener of push consumers or
transaction producers are answered as if there was none, which is the case.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rmq.client.blocking.calls import Reply
from rmq.errors import ProtocolError
from rmq.remoting.bodies import GetConsumerStatusBody
from rmq.remoting.bodies.offsets import decode_reset_offset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.client.core.members import Member
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import ConsumerRunningInfo
    from rmq.remoting.command import Command

logger = logging.getLogger(__name__)


@runtime_checkable
class ReadingMember(Protocol):
    """A consumer that answers brokers."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved the group (220)."""

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return how far it has come (221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """Return how it is (307)."""


def answer_broker(members: Iterable[Member], address: str, command: Command) -> Reply | None:
    """Serve a request; None if there is nothing to be said."""
    try:
        return _answer(members, command)
    except ProtocolError as exc:
        logger.warning("%s asks unreadably (request %d): %s", address, command.code, exc)
        return Reply(ResponseCode.SYSTEM_ERROR, str(exc))


def _answer(members: Iterable[Member], command: Command) -> Reply | None:
    code = command.code
    if code in (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CHECK_TRANSACTION_STATE):
        # Queues are assigned by the caller, and there are no transactions: both one-way.
        return None
    if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
        reset = command.header(ResetOffsetRequest)
        consumer = _consumer(members, reset.group)
        if consumer is not None:
            consumer.reset_offsets(reset.topic, decode_reset_offset(command.body).offset_table)
        return None
    if code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        status = command.header(GetConsumerStatusRequest)
        consumer = _consumer(members, status.group)
        if consumer is None:
            return _unknown_group(status.group)
        offsets = dict(consumer.consumed_offsets(status.topic))
        return Reply(
            ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=offsets).encode()
        )
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        info = command.header(GetConsumerRunningInfoRequest)
        consumer = _consumer(members, info.consumer_group)
        if consumer is None:
            return _unknown_group(info.consumer_group)
        return Reply(ResponseCode.SUCCESS, body=consumer.running_info().encode())
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        return _unknown_group(command.header(ConsumeMessageDirectlyRequest).consumer_group)
    if code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        # Nobody waits for it here any longer; stock clients say SUCCESS all the same.
        return Reply(ResponseCode.SUCCESS)
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")


def _consumer(members: Iterable[Member], group: str) -> ReadingMember | None:
    for member in members:
        if member.group == group and isinstance(member, ReadingMember):
            return member
    return None


def _unknown_group(group: str) -> Reply:
    return Reply(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
    )
