"""Requests and replies between applications: messages that are answered. Pure.

A request is an ordinary message that says who asks (`REPLY_TO_CLIENT`) and which question it is
(`CORRELATION_ID`). Its consumer sends a reply with both to the reply topic of the cluster; the
broker pushes it to the client that asked (326), where `Replies` hands it to the waiting request.
Late replies are dropped.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final, final

from rmq.client.core.producing.outbound import OutboundMessage, compressed, joined_properties
from rmq.client.core.received import received
from rmq.errors import ConfigError, IllegalMessageError, TooManyRequestsError
from rmq.model.crc import crc32
from rmq.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq.model.names import REPLY_SUFFIX
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import CLUSTER, REPLY_TO_CLIENT, UNIQ_KEY, PropertyFinder, decode_text
from rmq.model.record import StoredRecord, pack_host
from rmq.remoting.addresses import parse_address
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.client.core.producing.unique_keys import UniqueKeys
    from rmq.client.core.received import ReceivedMessage
    from rmq.remoting.headers import PushReplyMessageRequest

logger = logging.getLogger(__name__)

CORRELATION_ID: Final = "CORRELATION_ID"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
ARRIVE_TIME: Final = "ARRIVE_TIME"
REPLY: Final = "reply"

REQUESTS_MAX: Final = 65_535
"""Requests of a client that wait for a reply."""

_find_correlation_id: Final = PropertyFinder(CORRELATION_ID)
_NO_HOST: Final = pack_host("0.0.0.0", 0)


# --- requests --------------------------------------------------------------------------------


def request_properties(client_id: str, timeout_s: float) -> dict[str, str]:
    """Return what makes a message a request of this client."""
    return {
        CORRELATION_ID: str(uuid.uuid4()),
        REPLY_TO_CLIENT: client_id,
        TTL: str(max(1, round(timeout_s * 1000))),
    }


@final
class Replies:
    """The requests of a client that wait for replies. Called with each pushed reply."""

    def __init__(self, *, now_ms: Callable[[], int], requests_max: int = REQUESTS_MAX) -> None:
        self._now_ms = now_ms
        self._requests_max = requests_max
        self._waiting: dict[str, Callable[[ReceivedMessage], None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str, on_reply: Callable[[ReceivedMessage], None]) -> None:
        """Register a callback for the reply to a request; raise `TooManyRequestsError`."""
        if len(self._waiting) >= self._requests_max:
            raise TooManyRequestsError(
                "the cluster",
                "a request",
                self._requests_max,
                what_waits="requests wait for a reply",
            )
        self._waiting[correlation_id] = on_reply

    def give_up(self, correlation_id: str) -> None:
        """Stop waiting for a reply; a late one is dropped."""
        self._waiting.pop(correlation_id, None)

    def __call__(self, header: PushReplyMessageRequest, body: bytes) -> None:
        """Take a reply (326)."""
        properties = (header.properties or "").encode("utf-8", "replace")
        correlation_id = decode_text(_find_correlation_id(properties))
        on_reply = self._waiting.pop(correlation_id, None)
        if on_reply is None:
            logger.info("a reply to request %s came too late", correlation_id or "(none)")
            return
        on_reply(reply_message(header, body, now_ms=self._now_ms()))


def reply_message(header: PushReplyMessageRequest, body: bytes, *, now_ms: int) -> ReceivedMessage:
    """Return a reply that was pushed as a message. It was not stored where it says."""
    born_host, store_host = _host(header.born_host), _host(header.store_host)
    sys_flag = header.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(born_host) > len(_NO_HOST) else 0
    sys_flag |= STORE_HOST_V6 if len(store_host) > len(_NO_HOST) else 0
    properties = f"{ARRIVE_TIME}\x01{now_ms}"
    if header.properties:
        properties = f"{header.properties.rstrip(chr(2))}\x02{properties}"
    record = StoredRecord(
        physical_offset=PhysicalOffset(0),
        size=0,
        body_crc=crc32(body) & 0x7FFFFFFF,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=QueueOffset(0),
        sys_flag=sys_flag,
        born_ms=header.born_timestamp,
        born_host=born_host,
        store_ms=header.store_timestamp,
        store_host=store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=0,
        body=body,
        topic=header.topic,
        properties_bytes=properties.encode("utf-8", "replace"),
    )
    return received(record, "")


def _host(address: str | None) -> bytes:
    # `/10.0.0.1:10911`, or with a name before the slash, is how Java prints an address.
    try:
        return pack_host(*parse_address((address or "").rpartition("/")[2]))
    except (ConfigError, ValueError):
        return _NO_HOST


# --- replies ---------------------------------------------------------------------------------


def reply_to(
    request: ReceivedMessage,
    body: bytes,
    *,
    unique_keys: UniqueKeys,
    now_ms: int,
    compress_above: int,
    compress_level: int,
    bytes_max: int,
) -> OutboundMessage:
    """Return the reply to a request; raise `IllegalMessageError` if it was none, or is too large.

    It is to be sent to the broker that the request came from: the client that asked is known there.
    """
    properties = request.properties
    cluster = properties.get(CLUSTER)
    if not cluster or CORRELATION_ID not in properties or REPLY_TO_CLIENT not in properties:
        raise IllegalMessageError(
            f"message {request.message_id} is no request: it says not who asks",
            hint="requests are sent with Producer.request",
        )
    if not body:
        raise IllegalMessageError("the body is empty, which brokers refuse")
    if len(body) > bytes_max:
        raise IllegalMessageError(f"the body has {len(body)} bytes, above {bytes_max}")
    message_id = unique_keys.next(now_ms)
    answer = {
        MSG_TYPE: REPLY,
        CORRELATION_ID: properties[CORRELATION_ID],
        REPLY_TO_CLIENT: properties[REPLY_TO_CLIENT],
    }
    if TTL in properties:
        answer[TTL] = properties[TTL]
    answer[UNIQ_KEY] = message_id
    sys_flag = 0
    if len(body) >= compress_above:
        body, sys_flag = compressed(body, compress_level)
    return OutboundMessage(
        topic=reply_topic(cluster),
        message_id=message_id,
        properties=joined_properties(answer),
        body=body,
        sys_flag=sys_flag,
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
    )


def reply_topic(cluster: str) -> str:
    """Return the topic that replies in a cluster go through."""
    return cluster + REPLY_SUFFIX
