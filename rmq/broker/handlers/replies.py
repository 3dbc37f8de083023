"""Replies to request messages: SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325).

A reply is not pulled, it is pushed: to the connection of the client that asked, which the reply
names (PUSH_REPLY_MESSAGE_TO_CLIENT, 326). When that client has confirmed it, or not within 10 s,
the reply is stored as well if `storeReplyMessageEnable` says so, and the sender is answered. The
push alone decides whether that is a success. Checks, codes and remarks are those of RocketMQ 4.9.8
ReplyMessageProcessor, which holds a thread for each reply under way; here nothing waits but the
request itself.

Unlike there, the stored reply keeps what the sender said of its compression: without it, consumers
of the topic cannot read the body.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final, TypeAlias, final

from rmq.broker.config import BrokerRole
from rmq.broker.sending import checks as send_checks
from rmq.broker.sending import properties as inbound
from rmq.broker.sending.preparation import pack_peer
from rmq.broker.sending.topics import SendTopics
from rmq.errors import ClientError, ProtocolError, RefusedError
from rmq.model import flags
from rmq.model.properties import REPLY_TO_CLIENT, decode_properties, encode_properties
from rmq.model.record import NewMessage, message_id, unpack_host
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.groups import HandlerGroup
from rmq.remoting.headers import (
    PushReplyMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.protocol import Requests
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.broker.sending.preparation import SendHeader
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.command import Command
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import SendMessageErrorResponse
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

ReplyRequest: TypeAlias = "Request[SendMessageRequest] | Request[SendMessageRequestV2]"

REPLY: Final = HandlerGroup(name="reply", concurrency=1, capacity=10_000, per_connection=5_000)
PUSH_TIMEOUT_S: Final = 10.0
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
_NOT_STORED_ID: Final = "0"
"""Used as message id when there is none: clients require one."""


@final
class ReplyHandlers:
    """Pushes replies to the clients that asked."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
        acknowledger: Acknowledger,
    ) -> None:
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._clients = clients
        self._send_topics = SendTopics(parts.tables.topics, parts.tables.creation)
        self._acknowledger = acknowledger
        self._stats = parts.stats
        self._store_stats = parts.stats.store
        self._store_host = parts.origin.store_host
        self._now_ms = parts.origin.now_ms

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.SEND_REPLY_MESSAGE, self.reply, group=REPLY)
        table.add(Requests.SEND_REPLY_MESSAGE_V2, self.reply, group=REPLY)

    def reply(self, request: ReplyRequest) -> None:
        """324 SEND_REPLY_MESSAGE and 325 SEND_REPLY_MESSAGE_V2."""
        name = request.header.topic
        try:
            send_checks.check_send(name, self._topics.get(name), self._live.current, self._now_ms())
            if self._send_topics.ready(name) is None:
                self._send_topics.create_on_send(
                    request,
                    request.header,
                    lambda: self._hand_on(request),
                    lambda why: self._refuse(request, why),
                )
            else:
                self._hand_on(request)
        except RefusedError as exc:
            self._refuse(request, exc)

    def _refuse(self, request: ReplyRequest, why: RefusedError) -> None:
        header = send_checks.error_header(self._live.current)
        request.reply(header, code=why.code, remark=why.remark)

    # --- pushing -----------------------------------------------------------------------------

    def _hand_on(self, request: ReplyRequest) -> None:
        header = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            raise send_checks.no_such_topic(header.topic)
        send_checks.check_queue_id(header.queue_id, topic, request.channel.peer)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(1, topic.write_queue_nums))
        born_host = pack_peer(request.channel.peer)
        message = NewMessage(
            header.topic,
            queue_id,
            request.body or b"",
            (header.properties or "").encode("utf-8", "replace"),
            header.flag,
            header.sys_flag & ~flags.TRANSACTION_MASK,
            header.born_timestamp,
            born_host,
            header.reconsume_times or 0,
        )
        pairs = decode_properties(message.properties)
        client_id = pairs.get(REPLY_TO_CLIENT)
        if client_id is None:
            self._finish(request, message, f"reply message properties[{REPLY_TO_CLIENT}] is null")
            return
        channel = self._clients.find_producer(client_id)
        if channel is None:
            self._finish(
                request,
                message,
                f"push reply message fail, channel of <{client_id}> not found.",
            )
            return
        pairs[PUSH_REPLY_TIME] = str(self._now_ms())
        pushed = self._push_header(header, born_host, encode_properties(pairs).decode())
        not_pushed = f"push reply message to {client_id}fail."

        def on_outcome(outcome: Command | ClientError) -> None:
            if isinstance(outcome, ClientError):
                logger.warning("reply not pushed to %s: %s", client_id, outcome)
                self._finish(request, message, not_pushed)
            elif outcome.code != ResponseCode.SUCCESS:
                logger.warning("reply refused by %s: %s", client_id, outcome.remark)
                self._finish(request, message, not_pushed)
            else:
                self._finish(request, message, None)

        request.defer()
        try:
            channel.submit(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                pushed,
                body=request.body,
                timeout_s=PUSH_TIMEOUT_S,
                on_outcome=on_outcome,
            )
        except (ClientError, ProtocolError) as exc:
            logger.warning("reply not pushed to %s: %s", client_id, exc)
            self._finish(request, message, not_pushed)

    def _push_header(
        self, header: SendHeader, born_host: bytes, properties: str
    ) -> PushReplyMessageRequest:
        return PushReplyMessageRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            properties=properties,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=_host_text(born_host),
            store_host=_host_text(self._store_host),
            store_timestamp=self._now_ms(),
        )

    # --- storing and answering ---------------------------------------------------------------

    def _finish(self, request: ReplyRequest, message: NewMessage, failure: str | None) -> None:
        """Store a reply that was pushed, or was not for the reason given, and answer its sender."""
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        config = self._live.current
        header: SendMessageResponse | SendMessageErrorResponse = send_checks.error_header(config)
        if failure is None:
            header = self._header(_NOT_STORED_ID, message.queue_id, 0)
        if not config.store_reply_messages or config.role is BrokerRole.SLAVE:
            request.reply(header, code=code, remark=failure)
            return
        (result,) = self._store.append([message])
        if result.status is not AppendStatus.PUT_OK:
            self._store_stats.put_failed()
            logger.warning("reply not stored: %s %s", result.status.value, result.reason)
            request.reply(header, code=code, remark=failure)
            return
        self._stats.put(message.topic, message.queue_id, 1, result.size)
        self._stats.broker_put(1)
        self._store_stats.put(1, result.size)
        stored = self._header(
            message_id(self._store_host, result.physical_offset),
            message.queue_id,
            result.queue_offset,
        )
        if self._acknowledger.is_immediate or not inbound.waits_until_safe(
            request.header.properties
        ):
            request.reply(stored, code=code, remark=failure)
            return
        # The outcome of the wait is not reported: only the push decides.
        request.defer()
        self._acknowledger.when_safe(
            result.end_offset, lambda _: request.reply(stored, code=code, remark=failure)
        )

    def _header(self, msg_id: str, queue_id: int, queue_offset: int) -> SendMessageResponse:
        config = self._live.current
        return SendMessageResponse(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            trace_on=config.trace_on,
            msg_region=config.region_id,
        )


def _host_text(host: bytes) -> str:
    address, port = unpack_host(host)
    return f"{address}:{port}"
