"""What brokers ask of a client by themselves, and what they are answered. Pure.

A request is handed to the member it is for. One for a group that has no member here is answered as
a stock client does: with SYSTEM_ERROR and a sentence, or not at all if it is one-way. The trio
client serves `BrokerRequests.handlers` with its dispatcher; a client without a loop calls `answer`
whenever it reads a request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

import msgspec

from rmq.client.core.members import ConsumerMember, ReadingMember, TransactionMember
from rmq.errors import ProtocolError, RefusedError
from rmq.model.properties import PropertyFinder, decode_text
from rmq.model.record import BadRecordError, decode_record
from rmq.remoting.bodies import GetConsumerStatusBody
from rmq.remoting.bodies.offsets import decode_reset_offset
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.header import EmptyHeader
from rmq.remoting.headers import ConsumeMessageDirectlyRequest
from rmq.remoting.protocol import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.client.core.members import Member
    from rmq.model.record import StoredRecord
    from rmq.remoting.command import Command
    from rmq.remoting.headers import (
        CheckTransactionStateRequest,
        GetConsumerRunningInfoRequest,
        GetConsumerStatusRequest,
        NotifyConsumerIdsChangedRequest,
        PushReplyMessageRequest,
        ResetOffsetRequest,
    )

logger = logging.getLogger(__name__)

find_producer_group: Final = PropertyFinder("PGROUP")


class Reply(NamedTuple):
    """What a request of a broker is answered with."""

    code: int
    remark: str | None = None
    body: bytes | None = None


Handler: TypeAlias = "Callable[[str, Any, bytes | None], Reply | None]"
"""Takes the broker's address, the header and the body; returns None for no response. Raises
`RefusedError`."""


@final
class BrokerRequests:
    """Decides what brokers are answered."""

    def __init__(
        self,
        members: Callable[[], Iterable[Member]],
        *,
        stacks: Callable[[], str] | None = None,
    ) -> None:
        """`stacks` shows what runs in this process, for operators who ask for it."""
        self._members = members
        self._stacks = stacks
        self.on_reply: Callable[[PushReplyMessageRequest, bytes], None] | None = None
        """Takes replies to requests that were sent from here (326)."""
        self.handlers: Final[dict[RequestCode, Handler]] = {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumed_offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._push_reply,
        }
        """All codes but CONSUME_MESSAGE_DIRECTLY, whose member has to be waited for."""
        self._by_number = {
            int(code): (REQUESTS[code].header or EmptyHeader, handler)
            for code, handler in self.handlers.items()
        }

    def answer(self, peer: str, command: Command) -> Reply | None:
        """Serve a request in a client that has no loop; None for no response."""
        try:
            return self._answer(peer, command)
        except RefusedError as exc:
            return Reply(exc.code, exc.remark)
        except ProtocolError as exc:
            logger.warning("cannot decode request %d of %s: %s", command.code, peer, exc)
            return Reply(ResponseCode.SYSTEM_ERROR, str(exc))

    def _answer(self, peer: str, command: Command) -> Reply | None:
        code = command.code
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            # Without a loop there is no listener.
            raise unknown_group(command.header(ConsumeMessageDirectlyRequest).consumer_group)
        served = self._by_number.get(code)
        if served is None:
            return Reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported"
            )
        header, handler = served
        return handler(peer, command.header(header), command.body)

    def listener_for(
        self, header: ConsumeMessageDirectlyRequest, body: bytes | None
    ) -> tuple[ConsumerMember, StoredRecord]:
        """Return who consumes a message for an operator (309), and the message."""
        for member in self._members():
            if member.group == header.consumer_group and isinstance(member, ConsumerMember):
                try:
                    return member, decode_record(body or b"")
                except BadRecordError as exc:
                    raise RefusedError(
                        ResponseCode.SYSTEM_ERROR, f"the body is no message: {exc}"
                    ) from exc
        raise unknown_group(header.consumer_group)

    # --- by code -----------------------------------------------------------------------------

    def _reader(self, group: str) -> ReadingMember | None:
        for member in self._members():
            if member.group == group and isinstance(member, ReadingMember):
                return member
        return None

    def _check_transaction(
        self, peer: str, header: CheckTransactionStateRequest, body: bytes | None
    ) -> None:
        try:
            half = decode_record(body or b"")
        except BadRecordError as exc:
            logger.warning("%s asks about a message that is none: %s", peer, exc)
            return
        group = decode_text(find_producer_group(half.properties_bytes))
        for member in self._members():
            if member.group == group and isinstance(member, TransactionMember):
                member.check_transaction(peer, header, half)
                return
        logger.warning(
            "%s asks about a transaction of group %s, which has no producer here",
            peer,
            group or "(none)",
        )

    def _members_changed(
        self, peer: str, header: NotifyConsumerIdsChangedRequest, body: bytes | None
    ) -> None:
        for member in self._members():
            if member.group == header.consumer_group and isinstance(member, ConsumerMember):
                member.members_changed()
                return

    def _reset_offsets(self, peer: str, header: ResetOffsetRequest, body: bytes | None) -> None:
        reader = self._reader(header.group)
        if reader is None:
            return
        try:
            offsets = decode_reset_offset(body).offset_table
        except ProtocolError as exc:
            logger.warning("cannot decode the offset reset from %s: %s", peer, exc)
            return
        reader.reset_offsets(header.topic, offsets)

    def _consumed_offsets(
        self, peer: str, header: GetConsumerStatusRequest, body: bytes | None
    ) -> Reply:
        reader = self._reader(header.group)
        if reader is None:
            raise unknown_group(header.group)
        offsets = dict(reader.consumed_offsets(header.topic))
        return Reply(
            ResponseCode.SUCCESS, body=GetConsumerStatusBody(message_queue_table=offsets).encode()
        )

    def _running_info(
        self, peer: str, header: GetConsumerRunningInfoRequest, body: bytes | None
    ) -> Reply:
        reader = self._reader(header.consumer_group)
        if reader is None:
            raise unknown_group(header.consumer_group)
        info = reader.running_info()
        if header.jstack_enable and self._stacks is not None:
            info = msgspec.structs.replace(info, jstack=self._stacks())
        return Reply(ResponseCode.SUCCESS, body=info.encode())

    def _push_reply(self, peer: str, header: PushReplyMessageRequest, body: bytes | None) -> Reply:
        if self.on_reply is not None:
            self.on_reply(header, body or b"")
        # Stock clients say SUCCESS, also if the request has timed out.
        return Reply(ResponseCode.SUCCESS)


def unknown_group(group: str) -> RefusedError:
    """Return what to raise if a group has no member here."""
    return RefusedError(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
    )
