"""What brokers ask of a client by themselves, handed to the member it is for.

A request for a group that has no member here is answered as a stock client does: with SYSTEM_ERROR
and a sentence, or not at all if it is one-way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.client.core.members import ConsumerMember, TransactionMember
from rmq.client.trio.status import task_stacks
from rmq.errors import ProtocolError, RefusedError
from rmq.model.properties import PropertyFinder, decode_text
from rmq.model.record import BadRecordError, decode_record
from rmq.remoting.bodies import GetConsumerStatusBody
from rmq.remoting.bodies.offsets import decode_reset_offset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    CheckTransactionStateRequest,
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    PushReplyMessageRequest,
    ResetOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.client.core.members import Member
    from rmq.model.record import StoredRecord
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

find_producer_group: Final = PropertyFinder("PGROUP")


@final
class Callbacks:
    """Serves requests of brokers."""

    def __init__(self, members: Callable[[], Iterable[Member]]) -> None:
        self._members = members
        self.on_reply: Callable[[PushReplyMessageRequest, bytes], None] | None = None
        """Takes replies to requests that were sent from here (326)."""

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(
            RequestCode.CHECK_TRANSACTION_STATE,
            self._check_transaction,
            header=CheckTransactionStateRequest,
        )
        table.add(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            self._members_changed,
            header=NotifyConsumerIdsChangedRequest,
        )
        table.add(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets, header=ResetOffsetRequest
        )
        table.add(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            self._consumed_offsets,
            header=GetConsumerStatusRequest,
        )
        table.add(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            self._running_info,
            header=GetConsumerRunningInfoRequest,
        )
        table.add_async(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            self._consume_directly,
            header=ConsumeMessageDirectlyRequest,
        )
        table.add(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._push_reply,
            header=PushReplyMessageRequest,
        )
        return table

    def _consumer(self, group: str) -> ConsumerMember | None:
        for member in self._members():
            if member.group == group and isinstance(member, ConsumerMember):
                return member
        return None

    def _consumer_or_refuse(self, group: str) -> ConsumerMember:
        consumer = self._consumer(group)
        if consumer is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer Group <{group}> not exist in this consumer",
            )
        return consumer

    def _check_transaction(self, request: Request[CheckTransactionStateRequest]) -> None:
        try:
            half = decode_record(request.body or b"")
        except BadRecordError as exc:
            logger.warning("%s asks about a message that is none: %s", request.channel.peer, exc)
            return
        group = decode_text(find_producer_group(half.properties_bytes))
        for member in self._members():
            if member.group == group and isinstance(member, TransactionMember):
                member.check_transaction(request.channel.peer, request.header, half)
                return
        logger.warning(
            "%s asks about a transaction of group %s, which has no producer here",
            request.channel.peer,
            group or "(none)",
        )

    def _members_changed(self, request: Request[NotifyConsumerIdsChangedRequest]) -> None:
        consumer = self._consumer(request.header.consumer_group)
        if consumer is not None:
            consumer.members_changed()

    def _reset_offsets(self, request: Request[ResetOffsetRequest]) -> None:
        consumer = self._consumer(request.header.group)
        if consumer is None:
            return
        try:
            offsets = decode_reset_offset(request.body).offset_table
        except ProtocolError as exc:
            logger.warning("%s resets offsets unreadably: %s", request.channel.peer, exc)
            return
        consumer.reset_offsets(request.header.topic, offsets)

    def _consumed_offsets(self, request: Request[GetConsumerStatusRequest]) -> None:
        consumer = self._consumer_or_refuse(request.header.group)
        offsets = dict(consumer.consumed_offsets(request.header.topic))
        request.reply(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    def _running_info(self, request: Request[GetConsumerRunningInfoRequest]) -> None:
        consumer = self._consumer_or_refuse(request.header.consumer_group)
        info = consumer.running_info()
        if request.header.jstack_enable:
            info = msgspec.structs.replace(info, jstack=task_stacks())
        request.reply(body=info.encode())

    async def _consume_directly(self, request: Request[ConsumeMessageDirectlyRequest]) -> None:
        consumer = self._consumer_or_refuse(request.header.consumer_group)
        record = _record_or_refuse(request.body)
        result = await consumer.consume_directly(record, request.header.broker_name or "")
        request.reply(body=result.encode())

    def _push_reply(self, request: Request[PushReplyMessageRequest]) -> None:
        if self.on_reply is not None:
            self.on_reply(request.header, request.body or b"")
        request.reply()


def _record_or_refuse(body: bytes | None) -> StoredRecord:
    try:
        return decode_record(body or b"")
    except BadRecordError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the body is no message: {exc}") from exc
